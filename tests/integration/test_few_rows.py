"""What is written without Delta's planning is what Delta in Spark writes: rows, change feed, and what comes after."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import functions as F

from expectations.contract import Column, Contract
from pipelines.settings import Settings, load
from pipelines.warehouse import change_feed, few_rows, jvmless
from pipelines.warehouse.commits import COMPACTED_EVERY
from pipelines.warehouse.groups import Groups
from pipelines.warehouse.progress import Batch
from pipelines.warehouse.tables import Warehouse
from tests.testing.examples import at_most

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TYPES = {
    "name": "string",
    "number": "int",
    "large": "bigint",
    "share": "double",
    "is_true": "boolean",
    "content": "binary",
    "at": "timestamp",
    "names": "array<string>",
    "headers": "array<struct<key: string, value: binary>>",
    "ends": "array<bigint>",
    "nested": "struct<topic: string, at: timestamp, ends: array<struct<first: bigint, names: array<string>>>>",
}
CONTRACT = Contract(
    table="gold.every_type",
    description="One row per test.",
    columns=tuple(Column(name, kind, "A value.") for name, kind in TYPES.items()),
    grain=("name",),
)
ROWS = """
    ('a', -2147483648, 9223372036854775807, double('NaN'), true, x'00ff', timestamp '2026-03-01 12:00:00.999999',
     array('', null, 'x'), array(named_struct('key', 'k', 'value', x'ff'), named_struct('key', null, 'value', null)),
     array(1L, null), named_struct('topic', 't', 'at', timestamp '0001-01-01 00:00:00',
       'ends', array(named_struct('first', 1L, 'names', array('n', null))))),
    ('o''brien \\\\ \\u202e', 0, -1L, double('-0.0'), false, x'', timestamp '9999-12-31 23:59:59.999999', array(),
     array(), array(), named_struct('topic', null, 'at', null, 'ends', array())),
    (null, null, null, null, null, null, null, null, null, null, null)
"""


def rows_of(spark: SparkSession, text: str) -> DataFrame:
    columns = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in TYPES.items())
    return spark.sql(f"SELECT {columns} FROM VALUES {text} AS made({', '.join(TYPES)})")


def texts(rows: DataFrame) -> Counter[str]:
    told = rows.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("text"))
    return Counter(row["text"] for row in told.collect())


@pytest.fixture
def pair(spark: SparkSession, settings: Settings, tmp_path: Any) -> tuple[Warehouse, Warehouse]:
    """Two warehouses with the table: one to write without Delta's planning, one to write with it."""
    few, many = (Warehouse(settings.model_copy(update={"warehouse": str(tmp_path / name)}), spark) for name in "fm")
    for warehouse in (few, many):
        warehouse.ensure(CONTRACT)
    return few, many


def feed(warehouse: Warehouse) -> Counter[str]:
    """Return what the latest version changed, rows that were written back unchanged left out."""
    _, version = warehouse.state(CONTRACT.table)
    reader = warehouse.spark.read.format("delta").option("readChangeFeed", "true")
    rows = reader.option("startingVersion", version).load(warehouse.location(CONTRACT.table))
    rows = rows.drop("_commit_version", "_commit_timestamp")
    came, went = (
        texts(rows.where(F.col("_change_type").isin(kinds)).drop("_change_type"))
        for kinds in (["insert", "update_postimage"], ["delete", "update_preimage"])
    )
    return Counter({text: came[text] - went[text] for text in {*came, *went} if came[text] != went[text]})


def test_an_empty_table_has_its_columns_and_takes_what_is_joined_to_it_out_of_plans(
    spark: SparkSession, pair: tuple[Warehouse, Warehouse]
) -> None:
    warehouse, _ = pair
    empty = warehouse.read(CONTRACT.table)
    named = spark.range(5).select(F.col("id").cast("string").alias("name"))

    def plan() -> str:
        return str(named.join(warehouse.read(CONTRACT.table), "name")._jdf.queryExecution().optimizedPlan())

    assert plan().startswith("LocalRelation <empty>")
    assert warehouse.insert(rows_of(spark, ROWS), CONTRACT, are_few=True) == 3
    filled = warehouse.read(CONTRACT.table)
    assert empty.schema == filled.schema
    assert texts(empty) == Counter()
    assert not plan().startswith("LocalRelation")


def test_rows_of_groups_that_are_not_replaced_are_refused(
    spark: SparkSession, pair: tuple[Warehouse, Warehouse]
) -> None:
    rows = rows_of(spark, ROWS)
    for warehouse, count in zip(pair, (3, None), strict=True):
        warehouse.insert(rows, CONTRACT)
        for groups in (Groups("name", ("a", None)), Groups("name", tuple("abcdefghijklmnop"))):
            with pytest.raises(RuntimeError):
                warehouse.replace_groups(CONTRACT.table, rows, groups, CONTRACT, count)
        assert texts(warehouse.read(CONTRACT.table)) == texts(rows)


def test_every_type_is_written_as_delta_in_spark_writes_it(
    spark: SparkSession, pair: tuple[Warehouse, Warehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, planned = rows_of(spark, ROWS), []
    write = Warehouse._written
    monkeypatch.setattr(Warehouse, "_written", lambda *given: planned.append(given[0].root) or write(*given))
    few, many = pair
    assert few.insert(rows, CONTRACT, mark="the mark", are_few=True) == 3
    assert few.was_committed(CONTRACT.table, 0, "the mark")
    assert many.insert(rows, CONTRACT) == 3
    touched = Groups("name", (None, "o'brien \\ \u202e", "none has this name"))
    fresh = rows.where("name IS NULL").withColumn("number", F.lit(7))
    for warehouse, count in ((few, 1), (many, None)):
        assert warehouse.replace_groups(CONTRACT.table, fresh, touched, CONTRACT, count) == 1
        assert warehouse.replace_groups(CONTRACT.table, rows.limit(0), Groups("name", ("b",)), CONTRACT, count) == 0
    assert texts(few.read(CONTRACT.table)) == texts(many.read(CONTRACT.table))
    everything = Groups("name", (*touched.values, "a"))
    for warehouse, count in ((few, 3), (many, None)):
        warehouse.replace_groups(CONTRACT.table, rows, everything, CONTRACT, count)
    assert feed(few) == feed(many) != Counter()
    by_delta = [spark.read.format("delta").load(warehouse.location(CONTRACT.table)) for warehouse in pair]
    assert texts(by_delta[0]) == texts(by_delta[1]) == texts(rows)
    assert texts(by_delta[0].where("at > timestamp '2026-03-01 12:00:00.9999985'")) == texts(
        by_delta[1].where("at > timestamp '2026-03-01 12:00:00.9999985'")
    )
    assert set(planned) == {many.root}
    for warehouse in pair:  # Delta in Spark goes on with the table
        warehouse.remove_matching(CONTRACT.table, rows.where("number < 0"), ["name"])
        warehouse.insert(rows.limit(1), CONTRACT)
    assert texts(few.read(CONTRACT.table)) == texts(many.read(CONTRACT.table))


def test_times_of_any_year_that_spark_wrote_stay(spark: SparkSession, pair: tuple[Warehouse, Warehouse]) -> None:
    rows = rows_of(spark, ROWS)
    few, _ = pair
    few.insert(rows, CONTRACT)
    told = {row["name"]: row["at"] for row in jvmless.rows(few, CONTRACT.table, {"number": 0})}
    assert told == {"o'brien \\ \u202e": datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)}
    fresh = rows.where("name IS NULL")
    few.replace_groups(CONTRACT.table, fresh, Groups("name", (None,)), CONTRACT, 1)
    assert texts(few.read(CONTRACT.table)) == texts(rows)


def test_rows_that_are_too_large_for_this_process_are_written_by_spark(
    spark: SparkSession, pair: tuple[Warehouse, Warehouse]
) -> None:
    few, _ = pair
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set("spark.driver.maxResultSize", "200k")
    try:
        rows = rows_of(spark, ROWS).withColumn(
            "content", F.expr("CAST(repeat(CAST(uuid() AS STRING), 9999) AS BINARY)")
        )
        assert few.insert(rows, CONTRACT, are_few=True) == 3
    finally:
        conf.remove("spark.driver.maxResultSize")
    assert few.read(CONTRACT.table).count() == 3


def numbered(spark: SparkSession, rows: Sequence[tuple[str | None, int]]) -> DataFrame:
    """Return rows of a name and a number; the other columns hold what the types allow."""
    given = spark.createDataFrame(list(rows), "name string, number int")
    others = rows_of(spark, ROWS).where("name = 'a'").drop("name", "number")
    return given.crossJoin(others).select(*TYPES)


NAMED = st.tuples(st.sampled_from(["a", "b", "o'brien", None]), st.integers(0, 3))


@at_most(10, usually=1)
@given(st.lists(NAMED, max_size=8), st.lists(st.tuples(NAMED, st.booleans()), max_size=6), st.integers(0, 2))
@example([("a", 1), ("a", 2), ("b", 1)], [(("a", 3), True)], 1)  # the table lacks a row
@example([("a", 1), ("a", 2), ("b", 1)], [], 1)  # it lacks none
@example([("a", 1), ("a", 2), ("b", 1)], [(("a", 2), False), (("a", 3), True)], 1)  # one row becomes another
@example([("a", 0), ("a", 1), ("a", 2)], [(("a", 2), False), (("a", 3), True)], 2)
@example([("a", 1), ("a", 2), ("b", 1)], [(("a", 1), True)], 1)  # a row comes twice
@example([("a", 1), ("b", 1)], [(("a", 2), True), (("a", 3), True)], 1)  # those that it lacks are not few
@example([("a", 0)], [(("a", 0), True), (("a", 0), True)], 2)  # a row comes twice more
def test_groups_with_many_rows_get_those_that_they_lack(
    spark: SparkSession, first: list[tuple[str | None, int]], news: list[tuple[tuple[str | None, int], bool]], most: int
) -> None:
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(few_rows, "MOST_ROWS", most)
        warehouse = Warehouse(load(warehouse=place), spark)
        warehouse.ensure(CONTRACT)
        warehouse.insert(numbered(spark, first), CONTRACT)
        before, given = Counter(first), Counter(first)
        for row, comes in news:
            given[row] = max(given[row] + (1 if comes else -1), 0)
        groups = Groups("name", tuple({row[0] for row, _ in news} | {"a"}))
        rows = [row for row in given.elements() if row[0] in groups.values]
        log = Path(warehouse.location(CONTRACT.table)) / "_delta_log"
        known = {*log.glob("*.json")}
        replaced = warehouse.replace_groups(CONTRACT.table, numbered(spark, rows), groups, CONTRACT, len(rows))
        assert replaced == len(rows)
        there = Counter(
            (row["name"], row["number"]) for row in warehouse.read(CONTRACT.table).select("name", "number").collect()
        )
        assert there == +given
        new, gone = +given - before, before - given
        is_once = max(new.values(), default=1) == 1  # a row that is lacking twice is written with its group
        if len(rows) > most and not gone and new.total() <= most and is_once:
            actions = [json.loads(line) for file in {*log.glob("*.json")} - known for line in file.open()]
            assert [action["add"]["stats"].count('"numRecords":') for action in actions if "add" in action] == [1] * (
                bool(new)
            )
            assert not [action for action in actions if {"remove", "cdc"} & {*action}]
            if new:
                assert feed(warehouse) == texts(numbered(spark, [*new.elements()]))


def test_a_table_that_users_changed_is_left_to_delta_in_spark(
    spark: SparkSession, pair: tuple[Warehouse, Warehouse]
) -> None:
    few, _ = pair
    where = few.location(CONTRACT.table)
    spark.sql(f"ALTER TABLE delta.`{where}` ADD CONSTRAINT small CHECK (number < 5 OR number IS NULL)")
    with pytest.raises(Exception, match=r"(?i)constraint"):
        few.insert(rows_of(spark, ROWS).withColumn("number", F.lit(9)), CONTRACT, are_few=True)
    spark.sql(f"ALTER TABLE delta.`{where}` DROP CONSTRAINT small")
    spark.sql(f"ALTER TABLE delta.`{where}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    assert few.insert(rows_of(spark, ROWS), CONTRACT, are_few=True) == 3
    assert spark.read.format("delta").load(where).count() == 3


def test_many_commits_are_read_by_delta_in_spark_and_compacted(
    spark: SparkSession, pair: tuple[Warehouse, Warehouse]
) -> None:
    few, _ = pair
    rows = rows_of(spark, ROWS).where("name = 'a'").coalesce(1)
    _, item = few._collected(CONTRACT.table, rows) or pytest.fail("only Spark can write it")
    for number in range(120):  # beyond a checkpoint of the writer without a JVM
        few._append(CONTRACT.table, few.opened_table(CONTRACT.table), item, f"commit {number}")
    assert few.insert(rows, CONTRACT, are_few=True) == 1
    assert few.missing_commit(CONTRACT.table) is None
    _, version = few.state(CONTRACT.table)
    assert version >= 121 + 120 // COMPACTED_EVERY
    by_delta = spark.read.format("delta").load(few.location(CONTRACT.table))
    assert texts(by_delta) == texts(few.read(CONTRACT.table)) == Counter(dict.fromkeys(texts(rows), 121))
    assert len(by_delta.inputFiles()) < 121  # some are merged
    news = change_feed.changes(few, CONTRACT.table, Batch(100, version)).rows
    through_delta = change_feed._feed(few, CONTRACT.table, Batch(100, version))
    kinds = [Counter(row[0] for row in item.select("_change_type").collect()) for item in (news, through_delta)]
    assert kinds[0] == kinds[1] == {"insert": kinds[0]["insert"]}
    assert few.was_committed(CONTRACT.table, 100, "commit 110")
    assert few.insert(rows, CONTRACT) == 1  # by Delta in Spark
    assert few.insert(rows, CONTRACT, are_few=True) == 1
    assert few.read(CONTRACT.table).count() == 123
