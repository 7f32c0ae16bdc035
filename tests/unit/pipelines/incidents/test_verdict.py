"""Verdicts: which figure decides, and that the sentences name it."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from pipelines.incidents.severity import severity
from pipelines.incidents.verdict import IS_FEW, Topic, is_few, judge, percent
from pipelines.steps.refresh import select_of


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


def few(last_offset: int) -> list[dict[str, Any]]:
    return [one_partition(0)[0] | {"record_count": 4, "source_record_count": 4, "last_offset": last_offset}]


FEW = {"record_count": 4, "source_record_count": 4}
UNPLACED: dict[str, Any] = {"record_count": 1, "source_record_count": 1, "partitions": [], "top_records": []}
HEADER = [{"kind": "header", "name": "source", "value": 1, "record_count": 98}]
OTHERS = episode(
    fingerprint="other", attributes=[{"kind": "header", "name": "source", "value": 2, "record_count": 100}]
)
SAME = episode(fingerprint="other", attributes=[{"kind": "header", "name": "source", "value": 1, "record_count": 100}])
WITHOUT = episode(fingerprint="other")
KEYS = [{"value": 1, "record_count": 96}]
DENSE = {"dense_count": 100, "scattered_count": 100, "scattered_span": 850}


def messages(count: int, **attributes: int) -> dict[str, Any]:
    """Return what acknowledgements tell: how many messages have ``<kind>_<name>``, whose value is 1."""
    common = [
        {"negative": -number, "kind": name.partition("_")[0], "name": name.partition("_")[2], "value": 1}
        for name, number in attributes.items()
    ]
    return {"message_count": count, "named_count": count, "headed_count": count, "attributes": common}


TOLD = messages(100, client_shop=97, header_source=40)
FEW_OF_ALL = messages(200, client_shop=50, header_source=150)
OTHER_SOURCE = messages(200)
OTHER_SOURCE["attributes"] = [{"negative": -200, "kind": "header", "name": "source", "value": 2}]


@pytest.mark.parametrize(
    ("values", "verdict", "words"),
    [
        pytest.param(
            {"delivered": FEW_OF_ALL},
            "PRODUCER_LOCAL",
            "at least 97 % of the source records were produced by client shop",
            id="client",
        ),
        pytest.param({"delivered": messages(200, client_shop=150)}, "UNDETERMINED", "", id="common client"),
        pytest.param({"delivered": messages(19, client_shop=1)}, "UNDETERMINED", "", id="few delivered"),
        pytest.param({"delivered": None}, "UNDETERMINED", "", id="nothing delivered"),
        pytest.param(
            {"delivered": FEW_OF_ALL, "told": messages(80, client_shop=80)}, "UNDETERMINED", "", id="few told"
        ),
        pytest.param(
            {"delivered": FEW_OF_ALL, "told": messages(103, client_shop=100)},
            "PRODUCER_LOCAL",
            "97 %",
            id="3 of others",
        ),
        pytest.param(
            {"delivered": FEW_OF_ALL, "told": messages(120, client_shop=109)}, "UNDETERMINED", "", id="20 of others"
        ),
        pytest.param(
            {"delivered": FEW_OF_ALL, "told": messages(100, header_source=96)}, "UNDETERMINED", "", id="common header"
        ),
        pytest.param(
            {"delivered": OTHER_SOURCE, "told": messages(100, header_source=96)},
            "PRODUCER_LOCAL",
            "at least 96 % of the source records share one value of header source, and 0 % of delivered messages",
            id="header",
        ),
        pytest.param({"delivered": FEW_OF_ALL, **DENSE}, "SYSTEMIC", "94 %", id="nearly every record died"),
    ],
)
def test_acknowledgements_tell_what_messages_that_went_through_lack(
    values: dict[str, Any], verdict: str, words: str
) -> None:
    one = episode(**{"told": TOLD} | values)
    judged = judge(one, Topic.of([one]))
    assert judged.verdict == verdict
    assert words in judged.sentence


def test_headers_of_dead_letters_are_compared_with_messages_that_went_through() -> None:
    one = episode(attributes=HEADER, delivered=messages(100, header_source=70))
    assert judge(one, Topic.of([one, OTHERS])).verdict == "UNDETERMINED"
    one = episode(attributes=HEADER, delivered=OTHER_SOURCE)
    found = judge(one, Topic.of([one, SAME])).evidence
    assert (found.attribute_share_elsewhere, found.attribute_compared_with) == (0, "delivered messages")


def test_a_header_that_acknowledgements_alone_tell_needs_others_to_compare_with() -> None:
    told = messages(100, header_source=100)
    alone = episode(told=told)
    assert judge(alone, Topic.of([alone])).evidence.attribute_kind is None
    compared = episode(told=told, delivered=OTHER_SOURCE)
    assert judge(compared, Topic.of([compared])).evidence.attribute_kind == "header"


@pytest.mark.parametrize(
    "delivered",
    [
        pytest.param({**OTHER_SOURCE, "headed_count": 0}, id="without headers"),
        pytest.param(messages(100, header_trace=50), id="without this header: the writer of dead letters may add it"),
    ],
)
def test_what_no_message_that_went_through_tells_is_compared_with_dead_letters(delivered: dict[str, Any]) -> None:
    one = episode(attributes=HEADER, delivered=delivered)
    found = judge(one, Topic.of([one, OTHERS])).evidence
    assert (found.attribute_share_elsewhere, found.attribute_compared_with) == (0, "other dead letters")
    assert judge(one, Topic.of([one, SAME])).verdict == "UNDETERMINED"


@pytest.mark.parametrize(
    ("values", "others", "verdict", "words"),
    [
        ({"record_count": 12, "source_record_count": 1}, [], "POISON_PILL", "orders-1@58"),
        ({"record_count": 40, "source_record_count": 10}, [], "POISON_PILL", "10 source records; nothing tells"),
        (FEW | {"partitions": few(3)}, [], "POISON_PILL", "4 source records; nothing tells which share died"),
        (FEW | {"partitions": []}, [], "POISON_PILL", "unknown source records; nothing tells which share died"),
        (UNPLACED, [], "POISON_PILL", "unknown source records; nothing tells which share died"),
        (
            FEW | {"source_record_count": 5, "record_count": 5, "partitions": few(3)},
            [],
            "POISON_PILL",
            "4 source records and at most 1 unknown one; nothing tells",
        ),
        ({"top_keys": KEYS, "key_count": 5}, [], "KEY_LOCAL", "96 %"),
        ({"partitions": one_partition(3)}, [], "PARTITION_LOCAL", "partition 3"),
        ({"partitions": one_partition(0)}, [WITHOUT], "PARTITION_LOCAL", "partition 0"),
        ({"partitions": one_partition(0)}, [], "UNDETERMINED", "no partition"),
        ({"attributes": HEADER}, [OTHERS], "PRODUCER_LOCAL", "header source"),
        ({"attributes": HEADER}, [SAME], "UNDETERMINED", "no partition"),
        ({"attributes": HEADER}, [WITHOUT], "UNDETERMINED", "no partition"),
        ({"attributes": HEADER, **DENSE}, [OTHERS], "SYSTEMIC", "94 %"),
        (DENSE, [], "SYSTEMIC", "94 %"),
        ({"step_of_two_count": 90}, [], "SYSTEMIC", "90 % of the offsets that do not look like markers around them"),
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


def windows(**counts: int) -> dict[str, Any]:
    """Return what other feeds tell of the 40,000 offsets of an episode; by default nothing."""
    names = ("acknowledged", "acknowledged_range", "landed", "without_record")
    none = {f"{name}_count": 0 for name in names}
    return {"dead_lettered_count": 100, "acknowledged_dead_lettered_count": 0} | none | counts


ALL_LANDED = {"landed_count": 40_000, "without_record_count": 39_800}
ALL_TOLD = {"acknowledged_dead_lettered_count": 95, "acknowledged_count": 39_000, "acknowledged_range_count": 900}
HALF_TOLD = ALL_TOLD | {"acknowledged_count": 20_000, "acknowledged_range_count": 19_000}


@pytest.mark.parametrize(
    ("values", "of", "records", "share"),
    [
        pytest.param(ALL_LANDED, "records in landed segments", 200, 0.5, id="segments"),
        pytest.param(ALL_LANDED | {"landed_count": 39_999}, "offsets", None, 0.0025, id="one of them did not land"),
        pytest.param(HALF_TOLD, "acknowledged records", 20_000, 0.005, id="acknowledgements between markers"),
        pytest.param(
            HALF_TOLD | {"acknowledged_range_count": 15_000}, "offsets", None, 0.0025, id="some producers do not tell"
        ),
        pytest.param(
            HALF_TOLD | {"acknowledged_dead_lettered_count": 80}, "offsets", None, 0.0025, id="some dead ones unknown"
        ),
        pytest.param(
            HALF_TOLD | ALL_LANDED, "acknowledged records", 20_000, 0.005, id="compaction removed what was acknowledged"
        ),
        pytest.param({}, "offsets", None, 0.0025, id="nothing"),
    ],
)
def test_the_share_that_died_is_of_records_where_other_feeds_tell_them(
    values: dict[str, int], of: str, records: int | None, share: float
) -> None:
    one = episode(windows=windows(**values))
    judged = judge(one, Topic.of([one]))
    found = judged.evidence
    assert (found.offset_share_of, found.window_record_count, found.offset_share) == (of, records, share)
    assert found.window_offset_count == 40_000
    assert f"of the {of} around them died" in judged.sentence
    assert judged.verdict == ("SYSTEMIC" if share == 0.5 else "UNDETERMINED")


@pytest.mark.parametrize(
    ("sources", "values", "words"),
    [
        pytest.param(
            1,
            {"acknowledged_count": 812, "acknowledged_pill_count": 1},
            "1 of the 812 acknowledged records around it died of it.",
            id="one",
        ),
        pytest.param(1, {"acknowledged_count": 812}, "was dead-lettered 20 times.", id="only others are acknowledged"),
        pytest.param(
            3,
            {"acknowledged_count": 500, "acknowledged_pill_count": 2, "landed_count": 500, "landed_pill_count": 1},
            "3 source records; nothing tells which share died.",
            id="not all that died are known",
        ),
        pytest.param(
            3,
            {"acknowledged_count": 950, "landed_count": 1000, "without_record_count": 100, "landed_pill_count": 3},
            "3 of the 900 records in landed segments around them died of it",
            id="some",
        ),
        pytest.param(
            1,
            {"acknowledged_count": 1, "acknowledged_pill_count": 1},
            "was dead-lettered 20 times.",
            id="only itself is known",
        ),
        pytest.param(1, None, "was dead-lettered 20 times.", id="nothing is known"),
    ],
)
def test_neighbours_of_poison_pills_count(sources: int, values: dict[str, int] | None, words: str) -> None:
    places = [{"original_partition": 0, "first_offset": 5, "last_offset": 9, "source_record_count": sources}]
    tops = [{"original_partition": 0, "original_offset": 5, "record_count": 20}]
    told = None if values is None else windows(**values)
    known = {name: (values or {}).get(name) for name in ("acknowledged_pill_count", "landed_pill_count")}
    counts = {"record_count": 20, "source_record_count": sources}
    one = episode(**counts, partitions=places, top_records=tops, windows=told, **known)
    judged = judge(one, Topic.of([one]))
    assert (judged.verdict, words in judged.sentence or judged.sentence) == ("POISON_PILL", True)


def test_offsets_between_equal_steps_can_be_markers_unless_other_feeds_tell_of_records() -> None:
    steps = {"step_of_two_count": 90}
    told = windows(**ALL_TOLD | {"acknowledged_count": 40_000, "acknowledged_range_count": 4})
    for one, verdict in ((episode(**steps), "SYSTEMIC"), (episode(**steps, windows=told), "UNDETERMINED")):
        assert judge(one, Topic.of([one])).verdict == verdict


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


def test_a_window_has_no_more_offsets_than_a_bigint_holds() -> None:
    """Headers can name any offset."""
    given = episode()
    given["partitions"] = [{**one, "last_offset": 2**63 - 1} for one in given["partitions"]]
    assert judge(given, Topic.of([given])).evidence.window_offset_count == 2**63 - 1


def test_a_topic_has_no_more_partitions_than_an_int_holds() -> None:
    """Headers can name any partition."""
    given = episode(partitions=one_partition(2**31 - 1))
    assert judge(given, Topic.of([given])).evidence.partition_count == 2**31 - 1


def test_sql_calls_as_few_what_python_does() -> None:
    text = f"SELECT source_record_count, record_count, {IS_FEW} FROM range(1, 20) AS s(source_record_count), "
    rows = duckdb.sql(text + "range(1, 60) AS r(record_count)").fetchall()
    assert [one for one in rows if one[2] != is_few(*one[:2])] == []
    assert IS_FEW in select_of("gold.dlq_incidents")
