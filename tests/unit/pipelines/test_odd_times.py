"""Dead letters without a time, from before 1970 or stamped ahead: every place tells the same of them, and no more."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipelines.alerts import news
from pipelines.commands import incidents
from pipelines.settings import Settings
from pipelines.site import pages, reading
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.deliveries import store
from tests.testing.sites import NOW

HOUR = timedelta(hours=1)
READ = NOW - HOUR
UNTIMED = {"routed_at": None, "dlq_timestamp": None, "_ingested_at": READ}
HOURLESS = {"hour": None, "first_routed_at": None, "last_routed_at": None}
"""What a row of gold.dlq_summary says of records without a time."""


@pytest.fixture
def odd(settings: Settings) -> Settings:
    """Return settings of a warehouse with two incidents: of records without a time, and of the same error in 1970."""
    Path(settings.warehouse).mkdir()
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    error = {"fingerprint": "d" * 16, "record_count": 2, "source_record_count": 2}
    old = sites.incident(1, first_at=epoch, last_at=epoch, **error)
    untimed = sites.incident(2, first_at=READ, last_at=READ, predecessor_id=old["incident_id"], **error)
    store(settings, "gold.dlq_incidents", old, untimed)
    accepted = {"first_accepted_at": READ, "last_accepted_at": READ}
    store(settings, "gold.dlq_summary", sites.hour(epoch, 2), sites.hour(NOW, 2) | HOURLESS | accepted)
    store(settings, "silver.dlq_records", *(sites.letter(offset, **UNTIMED) for offset in (5, 6)))
    return settings


def test_an_incident_of_records_without_a_time_says_when_they_were_read(odd: Settings) -> None:
    tables, name, at = Warehouse(odd), sites.incident_id(2), NOW.isoformat()
    told = incidents.one(tables, name, at=at).result
    since = "Since an unknown time, read since 2026-11-21 11:30:00 UTC (60 minutes ago), last read 2026-11-21 11:30:00"
    assert since in told
    assert "count at the moment when they were read" in told
    assert "It came back" not in told
    assert "an hour" not in told
    short = "since an unknown time, read since 2026-11-21 11:30:00 UTC, last read 60 minutes ago"
    assert short in incidents.listed(tables, at=at).result
    assert short in incidents.top(tables, at=at).result
    for said in (
        json.loads(incidents.one(tables, name, "json", at).result),
        next(one for one in json.loads(incidents.top(tables, "json", at).result)["incidents"] if one["severity"]),
    ):
        assert said["times_of_reading"] == ["first_at", "last_at"]
        assert (said["state"], said["records_an_hour"]) == ("NEW", None)


def test_alerts_and_pages_say_so_too(odd: Settings) -> None:
    tables = Warehouse(odd)
    alert = next(one.news for one in news.snapshot(tables, NOW).incidents or () if one.news.key == sites.incident_id(2))
    assert alert.text.endswith("2 records since an unknown time, read since 2026-11-21 11:30 UTC.")
    assert (alert.kind, alert.about["times_of_reading"]) == ("opened", ["first_at", "last_at"])
    found = {page.path: page.text() for page in pages.pages(reading.gather(tables, now=NOW))}
    page = found[f"incidents/{sites.incident_id(2)}.html"]
    assert "<dt>Since</dt><dd>an unknown time, read since <time" in page
    assert "last read <time" in page
    assert "since an unknown time" in found["index.html"]


def test_a_record_with_a_time_keeps_it(odd: Settings) -> None:
    first, _ = incidents.Incidents(Warehouse(odd), NOW).known[::-1]
    assert (first.untimed, first.rate, first.began()) == (frozenset(), 2.0, "since 1970-01-01 00:00:00 UTC")
