"""A record without a writer's headers is lawful only in a topic of which nothing says who writes it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from expectations import owners
from expectations.bronze.dlq_records import HEADERS
from pipelines.columns.headers import look_like_a_writers
from pipelines.commands import doctor
from pipelines.settings import Dlq, RequiredProfile, Settings
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import AT, land, line, rows, run, run_needed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BRONZE, SILVER = "bronze.dlq_records", "silver.dlq_records"
QUARANTINE, HELD = "quarantine.dlq_records", "held.dlq_records"
FINDINGS = "gold.trust_findings"


def plain(topic: str, *offsets: int) -> list[str]:
    """Records without any header, as Kafka Connect writes them without its context headers."""
    return [line(offset, topic=topic, headers=[]) for offset in offsets]


def judged(spark: SparkSession, settings: Settings) -> dict[tuple[str, int], Any]:
    """Return each record's profile, or the rules that it breaks, by topic and offset."""
    found = {(row["dlq_topic"], row["dlq_offset"]): row["header_profile"] for row in rows(spark, settings, SILVER)}
    for table in (QUARANTINE, HELD):
        found |= {(row["dlq_topic"], row["dlq_offset"]): row["violations"] for row in rows(spark, settings, table)}
    return found


BROKEN = ["header_profile.not_null"]


def test_nothing_known_is_a_state_that_is_counted_and_said(
    spark: SparkSession, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    land(settings, {"a.jsonl": [*plain("dlq-sink-crm", *range(12)), line(1, topic="dlq.orders")]})
    done = run(spark, settings)
    assert done[SILVER].status == "passed"
    found = [row for row in rows(spark, settings, SILVER) if row["dlq_topic"] == "dlq-sink-crm"]
    unknown = {(row["header_profile"], row["original_topic"], row["consumer_group"], row["owner"]) for row in found}
    assert unknown == {("unknown", None, None, "unknown writer on dlq-sink-crm")}
    assert len(found) == 12
    assert [message for message in caplog.messages if "dlq-sink-crm" in message and owners.NAMELESS in message]
    (finding,) = (row for row in rows(spark, settings, FINDINGS) if row["kind"] == "UNKNOWN_WRITER")
    assert (finding["topic"], finding["amount"]) == ("dlq-sink-crm", 12)
    assert "errors.deadletterqueue.context.headers.enable=true" in finding["evidence"]
    checks = [check for check in doctor.diagnose(settings) if check.name == "writers"]
    assert [(check.state, check.finding) for check in checks] == [
        ("warning", "dlq-sink-crm: 12 dead letters name no writer.")
    ]
    (incident,) = (row for row in rows(spark, settings, "gold.dlq_incidents") if row["original_topic"] is None)
    assert (incident["owner"], incident["record_count"]) == ("unknown writer on dlq-sink-crm", 12)


def test_other_records_of_the_topic_say_who_writes_it_now_or_before(spark: SparkSession, settings: Settings) -> None:
    land(settings, {"a.jsonl": [line(1, topic="dlq.a"), *plain("dlq.a", 2), *plain("dlq.b", 1)]})
    run(spark, settings, BRONZE, SILVER)
    assert judged(spark, settings) == {("dlq.a", 1): "kip-1191", ("dlq.a", 2): BROKEN, ("dlq.b", 1): "unknown"}

    # Headers of dlq.b begin, those of dlq.a were switched off; the earlier rows stay what they were.
    land(settings, {"b.jsonl": [*plain("dlq.a", 3), line(2, topic="dlq.b"), *plain("dlq.b", 3)]})
    run(spark, settings, BRONZE, SILVER)
    land(settings, {"c.jsonl": [*plain("dlq.b", 4), *plain("dlq.c", 1)]})
    run(spark, settings, BRONZE, SILVER)
    found = judged(spark, settings)
    assert {place: found[place] for place in found if place[1] > 2} == dict.fromkeys(
        [("dlq.a", 3), ("dlq.b", 3), ("dlq.b", 4)], BROKEN
    )
    assert (found["dlq.b", 1], found["dlq.c", 1]) == ("unknown", "unknown")


def test_settings_say_who_writes_a_topic(spark: SparkSession, settings: Settings) -> None:
    stated = {"name": "errors.deadletterqueue.topic.name", "value": "dlq.shared", "source": "DYNAMIC_GROUP_CONFIG"}
    statement = {"observed_at": AT, "kind": "group", "name": "workers", "state": "present", "settings": [stated]}
    land(settings, {"settings.jsonl": [json.dumps(statement)]}, feed="cluster-settings")
    land(settings, {"a.jsonl": [*plain("dlq.shared", 1), *plain("dlq.required", 1), *plain("dlq.free", 1)]})
    required = Dlq(require=(RequiredProfile(topic="dlq.required", profile="kafka-connect"),))
    ours = settings.model_copy(update={"dlq": required})
    run_needed(spark, ours, "silver.dlq_settings")
    run(spark, ours, BRONZE, SILVER)
    assert judged(spark, ours) == {
        ("dlq.shared", 1): BROKEN,
        ("dlq.required", 1): [*BROKEN, "header_profile.required"],
        ("dlq.free", 1): "unknown",
    }


def test_a_large_batch_is_judged_as_a_small_one(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark makes some candidates of a batch again; what the others say of their topic still counts."""
    monkeypatch.setattr("pipelines.engines.choose.SMALL", 0)
    fine = [line(offset, topic="dlq.a") for offset in range(300)]
    land(settings, {"a.jsonl": [*fine, *plain("dlq.a", 300), *plain("dlq.b", 1)]})
    run(spark, settings, BRONZE, SILVER)
    found = judged(spark, settings)
    assert (found["dlq.a", 300], found["dlq.b", 1], found["dlq.a", 7]) == (BROKEN, "unknown", "kip-1191")


def test_a_session_says_once_that_a_topic_names_no_writer(
    spark: SparkSession, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    for offset in (1, 2):
        land(settings, {f"{offset}.jsonl": plain("dlq-once", offset)})
        run(spark, settings, BRONZE, SILVER)
    assert len([message for message in caplog.messages if "dlq-once" in message]) == 1
    assert Warehouse(settings, spark).read(SILVER).count() == 2


@pytest.mark.parametrize(
    ("names", "waits"),
    [
        (("x-orig-topic", "x-orig-offset"), True),
        (("errorStackTrace",), True),
        (("acme.dlq.reason",), True),
        (("x-error-message",), True),
        (("failureReason",), True),
        (("error-rate", "x-message"), False),
        (("traceparent", "content-type"), False),
        (("topic",), False),
    ],
)
def test_headers_that_look_like_a_writers_wait_for_a_profile(
    names: tuple[str, ...], waits: bool, spark: SparkSession
) -> None:

    given = spark.createDataFrame([([(name, b"1") for name in names],)], f"headers {HEADERS}")
    assert given.select(look_like_a_writers("headers")).collect()[0][0] is waits
