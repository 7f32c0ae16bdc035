"""A plan before it is written: each chosen record, what becomes of it, and why it is not eligible."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pipelines.replay.candidate import Candidate
from pipelines.replay.judge import Options
from pipelines.replay.model import PREFIX, REPLAY_HEADERS, Headers, Letter, Plan, PlannedRecord, Source, millis_of
from pipelines.replay.rules import Action, Rules
from pipelines.replay.transform import Content, Transform


@dataclass
class Entry:
    """A chosen record and what becomes of it; it is eligible if it has no reasons."""

    candidate: Candidate
    action: Action
    rule: str | None
    reasons: list[str]
    topic: str | None = None
    partition: int | None = None
    content: Content = field(default=Content(None, None, ()), repr=False)
    before: Content = field(default=Content(None, None, ()), repr=False)
    payload_from: str = "dlq"
    headers_lost: bool = False
    is_transformed: bool = False
    position: int | None = None
    fetched_timestamp: int | None = None
    first: Source | None = None
    reserved: tuple[str, ...] = ()

    def own(self, headers: Headers) -> Headers:
        """Return headers without those of older replays; other names that Afterlog reserves are left out and told."""
        self.reserved = tuple(name for name, _ in headers if name.startswith(PREFIX) and name not in REPLAY_HEADERS)
        return tuple(header for header in headers if not header[0].startswith(PREFIX))

    @property
    def is_to_fetch(self) -> bool:
        """Whether its payload was never copied, and was not taken from the original topic yet."""
        return self.candidate.row["payload_copied"] is False and self.payload_from == "dlq"

    @property
    def letter(self) -> Letter:
        """The dead letter's coordinate."""
        return Letter.of(self.candidate.row)

    @property
    def source(self) -> Source:
        """The coordinate of the record that failed."""
        at = millis_of(self.candidate.row["original_timestamp"])
        return Source.of(self.candidate.row, self.fetched_timestamp if at is None else at)

    @property
    def written_first(self) -> tuple[Any, ...] | None:
        """Topic, partition and offset of the record before all replays and retries; None if a part is unknown."""
        return self.candidate.source if self.first is None else self.first[:3]

    @property
    def dead_lettered_at(self) -> datetime | None:
        """When the dead letter was written, at the latest when it landed; None: nobody knows."""
        row = self.candidate.row
        at = row["routed_at"] or row["dlq_timestamp"]
        return None if at is None else min(at, row["_ingested_at"] or at)

    def doubt(self, reason: str, options: Options) -> None:
        """Take a reason in spite of which a person can let the record be replayed."""
        if reason not in options.allowed:
            self.reasons.append(reason)

    @property
    def record(self) -> PlannedRecord:
        """What a run produces; it has a target."""
        assert self.topic is not None
        return PlannedRecord(
            self.position or 0,
            self.letter,
            self.source,
            self.candidate.row["consumer_group"],
            self.candidate.attempt,
            self.topic,
            self.partition,
            self.content.key,
            self.content.value,
            self.content.headers,
            self.first,
            self.dead_lettered_at,
        )


@dataclass(frozen=True)
class Draft:
    """A plan with all chosen records, eligible or not."""

    plan: Plan
    entries: tuple[Entry, ...]
    choice: str
    options: Options
    rules: Rules
    transform: Transform | None
    order: str
    created_by: str

    @property
    def eligible(self) -> list[Entry]:
        """The records that a run replays, in order."""
        eligible = [entry for entry in self.entries if not entry.reasons]
        return sorted(eligible, key=lambda entry: entry.position or 0)

    @property
    def reasons(self) -> Counter[str]:
        """How many records are not eligible for each reason; a record can have several."""
        return Counter(reason for entry in self.entries for reason in entry.reasons)
