"""Run the stages once on what is new: land, transform, gate, split, collapse, summarise; in the order data flows."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from expectations.contract import Contract, contract_of
from expectations.quality import QUALITY
from pipelines import lakehouse, progress, quality
from pipelines.catalog import CATALOG
from pipelines.errors import AfterlogError
from pipelines.land import land, unread, waiting
from pipelines.progress import Batch, Progress, Reading
from pipelines.quality import StageRun
from pipelines.settings import Settings
from pipelines.split import Split
from pipelines.stage import Stage
from pipelines.storage import is_local
from pipelines.summarise import Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("afterlog")

Reporter = Callable[[StageRun], None]


class Stopped(Exception):
    """A run was asked to stop, and did; the next one goes on from there."""


def new_run_id() -> str:
    """Return an id that sorts by time and is unique."""
    return f"{quality.now():%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(3)}"


def idle(settings: Settings, stages: Sequence[Stage]) -> bool:
    """Tell, without a session, whether a run would find nothing to do; False where only a session can tell.

    Raises AfterlogError: nothing but topics may have news, and the cluster cannot be asked.
    """
    if not is_local(settings.warehouse) or quality.waiting(settings):
        return False
    if any(lakehouse.local_version(settings, contract.table) is None for contract in contracts()):
        return False
    landing: list[tuple[Stage, Progress | None]] = []
    for stage in stages:
        known = progress.load(settings.warehouse, stage.table)
        if known and known.within_a_batch(settings.cluster):
            return False
        if stage.kind == "land":
            older = known is not None and known.is_ahead_of(lakehouse.local_version(settings, stage.table))
            if older or unread(settings, stage, known):
                return False
            landing.append((stage, known))
        elif any(
            lakehouse.local_version(settings, table) != ((known.reached(table) if known else None) or 0)
            for table in stage.inputs
        ):
            return False
    return not any(waiting(settings, landing).values())  # last, as Kafka takes longer to ask than all else


def contracts() -> tuple[Contract, ...]:
    """Return the contracts of all tables that exist from the first run on: catalog, quarantine and quality."""
    tables = [contract_of(stage.table) for stage in CATALOG]
    quarantines = [lakehouse.quarantine_contract(contract_of(stage.table)) for stage in CATALOG if stage.quarantine]
    return (*tables, *quarantines, *QUALITY)


def run(
    spark: SparkSession,
    settings: Settings,
    stages: Sequence[Stage],
    reporter: Reporter = lambda stage_run: None,
    *,
    stopping: Callable[[], bool] = lambda: False,
    note_failures: bool = True,
) -> list[StageRun]:
    """Run stages once; return what each did, in order. The caller holds the writer's lock.

    A stage whose gate broke leaves its batch uncommitted; stages that depend on it wait, others run. An error that is
    not a contract's is raised after the counts so far are reported; one that leaves topics unread, after all stages.
    Without ``note_failures`` such errors are not reported. Where ``stopping`` becomes true no further stage begins, and
    whoever makes it true may cancel Spark's jobs: what was done is reported by the next run.

    Raises Stopped.
    """
    lakehouse.ensure_all(spark, settings, contracts())
    quality.report(spark, settings)
    run_id = new_run_id()
    stage_runs: list[StageRun] = []
    held_up: set[str] = set()
    left: list[AfterlogError] = []
    try:
        for stage in stages:
            if stopping():
                raise Stopped
            if held_up.intersection(stage.inputs):
                held_up.add(stage.table)
                at = quality.now()
                done = [StageRun(run_id, stage.table, "waiting", at, at, message="An input's gate broke.")]
            else:
                done = _run_stage(spark, settings, stage, run_id, left, stopping, note_failures)
            if done[-1].status == "broken":
                held_up.add(stage.table)
            for stage_run in done:
                stage_runs.append(stage_run)
                reporter(stage_run)
    finally:
        if not stopping():
            quality.report(spark, settings)
    if left:
        raise left[0]
    return stage_runs


def _run_stage(
    spark: SparkSession,
    settings: Settings,
    stage: Stage,
    run_id: str,
    left: list[AfterlogError],
    stopping: Callable[[], bool],
    note_failures: bool,
) -> list[StageRun]:
    """Run one stage on the batch that waits, if any, and then on what came after it; add why topics are left unread."""
    started_at = quality.now()
    stage_runs: list[StageRun] = []
    try:
        if stage.kind == "land":
            landed = land(spark, settings, stage, run_id, started_at)
            stage_runs += [landed.stage_run] if landed.stage_run else []
            if landed.left and not stopping():
                at = quality.now()
                failed = StageRun(run_id, stage.table, "failed", at, at, message=str(landed.left))
                if note_failures:
                    quality.note(settings, failed)
                stage_runs.append(failed)
                left.append(landed.left)
        else:
            known = _known(spark, settings, stage)
            while batch := known.pending or _news(spark, settings, known):
                if stopping():  # a job that was cancelled may have looked like versions that are gone
                    raise Stopped
                known = replace(known, pending=batch)
                progress.save(settings.warehouse, stage.table, known)
                step = _split if stage.kind == "split" else _summarise
                known, stage_run = step(spark, settings, stage, batch, known, run_id)
                stage_runs += [stage_run] if stage_run else []
                if stage_run and stage_run.status == "broken":
                    break
    except Exception as error:
        if stopping():
            raise Stopped from None
        failed = StageRun(run_id, stage.table, "failed", started_at, quality.now(), message=type(error).__name__)
        if note_failures:
            quality.note(settings, failed)
        raise
    at = quality.now()
    return stage_runs or [StageRun(run_id, stage.table, "idle", started_at, at)]


def _known(spark: SparkSession, settings: Settings, stage: Stage) -> Progress:
    """Return a stage's progress, or none, announced, where it speaks of other tables or of versions that are gone."""
    target_id, target_version = lakehouse.state(spark, settings, stage.table)
    states = {table: lakehouse.state(spark, settings, table) for table in stage.inputs}
    inputs = {table: Reading(table_id) for table, (table_id, _) in states.items()}
    fresh = Progress(target_id=target_id, inputs=inputs)
    known = progress.load(settings.warehouse, stage.table)
    if known is None:
        if target_version > 0:
            log.warning("%s has no progress that can be read: reading all of its input again.", stage.table)
        return fresh
    if (
        known.target_id != target_id
        or known.is_ahead_of(target_version)
        or {table: reading.table_id for table, reading in known.inputs.items()}
        != {table: reading.table_id for table, reading in inputs.items()}
        or not all(_is_there(spark, settings, known, table, latest) for table, (_, latest) in states.items())
    ):
        log.warning("The progress of %s speaks of a table or versions that are gone: reading all again.", stage.table)
        return fresh
    return known


def _is_there(spark: SparkSession, settings: Settings, known: Progress, table: str, latest: int) -> bool:
    """Tell whether the versions of an input that are to be read next are in its log, and those that were read."""
    batch = known.pending.get(table) or Batch(known.inputs[table].version, latest)
    if (known.reached(table) or 0) > latest:
        return False
    return (batch.start or 0) >= batch.end or lakehouse.can_read(spark, settings, table, batch)


def _news(spark: SparkSession, settings: Settings, known: Progress) -> dict[str, Batch]:
    """Return, for every input, the versions after those that are read; nothing where no input has any.

    Version 0 creates a table and holds no rows.
    """
    latest = {table: lakehouse.state(spark, settings, table)[1] for table in known.inputs}
    if all(latest[table] == (reading.version or 0) for table, reading in known.inputs.items()):
        return {}
    return {table: Batch(reading.version, latest[table]) for table, reading in known.inputs.items()}


def _split(
    spark: SparkSession, settings: Settings, stage: Stage, batch: dict[str, Batch], known: Progress, run_id: str
) -> tuple[Progress, StageRun | None]:
    """Take a batch into the table and its quarantine, if its gate holds."""
    started_at = quality.now()
    (table,) = stage.inputs
    versions = batch[table]
    rows = lakehouse.changes(spark, settings, table, versions).where("_change_type = 'insert'")
    with Split.of(settings, stage, rows.drop("_change_type"), run_id, started_at) as split:
        if not split.census.rows:
            return _passed(spark, settings, stage, known), None
        verdict = split.gate(run_id)
        stage_run = StageRun(
            run_id,
            stage.table,
            "passed" if verdict.passed else "broken",
            started_at,
            quality.now(),
            read=split.census.rows + split.census.skipped,
            input_from=versions.start,
            input_to=versions.end,
            message=None if verdict.passed else verdict.sentence(),
            verdict=verdict,
        )
        if not verdict.passed:
            return _blocked(settings, stage, known, stage_run), stage_run
        counts = split.write()
    stage_run = replace(
        stage_run,
        finished_at=quality.now(),
        accepted=counts.accepted,
        quarantined=counts.quarantined,
        duplicates=counts.duplicates,
        skipped=counts.skipped,
    )
    quality.note(settings, stage_run)
    return _passed(spark, settings, stage, known), stage_run


def _summarise(
    spark: SparkSession, settings: Settings, stage: Stage, batch: dict[str, Batch], known: Progress, run_id: str
) -> tuple[Progress, StageRun | None]:
    """Refresh the groups that a batch touches, if the facts hold."""
    started_at = quality.now()
    summary = Summary.of(spark, settings, stage, batch)
    if summary is None:
        return _passed(spark, settings, stage, known), None
    try:
        verdict, count = summary.gate(run_id)
        stage_run = StageRun(
            run_id,
            stage.table,
            "passed" if verdict.passed else "broken",
            started_at,
            quality.now(),
            read=summary.read,
            input_from=batch[stage.inputs[0]].start,
            input_to=batch[stage.inputs[0]].end,
            message=None if verdict.passed else verdict.sentence(),
            verdict=verdict,
        )
        if not verdict.passed:
            return _blocked(settings, stage, known, stage_run), stage_run
        written = summary.write(count)
    finally:
        summary.rows.unpersist()
    stage_run = replace(
        stage_run, finished_at=quality.now(), accepted=summary.read, message=f"{written:,} rows refreshed"
    )
    quality.note(settings, stage_run)
    return _passed(spark, settings, stage, known), stage_run


def _passed(spark: SparkSession, settings: Settings, stage: Stage, known: Progress) -> Progress:
    _, target_version = lakehouse.state(spark, settings, stage.table)
    known = known.done(target_version=target_version)
    progress.save(settings.warehouse, stage.table, known)
    return known


def _blocked(settings: Settings, stage: Stage, known: Progress, stage_run: StageRun) -> Progress:
    since = known.blocked_since or stage_run.started_at.isoformat(timespec="seconds")
    known = replace(known, blocked_since=since, message=stage_run.message)
    quality.note(settings, stage_run)
    progress.save(settings.warehouse, stage.table, known)
    return known
