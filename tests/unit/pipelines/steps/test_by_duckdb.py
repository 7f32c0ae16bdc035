"""Which rows of an input a refresh takes: those of which one of the groups is touched, or in the part at hand."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as arrow  # type: ignore[import-untyped]
import pytest

from pipelines.engines.duckdb import sessions
from pipelines.steps.by_duckdb import PART, _Refreshing
from pipelines.steps.refresh import Along, EachOf, Refresh

Row = dict[str, Any]


def taken(directory: Path, group: str | EachOf | Along, rows: list[Row], among: list[Any]) -> list[int]:
    nothing: Any = None
    with sessions.connected(str(directory)) as connection:
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


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("timestamp", ("DATE '2026-11-21'", "TIMESTAMP '2026-11-21 00:00:00'", "TIMESTAMPTZ '2026-11-21 00:00:00Z'")),
        ("bigint", ("7::INT", "7::BIGINT", "7::HUGEINT")),
        ("string", ("NULL", "NULL::VARCHAR")),
    ],
)
def test_equal_groups_of_different_types_are_in_one_part(kind: str, values: tuple[str, ...], tmp_path: Path) -> None:
    nothing: Any = None
    schema = {"type": "struct", "fields": [{"name": "group", "type": kind, "nullable": True, "metadata": {}}]}
    opened: Any = SimpleNamespace(schema=lambda: SimpleNamespace(to_json=lambda: json.dumps(schema)))
    refreshing = _Refreshing(nothing, nothing, Refresh("group", {}), {}, nothing, opened)
    with sessions.connected(str(tmp_path)) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = []
        for part in range(97):
            connection.execute(f"SET VARIABLE {PART} = {part}")
            conditions = (refreshing._is_in_part(97, value) for value in values)
            found += connection.sql(f"SELECT {', '.join(conditions)}").fetchall()
    all_, none = (True,) * len(values), (False,) * len(values)
    assert sorted(found, reverse=True) == [all_, *[none] * 96]
