"""silver.dlq_errors: what the dead letters of one error have in common, against a model; signatures of errors."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as arrow  # type: ignore[import-untyped]
import pytest
from pyspark.sql import DataFrame, SparkSession

from pipelines.columns.slices import name
from pipelines.engines.duckdb import sessions
from pipelines.engines.duckdb.translate import translated
from pipelines.incidents.episodes import VERSION
from pipelines.incidents.signature import frame_of, pattern_of, sql
from pipelines.steps.refresh import select_of
from tests.testing.engines import selected

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = datetime(2026, 11, 21, tzinfo=UTC)
HALF_HOUR, MINUTE = 1800 * 10**6, 60 * 10**6
RECORDS = (
    "cluster string, consumer_group string, original_topic string, disposition string, disposition_source string, "
    "exception_class string, exception_cause_class string, error_message string, exception_stacktrace string, "
    "original_partition int, original_offset bigint, routed_at timestamp, dlq_timestamp timestamp, "
    "_ingested_at timestamp, dlq_topic string, payload_copied boolean, delivery_count int, "
    "control_marker_suspected boolean, key binary, value binary, "
    "user_headers array<struct<key: string, value: binary>>, fingerprint_version int, owner string, _bronze_id string"
)
NAMES = [
    item.split()[0] for item in RECORDS.replace("array<struct<key: string, value: binary>>", "headers").split(", ")
]
MARKERS = "cluster string, _bronze_id string, is_control_marker boolean"


def letter(number: int, **values: Any) -> dict[str, Any]:
    return dict.fromkeys(NAMES) | {
        "cluster": "c",
        "consumer_group": "g",
        "original_topic": "orders",
        "disposition": "CLIENT_REJECTED",
        "error_message": "Offset rejected by client.",
        "original_partition": 0,
        "original_offset": number,
        "routed_at": START,
        "_ingested_at": START,
        "dlq_topic": "dlq.orders",
        "payload_copied": True,
        "control_marker_suspected": False,
        "user_headers": [],
        "_bronze_id": f"{number:064}",
        **values,
    }


def errors(
    spark: SparkSession, letters: list[dict[str, Any]], markers: tuple[tuple[Any, ...], ...] = ()
) -> list[dict[str, Any]]:
    frames: dict[str, DataFrame] = {
        "dlq_records": spark.createDataFrame(
            [tuple(letter[column] for column in NAMES) for letter in letters], RECORDS
        ),
        "dlq_control_markers": spark.createDataFrame([*markers], MARKERS),
    }
    found = selected(spark, select_of("silver.dlq_errors"), frames, {})
    return [row.asDict(recursive=True) for row in found.collect()]


def model(letters: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return what each slice, message and half hour should have, without hashes."""
    groups: dict[tuple[Any, ...], list[tuple[int, dict[str, Any]]]] = defaultdict(list)
    for row in letters:
        at = (row["routed_at"] - EPOCH) // timedelta(microseconds=1)
        where = name(row["original_topic"], row["original_partition"], row["original_offset"])
        groups[where, row["error_message"], at - at % HALF_HOUR].append((at, row))
    found = {}
    for (where, message, half_hour), own in groups.items():
        counts = Counter(row["original_offset"] for _, row in own)
        offsets = sorted(counts)
        earlier: dict[int, int] = {}
        for other, other_message, before in groups:
            if (other, other_message) == (where, message) and before < half_hour:
                for _, row in groups[other, other_message, before]:
                    earlier[row["original_offset"]] = max(before, earlier.get(row["original_offset"], before))
        dense = scattered = span = 0
        for place in range(len(offsets)):
            five = [
                offsets[b] - offsets[a]
                for a, b in ((place, place + 4), (place - 4, place), (place - 2, place + 2))
                if a >= 0 and b < len(offsets)
            ]
            nine = [
                offsets[b] - offsets[a]
                for a, b in ((place, place + 8), (place - 8, place), (place - 4, place + 4))
                if a >= 0 and b < len(offsets)
            ]
            dense += bool(five) and min(five) <= 5
            if nine and min(nine) <= 80:
                scattered += 1
                span += min(nine)
        minutes: dict[int, list[int]] = defaultdict(list)
        for at, _ in own:
            minutes[at - at % MINUTE].append(at)
        keys = {row["key"] for _, row in own if row["key"] is not None}
        headers = Counter((header["key"], header["value"]) for _, row in own for header in row["user_headers"])
        found[where, message, half_hour] = {
            "record_count": len(own),
            "source_record_count": len(offsets),
            "minutes": [
                {"minute": begin, "first_at": min(times), "last_at": max(times), "record_count": len(times)}
                for begin, times in sorted(minutes.items())
            ],
            "first_offset": offsets[0],
            "last_offset": offsets[-1],
            "seen_before": sorted(earlier[offset] for offset in offsets if offset in earlier),
            "dense_count": dense,
            "scattered_count": scattered,
            "scattered_span": span or None,
            "top_offsets": [
                {"negative": -count, "value": offset}
                for offset, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:12]
            ],
            "keyed_count": sum(row["key"] is not None for _, row in own),
            "keys": len(keys),
            "headers": sorted(headers.values(), reverse=True),
            "without_payload_count": sum(not row["payload_copied"] for _, row in own),
            "most_deliveries": max((row["delivery_count"] for _, row in own if row["delivery_count"]), default=None),
        }
    return found


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (2, 3))])
def test_rows_count_what_a_model_counts(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    letters = []
    for number in range(600):
        letters.append(
            letter(
                number,
                error_message=chance.choice(("slow", "broken")),
                original_partition=chance.randrange(2),
                original_offset=chance.choice(
                    (chance.randrange(12), 9_950 + chance.randrange(100), 2**63 - 1 - number)
                ),
                routed_at=START + timedelta(seconds=chance.choice((chance.randrange(120), chance.randrange(10_000)))),
                key=chance.choice((None, b"a", b"\x00\xff", b"b")),
                user_headers=chance.choice(([], [{"key": "h", "value": chance.choice((b"1", None))}])),
                payload_copied=chance.random() < 0.7,
                delivery_count=chance.choice((None, 1, 5)),
            )
        )
    wanted = model(letters)
    found = {}
    for row in errors(spark, letters):
        half_hour = (row["half_hour"].replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
        row["keys"] = len(row["least_keys"])
        row["headers"] = sorted(
            (-values["negative"] for values in row["attributes"] if values["kind"] == "header"), reverse=True
        )
        values = wanted[row["source_slice"], row["error_pattern"], half_hour]
        found[row["source_slice"], row["error_pattern"], half_hour] = {column: row[column] for column in values}
    assert found == wanted


SAME = [
    ("Order 4711 not found", "Order 99 not found"),
    ("user 3f2b1c9a-11aa-4bcd-8e11-0f0f0f0f0f0f is gone", "user deadbeef-aaaa-bbbb-cccc-ddddddddeeee is gone"),
    ('Field "amount" is required', 'Field "the total" is required'),
    ("cannot parse 'x' here", "cannot parse 'some words' here"),
    ("mail to ann@example.com bounced", "mail to bob.b+c@mail.example.org bounced"),
    ("connect to db-a.prod.example.com:5432 failed", "connect to db-b.test.example.com:5433 failed"),
    ("connect to 10.0.0.1:9092 failed", "connect to 10.20.0.14:9092 failed"),
    ("at 2026-11-21T02:00:00.123Z it broke", "at 2026-11-20 23:59:59 it broke"),
    ("GET https://api.example.com/a?b=1 gave no answer", "GET https://other/a?b=2 gave no answer"),
    ("expired at Wed Jul 01 12:00:00 UTC 2026", "expired at Fri, 11 Dec 2026 03:10:59 GMT"),
    ("no route to fe80::dead:beef", "no route to ::ffff:10.0.0.1"),
    ("balance -5 is low", "balance \u0664\u0662 is low"),
    ("Feld \u201eMenge\u201c fehlt", "Feld « x y » fehlt"),
    ("values [1, 2, 3] are wrong", "values [1] are wrong"),
    ("first line\nat 1", "first line\nother"),
    ("took 3.5 ms", "took 12 ms"),
    ("Kunde Müller42 fehlt", "Kunde Müller7 fehlt"),
    ("注文42が見つかりません", "注文7が見つかりません"),
]
DIFFERENT = [
    ("Order not found", "Customer not found"),
    ("class java.lang.String is no number", "class java.lang.Long is no number"),
    ("can't read the file", "can't write the file"),
    ("Order5:NotFound(7)", "Order5:Shipped(7)"),
    ("订单5未找到(代码7)", "订单5已发货(代码7)"),
    ("GET https://api.example.com/orders/7 failed", "GET https://api.example.com/payments/7 failed"),
]


def test_what_varies_in_a_message_does_not_split_an_error(spark: SparkSession) -> None:
    letters = [
        letter(number, error_message=text, fingerprint_version=VERSION)
        for number, text in enumerate(sum([*SAME, *DIFFERENT], ()))
    ]
    patterns = {}
    for row in errors(spark, letters):
        for values in row["top_offsets"]:
            patterns[letters[values["value"]]["error_message"]] = (row["fingerprint"], row["error_pattern"])
    for values, other in SAME:
        assert patterns[values] == patterns[other], (values, other)
    for values, other in DIFFERENT:
        assert patterns[values] != patterns[other], (values, other)
    for secret in ("4711", "amount", "example", "3f2b1c9a", "10.0.0.1"):
        assert not any(secret in pattern for _, pattern in patterns.values())


PIECES = (
    *(
        "order",
        "42",
        "é",
        "ß7",
        "注文",
        "a1",
        "example.com",
        "db-a.",
        ":80",
        "-",
        ".",
        ":",
        "_",
        "/",
        "@",
        "'",
        '"',
        " ",
    ),
    *("\u00a0", "\u0301", "😀", "\n", "\nat ", "\tat ", "com.é", "java.", "(", "X"),
)

CLOTHES = (
    *(
        "Wed",
        "Jul ",
        "01 ",
        "12:00:00 ",
        "PM",
        " UTC",
        "Wed, 01 Jul 2026 ",
        "::1",
        "fe80::",
        "ab:cd:",
        "%eth0",
        "::ffff:10.",
    ),
    *(
        "\u201e",
        "\u201c",
        "\u201d",
        "«",
        "»",
        "「",
        "」",
        "\u2018",
        "\u2019",
        "\u0664",
        "४",
        "\uff15",
        "\U0001d7d3",
        "\u2212",
        "\u061c",
        "+5",
    ),
    *(
        "https://",
        "joe:pw@",
        "/orders",
        "?x=",
        "&y=",
        "#z=",
        "blk_-5",
        "-xkzqp",
        "-abcd",
        "=",
        "(",
        ")",
        ",",
        "、",
        "ไม่พบ",
        "<*>",
    ),
)


def test_spark_duckdb_and_python_find_the_same_parts_in_every_script(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(17)
    texts = ["".join(chance.choices((*PIECES, *CLOTHES), k=chance.randrange(14))) for _ in range(3_000)]
    columns = ("number", "error_message", "exception_stacktrace", "fingerprint_version")
    letters = [(number, text, text, chance.choice((None, 1, 2, 2, 2))) for number, text in enumerate(texts)]
    frame = spark.createDataFrame(
        letters, "number int, error_message string, exception_stacktrace string, fingerprint_version int"
    )
    parts = ", ".join(f"{expression} AS {name}" for name, expression in sql().items())
    text = f"SELECT number, {parts} FROM letters ORDER BY number"
    frame.createOrReplaceTempView("letters")
    by_spark = [tuple(row) for row in spark.sql(text).collect()]
    spark.catalog.dropTempView("letters")  # other tests list the views of the session
    with sessions.connected(str(tmp_path)) as connection:
        rows = arrow.table(dict(zip(columns, map(list, zip(*letters, strict=True)), strict=True)))
        connection.register("letters", rows)
        by_duckdb = connection.sql(translated(text)).fetchall()
    by_python = [(number, pattern_of(text, version), frame_of(text)) for number, text, _, version in letters]
    assert by_spark == by_python
    assert by_duckdb == by_python
    assert sum(frame is not None for *_, frame in by_python) > 3


def test_a_fingerprint_has_the_frame_of_the_applications_own_code(spark: SparkSession) -> None:
    def trace(*frames: str) -> str:
        return "com.acme.Broken: x\n" + "\n".join(f"\tat {frame}" for frame in frames)

    framework = ("java.base/java.lang.Integer.parseInt(Integer.java:652)", "org.apache.kafka.streams.A.b(A.java:1)")
    traces = [
        trace(*framework, "com.acme.Orders.parse(Orders.java:12)", "com.acme.Main.run(Main.java:3)"),
        trace(*framework, "app//com.acme.Orders.parse(Orders.java:99)"),
        trace("com.acme.Orders$$Lambda$17/0x0001.apply(Unknown Source)"),
        trace("com.acme.Orders$$Lambda$18/0x0001.apply(Unknown Source)"),
        trace(*framework),
        "",
    ]
    letters = [letter(number, exception_stacktrace=text) for number, text in enumerate(traces)]
    frames = {values["value"]: row["error_frame"] for row in errors(spark, letters) for values in row["top_offsets"]}
    assert frames[0] == frames[1] == "com.acme.Orders.parse"
    assert frames[2] == frames[3] is not None
    assert frames[4] is None
    assert frames[5] is None


def test_the_owner_changes_no_fingerprint_that_was_told_and_tells_others_apart(spark: SparkSession) -> None:
    """The literals are what versions without the column `owner` gave."""
    nameless: dict[str, Any] = {"consumer_group": None}
    letters = [
        letter(0),
        letter(1, owner="g"),
        letter(2, **nameless),
        letter(3, **nameless, owner="connector a"),
        letter(4, **nameless, owner="connector b"),
        letter(5, consumer_group="connector a", owner="connector a"),
        letter(6, consumer_group="connector a"),
        letter(7, **nameless, owner="null"),
        letter(8, **nameless, owner="unknown writer on dlq.orders"),
    ]
    found = {
        (row["consumer_group"], row["owner"]): (row["fingerprint"], row["record_count"])
        for row in errors(spark, letters)
    }
    assert found["g", "g"] == ("36268ba0942846b5", 2)
    assert found[None, None] == ("faa982219b90715b", 1)
    assert found["connector a", "connector a"][1] == 2
    assert len({fingerprint for fingerprint, _ in found.values()}) == len(found) == 7


def test_a_proved_marker_does_not_count_and_a_record_without_a_place_does(spark: SparkSession) -> None:
    letters = [letter(1), letter(2), letter(3, original_offset=None), letter(4, original_offset=None, routed_at=None)]
    rows = errors(spark, letters, (("c", f"{2:064}", True), ("c", f"{1:064}", False)))
    assert sorted((row["source_slice"] or "", row["record_count"], row["source_record_count"]) for row in rows) == [
        ("", 2, 2),
        ("0000000000000000:0:orders", 1, 1),
    ]


def test_no_filter_computes_a_fingerprint_that_the_projection_computes_again(spark: SparkSession) -> None:
    letters = [tuple(letter(0)[column] for column in NAMES)]
    frames: dict[str, DataFrame] = {
        "dlq_records": spark.createDataFrame(letters, RECORDS),
        "dlq_control_markers": spark.createDataFrame([("c", f"{1:064}", True)], MARKERS),
    }
    found = selected(spark, select_of("silver.dlq_errors"), frames, {})
    plan = found._jdf.queryExecution().optimizedPlan().toString().splitlines()
    assert any("Project" in line and "sha2(" in line for line in plan)
    assert not any("Filter" in line and "sha2(" in line for line in plan)
