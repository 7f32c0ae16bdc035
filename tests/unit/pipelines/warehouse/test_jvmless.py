from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from arro3.core import Array, DataType, Table
from deltalake import DeltaTable, write_deltalake

from pipelines.errors import UsageError
from pipelines.settings import Settings, load
from pipelines.warehouse import jvmless
from pipelines.warehouse.groups import Groups
from pipelines.warehouse.tables import PROPERTIES, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "gold.letters"


def append(settings: Settings, *rows: tuple[str | None, int | None]) -> None:
    letters = Array([letter for letter, _ in rows], DataType.string())
    numbers = Array([number for _, number in rows], DataType.int32())
    write_deltalake(
        Warehouse(settings).location(TABLE), Table.from_pydict({"letter": letters, "number": numbers}), mode="append"
    )


@pytest.mark.parametrize(
    ("equal", "found"),
    [
        pytest.param({"letter": "a"}, [("a", 1), ("a", 2)], id="text"),
        pytest.param({"letter": "a", "number": 2}, [("a", 2)], id="text and number"),
        pytest.param({"number": 2}, [("a", 2), ("b", 2)], id="number"),
        pytest.param({"letter": "A"}, [], id="another case"),
        pytest.param({"letter": "a", "number": 3}, [], id="no row"),
        pytest.param({"letter": "x' OR 'a' = 'a"}, [], id="no part of a statement"),
        pytest.param({"letter": "\udcff"}, [], id="what UTF-8 cannot write"),
        pytest.param({"letter": "\0"}, [("\0", None)], id="a null character"),
        pytest.param({"letter": ""}, [("", 4)], id="empty text is not null"),
    ],
)
def test_rows_are_those_that_equal(
    settings: Settings, equal: dict[str, str | int], found: list[tuple[str, int | None]]
) -> None:
    append(settings, ("a", 1), ("b", 2), (None, None), ("", 4))
    append(settings, ("a", 2), ("\0", None))

    assert sorted((row["letter"], row["number"]) for row in jvmless.rows(Warehouse(settings), TABLE, equal)) == found
    assert all(list(row) == ["number"] for row in jvmless.rows(Warehouse(settings), TABLE, equal, ["number"]))


def test_rows_of_a_first_version_are_read(settings: Settings) -> None:
    """A copied or cloned table has its rows in the version that creates it."""
    append(settings, ("a", 1))
    assert Warehouse(settings).last_version(TABLE) == 0
    assert jvmless.rows(Warehouse(settings), TABLE, {"letter": "a"}) == [{"letter": "a", "number": 1}]
    with pytest.raises(UsageError, match="no table"):
        jvmless.rows(Warehouse(settings), "gold.numbers", {"letter": "a"})


def test_files_that_can_hold_none_of_them_are_not_opened(settings: Settings) -> None:
    append(settings, ("a", 1), ("c", 1))
    (first,) = DeltaTable(Warehouse(settings).location(TABLE)).file_uris()
    append(settings, ("m", 2), ("o", 2))
    Path(first).unlink()

    assert jvmless.rows(Warehouse(settings), TABLE, {"letter": "m"}) == [{"letter": "m", "number": 2}]


def test_a_table_that_is_not_there(settings: Settings) -> None:
    with pytest.raises(UsageError, match=r"no table gold\.letters in .* `afterlog run` creates it"):
        jvmless.rows(Warehouse(settings), TABLE, {"letter": "a"})


def test_what_spark_wrote_and_replaced_is_seen(spark: SparkSession, settings: Settings) -> None:
    """Both readers agree on a table with a change feed, a checkpoint, and every type that they read."""
    schema = "group_id string, revision int, pushes bigint, at timestamp, gone_at timestamp, defects array<string>"
    at = datetime(2026, 11, 21, 2, 30, 0, 123456)  # as sessions give and take it: UTC

    def row(group: str, revision: int) -> tuple[Any, ...]:
        return group, revision, 2**40, at, None, ["dangling", "größe"]

    from delta.tables import DeltaTable as SparkTable

    empty = spark.createDataFrame([], schema)
    builder = SparkTable.createIfNotExists(spark).location(Warehouse(settings).location(TABLE)).addColumns(empty.schema)
    for name, value in PROPERTIES.items():
        builder = builder.property(name, value)
    builder.property("delta.checkpointInterval", "3").execute()
    groups = ["orders", "o'brien", "two\nlines"]
    Warehouse(settings, spark).replace_groups(
        TABLE, spark.createDataFrame([row(group, 1) for group in groups], schema), None
    )
    for revision in range(2, 5):
        item = spark.createDataFrame([row("orders", revision)], schema)
        Warehouse(settings, spark).replace_groups(TABLE, item, Groups("group_id", ("orders",)))
    log = Path(Warehouse(settings).location(TABLE)) / "_delta_log"
    assert list(log.glob("*.checkpoint*.parquet"))

    for group, revision in (("orders", 4), ("o'brien", 1), ("two\nlines", 1)):
        expected = {
            "group_id": group,
            "revision": revision,
            "pushes": 2**40,
            "at": at.replace(tzinfo=UTC),
            "gone_at": None,
            "defects": ["dangling", "größe"],
        }
        assert jvmless.rows(Warehouse(settings), TABLE, {"group_id": group}) == [expected]
        assert jvmless.rows_by_spark(Warehouse(settings, spark), TABLE, {"group_id": group}) == [expected]
    key: dict[str, str | int] = {"group_id": "orders", "revision": 1}
    assert (
        jvmless.rows(Warehouse(settings), TABLE, key)
        == jvmless.rows_by_spark(Warehouse(settings, spark), TABLE, key)
        == []
    )


def test_a_warehouse_on_a_uri_is_read_by_a_session(spark: SparkSession, settings: Settings) -> None:
    append(settings, ("a", 1), ("b", 2))
    elsewhere = load(warehouse=Path(settings.warehouse).as_uri(), landing=settings.landing)

    assert jvmless.rows_by_spark(Warehouse(elsewhere, spark), TABLE, {"letter": "b"}, ["number"]) == [{"number": 2}]
    with pytest.raises(UsageError):
        jvmless.rows_by_spark(Warehouse(elsewhere, spark), "gold.words", {"letter": "b"})


def test_spark_finds_the_same_rows_whatever_is_asked(spark: SparkSession, settings: Settings) -> None:
    append(settings, ("a", 1), ("b", 2), (None, None), ("", 4))
    by_uri = load(warehouse=Path(settings.warehouse).as_uri(), landing=settings.landing)

    asked: list[dict[str, str | int]] = [{"letter": letter} for letter in ("a", "A", "", "\udcff", "x\ud800")]
    asked += [{"number": number} for number in (2, 3, 2**63 - 1, 2**63, -(2**63) - 1, 2**70)]
    for equal in asked:
        here, there = (jvmless.rows(Warehouse(item, spark), TABLE, equal) for item in (settings, by_uri))
        assert there == here, equal
        here, there = (
            jvmless.query(Warehouse(item, spark), TABLE, "SELECT count(*) AS found FROM rows", equal)
            for item in (settings, by_uri)
        )
        assert (there or [{"found": 0}]) == (here or [{"found": 0}]), equal


def test_a_time_that_an_older_table_lacks_is_unknown(spark: SparkSession, settings: Settings) -> None:
    spark.sql("SELECT 'default' AS cluster").write.format("delta").save(Warehouse(settings).location(TABLE))
    by_uri = load(warehouse=Path(settings.warehouse).as_uri(), landing=settings.landing)

    until = datetime(2026, 11, 21, tzinfo=UTC)
    for item in (settings, by_uri):
        assert jvmless.greatest(Warehouse(item, spark), TABLE, "at", until) is None


def test_spark_tells_the_same_times(spark: SparkSession, settings: Settings) -> None:
    start = datetime(2026, 11, 21, 2, 30, tzinfo=UTC)
    moments = [start + timedelta(seconds=40 * index) for index in range(9)]
    values = ", ".join(f"('{name}', timestamp_micros({jvmless._micros(at)}))" for at in moments for name in "ab")
    rows = spark.sql(
        f"SELECT * FROM VALUES {values}, ('a', timestamp '9999-12-31 23:59:59'), ('a', null) AS (cluster, at)"
    )
    for part in (rows.where("at < '2026-11-21 02:33'"), rows.where("at IS NULL OR at >= '2026-11-21 02:33'")):
        part.coalesce(1).write.format("delta").mode("append").save(Warehouse(settings).location(TABLE))
    ours = settings.model_copy(update={"cluster": "a"})
    by_uri = ours.model_copy(update={"warehouse": Path(settings.warehouse).as_uri()})

    for until in (start - timedelta(1), start + timedelta(seconds=100), start + timedelta(1)):
        told = [jvmless.greatest(Warehouse(item, spark), TABLE, "at", until) for item in (ours, by_uri)]
        assert told == [max((at for at in moments if at <= until), default=None)] * 2
        minutes = [
            jvmless.minutes(Warehouse(item, spark), TABLE, "at", start + timedelta(seconds=30), until)
            for item in (ours, by_uri)
        ]
        assert minutes[0] == minutes[1]
    assert minutes[0] == [start + timedelta(minutes=index) for index in range(6)]
    assert jvmless.greatest(Warehouse(by_uri, spark), "gold.none", "at", start) is None
