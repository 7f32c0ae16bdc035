"""Quarantine -> silver: run the present transform and contract, without the gate, on quarantined rows' bronze rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from expectations.contract import ORIGIN, contract_of
from pipelines import moments
from pipelines.catalog import stages_of_type
from pipelines.errors import UsageError
from pipelines.run.contracts import contracts
from pipelines.run.ids import new_run_id
from pipelines.stage import Split
from pipelines.steps.few_split import split_of
from pipelines.steps.modules import split_module
from pipelines.steps.split import SplitBatch, wanted
from pipelines.text import near
from pipelines.warehouse import change_feed, quality
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Readmitted:
    """What a readmission did: rows found in quarantine, rows that left it, the stage's run (None: nothing to do)."""

    found: int
    readmitted: int
    stage_run: StageRun | None


def stage_with_quarantine(name: str) -> Split:
    """Return the stage of a table; the name is the table's or its quarantine's.

    Raises UsageError: no table of that name has a quarantine.
    """
    stages = {name: stage for stage in stages_of_type(Split) for name in (stage.table, stage.quarantine)}
    if name not in stages:
        raise UsageError(f"{name!r} has no quarantine.{near(name, [*stages])}")
    return stages[name]


def readmit(warehouse: Warehouse, stage: Split) -> Readmitted:
    """Insert the rows that pass now, remove them from quarantine, then refresh the violations of the others.

    After a crash between two steps, the next readmission fixes the rows, or the next run that meets them. The caller
    holds the writer's lock.
    """

    warehouse.ensure_all(contracts())
    started_at, run_id = moments.now(), new_run_id()
    quarantined = warehouse.existing_rows(stage.quarantine)
    if quarantined is None:
        return Readmitted(0, 0, None)
    rows = warehouse.read(stage.inputs[0]).join(quarantined.select(*ORIGIN), [*ORIGIN], how="left_semi")
    row = contract_of(stage.table).row
    among, files = quarantined.select(*row), change_feed.all_rows(warehouse, stage.quarantine)
    with split_of(warehouse, stage, rows, run_id, started_at, among, None if files is None else [files]) as split:
        if not split.census.rows:
            return Readmitted(0, 0, None)
        with split.decisions() as decisions:
            ((readmitted,),) = decisions.fetched("SELECT count_if(leaves_quarantine) FROM {rows}")
            counts = split.write_decided(decisions)
            _refresh(warehouse, stage, split, decisions.frame.where("conflicts").select(*row))
    stage_run = StageRun(
        run_id,
        stage.table,
        "passed",
        started_at,
        moments.now(),
        read=counts.read,
        accepted=counts.accepted,
        quarantined=counts.read - readmitted,
        duplicates=readmitted - counts.accepted,
        message="readmitted from quarantine",
    )
    quality.note(warehouse, stage_run)
    quality.report(warehouse)
    return Readmitted(counts.read, readmitted, stage_run)


def _refresh(warehouse: Warehouse, stage: Split, split: SplitBatch, conflicts: DataFrame) -> None:
    """Replace the rows that stay in quarantine by their present candidates, with their present violations.

    Candidates that tell of other rows of their batch, which are not here, keep what they tell.
    """
    from pyspark.sql import functions as F

    row = split.contract.row
    in_conflict = F.coalesce("_conflicts", F.lit(False))
    why = (
        wanted(split.judged.frame)
        .join(conflicts.withColumn("_conflicts", F.lit(True)), [*row], how="left")
        .where(split.contract.refused(F.col("_broken_rules")) | in_conflict)
        .select(*row, split.why(in_conflict).alias("violations"))
    )
    columns = [column.name for column in split.contract.quarantine]
    names = [*row, "violations"] if split_module(stage).LOOKS_AT_OTHERS else columns
    warehouse.replace_matching(stage.quarantine, split.among(why).select(names), row)
