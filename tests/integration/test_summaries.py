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
from pipelines.engines import spark as engine_of_spark
from pipelines.engines.base import Engine
from pipelines.engines.duckdb import sessions
from pipelines.engines.duckdb.engine import DuckEngine
from pipelines.settings import ROOT, Settings
from pipelines.stage import Summarise
from pipelines.steps import summarise
from pipelines.steps.refresh import Span, ranges_of
from pipelines.steps.summarise import REPEATED, Refreshing
from pipelines.steps.summarise import repeated as repeated_of
from pipelines.warehouse.groups import Groups
from pipelines.warehouse.ranges import within
from pipelines.warehouse.tables import Warehouse
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
    without = [tuple(None if index == gap else value for index, value in enumerate(whole)) for gap in range(len(whole))]
    empty = tuple(None for _ in whole)
    once = dict.fromkeys([whole, *without, empty])
    text = (ROOT / "sql" / "facts" / f"{stage.table.replace('.', '/')}.sql").read_text()
    assert f"`{REPEATED}`" not in text  # the contract implies it

    def repeated(*grains: tuple[Any, ...]) -> DataFrame:
        return spark.sql(repeated_of("{fresh}", contract.grain), fresh=fresh_rows(spark, contract, list(grains)))

    # null is a value of its own and differs from its neighbours' values
    found = repeated(*once).unionAll(repeated(*once, whole, empty, empty)).collect()
    assert [row[REPEATED] for row in found] == [0, 2]


def test_a_table_whose_select_repeats_its_grain_is_not_written(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    selects = {stage.table: summarise.select_of(stage.table) for stage in SUMMARISED}
    selects[GOLD] = f"WITH once AS ({selects[GOLD]}) SELECT * FROM once UNION ALL SELECT * FROM once"
    land(settings, {"a.jsonl": [line(1)]})
    monkeypatch.setattr(summarise, "select_of", selects.get)
    done = run_chain(spark, settings)[GOLD]
    assert done.status == "broken"
    assert REPEATED in {outcome.code for outcome in done.verdict.failed}  # type: ignore[union-attr]


@pytest.mark.usefixtures("by_spark_alone")
def test_jobs_of_a_gate_do_not_grow_with_the_rules(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = replace(contract_of(GOLD), columns=tuple(replace(column, rules=()) for column in contract_of(GOLD).columns))
    facts, jobs = Refreshing._facts, []

    def counted(self: Refreshing, touched: Any) -> Any:
        if self.stage.table != GOLD:
            return facts(self, touched)
        self.engine.rows(f"SELECT count(*) FROM {summarise.FRESH}")  # cached from here on
        for contract in (bare, bare, contract_of(GOLD)):  # once to warm up
            monkeypatch.setattr(summarise, "contract_of", lambda table, contract=contract: contract)
            spark.sparkContext.setJobGroup(f"gate-{len(jobs)}", "a gate")
            found = facts(self, touched)
            jobs.append(len(spark.sparkContext.statusTracker().getJobIdsForGroup(f"gate-{len(jobs)}")))
        monkeypatch.setattr(summarise, "contract_of", contract_of)
        return found

    monkeypatch.setattr(Refreshing, "_facts", counted)
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
def test_groups_of_each_type_are_found_again(
    spark: SparkSession, settings: Settings, kind: str, groups: list[Any]
) -> None:
    text = ", ".join(f"({'NULL' if group is None else literals.spark(group)})" for group in groups)
    warehouse = Warehouse(settings, spark)
    with engine_of_spark.opened(warehouse, GOLD) as by_spark, sessions.session(warehouse.root) as connection:
        for engine in (by_spark, DuckEngine(warehouse, None, connection)):  # type: ignore[arg-type]
            engine.view("_all", f"SELECT CAST(_group AS {kind}) AS _group FROM VALUES {text} AS made(_group)")

            def of(engine: Engine, where: str) -> set[Any]:
                return {group for (group,) in engine.rows(f"SELECT _group FROM _all WHERE {where}")}

            assert of(engine, "true") == set(groups)
            for touched in (groups[1:], groups[:1]):
                engine.groups("_touched", touched)
                assert of(engine, engine.is_one_of("_group", "_touched")) == set(touched)
                assert of(engine, engine.has_one_of("array(_group)", "_touched")) == set(touched)
        for touched in (groups[1:], groups[:1]):
            assert of(by_spark, Groups("_group", tuple(touched)).predicate()) == set(touched)
            if ranges := ranges_of("_group", touched, None):
                found = spark.table("_all").where(within(ranges)).select(F.col("_group").cast("string")).collect()
                assert len(found) == len(touched)


def test_a_span_of_a_date_is_the_whole_day(spark: SparkSession) -> None:
    ends = "TIMESTAMP '2026-03-01 00:00:00', TIMESTAMP '2026-03-03 23:00:00'"
    rows = spark.sql(f"SELECT explode(sequence({ends}, INTERVAL 1 HOUR)) AS at")
    span = Span("at", timedelta(hours=24))
    touched = [date(2026, 3, 2)]
    ranges = ranges_of("CAST(at AS DATE)", touched, span)
    found = rows.where(within(ranges)).where("CAST(at AS DATE) IN (DATE '2026-03-02')")
    assert [row["at"].hour for row in found.orderBy("at").collect()] == list(range(24))
