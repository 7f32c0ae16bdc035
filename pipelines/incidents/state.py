"""An incident's times and what people did -> its state at a moment.

The tables hold times only, so that a run without news writes nothing. The state follows from them when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

NEW, ONGOING, RESOLVED, REGRESSED = "NEW", "ONGOING", "RESOLVED", "REGRESSED"
FRESH = timedelta(hours=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class State:
    """The state of an incident at a moment.

    ``is_quiet``: no record came for longer than the pause that ends it. ``read_until``: until when all of its DLQ
    topics are known to be read. ``muted_until``: None if nobody muted it, or the mute is over.
    """

    name: str
    is_quiet: bool
    read_until: datetime | None
    resolved_by: str | None = None
    muted_until: datetime | None = None

    @property
    def is_open(self) -> bool:
        """True unless it is resolved."""
        return self.name != RESOLVED

    @property
    def is_loud(self) -> bool:
        """True if it is open and nobody muted it."""
        return self.is_open and self.muted_until is None


def state_of(
    incident: Mapping[str, Any], read_until: Mapping[str, datetime], now: datetime, actions: Iterable[Any] = ()
) -> State:
    """Return the state of an incident at ``now``.

    It is resolved if a person said so and no record came since, or if the records of each of its DLQ topics were read
    past the pause that ends it. Silence alone proves nothing: nobody may have read the topic. ``read_until`` has the
    time of the newest record of each DLQ topic. ``actions`` are those on the incident up to ``now``, in order of time.
    If the last record is ahead of the clock when a person resolves, only a later one counts as new.
    """
    last_at: datetime = incident["last_at"]
    pause = timedelta(seconds=incident["pause_seconds"])
    known = [read_until.get(dlq_topic["dlq_topic"]) for dlq_topic in incident["dlq_topics"] or ()]
    until = min((at for at in known if at is not None), default=None) if known and None not in known else None
    resolved_by, muted_until = None, None
    for action in actions:
        if action.action == "resolve":
            resolved_at = max(action.acted_at, action.until or action.acted_at)
            resolved_by = action.acted_by if resolved_at >= last_at else None
        elif action.action == "mute":
            muted_until = action.until
    is_quiet = now - last_at > pause
    muted = muted_until if muted_until is not None and muted_until > now else None
    if resolved_by is not None or (is_quiet and until is not None and until - last_at > pause):
        name = RESOLVED
    elif incident["predecessor_id"] or any(action.action == "resolve" for action in actions):
        name = REGRESSED
    else:
        name = NEW if now - incident["first_at"] <= FRESH else ONGOING
    return State(name, is_quiet, until, resolved_by, muted)


def moment(micros: int) -> datetime | None:
    """Return the time of microseconds since 1970; None if Python's datetime cannot hold it."""
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return None


def micros(at: datetime) -> int:
    """Return microseconds since 1970."""
    return (at - EPOCH) // timedelta(microseconds=1)


def sparkline(timeline: Iterable[Mapping[str, int]], most: int = 32) -> str:
    """Return records by time as a row of blocks, at most ``most``, from the first record's half hour to the last's.

    It is empty for one half hour: a single block tells nothing.
    """
    counted = {bucket["half_hour"]: bucket["record_count"] for bucket in timeline}
    if len(counted) < 2:
        return ""
    first, last = min(counted), max(counted)
    half_hours = (last - first) // 1_800_000_000 + 1
    width = -(-half_hours // most)
    buckets = [0] * -(-half_hours // width)
    for at, count in counted.items():
        buckets[(at - first) // 1_800_000_000 // width] += count
    greatest = max(buckets)
    return "".join(
        " " if not count else "▁▂▃▄▅▆▇█"[(8 * count - 1) // greatest if count < greatest else 7] for count in buckets
    )
