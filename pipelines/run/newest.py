"""How old the newest record of each feed is, whether a feed is set up at all, and whether one fell silent.

Delta's file statistics tell most of it; no session is needed for a local warehouse.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from expectations.rules import counted
from pipelines.catalog import CATALOG, stages_of_type
from pipelines.settings import Settings
from pipelines.stage import Land
from pipelines.steps.land import unread
from pipelines.warehouse import jvmless, progress
from pipelines.warehouse.progress import Progress
from pipelines.warehouse.tables import Warehouse

# By landing directory: the columns that tell the time of a record. The first are of what landed, the last is of what
# was accepted, which is what questions ask.
TIMES = {
    "dlq": (("bronze.dlq_records", "timestamp"), ("silver.dlq_records", "routed_at")),
    "streams-requests": (("bronze.streams_requests", "logged_at"),),
    "acknowledgements": (("silver.acknowledgements", "timestamp"), ("silver.acknowledgements", "acknowledged_at")),
    "producers": (("silver.producers", "stated_at"),),
    "broker-logs": (("bronze.broker_logs", "logged_at"),),
    "segments": (("silver.record_batches", "max_timestamp"),),
}
WHAT_LANDS = {
    "dlq": "dead-letter records",
    "streams-requests": "the brokers' request log",
    "acknowledgements": "what producers were told",
    "producers": "what producers are set to",
    "broker-logs": "the brokers' own logs",
    "segments": "log segments, as <topic>-<partition>/<base offset>.log,",
}
OF_TOPICS = {"dlq": "dlq", "streams-requests": "streams_requests", "acknowledgements": "acknowledgements"}
NOUNS = {"broker-logs": "failed DLQ write", "producers": "statement", "acknowledgements": "acknowledgement"}
# Copies of segments, statements and the few events that are kept of brokers' logs come when somebody makes them.
STEADY = ("dlq", "streams-requests", "acknowledgements")

# A feed is steady that had so many pauses in so long a time, the longest of which is at most this share of it.
LEAST_PAUSES = 10
LEAST_TIME = timedelta(minutes=30)
MOST_OF_A_PAUSE = 0.25
HISTORY = timedelta(days=14)  # two weekends
EVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Newest:
    """The newest record of a feed as of ``now``: later ones, of clocks that are ahead, are left out.

    ``accepted_at`` is that of the newest record that was accepted, ``landed_at`` when the last rows landed. A feed is
    ``used`` if anything landed ever, waits to be read, or is to be read from topics. Where its tables cannot be read,
    nothing is known of times.
    """

    feed: str
    used: bool
    how: str
    now: datetime
    at: datetime | None = None
    accepted_at: datetime | None = None
    landed_at: datetime | None = None
    is_readable: bool = True

    @property
    def age(self) -> timedelta | None:
        """How old the newest record is; None where there is none, or nothing tells."""
        return None if self.at is None else self.now - self.at

    @property
    def in_words(self) -> str:
        """What there is to say of the feed, without its name."""
        noun = NOUNS.get(self.feed, "record")
        if not self.is_readable:
            return "its tables cannot be read: see `afterlog doctor`"
        if not self.used:
            return f"not set up: {self.how}"
        if self.at is not None:
            return f"the newest {noun} is {lasting(self.now - self.at)} old ({moment(self.at)})"
        if self.landed_at is not None and self.landed_at > self.now:
            return f"no {noun} tells a time before {moment(self.now)}"
        if self.landed_at is not None:
            return f"no {noun} tells a time that is past; the last landed {lasting(self.now - self.landed_at)} ago"
        return f"no {noun} yet"


@dataclass(frozen=True)
class Silence:
    """A feed that has no record for longer than ``limit``; ``pause`` is the longest it had before, if that counts."""

    limit: timedelta
    pause: timedelta | None = None


def of_feeds(warehouse: Warehouse, now: datetime | None = None) -> list[Newest]:
    """Return what is newest of each feed, in the order of the catalog.

    Without a session nothing is known of the tables of a warehouse that is not local.
    """
    return [of_feed(warehouse, stage, now) for stage in stages_of_type(Land)]


def of_feed(warehouse: Warehouse, stage: Land, now: datetime | None = None) -> Newest:
    """Return what is newest of the feed that a landing stage reads."""
    now = now or datetime.now(UTC)
    if not warehouse.is_local and warehouse.session is None:
        used = bool(warehouse.settings.topics_of(stage.directory) or unread(warehouse.settings, stage, None))
        return Newest(stage.directory, used, how(warehouse.settings, stage), now)
    known = progress.load(warehouse, stage.table)
    waits = unread(warehouse.settings, stage, known)
    try:
        landed_at = jvmless.greatest(warehouse, stage.table, "_ingested_at", EVER)
        times = [jvmless.greatest(warehouse, table, column, now) for table, column in TIMES[stage.directory]]
    except Exception:  # a reader's own, of any kind: the doctor tells what is wrong with a table
        return Newest(stage.directory, True, how(warehouse.settings, stage), now, is_readable=False)
    used = landed_at is not None or _was_read(known) or warehouse.settings.topics_of(stage.directory) is not None
    used = used or bool(waits)
    at = max((time for time in times if time is not None), default=None)
    return Newest(stage.directory, used, how(warehouse.settings, stage), now, at, times[-1], landed_at)


def how(settings: Settings, stage: Land) -> str:
    """Say how a feed is set up."""
    said = f"put files of {WHAT_LANDS[stage.directory]} into {settings.landing_of(stage.directory)}"
    part = OF_TOPICS.get(stage.directory)
    return said + (f', or set source = "kafka" under [{part}]' if part else "")


def silence(warehouse: Warehouse, newest: Newest) -> Silence | None:
    """Return since how long a feed should have had a record, if it fell silent; None where it did not.

    A setting says how long a feed may pause. Where none does, a steady feed is silent once it pauses some times as long
    as it ever did in the two weeks before its newest record.
    """
    rule = warehouse.settings.silence
    if newest.age is None or newest.at is None:
        return None
    if newest.feed in rule.after_hours:
        limit = timedelta(hours=rule.after_hours[newest.feed])
        return Silence(limit) if newest.age > limit else None
    least = timedelta(hours=rule.least_hours)
    if newest.feed not in STEADY or newest.age <= least or newest.at < jvmless.EPOCH + HISTORY:
        return None
    for table, column in TIMES[newest.feed]:
        try:
            minutes = jvmless.minutes(warehouse, table, column, newest.at - HISTORY, newest.at)
        except Exception:  # a reader's own, of any kind: the doctor tells what is wrong with a table
            return None
        pauses = [later - earlier for earlier, later in pairwise(minutes)]
        if len(pauses) < LEAST_PAUSES or minutes[-1] - minutes[0] < LEAST_TIME:
            continue
        if max(pauses) > MOST_OF_A_PAUSE * (minutes[-1] - minutes[0]):
            continue
        limit = max(least, rule.times_longest_pause * max(pauses))
        return Silence(limit, max(pauses)) if newest.age > limit else None
    return None


def source_of(table: str) -> Land | None:
    """Return the landing stage whose rows a table is made of in the first place; None where it is of no feed."""
    by_table = {stage.table: stage for stage in CATALOG}
    layer, _, name = table.partition(".")
    stage = by_table.get(f"silver.{name}" if layer in ("quarantine", "held") else table)
    while stage:
        if isinstance(stage, Land):
            return stage
        stage = by_table.get(stage.inputs[0])
    return None


def lasting(duration: timedelta) -> str:
    """Return a duration in a unit that a person would choose: 32 hours, 3 days."""
    seconds = max(0, int(duration.total_seconds()))
    for unit, length, least in (("day", 86_400, 3), ("hour", 3_600, 2), ("minute", 60, 2), ("second", 1, 0)):
        if seconds >= least * length:
            number = seconds // length
            return counted(number, unit)
    raise AssertionError


def moment(at: datetime) -> str:
    """Return a time as it is shown to people."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _was_read(known: Progress | None) -> bool:
    """Tell whether a file or a topic of a feed was read ever, though none of its lines may have been wanted."""
    return bool(known and (known.files or any(topics.followed for topics in known.topics.values())))
