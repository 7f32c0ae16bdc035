"""One dead letter as text and JSON, over real Delta tables that are written without Spark."""

from __future__ import annotations

import base64
import hmac
import json
import struct
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorSet

from pipelines.commands import show
from pipelines.errors import UsageError
from pipelines.jvm import session
from pipelines.settings import Settings, load
from pipelines.warehouse.tables import Warehouse
from tests.testing.deliveries import at, store

KEY = "k" * 16
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "email", "type": ["null", "string"]},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}
RECORD = {"id": 7, "email": "ada@example.org", "total": Decimal("12.50")}


def letter(offset: int = 5, **more: Any) -> dict[str, Any]:
    """A row of silver.dlq_records."""
    return {
        "_source": "a.jsonl",
        "_bronze_id": "a" * 64,
        "_ingested_at": at(60),
        "cluster": "default",
        "dlq_topic": "dlq.orders",
        "dlq_partition": 0,
        "dlq_offset": offset,
        "dlq_timestamp": at(9),
        "header_profile": "kip-1317",
        "disposition": "CLIENT_REJECTED",
        "disposition_source": "header",
        "original_topic": "orders",
        "original_partition": 0,
        "original_offset": 7,
        "consumer_group": "orders-workers",
        "delivery_count": 3,
        "error_message": "Offset rejected by client.",
        "routed_at": at(4),
        "routed_at_source": "header",
        "payload_copied": True,
        "control_marker_suspected": False,
        "key": b"customer-1",
        "value": b'{"id": 7, "total": 12.50}',
        **more,
    }


def shown(settings: Settings, wanted: str = "dlq.orders:0:5", **options: Any) -> str:
    said = show.answer(Warehouse(settings), wanted, **options)
    assert said.exit_code == 0
    return said.result


def facts(settings: Settings, wanted: str = "dlq.orders:0:5") -> dict[str, Any]:
    result = shown(settings, wanted, form="json")
    assert "\n" not in result
    read: dict[str, Any] = json.loads(result)
    return read


def under(settings: Settings, **values: Any) -> Settings:
    """The same places under other settings."""
    return load(warehouse=settings.warehouse, landing=settings.landing, **values)


def test_a_dead_letter_is_shown_whole(settings: Settings) -> None:
    headers = [
        {"key": "traceparent", "value": b"00-4bf9"},
        {"key": "flag", "value": None},
        {"key": "n", "value": b"\xff"},
    ]
    hop = {"profile": "spring-kafka", "topic": "orders", "partition": 0, "offset": 3, "consumer_group": "g"}
    store(
        settings,
        show.SILVER,
        letter(
            user_headers=headers,
            earlier_hops=[hop],
            exception_class="com.example.Bad",
            exception_cause_class="java.io.IOException",
            exception_stacktrace="com.example.Bad: no\n\tat a.B.c(B.java:1)\n",
        ),
        letter(cluster="second", value=b"another cluster's"),
    )
    assert shown(settings).splitlines() == [
        "dlq.orders:0:5",
        "  dead-lettered    2026-11-21T02:00:04.000Z, as its header says",
        "  profile          kip-1317",
        "  disposition      CLIENT_REJECTED, its headers say so",
        "  group            orders-workers",
        "  source           orders:0:7",
        "  deliveries       3",
        "  error            com.example.Bad, caused by java.io.IOException",
        "                   Offset rejected by client.",
        "  stack trace",
        "    com.example.Bad: no",
        "        at a.B.c(B.java:1)",
        "  user headers",
        "    traceparent = 00-4bf9",
        "    flag = null",
        "    n = 0xff",
        "  earlier hops",
        "    orders:0:3 by g (spring-kafka)",
        "  key, 10 bytes, text",
        "    customer-1",
        "  value, 25 bytes, JSON",
        "    {",
        '      "id": 7,',
        '      "total": 12.50',
        "    }",
    ]


def test_json_has_all_of_it(settings: Settings) -> None:
    store(settings, show.SILVER, letter(key=b"\xff\0", user_headers=[{"key": "a", "value": b"b"}]))
    told = facts(settings)
    assert (told["topic"], told["partition"], told["offset"], told["state"]) == ("dlq.orders", 0, 5, "accepted")
    assert told["routed_at"] == "2026-11-21T02:00:04.000Z"
    assert told["key"] == {"bytes": 2, "base64": base64.b64encode(b"\xff\0").decode(), "text": None}
    assert told["value"]["text"] == '{"id": 7, "total": 12.50}'
    assert base64.b64decode(told["value"]["base64"]) == b'{"id": 7, "total": 12.50}'
    assert (told["value"]["form"], told["value"]["data"]) == ("JSON", {"id": 7, "total": 12.5})
    assert told["user_headers"] == [{"name": "a", "base64": "Yg==", "text": "b"}]


@pytest.mark.parametrize(
    ("content", "shown_as", "lines"),
    [
        pytest.param(b"a\tb\nc", "auto", ["key, 5 bytes, text", "  a   b", "  c"], id="text"),
        pytest.param(b"42", "auto", ["key, 2 bytes, text", "  42"], id="a number alone is text"),
        pytest.param(b"42", "json", ["key, 2 bytes, JSON", "  42"], id="a number as JSON"),
        pytest.param(b"\0\1", "auto", ["key, 2 bytes, hex", f"  00000000  {'00 01':<47}  |..|"], id="bytes"),
        pytest.param(b"[1]", "text", ["key, 3 bytes, text", "  [1]"], id="JSON as text"),
        pytest.param(b"[1]", "hex", ["key, 3 bytes, hex", f"  00000000  {'5b 31 5d':<47}  |[1]|"], id="JSON as hex"),
        pytest.param(b"no", "json", ["key, 2 bytes, text", "  It is not JSON.", "  no"], id="text as JSON"),
        pytest.param(b'{"a":1,"a":2}', "auto", ["key, 13 bytes, text", '  {"a":1,"a":2}'], id="a name twice"),
        pytest.param(b"\x1b[2J\xe2\x80\xae", "text", ["key, 7 bytes, text", r"  \u001b[2J\u202e"], id="hostile text"),
        pytest.param(
            b'["\xe2\x80\xae"]', "auto", ["key, 7 bytes, JSON", "  [", r'    "\u202e"', "  ]"], id="hostile JSON"
        ),
        pytest.param(b"\xff", "text", ["key, 1 byte, text", r"  \xff"], id="text that is not UTF-8"),
        pytest.param(b"", "auto", ["key, 0 bytes: it is empty"], id="empty"),
        pytest.param(None, "auto", ["key, null"], id="null"),
        pytest.param(
            b'\0\0\0\0\x2a{"a":1}',
            "auto",
            ["key, 12 bytes, JSON, schema id 42", "  {", '    "a": 1', "  }"],
            id="JSON with a schema id",
        ),
        pytest.param(
            b"\0\0\0\0\x2a\xff",
            "auto",
            [
                "key, 6 bytes, hex",
                "  If it is in Confluent's wire format, its schema id is 42: a [[schema]] can decode it.",
                f"  00000000  {'00 00 00 00 2a ff':<47}  |....*.|",
            ],
            id="bytes with a schema id",
        ),
    ],
)
def test_how_a_payload_is_shown(settings: Settings, content: bytes | None, shown_as: str, lines: list[str]) -> None:
    store(settings, show.SILVER, letter(key=content))
    text = shown(settings, shown_as=shown_as).splitlines()
    begin = next(at for at, line in enumerate(text) if line.startswith("  key"))
    end = next(at for at, line in enumerate(text) if line.startswith("  value"))
    assert [line[2:] for line in text[begin:end]] == [lines[0], *(f"  {line[2:]}" for line in lines[1:])]


def test_what_is_long_is_cut_and_said_to_be(settings: Settings) -> None:
    trace = "\n".join(f"at {number}" for number in range(80))
    header = {"key": "h", "value": b"h" * 500}
    store(
        settings,
        show.SILVER,
        letter(key=b"\xff" * 1000, value=b"x" * 9000, exception_stacktrace=trace, user_headers=[header]),
    )
    text = shown(settings)
    assert "    This is cut: 12 of 80 lines. --full shows all." in text
    assert "    This is cut: 4,000 of 9,000 characters. --full shows all." in text
    assert "    This is cut: 512 of 1,000 bytes. --full shows all." in text
    assert "… This is cut: it has 500 bytes. --full shows all." in text
    whole = shown(settings, full=True)
    assert "This is cut" not in whole
    assert "x" * 9000 in whole
    assert "h" * 500 in whole
    assert "at 79" in whole


def test_a_payload_that_was_never_copied_is_no_null(settings: Settings) -> None:
    store(settings, show.SILVER, letter(key=None, value=None, payload_copied=False))
    text = shown(settings)
    assert text.endswith("  key and value\n    They were never copied: the broker wrote headers only.")
    assert "null" not in text
    assert facts(settings)["payload_copied"] is False


def test_hostile_text_does_nothing_to_a_terminal(settings: Settings) -> None:
    evil = "\x1b[2J\u202e\n\x9b"
    texts = ("consumer_group", "error_message", "exception_class", "exception_stacktrace", "disposition", "stage")
    headers = [{"key": evil, "value": evil.encode()}]
    hop = {"profile": evil, "topic": evil, "partition": None, "offset": None, "consumer_group": evil}
    row = letter(**dict.fromkeys(texts, evil), user_headers=headers, earlier_hops=[hop], original_topic=evil)
    store(settings, show.SILVER, row)
    for result in (shown(settings), shown(settings, form="json"), shown(settings, full=True)):
        assert result.replace("\n", "").isprintable()


def test_a_quarantined_one_says_why(settings: Settings) -> None:
    store(settings, show.SILVER)
    violations = ["original_offset.decimal_int64", "grain.conflict", "header_profile.mandatory"]
    store(settings, show.QUARANTINE, letter(violations=violations, missing_fields=["original_topic"]))
    text = shown(settings)
    assert "  quarantined      original_offset.decimal_int64: the record had an offset that is no decimal int64" in text
    assert "grain.conflict: the table holds a record of this place with other content, which stands" in text
    assert "mandatory fields without a value: original_topic" in text
    told = facts(settings)
    assert (told["state"], told["violations"], told["missing_fields"]) == (
        "quarantined",
        violations,
        ["original_topic"],
    )


def test_a_held_one_says_that_it_is_held(settings: Settings) -> None:
    store(settings, show.SILVER)
    store(settings, show.HELD, letter(scope="dlq.orders"))
    assert "  held             its topic broke the contract of silver.dlq_records" in shown(settings)
    assert facts(settings)["state"] == "held"


def test_the_table_goes_before_its_quarantine_and_the_newest_row_before_others(settings: Settings) -> None:
    store(settings, show.QUARANTINE, letter(violations=["grain.conflict"], value=b"other"))
    store(
        settings,
        show.SILVER,
        letter(value=b"old", dlq_topic_id="old"),
        letter(value=b"new", dlq_topic_id="new", _ingested_at=at(99)),
    )
    said = show.answer(Warehouse(settings), "dlq.orders:0:5")
    assert "    new" in said.result
    assert said.remarks == ("2 rows are known at this place: this is the newest, whose topic id is new.",)


def test_the_place_of_a_source_record_names_its_dead_letters(settings: Settings) -> None:
    store(settings, show.SILVER, letter(5), letter(6), letter(7, original_offset=8))
    store(settings, show.HELD, letter(9, scope="dlq.orders"))
    said = show.answer(Warehouse(settings), "orders:0:7")
    assert said.exit_code == 1
    assert said.result == (
        "No dead letter is known at orders:0:7 in cluster 'default'. It is the place of a source record, whose dead "
        "letters are dlq.orders:0:5, dlq.orders:0:6, dlq.orders:0:9."
    )
    told = json.loads(show.answer(Warehouse(settings), "orders:0:7", "json").result)
    assert [row["offset"] for row in told["dead_letters"]] == [5, 6, 9]


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        pytest.param("dlq.order:0:5", " Did you mean 'dlq.orders'?", id="topic"),
        pytest.param("dlq.orders:0:9", " The dead letters of this partition have offsets 5 to 6.", id="offset"),
        pytest.param("dlq.orders:3:5", " No dead letter of partition 3 is known.", id="partition"),
        pytest.param("payments:0:1", " No dead letter of this topic is known: what lands in", id="nothing alike"),
    ],
)
def test_what_is_not_there_is_said_with_a_hint(settings: Settings, wanted: str, hint: str) -> None:
    store(settings, show.SILVER, letter(5), letter(6))
    said = show.answer(Warehouse(settings), wanted)
    assert said.exit_code == 1
    assert said.result.startswith(f"No dead letter is known at {wanted} in cluster 'default'.{hint}")


@pytest.mark.parametrize(
    "wanted", ["", "dlq.orders", "dlq.orders:0", "dlq.orders:0:-1", ":0:1", "t:0:99999999999999999999"]
)
def test_what_is_no_place_is_refused(settings: Settings, wanted: str) -> None:
    with pytest.raises(UsageError, match="is not the place of a dead letter: write it like"):
        show.answer(Warehouse(settings), wanted)


def test_a_warehouse_without_the_table_is_refused(settings: Settings) -> None:
    with pytest.raises(UsageError, match=r"There is no table silver\.dlq_records"):
        show.answer(Warehouse(settings), "dlq.orders:0:5")


def test_the_answer_needs_no_jvm(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "spark_session", None)
    store(settings, show.SILVER, letter())
    assert shown(settings)
    assert show.answer(Warehouse(settings), "dlq.order:0:5").exit_code == 1


# --- schema files --------------------------------------------------------------------------------------------------


def avro(record: dict[str, Any] = RECORD) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(ORDER), record)
    return stream.getvalue()


@pytest.fixture
def avsc(tmp_path: Path) -> str:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    return str(tmp_path / "order.avsc")


def descriptors() -> FileDescriptorSet:
    """The descriptors of ``message Other {} message Order { int64 id; string email; message Line { string sku } }``."""
    files = FileDescriptorSet()
    file = files.file.add(name="order.proto", package="pkg", syntax="proto3")
    file.message_type.add(name="Other")
    order = file.message_type.add(name="Order")
    order.field.add(
        name="id", number=1, type=FieldDescriptorProto.TYPE_INT64, label=FieldDescriptorProto.LABEL_OPTIONAL
    )
    order.field.add(
        name="customer_email",
        number=2,
        type=FieldDescriptorProto.TYPE_STRING,
        label=FieldDescriptorProto.LABEL_OPTIONAL,
    )
    order.nested_type.add(name="Line").field.add(
        name="sku", number=1, type=FieldDescriptorProto.TYPE_STRING, label=FieldDescriptorProto.LABEL_OPTIONAL
    )
    return files


@pytest.fixture
def desc(tmp_path: Path) -> str:
    (tmp_path / "order.desc").write_bytes(descriptors().SerializeToString())
    return str(tmp_path / "order.desc")


def proto(name: str = "pkg.Order", **fields: Any) -> bytes:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptors().file:
        pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    content: bytes = kind(**fields).SerializeToString()
    return content


def framed(schema_id: int, content: bytes) -> bytes:
    return b"\0" + struct.pack(">i", schema_id) + content


@pytest.mark.parametrize("frame", [False, True], ids=["plain", "Confluent's wire format"])
def test_avro_is_decoded(settings: Settings, avsc: str, frame: bool) -> None:
    content = framed(42, avro()) if frame else avro()
    store(settings, show.SILVER, letter(value=content))
    settings = under(settings, schema=[{"topic": "ord*", "file": avsc}])
    told = facts(settings)["value"]
    assert told["data"] == {"id": 7, "email": "ada@example.org", "total": 12.5}
    assert (told["form"], told.get("schema_id")) == ("Avro", 42 if frame else None)
    text = shown(settings)
    assert '      "total": 12.50' in text
    assert ("schema id 42" in text) == frame


@pytest.mark.parametrize(
    ("content", "indexes"),
    [
        pytest.param(proto(id=7, customer_email="ada@example.org"), None, id="plain"),
        pytest.param(proto(id=7, customer_email="ada@example.org"), b"\x02\x02", id="the second message of its file"),
    ],
)
def test_protobuf_is_decoded(settings: Settings, desc: str, content: bytes, indexes: bytes | None) -> None:
    content = content if indexes is None else framed(42, indexes + content)
    store(settings, show.SILVER, letter(value=content))
    settings = under(settings, schema=[{"topic": "orders", "file": desc, "message": "pkg.Order"}])
    assert facts(settings)["value"]["data"] == {"id": "7", "customer_email": "ada@example.org"}


def test_a_schema_is_for_a_part_a_topic_and_an_id(settings: Settings, avsc: str, desc: str) -> None:
    store(
        settings,
        show.SILVER,
        letter(5, key=framed(1, avro()), value=framed(2, b"\4\2\0" + proto("pkg.Order.Line", sku="s"))),
    )
    store(settings, show.SILVER, letter(6, original_topic="payments", value=avro()))
    settings = under(
        settings,
        schema=[
            {"topic": "orders", "file": desc, "message": "pkg.Order"},
            {"topic": "orders", "file": desc, "message": "pkg.Order.Line", "id": 2},
            {"topic": "orders", "part": "key", "file": avsc, "id": 1},
        ],
    )
    told = facts(settings)
    assert (told["key"]["form"], told["value"]["data"]) == ("Avro", {"sku": "s"})
    assert "form" not in facts(settings, "dlq.orders:0:6")["value"]


@pytest.mark.parametrize(
    ("schema", "content", "why"),
    [
        pytest.param({}, avro()[:-3], "it ends too early", id="Avro that ends too early"),
        pytest.param({}, avro() + b"secret", "6 bytes would be left over", id="Avro with bytes behind it"),
        pytest.param({}, b'{"id": "secret"}', "It does not decode as Avro", id="JSON on a topic of Avro"),
        pytest.param({"id": 3}, framed(4, avro()), "It may have schema id 4, and no [[schema]]", id="another id"),
        pytest.param({"id": 3}, avro(), "It has no schema id, and no [[schema]]", id="no id"),
    ],
)
def test_avro_that_does_not_decode_is_hex_and_says_why(
    settings: Settings, avsc: str, schema: dict[str, Any], content: bytes, why: str
) -> None:
    store(settings, show.SILVER, letter(value=content))
    settings = under(settings, schema=[{"topic": "orders", "file": avsc, **schema}])
    heading, remark, first, *_ = shown(settings).partition("  value, ")[2].splitlines()
    assert heading == f"{len(content)} bytes, hex"
    assert why in remark
    assert "secret" not in remark
    assert first.startswith("    00000000  ")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(b"\xff\xff secret", "its bytes do not fit the message", id="no message"),
        pytest.param(b"\x9a\x05\x01s", "the message has none of its fields", id="fields of another message"),
        pytest.param(framed(42, b"\0" + proto(id=7)), "its header names message pkg.Other", id="another message"),
        pytest.param(framed(42, b"\x80"), "it ends within the indexes of its message", id="no indexes"),
    ],
)
def test_protobuf_that_does_not_decode_is_hex_and_says_why(
    settings: Settings, desc: str, content: bytes, why: str
) -> None:
    store(settings, show.SILVER, letter(value=content))
    settings = under(settings, schema=[{"topic": "orders", "file": desc, "message": "pkg.Order"}])
    heading, remark, *_ = shown(settings).partition("  value, ")[2].splitlines()
    assert heading.endswith("hex")
    assert f"It does not decode as Protobuf ({desc}, message pkg.Order): {why}." == remark.strip()


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        pytest.param(
            {"file": "/nowhere/a.avsc"}, "cannot be read: /nowhere/a.avsc: No such file or directory.", id="no file"
        ),
        pytest.param(
            {"file": "{tmp}/order.desc", "message": "pkg.Ordr"},
            "has no message pkg.Ordr. Did you mean 'pkg.Order'",
            id="message",
        ),
        pytest.param({"file": "{tmp}/broken.avsc"}, "broken.avsc is not an Avro schema.", id="no Avro schema"),
        pytest.param(
            {"file": "{tmp}/broken.desc", "message": "a"}, "is not a whole FileDescriptorSet", id="no descriptors"
        ),
    ],
)
def test_a_schema_file_that_cannot_be_used_is_said(
    settings: Settings, tmp_path: Path, desc: str, schema: dict[str, str], sentence: str
) -> None:
    for name in ("broken.avsc", "broken.desc"):
        (tmp_path / name).write_text("no schema")
    store(settings, show.SILVER, letter())
    named = {name: text.replace("{tmp}", str(tmp_path)) for name, text in schema.items()}
    with pytest.raises(UsageError, match=r"The schema file|file of \[\[schema\]\]") as raised:
        shown(under(settings, schema=[{"topic": "orders", **named}]))
    assert sentence in str(raised.value)


def hashed(secret: bytes) -> str:
    return f"<hashed {hmac.new(KEY.encode(), secret, 'sha256').hexdigest()[:12]}…>"


# --- masks ---------------------------------------------------------------------------------------------------------


def test_masks_apply_to_all_that_is_shown(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLQ_HASH_KEY", KEY)
    value = b'{"customer": {"email": "ada@example.org", "card": "4111111111111234"}, "total": 1.50}'
    headers = [{"key": "X-Customer", "value": b"ada"}, {"key": "trace", "value": b"4bf9"}]
    store(settings, show.SILVER, letter(value=value, user_headers=headers, error_message="bad ada@example.org"))
    settings = under(
        settings,
        privacy_key={"hash_key_env": "DLQ_HASH_KEY"},
        privacy=[
            {"path": "$.customer.email", "do": "hash"},
            {"path": "$.customer.card", "do": "last:4"},
            {"header": "x-cust*", "do": "drop"},
            {"key": True, "do": "hash"},
            {"error": True, "do": "drop"},
        ],
    )
    text = shown(settings)
    assert text.splitlines()[7:] == [
        "  error            <dropped>",
        "  user headers",
        "    X-Customer = <dropped>",
        "    trace = 4bf9",
        "  key, masked",
        f"    {hashed(b'customer-1')}",
        "  value, masked, JSON",
        "    {",
        '      "customer": {',
        f'        "email": "{hashed(b"ada@example.org")}",',
        '        "card": "…1234"',
        "      },",
        '      "total": 1.50',
        "    }",
    ]
    assert "A mask hides parts of it, so it is shown as JSON." in shown(settings, shown_as="hex")
    told = facts(settings)
    assert told["key"] == {"base64": None, "text": hashed(b"customer-1"), "masked": True}
    assert json.loads(told["value"]["text"]) == told["value"]["data"]
    assert told["value"]["base64"] is None
    assert told["user_headers"][0] == {"name": "X-Customer", "base64": None, "text": "<dropped>", "masked": True}


def test_a_path_leads_into_avro_and_protobuf(settings: Settings, avsc: str, desc: str) -> None:
    store(settings, show.SILVER, letter(5, value=framed(1, avro())))
    store(settings, show.SILVER, letter(6, original_topic="proto", value=proto(id=7, customer_email="ada@example.org")))
    settings = under(
        settings,
        schema=[
            {"topic": "orders", "file": avsc},
            {"topic": "proto", "file": desc, "message": "pkg.Order"},
        ],
        privacy=[{"path": "$.email", "do": "drop"}, {"path": "$.customerEmail", "do": "drop"}],
    )
    assert facts(settings)["value"]["data"] == {"id": 7, "email": "<dropped>", "total": 12.5}
    assert facts(settings, "dlq.orders:0:6")["value"]["data"] == {"id": "7", "customer_email": "<dropped>"}


def test_without_the_key_of_hashes_nothing_is_shown(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DLQ_HASH_KEY", raising=False)
    store(settings, show.SILVER, letter())
    settings = under(settings, privacy_key={"hash_key_env": "DLQ_HASH_KEY"}, privacy=[{"key": True, "do": "hash"}])
    with pytest.raises(UsageError, match="the environment variable DLQ_HASH_KEY is not set") as raised:
        shown(settings)
    assert raised.value.exit_code == 2
