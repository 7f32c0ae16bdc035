"""Partition logs that change as brokers change them, and copies of their segments as people land them."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipelines.settings import Settings
from tests.testing import segments

TRANSACTIONAL = 0x10
HORIZON = 0x40
SECOND = 1_000_000_000


class Clock:
    """A clock that advances by one second at each call."""

    def __init__(self) -> None:
        self._seconds = 1_795_228_800

    def ns(self) -> int:
        """Advance by one second and return the time in nanoseconds."""
        self._seconds += 1
        return self._seconds * SECOND


@dataclass(frozen=True)
class Piece:
    """A batch of a log."""

    base: int
    count: int
    epoch: int
    millis: int
    producer: tuple[int, int] | None = None
    ends: str | None = None
    kept: int | None = None

    @property
    def last(self) -> int:
        """The last offset of the batch."""
        return self.base + self.count - 1

    def data(self) -> bytes:
        """Return the bytes of the batch."""
        if self.ends == "unknown":
            return segments.control(self.base, 17, b"\0\0", self.producer or (7, 0), leader_epoch=self.epoch)
        if self.ends:
            return segments.marker(self.base, self.ends == "commit", self.producer or (7, 0), leader_epoch=self.epoch)
        if self.epoch < 0:
            return segments.message(self.base, 1, timestamp=self.millis)
        kept = self.count if self.kept is None else self.kept
        return segments.batch(
            self.base,
            self.count,
            flags=(TRANSACTIONAL if self.producer else 0) | (HORIZON if self.kept is not None else 0),
            producer=(*self.producer, 0) if self.producer else (-1, -1, -1),
            records=[segments.record(delta) for delta in range(kept)],
            record_count=kept,
            max_timestamp=self.millis,
            leader_epoch=self.epoch,
        )


class Log:
    """A partition's log: its leader can change, the cleaner can run, and its topic can be created again."""

    def __init__(self, topic: str, chance: random.Random, clock: Clock, has_ids: bool, is_torn: bool) -> None:
        self.topic = topic
        self.chance = chance
        self.clock = clock
        self.has_ids = has_ids
        self.is_torn = is_torn
        self.copies: list[tuple[str, bytes, int]] = []
        self.create()

    def create(self) -> None:
        """Create the topic, or create it again with a new id."""
        self.segments: dict[int, list[Piece]] = {0: []}
        self.end = self.epoch = 0
        self.created_ns = self.clock.ns()
        self.topic_id = f"{self.chance.getrandbits(96):024x}"[:21] + "A"

    @property
    def pieces(self) -> list[Piece]:
        """The batches of the log, in order."""
        return [piece for base in sorted(self.segments) for piece in self.segments[base]]

    def append(self) -> None:
        """Append some batches, in and out of transactions, sometimes into a new segment."""
        for _ in range(self.chance.randint(1, 5)):
            if self.segments[max(self.segments)] and self.chance.random() < 0.25:
                self.segments[self.end] = []
            millis = self.clock.ns() // 1_000_000
            kind = self.chance.random()
            producer = (self.chance.randint(1, 3), self.chance.randint(0, 1))
            if kind < 0.25:
                ends = self.chance.choice(["commit", "abort", "abort", "unknown"])
                piece = Piece(self.end, 1, self.epoch, millis, producer, ends)
            elif kind < 0.3:
                piece = Piece(self.end, 1, -1, millis)
            else:
                count = self.chance.choice([1, 2, 3, 3000])
                piece = Piece(self.end, min(count, 40), self.epoch, millis, producer if kind < 0.65 else None)
            self.segments[max(self.segments)].append(piece)
            self.end = piece.last + 1

    def change_leader(self) -> None:
        """Truncate the log at one of its batches, as a follower of a new leader does, and append other batches."""
        pieces = self.pieces
        if not pieces:
            return
        self.end = self.chance.choice(pieces).base
        self.segments = {
            base: [piece for piece in kept if piece.base < self.end]
            for base, kept in self.segments.items()
            if base <= self.end
        }
        self.epoch += 1
        self.append()

    def clean(self) -> None:
        """Thin or drop batches outside the active segment, and merge some segments into the one before."""
        *closed, active = sorted(self.segments)
        cleaned: dict[int, list[Piece]] = {}
        into = None
        for base in closed:
            kept = list(self._cleaned(self.segments[base]))
            if into is None or self.chance.random() < 0.4:
                into = base
            cleaned.setdefault(into, []).extend(kept)
        self.segments = {**cleaned, active: self.segments[active]}

    def _cleaned(self, pieces: list[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            fate = self.chance.random()
            if fate < 0.3:
                continue
            is_data = piece.epoch >= 0 and not piece.ends
            yield replace(piece, kept=self.chance.randint(0, piece.count - 1)) if is_data and fate < 0.6 else piece

    # --- copies of the log ---

    def land(self, directory: Path, complete: bool) -> None:
        """Copy all present segments and remove stale ones, or copy some segments, which may be torn."""
        place = directory / f"{self.topic}-0"
        place.mkdir(parents=True, exist_ok=True)
        wanted = {f"{base:020}.log": pieces for base, pieces in self.segments.items()}
        if complete or self.chance.random() < 0.3:
            for file in place.iterdir():
                if file.name not in wanted:
                    file.unlink()
        if self.has_ids and (complete or self.chance.random() < 0.7):
            put(place / "partition.metadata", f"version: 0\ntopic_id: {self.topic_id}\n".encode(), self.created_ns)
        for name, pieces in wanted.items():
            data = b"".join(piece.data() for piece in pieces)
            if not complete and self.chance.random() < 0.3:
                continue
            if self.is_torn and not complete and self.chance.random() < 0.3:
                data = data[: self.chance.randint(0, len(data))]
            at = self.clock.ns()
            put(place / name, data, at)
            self.copies.append((name, data, at))

    def land_an_old_copy(self, directory: Path) -> None:
        """Land a former copy again, with its old time or a new one, sometimes under another name."""
        if not self.copies:
            return
        name, data, at = self.chance.choice(self.copies)
        if self.chance.random() < 0.3:
            name = f"{int(name[:20])}.log"
        place = directory / f"{self.topic}-0"
        place.mkdir(parents=True, exist_ok=True)
        put(place / name, data, at if self.chance.random() < 0.5 else self.clock.ns())

    def change(self) -> None:
        """Change the log in a random way."""
        kinds = (self.append, self.change_leader, self.clean, self.create)
        self.chance.choices(kinds, weights=(6, 2, 3, 1))[0]()


def put(file: Path, data: bytes, at: int) -> None:
    """Write a file with a modification time and rename it into place."""
    scratch = file.with_name(f".{file.name}")
    scratch.write_bytes(data)
    os.utime(scratch, ns=(at, at))
    scratch.rename(file)


# --- segments as the tests of tables land them ---------------------------------------------------------------------

ID, NEXT_ID = "1yZyCpwHTlKiUsmJv1k7xQ", "2yZyCpwHTlKiUsmJv1k7xQ"
OF_LOGS = (
    *("bronze.record_batches", "silver.record_batches", "silver.log_files", "silver.log_copies"),
    "silver.log_batches",
    *("silver.log_ranges", "silver.log_gaps", "silver.transactions"),
)
T = 1_800_000_000_000_000_000  # ns
METADATA = "partition.metadata"
Landed = dict[str, tuple[bytes, int] | None]


def place(settings: Settings, log: str = "t-0") -> Path:
    """Return the directory of a log, which exists."""
    directory = settings.landing_of("segments") / log
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def segment(base_offset: int) -> str:
    """Return the name of a segment's file."""
    return f"{base_offset:020}.log"


def stated(topic_id: str) -> bytes:
    """Return a partition.metadata file."""
    return f"version: 0\ntopic_id: {topic_id}\n".encode()


def one(base: int, count: int = 1, *, epoch: int = 0, later: int = 0, **more: Any) -> bytes:
    """A batch whose timestamps are later by some milliseconds."""
    return segments.batch(base, count, leader_epoch=epoch, max_timestamp=1_795_228_800_000 + later, **more)


def lands(settings: Settings, topic: str, files: Landed) -> None:
    """Land files, with times of modification, in the log of a topic; None removes one."""
    directory = place(settings, f"{topic}-0")
    for name, landed in files.items():
        if landed is None:
            (directory / name).unlink()
        else:
            put(directory / name, *landed)
