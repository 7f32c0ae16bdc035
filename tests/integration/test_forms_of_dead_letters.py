"""Each form of dead letters, as its tool writes it, and what bronze makes of it."""

from __future__ import annotations

import base64
import gzip
import io
import json
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cramjam
import fastavro
import pyarrow as arrow
import pyarrow.parquet
import pytest
from pyspark.sql import functions as F

from expectations.bronze.dlq_records import CONTRACT
from pipelines.bronze.dlq_records import parse
from pipelines.catalog import stages
from pipelines.run import runner
from pipelines.settings import Settings, load
from pipelines.sources import captures, landing
from pipelines.sources.captures import FORMS
from pipelines.steps.failing_rows import first_lines
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

Headers = list[tuple[str, bytes | None]]
RECORD: dict[str, Any] = {
    **{"topic": "orders.DLT", "partition": 3, "offset": 12, "timestamp": 1795228875344, "timestamp_type": 0},
    **{"key": b"k-1", "value": b'{"id":1}', "headers": [("reason", b"broken"), ("attempts", b"3")]},
}


def read(spark: SparkSession, directory: Path, files: dict[str, bytes]) -> dict[str, list[Row]]:
    """Land files and return bronze's rows by file, in the order of their offsets."""
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    lines = landing.lines(spark, directory, list(landing.listing(directory).values()))
    rows = parse(lines, load()).withColumn("timestamp", F.unix_millis("timestamp")).collect()
    found: dict[str, list[Row]] = {name: [] for name in files}
    for row in sorted(rows, key=lambda row: -1 if row["offset"] is None else row["offset"]):
        found[row["_source"]].append(row)
    return found


def record_of(row: Row) -> dict[str, Any]:
    """Return a row's record, and the error in its place if it has one."""
    if row["error"] is not None:
        return {"error": row["error"]}
    found = {name: bytes(row[name]) if isinstance(row[name], bytearray) else row[name] for name in RECORD}
    found["headers"] = [
        (values["key"], None if values["value"] is None else bytes(values["value"])) for values in row["headers"]
    ]
    return found


def text_of(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("iso-8859-1")


def base64_of(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()


def dumped(said: Any, **options: Any) -> bytes:
    return json.dumps(said, ensure_ascii=False, **{"separators": (",", ":"), **options}).encode(
        "utf-8", "surrogatepass"
    )


def capture(record: dict[str, Any]) -> bytes:
    headers = [{"key": name, "value": base64_of(value)} for name, value in record["headers"]]
    return dumped(
        {name: record[name] for name in ("topic", "partition", "offset", "timestamp")}
        | {"timestampType": record["timestamp_type"], "key": base64_of(record["key"])}
        | {"value": base64_of(record["value"]), "headers": headers}
    )


def kcat(record: dict[str, Any]) -> bytes:
    """Write a record as kcat -J does (its json.c, with yajl): bytes are written raw into strings."""
    headers = [part for name, value in record["headers"] for part in (text_of(name.encode()), text_of(value))]
    said = {name: record[name] for name in ("topic", "partition", "offset")}
    said |= {"tstype": ("create", "logappend")[record["timestamp_type"]], "ts": record["timestamp"], "broker": 1}
    said |= {"headers": headers, "key": text_of(record["key"]), "payload": text_of(record["value"])}
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode("iso-8859-1")


def spark_json(record: dict[str, Any]) -> bytes:
    said = json.loads(capture(record)) | {"timestamp": iso(record["timestamp"], "Z")}
    return dumped(dict(sorted(said.items(), reverse=True)))


def iso(millis: int, zone: str) -> str:
    shift = timedelta(hours=int(zone[:3])) if zone != "Z" else timedelta()
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis) + shift
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}{zone}"


def rpk(record: dict[str, Any], **options: Any) -> bytes:
    """Write a record as ``rpk topic consume`` does (consume.go): in its own order, without empty fields."""
    said = {"topic": record["topic"], "key": utf_8(record["key"]), "value": utf_8(record["value"])}
    said |= {"headers": [{"key": name, "value": utf_8(value) or ""} for name, value in record["headers"]]}
    said = {name: value for name, value in said.items() if value}
    return dumped(said | {name: record[name] for name in ("timestamp", "partition", "offset")}, **options)


def utf_8(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "replace")


def printed(record: dict[str, Any]) -> bytes:
    """Write a record as kafka-console-consumer does, with all print options (DefaultMessageFormatter.java)."""
    headers = b",".join(
        name.encode() + b":" + (b"null" if value is None else value) for name, value in record["headers"]
    )
    kind = ("CreateTime", "LogAppendTime")[record["timestamp_type"]]
    coordinates = f"{kind}:{record['timestamp']}\tPartition:{record['partition']}\tOffset:{record['offset']}\t".encode()
    parts = (
        headers or b"NO_HEADERS",
        *(b"null" if item is None else item for item in (record["key"], record["value"])),
    )
    return coordinates + b"\t".join(parts)


def confluent(record: dict[str, Any]) -> dict[str, Any]:
    """Write a record as Confluent Cloud downloads it (samples in vdesabou/kafka-docker-playground)."""
    said = {name: record[name] for name in ("topic", "partition", "offset", "timestamp")}
    headers = [{"key": name, "stringValue": utf_8(value)} for name, value in record["headers"]]
    said |= {"timestampType": ("CREATE_TIME", "LOG_APPEND_TIME")[record["timestamp_type"]], "headers": headers}
    return said | {"key": utf_8(record["key"]), "value": utf_8(record["value"]), "__confluent_index": 0}


def kafbat(record: dict[str, Any]) -> bytes:
    """Write a record as Kafbat UI saves it (frontend, Message.tsx)."""
    said = {"Value": utf_8(record["value"]), "Offset": record["offset"], "Key": utf_8(record["key"])}
    said |= {"Partition": record["partition"], "Headers": {name: utf_8(value) for name, value in record["headers"]}}
    return dumped(said | {"Timestamp": iso(record["timestamp"], "Z")}, indent="\t")


def kafkactl(record: dict[str, Any], **more: Any) -> bytes:
    """Write a record as ``kafkactl consume --print-all -o json`` does (MessagePrinter.go): without headers if none."""
    said = {"Partition": record["partition"], "Offset": record["offset"], **more, "Key": utf_8(record["key"])}
    return dumped(said | {"Value": utf_8(record["value"]), "Timestamp": iso(record["timestamp"], "+01:00")})


def redpanda_console(record: dict[str, Any]) -> dict[str, Any]:
    """Write a record as Redpanda Console saves it with raw data (save-messages-dialog.tsx)."""

    def payload(raw: bytes | None) -> dict[str, Any]:
        said = {"payload": utf_8(raw or b""), "rawPayload": base64_of(raw), "encoding": "text", "schemaId": 0}
        return said | {"isPayloadNull": raw is None, "size": len(raw or b"")}

    said = {"partitionID": record["partition"], "offset": record["offset"], "timestamp": record["timestamp"]}
    said |= {"compression": "uncompressed", "isTransactional": False}
    said["headers"] = [{"key": name, "value": payload(value)} for name, value in record["headers"]]
    return said | {"key": payload(record["key"]), "value": payload(record["value"])}


def kafka_row(record: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the columns of Spark's Kafka source."""
    said = {name: record[name] for name in ("key", "value", "topic", "partition", "offset")}
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=record["timestamp"])
    headers = [{"key": name, "value": value} for name, value in record["headers"]]
    return said | {"timestamp": at, "timestampType": record["timestamp_type"], "headers": headers}


def parquet(records: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    header = arrow.struct([("key", arrow.string()), ("value", arrow.binary())])
    fields = [
        ("key", arrow.binary()),
        ("value", arrow.binary()),
        ("topic", arrow.string()),
        ("partition", arrow.int32()),
    ]
    fields += [("offset", arrow.int64()), ("timestamp", arrow.timestamp("us", "UTC")), ("timestampType", arrow.int32())]
    schema = arrow.schema([*fields, ("headers", arrow.list_(header))])
    pyarrow.parquet.write_table(arrow.Table.from_pylist([kafka_row(record) for record in records], schema), file)
    return file.getvalue()


def avro(records: list[dict[str, Any]]) -> bytes:
    header = {
        "type": "record",
        "name": "Header",
        "fields": [
            {"name": "key", "type": "string"},
            {"name": "value", "type": ["null", "bytes"]},
        ],
    }
    fields = [{"name": name, "type": ["null", "bytes"]} for name in ("key", "value")]
    fields += [{"name": "topic", "type": "string"}, {"name": "partition", "type": "int"}]
    fields += [{"name": "offset", "type": "long"}, {"name": "timestampType", "type": "int"}]
    fields += [{"name": "timestamp", "type": {"type": "long", "logicalType": "timestamp-millis"}}]
    fields += [{"name": "headers", "type": {"type": "array", "items": header}}]
    file = io.BytesIO()
    schema = fastavro.parse_schema({"type": "record", "name": "Record", "fields": fields})
    fastavro.writer(file, schema, [kafka_row(record) for record in records])
    return file.getvalue()


def joined(write: Callable[[dict[str, Any]], bytes]) -> Callable[[list[dict[str, Any]]], bytes]:
    return lambda records: b"".join(write(record) + b"\n" for record in records)


NO_TYPE = {"timestamp_type": None}
WRITERS: dict[str, tuple[str, Callable[[list[dict[str, Any]]], bytes], dict[str, Any], bool]] = {
    "a.jsonl": ("capture", joined(capture), {}, False),
    "spark.json": ("spark", joined(spark_json), {}, False),
    "kcat.jsonl": ("kcat", joined(kcat), {}, False),
    "rpk.jsonl": ("rpk", joined(rpk), NO_TYPE, True),
    "pretty.json": ("rpk", joined(lambda record: rpk(record, indent=2, separators=(",", ": "))), NO_TYPE, True),
    "orders.DLT.txt": ("console-consumer", joined(printed), {}, True),
    "confluent.json": (
        "confluent",
        lambda records: dumped([confluent(record) for record in records], indent=2),
        {},
        False,
    ),
    "orders.DLT/messages.json": (
        "redpanda-console",
        lambda records: dumped([redpanda_console(record) for record in records], indent=4),
        NO_TYPE,
        False,
    ),
    "orders.DLT/topic-message.json": ("kafbat", joined(kafbat), NO_TYPE, True),
    "a.parquet": ("parquet", parquet, {}, False),
    "a.avro": ("avro", avro, {}, False),
    "one line.json": ("capture", lambda records: b"[" + b",".join(map(capture, records)) + b"]", {}, False),
    "a.zst": ("capture", lambda records: bytes(cramjam.zstd.compress(joined(capture)(records))), {}, False),
    "zstd without a suffix": ("kcat", lambda records: bytes(cramjam.zstd.compress(joined(kcat)(records))), {}, False),
    "gzip without a suffix": ("kcat", lambda records: gzip.compress(joined(kcat)(records)), {}, False),
    "pretty.gz": (
        "capture",
        lambda records: gzip.compress(dumped([json.loads(capture(record)) for record in records], indent=1)),
        {},
        False,
    ),
}


def records_of(chance: random.Random, is_text: bool) -> list[dict[str, Any]]:
    """Return random records; as text they have what all forms can keep."""

    def raw() -> bytes:
        if is_text:
            return "".join(chance.choices('abc é€😀 "\\/{}[]', k=chance.randrange(1, 12))).encode()
        return chance.choice(
            (chance.randbytes(chance.randrange(20)), b"", b'\xff\x00\n\t\x7f\x80"\\', "\ufffd€".encode()[3:])
        )

    def record(offset: int) -> dict[str, Any]:
        headers: Headers = [(f"h{place}", raw()) for place in range(chance.randrange(1, 4))]
        if not is_text and chance.random() < 0.3:
            headers.append(("h0", None))
        said = RECORD | {"offset": offset, "partition": chance.randrange(9), "timestamp_type": chance.randrange(2)}
        key = raw() if is_text or chance.random() < 0.8 else None
        value = raw() if is_text or chance.random() < 0.8 else None
        return said | {
            "timestamp": 1795228875344 + chance.randrange(10**6),
            "key": key,
            "value": value,
            "headers": headers,
        }

    return [record(offset) for offset in range(40)]


@pytest.fixture(scope="module")
def texts(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[dict[str, Any]], dict[str, list[Row]]]:
    records = records_of(random.Random(1), is_text=True)
    files = {name: write(records) for name, (_, write, _, _) in WRITERS.items()}
    return records, read(spark, tmp_path_factory.mktemp("texts"), files)


@pytest.mark.parametrize("name", WRITERS)
def test_records_written_in_a_form_are_read_back(
    texts: tuple[list[dict[str, Any]], dict[str, list[Row]]], name: str
) -> None:
    form, _, lost, is_lossy = WRITERS[name]
    records, found = texts
    assert [record_of(row) for row in found[name]] == [record | lost for record in records]
    assert {(row["form"], row["lossy_encoding"]) for row in found[name]} == {(form, is_lossy)}
    assert {row["raw"] is None for row in found[name]} == {form == "capture"}


def test_each_form_that_lands_is_tried() -> None:
    assert {form for form, *_ in WRITERS.values()} == set(FORMS)


EXACT = (
    "a.jsonl",
    "spark.json",
    "kcat.jsonl",
    "a.parquet",
    "a.avro",
    "orders.DLT/messages.json",
    "gzip without a suffix",
)


def test_forms_that_keep_bytes_keep_each_byte(spark: SparkSession, tmp_path: Path) -> None:
    records = records_of(random.Random(2), is_text=False)
    found = read(spark, tmp_path, {name: WRITERS[name][1](records) for name in EXACT})
    for name in EXACT:
        assert [record_of(row) for row in found[name]] == [record | WRITERS[name][2] for record in records], name
        assert not any(row["lossy_encoding"] for row in found[name]), name


STACK_TRACE = b"java.lang.IllegalStateException: no, really\n\tat a.B.c(B.java:7)\n\t... 3 more\n"
AT = b"CreateTime:1795228875344\tPartition:3\tOffset:12\t"
TIME = "timestamp is not a time"
LOOKS = "the line looks like a console consumer's output"
CASES: dict[str, tuple[bytes, dict[str, Any]]] = {
    "spark/Z.json": (spark_json(RECORD), RECORD),
    "spark/0.json": (spark_json(RECORD).replace(b"344Z", b"344+00:00"), RECORD),
    "spark/1.json": (
        spark_json(RECORD).replace(iso(RECORD["timestamp"], "Z").encode(), iso(RECORD["timestamp"], "+0100").encode()),
        RECORD,
    ),
    "spark/2.json": (
        spark_json(RECORD).replace(iso(RECORD["timestamp"], "Z").encode(), iso(RECORD["timestamp"], "+01:00").encode()),
        RECORD,
    ),
    "spark/seconds.json": (spark_json(RECORD).replace(b".344Z", b"Z"), RECORD | {"timestamp": 1795228875000}),
    "spark/no zone.json": (spark_json(RECORD).replace(b"344Z", b"344"), {"error": TIME}),
    "spark/no time.json": (spark_json(RECORD).replace(b"2026-", b"2026-2026-"), {"error": TIME}),
    "spark/bad header.json": (
        spark_json(RECORD).replace(b'"Mw=="', b'"%"'),
        {"error": "a header's value is not base64"},
    ),
    "spark/bad key.json": (spark_json(RECORD).replace(b'"ay0x"', b'"ay0"'), {"error": "key is not base64"}),
    "kcat/escaped by another tool.json": (
        json.dumps(json.loads(kcat(RECORD | {"key": b"k"})) | {"key": "é€😀"}).encode(),
        RECORD | {"key": "é€😀".encode()},
    ),
    "kcat/escapes and bytes.json": (
        kcat(RECORD | {"key": b"\xff"}).replace(b"k-1", b"").replace(b"broken", rb"\u00e9"),
        {"error": "the line mixes bytes that are not UTF-8 with escapes of characters"},
    ),
    "kcat/a backslash before u.json": (kcat(RECORD | {"key": b"\xff\\u00e9"}), RECORD | {"key": b"\xff\\u00e9"}),
    "kcat/half a pair behind a backslash.json": (
        kcat(RECORD | {"key": b"\\ud800\xff"}),
        RECORD | {"key": b"\\ud800\xff"},
    ),
    "rpk/base64 by chance.json": (
        rpk(RECORD | {"key": b"abcd", "value": b"abcd", "headers": []}),
        RECORD | NO_TYPE | {"key": b"abcd", "value": b"abcd", "headers": []},
    ),
    "rpk/no value.json": (
        rpk(RECORD).replace(b'"value":"{\\"id\\":1}"', b'"value_size":8'),
        {"error": "rpk left out the value, with --meta-only"},
    ),
    "orders.DLT/stack trace": (
        printed(RECORD | {"headers": [("trace", STACK_TRACE), ("x", b"1")], "value": b"a\nb"}),
        RECORD | {"headers": [("trace", STACK_TRACE), ("x", b"1")], "value": b"a\nb"},
    ),
    "orders.DLT/stack trace last": (
        printed(RECORD | {"headers": [("trace", STACK_TRACE)]}),
        RECORD | {"headers": [("trace", STACK_TRACE)]},
    ),
    "orders.DLT/bytes": (
        printed(RECORD | {"key": b"\xff\x80", "value": b"\xfe"}),
        RECORD | {"key": b"\xff\x80", "value": b"\xfe"},
    ),
    "orders.DLT/nulls": (
        printed(RECORD | {"headers": [], "key": None, "value": None}),
        RECORD | {"headers": [], "key": None, "value": None},
    ),
    "orders.DLT/no time": (
        AT.replace(b"CreateTime:1795228875344", b"NO_TIMESTAMP") + b"k\tv",
        RECORD | {"timestamp": None, "timestamp_type": None, "headers": [], "key": b"k", "value": b"v"},
    ),
    "orders.DLT/value only": (AT + b"v", RECORD | {"headers": [], "key": None, "value": b"v"}),
    "orders.DLT/headers without key": (
        AT + b"a:1,b:2\tv",
        RECORD | {"headers": [("a", b"1"), ("b", b"2")], "key": None, "value": b"v"},
    ),
    "orders.DLT/a header or a key": (
        AT + b"order:17\tv",
        {"error": f"{LOOKS} that may hold a key or a header: print both, with print.key and print.headers"},
    ),
    "orders.DLT/tabs": (
        AT + b"NO_HEADERS\tk\tv\tw",
        {"error": f"{LOOKS} with a tab in a key, a value or a header: land it as lines of kcat -J"},
    ),
    "orders.DLT/no offset": (AT.replace(b"Offset:12\t", b"") + b"k\tv", {"error": f"{LOOKS} without print.offset"}),
    "orders.DLT/no partition": (
        AT.replace(b"Partition:3\t", b"") + b"k\tv",
        {"error": f"{LOOKS} without print.partition"},
    ),
    "orders.DLT/headers alone": (
        b"NO_HEADERS\tk\tv",
        {"error": f"{LOOKS} without print.partition and print.offset"},
    ),
    "orders.DLT/two headers": (b"a:1,b:2\tk\tv", {"error": f"{LOOKS} without print.partition and print.offset"}),
    "orders.DLT/farther offset": (
        AT.replace(b"12", b"9" * 9_000) + b"k\tv",
        {"error": "offset is not a whole number from 0 to 9223372036854775807"},
    ),
    "orders.DLT/far offset": (
        AT.replace(b"12", b"9" * 30) + b"k\tv",
        {"error": "offset is not a whole number from 0 to 9223372036854775807"},
    ),
    "2026/11/orders.DLT.txt.gz": (gzip.compress(printed(RECORD)), RECORD),
    "export.txt": (
        printed(RECORD),
        {"error": captures.UNNAMED},
    ),
    "a.DLT/b.DLT/c.txt": (
        printed(RECORD),
        {"error": captures.UNNAMED},
    ),
    "orders.DLT/kafkactl.json": (
        kafkactl(RECORD, Headers={"attempts": "3", "reason": "broken"}),
        RECORD | NO_TYPE | {"headers": RECORD["headers"][::-1]},
    ),
    "orders.DLT/kafkactl without headers.json": (kafkactl(RECORD), RECORD | NO_TYPE | {"headers": []}),
    "values.avro": (
        avro([])[:0] or dumped({"id": 1}),
        {"error": "the line is in none of the forms that land: it has no topic, partition and offset"},
    ),
}


@pytest.fixture(scope="module")
def cases(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Row]]:
    return read(spark, tmp_path_factory.mktemp("cases"), {name: content for name, (content, _) in CASES.items()})


@pytest.mark.parametrize("name", CASES)
def test_what_a_tool_wrote_is_read_or_told(cases: dict[str, list[Row]], name: str) -> None:
    assert [record_of(row) for row in cases[name]] == [CASES[name][1]]


LOST: dict[str, tuple[bytes, bool]] = {
    "U+FFFD": (kcat(RECORD | {"key": "\ufffd".encode()}), True),
    "escaped U+FFFD": (kcat(RECORD).replace(b"k-1", rb"\uFFFD"), True),
    "decoded Avro": (kcat(RECORD).replace(b'"key"', b'"value_schema_id":7,"key"'), True),
    "orders.DLT/kafkactl": (kafkactl(RECORD), False),
    "orders.DLT/kafkactl, decoded Avro": (kafkactl(RECORD, valueSchemaId=7), True),
    "a name that is not UTF-8": (kcat(RECORD).replace(b"reason", b"\xff"), True),
    "confluent, U+FFFD": (dumped(confluent(RECORD | {"value": b"\xff"})), True),
    "confluent, an object": (dumped(confluent(RECORD) | {"value": {"id": 1}}), True),
    "bytes": (kcat(RECORD | {"key": b"\xff"}), False),
}


def test_what_is_lost_is_marked(spark: SparkSession, tmp_path: Path) -> None:
    found = read(spark, tmp_path, {name: line for name, (line, _) in LOST.items()})
    assert {name: row["lossy_encoding"] for name, (row,) in found.items()} == {
        name: lost for name, (_, lost) in LOST.items()
    }


DAMAGED = {
    "cut.zst": (
        bytes(cramjam.zstd.compress(random.Random(1).randbytes(50_000).hex().encode()))[:-9],
        "The zstd file is damaged",
    ),
    "text.zst": (b"{}\n", "The file is not zstd"),
    "cut.parquet": (parquet([RECORD])[:-9], "The Parquet or Avro file is damaged"),
    "cut.avro": (avro([RECORD])[:-9], "The Parquet or Avro file is damaged"),
    "packed.avro.gz": (gzip.compress(avro([RECORD])), "The file holds Parquet or Avro, and is compressed"),
    "cut.json.gz": (
        gzip.compress(dumped([json.loads(capture(RECORD))] * 9, indent=1))[:-9],
        "The gzip file ends too early",
    ),
}


def test_damage_is_told_by_file_after_what_is_readable(spark: SparkSession, tmp_path: Path) -> None:
    found = read(spark, tmp_path, {name: content for name, (content, _) in DAMAGED.items()})
    for name, (_, sentence) in DAMAGED.items():
        (told,) = [row["error"] for row in found[name] if row["raw"] is None and row["error"] is not None]
        assert told.startswith(sentence), name
        assert told in landing.DAMAGES
    assert record_of(found["cut.json.gz"][-1]) == RECORD
    files = list(landing.listing(tmp_path).values())
    assert set(landing.damaged(tmp_path, files)) == set(DAMAGED)


BROKEN = b'{\n  "topic": "t,\n  "partition": 1\n}\n'


def test_a_broken_object_hides_no_other(spark: SparkSession, tmp_path: Path) -> None:
    sound = rpk(RECORD, indent=2)
    found = read(spark, tmp_path, {"a.json": sound + b"\n" + BROKEN + b"{\n" + sound + b"\nnoise\n" + sound[:-2]})[
        "a.json"
    ]
    assert sorted(str(record_of(row).get("error")) for row in found) == [
        *["None"] * 2,
        "the line is not a JSON object",
        *["the line is not valid JSON"] * 3,
    ]


def test_each_row_is_found_again_in_its_file(spark: SparkSession, tmp_path: Path) -> None:
    records = [RECORD | {"offset": offset} for offset in range(3)]
    found = read(spark, tmp_path, {name: write(records) for name, (_, write, _, _) in WRITERS.items()})
    for name, rows in found.items():
        wanted = [frozenset({row["_bronze_id"][:16]}) for row in rows]
        assert first_lines(landing.content(str(tmp_path), name), wanted, 1 << 30)[0] == [
            [(number, number)] for number in (1, 2, 3)
        ], name


def test_mutated_lines_break_nothing_and_are_all_kept(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(3)
    writers = [
        capture,
        spark_json,
        kcat,
        rpk,
        lambda item: dumped(confluent(item)),
        lambda item: dumped(redpanda_console(item)),
    ]
    writers += [printed, lambda item: dumped(json.loads(kafbat(item)))]
    lines = set()
    for record in records_of(chance, is_text=False) + records_of(chance, is_text=True):
        for write in writers:
            line = bytearray(write(record))
            for _ in range(chance.randrange(1, 6)):
                at = chance.randrange(len(line))
                line[at : at + chance.randrange(4)] = chance.choice(
                    (b"", b'"', b"\xff", b"null", b"{", b"}", b"\\u00e9", b"\t", b"-1", b"1e9")
                )
            lines.add(bytes(line).replace(b"\n", b" "))
    kept = sorted(line for line in lines if line.strip())
    found = read(spark, tmp_path, {"orders.DLT/a": b'{"first":1}\n' + b"\n".join(kept)})["orders.DLT/a"]
    assert len(found) == len(kept) + 1
    assert all(bytes(row["raw"]) in lines for row in found if row["form"] != "capture" and b"first" not in row["raw"])
    assert all((row["topic"] is None) == (row["error"] is not None) == (row["form"] is None) for row in found)


def test_the_run_says_which_forms_it_recognised(spark: SparkSession, settings: Settings) -> None:
    warehouse = Warehouse(settings, spark)
    old = replace(CONTRACT, columns=tuple(column for column in CONTRACT.columns if column.name != "form"))
    warehouse.ensure_all([old])
    messages = []
    for content in (
        {"plain.jsonl": capture(RECORD)},
        {
            "kcat.jsonl": kcat(RECORD | {"offset": 1}) + b"\nnoise",
            "rpk.json": joined(rpk)(records_of(random.Random(4), True)),
        },
    ):
        for name, raw in content.items():
            file = settings.landing_of("dlq") / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(raw)
        (done,) = runner.run(warehouse, stages("dlq", layer="bronze"))
        messages.append((done.message, done.warns))
    assert messages == [
        ("1 new or changed file", False),
        ("2 new or changed files; recognised rpk 40, kcat 1", True),
    ]
