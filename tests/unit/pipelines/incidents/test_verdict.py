"""Verdicts: which figure decides, and that the sentences name it."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.incidents.severity import severity
from pipelines.incidents.verdict import Topic, judge, percent


def episode(**values: Any) -> dict[str, Any]:
    """Return an episode of 100 source records with 100 keys on each tenth offset of one partition of four."""
    places = [
        {
            "original_partition": number,
            "record_count": 25,
            "source_record_count": 25,
            "first_offset": 0,
            "last_offset": 9999,
        }
        for number in range(4)
    ]
    return {
        "fingerprint": "f",
        "consumer_group": "g",
        "original_topic": "orders",
        "disposition": None,
        "record_count": 100,
        "source_record_count": 100,
        "first_at": 0,
        "last_at": 3600 * 10**6,
        "partitions": places,
        "top_records": [{"original_partition": 1, "original_offset": 58, "record_count": 12}],
        "key_count": 100,
        "is_key_count_exact": False,
        "keyed_count": 100,
        "top_keys": [{"value": number, "record_count": 1} for number in range(8)],
        "attributes": [],
        "dense_count": 0,
        "scattered_count": 0,
        "scattered_span": 0,
        "step_of_two_count": 0,
        "step_of_three_count": 0,
        "without_payload_count": 0,
        **values,
    }


def one_partition(number: int) -> list[dict[str, Any]]:
    return [
        {
            "original_partition": number,
            "record_count": 100,
            "source_record_count": 100,
            "first_offset": 0,
            "last_offset": 9999,
        }
    ]


HEADER = [{"kind": "header", "name": "source", "value": 1, "record_count": 98}]
OTHERS = episode(
    fingerprint="other", attributes=[{"kind": "header", "name": "source", "value": 2, "record_count": 100}]
)
SAME = episode(fingerprint="other", attributes=[{"kind": "header", "name": "source", "value": 1, "record_count": 100}])
WITHOUT = episode(fingerprint="other")
KEYS = [{"value": 1, "record_count": 96}]
DENSE = {"dense_count": 100, "scattered_count": 100, "scattered_span": 850}


@pytest.mark.parametrize(
    ("values", "others", "verdict", "words"),
    [
        ({"record_count": 12, "source_record_count": 1}, [], "POISON_PILL", "orders-1@58"),
        ({"record_count": 40, "source_record_count": 10}, [], "POISON_PILL", "neighbours went through"),
        ({"top_keys": KEYS, "key_count": 5}, [], "KEY_LOCAL", "96 %"),
        ({"partitions": one_partition(3)}, [], "PARTITION_LOCAL", "partition 3"),
        ({"partitions": one_partition(0)}, [WITHOUT], "PARTITION_LOCAL", "partition 0"),
        ({"partitions": one_partition(0)}, [], "UNDETERMINED", "no partition"),
        ({"attributes": HEADER}, [OTHERS], "PRODUCER_LOCAL", "header source"),
        ({"attributes": HEADER}, [SAME], "UNDETERMINED", "no partition"),
        ({"attributes": HEADER}, [WITHOUT], "UNDETERMINED", "no partition"),
        ({"attributes": HEADER, **DENSE}, [OTHERS], "SYSTEMIC", "94 %"),
        (DENSE, [], "SYSTEMIC", "94 %"),
        ({"step_of_two_count": 90}, [], "SYSTEMIC", "100 %"),
        ({"disposition": "CLIENT_REJECTED"}, [], "REJECTION", "rejected"),
        ({"disposition": "CIRCUIT_BREAKER_ARCHIVED", **DENSE}, [], "FLOOD", "circuit breaker"),
        ({}, [], "UNDETERMINED", "no partition"),
    ],
)
def test_a_figure_decides(values: dict[str, Any], others: list[Any], verdict: str, words: str) -> None:
    one = episode(**values)
    judged = judge(one, Topic.of([one, *others]))
    assert (judged.verdict, words in judged.sentence) == (verdict, True), judged.sentence
    assert judged.would_change.endswith(".")


def test_a_verdict_names_no_value_of_a_header() -> None:
    one = episode(attributes=HEADER)
    assert "source" in judge(one, Topic.of([one, OTHERS])).sentence
    assert judge(one, Topic.of([one, OTHERS])).evidence.attribute_share_elsewhere == 0


@pytest.mark.parametrize(
    ("values", "level"),
    [
        ({"record_count": 1, "source_record_count": 1}, "low"),
        ({}, "medium"),
        ({"partitions": one_partition(3)}, "high"),
        ({"record_count": 5000, **DENSE}, "critical"),
    ],
)
def test_a_severity_has_reasons(values: dict[str, Any], level: str) -> None:
    one = episode(**values)
    found, reasons = severity(one, judge(one, Topic.of([one])))
    assert (found, bool(reasons)) == (level, True)


def test_a_share_is_never_rounded_to_all_or_nothing() -> None:
    assert [percent(share) for share in (0, 0.001, 0.934, 0.999, 1)] == [
        "0 %",
        "less than 1 %",
        "93 %",
        "more than 99 %",
        "100 %",
    ]
