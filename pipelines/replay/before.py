"""A plan -> what a person should know before it is run: who else gets the records, and whether incidents go on."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from expectations.owners import committing_group, owner_of
from expectations.rules import counted
from expectations.text import visible
from pipelines import moments
from pipelines.commands.incidents.incident import Incident
from pipelines.commands.incidents.reading import INCIDENTS, Incidents
from pipelines.commands.readers import Readers, readers_of
from pipelines.errors import UsageError
from pipelines.replay.draft import Draft
from pipelines.run.newest import lasting
from pipelines.text import first_names, iso
from pipelines.warehouse.tables import Warehouse

MOST_SAID = 5


@dataclass(frozen=True)
class Before:
    """What is known before a run: the readers of its targets, whose records these are, and their incidents."""

    readers: Readers = field(default_factory=dict)
    owners: Mapping[str, frozenset[str]] = field(default_factory=dict)
    incidents: Sequence[Incident] = ()

    @classmethod
    def of(cls, warehouse: Warehouse, draft: Draft) -> Before:
        """Read what the tables tell of the targets and incidents of a plan's eligible records."""
        owners: dict[str, dict[str, str | None]] = defaultdict(dict)  # by target, each with the group that commits
        incident_ids: set[str] = set()
        for entry in draft.eligible:
            row, topic = entry.candidate.row, entry.topic or ""
            owners[topic] |= {owner: committing_group(row) for owner in [owner_of(row)] if owner is not None}
            incident_ids |= {entry.candidate.incident_id} if entry.candidate.incident_id is not None else set()
        incidents: list[Incident] = []
        if incident_ids and warehouse.exists(INCIDENTS):
            known = Incidents(warehouse, moments.now())
            for name in sorted(incident_ids):
                with contextlib.suppress(UsageError):  # it has no records any more
                    incidents.append(known.of(name))
        own = {  # of several owners each gets the records of the others again
            topic: frozenset(filter(None, [*names, *names.values()]))
            for topic, names in owners.items()
            if len(names) == 1
        }
        return cls(readers_of(warehouse, sorted(owners)), own, incidents)

    def said(self) -> list[str]:
        """Return it in sentences."""
        lines = []
        for topic, readers in list(self.readers.items())[:MOST_SAID]:
            others = [
                f"{visible(name)} ({', '.join(kinds)})"
                for name, kinds in readers.items()
                if name not in self.owners.get(topic, ())
            ]
            if others:
                lines.append(
                    f"{visible(topic)} is also read by {first_names(others, MOST_SAID)}: these get the records again."
                )
            else:
                lines.append(
                    f"{visible(topic)} has no other reader that topologies, dead letters or `afterlog collect` tell of."
                )
        going_on = [incident for incident in self.incidents if incident.state.is_open]
        for incident in going_on[:MOST_SAID]:
            ago = lasting(incident.now - incident.row["last_at"])
            lines.append(
                f"Incident {incident.row['incident_id']} is not over: its last dead letter came {ago} ago, so the "
                "records may die again."
            )
        if len(going_on) > MOST_SAID:
            lines.append(f"{counted(len(going_on) - MOST_SAID, 'more incident')} are not over.")
        return lines

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "readers": {
                topic: {name: list(kinds) for name, kinds in readers.items()} for topic, readers in self.readers.items()
            },
            "incidents": [
                {
                    "incident": incident.row["incident_id"],
                    "state": incident.state.name,
                    "is_open": incident.state.is_open,
                    "last_at": iso(incident.row["last_at"]),
                }
                for incident in self.incidents
            ],
        }
