"""Stages and their progress -> whether a run has nothing to do, which tables wait, and what it then reports."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from pipelines import moments
from pipelines.catalog import CATALOG
from pipelines.errors import AfterlogError, ClustersLeft
from pipelines.run.batches import tables_beside
from pipelines.run.contracts import contracts
from pipelines.run.gates import still_held
from pipelines.run.landing import reads_topics
from pipelines.stage import Land, LookUp, Split, Stage, Summarise
from pipelines.steps import held, migrate
from pipelines.steps.held import NOTHING_ACCEPTED, Acceptance
from pipelines.steps.modules import look_up_module
from pipelines.steps.waiting import unread, waiting
from pipelines.warehouse import actions, progress, quality
from pipelines.warehouse.progress import Progress
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse


def idle(warehouse: Warehouse, stages: Sequence[Stage], accepted: Acceptance = NOTHING_ACCEPTED) -> bool:
    """Tell, without a session, whether a run would have nothing to do; False if only a session can tell.

    Held rows are not work as long as the gate would find the same.

    Raises AfterlogError: only topics can have new input, and the cluster cannot be asked. ClustersLeft: this is so of
    some of several clusters, and the others have nothing new.
    """
    with warehouse.store.pinned():
        return _is_idle(warehouse, stages, accepted)


def _is_idle(warehouse: Warehouse, stages: Sequence[Stage], accepted: Acceptance) -> bool:
    if (
        not warehouse.opens_tables
        or quality.waiting(warehouse)
        or actions.waiting(warehouse)
        or blocked_upstream(warehouse, stages)
    ):
        return False
    if any(warehouse.last_version(contract.table) is None for contract in contracts()):
        return False
    migrate.lags(warehouse)  # refuses what a later version has changed
    owns = warehouse.of_clusters()
    landing: list[tuple[Land, Progress | None]] = []
    looking_up: list[LookUp] = []
    for stage in stages:
        known = progress.load(warehouse, stage.table)
        if known and isinstance(stage, Split) and held.again(known, warehouse.settings, stage, accepted):
            return False
        if (
            known
            and any(known.within_a_batch(own.cluster, reads_topics(own.settings, stage)) for own in owns)
            and not held.would_break_again(known, warehouse.settings, stage, accepted)
        ):
            return False
        if isinstance(stage, Land):
            older = known is not None and known.is_ahead_of(warehouse.last_version(stage.table))
            if older or any(unread(own.settings, stage, known) for own in owns):
                return False
            landing.append((stage, known))
        elif any(
            warehouse.last_version(table) != ((known.reached(table) if known else None) or 0) for table in stage.inputs
        ):
            return False
        elif isinstance(stage, LookUp):
            looking_up.append(stage)
        beside = tables_beside(stage, known) if known else {}
        if any((version or 0) > (warehouse.last_version(table) or 0) for table, (_, version) in beside.items()):
            return False
    # Ask Kafka last: it takes longer than everything else.
    left: dict[str, AfterlogError] = {}
    for own in owns:
        try:
            if any(waiting(own.settings, landing, noting=own).values()):
                return False
        except AfterlogError as error:
            if len(owns) == 1:
                raise
            left[own.cluster] = error
    if any(look_up_module(stage).is_stale(warehouse) for stage in looking_up):
        return False
    if left:
        raise ClustersLeft(left)
    return True


def blocked_upstream(warehouse: Warehouse, stages: Sequence[Stage]) -> set[str]:
    """Return the blocked summarised tables upstream of the stages, without the tables of the stages themselves.

    A summarised table is blocked if its facts are broken, or if a table upstream of it is blocked. In a run of all
    stages those after it would wait; a run of one layer must do the same.
    """
    known = {stage.table: stage for stage in CATALOG}

    @cache
    def waits(table: str) -> bool:
        stage = known.get(table)
        if stage is None:
            return False
        reached = progress.load(warehouse, table) if isinstance(stage, Summarise) else None
        return (reached is not None and reached.blocked_since is not None) or any(map(waits, stage.inputs))

    own = {stage.table for stage in stages}
    upstream: set[str] = set()
    look_at = [table for stage in stages for table in stage.inputs]
    while look_at:
        table = look_at.pop()
        if table in known and table not in upstream | own:
            upstream.add(table)
            look_at += known[table].inputs
    return {table for table in upstream if isinstance(known[table], Summarise) and waits(table)}


def at_rest(warehouse: Warehouse, stages: Sequence[Stage], run_id: str) -> list[StageRun]:
    """Return the stage runs of a run with nothing to do: idle, or held if a stage still holds rows."""
    at = moments.now()
    done = []
    for stage in stages:
        if isinstance(stage, Split) and (known := held.of_table(warehouse, stage)):
            done.append(still_held(stage, known, run_id))
        else:
            done.append(StageRun(run_id, stage.table, "idle", at, at))
    return done
