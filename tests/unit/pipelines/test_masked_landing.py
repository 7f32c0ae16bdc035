"""Masks at landing: what they hide is in no file of a warehouse, and what is shown is what masks would have shown."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as parquet  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pipelines.errors import UsageError
from pipelines.masked_landing import Landing
from pipelines.payloads import Masked
from pipelines.settings import load
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import kip_1191, land, line, run, text, warehouse_of
from tests.testing.examples import at_most
from tests.unit.pipelines.test_privacy import KEY, masks

SECRET = b"4111222233334444"
BRONZE, SILVER = "bronze.dlq_records", "silver.dlq_records"
RULES: dict[str, dict[str, Any]] = {
    "key": {"key": True},
    "value": {"value": True},
    "header x-card*": {"header": "x-card*"},
    "$.card": {"path": "$.card"},
    "$.cards[*].number": {"path": "$.cards[*].number"},
    "error": {"error": True},
}
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "card", "type": "string"}]}


def avro(secret: str) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), {"card": secret})
    return out.getvalue()


VALUES = [
    *(None, b"", SECRET, b"\xff" + SECRET, avro(SECRET.decode())),
    json.dumps({"card": SECRET.decode(), "id": 1}).encode(),
    json.dumps({"cards": [{"number": SECRET.decode()}, {"number": None}]}).encode(),
]


def bronze(**more: Any) -> dict[str, Any]:
    """A row of bronze that a broker wrote for a share group."""
    headers = [{"key": name, "value": value} for name, value in kip_1191()]
    row = {"topic": "dlq.orders", "error": None, "key": b"k", "value": b"v", "headers": headers, "raw": b"line"}
    return row | {"masked": None, "lossy_encoding": False} | more


def landed(row: dict[str, Any], *rules: dict[str, Any]) -> dict[str, Any]:
    return Landing(masks(*(rule | {"at": "landing"} for rule in rules))).hidden(row)


def is_same(shown: bytes, value: bytes | None) -> bool:
    """Tell whether two texts are the same JSON."""
    try:
        return bool(json.loads(shown) == json.loads(value or b""))
    except ValueError:
        return False


@at_most(150)
@given(
    rules=st.lists(st.sampled_from(sorted(RULES)), min_size=1, max_size=4),
    do=st.sampled_from(["drop", "hash"]),
    key=st.sampled_from([None, b"", b"k", SECRET, b"\xff" + SECRET]),
    value=st.sampled_from(VALUES),
    own=st.sampled_from([(), ("x-card-number",), ("X-Card", "springDeserializerExceptionValue")]),
    topic=st.sampled_from(["orders", "payments", None]),
    glob=st.sampled_from(["*", "orders", "pay*"]),
)
def test_what_a_mask_hides_is_gone_and_shown_as_masks_show_it(
    rules: list[str], do: str, key: bytes | None, value: bytes | None, own: tuple[str, ...], topic: str, glob: str
) -> None:
    sets = kip_1191(topic=topic, message=f"bad card {SECRET.decode()}") if topic else []
    headers = [{"key": name, "value": content} for name, content in (*sets, *((name, SECRET) for name in own))]
    row = bronze(key=key, value=value, headers=headers)
    chosen = [RULES[name] | {"do": do, "topic": glob} for name in rules]
    found = landed(row, *chosen)

    applies = topic is None or glob in ("*", topic) or (glob == "pay*" and topic == "payments")
    showing = masks(*(rule | {"at": "showing"} for rule in chosen))
    known = {"original_topic": topic, "earlier_hops": []} if topic else {}
    shown = showing.record({**row, **known})
    for part in ("key", "value"):
        hidden = isinstance(shown[part], Masked)
        wanted = str(shown[part]).encode() if hidden else row[part]
        if part == "value" and hidden and is_same(wanted, row[part]):  # a path that leads to nothing
            wanted = row[part]
        assert found[part] == (None if part == "key" and wanted == b"<dropped>" else wanted)
    for before, after, as_shown in zip(headers, found["headers"], shown["headers"], strict=True):
        assert after["key"] == before["key"]
        assert after["value"] == (str(as_shown["value"]).encode() if as_shown != before else before["value"])
    targets = found["masked"] or []
    assert set(targets) <= set(rules)
    assert (found["raw"], found["lossy_encoding"]) == ((None, True) if targets else (b"line", False))
    if not applies:
        assert found == row

    # Shown again with the same settings, nothing is masked a second time.
    again = masks(*(rule | {"at": "landing"} for rule in chosen)).record({**found, **known})
    assert {part: again[part] for part in ("key", "value", "headers")} == {
        part: found[part] for part in ("key", "value", "headers")
    } or not set(rules) <= {*targets}


def test_headers_that_tell_the_place_stay_unless_named_in_full() -> None:
    row = bronze()
    found = landed(row, {"header": "*", "do": "drop"})
    changed = [new["key"] for old, new in zip(row["headers"], found["headers"], strict=True) if old != new]
    assert changed == ["__dlq.errors.message"]
    found = landed(row, {"header": "__dlq.errors.group", "do": "drop"})
    assert [row["value"] for row in found["headers"] if row["key"] == "__dlq.errors.group"] == [b"<dropped>"]


def test_of_a_line_that_cannot_be_read_nothing_is_kept() -> None:
    row = bronze(error="the line is not a JSON object", key=None, value=None, headers=None, raw=SECRET)
    found = landed(row, {"topic": "elsewhere", "key": True, "do": "drop"})
    assert found == row | {"raw": None, "masked": ["line"]}


def test_a_payload_by_schema_is_written_as_json(tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER))
    schema = {"schema": [{"topic": "orders", "file": str(file)}]}
    rule = {"path": "$.card", "do": "last:4", "at": "landing"}
    its = masks(rule, **schema)
    found = Landing(its).hidden(bronze(value=avro(SECRET.decode())))
    assert (found["value"], found["masked"]) == ('{"card":"…4444"}'.encode(), ["$.card"])
    record = {**found, "original_topic": "orders", "earlier_hops": []}
    payload = its.payload(record, "value")
    assert (payload.form, payload.data, payload.is_undecodable) == ("JSON", {"card": "…4444"}, False)


def test_the_first_mask_of_a_target_counts() -> None:
    row = bronze(headers=[*bronze()["headers"], {"key": "x-a", "value": SECRET}])
    found = landed(row, {"header": "x-a", "do": "last:4"}, {"header": "x-*", "do": "drop"})
    assert found["headers"][-1] == {"key": "x-a", "value": "…4444".encode()}
    assert found["masked"] == ["header x-a"]


def test_nothing_that_masks_hide_is_in_any_file(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = [
        {"path": "$.card", "do": "hash", "at": "landing"},
        {"header": "x-*", "do": "drop", "at": "landing"},
        {"key": True, "do": "hash", "at": "landing"},
        {"topic": "orders", "error": True, "do": "drop", "at": "landing"},
    ]
    settings = warehouse_of(
        empty_warehouse, tmp_path, privacy=rules, privacy_key={"hash_key_env": "AN_OWN_KEY"}, tolerance=1.0
    )
    value = json.dumps({"card": SECRET.decode(), "id": 7}).encode()
    headers = [*kip_1191(message=f"card {SECRET.decode()}"), ("x-card", SECRET)]
    kcat = json.dumps(
        {"topic": "dlq.orders", "partition": 0, "offset": 50, "ts": 1795228875344, "tstype": "create"}
        | {"key": SECRET.decode(), "payload": value.decode(), "headers": ["__dlq.errors.topic", "orders"]}
    )
    lines = [*(line(number, key=SECRET, value=value, headers=headers) for number in range(3)), kcat]
    broken = f"no JSON, but {SECRET.decode()}"
    land(settings, {"a.jsonl": [*lines, line(9, value=value, headers=headers[1:]), broken]})
    with pytest.raises(UsageError, match="AN_OWN_KEY is not set"):
        run(spark, settings, BRONZE)
    monkeypatch.setenv("AN_OWN_KEY", KEY)
    done = run(spark, settings, BRONZE, SILVER)
    assert (done[BRONZE].read, done[BRONZE].accepted) == (6, 6)
    tables = Warehouse(settings)
    kept = jvmless.rows(tables, SILVER, {"cluster": "default"})
    assert {row["dlq_offset"] for row in kept} >= {0, 1, 2}
    for row in kept:
        assert set(row["masked"]) >= {"$.card", "key"}
        assert json.loads(row["value"])["card"].startswith("<hashed ")
    assert len({bytes(row["key"]) for row in kept}) == 1
    forms = (SECRET, text(SECRET).encode()[:-4], SECRET.hex().encode())  # type: ignore[union-attr]
    looked_at = 0
    for file in (tmp_path / "warehouse").rglob("*"):
        if not file.is_file():
            continue
        looked_at += 1
        content = file.read_bytes()
        if file.suffix == ".parquet":
            content += repr(parquet.read_table(file).to_pylist()).encode()
        assert not any(form in content for form in forms), file
    assert looked_at > 20
    # The same files again, by a warehouse that lost its progress, change nothing.
    for file in (tmp_path / "warehouse" / "_progress").rglob("*dlq_records*"):
        file.unlink()
    run(spark, settings, BRONZE, SILVER)
    assert len(jvmless.rows(tables, SILVER, {"cluster": "default"})) == len(kept)


def test_at_names_one_of_two() -> None:
    with pytest.raises(UsageError, match="at"):
        load(privacy=[{"key": True, "do": "drop", "at": "never"}])
