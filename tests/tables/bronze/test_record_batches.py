"""Rows of segments in bronze: their ids and their columns."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from expectations.bronze.record_batches import CONTRACT
from expectations.provenance import ADDED_BY_THE_RUN
from pipelines.bronze.record_batches import parse
from pipelines.settings import load
from pipelines.sources.landing import LandedFile
from pipelines.sources.log_dirs import Segment
from pipelines.sources.segments import SCHEMA, Version, Work, rows
from tests.testing.segments import batch, message, record

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Row, SparkSession


def parsed(
    spark: SparkSession, path: Path, data: bytes, source: str = "t-3/0.log", cluster: str = "north"
) -> list[Row]:
    path.write_bytes(data)
    found = rows(Work(Segment.of(source), LandedFile(source, len(data), 0), str(path), False))
    rows_of_batches = parse(spark.createDataFrame(list(found), SCHEMA), load(cluster=cluster)).where("file IS NULL")
    return rows_of_batches.orderBy("position").collect()


def test_a_batch_is_known_by_the_version_of_its_file_and_its_place(spark: SparkSession, tmp_path: Path) -> None:
    (row,) = parsed(spark, tmp_path / "a", batch(7, 2))
    known = f"north\nt-3/0.log\n1\n0\n{row['crc']}"
    assert row["_bronze_id"] == hashlib.sha256(known.encode()).hexdigest()


def test_what_a_file_goes_on_from_is_not_kept_again(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(batch(7, 2))
    work = Work(Segment.of("t-3/0.log"), LandedFile("t-3/0.log", len(batch(7, 2)), 0), str(tmp_path / "a"), False)
    *_, (*_, number, _, facts) = rows(work)
    before = Version(number, facts[3], *facts[1:3], *facts[-2:])
    (tmp_path / "a").write_bytes(batch(7, 2) + batch(9) + b"\xff" * 17)
    file = LandedFile("t-3/0.log", len(batch(7, 2) + batch(9)) + 17, 0)
    found = spark.createDataFrame(list(rows(work._replace(file=file, before=before))), SCHEMA)
    kept = parse(found, load()).orderBy("position").collect()
    assert [(row["base_offset"], row["error"], row["version"]) for row in kept] == [
        (9, None, 2),
        (None, "implausible_size", 2),
        (None, None, 2),
    ]
    assert kept[-1]["file"]["first_version"] == 1


@pytest.fixture(scope="module")
def id_of_one(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The id of a batch that others differ from."""
    (row,) = parsed(spark, tmp_path_factory.mktemp("one") / "a", batch(7))
    return str(row["_bronze_id"])


@pytest.mark.parametrize(
    ("source", "cluster", "data"),
    [
        pytest.param("t-3/0.log", "south", batch(7), id="another cluster"),
        pytest.param("u-3/0.log", "north", batch(7), id="another topic"),
        pytest.param("t-4/0.log", "north", batch(7), id="another partition"),
        pytest.param("t-3/0.log", "north", batch(7, records=[record(0, b"other")]), id="other records"),
        pytest.param("t-3/0.log", "north", batch(7, leader_epoch=1)[:-1] + b"\1", id="a wrong checksum"),
        pytest.param("t-3/00000.log", "north", batch(7), id="another file"),
        pytest.param("t-3/0.log", "north", message(7, 1), id="another content"),
    ],
)
def test_another_batch_has_another_id(
    spark: SparkSession, tmp_path: Path, id_of_one: str, source: str, cluster: str, data: bytes
) -> None:
    (other,) = parsed(spark, tmp_path / "b", data, source, cluster)
    assert other["_bronze_id"] != id_of_one


def test_places_without_a_batch_are_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    torn = parsed(spark, tmp_path / "a", batch(0)[:-1])
    strange = [
        *parsed(spark, tmp_path / "a", b"", "readme.txt"),
        *parsed(spark, tmp_path / "a", b"", "notes.txt"),
        *parsed(spark, tmp_path / "a", batch(0)[:-1], "t-4/0.log"),
    ]
    assert len({row["_bronze_id"] for row in [*torn, *strange]}) == 4
    assert [row["error"] for row in strange] == ["not_a_segment", "not_a_segment", "torn_batch"]


def test_columns_are_the_contracts(spark: SparkSession) -> None:
    columns = parse(spark.createDataFrame([], SCHEMA), load()).schema
    promised = spark.createDataFrame([], ", ".join(f"`{column.name}` {column.type}" for column in CONTRACT.columns))
    assert [(field.name, field.dataType) for field in columns] == [
        (field.name, field.dataType) for field in promised.schema if field.name not in ADDED_BY_THE_RUN
    ]
