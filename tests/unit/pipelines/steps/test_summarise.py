"""Which rows of an input a refresh takes: those of which one of the groups is touched, or in the part at hand."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as arrow  # type: ignore[import-untyped]
import pytest

from pipelines.engines.base import Engine
from pipelines.engines.duckdb import sessions
from pipelines.engines.duckdb.engine import DuckEngine
from pipelines.engines.spark import SparkEngine
from pipelines.steps.refresh import Along, EachIn, EachOf, Group, Refresh
from pipelines.steps.summarise import Refreshing, _is_between

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
COLUMNS = {"one": arrow.string(), "other": arrow.string(), "is_counted": arrow.bool_(), "number": arrow.int64()}
NOTHING: Any = None
IN_SPARK = (0, 5, 29)  # null is none of the groups, one of them, and the only one; a query takes a tenth of a second


def refreshing(engine: Engine) -> Refreshing:
    return Refreshing(NOTHING, engine, NOTHING, SimpleNamespace(table="gold.made"), Refresh("group", {}), {})  # type: ignore[arg-type]


def taken(engine: Engine, group: Group, among: list[Any]) -> list[int]:
    where = refreshing(engine)._within(group, among, "_among")
    return [number for (number,) in engine.rows(f"SELECT number FROM given WHERE {where} ORDER BY number")]


@pytest.mark.parametrize("seed", range(30))
def test_rows_of_touched_groups_are_taken_and_no_others(spark: SparkSession, seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    values = ["a", "b", "c", "it's", "", None]
    rows = [
        {
            "one": chance.choice(values),
            "other": chance.choice(values),
            "is_counted": chance.choice((True, True, False, None)),
            "number": number,
        }
        for number in range(chance.choice((0, 1, 40)))
    ]
    among = chance.sample([*values, "a:b", "b:a"], chance.randint(1, 4))
    named = {*among} - {None}  # null is no group of a row that can have several

    def expected(of: Any) -> list[int]:
        return [row["number"] for row in rows if of(row)]

    cases: tuple[tuple[Group, Any], ...] = (
        (EachOf(("one",)), lambda row: row["one"] in named),
        (EachOf(("one", "other")), lambda row: {row["one"], row["other"]} & named),
        (
            EachOf(("other", "one"), "is_counted AND number <> 3"),
            lambda row: row["is_counted"] and row["number"] != 3 and {row["one"], row["other"]} & named,
        ),
        (
            EachOf(("concat(one, ':', other)",)),
            lambda row: None not in (row["one"], row["other"]) and f"{row['one']}:{row['other']}" in named,
        ),
        ("one", lambda row: row["one"] in among),
        (Along("other", "one", 1), lambda row: row["other"] in among),
        (EachIn("array(one, other)"), lambda row: {row["one"], row["other"]} & {*among}),
    )
    given = arrow.Table.from_pylist(rows, arrow.schema(COLUMNS.items()))
    in_spark = SparkEngine(SimpleNamespace(spark=spark), "gold.made", NOTHING)  # type: ignore[arg-type]
    in_spark._register(
        "given", spark.createDataFrame(rows, "one string, other string, is_counted boolean, number bigint")
    )
    with sessions.connected(str(tmp_path)) as connection:
        connection.register("given", given)
        for group, of in cases:
            for engine in (DuckEngine(NOTHING, NOTHING, connection), *([in_spark] if seed in IN_SPARK else ())):
                assert taken(engine, group, among) == expected(of), group
    in_spark.forget()


@pytest.mark.parametrize(
    ("starts", "values"),
    [
        (
            [datetime(2026, 11, day, tzinfo=UTC) for day in (20, 21, 22)],
            [
                arrow.scalar(date(2026, 11, 21)),
                *(arrow.scalar(datetime(2026, 11, 21), arrow.timestamp("us", zone)) for zone in (None, "UTC")),
            ],
        ),
        ([6, 7, 8], [arrow.scalar(7, arrow.int32()), arrow.scalar(7, arrow.int64()), arrow.scalar(7, arrow.uint64())]),
        (["Z", "a", "\u00e9"], [arrow.scalar("a"), arrow.scalar("a", arrow.large_string())]),
        (["a"], [arrow.scalar(None, arrow.string())]),
    ],
)
def test_equal_groups_of_different_types_are_in_one_part(starts: list[Any], values: list[Any], tmp_path: Path) -> None:
    with sessions.connected(str(tmp_path)) as connection:
        connection.register("given", arrow.table({f"a{place}": [item] for place, item in enumerate(values)}))
        engine = DuckEngine(NOTHING, NOTHING, connection)
        parts = [
            [_is_between(f"a{place}", ends) for place in range(len(values))] for ends in pairwise([None, *starts, None])
        ]
        found = [engine.rows(f"SELECT {', '.join(conditions)} FROM given")[0] for conditions in parts]
    own = 2 if len(starts) > 1 else 0  # null is in the first part
    assert [all(part) for part in found] == [number == own for number in range(len(parts))]
    assert not any(any(part) for number, part in enumerate(found) if number != own)
