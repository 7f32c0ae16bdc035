"""Predicates of groups: every touched group is in them, and few ranges hold them all."""

from __future__ import annotations

from datetime import UTC, date, datetime

from hypothesis import given
from hypothesis import strategies as st

from pipelines.warehouse.groups import MOST_RUNS, Groups, runs

NAMES = st.lists(st.text(max_size=5), min_size=1, max_size=200)


@given(NAMES)
def test_runs_hold_every_group_and_begin_and_end_with_one(names: list[str]) -> None:
    found = runs([*names, None])
    assert len(found) <= MOST_RUNS
    assert all(any(least <= name <= most for least, most in found) for name in names)
    assert {end for run in found for end in run} <= set(names)
    assert found == sorted(found)


def test_a_predicate_has_the_list_its_ranges_and_null() -> None:
    hour = datetime(2026, 3, 1, 12, tzinfo=UTC)
    text = "TIMESTAMP '2026-03-01 12:00:00.000000+00:00'"
    assert Groups("hour", (hour,)).predicate() == f"(`hour` IN ({text}) AND (`hour` BETWEEN {text} AND {text}))"
    assert Groups("day", (date(900, 3, 1),)).predicate().startswith("(`day` IN (DATE '0900-03-01') AND (`day` BETWEEN ")
    assert Groups("day", (None, 2, 10)).predicate().startswith("(`day` IN (2, 10) AND ")
    assert Groups("name", ("b", None, "a")).predicate() == (
        "(`name` IN ('b', 'a') AND (`name` BETWEEN 'a' AND 'a' OR `name` BETWEEN 'b' AND 'b')) OR `name` IS NULL"
    )
    assert Groups("name", (None,)).predicate() == "`name` IS NULL"
    assert Groups("name", ()).predicate() == "false"
