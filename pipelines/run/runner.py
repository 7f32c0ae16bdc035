"""Stages -> what each did: they run once on new input, in the order data flows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from pipelines import moments
from pipelines.errors import ClustersLeft
from pipelines.run.contracts import contracts
from pipelines.run.gates import run_split
from pipelines.run.idleness import blocked_upstream
from pipelines.run.ids import new_run_id
from pipelines.run.landing import Left, land_cluster
from pipelines.run.stopped import Stopped
from pipelines.run.summaries import look_up, run_summary
from pipelines.stage import Land, LookUp, Split, Stage, Summarise
from pipelines.steps import migrate
from pipelines.steps.held import NOTHING_ACCEPTED, Acceptance
from pipelines.steps.watch import NOBODY, Watch
from pipelines.warehouse import actions, quality
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse

Reporter = Callable[[StageRun], None]


def run(
    warehouse: Warehouse,
    stages: Sequence[Stage],
    reporter: Reporter = lambda stage_run: None,
    *,
    stopping: Callable[[], bool] = lambda: False,
    note_failures: bool = True,
    known_away: Collection[str] = (),
    accepted: Acceptance = NOTHING_ACCEPTED,
    watch: Watch = NOBODY,
) -> list[StageRun]:
    """Run stages once; return what each did, in order. The caller holds the writer's lock.

    Rows that break a contract are held, unless they are ``accepted``, and later stages continue with the other rows. If
    the facts of a summary are broken, its batch stays uncommitted, and stages that depend on it wait. Any other error
    is raised after the counts so far are reported; an error that leaves topics unread is raised after all stages.
    Without ``note_failures`` such errors are not reported, nor are those of the clusters ``known_away``. When
    ``stopping`` returns true no further stage begins. Whoever makes it true may also cancel Spark's jobs. The next run
    then reports what was done.

    Raises Stopped: ``stopping`` returned true.
    """
    with warehouse.store.remembering():
        warehouse.ensure_all(contracts())
        if migrate.lags(warehouse):
            for contract, migration in migrate.needed(warehouse, contracts()):
                migrate.apply(warehouse, contract, migration)
        quality.report(warehouse)
        actions.report(warehouse)
        run_id = new_run_id()
        stage_runs: list[StageRun] = []
        held_up = blocked_upstream(warehouse, stages)
        left = Left(frozenset(known_away if note_failures else warehouse.settings.names))
        try:
            for number, stage in enumerate(stages, 1):
                if stopping():
                    raise Stopped
                watch.begins(stage.table, number, len(stages))
                if held_up.intersection(stage.inputs):
                    held_up.add(stage.table)
                    at = moments.now()
                    done = [StageRun(run_id, stage.table, "waiting", at, at, message="An input's gate broke.")]
                else:
                    done = _run_stage(warehouse, stage, run_id, left, stopping, note_failures, accepted, watch)
                if done[-1].status == "broken" and isinstance(stage, Summarise):
                    held_up.add(stage.table)
                for stage_run in done:
                    stage_runs.append(stage_run)
                    reporter(stage_run)
        finally:
            if not stopping():
                quality.report(warehouse)
        if left.errors:
            raise next(iter(left.errors.values())) if warehouse.settings.sole_cluster else ClustersLeft(left.errors)
        return stage_runs


def _run_stage(
    warehouse: Warehouse,
    stage: Stage,
    run_id: str,
    left: Left,
    stopping: Callable[[], bool],
    note_failures: bool,
    accepted: Acceptance,
    watch: Watch,
) -> list[StageRun]:
    """Run one stage on its pending batch, if any, then on later input; ``left`` takes errors that left topics unread.

    Raises Stopped: an error came while ``stopping`` was true.
    """
    started_at = moments.now()
    stage_runs: list[StageRun] = []
    try:
        if isinstance(stage, Land):
            for number, own in enumerate(warehouse.of_clusters()):
                if number and stopping():
                    break
                stage_runs += land_cluster(
                    own, stage, run_id, left, stopping, warehouse.settings.sole_cluster is None, watch
                )
        elif isinstance(stage, Split):
            stage_runs += run_split(warehouse, stage, run_id, stopping, accepted)
        elif isinstance(stage, Summarise):
            stage_runs += run_summary(warehouse, stage, run_id, stopping)
        elif isinstance(stage, LookUp):
            looked_up = look_up(warehouse, stage, run_id)
            stage_runs += [looked_up] if looked_up else []
    except Exception as error:
        if stopping():
            raise Stopped from None
        failed = StageRun(run_id, stage.table, "failed", started_at, moments.now(), message=type(error).__name__)
        if note_failures:
            quality.note(warehouse, failed)
        raise
    at = moments.now()
    return stage_runs or [StageRun(run_id, stage.table, "idle", started_at, at)]
