"""gold.trust_findings: which rows of its inputs are a finding, how severe it is, and what it says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.settings import Settings
from pipelines.steps import summarise
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import run
from tests.testing.deliveries import store

TABLE, QUARANTINE, SUMMARY = "gold.trust_findings", "quarantine.dlq_records", "gold.dlq_summary"
REFUSALS = "silver.dlq_refusals"
NEWEST = datetime(2026, 11, 21, 12, 40, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = 24 * HOUR
OURS = {"cluster": "default"}


def broken(at: datetime, *codes: str, topic: str = "dlq.orders", landed: datetime | None = None) -> dict[str, Any]:
    return {**OURS, "dlq_topic": topic, "violations": codes, "routed_at": at, "_ingested_at": landed or at}


def accepted(at: datetime, records: int, topic: str = "dlq.orders") -> dict[str, Any]:
    return {**OURS, "dlq_topic": topic, "hour": at.replace(minute=0), "record_count": records}


def findings(spark: SparkSession, settings: Settings) -> list[dict[str, Any]]:
    assert run(spark, settings, REFUSALS, TABLE)[TABLE].status == "passed"
    rows = jvmless.rows(Warehouse(settings), TABLE, OURS)
    return sorted(rows, key=lambda row: (row["kind"], row["topic"] or "", row["name"] or ""))


def test_a_rule_that_more_dead_letters_break_than_usual_is_a_finding(spark: SparkSession, settings: Settings) -> None:
    store(settings, SUMMARY, accepted(NEWEST - 3 * DAY, 990), accepted(NEWEST - HOUR, 90))
    store(settings, QUARANTINE, *(broken(NEWEST - 2 * DAY, "usual") for _ in range(10)))
    store(settings, QUARANTINE, *(broken(NEWEST - index * HOUR, "risen", "usual") for index in range(10)))
    # another topic has the same rule, and no usual share
    store(settings, SUMMARY, accepted(NEWEST, 50, "dlq.new"))
    store(settings, QUARANTINE, *(broken(NEWEST, "risen", topic="dlq.new") for _ in range(50)))
    found = {
        (row["topic"], row["name"]): row for row in findings(spark, settings) if row["kind"] == "QUARANTINE_RISING"
    }
    assert found.keys() == {("dlq.orders", "risen"), ("dlq.orders", "usual")}
    risen = found["dlq.orders", "risen"]
    assert (risen["severity"], risen["amount"]) == ("high", 10)
    assert (risen["since"], risen["last_at"]) == (NEWEST - 9 * HOUR, NEWEST)
    assert risen["evidence"] == (
        "10 of 100 dead letters of the last day with any break the rule risen (10.0 %), before it 0 of 1000 (0.0 %)"
    )
    assert found["dlq.orders", "usual"]["evidence"].endswith("(10.0 %), before it 10 of 1000 (1.0 %)")


def test_a_share_that_is_usual_or_proves_nothing_is_no_finding(spark: SparkSession, settings: Settings) -> None:
    cases = {  # by topic: how many landed before and in the last day, and how many of each broke the rule
        "too few": (1_000, 1_000, 0, 4),
        "too little landed before": (90, 100, 0, 10),
        "too small a share": (1_000, 10_000, 0, 90),
        "not three times the usual share": (1_000, 100, 50, 14),
    }
    for topic, (before, recent, usually, now) in cases.items():
        landed = accepted(NEWEST - 3 * DAY, before - usually, topic), accepted(NEWEST, recent - now, topic)
        store(settings, SUMMARY, *landed)
        refused = [broken(NEWEST - 2 * DAY, "rule", topic=topic)] * usually + [
            broken(NEWEST, "rule", topic=topic)
        ] * now
        store(settings, QUARANTINE, *refused)
    assert {(row["topic"], row["kind"]) for row in findings(spark, settings)} == {
        (topic, "QUARANTINED") for topic in cases
    }


def test_a_time_in_the_future_does_not_move_the_last_day(spark: SparkSession, settings: Settings) -> None:
    store(settings, SUMMARY, accepted(NEWEST - 3 * DAY, 1_000), accepted(NEWEST, 90), accepted(NEWEST + 900 * DAY, 1))
    store(settings, QUARANTINE, *[broken(NEWEST, "rule")] * 9, broken(NEWEST + 900 * DAY, "rule", landed=NEWEST))
    (risen,) = (row for row in findings(spark, settings) if row["kind"] == "QUARANTINE_RISING")
    assert (risen["amount"], risen["last_at"]) == (10, NEWEST)


def test_counts_of_hours_become_one_finding_per_topic(spark: SparkSession, settings: Settings) -> None:
    at = NEWEST.replace(minute=0)
    store(
        settings,
        "gold.reconciliation",
        {**OURS, "hour": at - HOUR, "topic": "orders", "lost_count": 2},
        {**OURS, "hour": at, "topic": "orders", "lost_count": 3, "absent_count": 0},
        {**OURS, "hour": at, "topic": "paid", "dlq_write_failure_count": 2**63 - 1},
        {**OURS, "hour": at + HOUR, "topic": "paid", "dlq_write_failure_count": 2**63 - 1},
    )
    failed, lost = findings(spark, settings)
    assert (lost["kind"], lost["topic"], lost["severity"], lost["amount"]) == ("LOST_MESSAGES", "orders", "critical", 5)
    assert (lost["since"], lost["last_at"], lost["remedy"]) == (at - HOUR, at, "afterlog ask lost_messages")
    assert (failed["kind"], failed["severity"], failed["amount"]) == ("FAILED_DLQ_WRITES", "high", 2**63 - 1)


def test_producers_topologies_and_inferred_dispositions_are_findings(spark: SparkSession, settings: Settings) -> None:
    said = {**OURS, "topic": "orders", "stated_at": NEWEST, "statement_count": 3, "sentence": "It is off."}
    store(
        settings,
        "gold.delivery_guarantees",
        {**said, "client_id": "a", "verdict": "SILENTLY_OFF"},
        {**said, "client_id": "b", "verdict": "DUPLICATES_POSSIBLE"},
        {**said, "client_id": "c", "verdict": "OK"},
    )
    group = {**OURS, "sentence": "It is lost.", "last_seen_at": NEWEST}
    states = ("OK", "DELETED", "LOST", "STALE")
    store(settings, "gold.topology_current", *(group | {"group_id": state, "health": state} for state in states))
    push = {**OURS, "push_count": 7, "first_pushed_at": NEWEST, "last_pushed_at": NEWEST}
    store(
        settings,
        "gold.push_health",
        push | {"group_id": "g", "refused_count": 2},
        push | {"group_id": "h", "refused_count": 0},
    )
    known = {**OURS, "original_topic": "orders", "consumer_group": "g", "first_at": NEWEST, "last_at": NEWEST}
    counted = {"inferred_count": 4, "record_count": 9, "incident_id": "A", "fingerprint": "f"}
    store(settings, "gold.dlq_incidents", known | counted)
    found = {(row["kind"], row["name"]): row for row in findings(spark, settings)}
    assert {key: row["severity"] for key, row in found.items()} == {
        ("SILENTLY_OFF", "a"): "high",
        ("DUPLICATES_POSSIBLE", "b"): "low",
        ("TOPOLOGY_LOST", "LOST"): "high",
        ("TOPOLOGY_STALE", "STALE"): "medium",
        ("REFUSED_PUSHES", "g"): "medium",
        ("INFERRED_DISPOSITIONS", "g"): "low",
    }
    assert found["REFUSED_PUSHES", "g"]["evidence"] == "2 of 7 pushes of the topology were refused"
    assert found["INFERRED_DISPOSITIONS", "g"]["amount"] == 4


def test_a_finding_about_a_topology_lasts_until_its_cause_at_least(spark: SparkSession, settings: Settings) -> None:
    group = {**OURS, "health": "REJECTED", "sentence": "The last push was refused.", "last_attempted_at": NEWEST}
    store(
        settings,
        "gold.topology_current",
        group | {"group_id": "refused after its last heartbeat", "last_seen_at": NEWEST - HOUR},
        group | {"group_id": "refused before its last heartbeat", "last_seen_at": NEWEST + HOUR},
        group | {"group_id": "refused, and never seen"},
    )
    times = {row["name"]: (row["since"], row["last_at"]) for row in findings(spark, settings)}
    assert times == {
        "refused after its last heartbeat": (NEWEST, NEWEST),
        "refused before its last heartbeat": (NEWEST, NEWEST + HOUR),
        "refused, and never seen": (NEWEST, NEWEST),
    }


def test_dead_letters_that_came_after_later_ones_are_a_finding(spark: SparkSession, settings: Settings) -> None:
    at = NEWEST.replace(minute=0)

    def hour(topic: str, place: int, late: int, first: float, last: float | None = None) -> dict[str, Any]:
        """An hour of a topic: how many of its 9 records were late, and when its first and last were accepted."""
        begin = at + place * HOUR
        accepted_at = {"first_accepted_at": at + first * HOUR, "last_accepted_at": at + (last or first) * HOUR}
        routed_at = {"first_routed_at": begin + HOUR / 12, "last_routed_at": begin + HOUR / 2}
        return {**accepted(begin, 9, topic), "late_count": late, **routed_at, **accepted_at}

    store(
        settings,
        SUMMARY,
        *(hour("dlq.history", index, 9, 30) for index in range(4)),  # lands at once
        *(hour("dlq.slow", index, 9, 30 + index) for index in range(4)),  # lands in order
        hour("dlq.late", 0, 2, 0.5, 7),
        hour("dlq.late", 1, 1, 1.5, 4),
        hour("dlq.late", 2, 0, 2.5),
        hour("dlq.alone", 0, 3, 0.5, 9),  # no later ones are known
    )
    (late,) = findings(spark, settings)
    assert (late["kind"], late["topic"], late["severity"], late["amount"]) == ("LATE_DATA", "dlq.late", "low", 3)
    assert (late["since"], late["last_at"]) == (at + HOUR / 12, at + 1.5 * HOUR)
    assert late["evidence"].startswith("3 dead letters were accepted more than an hour late, after later ones")


def test_late_dead_letters_are_counted_from_their_landing(spark: SparkSession, settings: Settings) -> None:
    at = NEWEST.replace(minute=0)

    def letter(offset: int, routed: timedelta, taken: timedelta) -> dict[str, Any]:
        place = {"dlq_topic": "dlq.orders", "dlq_partition": 0, "dlq_offset": offset, "_bronze_id": str(offset)}
        of = {"original_topic": "orders", "original_partition": 0, "original_offset": offset, "payload_copied": True}
        return {**OURS, **place, **of, "routed_at": at + routed, "_ingested_at": at + taken}

    store(
        settings,
        "silver.dlq_records",
        letter(0, timedelta(), HOUR / 60),
        letter(1, HOUR / 2, 2 * HOUR - HOUR / 60),
        letter(2, HOUR / 2, 2 * HOUR),  # more than an hour after its hour, but nothing later was there
        letter(3, 2 * HOUR, 2 * HOUR),
    )
    tables = ("gold.dlq_counts", SUMMARY)
    run(spark, settings, *tables)
    assert findings(spark, settings) == []
    store(settings, "silver.dlq_records", letter(4, HOUR / 2, 3 * HOUR))
    run(spark, settings, *tables)
    (late,) = findings(spark, settings)
    assert (late["kind"], late["amount"], late["since"], late["last_at"]) == ("LATE_DATA", 2, at, at + HOUR / 2)


def test_news_of_a_topic_touches_no_findings_of_others(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    by, touched = summarise.refreshed_by, []

    @contextmanager
    def told(*of_a_refresh: Any) -> Iterator[summarise.Refreshed | None]:
        with by(*of_a_refresh) as made:
            if of_a_refresh[2].table == TABLE:
                assert made is not None
                touched.append(made.replaces and set(made.replaces.values))
            yield made

    monkeypatch.setattr(summarise, "refreshed_by", told)
    store(settings, QUARANTINE, broken(NEWEST, "rule"), broken(NEWEST, "rule", topic="dlq.new"))
    store(settings, "gold.push_health", {**OURS, "group_id": "g", "push_count": 1, "refused_count": 1})
    before = findings(spark, settings)
    store(settings, QUARANTINE, broken(NEWEST, "rule", topic="dlq.new"))
    after = findings(spark, settings)
    store(settings, "gold.push_health", {**OURS, "group_id": "h", "push_count": 1, "refused_count": 1})
    last = findings(spark, settings)
    assert touched == [None, {"dlq.new"}, {None}]
    assert [(row["kind"], row["topic"], row["name"], row["amount"]) for row in last] == [
        ("QUARANTINED", "dlq.new", None, 2),
        ("QUARANTINED", "dlq.orders", None, 1),
        ("REFUSED_PUSHES", None, "g", 1),
        ("REFUSED_PUSHES", None, "h", 1),
    ]
    assert [row["amount"] for row in before] == [1, 1, 1]
    assert after[:2] == last[:2]
