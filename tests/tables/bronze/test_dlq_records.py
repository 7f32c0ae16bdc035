from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from expectations.bronze.dlq_records import CONTRACT
from expectations.provenance import ADDED_BY_THE_RUN
from pipelines.bronze.dlq_records import parse, parse_records
from pipelines.settings import ROOT, load
from pipelines.sources.landing import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

CAPTURES = sorted((ROOT / "tests" / "data" / "dlq").glob("*.jsonl"))
AT = '"topic":"dlq.orders","partition":3,"offset":12'


def record(rest: str = "", at: str = AT) -> bytes:
    return f"{{{at}{',' if rest else ''}{rest}}}".encode()


def base64_of(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def header(key: str, value: bytes) -> dict[str, str]:
    return {"key": key, "value": base64_of(value)}


EXPECTED = {
    "topic": "dlq.orders",
    "partition": 3,
    "offset": 12,
    "headers": [],
    "lossy_encoding": False,
    "form": "capture",
}
BIDI = "\u202eevil\u2066\u0000name"
MANY = [(f"h{number % 7}", b"%d" % number) for number in range(10_000)]
READABLE: dict[str, tuple[bytes, dict[str, Any]]] = {
    "no more than coordinates": (record(), {"key": None, "value": None, "timestamp": None, "timestamp_type": None}),
    "nulls": (record('"timestamp":null,"timestampType":null,"key":null,"value":null,"headers":null'), {"key": None}),
    "empty is not null": (record('"key":"","value":""'), {"key": b"", "value": b""}),
    "all bytes": (record(f'"value":"{base64_of(bytes(range(256)))}"'), {"value": bytes(range(256))}),
    "escaped base64": (record(r'"key":"YQ\u003d\u003d"'), {"key": b"a"}),
    "milliseconds": (
        record('"timestamp":1795228875344,"timestampType":1'),
        {"timestamp": 1795228875344, "timestamp_type": 1},
    ),
    "no timestamp": (record('"timestamp":-1,"timestampType":-1'), {"timestamp": None, "timestamp_type": None}),
    "time zero": (record('"timestamp":0,"timestampType":0'), {"timestamp": 0, "timestamp_type": 0}),
    "last millisecond": (
        record('"timestamp":253402300799999'),
        {"timestamp": 253402300799999},
    ),
    "greatest numbers": (
        record(at='"topic":"t","partition":2147483647,"offset":9223372036854775807'),
        {"topic": "t", "partition": 2**31 - 1, "offset": 2**63 - 1},
    ),
    "duplicate headers in order": (
        record(f'"headers":{json.dumps([header("b", b"1"), header("a", b"2"), header("b", b"3")])}'),
        {"headers": [("b", b"1"), ("a", b"2"), ("b", b"3")]},
    ),
    "header without value": (
        record('"headers":[{"key":"a","value":null},{"key":"b"},{"key":"","value":""}]'),
        {"headers": [("a", None), ("b", None), ("", b"")]},
    ),
    "headers named like numbers and constants": (
        record('"headers":[{"key":"5"},{"key":"true"},{"key":"-1"},{"key":"[x"},{"key":"{"},{"key":"a\\n7"}]'),
        {"headers": [("5", None), ("true", None), ("-1", None), ("[x", None), ("{", None), ("a\n7", None)]},
    ),
    "topic named like a number": (record(at='"topic":"5","partition":3,"offset":12'), {"topic": "5"}),
    "NUL and bidirectional characters": (
        record(f'"headers":{json.dumps([header(BIDI, b"x")])}'),
        {"headers": [(BIDI, b"x")]},
    ),
    "raw unicode": (record('"headers":[{"key":"naïve 日本 😀"}]'), {"headers": [("naïve 日本 😀", None)]}),
    "escaped surrogate pair": (record(r'"headers":[{"key":"\ud83d\uDE00"}]'), {"headers": [("😀", None)]}),
    "escaped backslash before u": (record(r'"headers":[{"key":"\\ud800"}]'), {"headers": [(r"\ud800", None)]}),
    "1 MB header": (
        record(f'"headers":{json.dumps([header("big", b"x" * 2**20)])}'),
        {"headers": [("big", b"x" * 2**20)]},
    ),
    "10,000 headers": (record(f'"headers":{json.dumps([header(*pair) for pair in MANY])}'), {"headers": MANY}),
    "carriage return": (record('"key":"YQ=="') + b"\r", {"key": b"a"}),
    "byte order mark": (b"\xef\xbb\xbf" + record('"key":"YQ=="'), {"key": b"a"}),
    "white space": (b' \t{ "topic" : "dlq.orders" ,\t"partition":3, "offset":12 }  ', {}),
    "white space, and a header named like a number": (
        b"\t\r" + record('"headers":[{"key":"5"}]'),
        {"headers": [("5", None)]},
    ),
    "names that begin with a quote": (
        record(r'"headers":[{"key":"\"Infinity\""},{"key":"\"a"}]', at=r'"topic":"\"x","partition":3,"offset":12'),
        {"topic": '"x', "headers": [('"Infinity"', None), ('"a', None)]},
    ),
    "unknown fields": (record('"broker":1,"x":{"y":[1,{"topic":"other"}]}'), {}),
    "duplicate field": (record('"offset":13'), {"offset": 13}),
    "kcat": (
        record(
            '"tstype":"create","ts":1795228875344,"broker":1,"headers":["a","1","a",null,"b",""],"key":"k","payload":"v"'
        ),
        {
            "timestamp": 1795228875344,
            "timestamp_type": 0,
            "key": b"k",
            "value": b"v",
            "headers": [("a", b"1"), ("a", None), ("b", b"")],
            "form": "kcat",
        },
    ),
    "kcat, white space": (
        b"\t" + record('"tstype":"create","ts":0,"key":"k","payload":"v"'),
        {"timestamp": 0, "key": b"k", "value": b"v", "form": "kcat"},
    ),
    "kcat, log append time": (
        record('"tstype":"logappend","ts":0,"key":"","payload":""'),
        {"timestamp_type": 1, "key": b"", "value": b"", "form": "kcat"},
    ),
    "kcat, unknown time": (
        record('"tstype":"unknown","ts":0,"key":null,"payload":"v"'),
        {"timestamp": None, "timestamp_type": None, "value": b"v", "form": "kcat"},
    ),
    "kcat, key like base64": (
        record('"headers":[],"key":"YWJj","payload":"YWJj"'),
        {"key": b"YWJj", "value": b"YWJj", "form": "kcat"},
    ),
    "kcat, no bytes": (
        record('"tstype":"create","ts":-1,"key":null,"payload":null'),
        {"timestamp": None, "timestamp_type": 0, "form": "kcat"},
    ),
    "kcat, Avro": (
        record('"key":"k","key_schema_id":1,"payload":{"a":1},"value_schema_id":7'),
        {"key": b"k", "value": b'{"a":1}', "form": "kcat", "lossy_encoding": True},
    ),
    "kcat, bytes that are not UTF-8": (
        record('"key":"k","payload":"')[:-1] + b'\xff"}',
        {"key": b"k", "value": b"\xff", "form": "kcat"},
    ),
    "kcat, all that JSON escapes": (
        record(r'"key":"\u0000\n\"\\/\u00e9","payload":""'),
        {"key": '\0\n"\\/é'.encode(), "form": "kcat"},
    ),
}

NOT_JSON, NOT_AN_OBJECT = "the line is not valid JSON", "the line is not a JSON object"
PARTITION = "partition is not a whole number from 0 to 2147483647"
OFFSET = "offset is not a whole number from 0 to 9223372036854775807"
TOPIC = "topic is not a string that names a topic"
HEADERS = "headers is not an array of objects with a key and a value"
KCAT_HEADERS = "headers is not a flat array of names and values"
HEADER_VALUE = "a header's value is not base64"
KEY, VALUE = "key is not base64", "value is not base64"
TIME, TIME_TYPE = "timestamp is not a time", "timestampType is none of -1, 0, 1"
NO_FORM = "the line is in none of the forms that land: it has no topic, partition and offset"
HALF = "a string holds half a surrogate pair"
UNREADABLE: dict[str, tuple[bytes, str]] = {
    "text": (b"hello", NOT_AN_OBJECT),
    "number": (b"5", NOT_AN_OBJECT),
    "null": (b"null", NOT_AN_OBJECT),
    "string": (b'"{}"', NOT_AN_OBJECT),
    "array": (b"[" + record() + b"]", NOT_AN_OBJECT),
    "bytes": (b"\x00\xff\xfe\x1f\x8b", NOT_AN_OBJECT),
    "truncated": (record('"key":"YQ=="')[:-3], NOT_JSON),
    "two records": (record() * 2, NOT_JSON),
    "two records and a comma": (record() + b"," + record(), NOT_JSON),
    "a record and text": (record() + b" x", NOT_JSON),
    "a record and a bracket": (record() + b"]", NOT_JSON),
    "a record and a brace": (record() + b"}", NOT_JSON),
    "single quotes": (record().replace(b'"', b"'"), NOT_JSON),
    "not a number": (record('"key":NaN'), NOT_JSON),
    "raw control character": (record('"headers":[{"key":"\x01"}]'), NOT_JSON),
    "nesting bomb": (record('"x":' + "[" * 100_000), NOT_JSON),
    "closed nesting bomb": (record('"x":' + "[" * 5_000 + "]" * 5_000), NOT_JSON),
    "another object": (b'{"a":1}', NO_FORM),
    "empty object": (b"{}", NO_FORM),
    "no topic": (b'{"partition":3,"offset":12}', TOPIC),
    "empty topic": (record(at='"topic":"","partition":3,"offset":12'), TOPIC),
    "topic a number": (record(at='"topic":5,"partition":3,"offset":12'), TOPIC),
    "topic a number beyond all doubles": (record(at='"topic":1E400,"partition":3,"offset":12'), TOPIC),
    "topic true": (record(at='"topic":true,"partition":3,"offset":12'), TOPIC),
    "topic an object": (record(at='"topic":{"a":1},"partition":3,"offset":12'), TOPIC),
    "no partition": (b'{"topic":"t","offset":12}', PARTITION),
    "partition below 0": (record(at='"topic":"t","partition":-1,"offset":12'), PARTITION),
    "partition too great": (record(at='"topic":"t","partition":2147483648,"offset":12'), PARTITION),
    "partition null": (record(at='"topic":"t","partition":null,"offset":12'), PARTITION),
    "no offset": (b'{"topic":"t","partition":3}', OFFSET),
    "offset a string": (record('"offset":"12"'), OFFSET),
    "offset a fraction": (record('"offset":1.5'), OFFSET),
    "offset 1e3": (record('"offset":1e3'), OFFSET),
    "offset below 0": (record('"offset":-1'), OFFSET),
    "offset too great": (record('"offset":9223372036854775808'), OFFSET),
    "offset of a thousand digits": (record('"offset":' + "9" * 990), OFFSET),
    "offset an object": (record('"offset":{}'), OFFSET),
    "time a string": (record('"timestamp":"1795228875344"'), TIME),
    "empty time": (record('"timestamp":""'), TIME),
    "time below -1": (record('"timestamp":-2'), TIME),
    "time after 9999": (record('"timestamp":253402300800000'), TIME),
    "greatest time": (record('"timestamp":9223372036854775807'), TIME),
    "time type 2": (record('"timestampType":2'), TIME_TYPE),
    "time type a string": (record('"timestampType":"0"'), TIME_TYPE),
    "key not base64": (record('"key":"secret!"'), KEY),
    "key without padding": (record('"key":"YQ"'), KEY),
    "key in the URL alphabet": (record('"key":"-_-_"'), KEY),
    "key a number": (record('"key":1234'), KEY),
    "value an array": (record('"value":[1]'), VALUE),
    "value not base64": (record('"value":"a"'), VALUE),
    "headers an object": (record('"headers":{}'), HEADERS),
    "headers text": (record('"headers":"a"'), HEADERS),
    "headers flat": (record('"headers":["a","b"]'), HEADERS),
    "header null": (record('"headers":[null]'), HEADERS),
    "header a number": (record('"headers":[{"key":"a"},5]'), HEADERS),
    "header without key": (record('"headers":[{"key":"a","value":"YQ=="},{"value":"YQ=="}]'), HEADERS),
    "header key null": (record('"headers":[{"key":null,"value":"YQ=="}]'), HEADERS),
    "header key a number": (record('"headers":[{"key":"a"},{"key":5}]'), HEADERS),
    "header key a number beyond all doubles": (record('"headers":[{"key":1E400}]'), HEADERS),
    "header key false": (record('"headers":[{"key":false}]'), HEADERS),
    "header key an object": (record('"headers":[{"key":{"a":1}}]'), HEADERS),
    "header value a number": (record('"headers":[{"key":"a","value":1234}]'), HEADERS),
    "header value not base64": (record('"headers":[{"key":"a","value":"YQ=="},{"key":"b","value":"%"}]'), HEADER_VALUE),
    "half a pair in a name": (record(r'"headers":[{"key":"\ud800"}]'), HALF),
    "other half": (record(r'"headers":[{"key":"x\uDC00\ud83d\ude00"}]'), HALF),
    "half a pair in a topic": (record(at=r'"topic":"\uDBFF","partition":3,"offset":12'), HALF),
    "half a pair behind backslashes": (record(r'"headers":[{"key":"\\\ud800"}]'), HALF),
    "not UTF-8": (record('"headers":[{"key":"')[:-1] + b'\xff"}]}', "the line is not UTF-8"),
    "surrogate as bytes": (record('"headers":[{"key":"')[:-1] + b'\xed\xa0\x80"}]}', "the line is not UTF-8"),
    "both forms": (record('"payload":"x","value":"YQ=="'), "the line mixes the capture form with kcat's JSON"),
    "kcat, odd headers": (record('"payload":"x","headers":["a"]'), KCAT_HEADERS),
    "kcat, header a number": (record('"payload":"x","headers":["a",5]'), KCAT_HEADERS),
    "kcat, header without name": (record('"payload":"x","headers":["a","b",null,"c"]'), KCAT_HEADERS),
    "kcat, headers a map": (record('"payload":"x","headers":{"a":["b"]}'), KCAT_HEADERS),
    "kcat, offset a string": (record('"payload":"x","offset":"12"'), OFFSET),
    "kcat, topic a number": (record('"payload":"x","topic":5'), TOPIC),
    "kcat, time a string": (record('"payload":"x","tstype":"create","ts":"0"'), TIME),
    "kcat, time after 9999": (record('"payload":"x","ts":253402300800000'), TIME),
    "kcat, other time type": (record('"payload":"x","tstype":"new"'), "tstype is none of create, logappend, unknown"),
    "kcat, payload that Avro failed on": (
        record('"payload":null,"payload_error":"x","tstype":"create"'),
        "kcat could not decode the payload",
    ),
    "kcat, key that Avro failed on": (
        record('"key":null,"key_error":"x","tstype":"create"'),
        "kcat could not decode the key",
    ),
}


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[str, Row]:
    cases = [(name, line, None) for cases in (READABLE, UNREADABLE) for name, (line, _) in cases.items()]
    lines = spark.createDataFrame(
        [*cases, ("a.gz", None, "The gzip file ends too early."), ("b.gz", None, "Other.")], SCHEMA
    )
    return by_source(parse(lines, load(cluster="north")))


def by_source(parsed: DataFrame) -> dict[str, Row]:
    """Collect the rows by source, with timestamps in milliseconds, because Python's times depend on the local zone."""
    return {row["_source"]: row for row in parsed.withColumn("timestamp", F.unix_millis("timestamp")).collect()}


def plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [(header["key"], plain(header["value"])) for header in value]
    return value


@pytest.mark.parametrize("case", READABLE)
def test_a_record_is_read(rows: dict[str, Row], case: str) -> None:
    row, (line, expected) = rows[case], READABLE[case]
    expected = EXPECTED | expected
    assert (row["error"], plain(row["raw"])) == (None, None if expected["form"] == "capture" else line)
    assert {name: plain(row[name]) for name in expected} == expected
    assert row["_bronze_id"] == hashlib.sha256(line).hexdigest()


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_line_that_is_no_record_lands_as_it_is_with_its_error(rows: dict[str, Row], case: str) -> None:
    row, (line, error) = rows[case], UNREADABLE[case]
    assert (row["error"], plain(row["raw"])) == (error, line)
    assert row["_bronze_id"] == hashlib.sha256(line).hexdigest()
    parts = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
    assert [row[part] for part in parts] == [None] * len(parts)
    assert (row["lossy_encoding"], row["form"]) == (False, None)


def test_damage_of_a_file_lands_as_an_error_known_by_file_and_damage(rows: dict[str, Row]) -> None:
    row = rows["a.gz"]
    assert (row["error"], row["raw"], row["topic"]) == ("The gzip file ends too early.", None, None)
    assert row["_bronze_id"] == hashlib.sha256(b"a.gz\nThe gzip file ends too early.").hexdigest()
    assert rows["b.gz"]["_bronze_id"] != row["_bronze_id"]


def test_every_row_names_the_cluster(rows: dict[str, Row]) -> None:
    assert {row["cluster"] for row in rows.values()} == {"north"}


def test_columns_are_the_contracts(spark: SparkSession) -> None:
    parsed = parse(spark.createDataFrame([], SCHEMA), load())
    promised = spark.createDataFrame([], ", ".join(f"`{column.name}` {column.type}" for column in CONTRACT.columns))
    assert [(field.name, field.dataType) for field in parsed.schema] == [
        (field.name, field.dataType) for field in promised.schema if field.name not in ADDED_BY_THE_RUN
    ]


def test_a_line_is_parsed_once_in_each_form_not_once_per_column(spark: SparkSession) -> None:
    parsed = parse(
        spark.range(3)
        .selectExpr("'a' _source", "cast(id as string) line", "'' damage")
        .selectExpr("_source", "cast(line as binary) line", "damage"),
        load(),
    )
    plan = parsed._jdf.queryExecution().executedPlan().toString()
    assert plan.count("from_json(") == 3


def test_a_record_of_a_topic_is_a_row_of_the_same_columns(spark: SparkSession) -> None:
    given = {
        "_source": "kafka:dlq.orders/bvpWvblvQLKULzhDKq4URw/3",
        "_bronze_id": "an id",
        "topic": "dlq.orders",
        "topic_id": "bvpWvblvQLKULzhDKq4URw",
        "partition": 3,
        "offset": 12,
        "timestamp": None,
        "timestamp_type": 0,
        "key": b"\xff",
        "value": None,
        "headers": [("h", None)],
    }
    types = {column.name: column.type for column in CONTRACT.columns}
    schema = ", ".join(f"`{name}` {types[name]}" for name in given)
    (row,) = parse_records(spark.createDataFrame([tuple(given.values())], schema), load(cluster="east")).collect()
    assert row.__fields__ == [column.name for column in CONTRACT.columns if column.name not in ADDED_BY_THE_RUN]
    added = {"cluster": "east", "lossy_encoding": False, "raw": None, "error": None, "form": None}
    found = row.asDict(recursive=True)
    assert {name: found[name] for name in added} == added
    assert {name: plain(row[name]) for name in ("key", "value", "headers")} == {
        "key": b"\xff",
        "value": None,
        "headers": [("h", None)],
    }
    assert [found[name] for name in ("_source", "_bronze_id", "topic_id", "partition", "offset")] == [
        given[name] for name in ("_source", "_bronze_id", "topic_id", "partition", "offset")
    ]


@pytest.fixture(scope="module")
def captured(spark: SparkSession) -> dict[str, list[tuple[bytes, Row]]]:
    raw = {file.name: file.read_bytes().splitlines() for file in CAPTURES}
    lines = [(f"{name}:{at}", line, None) for name, of_file in raw.items() for at, line in enumerate(of_file)]
    found = by_source(parse(spark.createDataFrame(lines, SCHEMA), load()))
    return {name: [(line, found[f"{name}:{at}"]) for at, line in enumerate(raw[name])] for name in raw}


@pytest.mark.parametrize("name", [file.name for file in CAPTURES])
def test_what_a_broker_wrote_is_read_byte_for_byte(captured: dict[str, list[tuple[bytes, Row]]], name: str) -> None:
    def decoded(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text, validate=True)

    assert captured[name]
    for line, row in captured[name]:
        said = json.loads(line)
        assert (row["error"], row["raw"], row["lossy_encoding"]) == (None, None, False)
        assert (row["topic"], row["partition"], row["offset"]) == (said["topic"], said["partition"], said["offset"])
        assert row["timestamp_type"] == said["timestampType"]
        assert row["timestamp"] == said["timestamp"]
        assert (plain(row["key"]), plain(row["value"])) == (decoded(said["key"]), decoded(said["value"]))
        assert plain(row["headers"]) == [(header["key"], decoded(header["value"])) for header in said["headers"]]
