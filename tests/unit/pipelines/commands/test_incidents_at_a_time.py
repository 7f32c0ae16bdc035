"""Incidents at another time: what was known until then."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.commands.incidents import acting, front, listing, story
from pipelines.settings import Settings
from pipelines.warehouse import progress
from pipelines.warehouse.progress import Held, Progress
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.deliveries import store

LAST = datetime(2026, 11, 21, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)


def minutes(*counts: tuple[float, int, int]) -> list[dict[str, int]]:
    """Return minutes of silver.dlq_errors: each minutes after `LAST`, its length in seconds, and its records."""
    found = []
    for after, seconds, count in counts:
        first = sites.micros(LAST) + int(after * 60_000_000)
        found.append(
            {"minute": first, "first_at": first, "last_at": first + seconds * 1_000_000, "record_count": count}
        )
    return found


@pytest.fixture
def went_on(settings: Settings) -> Settings:
    """Return settings of a warehouse with an incident of 60 records, of which 7 are from until 02:10."""
    Path(settings.warehouse).mkdir()
    shown = {"record_count": 60, "first_at": LAST, "last_at": LAST + 2 * HOUR, "pause_seconds": 1800}
    store(settings, "gold.dlq_incidents", sites.incident(1, **shown), sites.incident(2, last_at=LAST + HOUR / 60))
    of = {"cluster": "default", "fingerprint": f"{1:016x}"}
    store(
        settings,
        "silver.dlq_errors",
        {**of, "source_slice": "a", "minutes": minutes((-90, 1, 9), (0, 30, 4))},
        {**of, "source_slice": "b", "minutes": minutes((9, 30, 2), (9.5, 50, 40), (120, 0, 14))},
        {**of, "source_slice": "c", "fingerprint": "another", "minutes": minutes((1, 1, 100))},
    )
    letters = [{"dlq_offset": at, "routed_at": LAST + at * HOUR} for at in (0, 1)]
    store(settings, "silver.dlq_records", *(sites.letter(**letter) for letter in letters))
    store(settings, "bronze.dlq_records", {"cluster": "default", "timestamp": LAST, "_ingested_at": LAST + 9 * HOUR})
    suspect = {"cluster": "default", "incident_id": sites.incident_id(1), "kind": "new_group", "score": 0.5}
    times = ((1, "early", LAST), (2, "late", LAST + HOUR / 2))
    for rank, name, at in times:
        cause = {"rank": rank, "name": name, "changed_at": at, "sentence": f"{name} came"}
        store(settings, "gold.incident_suspects", suspect | cause)
    return settings


def test_an_incident_at_a_time_tells_what_had_come_until_then(went_on: Settings) -> None:
    """Of the minute that the time divides only the first record is known to have come."""
    tables = Warehouse(went_on)
    name, at = sites.incident_id(1), (LAST + HOUR / 6).isoformat()
    cause = json.loads(story.one(tables, name, "json", at).result)
    assert (cause["record_count"], cause["last_at"]) == (7, "2026-11-21T02:09:30.000Z")
    assert [event["record_count"] for event in cause["timeline"]] == [7]
    assert (cause["records_an_hour"], cause["state"], cause["is_quiet"]) == (7, "NEW", False)
    assert {"verdict", "severity", "sentence", "source_record_count"} <= {*cause["as_known_now"]}
    assert not {"record_count", "last_at", "timeline"} & {*cause["as_known_now"]}
    assert [suspect["name"] for suspect in cause["suspects"]] == ["early"]
    text = story.one(tables, name, at=at).result
    for words in (
        "  As known now: Group orders-workers could not process 1 record of orders, 12 times.",
        "  7 records until 2026-11-21 02:10:00 UTC; as known now 60, the last at 2026-11-21 04:00:00 UTC.",
        "Evidence, as known now",
        "Where, as known now",
    ):
        assert words in text.splitlines()
    assert ", last 2026-11-21 02:09:30 UTC (30 seconds ago)" in text
    assert "late came" not in text
    later = json.loads(story.one(tables, name, "json", (LAST + 3 * HOUR).isoformat()).result)
    assert (later["record_count"], later["as_known_now"], len(later["suspects"])) == (60, [], 2)
    assert "as known now" not in story.one(tables, name, at=(LAST + 3 * HOUR).isoformat()).result


def test_an_incident_says_whether_deployments_are_known_at_all_if_nothing_changed(went_on: Settings) -> None:
    """A deployment that came after the time that is asked about tells nothing of that time."""
    tables = Warehouse(went_on)
    begin = "  Nothing known changed. Afterlog sees topologies, producers' settings, brokers'"
    of_none, at = sites.incident_id(2), (LAST + HOUR / 2).isoformat()
    unknown = f"{begin} starts and deployments that land in changes/, where none has landed."
    assert unknown in story.one(tables, of_none).result.splitlines()
    store(went_on, "silver.changes", {"cluster": "another", "changed_at": LAST})
    store(went_on, "silver.changes", {"cluster": "default", "changed_at": LAST + HOUR})
    assert unknown in story.one(tables, of_none, at=at).result.splitlines()
    assert f"{begin} starts and deployments." in story.one(tables, of_none).result.splitlines()
    assert "Nothing known changed" not in story.one(tables, sites.incident_id(1)).result


def test_lists_at_a_time_count_until_then_and_say_what_is_as_known_now(went_on: Settings) -> None:
    tables, at = Warehouse(went_on), (LAST + HOUR / 6).isoformat()
    listed = listing.listed(tables, at=at)
    assert "7 records, 7 an hour" in listed.result
    words = "1 incident had dead letters after 2026-11-21 02:10:00 UTC: verdicts and severities are as known now."
    assert listed.remarks == (words,)
    assert words in front.top(tables, at=at).result.splitlines()
    assert listing.listed(tables, at=(LAST + 3 * HOUR).isoformat()).remarks == ()
    assert "As of" not in front.top(tables).result
    shutil.rmtree(Path(went_on.warehouse) / "silver" / "dlq_errors")
    (remark,) = listing.listed(tables, at=at).remarks
    assert remark.endswith("as known now; so are times and counts of 1, which no table tells by minute.")
    text = story.one(tables, sites.incident_id(1), at=at).result
    assert "No table tells how many records until 2026-11-21 02:10:00 UTC; as known now 60" in text
    assert "check the clock" not in text
    facts = json.loads(story.one(tables, sites.incident_id(1), "json", at).result)
    assert {"record_count", "last_at"} <= {*facts["as_known_now"]}


def test_notes_and_topologies_from_after_a_time_are_not_told(went_on: Settings) -> None:
    tables, name = Warehouse(went_on), sites.incident_id(1)
    acting.acted(tables, name, note="ticket 7")
    topology = {"cluster": "default", "group_id": "shop", "topology_hash": "h"}
    store(went_on, "gold.topology_revisions", topology | {"revision": 1, "accepted_at": LAST + HOUR})
    place = {"part": "subtopology", "part_place": 0, "subtopology_id": "0", "occurrence": 1}
    store(
        went_on, "silver.topology_nodes", topology | place | {"node": "in", "node_type": 1, "source_topics": ["orders"]}
    )
    before = story.one(tables, name, at=(LAST + HOUR / 6).isoformat()).result
    assert not {"ticket 7", "shop"} & {*before.split()}
    assert "No topology that was known then read orders." in before
    now = story.one(tables, name).result
    assert "ticket 7" in now
    assert "  orders is read by shop sub-topology 0 (revision 1, accepted later)" in now.splitlines()
    assert "There may be more: the first known topology of shop came later." in now


def test_a_time_of_another_day_has_its_date() -> None:
    assert front.clock(LAST, LAST + 21 * HOUR) == "02:00 UTC"
    assert front.clock(LAST, LAST + 22 * HOUR) == "2026-11-21 02:00 UTC"


def test_top_as_of_another_time_tells_the_findings_of_that_time(settings: Settings) -> None:
    Path(settings.warehouse).mkdir()
    store(settings, "gold.dlq_incidents", sites.incident(0))
    finding = {"cluster": "default", "severity": "critical", "amount": 3, "evidence": "e", "remedy": "afterlog sql"}
    for kind, since in (("OLD", LAST), ("NEW", LAST + 2 * HOUR), ("ALWAYS", None)):
        store(settings, "gold.trust_findings", finding | {"kind": kind, "topic": "orders", "since": since})
    held = Held((LAST + 2 * HOUR).isoformat(), "It broke.", 20, "")
    progress.save(Warehouse(settings), "silver.dlq_records", Progress(held={"dlq.orders": held}))

    def told(at: datetime) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(front.top(Warehouse(settings), "json", at.isoformat()).result)
        return {finding["kind"]: finding["since"] for finding in found["findings"]}

    assert told(LAST + HOUR) == {"OLD": "2026-11-21T02:00:00.000Z", "ALWAYS": None}
    assert told(LAST + 3 * HOUR) == {
        "OLD": "2026-11-21T02:00:00.000Z",
        "ALWAYS": None,
        "NEW": "2026-11-21T04:00:00.000Z",
        "HELD": "2026-11-21T04:00:00.000Z",
    }
    assert "2 urgent findings" in front.top(Warehouse(settings), at=(LAST + HOUR).isoformat()).result
