"""Rolling windows of dead letters: the records of the last 60 minutes, not of an hour of the clock."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.commands import windows
from pipelines.settings import Settings, load
from pipelines.site import reading
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.deliveries import store
from tests.testing.examples import at_most
from tests.testing.sites import HOUR, NOW

MINUTE = timedelta(minutes=1)


def died(settings: Settings, *letters: tuple[timedelta, str | None], markers: tuple[int, ...] = ()) -> None:
    """Store dead letters by age and group, with their summary; the markers among them do not count."""
    rows = [
        sites.letter(index, routed_at=NOW - age, consumer_group=group) for index, (age, group) in enumerate(letters)
    ]
    store(settings, "silver.dlq_records", *rows)
    marked = [
        {name: rows[place][name] for name in ("cluster", "_bronze_id", "routed_at")} | {"is_control_marker": True}
        for place in markers
    ]
    store(settings, "silver.dlq_control_markers", *marked)
    hours: dict[tuple[datetime, Any], list[datetime]] = {}
    for place, row in enumerate(rows):
        if place not in markers:
            key = (row["routed_at"].replace(minute=0, second=0), row["consumer_group"])
            hours.setdefault(key, []).append(row["routed_at"])
    summed = [
        sites.hour(hour, len(times), consumer_group=group, first_routed_at=min(times), last_routed_at=max(times))
        for (hour, group), times in hours.items()
    ]
    store(settings, "gold.dlq_summary", *summed)


def test_the_last_hour_is_the_last_sixty_minutes(settings: Settings) -> None:
    Path(settings.warehouse).mkdir()
    ages = (0, 5, 20, 40, 59, 60, 61, 80, 26 * 60)  # at 12:30: three in this hour, two after 11:30
    died(settings, *((age * MINUTE, "a") for age in ages), (3 * MINUTE, "a"), (-5 * MINUTE, "a"), markers=(2,))
    assert windows.between(Warehouse(settings), NOW - HOUR, NOW) == {"a": 5}
    store(settings, "gold.dlq_incidents", sites.incident(0))
    told = reading.gather(Warehouse(settings), now=NOW).timeline
    assert (told.last_hour, told.is_incomplete, told.until) == (5, True, NOW)
    assert [(series_.name, series_.last_hour, series_.day, series_.week) for series_ in told.series] == [("a", 5, 8, 9)]


def test_hours_within_the_window_come_from_the_summary_alone(settings: Settings) -> None:
    Path(settings.warehouse).mkdir()
    store(settings, "gold.dlq_summary", *(sites.hour(NOW - age * MINUTE, 7) for age in (10, 50, 61)))
    assert windows.between(Warehouse(settings), NOW - HOUR, NOW).total() == 14  # no record is read, none is there


def test_nothing_is_counted_where_nothing_landed(settings: Settings) -> None:
    Path(settings.warehouse).mkdir()
    assert windows.between(Warehouse(settings), NOW - HOUR, NOW) == Counter()


@at_most(20)
@given(
    letters=st.lists(st.tuples(st.integers(-90, 400), st.sampled_from(["a", "b", None]), st.booleans()), max_size=12),
    after=st.integers(0, 300),
    length=st.integers(1, 200),
)
def test_a_window_counts_what_is_in_it(
    letters: list[tuple[int, str | None, bool]], after: int, length: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("windows")
    settings = load(warehouse=str(place), landing=str(place / "landing"))
    markers = tuple(index for index, item in enumerate(letters) if item[2])
    died(settings, *((age * MINUTE, group) for age, group, _ in letters), markers=markers)
    begin, until = NOW - (after + length) * MINUTE, NOW - after * MINUTE
    expected = Counter(group for age, group, is_marker in letters if not is_marker and after <= age < after + length)
    assert windows.between(Warehouse(settings), begin, until) == expected
