from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.settings import load
from pipelines.warehouse.change_feed import changes
from pipelines.warehouse.progress import Batch
from pipelines.warehouse.ranges import Range, points, within
from pipelines.warehouse.tables import Warehouse
from tests.testing.examples import at_most

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "silver.made"
LONG = "x" * 40  # Delta's statistics hold the first 32 characters of a text
NAMES = ["", "a", "aa", "b", "größe", "\U0001f600", LONG, LONG + "y", "y"]
NUMBERS = [-(2**63), -1, 0, 1, 7, 2**63 - 1]
FILES: list[list[tuple[str | None, int | None]]] = [
    [("a", 0), ("b", 7)],
    [(LONG, 1), (LONG + "y", -1)],
    [(None, 0), ("aa", None)],
    [(None, None)],
    [("größe", 2**63 - 1), ("\U0001f600", -(2**63))],
]

names, numbers = st.sampled_from(NAMES), st.sampled_from(NUMBERS)


def ends(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | st.tuples(values, values).map(lambda two: tuple(sorted(two)))


some_ranges = st.lists(
    st.dictionaries(st.just("name"), ends(names), min_size=1)
    | st.dictionaries(st.just("number"), ends(numbers), min_size=1)
    | st.fixed_dictionaries({"name": ends(names), "number": ends(numbers)}),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """A table of small files."""
    warehouse = Warehouse(load(warehouse=str(tmp_path_factory.mktemp("ranges"))), spark)
    for rows in FILES:
        frame = spark.createDataFrame(rows, "name string, number bigint").coalesce(1)
        frame.write.format("delta").mode("append").save(warehouse.location(TABLE))
    return warehouse


def selected(among: list[Range]) -> list[tuple[str | None, int | None]]:
    def is_in(value: Any, ends: tuple[Any, Any] | None) -> bool:
        return value is None if ends is None else value is not None and ends[0] <= value <= ends[1]

    return [
        (name, number)
        for rows in FILES
        for name, number in rows
        if any(all(is_in({"name": name, "number": number}[column], item[column]) for column in item) for item in among)
    ]


def told(rows: Any) -> list[tuple[str | None, int | None]]:
    return sorted(((row["name"], row["number"]) for row in rows.collect()), key=repr)


@at_most(25)
@given(among=some_ranges)
def test_files_are_left_out_only_if_they_have_no_row_in_the_ranges(made: Warehouse, among: list[Range]) -> None:
    expected = sorted(selected(among), key=repr)
    assert told(made.read(TABLE, None, among)) == expected
    assert told(made.read(TABLE).where(within(among))) == expected
    existing_rows = made.existing_rows(TABLE, among)
    assert ([] if existing_rows is None else told(existing_rows)) == expected


def test_files_outside_the_ranges_are_left_out(made: Warehouse) -> None:
    files = made.data_files(TABLE)
    assert files is not None
    assert len(files.paths()) == len(FILES)
    assert len(files.paths(points("name", ["b"]))) == 2  # with the file that has no statistics of names
    assert len(files.paths(points("number", [8]))) == 2


def test_rows_stay_those_of_their_version(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(load(warehouse=str(tmp_path)), spark)
    spark.range(2).coalesce(1).write.format("delta").save(warehouse.location(TABLE))
    rows = warehouse.read(TABLE)
    spark.range(5).coalesce(1).write.format("delta").mode("append").save(warehouse.location(TABLE))
    assert (rows.count(), warehouse.read(TABLE, 0).count(), warehouse.read(TABLE).count()) == (2, 2, 7)


def test_a_table_whose_files_do_not_tell_its_rows_is_read_by_delta(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(load(warehouse=str(tmp_path)), spark)
    place = warehouse.location(TABLE)
    writer = spark.range(10).coalesce(1).write.format("delta").option("delta.enableDeletionVectors", "true")
    writer.save(place)
    spark.sql(f"DELETE FROM delta.`{place}` WHERE id < 4")
    assert warehouse.data_files(TABLE) is None
    assert warehouse.read(TABLE).count() == 6


@pytest.mark.parametrize("name", ["{a,b}", "[x]", "*", "?", "a b", "größe#1"])
def test_a_directory_may_have_any_name(spark: SparkSession, tmp_path: Path, name: str) -> None:
    warehouse = Warehouse(load(warehouse=str(tmp_path / name)), spark)
    for number in range(2):
        rows = spark.range(number, number + 1).coalesce(1).write.format("delta").mode("append")
        rows.option("delta.enableChangeDataFeed", "true").save(warehouse.location(TABLE))
    feed = changes(warehouse, TABLE, Batch(0, 1)).rows
    assert (warehouse.read(TABLE).count(), feed.count()) == (2, 1)
