"""Literals and identifiers, hostile ones too: each engine reads the value or the name that was written."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as arrow
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from expectations import literals
from pipelines.engines.duckdb.translate import translated

ENDS = "'\"`\\\0\n\r\t\x1a{}$:;?-/*%_@uUxXrRnN0\u2028\u202e\u2019\uff07"
CHARACTERS = st.one_of(st.sampled_from(ENDS), st.characters(codec="utf-8"))
TEXTS = st.text(CHARACTERS, max_size=20)
NAMES = st.text(CHARACTERS, min_size=1, max_size=20)
WHOLE = st.integers(-(2**63), 2**63 - 1)
TIMES = st.datetimes(timezones=st.just(UTC))
EXAMPLES = [
    "",
    "'",
    "''",
    "\\'",
    "\\",
    "\0",
    "a\nb",
    "x' OR 'a' = 'a",
    "${user}",
    "{rows}",
    ":now",
    "\\U00000041",
    "\U0001f4a3",
]


def micros(at: datetime) -> int:
    return (at - literals.EPOCH) // timedelta(microseconds=1)


def days(on: date) -> int:
    return (on - date(1970, 1, 1)).days


@given(texts=st.lists(TEXTS, max_size=30), whole=WHOLE, at=TIMES, on=st.dates())
@settings(max_examples=20)
def test_spark_reads_what_was_written(
    spark: SparkSession, texts: list[str], whole: int, at: datetime, on: date
) -> None:
    texts = [*EXAMPLES, *texts]
    values = ", ".join(map(literals.spark, texts))
    statement = f"SELECT array({values}), {literals.spark(whole)}, unix_micros({literals.spark(at)})"
    statement += f", unix_date({literals.spark(on)})"
    plain = spark.sql(statement).first()
    bound = spark.sql(statement + ", :now FROM {rows}", args={"now": 1}, rows=spark.range(1)).first()
    assert plain is not None
    assert [*plain] == [texts, whole, micros(at), days(on)]
    assert bound is not None
    assert [*bound] == [*plain, 1]
    assert spark.range(1).select(F.expr(f"array({values})")).first() == (texts,)


@given(texts=st.lists(TEXTS, max_size=30), whole=WHOLE)
def test_duckdb_reads_what_was_written(texts: list[str], whole: int) -> None:
    texts = [*EXAMPLES, *texts]
    assert duckdb.sql(f"SELECT [{', '.join(map(literals.text, texts))}]").fetchall() == [(texts,)]
    in_spark = f"SELECT {', '.join(map(literals.spark, [*texts, whole]))}"
    assert duckdb.sql(translated(in_spark)).fetchall() == [(*texts, whole)]


@given(texts=st.lists(TEXTS, max_size=30), whole=WHOLE, at=TIMES, on=st.dates())
def test_datafusion_reads_what_was_written(texts: list[str], whole: int, at: datetime, on: date) -> None:
    texts = [*EXAMPLES, *texts]
    moment, day = f"arrow_cast({literals.datafusion(at)}, 'Int64')", f"arrow_cast({literals.datafusion(on)}, 'Int32')"
    values = [*map(literals.datafusion, [*texts, whole]), moment, day]
    row = answered(f"SELECT {', '.join(f'{value} AS _{place}' for place, value in enumerate(values))}")
    assert [*row.values()] == [*texts, whole, micros(at), days(on)]


@given(texts=st.lists(TEXTS, min_size=1, max_size=10))
@settings(max_examples=50)
def test_a_table_is_searched_for_what_was_written(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    texts = [*EXAMPLES, *texts]
    location = tmp_path_factory.mktemp("texts") / "table"
    write_deltalake(location, arrow.table({"text": texts, "place": range(len(texts))}))
    for text in texts:
        found = DeltaTable(location).scan(["place"], f"text = {literals.datafusion(text)}")
        places = [row["place"] for batch in found for row in batch.to_struct_array().to_pylist()]
        assert sorted(places) == [index for index, item in enumerate(texts) if item == text]


@given(name=NAMES.filter(lambda name: "\0" not in name))  # which Arrow allows in no name
@settings(max_examples=200)
def test_duckdb_and_datafusion_know_what_is_named(name: str) -> None:
    named = literals.name(name)
    assert duckdb.sql(f"SELECT {named} FROM (SELECT 1 AS {named})").columns == [name]
    assert answered(f"SELECT {named} FROM (SELECT 1 AS {named})") == {name: 1}


@given(names=st.lists(NAMES, min_size=1, max_size=20, unique_by=str.casefold))
@settings(max_examples=20)
def test_spark_knows_what_is_named(spark: SparkSession, names: list[str]) -> None:
    listed = ", ".join(f"{place} AS {literals.spark_name(name)}" for place, name in enumerate(names))
    rows = spark.sql(f"SELECT {listed}")
    assert rows.columns == names
    selected = rows.select([F.col(literals.spark_name(name)).alias(f"_{place}") for place, name in enumerate(names)])
    assert selected.first() == tuple(range(len(names)))


@pytest.mark.parametrize("text", ["\udcff", "'\ud800", "\udfff'"], ids=repr)
def test_what_utf_8_cannot_write_reaches_no_engine(spark: SparkSession, text: str) -> None:
    with pytest.raises((duckdb.Error, UnicodeEncodeError)):
        duckdb.sql(f"SELECT {literals.text(text)}")
    with pytest.raises(UnicodeEncodeError):
        answered(f"SELECT {literals.datafusion(text)} AS text")
    row = spark.sql(f"SELECT {literals.spark(text)}").first()
    assert row == ("".join("?" if "\ud800" <= item <= "\udfff" else item for item in text),)


@pytest.mark.parametrize("value", [True, 1.5, b"a", None], ids=repr)
def test_a_value_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="no literal"):
        literals.spark(value)
    with pytest.raises(TypeError, match="no literal"):
        literals.datafusion(value)


def answered(statement: str) -> dict[str, Any]:
    (row,) = [row for batch in QueryBuilder().execute(statement) for row in batch.to_struct_array().to_pylist()]
    return dict(row)
