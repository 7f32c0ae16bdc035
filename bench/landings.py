"""Captures, generated records and defects -> landing directories in two batches, for runs of two versions on them.

The second batch holds new files, longer copies of files, and rows of topics that the first batch left held.
"""

from __future__ import annotations

import base64
import binascii
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from local import bundled
from pipelines.commands.generate import START, generate
from pipelines.settings import load
from tests.testing import builders, deliveries, requests
from tests.testing import segments as log

BATCHES = 2
ENOUGH_TO_HOLD = 12
"""Bad rows of a topic: more than the ten that a gate tolerates in any case."""
ENOUGH_TO_RELEASE = 600
"""Good rows of the same topic: with them the bad ones are less than the share that a gate tolerates."""
GROUPS, EPOCHS, NODES = 20, 3, 8
SEGMENT_BATCHES = 200


@dataclass(frozen=True)
class Landing:
    """A name, and what lands: ``land`` puts the files of a batch, counted from 0, into a landing directory."""

    name: str
    land: Callable[[Path, int], None]


def captures() -> Landing:
    """Return all bundled captures and planted files, as the demo lands them."""

    def land(landing: Path, batch: int) -> None:
        staged = landing.with_name(f"{landing.name}-staged")
        bundled.land(load(landing=str(staged)))
        for number, source in enumerate(sorted(path for path in staged.rglob("*") if path.is_file())):
            name = source.relative_to(staged)
            content = source.read_bytes()
            if batch == 0 and source.suffix == ".gz":
                if number % 2:
                    continue
            elif batch == 0 and source.suffix != ".properties":
                content = _first_half(content, is_text=name.parts[0] != "segments")
            _put(landing / name, content)
        shutil.rmtree(staged)
        _land_defects(landing, batch)

    return Landing("captures", land)


def generated(records: int) -> Landing:
    """Return generated dead letters, a fifth of them in the second batch, and what the other feeds say beside them.

    The generator makes dead letters only. The acknowledgements are those of their source records; request logs, log
    segments, brokers' logs and statements about producers come from the tests' builders.
    """

    def land(landing: Path, batch: int) -> None:
        later = records // 5
        before = set(_files(landing / "dlq"))
        generate(later if batch else records - later, 1, landing, batch=batch)
        new = sorted(set(_files(landing / "dlq")) - before)
        _put_lines(landing / "acknowledgements" / f"generated-{batch}.jsonl", _acknowledgements(new))
        _put_lines(landing / "producers" / f"generated-{batch}.jsonl", _producers(batch))
        _put_lines(landing / "streams-requests" / f"generated-{batch}.log", _request_log(batch))
        _put_lines(landing / "broker-logs" / f"generated-{batch}.log", _broker_log(batch))
        for partition in range(2):
            _put(landing / "segments" / f"orders-{partition}" / f"{0:020}.log", _segment(batch))
        _land_defects(landing, batch)

    return Landing("generated", land)


# --- what the other feeds say beside generated dead letters -----------------------------------------------------------


def _acknowledgements(files: Iterable[Path]) -> Iterator[str]:
    """Yield the acknowledgement of each source record that a share group dead-lettered, and of the record after it."""
    for file in files:
        for number, text in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines()):
            if (source := _source_of(text)) is None:
                continue
            topic, partition, offset = source
            seconds = number / 100 + (START - deliveries.millis()) / 1000
            yield deliveries.acknowledgement(topic, partition, offset, seconds)
            yield deliveries.acknowledgement(topic, partition, offset + 1, seconds, trace=None)
            if number % 50 == 0:
                yield deliveries.failure(topic, seconds)


def _source_of(line: str) -> tuple[str, int, int] | None:
    """Return topic, partition and offset of the source record, if a KIP-1191 broker wrote them; else None."""
    try:
        texts = {header["key"]: base64.b64decode(header["value"]).decode() for header in json.loads(line)["headers"]}
        topic, partition, offset = (texts[f"__dlq.errors.{name}"] for name in ("topic", "partition", "offset"))
        return topic, int(partition), int(offset)
    except (ValueError, KeyError, TypeError, binascii.Error):
        return None


def _producers(batch: int) -> Iterator[str]:
    for number in range(20):
        mode = ("requested", "required", True, False)[number % 4]
        yield deliveries.producer(f"producer-{number}", "orders", mode, stated_at=START + batch * 1_000 + number)


def _request_log(batch: int) -> Iterator[str]:
    """Yield pushes, describes and deletions; many bad lines in the second batch: it is held as a whole."""
    for group in range(GROUPS):
        for epoch in range(batch, batch + EPOCHS):
            yield from _pushed(f"group-{group}", group, epoch)
    if batch:
        yield from (f"cut off {number}" for number in range(50 * ENOUGH_TO_HOLD))


def _pushed(name: str, group: int, epoch: int) -> Iterator[str]:
    """Yield a heartbeat that asks for a topology, its push, a describe that shows it, and sometimes a deletion."""
    at = 60.0 * epoch + group
    names = ["source", *(f"step-{step}-{epoch if step == 1 else 0}" for step in range(NODES - 2)), "sink"]
    topology = requests.chain(names, f"in-{group}", f"in-{group + 1}")
    yield requests.heartbeat(at, name, topology_epoch=epoch, required=True)
    yield requests.push(at + 1, name, epoch=epoch, error=0 if group % 5 else 42, topology=topology)
    yield requests.steady(at + 2, name)
    stored = requests.described(name, 3, epoch, topologyDescription=topology)
    yield requests.describe(at + 3, stored if group % 5 else requests.described(name, 1))
    if group % 7 == 6:
        yield requests.delete(at + 4, name)


def _broker_log(batch: int) -> Iterator[str]:
    for number in range(20):
        at = 600.0 * batch + number
        yield from deliveries.unproduced(at, "orders-workers", "orders", number % 6, 10 * number, 10 * number + 3)
        yield from deliveries.archived(at)
        yield from deliveries.not_enabled(at, "orders-workers", "dlq.orders")
    yield deliveries.started(600.0 * batch + 30, 1 + batch)


def _segment(batch: int) -> bytes:
    """Return a log whose second batch continues the first: transactions committed and aborted, and plain batches."""
    parts, offset = [], 0
    for number in range(SEGMENT_BATCHES * (batch + 1)):
        if number % 10 == 9:  # ends the transaction of the batch before
            parts.append(log.marker(offset, commits=number % 20 == 9))
            offset += 1
            continue
        transactional = number % 10 == 8
        producer = (7, 0, 5 * (number // 10)) if transactional else (-1, -1, -1)
        parts.append(log.batch(offset, 5, flags=0x10 if transactional else 0, producer=producer))
        offset += 5
    return b"".join(parts)


# --- defects of every feed -------------------------------------------------------------------------------------------


def _land_defects(landing: Path, batch: int) -> None:
    """Land lines that nobody can read, rows that break rules, and dead-lettered markers of a transaction.

    One topic of each feed that has scopes stays held, and one is released by the second batch.
    """
    _put_lines(landing / "dlq" / f"defects-{batch}.jsonl", _bad_dead_letters(batch))
    _put_lines(landing / "acknowledgements" / f"defects-{batch}.jsonl", _bad_acknowledgements(batch))
    _put_lines(landing / "producers" / f"defects-{batch}.jsonl", ["no JSON", deliveries.producer(topic="")])
    _put_lines(landing / "streams-requests" / f"defects-{batch}.log", [requests.push(9_000.0 + batch, "defects")[:-90]])
    _put_lines(
        landing / "broker-logs" / f"defects-{batch}.log",
        [deliveries.unproduced(9_000.0 + batch)[0][:-40], "a line of no event"],
    )
    wrong = [bytearray(log.batch(5 * number, 5)) for number in range(ENOUGH_TO_HOLD * (batch + 1))]
    for body in wrong:
        body[-1] ^= 0xFF  # the checksum covers it
    _put(landing / "segments" / "held.log-0" / f"{0:020}.log", b"".join(map(bytes, wrong)))
    transaction = log.batch(0, 2, flags=0x10, producer=(7, 0, 0)) + log.marker(2, commits=True)
    if batch:  # it proves what the first batch could only suspect
        _put(landing / "segments" / "marked-0" / f"{0:020}.log", transaction)
    torn = log.batch(0, 5) + log.batch(5, 5)
    _put(landing / "segments" / "torn.log-0" / f"{0:020}.log", torn[: -20 if batch == 0 else None])


def _bad_dead_letters(batch: int) -> Iterator[str]:
    first = 1_000 * batch
    yield from ("no JSON", '{"topic": "dlq.cut', "[]")
    for offset in range(first, first + ENOUGH_TO_HOLD):
        yield builders.line(offset, topic="dlq.held", headers=builders.BROKEN)
    if batch == 0:
        for offset in (1, 2):  # data, and the marker
            headers = builders.kip_1191(topic="marked", offset=offset)
            yield builders.line(offset, topic="dlq.marked", key=b"\0\0\0\1", value=b"\0\0\0\0\0\0", headers=headers)
        for offset in range(first, first + ENOUGH_TO_HOLD):
            yield builders.line(offset, topic="dlq.released", headers=builders.kip_1191(partition="minus one"))
        return
    for offset in range(first, first + ENOUGH_TO_RELEASE):
        yield builders.line(offset, topic="dlq.released")


def _bad_acknowledgements(batch: int) -> Iterator[str]:
    first = 1_000 * batch
    yield from ("no JSON", '{"topic": "cut', deliveries.acknowledgement("", offset=first))
    for offset in range(first, first + ENOUGH_TO_HOLD):
        yield deliveries.acknowledgement("held", -1, offset)
    if batch == 0:
        for offset in range(first, first + ENOUGH_TO_HOLD):
            yield deliveries.acknowledgement("released", -2, offset)
        return
    for offset in range(first, first + ENOUGH_TO_RELEASE):
        yield deliveries.acknowledgement("released", 0, offset)


# --- files -----------------------------------------------------------------------------------------------------------


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def _first_half(content: bytes, is_text: bool) -> bytes:
    """Return the first half, up to the end of a line if it is text."""
    half = content[: len(content) // 2]
    return half[: half.rfind(b"\n") + 1] if is_text else half


def _put_lines(target: Path, lines: Iterable[str]) -> None:
    _put(target, "".join(f"{line}\n" for line in lines).encode())


def _put(target: Path, content: bytes) -> None:
    """Write a file; one that has this content already keeps its modification time."""
    if target.exists() and target.read_bytes() == content:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
