"""Groups that are replaced without a JVM: the table and its change feed, for any values of groups."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import WriterBusy
from pipelines.stores import locations
from pipelines.warehouse import few_rows
from pipelines.warehouse.data_files import DataFiles
from pipelines.warehouse.few_rows import Turn
from pipelines.warehouse.groups import Groups
from pipelines.warehouse.tables import PROPERTIES
from tests.testing.examples import at_most

NO_TURN, SHARED = Turn(""), Turn("a mark", is_shared=True)


def whole(at: datetime) -> datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


KINDS = {
    "string": (pa.string(), st.text(max_size=4) | st.sampled_from(["'", "\\", "''; --", "%", "\x00", "o'b\"`\n"])),
    "timestamp": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC)).map(whole)),
    "date": (pa.date32(), st.dates()),
    "long": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "integer": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
}
Row = tuple[Any, int]
PLACE = tempfile.TemporaryDirectory(prefix="afterlog-few-")  # examples of a property share fixtures
NUMBERS = itertools.count()


def table_of(kind: str) -> DeltaTable:
    fields = [{"name": name, "type": of, "nullable": True, "metadata": {}} for name, of in (("g", kind), ("n", "long"))]
    schema = Schema.from_json(json.dumps({"type": "struct", "fields": fields}))
    return DeltaTable.create(f"{PLACE.name}/{next(NUMBERS)}", schema, configuration=PROPERTIES)


def arrow(kind: str, rows: Sequence[Row]) -> pa.Table:
    columns = [pa.array([row[0] for row in rows], KINDS[kind][0]), pa.array([row[1] for row in rows], pa.int64())]
    return pa.table(columns, names=["g", "n"])


def rows_of(batches: Any) -> list[Row]:
    table = pa.table(batches)
    return list(zip(table["g"].to_pylist(), table["n"].to_pylist(), strict=True))


def histories(kind: str) -> st.SearchStrategy[tuple[list[Row], list[tuple[list[Any], list[Row]]]]]:
    """Return the first rows of a table, and then groups to replace with their new rows."""

    def of(names: list[Any]) -> st.SearchStrategy[tuple[list[Row], list[tuple[list[Any], list[Row]]]]]:
        rows = st.lists(st.tuples(st.sampled_from(names), st.integers(0, 9)), max_size=8)
        some = st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True)
        step = some.flatmap(
            lambda touched: st.tuples(
                st.just(touched), st.lists(st.tuples(st.sampled_from(touched), st.integers(0, 9)), max_size=4)
            )
        )
        return st.tuples(rows, st.lists(step, min_size=1, max_size=3))

    return st.lists(st.none() | KINDS[kind][1], min_size=1, max_size=5, unique=True).flatmap(of)


@pytest.mark.parametrize("kind", KINDS)
@at_most(25)
@given(data=st.data())
def test_only_the_groups_are_replaced_and_the_change_feed_says_so(kind: str, data: st.DataObject) -> None:
    first, steps = data.draw(histories(kind))
    opened = table_of(kind)
    if first:
        few_rows.append(opened, arrow(kind, first), Turn("the first"))
    expected = Counter(first)
    for touched, fresh in steps:
        few_rows.replace(opened, arrow(kind, fresh), Groups("g", tuple(touched)).deltalake_predicate(), Turn("a mark"))
        changes = pa.table(opened.load_cdf(starting_version=opened.version(), ending_version=opened.version()))
        before = expected
        expected = Counter({row: times for row, times in before.items() if row[0] not in touched}) + Counter(fresh)
        assert Counter(rows_of(DeltaTable(opened.table_uri).scan())) == expected
        signs = {"insert": 1, "delete": -1, "update_postimage": 1, "update_preimage": -1}
        net: Counter[Row] = Counter()
        for row, change in zip(rows_of(changes), changes["_change_type"].to_pylist(), strict=True):
            net[row] += signs[change]
        assert {row: times for row, times in net.items() if times} == {
            row: expected[row] - before[row] for row in {*expected, *before} if expected[row] != before[row]
        }
    assert opened.history(1)[0]["userMetadata"] == "a mark"


def test_all_rows_are_replaced_without_groups() -> None:
    opened = table_of("string")
    few_rows.append(opened, arrow("string", [("a", 1), (None, 2)]), NO_TURN)
    few_rows.replace(opened, arrow("string", [("b", 3)]), None, NO_TURN)
    assert rows_of(opened.scan()) == [("b", 3)]


@pytest.mark.parametrize("predicate", [None, Groups("g", ("b",)).deltalake_predicate()], ids=["all", "a group"])
def test_of_two_turns_over_one_version_one_fails(predicate: str | None) -> None:
    first = table_of("string")
    second = DeltaTable(first.table_uri)
    few_rows.append(first, arrow("string", [("a", 1)]), SHARED)
    for late in (
        lambda: few_rows.append(second, arrow("string", [("b", 2)]), SHARED),
        lambda: few_rows.replace(DeltaTable(first.table_uri, version=0), arrow("string", []), predicate, SHARED),
    ):
        with pytest.raises(WriterBusy, match="Another writer has committed to the same table"):
            late()
    few_rows.append(DeltaTable(first.table_uri), arrow("string", [("c", 3)]), SHARED)
    assert sorted(rows_of(DeltaTable(first.table_uri).scan())) == [("a", 1), ("c", 3)]


def test_times_with_fractions_of_a_millisecond_are_left_to_spark() -> None:
    exact, fraction = datetime(2026, 3, 1, 12, tzinfo=UTC), datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC)
    assert Groups("g", (exact, None)).deltalake_predicate()
    assert Groups("g", (exact, fraction)).deltalake_predicate() is None


@given(st.text(min_size=1, max_size=3), st.sampled_from(["", "x", "\U0010ffff", "\ud7ff", "\x00"]))
@at_most(25)
def test_files_with_long_texts_are_not_skipped(text: str, end: str) -> None:
    opened, value = table_of("string"), text + end * 99
    few_rows.append(opened, arrow("string", [(value, 1)]), NO_TURN)
    files = DataFiles.of(opened, locations.of(os.path.dirname(opened.table_uri.rstrip("/"))), "x")
    assert files is not None
    assert files.paths([{"g": (value, value)}])
    few_rows.replace(opened, arrow("string", []), Groups("g", (value,)).deltalake_predicate(), NO_TURN)
    assert not rows_of(opened.scan())


def test_a_row_outside_the_groups_is_refused_without_its_values() -> None:
    opened = table_of("string")
    with pytest.raises(RuntimeError) as refused:
        few_rows.replace(opened, arrow("string", [("a secret", 1)]), Groups("g", ("a",)).deltalake_predicate(), NO_TURN)
    assert "secret" not in str(refused.value)
    assert "1 rows failed" in str(refused.value)
    assert refused.value.__cause__ is None
