"""The week of the shop: the same each time, as long as a week, and with the stories that the demo tells."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from local.week import END, SHOP, files, week


def times(moved: timedelta = timedelta(0)) -> list[datetime]:
    lines = (line for name, found in files(week(moved)).items() if name.startswith("dlq/") for line in found)
    return sorted(datetime.fromtimestamp(json.loads(line)["timestamp"] / 1000, UTC) for line in lines)


def test_the_same_week_has_the_same_bytes() -> None:
    assert files(week()) == files(week())


@pytest.mark.parametrize("hours", [0, 5, 14, 23])
def test_it_lasts_a_week_and_stays_small(hours: int) -> None:
    found = times(timedelta(days=20, hours=hours))
    assert END - timedelta(days=7) <= found[0] < END - timedelta(days=6.8)
    assert END - timedelta(minutes=5) < found[-1] <= END
    assert 3_000 < len(found) < 5_000
    assert max(after - before for before, after in pairwise(found)) < timedelta(hours=2)


@pytest.mark.parametrize("hours", [0, 9])
def test_more_dies_by_day_than_by_night_where_the_week_is_moved_to(hours: int) -> None:
    moved = timedelta(days=20, hours=hours)
    products = [
        truth for scenario in week(moved) for truth in scenario.truth if truth.original_topic == "shop.products"
    ]
    (places,) = {truth.places for truth in products}
    lines = (json.loads(line) for name, found in files(week(moved)).items() if "/products-" in name for line in found)
    by_hour = Counter(
        (datetime.fromtimestamp(line["timestamp"] / 1000, UTC) + moved).hour
        for line in lines
        if (line["topic"], line["partition"], line["offset"]) in places
    )
    assert sum(by_hour[hour] for hour in range(10, 18)) > 2 * sum(by_hour[hour] for hour in (22, 23, 0, 1, 2, 3, 4, 5))


def test_it_tells_the_stories_of_the_demo() -> None:
    told = {
        (truth.original_topic.removeprefix(SHOP), truth.verdict): truth
        for scenario in week()
        for truth in scenario.truth
    }
    storm = told["orders", "SYSTEMIC"]
    assert (storm.first_suspect and storm.first_suspect.name, storm.records) == ("order-enrichment", 1_700)
    assert END - storm.last_at < timedelta(minutes=5)
    rolled_back = told["prices", "SYSTEMIC"]
    assert (rolled_back.first_suspect and rolled_back.first_suspect.name) == "pricing"
    assert rolled_back.last_at - rolled_back.first_at < timedelta(hours=2)
    assert told["payments", "KEY_LOCAL"].predecessor is not None  # the later one of two
    assert {truth for truth in told if truth[1] in ("PARTITION_LOCAL", "POISON_PILL")} == {
        ("clicks", "PARTITION_LOCAL"),
        ("invoices", "POISON_PILL"),
    }
    assert all(truth.first_at < END - timedelta(days=6.5) for key, truth in told.items() if key[1] == "UNDETERMINED")
