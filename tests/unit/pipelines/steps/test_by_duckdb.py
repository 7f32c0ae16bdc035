"""Which rows of an input a refresh takes: those of which one of the groups is touched."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as arrow  # type: ignore[import-untyped]
import pytest

from pipelines.steps.by_duckdb import _Refreshing
from pipelines.steps.refresh import Along, EachOf
from pipelines.warehouse import duck

Row = dict[str, Any]


def taken(directory: Path, group: str | EachOf | Along, rows: list[Row], among: list[Any]) -> list[int]:
    nothing: Any = None
    with duck.connected(str(directory)) as connection:
        columns = {"one": arrow.string(), "other": arrow.string(), "is_counted": arrow.bool_(), "number": arrow.int64()}
        connection.register("given", arrow.Table.from_pylist(rows, arrow.schema(columns.items())))
        refreshing = _Refreshing(nothing, nothing, nothing, {}, connection, nothing)
        view = refreshing._within(group, "given", among, "_taken")
        assert connection.sql(f"FROM {view}").columns == [*columns]
        return [number for (number,) in connection.sql(f"SELECT number FROM {view} ORDER BY number").fetchall()]


@pytest.mark.parametrize("seed", range(30))
def test_rows_of_touched_groups_are_taken_and_no_others(seed: int, tmp_path: Path) -> None:
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

    for group, of in (
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
        ("array(one, other)", lambda row: {row["one"], row["other"]} & {*among}),
    ):
        assert taken(tmp_path, group, rows, among) == expected(of), group
