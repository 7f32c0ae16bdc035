"""Batches of a Summarise or LookUp stage -> the groups that they touch, made again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from expectations.rules import counted
from pipelines import moments
from pipelines.run.batches import engine_of, news_of, passed, progress_of
from pipelines.run.contracts import contracts
from pipelines.run.ids import new_run_id
from pipelines.run.stopped import Stopped
from pipelines.stage import LookUp, Summarise
from pipelines.steps.modules import look_up_module
from pipelines.steps.summarise import refreshed
from pipelines.warehouse import change_feed, progress, quality
from pipelines.warehouse.progress import Batch, Progress, Reading
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse


def run_summary(warehouse: Warehouse, stage: Summarise, run_id: str, stopping: Callable[[], bool]) -> list[StageRun]:
    """Compute the groups that new input touches, batch by batch, until no input is new or a fact breaks."""
    known = progress_of(warehouse, stage)
    stage_runs: list[StageRun] = []
    while batch := known.pending or news_of(warehouse, known):
        if stopping():  # a cancelled job may have looked as if versions were gone
            raise Stopped
        known = replace(known, pending=batch)
        progress.save(warehouse, stage.table, known)
        known, stage_run = _summarise(warehouse, stage, batch, known, run_id)
        stage_runs += [stage_run] if stage_run else []
        if stage_run and stage_run.status == "broken":
            break
    return stage_runs


def look_up(warehouse: Warehouse, stage: LookUp, run_id: str) -> StageRun | None:
    """Update a table with what settings and cluster say, and with new rows of its input."""
    started_at = moments.now()
    known = progress_of(warehouse, stage)
    (table,) = stage.inputs
    batch = known.pending or news_of(warehouse, known)
    if batch:
        known = replace(known, pending=batch)
        progress.save(warehouse, stage.table, known)
    news = change_feed.changes(warehouse, table, batch[table]) if batch else None
    refreshed = look_up_module(stage).refresh(warehouse, news.rows if news else None)
    if news:
        news.check()
    stage_run = None
    if refreshed:
        stage_run = StageRun(
            run_id,
            stage.table,
            "passed",
            started_at,
            moments.now(),
            read=refreshed,
            accepted=refreshed,
            refreshed=refreshed,
            input_from=batch[table].start if batch else None,
            input_to=batch[table].end if batch else None,
            message=f"{counted(refreshed, 'row')} refreshed",
        )
        quality.note(warehouse, stage_run)
    if batch or refreshed:
        passed(warehouse, stage, known)
    return stage_run


def rebuild(
    warehouse: Warehouse,
    stage: Summarise,
    *,
    accept: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
) -> StageRun:
    """Compute a summarised table again from all of its inputs, whatever its progress says; return the stage's run.

    The batch is fixed first, so that the next run completes it after a crash. If the facts do not hold for all of the
    inputs either, nothing is written, unless ``accept`` is true. The caller holds the writer's lock.
    """
    warehouse.ensure_all(contracts())
    quality.report(warehouse)
    run_id, started_at = new_run_id(), moments.now()
    before = progress.load(warehouse, stage.table) or Progress()
    target_id, _ = warehouse.state(stage.table)
    states = {table: warehouse.state(table) for table in stage.inputs}
    batch = {table: Batch(None, version) for table, (_, version) in states.items()}
    known = Progress(
        target_id=target_id,
        inputs={table: Reading(table_id) for table, (table_id, _) in states.items()},
        pending=batch,
        blocked_since=before.blocked_since,
        message=before.message,
    )
    size = sum(warehouse.size(table) for table in stage.inputs)
    say(f"{stage.table} is computed again from all of {', '.join(stage.inputs)}: {size / 1e6:,.1f} MB to read.")
    progress.save(warehouse, stage.table, known)
    try:
        known, stage_run = _summarise(warehouse, stage, batch, known, run_id, accept=accept)
    except Exception as error:
        failed = StageRun(run_id, stage.table, "failed", started_at, moments.now(), message=type(error).__name__)
        quality.note(warehouse, failed)
        raise
    finally:
        quality.report(warehouse)
    if stage_run is None:
        return StageRun(run_id, stage.table, "idle", started_at, moments.now())
    if stage_run.status == "broken":
        last_way_out = f"As this was all of them: `afterlog rebuild {stage.table} --accept` writes it as it is."
        return replace(stage_run, message=f"{stage_run.message} {last_way_out}")
    return stage_run


def _summarise(
    warehouse: Warehouse, stage: Summarise, batch: dict[str, Batch], known: Progress, run_id: str, accept: bool = False
) -> tuple[Progress, StageRun | None]:
    """Refresh the groups that a batch touches, if the facts hold or the caller accepts broken facts."""
    started_at = moments.now()
    with refreshed(warehouse, stage, batch) as fresh:
        if fresh is None:
            return passed(warehouse, stage, known), None
        verdict = fresh.gate(run_id)
        stage_run = StageRun(
            run_id,
            stage.table,
            "passed" if verdict.passed else "broken",
            started_at,
            moments.now(),
            read=fresh.read,
            input_from=batch[stage.inputs[0]].start,
            input_to=batch[stage.inputs[0]].end,
            message=None if verdict.passed else verdict.sentence(),
            verdict=verdict,
            **engine_of(fresh.engine),
        )
        if not verdict.passed and not accept:
            return _blocked(warehouse, stage, known, stage_run), stage_run
        written = fresh.write()
    accepted = "" if verdict.passed else f", though {verdict.findings()}"
    stage_run = replace(
        stage_run,
        status="passed",
        finished_at=moments.now(),
        accepted=stage_run.read,
        refreshed=written,
        message=f"{counted(written, 'row')} refreshed{accepted}",
    )
    quality.note(warehouse, stage_run)
    return passed(warehouse, stage, known), stage_run


def _blocked(warehouse: Warehouse, stage: Summarise, known: Progress, stage_run: StageRun) -> Progress:
    since = known.blocked_since or stage_run.started_at.isoformat(timespec="seconds")
    known = replace(known, blocked_since=since, message=stage_run.message)
    quality.note(warehouse, stage_run)
    progress.save(warehouse, stage.table, known)
    return known
