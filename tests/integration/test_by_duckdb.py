"""Refreshes that DuckDB makes: the same as Spark's, of few rows and of many, and Spark's where DuckDB refuses."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from local.bundled import land as land_demo
from pipelines.catalog import stages, stages_of_type
from pipelines.commands.generate import generate
from pipelines.engines import choose
from pipelines.engines.choose import Choice, suits_duckdb
from pipelines.engines.duckdb import engine, sessions
from pipelines.run import runner
from pipelines.settings import Settings
from pipelines.stage import Summarise
from pipelines.steps import summarise
from pipelines.steps.summarise import Refreshed, Refreshing
from pipelines.stores import lock
from pipelines.warehouse import few_rows, jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing import engines
from tests.testing.builders import kip_1191, land, line, run, run_chain, run_needed, tables, warehouse_of
from tests.testing.deliveries import acknowledgement, store

SUMMARY = "gold.dlq_summary"


@pytest.fixture
def by_duck(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the refreshes that DuckDB made, by table."""
    by, made = summarise.refreshed_by, Counter[str]()

    @contextmanager
    def counted(chosen: Choice, warehouse: Warehouse, stage: Summarise, batch: Any) -> Iterator[Refreshed | None]:
        with by(chosen, warehouse, stage, batch) as found:
            if chosen.is_duckdb:
                made[stage.table] += 1
            yield found

    monkeypatch.setattr(summarise, "refreshed_by", counted)
    return made


def run_all(spark: SparkSession, settings: Settings) -> None:
    with lock.writer(settings, "test"):
        runner.run(Warehouse(settings, spark), stages())


@pytest.fixture(params=["few", "many"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Treat all rows as few, or as many. Many are made in parts, compared, sorted, and written in batches."""
    if request.param == "many":
        monkeypatch.setattr(few_rows, "MOST_ROWS", 2)
        monkeypatch.setattr(few_rows, "ROWS_OF_A_BATCH", 3)
        monkeypatch.setattr(few_rows, "BYTES_OF_A_FILE", 1)
        monkeypatch.setattr(engine, "MOST_REWRITTEN", 0)
        monkeypatch.setattr(engine, "MOST_KEPT", 0)
        monkeypatch.setattr(summarise, "MOST_GROUPS", 8)
        monkeypatch.setattr(engine, "ROWS_OF_A_BATCH", 2)
        monkeypatch.setattr(engine, "ROWS_OF_A_PART", 20)
    return str(request.param)


@engines.thorough
@pytest.mark.usefixtures("both_engines", "size")
def test_refreshes_of_real_and_generated_records_are_those_of_spark(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path, by_duck: Counter[str]
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    generate(200, 4, tmp_path / "landing")
    run_all(spark, settings)
    generate(60, 5, tmp_path / "more")
    for landed in (tmp_path / "more").rglob("*.*"):
        beside = tmp_path / "landing" / landed.parent.relative_to(tmp_path / "more") / f"more-{landed.name}"
        shutil.copy(landed, beside)
    land_demo(settings)
    run_all(spark, settings)
    summarised = [stage for stage in stages_of_type(Summarise) if stage.feed != "collect"]  # no cluster was asked
    assert {stage.table for stage in summarised if suits_duckdb(stage.table)} - by_duck.keys() == set()


@pytest.mark.usefixtures("both_engines")
def test_large_groups_get_the_rows_that_they_lack(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, by_duck: Counter[str]
) -> None:
    monkeypatch.setattr(few_rows, "MOST_ROWS", 2)
    monkeypatch.setattr(engine, "MOST_REWRITTEN", 2)
    appended = []
    for first in range(0, 8, 2):
        lines = [acknowledgement(offset=offset) for offset in range(first, first + 2)]
        land(settings, {f"{first}.jsonl": lines}, "acknowledgements")
        run_needed(spark, settings, "gold.message_ledger")
        actions = delta_log(settings, "gold.message_ledger")
        appended.append(not any("remove" in action for action in actions))
    assert appended == [True] * 4  # no row was written again
    assert sorted(row["offset"] for row in tables(settings)["gold.message_ledger"]) == list(range(8))
    assert by_duck["gold.message_ledger"] == 4


@pytest.mark.usefixtures("both_engines")
def test_parts_follow_the_rows_of_touched_groups_not_the_changed_ones(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "ROWS_OF_A_PART", 3)
    make, parts = Refreshing._make, []

    def noted(refreshing: Refreshing, touched: Any, starts: Any = ()) -> None:
        if (refreshing.stage.table, refreshing.chosen.is_duckdb) == ("gold.message_ledger", True):
            parts.append(1 + len(starts))
        make(refreshing, touched, starts)

    monkeypatch.setattr(Refreshing, "_make", noted)
    landed = {"many": [0, 1, 1000, 1001, 2000, 2001, 3000, 3001, 5000], "two of many": [2, 1002], "one of few": [5001]}
    for name, offsets in landed.items():
        land(settings, {f"{name}.jsonl": [acknowledgement(offset=offset) for offset in offsets]}, "acknowledgements")
        run_needed(spark, settings, "gold.message_ledger")
    assert parts == [3, 2, 1]
    ledger = tables(settings)["gold.message_ledger"]
    assert sorted(row["offset"] for row in ledger) == sorted(
        offset for offsets in landed.values() for offset in offsets
    )


def test_rows_that_stay_are_not_written_again_if_many_others_are_new(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "MOST_REWRITTEN", 1)
    table, at = "gold.incident_suspects", datetime(2026, 11, 21, tzinfo=UTC)
    known = {"cluster": "default", "original_topic": "orders", "consumer_group": "g", "record_count": 1}
    shared = {"attribute_kind": "header", "attribute_share": 1.0, "attribute_share_elsewhere": 0.0}
    shared |= {"attribute_compared_with": "other dead letters"}
    commits = []
    for names in (("a", "b"), ("c",), ("d", "e")):
        rows = ({**known, **shared, "incident_id": name, "attribute_name": name, "first_at": at} for name in names)
        store(settings, "gold.dlq_incidents", *rows)
        run(spark, settings, table)
        kinds = [kind for action in delta_log(settings, table) for kind in action]
        commits.append((kinds.count("add"), kinds.count("remove")))
    assert commits == [(1, 0)] * 3
    found = jvmless.rows(Warehouse(settings), table, {"cluster": "default"})
    assert sorted(row["name"] for row in found) == list("abcde")


def delta_log(settings: Settings, table: str) -> list[dict[str, Any]]:
    """Return the actions of a table's last commit."""
    commits = (Path(Warehouse(settings).location(table)) / "_delta_log").glob("*.json")
    return [json.loads(action) for action in max(commits).read_text().splitlines()]


def test_many_groups_are_refreshed_with_all_others(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, by_duck: Counter[str]
) -> None:
    monkeypatch.setattr(summarise, "MOST_GROUPS", 1)
    for name, offsets in (("a", (1, 1_500)), ("b", (2, 1_501, 2_500))):  # of two and three slices
        land(settings, {f"{name}.jsonl": [line(offset, headers=kip_1191(offset=offset)) for offset in offsets]})
        run_chain(spark, settings)
    assert by_duck["gold.dlq_counts"] == 2
    assert sum(row["record_count"] for row in tables(settings)["gold.dlq_counts"]) == 5


def test_very_large_inputs_are_left_to_spark(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, by_duck: Counter[str]
) -> None:
    land(settings, {"a.jsonl": [line(1)]})
    run_chain(spark, settings)
    assert by_duck[SUMMARY] == 1
    land(settings, {"b.jsonl": [line(2), line(3)]})
    monkeypatch.setattr(choose, "MOST_BYTES", 0)
    run_chain(spark, settings)
    assert by_duck[SUMMARY] == 1
    assert sum(row["record_count"] for row in tables(settings)[SUMMARY]) == 3


def test_a_module_gets_the_rows_of_its_own_of_each_group(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, by_duck: Counter[str]
) -> None:
    monkeypatch.setattr(engine, "ROWS_OF_A_BATCH", 1)
    for name in ("a", "b"):
        of_both = [
            line(at, headers=kip_1191(topic, 0, at))
            for topic, at in (("orders", ord(name)), ("payments", 200 + ord(name)))
        ]
        land(settings, {f"{name}.jsonl": of_both})
        run_needed(spark, settings, "silver.dlq_episodes")
    assert by_duck["silver.dlq_episodes"] == 2
    assert [row["record_count"] for row in tables(settings)["silver.dlq_episodes"]] == [2, 2]


def test_many_rows_are_written_in_the_order_of_groups(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, by_duck: Counter[str]
) -> None:
    monkeypatch.setattr(few_rows, "MOST_ROWS", 10)
    monkeypatch.setattr(few_rows, "BYTES_OF_A_FILE", 1 << 14)
    lines = [acknowledgement(offset=offset, partition=offset % 7) for offset in range(20_000)]
    land(settings, {"a.jsonl": lines}, "acknowledgements")
    run_needed(spark, settings, "gold.message_ledger")
    ranges = sorted(
        (stats["minValues"]["slice"], stats["maxValues"]["slice"])
        for action in delta_log(settings, "gold.message_ledger")
        if "add" in action
        for stats in [json.loads(action["add"]["stats"])]
    )
    assert by_duck["gold.message_ledger"] == 1
    assert len(ranges) > 2
    assert all(before <= after for (_, before), (after, _) in pairwise(ranges))


def test_what_duckdb_refuses_is_left_to_spark_and_the_next_refresh_is_its_own_again(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, by_duck: Counter[str]
) -> None:
    rows = sessions.rows

    def refused(*of: Any, **more: Any) -> str:
        raise duckdb.InternalException("the database is lost")

    land(settings, {"a.jsonl": [line(1)]})
    with monkeypatch.context() as patched:
        patched.setattr(sessions, "rows", refused)
        run_chain(spark, settings)
    assert not by_duck
    assert sessions.rows is rows
    land(settings, {"b.jsonl": [line(2, headers=kip_1191("payments"))]})
    run_chain(spark, settings)
    assert by_duck[SUMMARY] == 1
    assert sum(row["record_count"] for row in tables(settings)[SUMMARY]) == 2


def test_what_only_spark_opens_is_left_to_spark(spark: SparkSession, settings: Settings) -> None:
    (stage,) = (stage for stage in stages_of_type(Summarise) if stage.table == SUMMARY)
    settings = settings.model_copy(update={"warehouse": "hdfs://name/warehouse"})
    by_spark = choose.Choice("spark", "only Spark opens the warehouse")
    assert choose.of_refresh(Warehouse(settings), stage.table) == by_spark
    assert choose.of_decisions(Warehouse(settings), []) == by_spark
