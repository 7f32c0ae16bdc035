"""Quarantine -> silver: today's transform and contract, gate off, over the bronze rows of quarantined rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines import lakehouse, quality
from pipelines.catalog import CATALOG
from pipelines.collapse import CONFLICT, ROW
from pipelines.errors import UsageError
from pipelines.quality import StageRun
from pipelines.runner import contracts, new_run_id
from pipelines.settings import Settings
from pipelines.split import Split
from pipelines.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Requeued:
    """What a requeue did: rows found in quarantine, rows that left it, rows that stay with refreshed violations."""

    found: int
    released: int
    stage_run: StageRun | None


def stage_with_quarantine(name: str) -> Stage:
    """Return the stage of a table, named by itself or by its quarantine.

    Raises UsageError: no such table has a quarantine.
    """
    stages = {name: stage for stage in CATALOG if stage.quarantine for name in (stage.table, stage.quarantine)}
    if name not in stages:
        known = ", ".join(stage.table for stage in CATALOG if stage.quarantine)
        raise UsageError(f"{name!r} has no quarantine; tables with one: {known}.")
    return stages[name]


def requeue(spark: SparkSession, settings: Settings, stage: Stage) -> Requeued:
    """Insert what passes now, remove it from quarantine, then refresh the violations of the rest, in that order.

    A crash between two steps leaves rows that the next requeue, or the next run that meets them, puts right. The caller
    holds the writer's lock.
    """

    for contract in contracts():
        lakehouse.ensure(spark, settings, contract)
    started_at, run_id = quality.now(), new_run_id()
    assert stage.quarantine is not None
    quarantined = lakehouse.standing(spark, settings, stage.quarantine)
    if quarantined is None:
        return Requeued(0, 0, None)
    rows = lakehouse.read(spark, settings, stage.inputs[0]).join(quarantined.select(*ROW), [*ROW], how="left_semi")
    split = Split.of(settings, stage, rows, run_id, started_at)
    if not split.census.rows:
        return Requeued(0, 0, None)
    decisions = split.decisions()
    assert decisions is not None  # every candidate is in quarantine
    try:
        released = decisions.where("heals").count()
        conflicts = decisions.where("conflicts").select(*ROW)
        counts = split.write(invalid=0, decisions=decisions)
        _refresh(settings, stage, split, conflicts)
    finally:
        decisions.unpersist()
    stage_run = StageRun(
        run_id,
        stage.table,
        "passed",
        started_at,
        quality.now(),
        read=counts.read,
        accepted=counts.accepted,
        quarantined=counts.read - released,
        duplicates=released - counts.accepted,
        message="requeued from quarantine",
    )
    quality.note(settings, stage_run)
    quality.report(spark, settings)
    return Requeued(counts.read, released, stage_run)


def _refresh(settings: Settings, stage: Stage, split: Split, conflicts: DataFrame) -> None:
    """Write today's violations, and what today's transform reads, over the rows that stay in quarantine."""
    from pyspark.sql import functions as F

    assert stage.quarantine is not None
    in_conflict = F.col("_conflicts")
    rest = (
        split.candidates.join(conflicts.withColumn("_conflicts", F.lit(True)), [*ROW], how="left")
        .withColumn("_conflicts", F.coalesce("_conflicts", F.lit(False)))
        .where((F.col("_broken_rules") != 0) | in_conflict)
        .withColumn(
            "violations",
            F.when(in_conflict, F.array(F.lit(CONFLICT))).otherwise(split.contract.violations(F.col("_broken_rules"))),
        )
    )
    names = [column.name for column in split.contract.quarantine]
    lakehouse.replace_matching(settings, stage.quarantine, rest.select(names), [*ROW])
