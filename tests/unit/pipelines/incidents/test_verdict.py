"""Verdicts: which figure decides, and that the sentences name it."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import duckdb
import pytest

from pipelines.incidents.evidence import IS_FEW, Topic, is_few
from pipelines.incidents.severity import severity
from pipelines.incidents.verdict import VERDICTS, Judgement, judge, reach_of
from pipelines.incidents.words import at_least, keys_of, percent
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
PREFIX = [{"kind": "key_prefix", "name": "", "value": 1, "record_count": 98}]
WITHOUT_PREFIX = episode(
    fingerprint="other", attributes=[{"kind": "key_prefix", "name": "", "value": 2, "record_count": 100}]
)
SHARE = r"at least \d+ %|less than 1 %|more than 99 %|\d+ %"
KEYS = [{"value": 1, "record_count": 96}]
FLOOD = {"disposition": "CIRCUIT_BREAKER_ARCHIVED"}
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
    item = episode(**{"told": TOLD} | values)
    judged = judge(item, Topic.of([item]))
    assert judged.verdict == verdict
    assert words in judged.sentence


def test_headers_of_dead_letters_are_compared_with_messages_that_went_through() -> None:
    item = episode(attributes=HEADER, delivered=messages(100, header_source=70))
    assert judge(item, Topic.of([item, OTHERS])).verdict == "UNDETERMINED"
    item = episode(attributes=HEADER, delivered=OTHER_SOURCE)
    found = judge(item, Topic.of([item, SAME])).evidence
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
    item = episode(attributes=HEADER, delivered=delivered)
    found = judge(item, Topic.of([item, OTHERS])).evidence
    assert (found.attribute_share_elsewhere, found.attribute_compared_with) == (0, "other dead letters")
    assert judge(item, Topic.of([item, SAME])).verdict == "UNDETERMINED"


@pytest.mark.parametrize(
    ("values", "others", "verdict", "words"),
    [
        ({"record_count": 12, "source_record_count": 1}, [], "POISON_PILL", "orders:1:58"),
        ({"record_count": 40, "source_record_count": 10}, [], "POISON_PILL", "10 source records; nothing tells"),
        (FEW | {"partitions": few(3)}, [], "POISON_PILL", "4 source records; nothing tells which share died"),
        (FEW | {"partitions": []}, [], "POISON_PILL", "at most 4 unnamed source records; nothing tells which share"),
        (UNPLACED, [], "POISON_PILL", "at most 1 unnamed source record; nothing tells which share died"),
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
        ({"step_of_three_count": 90}, [], "UNDETERMINED", "no partition"),  # the records between may have gone through
        ({"disposition": "CLIENT_REJECTED"}, [], "REJECTION", "rejected"),
        (
            {"disposition": "CIRCUIT_BREAKER_ARCHIVED", **DENSE},
            [],
            "FLOOD",
            "a circuit breaker archived them, 100 source records; 94 % of the offsets around them died.",
        ),
        (
            {"disposition": "COORDINATOR_INITIATED", **UNPLACED},
            [],
            "FLOOD",
            "the coordinator archived it; nothing tells which share died.",
        ),
        (
            {"attributes": PREFIX},
            [WITHOUT_PREFIX],
            "UNDETERMINED",
            "98 % share one prefix of the key, and 0 % of other",
        ),
        ({}, [], "UNDETERMINED", "no partition"),
    ],
)
def test_a_figure_decides(values: dict[str, Any], others: list[Any], verdict: str, words: str) -> None:
    item = episode(**values)
    judged = judge(item, Topic.of([item, *others]))
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
    item = episode(windows=windows(**values))
    judged = judge(item, Topic.of([item]))
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
    item = episode(**counts, partitions=places, top_records=tops, windows=told, **known)
    judged = judge(item, Topic.of([item]))
    assert (judged.verdict, words in judged.sentence or judged.sentence) == ("POISON_PILL", True)


def test_offsets_between_equal_steps_can_be_markers_unless_other_feeds_tell_of_records() -> None:
    steps = {"step_of_two_count": 90}
    told = windows(**ALL_TOLD | {"acknowledged_count": 40_000, "acknowledged_range_count": 4})
    for item, verdict in ((episode(**steps), "SYSTEMIC"), (episode(**steps, windows=told), "UNDETERMINED")):
        assert judge(item, Topic.of([item])).verdict == verdict


def test_a_verdict_names_no_value_of_a_header() -> None:
    item = episode(attributes=HEADER)
    assert "source" in judge(item, Topic.of([item, OTHERS])).sentence
    assert judge(item, Topic.of([item, OTHERS])).evidence.attribute_share_elsewhere == 0


@pytest.mark.parametrize(
    ("values", "level"),
    [
        ({"record_count": 1, "source_record_count": 1}, "low"),
        ({}, "medium"),
        ({"partitions": one_partition(3)}, "high"),
        ({"record_count": 5000, **DENSE}, "critical"),
        ({**FLOOD, "record_count": 1, "source_record_count": 1}, "low"),
        ({**FLOOD, "top_keys": KEYS, "key_count": 5}, "medium"),
        (FLOOD, "high"),
        ({**FLOOD, "record_count": 5000}, "critical"),
    ],
)
def test_a_severity_has_reasons(values: dict[str, Any], level: str) -> None:
    item = episode(**values)
    found, reasons = severity(item, judge(item, Topic.of([item])))
    assert (found, bool(reasons)) == (level, True)


def drawn(chance: random.Random) -> dict[str, Any]:
    """Return an episode of any figures that data can have."""
    sources = chance.choice((1, 2, 5, 6, 12, 13, 100, 3000))
    records = sources * chance.choice((1, 1, 3, 20))
    partitions, left = [], chance.choice((sources, sources, sources // 2, 0))
    for number in range(chance.choice((1, 1, 4))):
        own = left if number == 0 and chance.random() < 0.3 else min(left, chance.randint(0, sources))
        left -= own
        if own:
            first = chance.randrange(10_000)
            last = first + own - 1 + chance.choice((0, 3 * own, 10**6)) * (own > 1)
            place = {"original_partition": number, "first_offset": first, "last_offset": last}
            partitions.append({**place, "record_count": own, "source_record_count": own})
    placed = sum(row["source_record_count"] for row in partitions)
    keys = min(chance.choice((0, 1, 2, 3, 5, 200)), sources)
    most = [records // max(keys, 1)] * min(keys, 8)
    nines = chance.randint(0, placed)
    shared = [] if chance.random() < 0.4 else [(chance.choice(("header", "schema_id", "key_prefix")), "source")]
    return episode(
        disposition=chance.choice((None, "CLIENT_REJECTED", "CIRCUIT_BREAKER_ARCHIVED", "COORDINATOR_INITIATED")),
        original_topic=chance.choice(("orders", None)),
        record_count=records,
        source_record_count=sources,
        last_at=chance.choice((0, 3600, 90_000)) * 10**6,
        partitions=partitions,
        top_records=[
            {"original_partition": row["original_partition"], "original_offset": row["first_offset"], "record_count": 1}
            for row in partitions[:12]
        ],
        key_count=keys,
        is_key_count_exact=keys < 64,
        keyed_count=records if keys else 0,
        top_keys=[{"value": number, "record_count": count} for number, count in enumerate(most)],
        attributes=[{"kind": kind, "name": name, "value": 1, "record_count": records} for kind, name in shared],
        scattered_count=nines,
        scattered_span=nines * chance.randint(8, 80),
        step_of_two_count=chance.choice((0, 0, placed)),
        without_payload_count=chance.choice((0, 0, records)),
        windows=chance.choice((None, windows(**ALL_LANDED))),
        landed_pill_count=chance.choice((None, placed)),
        delivered=chance.choice((None, OTHER_SOURCE)),
    )


NEVER = re.compile(r"\bNone\b|\b0 (?:partitions|source records|records)|at least 0 %")


def test_words_never_contradict_the_numbers() -> None:
    chance = random.Random(51)
    verdicts = set()
    for _ in range(3000):
        item, other = drawn(chance), drawn(chance) | {"fingerprint": "other"}
        judged = judge(item, Topic.of([item, other]))
        agree(item, judged)
        verdicts.add(judged.verdict)
    assert verdicts == {*VERDICTS}


def agree(row: dict[str, Any], judged: Judgement) -> None:
    """Check that the words of a judgement and its severity say what the figures say."""
    found, records, sources = judged.evidence, row["record_count"], row["source_record_count"]
    level, reasons = severity(row, judged)
    said = " ".join((judged.sentence, *reasons))
    figures = [
        value for name, value in vars(found).items() if name.endswith(("share", "elsewhere")) and value is not None
    ]
    figures.append(row["without_payload_count"] / records)
    shares = {words for share in figures for words in (percent(share), at_least(share))}
    assert set(re.findall(SHARE, said)) <= shares, (said, shares)
    assert not NEVER.search(said), said
    assert ("nothing tells which share died" in said) <= (not found.offset_share)
    assert (found.offset_share or 1) > 0
    for percentage, verdict in re.findall(r"below (\d+) % would make it ([A-Z_]+)", judged.would_change):
        name = {"30": "offset_share", "75": "key_share", "90": "partition_share"}[percentage]
        assert reach_of(row, replace(found, **{name: 0.0})) == verdict != judged.verdict
    if "would make it SYSTEMIC" in judged.would_change and judged.verdict in ("REJECTION", "UNDETERMINED"):
        assert reach_of(row, replace(found, offset_share=0.3)) == "SYSTEMIC"
        several = max(found.partition_count, 2)
        assert reach_of(row, replace(found, partition_share=0.9, partition_count=several)) == "PARTITION_LOCAL"
        is_enough = "90 % in one partition" in judged.would_change
        assert is_enough is (found.partition_count > 1), judged.would_change
    reach = judged.verdict if judged.verdict != "FLOOD" else reach_of(row, found)
    if judged.verdict == "FLOOD":
        assert f"it would be {reach}." in judged.would_change
        assert ("archived it" in said) is (records == 1)
    assert ("no partition, key or header" in said) <= (reach in ("UNDETERMINED", "REJECTION"))
    assert ("few source records failed" in reasons) <= (sources <= 5)
    minutes = max((row["last_at"] - row["first_at"]) / 60e6, 1)
    if is_few(sources, records) and records < 1000 and records / minutes < 60:
        assert level in ("medium", "low"), reasons
    if level == "critical":
        assert records >= 100
        assert reach not in ("POISON_PILL", "KEY_LOCAL", "PRODUCER_LOCAL")


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
    given["partitions"] = [{**partition, "last_offset": 2**63 - 1} for partition in given["partitions"]]
    assert judge(given, Topic.of([given])).evidence.window_offset_count == 2**63 - 1


def test_a_topic_has_no_more_partitions_than_an_int_holds() -> None:
    """Headers can name any partition."""
    given = episode(partitions=one_partition(2**31 - 1))
    assert judge(given, Topic.of([given])).evidence.partition_count == 2**31 - 1


def test_sql_calls_as_few_what_python_does() -> None:
    text = f"SELECT source_record_count, record_count, {IS_FEW} FROM range(1, 20) AS s(source_record_count), "
    rows = duckdb.sql(text + "range(1, 60) AS r(record_count)").fetchall()
    assert [row for row in rows if row[2] != is_few(*row[:2])] == []
    assert IS_FEW in select_of("gold.dlq_incidents")


@pytest.mark.parametrize(
    ("keys", "is_exact", "most", "words"),
    [
        (1, True, 9, "1 key"),
        (63, True, 99, "63 keys"),
        (64, False, 99, "64 to 80 keys"),
        (64, False, 64, "64 keys"),
        (88, False, 88, "66 to 88 keys"),
        (447, False, 447, "340 to 447 keys"),
        (12_345, False, 99_999, "9,300 to 15,000 keys"),
    ],
)
def test_an_estimate_of_keys_says_between_which_numbers_it_lies(
    keys: int, is_exact: bool, most: int, words: str
) -> None:
    assert keys_of({"key_count": keys, "is_key_count_exact": is_exact, "keyed_count": most}) == words
