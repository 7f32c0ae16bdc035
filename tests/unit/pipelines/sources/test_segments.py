"""Batches as Kafka itself decodes them, every format, every kind of damage, in bounded memory."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import re
import struct
import tracemalloc
import zlib
from functools import partial
from pathlib import Path

import cramjam
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from pipelines.settings import ROOT
from pipelines.sources.record_batches import ERRORS, Batch, batches
from pipelines.sources.segments import SCHEMA
from tests.testing.segments import (
    AT,
    assembled,
    batch,
    control,
    lz4_stored,
    marker,
    message,
    record,
    snappy_java,
    unframed_snappy,
    wrapped,
)

DATA = ROOT / "tests" / "data"
MIB = 1 << 20


def read(segment: bytes, base_offset: int = 0) -> list[Batch]:
    return list(batches(io.BytesIO(segment), len(segment), base_offset))


def alone(segment: bytes) -> Batch:
    (found,) = read(segment)
    return found


def errors(segment: bytes, base_offset: int = 0) -> list[tuple[int, str | None, int | None]]:
    return [(found.position, found.error, found.unread_bytes) for found in read(segment, base_offset)]


def spans(segment: bytes) -> list[tuple[int | None, int | None]]:
    return [(found.base_offset, found.last_offset) for found in read(segment) if found.error is None]


def longer_than_said(segment: bytes) -> bytes:
    """A single message whose value is one byte longer than its length field says."""
    said = struct.unpack(">i", segment[30:34])[0]
    body = with_bytes(segment, 30, struct.pack(">i", said - 1))[16:]
    return segment[:12] + struct.pack(">I", zlib.crc32(body)) + body


def with_empty_block(data: bytes) -> bytes:
    framed = snappy_java(data)
    return framed[:16] + b"\0\0\0\1\0" + framed[16:]


def with_bytes(segment: bytes, at: int, data: bytes) -> bytes:
    return segment[:at] + data + segment[at + len(data) :]


# --- as Kafka reads them --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition", ["batches-0", "batches.logappend-0", "batches.open-0"])
def test_batches_equal_kafkas_own_decoding(partition: str) -> None:
    decoded = [json.loads(line) for line in (DATA / "decoded" / f"{partition}.jsonl").read_text().splitlines()]
    segment = (DATA / "segments" / partition / f"{0:020}.log").read_bytes()

    found = read(segment)

    assert [
        {
            "filePosition": batch.position,
            "sizeInBytes": batch.size_in_bytes,
            "baseOffset": batch.base_offset,
            "lastOffset": batch.last_offset,
            "magic": batch.magic,
            "attributes": f"0x{batch.attributes or 0:04x}",
            "compression": batch.compression,
            "timestampType": batch.timestamp_type,
            "isTransactional": batch.is_transactional,
            "isControlBatch": batch.is_control,
            "producerId": batch.producer_id,
            "producerEpoch": batch.producer_epoch,
            "baseSequence": batch.base_sequence,
            "lastSequence": batch.last_sequence,
            "leaderEpoch": batch.partition_leader_epoch,
            "maxTimestamp": batch.max_timestamp,
            "crc": batch.crc,
        }
        for batch in found
    ] == [{name: value for name, value in batch.items() if name != "records"} for batch in decoded]
    assert [(batch.record_count, batch.control_type, batch.control_key) for batch in found] == [
        (
            len(batch["records"]),
            batch["records"][0].get("controlType"),
            base64.b64decode(batch["records"][0].get("keyBase64", "")) or None,
        )
        for batch in decoded
    ]
    created = [
        (batch.base_timestamp, truth["records"][0]["timestamp"])
        for batch, truth in zip(found, decoded, strict=True)
        if batch.timestamp_type == "CreateTime"
    ]
    assert all(base == first for base, first in created)
    assert all(batch.header == segment[batch.position : batch.position + 61] for batch in found)
    assert {(batch.error, batch.crc_ok, batch.unread_bytes) for batch in found} == {(None, True, None)}


def test_columns_of_rows_are_those_of_batches() -> None:
    names = re.findall(r"(\w+) (?:string|bigint|int|binary|boolean)", SCHEMA)
    assert names == ["_source", "topic", "partition", *Batch._fields, "version", "kept_bytes"]


# --- every format ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codec_of_a_batch_is_read_from_its_attributes(codec: str) -> None:
    found = alone(batch(40, 3, codec=codec, producer=(9, 2, 5), leader_epoch=4))
    assert (found.error, found.compression, found.magic) == (None, codec, 2)
    assert (found.base_offset, found.last_offset, found.record_count) == (40, 42, 3)
    assert (found.producer_id, found.producer_epoch, found.base_sequence, found.last_sequence) == (9, 2, 5, 7)
    assert (found.partition_leader_epoch, found.base_timestamp, found.max_timestamp) == (4, AT, AT + 2)


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        pytest.param(0x08, {"timestamp_type": "LogAppendTime"}, id="log append time"),
        pytest.param(0x10, {"is_transactional": True}, id="transactional"),
        pytest.param(0x40, {"has_delete_horizon": True}, id="delete horizon"),
        pytest.param(0xFF80, {}, id="bits without a meaning"),
    ],
)
def test_flags_of_a_batch(flags: int, names: dict[str, object]) -> None:
    plain = {"timestamp_type": "CreateTime", "is_transactional": False, "is_control": False}
    plain |= {"has_delete_horizon": False, "compression": "none", "error": None}
    found = alone(batch(0, flags=flags))._asdict()
    assert {name: found[name] for name in plain} == plain | names


def test_sequence_numbers_go_on_at_zero() -> None:
    assert alone(batch(0, 3, producer=(1, 0, 2**31 - 2))).last_sequence == 0


def test_a_compacted_batch_keeps_its_offsets() -> None:
    emptied = alone(batch(5, records=[], record_count=0, last_delta=9))
    assert (emptied.error, emptied.base_offset, emptied.last_offset, emptied.record_count) == (None, 5, 14, 0)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_alone(magic: int) -> None:
    found = alone(message(7, magic, b"value", key=b"key"))
    assert (found.error, found.magic, found.crc_ok, found.compression) == (None, magic, True, "none")
    assert (found.base_offset, found.last_offset, found.record_count) == (7, 7, 1)
    times = {0: ("NoTimestampType", -1, -1), 1: ("CreateTime", AT, AT)}
    assert (found.timestamp_type, found.base_timestamp, found.max_timestamp) == times[magic]
    assert (found.producer_id, found.producer_epoch, found.base_sequence, found.last_sequence) == (-1, -1, -1, -1)
    assert found.header == message(7, magic, b"value", key=b"key")[: 26 if magic else 18]


@pytest.mark.parametrize("key", [None, b"key"], ids=["no key", "key"])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    ("codec", "pack"),
    [
        pytest.param("gzip", None, id="gzip"),
        pytest.param("snappy", None, id="snappy in Java's framing"),
        pytest.param("snappy", unframed_snappy, id="snappy unframed"),
        pytest.param("lz4", None, id="lz4"),
        pytest.param("lz4", lz4_stored, id="lz4 stored, header's checksum wrong"),
        pytest.param("lz4", partial(lz4_stored, header="04224d18 68 40 0000000000000000 ff"), id="lz4 with a size"),
        pytest.param("snappy", with_empty_block, id="snappy with an empty block"),
    ],
)
def test_messages_compressed_together(magic: int, codec: str, pack: object, key: bytes | None) -> None:
    first = 0 if magic else 100
    values = [b"x" * 70_000, b"", os.urandom(90_000), None]
    inner = b"".join(message(first + index, magic, value, timestamp=AT + index) for index, value in enumerate(values))
    found = alone(wrapped(103, magic, inner, codec, key=key, timestamp=AT + 3, pack=pack))  # type: ignore[arg-type]
    assert (found.error, found.magic, found.compression, found.crc_ok) == (None, magic, codec, True)
    assert (found.base_offset, found.last_offset, found.record_count) == (100, 103, 4)
    assert (found.base_timestamp, found.max_timestamp) == ((AT, AT + 3) if magic else (-1, -1))


def test_offsets_in_a_compacted_message_of_magic_1_count_up_to_the_outer_one() -> None:
    inner = b"".join(message(offset, 1) for offset in (2, 5, 9))
    found = alone(wrapped(29, 1, inner, "gzip"))
    assert (found.base_offset, found.last_offset, found.record_count) == (22, 29, 3)


def test_log_append_time_of_a_compressed_message_is_the_outer_ones() -> None:
    found = alone(wrapped(0, 1, message(0, 1, timestamp=AT), "gzip", attributes=0x08, timestamp=AT + 60_000))
    assert (found.timestamp_type, found.base_timestamp) == ("LogAppendTime", AT + 60_000)


def test_a_message_of_magic_0_in_one_of_magic_1_has_no_timestamp() -> None:
    found = alone(wrapped(0, 1, message(0, 0, b"value"), "gzip"))
    assert (found.error, found.base_timestamp, found.max_timestamp) == (None, -1, AT)


def test_a_compressed_messages_cut_off_last_message_is_not_there() -> None:
    inner = message(0, 1) + message(1, 1) + message(2, 1)[:-1]
    assert alone(wrapped(11, 1, inner, "gzip")).record_count == 2


@pytest.mark.parametrize(
    "segment",
    [
        pytest.param(wrapped(0, 1, b"", "gzip"), id="no message inside"),
        pytest.param(wrapped(1, 1, struct.pack(">qiqi", 0, 0, 1, 0), "gzip"), id="no length inside"),
        pytest.param(
            longer_than_said(message(0, 1, gzip.compress(message(0, 1)) + b"\0", attributes=1)), id="no value's end"
        ),
        pytest.param(wrapped(0, 1, message(0, 1), "zstd"), id="zstd came with magic 2"),
        pytest.param(message(0, 1, b"v", attributes=5), id="codec 5"),
        pytest.param(message(0, 1, None, attributes=1), id="no value"),
        pytest.param(message(0, 1, b"not gzip", attributes=1), id="not gzip"),
        pytest.param(
            wrapped(0, 1, message(0, 1), "gzip", pack=lambda data: zlib.compress(data, wbits=31)[:-9]), id="cut"
        ),
        pytest.param(message(0, 1, b"\xff" * 40, attributes=2), id="not snappy"),
        pytest.param(message(0, 1, b"\xff\xff\xff\xff\x0f" + b"x" * 40, attributes=2), id="snappy of 4 GiB"),
        pytest.param(
            message(0, 1, b"\x82SNAPPY\0" + bytes(8) + b"\x7f\xff\xff\xff", attributes=2), id="block of 2 GiB"
        ),
        pytest.param(message(0, 1, b"\xff" * 40, attributes=3), id="not lz4"),
        pytest.param(
            wrapped(0, 1, message(0, 1), "lz4", pack=lambda data: lz4_stored(data)[:-4]), id="lz4 without an end"
        ),
        *(
            pytest.param(wrapped(0, 1, message(0, 1), "lz4", pack=pack), id=f"lz4 {why}")
            for why, pack in {
                "with dependent blocks": lambda data: bytes(cramjam.lz4.compress(data)),
                "with a dictionary": partial(lz4_stored, header="04224d18 61 40 ff"),
                "of another version": partial(lz4_stored, header="04224d18 a0 40 ff"),
                "of another magic": partial(lz4_stored, header="02214c18 60 40 ff"),
            }.items()
        ),
        pytest.param(
            wrapped(0, 1, message(0, 1, bytes(70_000)), "lz4", pack=partial(lz4_stored, block=65_537)),
            id="lz4 with too large a block",
        ),
        pytest.param(wrapped(3, 1, message(0, 1) + message(9, 1), "gzip"), id="begins below 0"),
        pytest.param(wrapped(3, 0, message(4, 0), "gzip"), id="begins behind its end"),
        pytest.param(message(-5, 1), id="offset below 0"),
        pytest.param(batch(-5), id="base offset below 0"),
        pytest.param(batch(0, last_delta=-1, record_count=0), id="ends before it begins"),
        pytest.param(batch(2**63 - 1, 2), id="offset beyond int64"),
        pytest.param(batch(0, record_count=2), id="more records than offsets"),
        pytest.param(batch(0, record_count=-1), id="less than no record"),
        pytest.param(batch(0, flags=5), id="codec 5 of magic 2"),
    ],
)
def test_a_right_checksum_over_nonsense_is_malformed_and_passed_over(segment: bytes) -> None:
    damaged, following = read(segment + batch(50))
    assert (damaged.error, damaged.crc_ok, damaged.unread_bytes) == ("malformed", True, None)
    assert (following.error, following.base_offset) == (None, 50)


# --- control records ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "value", "kind", "epoch"),
    [
        pytest.param(1, struct.pack(">hi", 0, 0), "COMMIT", 0, id="commit"),
        pytest.param(0, struct.pack(">hi", 0, 41), "ABORT", 41, id="abort"),
        pytest.param(1, b"\0\0", "COMMIT", None, id="short value"),
        pytest.param(1, None, "COMMIT", None, id="no value"),
        pytest.param(2, b"\0" * 20, "2", None, id="leader change"),
        pytest.param(-1, b"", "-1", None, id="number below 0"),
    ],
)
def test_control_records(number: int, value: bytes | None, kind: str, epoch: int | None) -> None:
    found = alone(control(8, number, value, producer=(7, 3)))
    assert (found.error, found.is_control, found.is_transactional) == (None, True, True)
    assert (found.control_type, found.coordinator_epoch) == (kind, epoch)
    assert found.control_key == struct.pack(">hh", 0, number)
    assert (found.producer_id, found.producer_epoch, found.base_sequence, found.last_sequence) == (7, 3, -1, -1)


def test_a_control_batch_that_compaction_emptied_has_no_type() -> None:
    found = alone(batch(4, flags=0x30, producer=(7, 0, -1), records=[], record_count=0))
    assert (found.error, found.is_control, found.control_type, found.control_key) == (None, True, None, None)


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([record(0, b"", None)], id="no key"),
        pytest.param([record(0, b"", b"\0\0\0")], id="a short key"),
        pytest.param([b"\xff" * 40], id="a number that does not end"),
        pytest.param([record(0)[:5]], id="a record cut off"),
        pytest.param([record(0, b"", b"\0" * 5_000)], id="a key beyond all keys"),
        pytest.param([], id="no record"),
    ],
)
def test_a_control_batch_without_its_key_is_malformed(records: list[bytes]) -> None:
    assert alone(batch(0, flags=0x30, records=records, record_count=1)).error == "malformed"


def test_a_control_batch_that_calls_itself_compressed_is_malformed() -> None:
    key = struct.pack(">hh", 0, 1)
    assert alone(batch(0, flags=0x31, records=[record(0, b"", key)])).error == "malformed"


def test_a_value_that_looks_like_a_marker_is_none() -> None:
    data = batch(0, records=[record(0, b"\0" * 6, struct.pack(">hh", 0, 1))])
    assert (alone(data).is_control, alone(data).control_type, alone(data).control_key) == (False, None, None)


# --- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(batch(1, 4), id="magic 2"),
        pytest.param(message(1, 1, b"value"), id="magic 1"),
        pytest.param(message(1, 0, b"value"), id="magic 0"),
        pytest.param(wrapped(4, 1, message(0, 1) + message(3, 1), "gzip"), id="compressed"),
    ],
)
def test_behind_a_wrong_checksum_the_next_batch_is_read(damaged: bytes) -> None:
    flipped = damaged[:-1] + bytes([damaged[-1] ^ 1])
    first, wrong, last = read(batch(0) + flipped + batch(5))
    assert (first.error, last.error) == (None, None)
    assert (wrong.error, wrong.crc_ok, wrong.position, wrong.size_in_bytes) == (
        "wrong_crc",
        False,
        len(batch(0)),
        len(damaged),
    )
    assert wrong.unread_bytes is None


def test_the_base_offset_of_a_compressed_message_under_a_wrong_checksum_is_not_known() -> None:
    found = alone(wrapped(4, 1, message(0, 1), "gzip")[:-1] + b"\xff")
    assert (found.error, found.base_offset, found.last_offset, found.record_count) == ("wrong_crc", None, 4, None)


def test_a_control_record_under_a_wrong_checksum_is_not_believed() -> None:
    data = marker(0, True)
    found = alone(data[:-1] + b"\1")
    assert (found.error, found.control_type) == ("wrong_crc", None)


FOREIGN = assembled(1, b"what a later format holds", magic=9)


def test_an_unknown_magic_before_a_sound_batch_is_passed_over() -> None:
    at = len(batch(0))
    assert errors(batch(0) + FOREIGN + batch(2)) == [
        (0, None, None),
        (at, "unknown_magic", None),
        (at + len(FOREIGN), None, None),
    ]
    unknown = read(batch(0) + FOREIGN + batch(2))[1]
    assert (unknown.magic, unknown.base_offset, unknown.size_in_bytes) == (9, 1, len(FOREIGN))
    assert unknown.header == FOREIGN[:17]


def test_an_unknown_magic_whose_offset_does_not_go_up_ends_the_segment() -> None:
    segment = batch(1) + FOREIGN + batch(2)
    assert errors(segment)[1:] == [(len(batch(1)), "unknown_magic", len(segment) - len(batch(1)))]


def test_an_unknown_magic_at_the_end_is_passed_over() -> None:
    assert errors(FOREIGN) == [(0, "unknown_magic", None)]


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(FOREIGN + batch(3), id="another unknown magic"),
        pytest.param(batch(2)[:-1] + b"\xff", id="a wrong checksum"),
        pytest.param(batch(2)[:-1], id="a torn batch"),
        pytest.param(batch(1), id="an offset that does not go up"),
        pytest.param(b"noise", id="noise"),
    ],
)
def test_an_unknown_magic_before_anything_else_ends_the_segment(rest: bytes) -> None:
    segment = batch(0) + FOREIGN + rest
    at = len(batch(0))
    assert errors(segment) == [(0, None, None), (at, "unknown_magic", len(segment) - at)]


@pytest.mark.parametrize(
    ("magic", "length"),
    [
        pytest.param(2, 48, id="shorter than a header"),
        pytest.param(1, 21, id="shorter than a message of magic 1"),
        pytest.param(0, 13, id="shorter than a message of magic 0"),
        pytest.param(9, 13, id="shorter than any"),
        pytest.param(2, 0, id="zero"),
        pytest.param(2, -1, id="below zero"),
        pytest.param(2, -(2**31), id="least int32"),
        pytest.param(2, 2**31 - 1, id="greatest int32"),
        pytest.param(1, 2**31 - 20, id="beyond the greatest position"),
    ],
)
def test_a_size_that_cannot_be_ends_the_segment(magic: int, length: int) -> None:
    broken = batch(1)[:8] + struct.pack(">iib", length, 0, magic) + batch(1)[17:]
    segment = batch(0) + broken + batch(2)
    at = len(batch(0))
    assert errors(segment) == [(0, None, None), (at, "implausible_size", len(segment) - at)]


def test_every_tear_of_the_tail_is_an_open_end_behind_what_is_whole() -> None:
    whole = [batch(0, 2), message(2, 1, b"value"), message(3, 0), marker(4, True)]
    segment = b"".join(whole)
    borders = [sum(map(len, whole[:count])) for count in range(len(whole) + 1)]
    for end in range(len(segment) + 1):
        *sound, last = [*errors(segment[:end]), None]
        begin = max(border for border in borders if border <= end)
        open_end = [] if begin == end else [(begin, "torn_batch", end - begin)]
        assert [*sound, *([last] if last else [])] == [(at, None, None) for at in borders if at < begin] + open_end


def test_a_tear_keeps_what_there_is_of_the_header_and_no_payload() -> None:
    assert (
        alone(batch(8, records=[record(0, b"secret" * 20)])[:150]).header
        == batch(8, records=[record(0, b"secret" * 20)])[:61]
    )
    assert alone(message(8, 0, b"secret" * 20)[:60]).header == message(8, 0, b"secret" * 20)[:18]
    assert alone(message(8, 1, b"secret" * 20)[:60]).base_offset == 8


def test_a_batch_that_lost_bytes_in_the_middle_is_wrong_and_nothing_is_made_up_behind_it() -> None:
    parts = [batch(0), batch(1, records=[record(0, b"x" * 300)]), batch(2), batch(3)]
    at = len(parts[0])
    for lost in range(1, 300):
        segment = parts[0] + parts[1][:100] + parts[1][100 + lost :] + parts[2] + parts[3]
        found = read(segment)
        assert spans(segment) in ([(0, 0)], [(0, 0), (3, 3)])
        assert any(batch.position == at and batch.error in ("wrong_crc", "torn_batch") for batch in found)


def test_a_batch_in_a_records_value_is_never_taken_for_one() -> None:
    forged = marker(3, False)
    host = batch(1, records=[record(0, forged * 20)])
    segment = batch(0) + host + batch(9)
    for damage in (struct.pack(">i", -5), struct.pack(">i", 40), struct.pack(">i", 2**31 - 1)):
        found = read(with_bytes(segment, len(batch(0)) + 8, damage))
        assert [batch.base_offset for batch in found if batch.error is None] == [0]
        assert not any(batch.is_control for batch in found)
    for magic in (3, 127, -1):
        found = read(with_bytes(segment, len(batch(0)) + 16, struct.pack(">b", magic)))
        assert [(batch.base_offset, batch.error) for batch in found] == [(0, None), (1, "unknown_magic"), (9, None)]


@pytest.mark.parametrize("zeros", [1, 16, 17, 61, 5_000, 3 * MIB], ids=lambda zeros: f"{zeros} zeros")
def test_a_preallocated_tail_of_zeros_is_an_open_end(zeros: int) -> None:
    at = len(batch(0))
    end = "zero_filled" if zeros >= 17 else "torn_batch"
    assert errors(batch(0) + bytes(zeros)) == [(0, None, None), (at, end, zeros)]


def test_zeros_before_other_bytes_are_no_end() -> None:
    segment = batch(0) + bytes(2 * MIB) + batch(1)
    at = len(batch(0))
    assert errors(segment) == [(0, None, None), (at, "implausible_size", len(segment) - at)]


def test_offsets_that_do_not_go_up_are_out_of_order() -> None:
    segment = batch(10, 5) + batch(14) + batch(15) + batch(15)
    assert [found.error for found in read(segment)] == [None, "out_of_order", None, "out_of_order"]


def test_offsets_below_the_segments_own_are_out_of_order() -> None:
    assert [found.error for found in read(batch(10) + batch(20), base_offset=20)] == ["out_of_order", None]


def test_a_stream_that_turns_out_shorter_ends_without_a_verdict() -> None:
    segment = batch(0) + batch(1, records=[record(0, bytes(3 * MIB))])
    for missing in (1, 2 * MIB, 3 * MIB + 60):
        shorter = io.BytesIO(segment[:-missing])
        assert [found.error for found in batches(shorter, len(segment))] == [None]


def test_nothing_is_read_beyond_the_size() -> None:
    segment = batch(0) + batch(1)
    assert len(list(batches(io.BytesIO(segment), len(batch(0))))) == 1


# --- bounds ---------------------------------------------------------------------------------------------------------


def peak(segment: Path) -> tuple[list[Batch], int]:
    tracemalloc.start()
    try:
        with segment.open("rb") as stream:
            found = list(batches(stream, segment.stat().st_size))
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [2**28, pytest.param(2**31 - 1, marks=pytest.mark.thorough)])
def test_a_batch_of_256_mib_or_2_gib_takes_a_few_mib(tmp_path: Path, size: int) -> None:
    header = struct.pack(">qiibIHiqqqhii", 0, size - 12, 0, 2, 1, 0, 0, AT, AT, -1, -1, -1, 1)
    giant = tmp_path / "giant.log"
    giant.write_bytes(header)
    os.truncate(giant, size)
    with giant.open("ab") as end:
        end.write(batch(1))

    (wrong, sound), most = peak(giant)

    assert (wrong.error, wrong.size_in_bytes, wrong.unread_bytes) == ("wrong_crc", size, None)
    assert (sound.error, sound.position) == (None, size)
    assert most < 8 * MIB


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_a_message_that_unpacks_to_100_mib_takes_a_few(tmp_path: Path, codec: str) -> None:
    bomb = tmp_path / "bomb.log"
    bomb.write_bytes(wrapped(1, 1, message(0, 1, bytes(100 * MIB)) + message(1, 1), codec))

    (found,), most = peak(bomb)

    assert (found.error, found.base_offset, found.record_count) == (None, 0, 2)
    assert most < 8 * MIB


def test_a_size_that_a_codec_is_told_is_not_taken(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.log"
    bomb.write_bytes(message(0, 1, b"\x80\x80\x80\x40" + bytes(100), attributes=2))
    (found,), most = peak(bomb)
    assert found.error == "malformed"
    assert most < 40 * MIB


def consistent(segment: bytes, found: list[Batch]) -> None:
    """Assert that a reading goes forward to the end of the segment, or says how many bytes it leaves unread."""
    place = 0
    for batch_found in found:
        assert batch_found.position == place
        assert batch_found.error in (None, *ERRORS)
        assert batch_found.unread_bytes in (None, len(segment) - place)
        assert len(batch_found.header or b"") <= 61
        place = len(segment) if batch_found.unread_bytes is not None else place + (batch_found.size_in_bytes or 0)
        if batch_found.error is None:
            assert batch_found.crc_ok
            assert 0 <= (batch_found.base_offset or 0) <= (batch_found.last_offset or 0) < 2**63
    assert place == len(segment)


SEGMENT = b"".join(
    [
        batch(0, 3, producer=(1, 0, 0)),
        marker(3, True),
        message(4, 0),
        wrapped(6, 1, message(0, 1) + message(1, 1), "gzip"),
        wrapped(8, 1, message(0, 1) + message(1, 1), "snappy"),
        wrapped(10, 0, message(9, 0) + message(10, 0), "lz4"),
        batch(11, codec="zstd"),
    ]
)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_to_their_end(segment: bytes) -> None:
    consistent(segment, read(segment))


@given(st.lists(st.tuples(st.integers(0, len(SEGMENT) - 1), st.binary(min_size=1, max_size=9)), min_size=1, max_size=4))
@hypothesis_settings(max_examples=300)
def test_any_damage_is_read_to_its_end(damages: list[tuple[int, bytes]]) -> None:
    segment = SEGMENT
    for at, data in damages:
        segment = with_bytes(segment, at, data)[: len(SEGMENT)]
    consistent(segment, read(segment))


@given(st.sampled_from([1, 2, 3]), st.sampled_from([0, 1]), st.binary(max_size=200), st.booleans())
@hypothesis_settings(max_examples=300)
def test_any_value_of_a_compressed_message_is_judged(codec: int, magic: int, value: bytes, framed: bool) -> None:
    beginnings = {1: b"\x1f\x8b\x08\0\0\0\0\0\0\3", 2: b"\x82SNAPPY\0" + bytes(8), 3: b"\x04\x22\x4d\x18\x60\x40\0"}
    segment = message(90, magic, (beginnings[codec] if framed else b"") + value, attributes=codec)
    found = alone(segment)
    assert found.error in (None, "malformed")
    consistent(segment, [found])


@given(st.binary(max_size=100))
def test_any_control_record_is_judged(data: bytes) -> None:
    assert alone(batch(0, flags=0x30, records=[data])).error in (None, "malformed")


def test_an_offset_beyond_what_a_segment_can_hold_is_out_of_order() -> None:
    found = read(batch(0) + batch(2**31) + batch(1))
    assert [batch_found.error for batch_found in found] == [None, "out_of_order", None]
