"""Tell how old the newest record of each feed is, whether a feed is set up at all, and whether it fell silent.

Most of this comes from Delta's file statistics. Where the store opens tables, this needs no session.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from expectations.literals import EPOCH
from expectations.rules import counted
from pipelines import moments
from pipelines.catalog import CATALOG, stages_of_type
from pipelines.settings import Settings
from pipelines.stage import Land
from pipelines.steps.waiting import unread
from pipelines.warehouse import jvmless, progress
from pipelines.warehouse.progress import Progress
from pipelines.warehouse.tables import Warehouse

# By landing directory: the columns with the time of a record. The first ones are of landed records; the last one is of
# accepted records, which the questions query.
TIMES = {
    "dlq": (("bronze.dlq_records", "timestamp"), ("silver.dlq_records", "routed_at")),
    "streams-requests": (("bronze.streams_requests", "logged_at"),),
    "acknowledgements": (("silver.acknowledgements", "timestamp"), ("silver.acknowledgements", "acknowledged_at")),
    "producers": (("silver.producers", "stated_at"),),
    "changes": (("silver.changes", "changed_at"),),
    "broker-logs": (("bronze.broker_events", "logged_at"),),
    "segments": (("silver.record_batches", "max_timestamp"),),
    "cluster-settings": (("silver.cluster_settings", "observed_at"),),
}
WHAT_LANDS = {
    "dlq": "dead-letter records",
    "streams-requests": "the brokers' request log",
    "acknowledgements": "what producers were told",
    "producers": "what producers are set to",
    "changes": "deployments and other changes",
    "broker-logs": "the brokers' own logs",
    "segments": "log segments, as <topic>-<partition>/<base offset>.log,",
    "cluster-settings": "a cluster's settings, as `afterlog collect` writes them,",
}
OF_TOPICS = {"dlq": "dlq", "streams-requests": "streams_requests", "acknowledgements": "acknowledgements"}
NOUNS = {"broker-logs": "event", "producers": "statement", "acknowledgements": "acknowledgement"}
NOUNS |= {"cluster-settings": "statement", "changes": "change"}
# The other feeds are not steady: copies of segments, statements, changes and the few events kept from brokers' logs
# come only when somebody makes them.
STEADY = ("dlq", "streams-requests", "acknowledgements")

# A feed counts as steady if it had at least so many pauses in at least so long a time, and its longest pause was at
# most this share of that time.
LEAST_PAUSES = 10
LEAST_TIME = timedelta(minutes=30)
MOST_OF_A_PAUSE = 0.25
HISTORY = timedelta(days=14)  # two weekends
EVER = datetime.max.replace(tzinfo=UTC)
MOST_AHEAD = timedelta(days=1)  # of a stamp that tells of a clock; others are nobody's time, and would be told for ever


@dataclass(frozen=True)
class Newest:
    """The newest record of a feed as of ``now``; later records, from clocks that are ahead, are left out.

    ``at`` is the time of the newest record, ``accepted_at`` that of the newest accepted record, ``landed_at`` the time
    when the last rows landed. If the newest record is stamped ``ahead`` of now, ``at`` is when the last rows landed. A
    feed is ``used`` if anything was ever read, if files wait to be read, or if the settings give it topics. If its
    tables cannot be read, all times are None.
    """

    feed: str
    used: bool
    how: str
    now: datetime
    at: datetime | None = None
    accepted_at: datetime | None = None
    landed_at: datetime | None = None
    is_readable: bool = True
    ahead: timedelta | None = None

    @property
    def age(self) -> timedelta | None:
        """How old the newest record is; None if there is no record, or no time is known."""
        return None if self.at is None else self.now - self.at

    @property
    def in_words(self) -> str:
        """The feed's state in words, without its name."""
        noun = NOUNS.get(self.feed, "record")
        if not self.is_readable:
            return "its tables cannot be read: see `afterlog doctor`"
        if not self.used:
            return f"not set up: {self.how}"
        if self.ahead is not None and self.landed_at is not None:
            return (
                f"the last {noun} landed {lasting(self.now - self.landed_at)} ago, and one is stamped "
                f"{lasting(self.ahead)} ahead: check the clock of what wrote it"
            )
        if self.at is not None:
            return f"the newest {noun} is {lasting(self.now - self.at)} old ({moment(self.at)})"
        if self.landed_at is not None and self.landed_at > self.now:
            return f"no {noun} tells a time before {moment(self.now)}"
        if self.landed_at is not None:
            return f"no {noun} tells a time that is past; the last landed {lasting(self.now - self.landed_at)} ago"
        return f"no {noun} yet"


@dataclass(frozen=True)
class Silence:
    """A feed without a record for longer than ``limit``; ``pause`` is the longest earlier one, if the limit uses it.

    Files of dead letters may pause as nothing fails: nobody is called for that, unless a setting limits the pause.
    """

    limit: timedelta
    pause: timedelta | None = None
    is_urgent: bool = True


def of_feeds(warehouse: Warehouse, now: datetime | None = None) -> list[Newest]:
    """Return the newest record of each feed, in the order of the catalog.

    Without a session the tables of a warehouse that only Spark opens cannot be read: all times are None.
    """
    warehouse.open_ahead(tables())
    return [of_feed(warehouse, stage, now) for stage in stages_of_type(Land)]


def tables() -> set[str]:
    """Return the tables that tell the newest records of feeds."""
    of_times = {table for columns in TIMES.values() for table, _ in columns}
    return of_times | {stage.table for stage in stages_of_type(Land)}


def of_feed(warehouse: Warehouse, stage: Land, now: datetime | None = None) -> Newest:
    """Return the newest record of the feed that a landing stage reads."""
    now = now or moments.now()
    if not warehouse.opens_tables and warehouse.session is None:
        used = bool(warehouse.settings.topics_of(stage.directory) or unread(warehouse.settings, stage, None))
        return Newest(stage.directory, used, how(warehouse.settings, stage), now)
    known = progress.load(warehouse, stage.table)
    waits = unread(warehouse.settings, stage, known)
    try:
        landed_at = jvmless.greatest(warehouse, stage.table, "_ingested_at", EVER)
        times = [jvmless.greatest(warehouse, table, column, now) for table, column in TIMES[stage.directory]]
        latest = now + MOST_AHEAD
        stamps = [jvmless.greatest(warehouse, table, column, latest) for table, column in TIMES[stage.directory]]
    except Exception:  # the reader's libraries raise any kind; `afterlog doctor` tells what is wrong with a table
        return Newest(stage.directory, True, how(warehouse.settings, stage), now, is_readable=False)
    used = landed_at is not None or _was_read(known) or warehouse.settings.topics_of(stage.directory) is not None
    used = used or bool(waits)
    at = max((time for time in times if time is not None), default=None)
    stamp = max((time for time in stamps if time is not None), default=None)
    ahead = stamp - now if stamp is not None and stamp > now and landed_at is not None and landed_at <= now else None
    at = landed_at if ahead is not None else at
    return Newest(stage.directory, used, how(warehouse.settings, stage), now, at, times[-1], landed_at, ahead=ahead)


def how(settings: Settings, stage: Land) -> str:
    """Say how to set up a feed."""
    advice = f"put files of {WHAT_LANDS[stage.directory]} into {settings.landing_of(stage.directory)}"
    part = OF_TOPICS.get(stage.directory)
    return advice + (f', or set source = "kafka" under [{part}]' if part else "")


def silence(warehouse: Warehouse, newest: Newest) -> Silence | None:
    """Return the limit that a feed's pause exceeds, if the feed fell silent; None if it did not.

    A setting can say how long a feed can pause. Without it, a steady feed is silent if its pause is longer than
    ``times_longest_pause`` times its longest pause in the two weeks before its newest record, and than ``least_hours``.
    A feed whose topics are read to their ends is quiet and not silent.
    """
    rule = warehouse.settings.silence
    if newest.age is None or newest.at is None:
        return None
    read = _read_until(warehouse, newest.feed)
    age = newest.now - max(newest.at, read or newest.at)
    if newest.feed in rule.after_hours:
        limit = timedelta(hours=rule.after_hours[newest.feed])
        return Silence(limit) if age > limit else None
    least = timedelta(hours=rule.least_hours)
    if newest.feed not in STEADY or age <= least or newest.at < EPOCH + HISTORY:
        return None
    for table, column in TIMES[newest.feed]:
        try:
            minutes = jvmless.minutes(warehouse, table, column, newest.at - HISTORY, newest.at)
        except Exception:  # the reader's libraries raise any kind; `afterlog doctor` tells what is wrong with a table
            return None
        pauses = [later - earlier for earlier, later in pairwise(minutes)]
        if len(pauses) < LEAST_PAUSES or minutes[-1] - minutes[0] < LEAST_TIME:
            continue
        if max(pauses) > MOST_OF_A_PAUSE * (minutes[-1] - minutes[0]):
            continue
        limit = max(least, rule.times_longest_pause * max(pauses))
        is_urgent = newest.feed != "dlq" or read is not None
        return Silence(limit, max(pauses), is_urgent) if age > limit else None
    return None


def _read_until(warehouse: Warehouse, feed: str) -> datetime | None:
    """Return until when topics of a feed were read to their ends; None if it reads none, or none was read so far."""
    if warehouse.settings.topics_of(feed) is None:
        return None
    return max(progress.read_until(warehouse, TIMES[feed][0][0]).values(), default=None)


def source_of(table: str) -> Land | None:
    """Return the landing stage at the start of a table's first inputs; None if the table belongs to no feed."""
    by_table = {stage.table: stage for stage in CATALOG}
    while True:
        layer, _, name = table.partition(".")
        stage = by_table.get(f"silver.{name}" if layer in ("quarantine", "held") else table)
        if stage is None or isinstance(stage, Land):
            return stage
        table = stage.inputs[0]


def lasting(duration: timedelta) -> str:
    """Return a duration in a unit that a person would choose, such as 32 hours or 3 days.

    >>> lasting(timedelta(minutes=170))
    '2 hours'
    """
    seconds = max(0, int(duration.total_seconds()))
    for unit, length, least in (("day", 86_400, 3), ("hour", 3_600, 2), ("minute", 60, 2), ("second", 1, 0)):
        if seconds >= least * length:
            number = seconds // length
            return counted(number, unit)
    raise AssertionError


def moment(at: datetime) -> str:
    """Return a time as people read it.

    >>> moment(datetime(2026, 11, 21, 2, 41, 7, tzinfo=UTC))
    '2026-11-21 02:41:07 UTC'
    """
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _was_read(known: Progress | None) -> bool:
    """Tell whether a file or topic of a feed was ever read, even if all of its lines were skipped."""
    return bool(known and (known.files or any(topics.followed for topics in known.topics.values())))
