"""All that the site says, as data: what the pages are rendered from, and ``afterlog report --format json``.

Payloads, keys and header values are in no part of it, unless ``[report] payloads`` asks for samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from pipelines.commands.incidents.reading import DAY, HOUR
from pipelines.incidents.blast import Blast
from pipelines.site.examples import Quarantined
from pipelines.site.past import Past
from pipelines.site.quality import Pipeline
from pipelines.text import iso

SHOWN_HOURS, SHOWN_DAYS = 7 * 24, 90  # of histories
SETTLED = ("DELETED", "OK")  # health of topologies that need no look

Colour = Literal["grey", "green", "amber", "red"]
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Light:
    """Whether anything is wrong: a colour, a sentence, and why the colour is not green.

    ``newest_at`` is the time of the newest dead letter, which the sentence tells; None if none is known.
    """

    colour: Colour
    sentence: str
    reasons: tuple[str, ...]
    newest_at: datetime | None = None


@dataclass(frozen=True)
class Series:
    """Dead letters of one owner for each hour of a timeline; ``name`` None: of no group, and nothing names another.

    ``week``, ``day`` and ``last_hour`` count those of the last 7 days, 24 hours and 60 minutes.
    """

    name: str | None
    is_rest: bool
    counts: tuple[int, ...]
    week: int = 0
    day: int = 0
    last_hour: int = 0


@dataclass(frozen=True)
class Change:
    """What is new of an incident or a finding, in words; ``is_bad`` if somebody should look."""

    words: str
    is_bad: bool
    incident_id: str | None = None


@dataclass(frozen=True)
class News:
    """What changed last: after the report of ``since``."""

    since: datetime
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Marker:
    """Something that happened beside the dead letters: a revision of a topology, a deployment, a broken gate, a gap."""

    at: datetime
    kind: Literal["revision", "deployment", "gate", "gap"]
    words: str
    application: str | None = None


@dataclass(frozen=True)
class Timeline:
    """Dead letters by hour of the clock and owner in the 7 days until ``end``, with what happened meanwhile.

    ``is_past``: nothing newer is known, so that the days end with the newest dead letter. ``last_hour`` counts the 60
    minutes until the moment ``until``; ``hour_before`` the same minutes a week earlier. Each is None if nothing is
    known of that time.
    """

    begin: datetime
    end: datetime
    is_past: bool
    series: tuple[Series, ...]
    markers: tuple[Marker, ...]
    until: datetime
    last_hour: int | None
    hour_before: int | None

    @property
    def is_incomplete(self) -> bool:
        """True if the last of the hours is not over."""
        return not self.is_past and self.until < self.end

    @property
    def totals(self) -> tuple[int, ...]:
        """The dead letters of each hour."""
        return tuple(map(sum, zip(*(layer.counts for layer in self.series), strict=True))) if self.series else ()


@dataclass(frozen=True)
class Command:
    """A command to copy, and what it does."""

    words: str
    text: str


@dataclass(frozen=True)
class Sample:
    """The coordinates of a dead letter and of its source record; ``shown`` is the dead letter as text, if asked for."""

    dead_letter: str
    source: str
    times: int
    routed_at: datetime | None
    shown: str | None = None


@dataclass(frozen=True)
class Partition:
    """What an incident touches of a partition of its source topic."""

    partition: int | None
    records: int
    source_records: int
    first_offset: int | None
    last_offset: int | None


@dataclass(frozen=True)
class Suspect:
    """What may have caused an incident."""

    kind: str
    name: str
    sentence: str
    changed_at: datetime | None


@dataclass(frozen=True)
class Case:
    """An incident, whole; its timeline counts records by spans of time that last ``each``.

    ``no_change`` says that no suspect is a change; it is empty if one is. ``replay`` says what a plan of it would
    replay, and what was replayed before; None: nobody was asked. ``untimed`` names those of its times at which a record
    without a time was read.
    """

    incident_id: str
    severity: str
    state: str
    is_open: bool
    is_loud: bool
    is_quiet: bool
    muted_until: datetime | None
    verdict: str
    chip: str
    sentence: str
    where: str
    about_the_state: tuple[str, ...]
    evidence: tuple[str, ...]
    group: str | None
    owner: str | None
    topic: str | None
    dlq_topics: tuple[str, ...]
    records: int
    source_records: int
    an_hour: float | None
    usual_an_hour: float | None
    first_at: datetime
    last_at: datetime
    untimed: tuple[str, ...]
    timeline: tuple[tuple[datetime, int], ...]
    each: timedelta
    disposition: str | None
    error: str | None
    exception_class: str | None
    cause_class: str | None
    frame: str | None
    fingerprint: str
    fingerprint_of: str
    predecessor: str | None
    with_payload: int
    without_payload: int
    partitions: tuple[Partition, ...]
    samples: tuple[Sample, ...]
    suspects: tuple[Suspect, ...]
    no_change: str
    blast: Blast | None
    replay: tuple[str, ...] | None
    commands: tuple[Command, ...]
    page: str | None

    @property
    def state_in_words(self) -> str:
        """Its state, and that it is muted."""
        return self.state if self.muted_until is None else f"{self.state} (muted)"

    @property
    def downstream(self) -> tuple[str, ...]:
        """The applications that its topic reaches."""
        return tuple(self.blast.groups) if self.blast else ()


@dataclass(frozen=True)
class Delivered:
    """The sums of gold.reconciliation for a topic; None: of all topics.

    What only a log tells is None where no segment of it landed.
    """

    topic: str | None
    acknowledged: int
    failed: int
    lost: int | None
    absent: int | None
    aborted: int | None
    open: int | None
    dead_lettered: int
    failed_dlq_writes: int
    unexplained_offsets: int

    @property
    def is_bad(self) -> bool:
        """True if something is lost, failed, aborted or not explained."""
        return bool(self.lost or self.failed_dlq_writes or self.aborted or self.unexplained_offsets or self.absent)


@dataclass(frozen=True)
class Guarantee:
    """A producer's guarantee that is not in effect."""

    verdict: str
    client: str
    topic: str
    sentence: str


@dataclass(frozen=True)
class Lost:
    """Offsets of a partition that hold lost messages."""

    topic: str
    partition: int | None
    messages: int
    first_offset: int | None
    last_offset: int | None


@dataclass(frozen=True)
class Delivery:
    """What became of messages; ``topics`` with trouble come first.

    ``outcomes`` counts the messages of each topic in the ledger by outcome, ``outcome_names`` in this order.
    """

    total: Delivered | None
    topics: tuple[Delivered, ...]
    lost: tuple[Lost, ...]
    guarantees: tuple[Guarantee, ...]
    guarantees_in_effect: int
    outcomes: tuple[tuple[str, Mapping[str, int | None]], ...] = ()
    outcome_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Revision:
    """A topology that an application had, and how it differs from the one before."""

    revision: int
    accepted_at: datetime | None
    replaced_at: datetime | None
    epochs: tuple[int, ...]
    changes: tuple[tuple[str, tuple[str, ...]], ...]
    topology_hash: str | None = None
    description: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Application:
    """An application of Kafka Streams: its topology, its health, and when it changed."""

    name: str
    health: str
    sentence: str
    revision: int | None
    nodes: int | None
    last_seen_at: datetime | None
    last_accepted_at: datetime | None
    defects: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    pushes: Mapping[str, Any] | None
    revisions: tuple[Revision, ...]
    before_incidents: tuple[tuple[str, int], ...]
    description: str | None = field(repr=False)

    @property
    def condition(self) -> str:
        """Its health, and that its description is malformed, which health does not tell."""
        return f"{self.health}, malformed" if self.health == "OK" and self.defects else self.health

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it needs a look, in words; nothing if it needs none."""
        reasons = (
            (self.health not in SETTLED, "its health"),
            (bool(self.defects), "its defects"),
            (bool(self.before_incidents), "changed near an open incident"),
        )
        return tuple(words for holds, words in reasons if holds)

    @property
    def needs_a_look(self) -> bool:
        """True if its health is not good, its description has defects, or an open incident followed a change."""
        return bool(self.reasons)


@dataclass(frozen=True)
class Replayable:
    """How many dead letters of the open incidents of an owner and topic came with a payload, and how many without."""

    group: str | None
    owner: str | None
    topic: str | None
    records: int
    without_payload: int
    incidents: tuple[str, ...]


@dataclass(frozen=True)
class Replay:
    """A plan of a replay, how many of its records stand on their targets, and what became of these.

    ``unknown`` counts those of which nobody knows whether they were delivered or died again.
    """

    plan_id: str
    created_at: datetime
    choice: str
    target: str
    eligible: int
    replayed: int
    delivered: int
    died_again: int
    unknown: int


@dataclass(frozen=True)
class History:
    """The dead letters of a group or topic by time. It ends with the last one, so it changes only with new ones.

    ``hours`` are those of the 7 days until the last hour, ``days`` those of the 90 days (UTC) until the last day.
    ``before`` counts what is earlier, ``untimed`` what has no time, ``ahead`` what is stamped ahead.
    """

    first_hour: datetime
    last_hour: datetime
    hours: tuple[int, ...]
    days: tuple[int, ...]
    before: int
    untimed: int
    ahead: int

    @property
    def hours_begin(self) -> datetime:
        """When the first of the hours begins."""
        return self.last_hour - (SHOWN_HOURS - 1) * HOUR

    @property
    def days_begin(self) -> datetime:
        """When the first of the days begins."""
        return self.last_hour.replace(hour=0) - (SHOWN_DAYS - 1) * DAY

    @property
    def is_older(self) -> bool:
        """True if some are from before the hours."""
        return self.first_hour < self.hours_begin


@dataclass(frozen=True)
class Subject:
    """An owner or a topic: its dead letters and what is known of it; ``is_group``: the owner is a consumer group."""

    name: str | None
    records: int
    without_payload: int
    history: History | None
    by: tuple[tuple[str, tuple[tuple[str | None, int], ...]], ...]
    incidents: tuple[str, ...]
    findings: tuple[Row, ...]
    readers: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()
    delivered: Delivered | None = None
    is_application: bool = False
    is_group: bool = False


@dataclass(frozen=True)
class Content:
    """All that the site says; ``merged`` leads from ids of incidents to the ones that took them in.

    ``fronts`` has, by team, the same of what is its own. ``unreadable`` names tables of which nothing is known
    though they exist, each with the table that is damaged: itself, or one that it is read with.
    """

    cluster: str
    warehouse: str
    made_at: datetime
    light: Light
    timeline: Timeline
    incidents: tuple[Case, ...]
    findings: tuple[Row, ...]
    delivery: Delivery
    applications: tuple[Application, ...]
    replay: tuple[Replayable, ...]
    quarantine: Quarantined
    groups: tuple[Subject, ...]
    topics: tuple[Subject, ...]
    pipeline: Pipeline
    news: News | None
    replays: tuple[Replay, ...] = ()
    merged: Mapping[str, str] = field(default_factory=dict)
    past: Past = field(default_factory=Past)
    fronts: Mapping[str, Content] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)

    @property
    def open(self) -> tuple[Case, ...]:
        """The incidents that are open, the most urgent first; muted ones, which count as open nowhere, come last."""
        return tuple(case for case in self.incidents if case.is_open)

    @property
    def topologies_to_look_at(self) -> tuple[Application, ...]:
        """The applications whose topology needs a look, the worst first."""
        return tuple(application for application in self.applications if application.needs_a_look)

    def as_json(self, team: str | None = None) -> dict[str, Any]:
        """Return it as plain values; of a team, what its front tells."""
        if team is not None:
            return {"team": team, **{name: plain(getattr(self.fronts[team], name)) for name in _OF_TEAM}}
        content: dict[str, Any] = plain(self)
        return content


@dataclass(frozen=True)
class Other:
    """Another cluster of the settings: where its front is, and whether anything is wrong in it."""

    cluster: str
    address: str
    sentence: str


@dataclass(frozen=True)
class Siblings:
    """The other clusters of the settings; ``above`` leads to the pages of the first one, with Data Docs of all."""

    others: tuple[Other, ...] = ()
    above: str = ""


ALONE = Siblings()

_OF_TEAM = (
    *("cluster", "warehouse", "made_at", "light", "incidents", "findings", "applications"),
    *("replay", "groups", "topics", "news"),
)
# Topologies, which `afterlog describe --format json` tells, and what is told of each team alone.
_UNSHOWN = ("description", "fronts")


def plain(value: Any) -> Any:
    """Return a value as JSON knows it; times as ISO 8601."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Blast):
        return value.as_json()
    if is_dataclass(value):
        names = [attribute.name for attribute in fields(value) if attribute.name not in _UNSHOWN]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    return [plain(part) for part in value]
