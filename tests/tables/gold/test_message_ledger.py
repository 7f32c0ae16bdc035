"""gold.message_ledger: the outcome of each message, of captures, of one of each kind, and of injected losses."""

from __future__ import annotations

import base64
import json
from collections import Counter

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from tests.testing.builders import rows
from tests.testing.deliveries import at
from tests.testing.delivery_feed import DATA, LIMITS, Injected, deliveries, ledger, sources


def test_every_record_that_the_broker_dead_lettered_is_found_and_no_other(
    spark: SparkSession, captured_deliveries: Settings
) -> None:
    found = {
        (letter["consumer_group"], *place): letter
        for place, row in ledger(spark, captured_deliveries).items()
        for letter in row["dead_letters"]
        if letter["dlq_topic"] != "dlq.second-hop"
    }

    last = deliveries()
    given_up = {
        key
        for key, (action, count) in last.items()
        if action == "REJECT" or (count >= LIMITS[key[0]] and action != "ACCEPT")
    }
    too_late = found.keys() - given_up
    assert given_up <= found.keys()
    assert len(found) == 1563
    assert {(key[0], *last[key]) for key in too_late} == {("audit-workers", "ACCEPT", 2)}
    assert len(too_late) == 22
    assert {found[key]["disposition"] for key in too_late} == {"MAX_DELIVERY_ATTEMPTS_REACHED"}


def test_all_source_records_are_in_the_ledger_once(spark: SparkSession, captured_deliveries: Settings) -> None:
    found = ledger(spark, captured_deliveries)
    topics = {"orders", "payments", "shipments"}
    places = {(source["topic"], source["partition"], source["offset"]) for source in sources()}

    assert {place for place in found if place[0] in topics} == places
    assert {found[coordinate]["acknowledgement_count"] for coordinate in places} == {1}
    assert {(found[coordinate]["outcome"], bool(found[coordinate]["dead_letters"])) for coordinate in places} == {
        ("ACKNOWLEDGED", False),
        ("DEAD_LETTERED", True),
    }
    traced = next(source for source in sources() if any(header["key"] == "traceparent" for header in source["headers"]))
    value = next(header["value"] for header in traced["headers"] if header["key"] == "traceparent")
    place = traced["topic"], traced["partition"], traced["offset"]
    assert found[place]["trace_id"] == base64.b64decode(value).decode().split("-")[1]


def test_the_root_is_behind_the_second_hop(spark: SparkSession, captured_deliveries: Settings) -> None:
    first_hop = {}
    for text in (DATA / "dlq" / "dlq.orders.jsonl").read_text().splitlines():
        letter = json.loads(text)
        headers = {h["key"]: base64.b64decode(h["value"]).decode() for h in letter["headers"]}
        root = tuple(headers[f"__dlq.errors.{part}"] for part in ("topic", "partition", "offset"))
        first_hop[letter["partition"], letter["offset"]] = root

    hops = {place: row for place, row in ledger(spark, captured_deliveries).items() if place[0] == "dlq.orders"}

    assert len(hops) == 215
    assert {row["hop_count"] for row in hops.values()} == {1}
    assert all(
        (row["root_topic"], str(row["root_partition"]), str(row["root_offset"])) == first_hop[place[1:]]
        for place, row in hops.items()
    )


def test_each_message_has_its_outcome(spark: SparkSession, mixed_deliveries: Settings) -> None:
    found = ledger(spark, mixed_deliveries)

    assert {place[2]: row["outcome"] for place, row in found.items() if place[0] == "orders"} == {
        0: "ACKNOWLEDGED",
        1: "DEAD_LETTERED",
        2: "ABORTED",
        3: "ABORTED",
        4: "ACKNOWLEDGED",  # the transaction of its dead letter was aborted
        5: "ACKNOWLEDGED",
        6: "LOST",
        7: "ACKNOWLEDGED",
        8: "ABORTED",
        10: "ACKNOWLEDGED",
        11: "ACKNOWLEDGED",  # after the end of the landed log
        20: "DEAD_LETTERED",
    }
    twice, dead_twice, aborted = (found["orders", 0, offset] for offset in (0, 1, 2))
    assert (twice["acknowledgement_count"], twice["acknowledged_at"]) == (3, at(1).replace(tzinfo=None))
    assert (dead_twice["dead_lettered_count"], dead_twice["dead_lettered_again_count"]) == (2, 1)
    assert [letter["times"] for letter in dead_twice["dead_letters"]] == [1, 2]
    assert (aborted["transaction_state"], aborted["producer_id"], aborted["dead_lettered_count"]) == ("ABORTED", 7, 1)
    assert [found["orders", 0, offset]["in_log"] for offset in (5, 6, 11)] == [True, False, None]
    assert found["orders", 0, 5]["transaction_state"] is None  # between the offsets of a transaction
    assert not found["orders", 0, 20]["acknowledged"]
    hop = found["dlq.orders", 0, 0]
    assert (hop["outcome"], hop["root_topic"], hop["root_offset"], hop["hop_count"]) == (
        "DEAD_LETTERED",
        "orders",
        1,
        1,
    )
    alone = [row for row in rows(spark, mixed_deliveries, "gold.message_ledger") if row["offset"] is None]
    assert sorted((row["topic"], row["outcome"], row["partition"]) for row in alone if row["outcome"] == "FAILED") == [
        ("bad topic!", "FAILED", None),
        ("orders", "FAILED", None),
    ]
    assert [(row["outcome"], row["partition"]) for row in alone if row["outcome"] == "UNKNOWN"] == [("UNKNOWN", 0)]


def test_all_injected_losses_are_found_and_no_other(spark: SparkSession, injected_losses: Injected) -> None:
    settings, truth = injected_losses
    found = ledger(spark, settings)

    assert len(truth["lost"]) > 300
    assert {place for place, row in found.items() if row["outcome"] == "LOST"} == truth["lost"]
    assert found["thinned", 0, 5]["in_log"] is False
    assert found["unlanded", 0, 150]["in_log"] is None


def test_all_repeated_dead_letters_are_found_and_no_other(spark: SparkSession, injected_losses: Injected) -> None:
    settings, truth = injected_losses
    again = {
        letter["dlq_offset"]
        for row in ledger(spark, settings).values()
        for letter in row["dead_letters"]
        if letter["times"] > 1
    }

    assert len(truth["again"]) > 20
    assert again == truth["again"]


def test_acknowledgements_of_every_case_have_an_outcome(spark: SparkSession, captured_deliveries: Settings) -> None:
    outcomes = Counter(
        row["outcome"]
        for row in rows(spark, captured_deliveries, "gold.message_ledger")
        if row["topic"].split(".")[0] in ("acks", "bad topic!")
    )
    assert outcomes == {"ACKNOWLEDGED": 10, "FAILED": 13, "UNKNOWN": 2}
