"""A whole log.dirs is copied below segments/: logs are read, all else is passed over by its name, and counted."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path

import cramjam
import pytest

from pipelines.sources import log_dirs, segments
from pipelines.sources.log_dirs import Segment
from pipelines.sources.record_batches import (
    CONFIGS_TEXT,
    DAMAGED_PACK,
    DUMP_TEXT,
    NOT_A_SEGMENT,
    PACKED,
    TORN_BATCH,
    Batch,
)
from pipelines.sources.segments import Work, listing, passed_over, rows, unread
from tests.testing.segments import batch, record

ID, OTHER = "LWgrMmVrT0a__7a4SasuPA", "-CqX9U--S-6U8XUM9II25Q"
ZERO = f"{0:020}"
UUID = "ffee2d3c4b5a69788796a5b4c3d2e1f0"


def landed(directory: Path, *files: str) -> None:
    for file in files:
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / file).write_bytes(b"x")


def found(directory: Path, source: str, stated: bool = False) -> list[tuple[object, object, str | None]]:
    """The first and last offset and the error of each row of a file, without the row of the file itself."""
    file = listing(directory)[source]
    facts = segments._stated(file, {}) if stated else None
    work = Work(Segment.of(source), file, str(directory / source), False, facts)
    every = [dict(zip(Batch._fields, row[3:], strict=False)) for row in rows(work) if row[-1] is None]
    return [(row["base_offset"], row["last_offset"], row["error"]) for row in every]


def test_a_whole_log_dirs(tmp_path: Path) -> None:
    read = [
        *(f"pallets-0/{ZERO}.log", "pallets-0/partition.metadata", f"_prices-0/{ZERO}.log"),
        *(f"__consumer_offsets-12/{ZERO}.log", f"__cluster_metadata-0/{ZERO}.log", f"edi-2024-06-0/{9:020}.log"),
        *(f"second/pallets-7/{ZERO}.log", f"second/_prices-7/{ZERO}.log", "second/pallets-7/partition.metadata"),
        *(f"orders-delete-0/{ZERO}.log", f"x-stray-3/{ZERO}.log"),
    ]  # fmt: skip
    landed(
        tmp_path,
        *read,
        *(
            "meta.properties",
            ".kafka_cleanshutdown",
            ".lock",
            "bootstrap.checkpoint",
            "_SUCCESS",
            "x.tmp",
            "_old/a.log",
        ),
        *("cleaner-offset-checkpoint", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"),
        *("log-start-offset-checkpoint", "pallets-0/leader-epoch-checkpoint", "second/meta.properties"),
        *(f"pallets-0/{ZERO}{end}" for end in (".index", ".timeindex", ".txnindex", ".snapshot", ".index.gz")),
        *(f"pallets-0/{ZERO}{end}" for end in (".log.deleted", ".index.deleted", ".log.swap", ".log.cleaned")),
        *("__cluster_metadata-0/quorum-state", "__cluster_metadata-0/00000000000000000210-0000000001.checkpoint"),
        "__cluster_metadata-0/00000000000000000210-0000000001.checkpoint.part",
        *(f"pallets-9.{UUID}-delete/{name}" for name in (f"{ZERO}.log", "partition.metadata", f"{ZERO}.index")),
        *(f"pallets-{number}.{UUID}-stray/{ZERO}.log" for number in (1, 2)),
        *(
            f"_prices-1.{UUID}-future/{ZERO}.log",
            "remote-log-index-cache/18_aVaiven.index",
            "pallets-0/topic.properties",
        ),
    )

    assert sorted(unread(tmp_path, {})) == sorted(read)
    assert passed_over(listing(tmp_path)) == (
        "1 .cleaned file, 2 .deleted files, 1 .swap file, 8 checkpoints, 5 index files, 2 meta.properties files, "
        "1 quorum-state file, 1 snapshot, 1 directory -delete, 1 directory -future, 2 directories -stray"
    )


def test_nothing_is_said_where_nothing_is_passed_over(tmp_path: Path) -> None:
    landed(tmp_path, f"t-0/{ZERO}.log", "t-0/partition.metadata", "t-0/topic.properties")
    assert passed_over(listing(tmp_path)) == ""


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".zstd"])
def test_packed_segments_are_read(tmp_path: Path, suffix: str) -> None:
    pack = gzip.compress if suffix == ".gz" else lambda data: bytes(cramjam.zstd.compress(data))
    source = f"t-0/{ZERO}.log{suffix}"
    (tmp_path / "t-0").mkdir()
    whole = b"".join(batch(offset) for offset in range(300))
    (tmp_path / source).write_bytes(pack(whole[:9000]) + pack(whole[9000:]))
    assert found(tmp_path, source) == [(offset, offset, None) for offset in range(300)]

    (tmp_path / source).write_bytes(pack(whole)[:-20])
    *sound, (_, _, error) = found(tmp_path, source)
    assert error == DAMAGED_PACK
    assert {item for _, _, item in sound} <= {None, TORN_BATCH}

    (tmp_path / source).write_bytes(b"neither")
    assert found(tmp_path, source) == [(None, None, DAMAGED_PACK)]


@pytest.mark.parametrize(
    ("source", "topic_id"),
    [
        pytest.param(f"t-3/{ZERO}-{OTHER}.log", None, id="in a partition's directory"),
        pytest.param(f"store/t-3-{ID}/{ZERO}-{OTHER}.log", ID, id="LocalTieredStorage"),
        pytest.param(f"bucket/prefix/t-{ID}/3/{ZERO}-{OTHER}.log", ID, id="Aiven's plugin"),
    ],
)
def test_tiered_segments_are_read(tmp_path: Path, source: str, topic_id: str | None) -> None:
    landed(tmp_path, source, source.replace(".log", ".rsm-manifest"), source.replace(".log", ".indexes"))
    (tmp_path / source).write_bytes(batch(0, 3) + batch(3))
    segment = Segment.of(source)
    assert segment is not None
    assert (segment.topic, segment.partition, segment.topic_id, segment.is_tiered) == ("t", 3, topic_id, True)
    assert list(unread(tmp_path, {})) == [source]
    assert passed_over(listing(tmp_path)) == "1 .rsm-manifest file, 1 index file"
    assert found(tmp_path, source) == [(0, 2, None), (3, 3, None)]
    facts = segments._stated(listing(tmp_path)[source], {})
    assert (facts and facts.topic_id) == topic_id

    # The plugin has stored the segment in another form.
    for said in ({"compression": True}, {"compression": False, "encryption": {"dataKey": "x"}}):
        (tmp_path / source.replace(".log", ".rsm-manifest")).write_text(json.dumps({"version": "1", **said}))
        assert found(tmp_path, source) == [(None, None, PACKED)]
    (tmp_path / source.replace(".log", ".rsm-manifest")).write_text('{"version": "1", "compression": false}')
    assert found(tmp_path, source) == [(0, 2, None), (3, 3, None)]


def test_a_tiered_segment_is_never_open(tmp_path: Path) -> None:
    tiered = f"t-3/{ZERO}-{OTHER}.log"
    landed(tmp_path, tiered, f"t-3/{9:020}.log")
    assert segments._by_log(listing(tmp_path)) == {"t-3": [Segment.of(f"t-3/{9:020}.log")]}


DUMP = b"""Dumping /var/lib/kafka/data/t-0/00000000000000000000.log
Log starting offset: 0
baseOffset: 0 lastOffset: 2 count: 3 baseSequence: 0 lastSequence: 2 producerId: 7 producerEpoch: 0 isControl: false
| offset: 0 CreateTime: 1795228875344 keySize: -1 valueSize: 5 sequence: 0 headerKeys: [] payload: secret
"""
CONFIGS = b"""Dynamic configs for topic t are:
  cleanup.policy=compact sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact}
"""


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        pytest.param(f"t-0/{ZERO}.log", DUMP, DUMP_TEXT, id="kafka-dump-log in a segment's place"),
        pytest.param("t-0/dump.txt", DUMP, DUMP_TEXT, id="kafka-dump-log"),
        pytest.param("dump.txt", b"log4j:WARN None\r\n" + DUMP.replace(b"\n", b"\r\n"), DUMP_TEXT, id="CRLF"),
        pytest.param("dump.txt", DUMP[DUMP.index(b"baseO") :], DUMP_TEXT, id="without its head"),
        pytest.param("t-0/configs.txt", CONFIGS, CONFIGS_TEXT, id="kafka-configs"),
        pytest.param("all.txt", CONFIGS.replace(b"Dynamic", b"All"), CONFIGS_TEXT, id="kafka-configs --all"),
        pytest.param("only.txt", CONFIGS.partition(b"\n")[2], CONFIGS_TEXT, id="kafka-configs, its rest"),
        pytest.param("readme.txt", b"Not a segment.", NOT_A_SEGMENT, id="anything else"),
        pytest.param(f"t-0/{ZERO}.log.bz2", bz2.compress(batch(0)), PACKED, id="bzip2"),
        pytest.param("logs.tar", b"x", PACKED, id="an archive"),
        pytest.param("logs.tar.gz", gzip.compress(b"x"), PACKED, id="a packed archive"),
    ],
)  # fmt: skip
def test_a_file_is_named_for_what_it_is(tmp_path: Path, name: str, content: bytes, error: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    assert found(tmp_path, name) == [(None, None, error)]


def test_a_segment_with_such_text_in_its_records_is_a_segment(tmp_path: Path) -> None:
    source = f"t-0/{ZERO}.log"
    (tmp_path / "t-0").mkdir()
    (tmp_path / source).write_bytes(batch(0, records=[record(0, b"\n" + DUMP)]))
    assert found(tmp_path, source) == [(0, 0, None)]
    assert log_dirs.is_read(source)
