"""A writer's clock goes back, again and again: nothing that went by its age was younger than that."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipelines import moments
from pipelines.settings import Settings
from pipelines.warehouse import clock
from pipelines.warehouse.clock import APART, Written
from pipelines.warehouse.tables import Warehouse

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
NEARLY = APART + timedelta(minutes=1)


@pytest.mark.parametrize("seed", range(200))
def test_what_is_surely_old_was_written_before(seed: int) -> None:
    drawn, now, lag, known = random.Random(seed), BEGIN, timedelta(), Written()
    rows: list[tuple[datetime, datetime]] = []  # what the clock said, and when that was, as far as anybody could know
    for _ in range(60):
        now += timedelta(hours=drawn.choice((0.01, 1, 30, 24 * 20)))
        if drawn.random() < 0.3:
            lag = timedelta(hours=drawn.choice((0, 0, 1, 5, 24 * 365)))
        known = known.after(now - lag)
        noticed = timedelta() if known.lag(now - lag) else lag  # a clock that went back less than nobody wrote
        rows.append((now - lag - timedelta(minutes=drawn.random() * 30), now - noticed - timedelta(minutes=30)))
        age = timedelta(days=drawn.choice((0, 1, 7, 90, 400)))
        at = now - (lag if drawn.random() < 0.5 else timedelta())  # `afterlog maintain` with either clock
        went = [written for stamp, written in rows if stamp < known.surely(at - age)]
        assert all(written < now - age + NEARLY for written in went)


def test_without_a_clock_that_went_back_all_goes_by_its_age() -> None:
    known = Written()
    for hour in range(50):
        known = known.after(BEGIN + timedelta(hours=hour))
    assert known == Written(BEGIN + timedelta(hours=49), [])
    assert known.surely(BEGIN) == BEGIN


def test_a_span_ends_when_the_clock_is_right_again() -> None:
    hour = timedelta(hours=1)
    known = Written().after(BEGIN).after(BEGIN - 5 * hour).after(BEGIN - 4 * hour)
    assert (known.newest, known.lag(BEGIN - 4 * hour)) == (BEGIN, 4 * hour)
    assert known.surely(BEGIN + 999 * hour) == BEGIN - 6 * hour  # nobody knows yet how long it was so
    known = known.after(BEGIN + 2 * hour)
    assert known.lag(BEGIN + 2 * hour) is None
    assert [known.surely(BEGIN + hours * hour) - BEGIN for hours in (-7, -5, 2, 3)] == [
        hours * hour for hours in (-7, -6, -6, 3)
    ]


def test_it_is_written_seldom_and_a_damaged_file_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = Warehouse(Settings(warehouse=str(tmp_path)))
    file = tmp_path / clock.FILE

    def noted(at: datetime) -> Written:
        monkeypatch.setattr(moments, "now", lambda: at)
        clock.note(warehouse)
        return Written.of(warehouse)

    assert noted(BEGIN) == Written(BEGIN, [])
    before = file.stat().st_ino
    noted(BEGIN + timedelta(seconds=59))
    assert file.stat().st_ino == before
    noted(BEGIN - timedelta(minutes=9))
    assert file.stat().st_ino == before
    behind = noted(BEGIN - timedelta(minutes=11))
    assert behind.behind == [(BEGIN - timedelta(minutes=71), None)]
    file.write_text('{"newest": 3')
    assert Written.of(warehouse) == Written()
    assert noted(BEGIN).newest == BEGIN
