"""Names below ``segments/`` -> what they are: segments, topic metadata, or what a broker keeps beside them.

A broker's ``log.dirs`` can be copied as a whole, also several of them, each into a directory of its own. Segments of
tiered storage are named as Kafka's own ``LocalTieredStorage`` and Aiven's plugin name them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from expectations.rules import counted
from pipelines.sources import landing
from pipelines.sources.landing import LandedFile

METADATA = "partition.metadata"
TOPIC_PROPERTIES = "topic.properties"  # settings of a topic, of which only cleanup.policy matters
GZIP, ZSTD = (".gz",), (".zst", ".zstd")
OTHERWISE_PACKED = (".7z", ".bz2", ".lz4", ".rar", ".snappy", ".sz", ".tar", ".tgz", ".xz", ".zip")

_INT32_MOST = 2**31 - 1
# No log comes near this offset. Queries can add to an offset, and round it up, without an overflow.
OFFSET_MOST = 2**63 - 1 - _INT32_MOST

_TOPIC, _PARTITION, _ID = r"(?P<topic>[a-zA-Z0-9._-]{1,249})", r"(?P<partition>0|[1-9][0-9]{0,9})", r"[A-Za-z0-9_-]{22}"
_OFFSET = r"(?P<offset>[0-9]{1,20})"
_ABOVE, _PACKED = r"(?:[^/]+/)*", r"(?:\.gz|\.zst|\.zstd)?"
_LOCAL = re.compile(rf"{_ABOVE}{_TOPIC}-{_PARTITION}/{_OFFSET}\.log{_PACKED}")
_TIERED = (
    # <topic>-<partition>[-<topic id>]/<base offset>-<segment id>.log
    re.compile(rf"{_ABOVE}{_TOPIC}-{_PARTITION}-(?P<id>{_ID})/{_OFFSET}-{_ID}\.log{_PACKED}"),
    re.compile(rf"{_ABOVE}{_TOPIC}-{_PARTITION}(?P<id>)/{_OFFSET}-{_ID}\.log{_PACKED}"),
    # <topic>-<topic id>/<partition>/<base offset>-<segment id>.log
    re.compile(rf"{_ABOVE}{_TOPIC}-(?P<id>{_ID})/{_PARTITION}/{_OFFSET}-{_ID}\.log{_PACKED}"),
)
_METADATA = re.compile(rf"{_ABOVE}{_TOPIC}-{_PARTITION}/{re.escape(METADATA)}")

# A broker's directory, whose name can begin with "_" as a topic's can.
_OF_A_BROKER = re.compile(r"_[a-zA-Z0-9._-]*-[0-9]+(?:-[A-Za-z0-9_-]{22}|\.[0-9a-f]+-(?:delete|future|stray))?")
# Logs that are being removed or moved, and logs that should not be on the broker: a topic has another one, or none.
_ASIDE = re.compile(r"(?:^|/)[^/]+-[0-9]+\.[^/]*(-(?:delete|future|stray))/")
_BESIDE: dict[str, tuple[str, ...]] = {
    "index file": (".index", ".timeindex", ".txnindex", ".indexes"),
    "snapshot": (".snapshot",),
    "checkpoint": ("checkpoint", ".checkpoint.part", ".checkpoint.deleted"),
    ".deleted file": (".deleted",),
    ".swap file": (".swap",),
    ".cleaned file": (".cleaned",),
    ".rsm-manifest file": (".rsm-manifest",),
}
_OF_THE_BROKER = ("meta.properties", "quorum-state", TOPIC_PROPERTIES)


@dataclass(frozen=True)
class Segment:
    """A landed segment, as its name describes it; of a tiered segment the name can have the topic id, too."""

    source: str
    topic: str
    partition: int
    base_offset: int
    is_tiered: bool = False
    topic_id: str | None = None

    @classmethod
    def of(cls, source: str) -> Segment | None:
        """Return the segment that a name describes; None if it is not a segment's name."""
        local = _LOCAL.fullmatch(source)
        match = local or next(filter(None, (form.fullmatch(source) for form in _TIERED)), None)
        if match is None:
            return None
        topic_id = None if local else match["id"] or None
        offset = int(match["offset"])
        segment = cls(source, match["topic"], int(match["partition"]), offset, local is None, topic_id)
        legal = segment.partition <= _INT32_MOST and segment.base_offset <= OFFSET_MOST
        return segment if legal and segment.topic not in (".", "..") else None


def listing(directory: Path) -> dict[str, LandedFile]:
    """Return the files that have landed, by source, also those of topics whose names begin with ``_``."""
    return landing.listing(directory, _OF_A_BROKER)


def partition_of_metadata(source: str) -> tuple[str, int] | None:
    """Return the topic and the partition of a ``partition.metadata``; None for other files."""
    match = _METADATA.fullmatch(source)
    return (match["topic"], min(int(match["partition"]), _INT32_MOST)) if match else None


def is_read(source: str) -> bool:
    """Tell whether a file is read, and not passed over by its name."""
    return _passed_over(source) is None


def passed_over(sources: Iterable[str]) -> str:
    """Return words for the files and directories that are passed over by their names; empty if there are none."""
    counts: Counter[str] = Counter()
    aside: dict[str, set[str]] = {}
    for source in sources:
        if match := _ASIDE.search(source):
            aside.setdefault(match[1], set()).add(source[: match.end()])
        elif (name := _passed_over(source)) and name != TOPIC_PROPERTIES:
            counts[f"{name} file" if name in (*_OF_THE_BROKER, METADATA) else name] += 1
    said = [counted(number, name) for name, number in sorted(counts.items())]
    said += [f"{counted(len(logs), 'directory')} {suffix}" for suffix, logs in sorted(aside.items())]
    return ", ".join(said)


def _passed_over(source: str) -> str | None:
    """Return the name under which a file is counted as passed over; None if it is read."""
    if match := _ASIDE.search(source):
        return match[1]
    name = source.rpartition("/")[2]
    if name in _OF_THE_BROKER:
        return name
    if name == METADATA:  # what does not stand beside segments says nothing
        return None if partition_of_metadata(source) else name
    for said, endings in _BESIDE.items():
        if name.removesuffix(".gz").removesuffix(".zst").endswith(endings):
            return said
    return None
