"""One list of findings: what they are about in words, what is urgent, and mistakes in settings among them."""

from __future__ import annotations

import json
import shlex
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.commands import findings
from pipelines.commands.incidents import front, listing
from pipelines.metrics.families import families
from pipelines.run import newest
from pipelines.settings import Settings, load
from pipelines.site import reading
from pipelines.steps.held import Held
from pipelines.warehouse import progress
from pipelines.warehouse.progress import Progress
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.deliveries import store
from tests.testing.sites import HOSTILE, HOUR, NOW

FINDING = {"cluster": "default", "severity": "high", "since": NOW - HOUR, "amount": 1, "evidence": "e", "remedy": "r"}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    for place in (settings.warehouse, settings.landing):
        Path(place).mkdir(exist_ok=True)
    return settings


def told(settings: Settings) -> list[str]:
    return [findings.told_of(finding) for finding in findings.findings_of(Warehouse(settings), [], NOW)]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"kind": "LOST_MESSAGES", "topic": "checkout", "amount": 2}, "checkout: 2 lost messages"),
        ({"kind": "QUARANTINED", "topic": "dlq.a"}, "dlq.a: 1 quarantined dead letter"),
        ({"kind": "WOULD_FAIL", "topic": "a", "name": "writer"}, "a writer: would fail"),
        ({"kind": "ABSENT_MESSAGES"}, "unknown topic: 1 absent message"),
        ({"kind": "X", "topic": HOSTILE[3]}, "evil\\u202etxt.exe\\u2066: x"),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_a_finding_names_its_subject_first(row: dict[str, Any], words: str, settings: Settings) -> None:
    store(settings, "gold.trust_findings", FINDING | row)
    assert told(settings) == [words]


@pytest.mark.parametrize(
    ("remedy", "age", "command"),
    [
        ("afterlog ask pushes_refused", 40 * HOUR, "afterlog ask pushes_refused --param now=2026-11-19T20:31:00.000Z"),
        ("afterlog ask pushes_refused", 2 * HOUR, "afterlog ask pushes_refused"),
        ("afterlog ask lost_messages", 40 * HOUR, "afterlog ask lost_messages"),  # of all time
        ("afterlog run", 40 * HOUR, "afterlog run"),
        ("afterlog ask pushes_refused", None, "afterlog ask pushes_refused"),
    ],
)
def test_a_question_about_a_day_is_asked_of_the_day_of_the_finding(
    remedy: str, age: timedelta | None, command: str, settings: Settings
) -> None:
    row = FINDING | {"kind": "REFUSED_PUSHES", "remedy": remedy, "since": None}
    store(settings, "gold.trust_findings", row | {"last_at": None if age is None else NOW - age})
    (found,) = findings.findings_of(Warehouse(settings), [], NOW)
    assert found["remedy"] == command


def test_the_remedy_of_inferred_dispositions_lists_the_incidents_that_they_are_counted_over(settings: Settings) -> None:
    counts = {"record_count": 5, "inferred_count": 5, "consumer_group": "it's"}
    old = NOW - 90 * HOUR
    store(settings, "gold.dlq_incidents", *(sites.incident(at, **counts, last_at=old - at * HOUR) for at in (0, 30)))
    store(settings, "gold.dlq_incidents", sites.incident(99, record_count=7))
    told = {"kind": "INFERRED_DISPOSITIONS", "topic": "orders", "name": "it's", "amount": 10, "last_at": old}
    store(settings, "gold.trust_findings", FINDING | told | {"remedy": "afterlog ask rejected_or_retried_to_death"})
    (found,) = findings.findings_of(Warehouse(settings), [], NOW)
    program, command, *options = shlex.split(found["remedy"])
    assert (program, command, options[::2]) == ("afterlog", "incidents", ["--topic", "--group"])
    lines = listing.listed(Warehouse(settings), "json", topic=options[1], group=options[3]).result.splitlines()
    assert sum(json.loads(line)["record_count"] for line in lines) == found["amount"]


def test_lines_without_a_topic_are_told_by_their_files(settings: Settings) -> None:
    store(settings, "gold.trust_findings", FINDING | {"kind": "QUARANTINED"})
    refused = [sites.letter(index, dlq_topic=None, _source=f"{name}.jsonl") for index, name in enumerate("abcdd")]
    store(settings, "quarantine.dlq_records", *refused, sites.letter(9, _source="of-a-topic.jsonl"))
    assert told(settings) == ["a.jsonl, b.jsonl, c.jsonl and 1 more (no topic): 1 quarantined dead letter"]


def test_a_held_file_is_told_by_its_name(settings: Settings) -> None:
    held = {"file:orders.jsonl": Held("2026-11-21T02:00:00+00:00", "It broke.", 1, "")}
    progress.save(Warehouse(settings), "silver.dlq_records", Progress(held=held))
    assert told(settings) == ["orders.jsonl: 1 held row"]


def test_what_was_found_later_is_not_told_of_an_earlier_moment(settings: Settings) -> None:
    store(settings, "gold.trust_findings", FINDING | {"kind": "X"}, FINDING | {"kind": "Y", "since": NOW + HOUR})
    assert told(settings) == ["unknown topic: x"]


def test_top_page_metrics_and_alerts_count_the_same_findings(settings: Settings) -> None:
    severities = ("critical", "high", "high", "medium", "low")
    rows = [FINDING | {"kind": f"K{number}", "severity": item} for number, item in enumerate(severities)]
    store(settings, "gold.trust_findings", *rows)
    store(settings, "gold.dlq_incidents", sites.incident(0))
    mistake = {"cluster": "default", "kind": "DLQ_MISSING", "group_id": "g", "dlq_topic": "d", "severity": "critical"}
    told_then = {"since": NOW - HOUR, "last_seen_at": NOW - HOUR, "evidence": "It is gone.", "remedy": "r"}
    store(settings, "gold.dlq_misconfigurations", mistake | told_then)
    page = reading.gather(Warehouse(settings), now=NOW)
    assert len(page.findings) == 6
    assert "4 urgent findings" in page.light.sentence
    assert "4 findings are urgent." in page.light.reasons
    text = front.top(Warehouse(settings), at=NOW.isoformat()).result
    assert "4 urgent findings" in text.splitlines()[0]
    assert "Findings: 6, of which 4 are urgent; 1 of them, of settings, stand below" in text
    (gauge,) = [family for family in families(Warehouse(settings), NOW) if family.name == "afterlog_findings"]
    assert sum(sample.value for sample in gauge.samples) == 6


MINUTE = timedelta(minutes=1)


def steady(settings: Settings) -> None:
    """Store dead letters every five minutes until 32 hours ago."""
    times = [NOW - 32 * HOUR - 5 * index * MINUTE for index in range(50)]
    rows = ({"cluster": "default", "timestamp": at, "_ingested_at": at} for at in times)
    store(settings, "bronze.dlq_records", *rows)


def silences(settings: Settings) -> list[tuple[str, str]]:
    tables = Warehouse(settings)
    feeds = [(feed, newest.silence(tables, feed)) for feed in newest.of_feeds(tables, NOW) if feed.used]
    return [(row["kind"], row["severity"]) for row in findings.findings_of(tables, feeds, NOW)]


def test_nobody_is_called_for_files_of_dead_letters_that_pause(settings: Settings) -> None:
    steady(settings)
    assert silences(settings) == [("SILENT_FEED", "medium")]
    place = {"warehouse": settings.warehouse, "landing": settings.landing}
    assert silences(load(**place, silence={"after_hours": {"dlq": 24}})) == [("SILENT_FEED", "high")]


def test_a_dlq_that_is_read_to_its_end_is_quiet_and_one_that_is_not_read_is_silent(settings: Settings) -> None:
    steady(settings)
    kafka = {"dlq": {"source": "kafka"}, "kafka": {"bootstrap_servers": "127.0.0.1:1"}}
    read = load(warehouse=settings.warehouse, landing=settings.landing, **kafka)
    progress.note_read(Warehouse(read), "bronze.dlq_records", ["dlq.orders"], NOW - 20 * MINUTE)
    assert silences(read) == []
    progress.note_read(Warehouse(read), "bronze.dlq_records", ["dlq.orders"], NOW - 20 * HOUR)
    assert silences(read) == [("SILENT_FEED", "high")]
