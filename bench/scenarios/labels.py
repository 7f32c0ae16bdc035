"""What a scenario looks like, and the truth about its incidents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from bench.scenarios.times import MINUTE, SECOND

CHANGES = ("topology", "writer_topology", "new_group", "new_client", "producer", "broker_restart", "missing_headers")
"""Suspects that are an event in time; the others are a value that the dead records share."""
SUSPECTS = (*CHANGES, "header", "schema_id", "key_prefix", "client")
TOPIC_WIDE = ("writer_topology", "new_client", "producer", "broker_restart")

HEADLESS = "-headless.jsonl"
"""How the names of files end whose dead letters lack a mandatory header; they belong to no incident."""


@dataclass(frozen=True)
class Shape:
    """How the topics and incidents of scenarios look; shares are probabilities.

    ``tells_all`` is the share of scenarios where every message around the main incident is acknowledged, ``paces`` that
    of poison pills that come back by the hour and in a storm.
    """

    partitions: tuple[int, ...] = (3, 4, 6, 8, 12, 16, 24)
    gap: tuple[float, float] = (3, 20 * MINUTE)
    most_records: int = 3_000
    noise: tuple[float, float, float] = (0.6, 0.6, 0.4)
    overlap: float = 0.4
    overlaps: tuple[int, ...] = (1, 1, 2)
    late: float = 0.35
    regression: float = 0.3
    in_transactions: float = 0.3
    tells_all: float = 0.0
    paces: float = 0.0


SHAPES = {
    "usual": Shape(),
    "narrow": Shape(partitions=(2, 3, 5), gap=(20 * SECOND, 25 * MINUTE), most_records=800, late=0.6, tells_all=0.3),
    "wide": Shape(partitions=(32, 48, 64), gap=(2, 20 * SECOND), most_records=4_000, in_transactions=0.1),
    "crowded": Shape(noise=(0.9, 0.9, 0.8), overlap=0.85, overlaps=(1, 2, 3), late=0.5, regression=0.5),
    "transactions": Shape(in_transactions=1.0, tells_all=0.7),
    "paces": Shape(paces=1.0, tells_all=0.3),
}


@dataclass(frozen=True)
class Suspect:
    """What changed shortly before an incident, or what its dead records share.

    The name of a topology or a new group is the group, that of missing headers the DLQ topic, that of a restart the
    broker's node id. A producer's, a client's or a new client's is its client id, a header's ``<name>=<value>``, a
    schema's its id in decimal, a key prefix's the prefix with its separator.
    """

    kind: str
    name: str


@dataclass(frozen=True)
class TrueIncident:
    """The truth about one incident, after all batches of its scenario have landed.

    ``predecessor`` is the place in ``Scenario.truth`` of the earlier incident with the same fingerprint. ``places`` are
    the dead letters: DLQ topic, partition and offset. ``first_suspect`` is a label only if ``noise`` is False, because
    a noise incident is often the first that is known of its group. ``profile`` and ``error`` say what failed.
    """

    consumer_group: str | None
    original_topic: str
    verdict: str
    rejection: bool
    first_at: datetime
    last_at: datetime
    records: int
    source_records: int
    first_suspect: Suspect | None
    predecessor: int | None
    noise: bool
    profile: str
    error: str
    places: frozenset[tuple[str, int, int]] = field(repr=False)


@dataclass(frozen=True)
class Scenario:
    """Landing files by batch, and the truth about them. ``duplicates`` counts lines that land a second time."""

    name: str
    truth: tuple[TrueIncident, ...]
    duplicates: int
    files: tuple[Mapping[str, tuple[str, ...]], ...] = field(repr=False)

    @property
    def batches(self) -> int:
        """How many batches land: two if some lines are late."""
        return len(self.files)

    def land(self, directory: Path, batch: int = 0) -> None:
        """Write the files of a batch into the feeds' directories below a landing directory."""
        for name, lines in self.files[batch].items():
            target = directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            scratch = target.with_name(f".{target.name}")
            scratch.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            scratch.rename(target)


class Undecidable(Exception):
    """What was drawn does not allow an honest label."""
