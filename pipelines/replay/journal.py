"""What runs of plans remember beside the tables: requests, offsets noted, and which plan took which dead letter.

What is committed on a target is never taken from here: a run learns it from the target.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pipelines import moments
from pipelines.errors import EnvironmentLacking, UsageError, WriterBusy
from pipelines.replay.kept import NAME, Changed, Database, FileDatabase, ObjectDatabase
from pipelines.replay.model import Letter, PlannedRecord, Source
from pipelines.replay.runners import alone, is_running
from pipelines.replay.states import Request, State, Status
from pipelines.settings import Settings
from pipelines.stores import locations
from pipelines.stores.base import Store
from pipelines.stores.objects import Objects
from pipelines.warehouse import databases
from pipelines.warehouse.tables import Warehouse

DIRECTORY = "_replay"
_TURNS = 20  # so often a change is made again if other processes are faster
_TABLES = """
CREATE TABLE IF NOT EXISTS memory (inode INTEGER NOT NULL, since TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS plans (
    plan_id TEXT PRIMARY KEY, state TEXT NOT NULL, sentence TEXT, request TEXT, runner TEXT,
    since_planned INTEGER NOT NULL, attempted INTEGER NOT NULL,
    replayed INTEGER NOT NULL, skipped INTEGER NOT NULL, updated_at TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS offsets (
    plan_id TEXT, topic TEXT, partition INTEGER, next INTEGER NOT NULL, PRIMARY KEY (plan_id, topic, partition)
);
CREATE TABLE IF NOT EXISTS claims (
    topic TEXT, topic_id TEXT, partition INTEGER, record INTEGER, plan_id TEXT,
    attempt INTEGER NOT NULL, produced INTEGER NOT NULL,
    source_topic TEXT, source_partition INTEGER, source_record INTEGER, cluster TEXT,
    PRIMARY KEY (topic, topic_id, partition, record, plan_id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS claims_of_plans ON claims (plan_id, produced);
CREATE INDEX IF NOT EXISTS claims_of_places ON claims (topic, partition, record);
"""
_OF_SOURCES = "CREATE INDEX IF NOT EXISTS claims_of_sources ON claims (source_topic, source_partition, source_record)"
_LATER = {  # columns that older journals lack
    "claims": ("source_topic TEXT", "source_partition INTEGER", "source_record INTEGER", "cluster TEXT"),
    "plans": ("exit_code INTEGER",),
}
_OF_CLUSTER = "(cluster = ?{0} OR cluster IS NULL)"  # a claim of an older journal can be one of any cluster
_OF_LETTER = "topic = ?1 AND topic_id = ?2 AND partition = ?3 AND record = ?4"
# By the primary key SQLite would look at all claims of a topic: hence the indexes. A file does not tell the topic's id,
# which is learned when the topic itself is read: so one id can be missing.
_OF_SAME_LETTER = (
    "claims INDEXED BY claims_of_places"
    " WHERE topic = ?1 AND (topic_id = ?2 OR topic_id = '' OR ?2 = '') AND partition = ?3 AND record = ?4"
)
_OF_SAME_SOURCE = (
    "claims INDEXED BY claims_of_sources WHERE source_topic = ?1 AND source_partition = ?2 AND source_record = ?3"
)
_COLUMNS = (
    "(topic, topic_id, partition, record, plan_id, attempt, produced, source_topic, source_partition, source_record,"
    " cluster)"
)


def journal_store(settings: Settings) -> Store:
    """Return the store of the journals of replays; raises UsageError: only Spark opens the warehouse."""
    Warehouse(settings).refuse_spark_only("replays are made")
    return locations.of(f"{settings.warehouse.rstrip('/')}/{DIRECTORY}")


def _unwritable(store: Store, why: str) -> EnvironmentLacking:
    return EnvironmentLacking(
        f"{store.shown} cannot be written ({why}): replays remember there what they did, so fix it."
    )


Method = TypeVar("Method", bound=Callable[..., Any])


def _change(method: Method) -> Method:
    """Let a method be one transaction, made again while other processes are faster."""

    @wraps(method)
    def changed(self: Journal, *given: Any, **keywords: Any) -> Any:
        given = tuple([*argument] if isinstance(argument, Iterator) else argument for argument in given)
        for _ in range(_TURNS):
            with contextlib.suppress(Changed), self._transaction():
                return method(self, *given, **keywords)
        raise _unwritable(self.store, "other processes write it all the time")

    return changed  # type: ignore[return-value]


class Journal:
    """The memory of all plans' runs of a warehouse, in one database; each change is kept when its method returns.

    A warehouse can hold several clusters with topics of the same names: claims are those of one of them. ``since`` is
    the time from which on the journal knows all that plans of the warehouse replayed. One that was copied or restored
    knows it from now on, as other runs can have gone on without it.

    Raises EnvironmentLacking in all methods: the database cannot be read or written.
    """

    def __init__(self, store: Store, cluster: str) -> None:
        """Open the journal in a store for the plans of a cluster, and create both if they are not there."""
        self.store = store
        self._cluster = cluster
        with self._clear():
            self._database: Database = (
                ObjectDatabase(store) if isinstance(store, Objects) else FileDatabase(Path(store.root))
            )
            self._complete()
            self.since = self._remembered()

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Open the journal of a warehouse and cluster; raises UsageError: only Spark opens the warehouse."""
        return cls(journal_store(settings), settings.cluster)

    def __enter__(self) -> Self:
        """Return the journal."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the journal."""
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _complete(self) -> None:
        """Create the tables of a new journal, and add the columns and the index that an older one lacks."""
        parts = "SELECT count(*) FROM sqlite_master WHERE name IN ('memory', 'claims_of_sources')"
        if self._execute(parts) != [(2,)] or self._lacking():
            self._create()

    @_change
    def _create(self) -> None:
        for statement in _TABLES.split(";"):
            self._execute(statement)
        for table, column in self._lacking():  # another process may have added them meanwhile
            self._execute(f"ALTER TABLE {table} ADD COLUMN {column}")
        self._execute(_OF_SOURCES)

    def _lacking(self) -> list[tuple[str, str]]:
        known = {(table, name) for table in _LATER for _, name, *_ in self._execute(f"PRAGMA table_info({table})")}
        return [
            (table, column)
            for table, columns in _LATER.items()
            for column in columns
            if (table, column.split()[0]) not in known
        ]

    def _remembered(self) -> datetime:
        """Return since when the journal remembers; an older one does not say it, but knows its plans."""
        text, identity = "SELECT max(since) FROM memory WHERE inode = ?", self._database.identity()
        if self._database.was_restored or self._execute(text, (identity,)) == [(None,)]:
            self._remember(identity)
        return datetime.fromisoformat(self._execute(text, (identity,))[0][0])

    @_change
    def _remember(self, identity: int) -> None:
        is_first = not self._execute("SELECT 1 FROM memory LIMIT 1")
        known = self._execute("SELECT min(updated_at) FROM plans")[0][0] if is_first else None
        self._execute("INSERT INTO memory VALUES (?, ?)", (identity, known or _now()))

    # Plans

    @_change
    def add(self, plan_id: str) -> None:
        """Remember a new plan, of which nothing was attempted.

        Call this once, when the plan is written. A plan that the journal does not know may have been attempted, as the
        journal could have been lost.
        """
        self._insert(plan_id, since_planned=True)

    def status(self, plan_id: str) -> Status | None:
        """Return where a plan stands; None if the journal does not know it."""
        status = self._row(plan_id)
        if status is None or status.state is not State.RUNNING or is_running(self.store, plan_id):
            return status
        return self._row(plan_id, State.READY)

    def ask_pause(self, plan_id: str) -> None:
        """Pause a plan: its runner ends after the batch at hand, and no run goes on until `resume`."""
        self._ask(plan_id, Request.PAUSE)

    def ask_cancel(self, plan_id: str) -> None:
        """Cancel a plan: its runner ends after the batch at hand.

        If no process runs the plan, it is cancelled at once, unless a run was interrupted in a batch: then the next run
        learns from the target what was committed, and cancels the plan without replaying more.
        """
        try:
            with alone(self.store, plan_id):
                self._cancel_unless_unsettled(plan_id)
        except WriterBusy:
            self._ask(plan_id, Request.CANCEL)

    @_change
    def resume(self, plan_id: str) -> None:
        """Let a paused plan be run again; raises UsageError: it is cancelled."""
        status = self._row(plan_id)
        if status is not None and (status.state is State.CANCELLED or status.request is Request.CANCEL):
            raise UsageError(f"Plan {plan_id} is cancelled: make a new plan for what it did not replay.")
        self._execute(
            "UPDATE plans SET request = NULL, updated_at = ?, sentence = iif(state = ?, NULL, sentence),"
            " state = iif(state = ?, ?, state) WHERE plan_id = ?",
            (_now(), State.PAUSED, State.PAUSED, State.READY, plan_id),
        )

    @_change
    def revive(self, plan_id: str) -> State | None:
        """Let a plan be run again that was cancelled, or finished without records that another plan had taken.

        Somebody makes the same plan anew. What it replayed stays known, and the run learns it from the target. Return
        how it had ended; None if it cannot be run again, or need not be revived.
        """
        status = self._row(plan_id)
        if status is None or not (
            status.state is State.CANCELLED or (status.state is State.FINISHED and status.skipped)
        ):
            return None
        self._execute(
            "UPDATE plans SET state = ?, sentence = NULL, exit_code = NULL, request = NULL, skipped = 0,"
            " updated_at = ? WHERE plan_id = ?",
            (State.READY, _now(), plan_id),
        )
        return status.state

    def claimed_sources(self, sources: Iterable[Source]) -> dict[str, str]:
        """Return, for the coordinates of source records of which plans took a dead letter, the last such plan."""
        pairs = ((source.coordinate, self._last_plan(_OF_SAME_SOURCE, source[:3])) for source in sources)
        return {coordinate: plan_id for coordinate, plan_id in pairs if coordinate is not None and plan_id is not None}

    def are_produced(self, letters: Iterable[Letter]) -> set[Letter]:
        """Return the dead letters, among some, that stand committed on a target."""
        here = _OF_CLUSTER.format(5)
        text = f"SELECT 1 FROM {_OF_SAME_LETTER} AND produced = 1 AND {here} LIMIT 1"
        return {letter for letter in letters if self._execute(text, (*letter, self._cluster))}

    def claims(self, letters: Iterable[Letter]) -> dict[Letter, str]:
        """Return, for the dead letters that plans replayed or are about to replay, the last such plan."""
        pairs = ((letter, self._last_plan(_OF_SAME_LETTER, letter)) for letter in letters)
        return {letter: plan_id for letter, plan_id in pairs if plan_id is not None}

    # What a runner writes

    @_change
    def begin(self, plan_id: str, runner: str) -> Status:
        """Take over a plan that can run, and return how it stood; a finished, cancelled or paused plan stays so."""
        if self._row(plan_id) is None:
            self._insert(plan_id, since_planned=False)
        before = self._row(plan_id, State.READY)
        assert before is not None
        if before.can_run:
            self._execute(
                "UPDATE plans SET state = ?, sentence = NULL, exit_code = NULL, runner = ?, updated_at = ?"
                " WHERE plan_id = ?",
                (State.RUNNING, runner, _now(), plan_id),
            )
        return before

    def request(self, plan_id: str) -> Request | None:
        """Return what the runner was asked to do."""
        for (request,) in self._execute("SELECT request FROM plans WHERE plan_id = ?", (plan_id,)):
            return Request(request) if request else None
        return None

    def noted(self, plan_id: str) -> dict[tuple[str, int], int]:
        """Return, by topic and partition of the targets, the offset before which nothing of the plan stands."""
        rows = self._execute("SELECT topic, partition, next FROM offsets WHERE plan_id = ?", (plan_id,))
        return {(topic, partition): offset for topic, partition, offset in rows}

    @_change
    def note(self, plan_id: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Note the offsets, in place of those noted before."""
        self._execute("DELETE FROM offsets WHERE plan_id = ?", (plan_id,))
        self._execute_each(
            "INSERT INTO offsets VALUES (?, ?, ?, ?)",
            [(plan_id, topic, partition, offset) for (topic, partition), offset in offsets.items()],
        )

    def claim(self, plan_id: str, records: Sequence[PlannedRecord], again: bool) -> list[PlannedRecord]:
        """Claim the records of the next batch, and return those that no other plan took before (``again``: all).

        A plan takes a source record with any of its dead letters: two groups can dead-letter one record.

        Raises EnvironmentLacking: the file was removed, so that other runs do not see what is claimed here.
        """
        if not self._database.is_there():
            raise EnvironmentLacking(
                f"{self._database.name} was removed while plan {plan_id} ran: run it again, which learns from the "
                "target what was replayed."
            )
        return self._claim(plan_id, records, again)

    @_change
    def _claim(self, plan_id: str, records: Sequence[PlannedRecord], again: bool) -> list[PlannedRecord]:
        free = [record for record in records if again or not self._taken(plan_id, record)]
        self._execute_each(
            f"INSERT OR IGNORE INTO claims {_COLUMNS} VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?)",
            [(*record.letter, plan_id, record.attempt, *record.source[:3], self._cluster) for record in free],
        )
        self._execute("UPDATE plans SET attempted = attempted + ? WHERE plan_id = ?", (len(free), plan_id))
        return free

    @_change
    def confirm(self, plan_id: str, records: Iterable[PlannedRecord], replayed: int, skipped: int) -> None:
        """Remember that records stand committed on their targets, and how many of the plan do in all."""
        self._execute_each(
            f"INSERT INTO claims {_COLUMNS} VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET produced = 1",
            [(*record.letter, plan_id, record.attempt, *record.source[:3], self._cluster) for record in records],
        )
        self._execute(
            "UPDATE plans SET replayed = ?, skipped = ?, updated_at = ? WHERE plan_id = ?",
            (replayed, skipped, _now(), plan_id),
        )

    @_change
    def learn(self, replayed: Mapping[str, Sequence[PlannedRecord]]) -> None:
        """Remember what stands on targets of plans, by plan, of which the journal may not know."""
        self._execute_each(
            f"INSERT OR IGNORE INTO claims {_COLUMNS} VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?)",
            [
                (*record.letter, plan_id, record.attempt, *record.source[:3], self._cluster)
                for plan_id, records in replayed.items()
                for record in records
            ],
        )

    @_change
    def release(self, plan_id: str, records: Iterable[PlannedRecord]) -> None:
        """Give up claims of records whose transaction was aborted."""
        self._execute_each(
            f"DELETE FROM claims WHERE {_OF_LETTER} AND plan_id = ?5 AND produced = 0",
            [(*record.letter, plan_id) for record in records],
        )

    @_change
    def end(
        self, plan_id: str, runner: str, state: State, sentence: str | None = None, exit_code: int | None = None
    ) -> None:
        """Leave a plan in a state, unless another runner took it over meanwhile.

        With CANCELLED, other plans may replay what this one did not: call it only when all that stands on the target is
        confirmed.
        """
        if self._execute("SELECT 1 FROM plans WHERE plan_id = ? AND runner = ?", (plan_id, runner)):
            if state is State.CANCELLED:
                self._cancel(plan_id)
                return
            self._execute(
                "UPDATE plans SET state = ?1, sentence = ?2, exit_code = ?7,"
                " request = iif(request = ?3 AND ?1 <> ?4, request, NULL), updated_at = ?5 WHERE plan_id = ?6",
                (state, sentence, Request.CANCEL, State.FINISHED, _now(), plan_id, exit_code),
            )

    # Rows

    def _last_plan(self, claims: str, values: Sequence[object]) -> str | None:
        """Return the plan of the last of some claims."""
        here = _OF_CLUSTER.format(len(values) + 1)
        text = f"SELECT plan_id FROM {claims} AND {here} ORDER BY attempt DESC, produced DESC LIMIT 1"
        rows = self._execute(text, (*values, self._cluster))
        return str(rows[0][0]) if rows else None

    def _taken(self, plan_id: str, record: PlannedRecord) -> bool:
        """Tell whether another plan has a claim of the dead letter or of its source record."""
        others = ((_OF_SAME_LETTER, record.letter), (_OF_SAME_SOURCE, record.source[:3]))  # null equals nothing
        for claims, values in others:
            other = f"plan_id <> ?{len(values) + 1} AND {_OF_CLUSTER.format(len(values) + 2)}"
            if self._execute(f"SELECT 1 FROM {claims} AND {other} LIMIT 1", (*values, plan_id, self._cluster)):
                return True
        return False

    def _unsettled(self, plan_id: str) -> bool:
        """Tell whether a batch was attempted of which nobody knows yet whether it was committed."""
        status = self._row(plan_id)
        unknown = self._execute("SELECT 1 FROM claims WHERE plan_id = ? AND produced = 0 LIMIT 1", (plan_id,))
        return bool(unknown) or status is None or not status.since_planned

    def _cancel(self, plan_id: str) -> None:
        self._execute("DELETE FROM claims WHERE plan_id = ? AND produced = 0", (plan_id,))
        self._execute(
            "UPDATE plans SET state = ?, sentence = NULL, request = NULL, updated_at = ? WHERE plan_id = ?",
            (State.CANCELLED, _now(), plan_id),
        )

    @_change
    def _cancel_unless_unsettled(self, plan_id: str) -> None:
        if self._ask_within(plan_id, Request.CANCEL) and not self._unsettled(plan_id):
            self._cancel(plan_id)

    @_change
    def _ask(self, plan_id: str, request: Request) -> None:
        self._ask_within(plan_id, request)

    def _ask_within(self, plan_id: str, request: Request) -> bool:
        """Write a request down; return False if the plan has ended, or is to be cancelled already."""
        if self._row(plan_id) is None:
            self._insert(plan_id, since_planned=False)
        status = self._row(plan_id)
        assert status is not None
        if status.state in (State.FINISHED, State.CANCELLED) or status.request is Request.CANCEL is not request:
            return False
        self._execute("UPDATE plans SET request = ?, updated_at = ? WHERE plan_id = ?", (request, _now(), plan_id))
        return True

    def _insert(self, plan_id: str, since_planned: bool) -> None:
        self._execute(
            "INSERT OR IGNORE INTO plans"
            " (plan_id, state, since_planned, attempted, replayed, skipped, updated_at) VALUES (?, ?, ?, 0, 0, 0, ?)",
            (plan_id, State.READY, since_planned, _now()),
        )

    def _row(self, plan_id: str, instead_of_running: State = State.RUNNING) -> Status | None:
        rows = self._execute(
            "SELECT state, sentence, request, since_planned, attempted, replayed, skipped, exit_code FROM plans"
            " WHERE plan_id = ?",
            (plan_id,),
        )
        for state, sentence, request, since_planned, attempted, replayed, skipped, exit_code in rows:
            shown_state = State(state)
            if shown_state is State.RUNNING:
                shown_state = instead_of_running
            if shown_state in (State.READY, State.FAILED) and request == Request.PAUSE:
                shown_state, sentence, exit_code = State.PAUSED, None, None
            return Status(
                plan_id,
                shown_state,
                sentence,
                Request(request) if request else None,
                bool(since_planned),
                attempted,
                replayed,
                skipped,
                exit_code,
            )
        return None

    def _execute(self, statement: str, values: Sequence[object] = ()) -> list[Any]:
        with self._clear():
            self._database.look()
            return self._database.connection.execute(statement, values).fetchall()

    def _execute_each(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        self._database.connection.executemany(statement, rows)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._clear(), self._database.transaction():
            yield

    @contextlib.contextmanager
    def _clear(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise _unwritable(self.store, str(error)) from None
        except sqlite3.DatabaseError:
            raise EnvironmentLacking(
                f"{self.store.shown}/{NAME} is damaged: move it away, with the files beside it, and run again; "
                "plans learn from their targets what was replayed, but other plans could then replay the same records."
            ) from None
        except OSError as error:
            raise _unwritable(self.store, error.strerror or "it cannot be opened") from None


def unsure(content: bytes, since: datetime) -> bytes:
    """Return the bytes of a journal that is restored: other runs can have gone on without it.

    It knows all replays from the moment on at which it is opened, and of no plan what its runs attempted.
    """
    with databases.in_memory(content) as database:
        database.executescript(_TABLES)
        database.execute("UPDATE plans SET since_planned = 0")
        database.execute("DELETE FROM memory")
        database.execute("INSERT INTO memory VALUES (-1, ?)", (since.isoformat(),))  # no file's: see `_remembered`
        return database.serialize()


def _now() -> str:
    return moments.now().isoformat()
