"""Incidents -> those that pages tell of, and those that ended so long ago that their pages only say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pipelines.commands.incidents.incident import Incident
from pipelines.settings.retention import Retention, age_of, midnight

LATEST = 200  # incidents that ended last keep their pages, however long ago that was


@dataclass(frozen=True)
class Past:
    """The ids of incidents that ended longer ago than the ``age`` of pages: their pages only say so."""

    age: str = ""
    incidents: tuple[str, ...] = ()


def parted(known: Sequence[Incident], retention: Retention, now: datetime) -> tuple[list[Incident], Past]:
    """Return the incidents that pages tell of, in their order, and what is left of the others.

    Open incidents are among the first, and so are the ``LATEST`` of those that ended.
    """
    age = age_of(retention.pages)
    ended = [incident for incident in known if not incident.state.is_open]
    if age is None or len(ended) <= LATEST:
        return [*known], Past(retention.pages)
    before = midnight(now) - age
    later = sorted(ended, key=lambda incident: (_last_news(incident), incident.row["incident_id"]), reverse=True)
    past = {incident.row["incident_id"] for incident in later[LATEST:] if _last_news(incident) < before}
    return (
        [incident for incident in known if incident.row["incident_id"] not in past],
        Past(retention.pages, tuple(sorted(past))),
    )


def _last_news(incident: Incident) -> datetime:
    """Return when the last record came, or somebody did something about it, whichever was later."""
    last_at: datetime = incident.row["last_at"]
    return max([last_at, *(action.acted_at for action in incident.actions)])
