"""Summarised tables, which refresh the groups that new input touches: the gate's checks before a write."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from expectations import literals
from expectations.contract import Contract, contract_of
from pipelines.catalog import stages_of_type
from pipelines.settings import ROOT, Settings
from pipelines.stage import Summarise
from pipelines.steps import by_duckdb, summarise
from pipelines.steps.refresh import Span, ranges_of
from pipelines.steps.summarise import REPEATED, Summary
from pipelines.warehouse.groups import Groups
from pipelines.warehouse.ranges import within
from tests.testing.builders import land, line, run_chain

GOLD = "gold.dlq_summary"
SUMMARISED = [stage for stage in stages_of_type(Summarise)]
VALUES: dict[str, Any] = {
    **{"string": "a", "boolean": True, "int": 1, "bigint": 1},
    **{"date": date(2026, 3, 1), "timestamp": datetime(2026, 3, 1, tzinfo=UTC)},
}


def fresh_rows(spark: SparkSession, contract: Contract, grains: list[tuple[Any, ...]]) -> DataFrame:
    types = {column.name: column.type for column in contract.columns}
    schema = ", ".join(f"`{column.name}` {column.type}" for column in contract.stored)
    found = []
    for grain in grains:
        known = dict(zip(contract.grain, grain, strict=True))
        found.append(tuple(known.get(name) for name in (column.name for column in contract.stored)))
    assert all(types[name] in VALUES for name in contract.grain)
    return spark.createDataFrame(found, schema)


@pytest.mark.parametrize("stage", SUMMARISED, ids=lambda stage: stage.table)
def test_a_grain_that_is_repeated_is_found_in_every_summarised_table(spark: SparkSession, stage: Any) -> None:
    contract = contract_of(stage.table)
    types = {column.name: column.type for column in contract.columns}
    whole = tuple(VALUES[types[name]] for name in contract.grain)
    without = [tuple(None if place == gap else value for place, value in enumerate(whole)) for gap in range(len(whole))]
    empty = tuple(None for _ in whole)
    once = dict.fromkeys([whole, *without, empty])
    text = (ROOT / "sql" / "facts" / f"{stage.table.replace('.', '/')}.sql").read_text()
    assert f"`{REPEATED}`" not in text  # the contract implies it

    def repeated(*grains: tuple[Any, ...]) -> DataFrame:
        return summarise._repeated(fresh_rows(spark, contract, list(grains)), contract.grain)

    # null is a value of its own and differs from its neighbours' values
    found = repeated(*once).unionAll(repeated(*once, whole, empty, empty)).collect()
    assert [row[REPEATED] for row in found] == [0, 2]


def test_a_table_whose_select_repeats_its_grain_is_not_written(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    selects = {stage.table: summarise.select_of(stage.table) for stage in SUMMARISED}
    selects[GOLD] = f"WITH once AS ({selects[GOLD]}) SELECT * FROM once UNION ALL SELECT * FROM once"
    land(settings, {"a.jsonl": [line(1)]})
    for module in (summarise, by_duckdb):
        monkeypatch.setattr(module, "select_of", selects.get)
    done = run_chain(spark, settings)[GOLD]
    assert done.status == "broken"
    assert REPEATED in {outcome.code for outcome in done.verdict.failed}  # type: ignore[union-attr]


@pytest.mark.usefixtures("by_spark_alone")
def test_jobs_of_a_gate_do_not_grow_with_the_rules(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = replace(contract_of(GOLD), columns=tuple(replace(column, rules=()) for column in contract_of(GOLD).columns))
    gate, jobs = Summary.gate, []

    def counted(self: Summary, run_id: str) -> Any:
        if self.stage.table != GOLD:
            return gate(self, run_id)
        self.rows.count()  # cached from here on
        for contract in (bare, bare, contract_of(GOLD)):  # once to warm up
            monkeypatch.setattr(summarise, "contract_of", lambda table, contract=contract: contract)
            spark.sparkContext.setJobGroup(f"{run_id}-{len(jobs)}", "a gate")
            found = gate(self, run_id)
            jobs.append(len(spark.sparkContext.statusTracker().getJobIdsForGroup(f"{run_id}-{len(jobs)}")))
        monkeypatch.setattr(summarise, "contract_of", contract_of)
        return found

    monkeypatch.setattr(Summary, "gate", counted)
    land(settings, {"a.jsonl": [line(1), line(2)]})
    try:
        assert run_chain(spark, settings)[GOLD].status == "passed"
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert jobs[1] == jobs[2]


@pytest.mark.parametrize(
    ("kind", "groups"),
    [
        ("date", [date(900, 3, 1), date(2026, 3, 1), date(2026, 3, 2), None]),
        ("bigint", [-1, 0, 2**40, None]),
        ("timestamp", [datetime(900, 3, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC), None]),
    ],
)
def test_groups_of_each_type_are_found_again(spark: SparkSession, kind: str, groups: list[Any]) -> None:
    text = ", ".join(f"({'NULL' if group is None else literals.spark(group)})" for group in groups)
    rows = spark.sql(f"SELECT CAST(_group AS {kind}) AS _group FROM VALUES {text} AS made(_group)")

    def of(some: DataFrame) -> set[Any]:
        collected = some.select(summarise._collectable(some)).collect()
        return {summarise._collected(row["_group"], rows.schema[0].dataType) for row in collected}

    assert of(rows) == set(groups)
    for touched in (groups[1:], groups[:1]):
        assert of(rows.where(summarise._is_one_of(F.col("_group"), touched))) == set(touched)
        assert of(rows.where(Groups("_group", tuple(touched)).predicate())) == set(touched)
        if ranges := ranges_of(rows.columns, "_group", touched, None):
            assert of(rows.where(within(ranges))) == set(touched)


def test_a_span_of_a_date_is_the_whole_day(spark: SparkSession) -> None:
    ends = "TIMESTAMP '2026-03-01 00:00:00', TIMESTAMP '2026-03-03 23:00:00'"
    rows = spark.sql(f"SELECT explode(sequence({ends}, INTERVAL 1 HOUR)) AS at")
    span = Span("at", timedelta(hours=24))
    touched = [date(2026, 3, 2)]
    ranges = ranges_of(rows.columns, "CAST(at AS DATE)", touched, span)
    found = rows.where(within(ranges)).where(summarise._is_one_of(F.expr("CAST(at AS DATE)"), touched))
    assert [row["at"].hour for row in found.orderBy("at").collect()] == list(range(24))
