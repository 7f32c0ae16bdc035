"""An incident and the minutes of its error -> the incident as it was at a moment, as far as the minutes tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from pipelines.incidents.episodes import LEAST_PAUSE
from pipelines.incidents.state import micros, moment

Row = Mapping[str, Any]
AS_OF = ("last_at", "record_count", "timeline")
"""The columns that are those of the moment; all others are as known now."""


def until(incident: Row, errors: Iterable[Row], at: datetime) -> dict[str, Any] | None:
    """Return an incident with the dead letters until a moment; None if nothing tells them.

    ``errors`` are the rows of silver.dlq_errors of its fingerprint. Of a minute that the moment divides, the first
    record counts: no more is known.
    """
    first, end = micros(incident["first_at"]), micros(at)
    last, timeline = first, Counter[int]()
    for minute in (minute for row in errors for minute in row["minutes"] or () if first <= minute["first_at"] <= end):
        is_whole = minute["last_at"] <= end
        last = max(last, minute["last_at"] if is_whole else minute["first_at"])
        timeline[minute["first_at"] - minute["first_at"] % LEAST_PAUSE] += minute["record_count"] if is_whole else 1
    if not timeline:
        return None
    counts = [{"half_hour": half_hour, "record_count": timeline[half_hour]} for half_hour in sorted(timeline)]
    return {**incident, "last_at": moment(last), "record_count": timeline.total(), "timeline": counts}
