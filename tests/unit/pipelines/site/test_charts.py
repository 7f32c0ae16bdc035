"""Charts of incidents: bins that fit, no single bar, scales with units."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import hypothesis.strategies as st
import pytest
from hypothesis import given

from pipelines.settings import Settings
from pipelines.site import charts, reading
from pipelines.site.content import Case
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.deliveries import store
from tests.testing.sites import HOUR, NOW, incident, micros

AT = datetime(2026, 11, 8, 4, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def case(settings: Settings, *times: tuple[timedelta, int]) -> Case:
    """An incident with so many records at these times after 4 o'clock, as the page knows it."""
    row = incident(
        0, record_count=sum(count for _, count in times), first_at=AT + times[0][0], last_at=AT + times[-1][0]
    )
    halves: dict[int, int] = {}
    for at, count in times:
        half = micros(AT + at - (AT + at - sites.NOW) % (30 * MINUTE))
        halves[half] = halves.get(half, 0) + count
    row["timeline"] = [{"half_hour": at, "record_count": count} for at, count in halves.items()]
    store(settings, "gold.dlq_incidents", row)
    minutes = [
        {"minute": micros(AT + at), "first_at": micros(AT + at), "last_at": micros(AT + at), "record_count": count}
        for at, count in times
    ]
    error = {"cluster": "default", "fingerprint": row["fingerprint"], "source_slice": "0:4:orders"}
    store(settings, "silver.dlq_errors", error | {"half_hour": AT, "record_count": 1, "minutes": minutes})
    (found,) = reading.gather(Warehouse(settings), now=NOW).incidents
    return found


@pytest.mark.parametrize(
    ("times", "bars", "said"),
    [
        pytest.param(
            [(timedelta(0), 7), (8 * MINUTE, 1)], 9, "Each bar is a minute, with at most 7 records.", id="minutes"
        ),
        pytest.param(
            [(timedelta(0), 7), (3 * HOUR, 1)], 91, "Each bar is 2 minutes, with at most 7 records.", id="hours"
        ),
        pytest.param(
            [(timedelta(0), 3), (20 * HOUR, 9)], 41, "Each bar is 30 minutes, with at most 9 records.", id="a day"
        ),
        pytest.param([(timedelta(0), 3), (12 * 24 * HOUR, 9)], 49, "Each bar is 6 hours", id="days"),
    ],
)
def test_bins_fit_the_incident(settings: Settings, times: list[tuple[timedelta, int]], bars: int, said: str) -> None:
    found = case(settings, *times)
    counts, _ = charts.buckets(found, charts.MOST_BARS)
    assert (sum(counts), len(counts)) == (found.records, bars)
    assert charts.scale(found).startswith(said)
    assert 'class="peak">at most' in charts.bars(found)
    assert "<svg" in charts.sparkline(found)


def test_a_single_bar_is_not_drawn(settings: Settings) -> None:
    found = case(settings, (timedelta(0), 7))
    assert "<svg" not in charts.sparkline(found)
    assert charts.bars(found) == ""
    assert charts.scale(found) == "All records came within a minute."


def test_the_scale_of_a_chart_has_units(settings: Settings) -> None:
    drawn = charts.bars(case(settings, (timedelta(0), 1_234), (8 * MINUTE, 1)))
    assert "at most 1,234 in a minute" in drawn
    assert re.findall("<li>(.*?)</li>", drawn) == ["04:00", "04:02", "04:04", "04:06"]


@given(st.integers(1, 5 * 365 * 24 * 60), st.sampled_from([1, 40, 96]))
def test_spans_are_few_and_hold_all(minutes: int, most: int) -> None:
    timeline = ((AT, 1), (AT + minutes * MINUTE, 1))
    stub = type("Stub", (), {"timeline": timeline, "each": MINUTE})()
    counts, width = charts.buckets(stub, most)
    assert sum(counts) == 2
    assert len(counts) <= most
    assert charts.lasting_of(width)
