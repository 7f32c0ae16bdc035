"""Dead letters without a time, from before 1970 or stamped ahead: every place tells the same of them, and no more."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.alerts import news
from pipelines.commands import arguments, ask, findings, query, show, trace
from pipelines.commands.incidents import front, listing, story
from pipelines.commands.incidents.reading import Incidents
from pipelines.metrics import families
from pipelines.settings import Settings
from pipelines.site import pages, reading
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.builders import kip_1191, land, line, run, warehouse_of
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
    told = story.one(tables, name, at=at).result
    since = "Since an unknown time, read since 2026-11-21 11:30:00 UTC (60 minutes ago), last read 2026-11-21 11:30:00"
    assert since in told
    assert "count at the moment when they were read" in told
    assert "It came back" not in told
    assert "an hour" not in told
    short = "since an unknown time, read since 2026-11-21 11:30:00 UTC, last read 60 minutes ago"
    assert short in listing.listed(tables, at=at).result
    assert short in front.top(tables, at=at).result
    for said in (
        json.loads(story.one(tables, name, "json", at).result),
        next(row for row in json.loads(front.top(tables, "json", at).result)["incidents"] if row["severity"]),
    ):
        assert said["times_of_reading"] == ["first_at", "last_at"]
        assert (said["state"], said["records_an_hour"]) == ("NEW", None)


def test_alerts_and_pages_say_so_too(odd: Settings) -> None:
    tables = Warehouse(odd)
    alert = next(
        incident.news
        for incident in news.snapshot(tables, NOW).incidents or ()
        if incident.news.key == sites.incident_id(2)
    )
    assert alert.text.endswith("2 records since an unknown time, read since 2026-11-21 11:30 UTC.")
    assert (alert.kind, alert.about["times_of_reading"]) == ("opened", ["first_at", "last_at"])
    found = {page.path: page.text() for page in pages.pages(reading.gather(tables, now=NOW))}
    page = found[f"incidents/{sites.incident_id(2)}.html"]
    assert "<dt>Since</dt><dd>an unknown time, read since <time" in page
    assert "last read <time" in page
    assert "since an unknown time" in found["index.html"]


def test_a_record_with_a_time_keeps_it(odd: Settings) -> None:
    first, _ = Incidents(Warehouse(odd), NOW).known[::-1]
    assert (first.untimed, first.rate, first.began()) == (frozenset(), 2.0, "since 1970-01-01 00:00:00 UTC")


STAMPS = (-1, -5, 0, 1, 9223372036854775807, 4102444800000, 253402300800000, -62135596800001, None)
REFUSED = (1, 4, 6, 7)
"""The offsets whose timestamps cannot be read."""


@pytest.fixture(scope="module")
def landed(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return settings of a warehouse with dead letters of odd times, and one of another error."""
    settings = warehouse_of(empty_warehouse, tmp_path_factory.mktemp("odd"))
    lines = [
        line(offset, topic="dlq.odd", timestamp=stamp, headers=kip_1191("odd", offset=offset, group="g-odd"))
        for offset, stamp in enumerate(STAMPS)
    ]
    other = kip_1191("odd", offset=9, group="g-odd", message="Another error.")
    land(settings, {"odd.jsonl": [*lines, line(9, topic="dlq.odd", timestamp=-1, headers=other)]})
    run(spark, settings)
    return settings


def test_a_page_offers_a_statement_for_exactly_the_dead_letters_of_an_incident(
    spark: SparkSession, landed: Settings
) -> None:
    tables, found = Warehouse(landed, spark), []
    for case in reading.gather(tables).incidents:
        (command,) = (command.text for command in case.commands if command.words == "its dead letters")
        _, _, statement, *given = shlex.split(command)
        values = arguments.parameters_of(given[1::2], statement)
        found.append(sorted(row["dlq_offset"] for row in query.rows_of(tables, statement, values).collect()))
    assert sorted(found) == [[0, 8], [2, 3], [5], [9]]


@pytest.fixture
def skewed(odd: Settings) -> Settings:
    """Return settings of the same warehouse with a dead letter of the same error that is stamped with the year 2100."""
    far = datetime(2100, 1, 1, tzinfo=UTC)
    stamped = {"fingerprint": "d" * 16, "record_count": 1, "source_record_count": 1}
    store(odd, "gold.dlq_incidents", sites.incident(3, first_at=far, last_at=far, **stamped))
    store(odd, "gold.dlq_summary", sites.hour(far, 1, last_accepted_at=READ))
    store(odd, "bronze.dlq_records", {"cluster": "default", "_ingested_at": READ})
    return odd


def asked(settings: Settings, question: str, now: datetime = NOW) -> list[dict[str, Any]]:
    found = ask.rows_without_jvm(Warehouse(settings), ask.find(question).text, {"now": now}).objects()
    return [json.loads(row) for row in found]


def test_every_place_counts_the_same_dead_letters(skewed: Settings) -> None:
    tables = Warehouse(skewed)
    known = Incidents(tables, NOW).known
    content = reading.gather(tables, now=NOW)
    (group,) = content.groups
    assert group.history is not None
    assert (group.history.untimed, group.history.ahead, group.history.last_hour.year) == (2, 1, 1970)
    letters = next(family for family in families.families(tables, NOW) if family.name == "afterlog_dead_letters")
    page = next(page.text() for page in pages.pages(content) if page.path.startswith("groups/"))
    assert "2 have no time; 1 is stamped ahead" in page
    counts = [sum(incident.row["record_count"] for incident in known), group.records]
    counts += [sum(topic.records for topic in content.topics if topic.name == "orders")]
    counts += [int(sum(sample.value for sample in letters.samples))]
    counts += [sum(row["record_count"] for row in asked(skewed, "errors_since_when"))]
    assert counts == [5] * len(counts)


def test_what_was_not_read_yet_is_not_counted_as_of_a_time_before(skewed: Settings) -> None:
    store(skewed, "bronze.dlq_records", {"cluster": "default", "_ingested_at": NOW + HOUR})
    store(skewed, "gold.dlq_summary", sites.hour(NOW + HOUR, 7, last_accepted_at=NOW + HOUR))
    (group,) = reading.gather(Warehouse(skewed), now=NOW).groups
    assert group.records == 4
    assert sum(row["record_count"] for row in asked(skewed, "errors_since_when")) == 4


@pytest.mark.parametrize("question", ["incidents_of_the_day", "poison_pill_or_systemic"])
def test_questions_about_the_day_tell_the_incidents_that_commands_tell(skewed: Settings, question: str) -> None:
    store(skewed, "gold.incident_suspects", {"cluster": "default", "incident_id": "none", "rank": 1})
    store(skewed, "gold.blast_radius", {"cluster": "default", "incident_id": "none", "place": 1})
    listed = listing.listed(Warehouse(skewed), "json", since="24h", at=NOW.isoformat()).result.splitlines()
    names = {json.loads(line)["incident_id"] for line in listed}
    found = asked(skewed, question)
    assert {row["incident_id"] for row in found} == names == {sites.incident_id(2), sites.incident_id(3)}
    assert not any(row["is_as_known_now"] for row in found)


def test_incidents_that_are_stamped_ahead_come_after_the_others(skewed: Settings) -> None:
    tables, at = Warehouse(skewed), NOW.isoformat()
    store(skewed, "gold.dlq_incidents", sites.incident(4, severity="high", last_at=NOW - 20 * HOUR))
    ids = [sites.incident_id(number) for number in (2, 4, 1, 3)]  # one that goes on, two quiet ones, one ahead
    assert [incident.row["incident_id"] for incident in Incidents(tables, NOW).known] == ids
    assert [incident.incident_id for incident in reading.gather(tables, now=NOW).open] == ids
    text = front.top(tables, at=at).result
    parts = ["Open incidents", ids[0], "Quiet", ids[1], ids[2], "stamped ahead of now", ids[3]]
    parts.append(f"Next: afterlog incident {ids[0]}")
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)
    assert "check the clock of orders-workers" in story.one(tables, ids[3], at=at).result


def test_what_finds_nothing_hints_at_lines_that_cannot_be_read(settings: Settings) -> None:
    Path(settings.warehouse).mkdir()
    headers = kip_1191("odd", offset=4, group="g-odd")
    unread = line(4, topic="dlq.odd", timestamp=2**63 - 1, headers=headers)
    rows = [unread, line(6, topic="dlq.odd", timestamp=-5, headers=headers), line(6, topic="dlq.other"), "[", "[1]"]
    ids = {"_source": "a.jsonl", "_run_id": "r", "error": "no time", "violations": ["error.readable"]}
    named = ({**ids, "_bronze_id": str(number), "raw": raw.encode()} for number, raw in enumerate(rows))
    store(settings, "quarantine.dlq_records", *({"cluster": "default", "_ingested_at": READ, **row} for row in named))
    store(settings, "silver.dlq_records", sites.letter())
    for table in ("gold.message_ledger", "silver.dead_letters", "silver.acknowledgements", "silver.transactions"):
        store(settings, table)
    for table in ("silver.log_ranges", "silver.dlq_write_failures", "silver.topic_policies", "silver.producers"):
        store(settings, table)
    tables, said = Warehouse(settings), "in quarantine name topic '{}' and cannot be read"
    assert f"2 lines {said.format('dlq.odd')}" in show.answer(tables, "dlq.odd:0:6").result
    assert f"2 lines {said.format('odd')}" in trace.answer(tables, "odd:0:4").result
    assert "quarantine" not in show.answer(tables, "dlq.orders:0:9").result

    missing = {"cluster": "default", "kind": "MISSING_DLQ_OFFSETS", "severity": "high", "amount": 2, "remedy": "r"}
    for topic in ("dlq.odd", "dlq.orders"):
        store(settings, "gold.trust_findings", {**missing, "topic": topic, "evidence": "never landed: 2"})
    evidence = {row["topic"]: row["evidence"] for row in findings.findings_of(tables, ())}
    told = "; 2 lines in quarantine name topic 'dlq.odd', and these offsets may be theirs, as they cannot be read"
    assert evidence == {"dlq.odd": f"never landed: 2{told}", "dlq.orders": "never landed: 2"}


def test_one_old_record_tells_nothing_of_the_week_before(odd: Settings) -> None:
    store(odd, "gold.dlq_incidents", sites.incident(4))
    store(odd, "gold.dlq_summary", sites.hour(NOW - HOUR, 3))
    tables, week = Warehouse(odd), timedelta(weeks=1)

    def told() -> tuple[int | None, float | None]:
        known = Incidents(tables, NOW)
        return reading.gather(tables, now=NOW).timeline.hour_before, known.usual_rate(known.of(sites.incident_id(4)))

    assert told() == (None, None)
    store(odd, "gold.dlq_summary", sites.hour(NOW - 2 * week, 1))
    assert told() == (0, 0.0)
