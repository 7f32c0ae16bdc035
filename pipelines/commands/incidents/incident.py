"""A row of gold.dlq_incidents and its state -> Incident: what people and machines are told of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from expectations.owners import OWNER, key_of, named, owner_of
from expectations.text import visible
from pipelines.incidents import ids
from pipelines.incidents.severity import LEVELS
from pipelines.incidents.state import REGRESSED, State
from pipelines.incidents.state import moment as time_of
from pipelines.incidents.until import AS_OF
from pipelines.run.newest import lasting, moment
from pipelines.settings.runs import Report
from pipelines.text import amount, iso
from pipelines.warehouse import actions
from pipelines.warehouse.actions import Action

UNSHOWN = ("attribute_value", "replayable_count")
"""A hash of a value, which tells nothing; and what older warehouses still have."""


@dataclass(frozen=True)
class Incident:
    """An incident and its state at the moment that the answer is about.

    ``known`` is its row as known now if dead letters came after the moment, else None. Then ``row`` has the times and
    counts of the moment, as far as these are known (``AS_OF``); its other columns are as known now. ``read`` says until
    when DLQ topics are known to be read. ``teams`` is empty if the settings have none. ``untimed`` names those of its
    times that tell when a record without a time was read.
    """

    row: Mapping[str, Any]
    state: State
    now: datetime
    actions: Sequence[Action] = ()
    known: Mapping[str, Any] | None = None
    read: Mapping[str, datetime] = field(default_factory=dict)
    teams: tuple[str, ...] = ()
    untimed: frozenset[str] = frozenset()

    @property
    def urgency(self) -> tuple[Any, ...]:
        """What incidents are listed by: open ones first, those ahead last, those that go on, severity, time."""
        return (
            not self.state.is_open,
            self.state.muted_until is not None,
            self.is_ahead,
            self.state.is_quiet,
            LEVELS.index(self.row["severity"]),
            -self.row["last_at"].timestamp(),
            self.row["incident_id"],
        )

    @property
    def is_ahead(self) -> bool:
        """True if all of its records are stamped ahead: their times tell nothing of now."""
        return bool(self.row["first_at"] > self.now)

    @property
    def rate(self) -> float | None:
        """Records an hour, from the first to the last, over at least an hour; None: nothing tells when these came."""
        if self.untimed:
            return None
        span = max((self.row["last_at"] - self.row["first_at"]).total_seconds(), 3600)
        return float(self.row["record_count"] * 3600 / span)

    @property
    def how_often(self) -> str:
        """The rate behind the number of records, for people."""
        return "" if self.rate is None else f", {amount(self.rate)} an hour"

    def began(self, first_at: str | None = None) -> str:
        """Return since when there are records; ``first_at`` is the first one's time in words."""
        first_at = first_at or moment(self.row["first_at"])
        return f"since an unknown time, read since {first_at}" if "first_at" in self.untimed else f"since {first_at}"

    def ended(self, last_at: str) -> str:
        """Return when the last record came; ``last_at`` is its time in words."""
        return f"last {'read ' if 'last_at' in self.untimed else ''}{last_at}"

    @property
    def predecessor(self) -> str | None:
        """The incident of the same error before it; None if nothing tells whether that was before."""
        before: str | None = self.row["predecessor_id"]
        return before if "first_at" not in self.untimed else None

    @property
    def is_told_until_now(self) -> bool:
        """True if its times and counts are those of the moment, False if nothing tells these."""
        return bool(self.row["last_at"] <= self.now)

    @property
    def escalations(self) -> list[dict[str, Any]]:
        """When it escalated until the moment of the answer, with the records an hour before and after."""
        return [
            {**escalation, "at": at}
            for escalation in self.row.get("escalations") or ()
            if (at := time_of(escalation["at"])) is not None and at <= self.now
        ]

    @property
    def escalated(self) -> list[str]:
        """Each escalation as a sentence."""
        return [
            f"It escalated at {moment(escalation['at'])}: {amount(escalation['before_per_hour'])} -> "
            f"{amount(escalation['after_per_hour'])} an hour."
            for escalation in self.escalations
        ]

    @property
    def came_back(self) -> list[str]:
        """Why its state is REGRESSED, each a sentence; none if it is another one."""
        if self.state.name != REGRESSED:
            return []
        before = self.predecessor
        lines = [f"It came back: {before} was the same error before."] if before else []
        if resolved := [action for action in self.actions if action.action == actions.RESOLVE]:
            who, at = visible(resolved[-1].acted_by), moment(resolved[-1].acted_at)
            lines.append(f"{who} resolved it at {at}, and records came since.")
        return lines

    @property
    def topics(self) -> set[str | None]:
        """Its source topic and its DLQ topics."""
        return {self.row["original_topic"], *(dlq["dlq_topic"] for dlq in self.row["dlq_topics"] or ())}

    @property
    def unread_topics(self) -> list[str]:
        """Its DLQ topics that are not known to be read past the silence that ends it."""
        end = self.row["last_at"] + timedelta(seconds=self.row["pause_seconds"])
        topics = (dlq["dlq_topic"] for dlq in self.row["dlq_topics"] or ())
        return [topic for topic in topics if (at := self.read.get(topic)) is None or at <= end]

    @property
    def owner_on_topic(self) -> str:
        """Owner and source topic, for people."""
        topic, owner = self.row["original_topic"], named(*key_of(self.row))
        on = "from" if " on " in owner else "on"  # the owner is a writer on a DLQ topic
        return f"{owner} {on} {visible(topic) if topic else 'an unknown topic'}"

    def as_json(self, report: Report) -> dict[str, Any]:
        """Return the row, the state, the actions and, if ``report`` has a URL, the address of the incident's page."""
        shown = {name: value for name, value in self.row.items() if name not in UNSHOWN}
        shown[OWNER] = owner_of(self.row)
        shown["dlq_topics"] = [dlq["dlq_topic"] for dlq in self.row["dlq_topics"] or ()]
        shown["escalations"] = self.escalations
        shown["timeline"] = [
            bucket | {"half_hour": time_of(bucket["half_hour"])} for bucket in self.row["timeline"] or ()
        ]
        if self.teams:
            shown["teams"] = list(self.teams)
        return shown | {
            "state": self.state.name,
            "is_quiet": self.state.is_quiet,
            "read_until": self.state.read_until,
            "muted_until": self.state.muted_until,
            "resolved_by": self.state.resolved_by,
            "records_an_hour": None if self.rate is None else round(self.rate, 3),
            "times_of_reading": sorted(self.untimed),
            "as_known_now": sorted(self.row.keys() - (AS_OF if self.is_told_until_now else ())) if self.known else [],
            "page": report.address_of(ids.page(self.row["incident_id"])),
            "actions": [
                {
                    "action": action.action,
                    "acted_at": action.acted_at,
                    "acted_by": action.acted_by,
                    "until": action.until,
                    "note": action.note,
                }
                for action in self.actions
            ],
        }


def ago(at: datetime, now: datetime) -> str:
    """Say how long before now a time is; a clock can be ahead."""
    return f"{lasting(at - now)} ahead" if at > now else f"{lasting(now - at)} ago"


def in_json(value: Mapping[str, Any]) -> str:
    """Return JSON in one line; times in ISO-8601, UTC."""

    def plain(content: Any) -> Any:
        if isinstance(content, datetime):
            return iso(content)
        raise TypeError(type(content).__name__)

    return json.dumps(value, default=plain)
