"""Runs whose gates hold topics, and records that pass or break a contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from pipelines.catalog import stages
from pipelines.run import runner
from pipelines.settings import Settings
from pipelines.steps.held import Acceptance
from pipelines.stores import lock
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import BROKEN, line, rows

BRONZE, SILVER, GOLD = "bronze.dlq_records", "silver.dlq_records", "gold.dlq_summary"
HELD, QUARANTINE = "held.dlq_records", "quarantine.dlq_records"
PUSHES = "silver.topology_pushes"
OF_PUSHES = ("bronze.streams_requests", PUSHES)
OF_LETTERS = ("silver.dead_letters", "silver.dlq_ranges", "silver.dlq_gaps")
FOREIGN = [*BROKEN, ("trace", b"1")]


def run(
    spark: SparkSession, settings: Settings, *accept: str, tables: Sequence[str] = (BRONZE, SILVER)
) -> dict[str, list[StageRun]]:
    """Run the stages of some tables once; return what each table's batches did."""
    done: dict[str, list[StageRun]] = {}
    with lock.writer(settings, "test"):
        chosen = [stage for stage in stages() if stage.table in tables]
        for ran in runner.run(Warehouse(settings, spark), chosen, accepted=Acceptance.of(accept, chosen)):
            done.setdefault(ran.table, []).append(ran)
    return done


def places(spark: SparkSession, settings: Settings, table: str) -> list[tuple[str, int]]:
    return sorted((row["dlq_topic"], row["dlq_offset"]) for row in rows(spark, settings, table))


def bad(topic: str, *offsets: int) -> list[str]:
    return [line(offset, topic=topic, headers=FOREIGN) for offset in offsets]


def good(topic: str, *offsets: int) -> list[str]:
    return [line(offset, topic=topic) for offset in offsets]


def counts(ran: StageRun) -> tuple[Any, ...]:
    return (ran.status, ran.read, ran.accepted, ran.quarantined, ran.duplicates, ran.held)


def failing(ran: StageRun) -> dict[tuple[str | None, str], tuple[int, int]]:
    """The failing rows among those that a rule applies to, by scope (None: the batch) and rule."""
    assert ran.verdict is not None
    return {(found.scope, found.code): (found.failing, found.candidates) for found in ran.verdict.failed}


class Killed(BaseException):
    """Stands for a process that is killed."""
