"""Pages of the whole history of groups and topics."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from pipelines.commands import query
from pipelines.settings import Settings
from pipelines.site import addresses, reading, report
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.deliveries import store
from tests.testing.pages import Page, gathered, written
from tests.testing.sites import HOUR, NOW, hour

DAYS = timedelta(days=1)

OLD = {"consumer_group": "old", "original_topic": "dlq.orders", "dlq_topic": "dlq.old"}


def with_history(settings: Settings) -> Settings:
    """Store dead letters at the borders of what pages of groups and topics tell apart, and without group or time."""
    ages = (0 * HOUR, 6 * DAYS, 167 * HOUR, 168 * HOUR, 20 * DAYS, 89 * DAYS, 90 * DAYS, 400 * DAYS, 410 * DAYS)
    store(
        settings,
        "gold.dlq_summary",
        *(hour(NOW - 3 * DAYS - age, number + 1, **OLD) for number, age in enumerate(ages)),
        hour(NOW - 2 * HOUR, 5, consumer_group=None, original_topic=None),
        hour(NOW, 6) | {"hour": None, "first_routed_at": None, "last_routed_at": None},
        hour(NOW + HOUR, 1000, **OLD),  # of a clock that is ahead
    )
    return settings


def test_the_whole_history_of_groups_and_topics_equals_sql(spark: SparkSession, settings: Settings) -> None:
    with_history(sites.filled(settings))
    found, warehouse = gathered(settings), Warehouse(settings, spark)
    of_topics = """
        SELECT original_topic AS name, hour, record_count FROM gold.dlq_summary WHERE original_topic IS NOT NULL
        UNION ALL
        SELECT dlq_topic AS name, hour, record_count FROM gold.dlq_summary
        WHERE dlq_topic IS DISTINCT FROM original_topic
    """
    of_groups = "SELECT consumer_group AS name, hour, record_count FROM gold.dlq_summary"
    seen = 0
    for places, text in ((found.groups, of_groups), (found.topics, of_topics)):
        rows = jvmless._collected(query.rows_of(warehouse, text, {}))
        for place in places:
            own = [row for row in rows if row["name"] == place.name]
            timed = [row for row in own if row["hour"] is not None and row["hour"] <= NOW]
            assert place.records == sum(row["record_count"] for row in own)
            if not timed:
                assert place.history is None
                continue
            assert place.history is not None
            first, last = min(row["hour"] for row in timed), max(row["hour"] for row in timed)
            ends = place.history.first_hour, place.history.last_hour
            hours, days = Counter[int](), Counter[int]()
            for row in timed:
                hours[167 - (last - row["hour"]) // HOUR] += row["record_count"]
                days[89 - (last.date() - row["hour"].date()).days] += row["record_count"]
            assert ends == (first, last)
            assert place.history.hours == tuple(hours[at] for at in range(168))
            assert place.history.days == tuple(days[at] for at in range(90))
            assert place.history.before == sum(count for at, count in days.items() if at < 0)
            assert place.history.untimed == sum(row["record_count"] for row in own if row["hour"] is None)
            assert place.history.ahead == place.records - place.history.untimed - days.total()
            seen += place.history.before + place.history.untimed
    assert seen > 0
    words = Page(written(settings)[addresses.group("old")]).words
    assert (
        "1,045 dead letters in all; the first in the hour from 2025-10-04 12:00 UTC , the newest in that from" in words
    )
    assert "6 dead letters by hour, in the 168 hours of the clock until that of the newest." in words
    assert "21 dead letters by day (UTC), in the 90 days until that of the newest; 24 before." in words


def test_time_alone_writes_no_page_of_a_group_or_topic(settings: Settings, tmp_path: Path) -> None:
    with_history(sites.filled(settings))
    first = reading.gather(Warehouse(settings), now=NOW)
    assert addresses.group("old") in report.write(tmp_path, first)
    assert not [path for path in report.write(tmp_path, first) if path.startswith(("groups/", "topics/"))]
    store(settings, "gold.dlq_summary", hour(NOW, 8, **OLD))
    wanted = [addresses.group("old"), addresses.topic("dlq.old"), addresses.topic("dlq.orders")]
    wanted.append(addresses.group(None))  # a mute of its incident is over
    rewritten = report.write(tmp_path, reading.gather(Warehouse(settings), now=NOW + 30 * HOUR))
    assert sorted(path for path in rewritten if path.startswith(("groups/", "topics/"))) == sorted(wanted)
