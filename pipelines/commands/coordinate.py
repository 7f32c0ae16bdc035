"""TOPIC:PARTITION:OFFSET as people type it -> Coordinate."""

from __future__ import annotations

import re
from typing import NamedTuple

from expectations.text import visible
from pipelines.columns import slices

_COORDINATE = re.compile(r"(?s)(.+):([0-9]{1,10}):([0-9]{1,19})")
_AS_KAFKA_PRINTS = re.compile(r"([A-Za-z0-9._-]{1,249})-([0-9]{1,10})@([0-9]{1,19})")
_INT64_MOST = 2**63 - 1

Key = dict[str, str | int]
"""What rows of a table equal: columns and their values."""


class Coordinate(NamedTuple):
    """The coordinate of a record: topic, partition and offset."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def of(cls, text: str) -> Coordinate | None:
        """Read TOPIC:PARTITION:OFFSET, or TOPIC-PARTITION@OFFSET; return None if the text is something else."""
        match = _COORDINATE.fullmatch(text) or _AS_KAFKA_PRINTS.fullmatch(text)
        if match is None or int(match[3]) > _INT64_MOST:
            return None
        return cls(match[1], int(match[2]), int(match[3]))

    @property
    def slice(self) -> str:
        """The slice of the ledger that holds it, as the tables name it."""
        return slices.name(self.topic, self.partition, self.offset)

    def __str__(self) -> str:
        """Return it as TOPIC:PARTITION:OFFSET, escaped so that it is safe for a terminal."""
        return visible(f"{self.topic}:{self.partition}:{self.offset}")
