"""Run stages on new input in cycles: one session for all, the writer's lock for each cycle, a health file."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pipelines.errors import ClustersLeft, EnvironmentLacking, UsageError, WriterBusy, readable
from pipelines.jvm import session, small
from pipelines.kafka.errors import NoTopics, Refused, probed
from pipelines.moments import now
from pipelines.run import freshness, idleness, runner, stopped
from pipelines.run.repeated import said_once
from pipelines.run.stop import Stop
from pipelines.settings import LANDING_DIRECTORIES, PROJECT, Settings
from pipelines.stage import Split, Stage
from pipelines.steps import held
from pipelines.steps.watch import NOBODY, Watch
from pipelines.stores import locations, lock
from pipelines.stores.base import STATE
from pipelines.stores.directory import replace_text
from pipelines.warehouse.progress import Batch, Progress
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PURPOSE = "afterlog run --follow"
BREATH_SECONDS = 0.5  # least pause between cycles: processes that wait for the lock look for it more often
MOST_PATIENCE_SECONDS = 60.0

Result = Literal["idle", "read", "broken", "failed", "skipped"]
Sessions = Callable[[Settings], AbstractContextManager["SparkSession"]]

log = logging.getLogger("afterlog")


@dataclass(frozen=True)
class Blocked:
    """A stage with held rows or broken facts: since when, why, the pending batch and the held scopes."""

    table: str
    since: str
    message: str
    batch: dict[str, Batch]
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Away:
    """One of several clusters that cannot be read: since when, why, and when by the clock it is tried again."""

    since: str
    message: str
    patience: float
    due: float


@dataclass(frozen=True)
class Cycle:
    """One cycle, for the health file; ``rows_read`` is by table."""

    began_at: str
    ended_at: str
    result: Result
    rows_read: dict[str, int]
    message: str | None


def health_file(warehouse: Warehouse) -> Path:
    """Return where the health file is if the user names none; it is always on this machine."""
    directory = locations.directory_of(warehouse.root)
    return directory / STATE / "follow.json" if directory else PROJECT / ".cache" / "follow.json"


class Follower:
    """Runs stages in cycles until it is asked to stop.

    Held scopes are left alone until they have new rows or somebody accepts them. If the facts of a summary are broken,
    it rests, with the stages that depend on it, as long as its batch stays the same: the facts would break again. A
    failed cycle is tried again, after longer and longer pauses; the failure is reported once.
    """

    def __init__(
        self,
        settings: Settings,
        stages: Sequence[Stage],
        *,
        every_seconds: float,
        health: Path,
        sessions: Sessions,
        stop: Stop,
        say: Callable[[str], None],
        report: Callable[[StageRun], None],
        show: Callable[[Sequence[StageRun]], None],
        watch: Watch = NOBODY,
        afterwards: Callable[[Cycle, Sequence[StageRun]], None] = lambda cycle, done: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take what to follow and callbacks: ``say`` a sentence, ``report`` a stage, ``show`` a cycle that read rows.

        ``watch`` observes each step. ``afterwards`` gets each cycle that ended, also an idle or a failed one, with what
        its stages did; this process does not hold the writer's lock then. What it raises is said, and changes nothing.
        """
        self.settings = settings
        self.warehouse = Warehouse(settings)  # without a session until there is work
        self.stages = tuple(stages)
        self.every_seconds = every_seconds
        self.health = health
        self.sessions = sessions
        self.stop = stop
        self.say = say
        self.report = report
        self.watch = watch
        self.show = show
        self.afterwards = afterwards
        self.clock = clock
        self.started_at = _text(now())
        self.blocked: dict[str, Blocked] = {}
        self.refused = False
        self.blocked_upstream: set[str] = set()  # as the last cycle found it
        self.done: list[StageRun] = []
        self.last: Cycle | None = None
        self.began_at: str | None = None
        self.failure: str | None = None  # the error of the last cycle, as a sentence
        self.failing_since: str | None = None
        self.worked = False
        self.patience = 0.0
        self.starting = False
        self.away: dict[str, Away] = {}

    @property
    def exit_code(self) -> int:
        """1 if rows are held, a gate refused files, or facts of the stages or of tables upstream are broken; else 0."""
        return 1 if self.blocked or self.refused or self._blocked_upstream() else 0

    def follow(self) -> int:
        """Run cycles until asked to stop; return the exit code.

        Raises UsageError: the settings have an error and no cycle worked before. Raises EnvironmentLacking: the health
        file cannot be written, no session starts, or the session's JVM has ended.
        """
        self._write("working", must=True)
        self.stop.last_words = self._last_words
        kept = ExitStack()
        with said_once() as new_cycle:
            try:
                while not self.stop.asked():
                    began = self.clock()
                    self._cycle(kept)
                    new_cycle()
                    if not self.stop.asked():
                        self.stop.wait(self._pause(began))
            except KeyboardInterrupt:  # while a session starts, it has its own handler for SIGINT
                pass
            except Exception:
                if not self.stop.is_why():
                    self._write("ended")
                    raise
            finally:
                with contextlib.suppress(Exception):  # a JVM that has ended cannot stop its session
                    kept.close()
                self.warehouse = Warehouse(self.settings)  # without the session, which has ended
        return self._last_words()

    def _cycle(self, kept: ExitStack) -> None:
        """Run one cycle and report its result; raise the errors that end following."""
        began_at, self.done = now(), []
        self.began_at = _text(began_at)
        self._write("working")
        result: Result
        message = None
        try:
            with self._turn():
                self._run(kept)
        except stopped.Stopped:
            return
        except WriterBusy as busy:
            result, message = "skipped", str(busy)
            self.say(f"This cycle is skipped. {busy}")
        except Exception as error:
            if self.stop.is_why():
                return
            self._tell_failure(error)
            result, message = "failed", self.failure
        else:
            result = "idle"
            self._tell_recovery()
        if self.away and result != "skipped":
            message = message or " ".join(f"Cluster {name}: {outage.message}" for name, outage in self.away.items())
            result = "failed" if self._all_away else result
        read: dict[str, int] = {}
        for stage_run in self.done:
            if stage_run.read:
                read[stage_run.table] = read.get(stage_run.table, 0) + stage_run.read
        if result == "idle" and read:
            result = "broken" if any(stage_run.status == "broken" for stage_run in self.done) else "read"
        self.watch.says("waiting for what lands", quiet=True)
        self.last = Cycle(_text(began_at), _text(now()), result, read, message)
        self.began_at = None
        self._write("waiting")
        try:
            self.afterwards(self.last, self.done)
        except Exception as error:  # what is done with a cycle does not end following
            log.warning("afterlog: %s", readable(error))

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold the writer's lock; wait for it as long as the settings say, or until a stop.

        Raises Stopped: a stop was asked for. Raises WriterBusy: another process held the lock until the wait ended.
        """
        at_once = self.settings.model_copy(update={"lock": self.settings.lock.model_copy(update={"wait_seconds": 0.0})})
        until = self.clock() + self.settings.lock.wait_seconds
        with ExitStack() as held:
            while True:
                try:
                    held.enter_context(lock.writer(at_once, PURPOSE))
                    break
                except WriterBusy:
                    if self.stop.asked():
                        raise stopped.Stopped from None
                    if self.clock() >= until:
                        raise
                    self.stop.wait(lock.pause(self.settings.warehouse))
            yield

    def _run(self, kept: ExitStack) -> None:
        """Run the stages that do not rest, if they have anything to do, on the clusters that do not wait either."""
        waits = self._still_away()
        try:
            self._run_on(self.settings.without_topics(waits) if waits else self.settings, kept)
        except ClustersLeft as left:
            self._tell_away(left)
            waits |= left.of_clusters.keys()
        self._tell_back(waits)

    def _run_on(self, settings: Settings, kept: ExitStack) -> None:
        self._look_at_blocked()
        stages = self._awake()
        warehouse = replace(self.warehouse, settings=settings)
        if idleness.idle(warehouse, stages):
            self._note_held(idleness.at_rest(self.warehouse, stages, ""))
            return
        if self.warehouse.session is None:
            self._start(kept)
            warehouse = replace(self.warehouse, settings=settings)
        lock.name_jvm(self.warehouse.root, self.warehouse.spark)
        waiting = freshness.unread_bytes(warehouse, stages)
        is_short = waiting is not None and waiting < session.SHORT_WORK
        session.tune_for(self.warehouse.spark, self.settings, short_work=is_short)
        try:
            again = self.failure is not None
            runner.run(
                warehouse,
                stages,
                self._take,
                stopping=self.stop.asked,
                note_failures=not again,
                known_away=self.away.keys(),
                watch=self.watch,
            )
        finally:
            if any(stage_run.read for stage_run in self.done):
                self.show(self.done)
        if any(stage_run.verdict for stage_run in self.done):
            self._tidy()

    def _start(self, kept: ExitStack) -> None:
        """Start the session and keep it until the end."""
        self.starting = True
        self.watch.says("Starting Spark.")
        small.hang_up()  # from here on the session's own JVM asks Kafka
        session.quieten_py4j()
        long_lived = self.settings.model_copy(update={"spark": {**session.LONG_LIVED, **self.settings.spark}})
        try:
            self.warehouse = Warehouse(self.settings, kept.enter_context(self.sessions(long_lived)))
        finally:
            self.stop.listen()
        self.starting = False

    def _take(self, stage_run: StageRun) -> None:
        """Keep what a stage did and report it, unless it was idle or failed: an error is reported when it is raised."""
        self.done.append(stage_run)
        told_before = stage_run.status == "held" and stage_run.table in self.blocked
        if stage_run.refused:
            self.refused = True
        elif stage_run.status in ("broken", "held"):
            self._block(stage_run)
        if stage_run.status not in ("idle", "failed") and not told_before:
            self.report(stage_run)
            self._write("working")

    def _block(self, stage_run: StageRun) -> None:
        known = held.own(self.warehouse, stage_run.table) or Progress()
        since = held.since(known) or _text(stage_run.started_at)
        message = held.message(stage_run.table, known) or stage_run.message or ""
        self.blocked[stage_run.table] = Blocked(stage_run.table, since, message, known.pending, tuple(known.held))

    def _note_held(self, at_rest: Sequence[StageRun]) -> None:
        """Take over and report what was held before this process began and has nothing new."""
        for stage_run in at_rest:
            if stage_run.status == "held" and stage_run.table not in self.blocked:
                self._block(stage_run)
                self.report(stage_run)

    def _look_at_blocked(self) -> None:
        """Wake stages whose batch is done, and drop scopes that are no longer held: another run may accept them."""
        for table, blocked in list(self.blocked.items()):
            known = held.own(self.warehouse, table)
            left = (known and held.since(known)) is None
            if blocked.scopes and known is not None and not left:
                self.blocked[table] = replace(blocked, scopes=tuple(known.held), message=_message(table, known))
            elif left or known is None or known.pending != blocked.batch:
                del self.blocked[table]
                self.say(f"{table}: the batch at which its gate broke is done with; it is followed again.")

    def _awake(self) -> list[Stage]:
        """Return the stages that neither rest nor depend on a resting stage; ``Split`` stages never rest themselves."""
        judged = {stage.table for stage in self.stages if isinstance(stage, Split)}
        resting = (set(self.blocked) - judged) | self._blocked_upstream()
        awake = []
        for stage in self.stages:
            if stage.table in resting or resting.intersection(stage.inputs):
                resting.add(stage.table)
            else:
                awake.append(stage)
        return awake

    def _blocked_upstream(self) -> set[str]:
        if self.warehouse.opens_tables or self.warehouse.session is not None:
            self.blocked_upstream = idleness.blocked_upstream(self.warehouse, self.stages)
        return self.blocked_upstream

    def _tell_failure(self, error: Exception) -> None:
        """Say what failed, unless the last cycle failed with the same error; raise errors that a retry cannot fix."""
        settings_never_worked = isinstance(error, UsageError) and not isinstance(error, NoTopics | Refused)
        if (settings_never_worked and not self.worked) or isinstance(error, BrokenPipeError):
            raise error
        if self.starting:
            raise error
        if session.jvm_ended():
            raise EnvironmentLacking(
                "The session's JVM has ended, perhaps for want of memory: start again, nothing is lost."
            ) from None
        sentence = str(readable(error))
        if sentence != self.failure:
            self.say(f"{sentence} It is tried again.")
            if os.environ.get("AFTERLOG_DEBUG"):
                log.warning("This is what failed:", exc_info=error)
        self.failure = sentence
        self.failing_since = self.failing_since or _text(now())
        # Brokers refuse at once, so that a retry costs little: do not make other topics wait longer.
        answered = isinstance(error, UsageError)
        self.patience = 0.0 if answered else _longer(self.patience)

    def _still_away(self) -> set[str]:
        """Return the clusters to leave out of this cycle: those that wait, and those that no socket can reach.

        Kafka's clients would wait for such brokers as long as they may, and the other clusters with them.
        """
        known = {own.cluster: own.kafka for own in self.settings.of_clusters()}
        waits = {name for name, outage in self.away.items() if outage.due > self.clock()}
        left = {name: error for name in self.away.keys() - waits if (error := probed(known[name])) is not None}
        if left:
            self._tell_away(ClustersLeft(left))
        return waits | left.keys()

    def _tell_away(self, left: ClustersLeft) -> None:
        """Say which clusters cannot be read, unless it is said, and let each wait longer and longer by itself."""
        for name, error in left.of_clusters.items():
            known = self.away.get(name)
            if known is None or known.message != str(error):
                self.say(f"Cluster {name}: {error} It is tried again.")
            patience = 0.0 if isinstance(error, UsageError) else _longer(known.patience if known else 0.0)
            since = known.since if known else _text(now())
            self.away[name] = Away(since, str(error), patience, self.clock() + patience)

    def _tell_back(self, waits: Collection[str]) -> None:
        """Say which clusters work again: all but those that wait."""
        for name in self.away.keys() - waits:
            self.say(f"Cluster {name} works again, after it failed since {self.away.pop(name).since}.")

    @property
    def _all_away(self) -> bool:
        """True if no cluster with topics can be read."""
        reads = {own.cluster for own in self.settings.of_clusters() if any(map(own.topics_of, LANDING_DIRECTORIES))}
        return bool(reads) and reads <= self.away.keys()

    def _tell_recovery(self) -> None:
        if self.failure is not None:
            self.say(f"It works again, after it failed since {self.failing_since}.")
        self.failure = self.failing_since = None
        self.patience = 0.0
        self.worked = True

    def _pause(self, began: float) -> float:
        """Return how many seconds to wait after a cycle that began at ``began``."""
        return self.patience or max(BREATH_SECONDS, began + self.every_seconds - self.clock())

    @property
    def _away_since(self) -> str | None:
        return max(outage.since for outage in self.away.values()) if self.away and self._all_away else None

    def _tidy(self) -> None:
        """Remove gate results older than Data Docs show; otherwise only building a report removes them."""
        from expectations import docs

        docs.forget(self.settings.reports() / "gx", self.settings.report.keep_runs)

    def _last_words(self) -> int:
        self._write("ended")
        return self.exit_code

    def _write(self, state: Literal["working", "waiting", "ended"], must: bool = False) -> None:
        """Replace the health file; warn if it cannot be written.

        Raises EnvironmentLacking: it cannot be written, and ``must`` is true.
        """
        blocked = [
            {"table": blocked.table, "since": blocked.since, "message": blocked.message}
            for blocked in self.blocked.values()
        ]
        facts: dict[str, Any] = {
            "pid": os.getpid(),
            "state": state,
            "started_at": self.started_at,
            "updated_at": _text(now()),
            "every_seconds": self.every_seconds,
            "cycle_began_at": self.began_at,
            "last_cycle": asdict(self.last) if self.last else None,
            "failing_since": self.failing_since or self._away_since,
            "blocked": blocked,
        }
        if self.settings.sole_cluster is None:
            facts["away"] = [
                {"cluster": name, "since": outage.since, "message": outage.message}
                for name, outage in self.away.items()
            ]
        try:
            self.health.parent.mkdir(parents=True, exist_ok=True)
            replace_text(self.health, json.dumps(facts) + "\n")
        except OSError as error:
            sentence = (
                f"The health file {self.health} cannot be written ({error.strerror}): name another with --health."
            )
            if must:
                raise EnvironmentLacking(sentence) from None
            log.warning("%s", sentence)


def _longer(patience: float) -> float:
    return min(MOST_PATIENCE_SECONDS, 2 * patience or 1.0)


def _message(table: str, known: Progress) -> str:
    return held.message(table, known) or ""


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")
