"""A dead letter that may be replayed, with what the tables know about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from expectations.text import visible
from pipelines.commands.coordinate import Coordinate
from pipelines.replay.model import Letter, Source
from pipelines.teams import Limits


@dataclass(frozen=True)
class Replay:
    """An earlier replay: its plan, and the dead letter that it replayed, of ``group``.

    ``is_itself`` is false if that is another dead letter of the same source record.
    """

    plan_id: str
    letter: Letter
    group: str | None
    is_itself: bool

    @property
    def in_words(self) -> str:
        """The earlier replay in a sentence about the dead letter."""
        if self.is_itself:
            return f"Plan {self.plan_id} replayed it before."
        letter = visible(self.letter.coordinate) + (
            f" of group {visible(self.group)}" if self.group is not None else ""
        )
        return f"Plan {self.plan_id} replayed its source record before, as dead letter {letter}, but not it itself."


@dataclass(frozen=True)
class Candidate:
    """A chosen dead letter: its row in silver.dlq_records, and what other tables know about it.

    ``state`` is accepted, quarantined or held. ``copies`` is how many rows are known at its coordinate. ``attempt`` is
    the number that its replay would have. ``replayed`` tells which plan replayed it, or its source record, before.
    ``first`` is where and when the record was written first, if its headers name a later coordinate. ``limits`` are
    those of its ``teams``.
    """

    row: Mapping[str, Any]
    state: str = "accepted"
    is_marker: bool | None = None
    write_state: str | None = None
    is_aborted: bool = False
    copies: int = 1
    attempt: int = 1
    replayed: Replay | None = None
    is_discarded: bool = False
    is_discarded_by_rule: bool = False
    first: Source | None = None
    incident_id: str | None = None
    verdict: str | None = None
    teams: tuple[str, ...] = ()
    limits: Limits = Limits()  # noqa: RUF009  # it cannot change

    @property
    def coordinate(self) -> str:
        """TOPIC:PARTITION:OFFSET of the dead letter."""
        return f"{self.row['dlq_topic']}:{self.row['dlq_partition']}:{self.row['dlq_offset']}"

    @property
    def source(self) -> tuple[Any, ...] | None:
        """Topic, partition and offset of the record that failed; None if a part is unknown."""
        source = tuple(self.row[f"original_{part}"] for part in Coordinate._fields)
        return None if None in source else source

    @property
    def facts(self) -> dict[str, Any]:
        """What rules look at."""
        return {**self.row, "verdict": self.verdict}
