"""A plan -> its records on their targets, each once, whatever happens to the process.

At its start each run fences all earlier runs by the plan's transactional id. Then it reads from the targets which
records are committed. So no run needs to trust what another one remembered.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from expectations.rules import counted
from pipelines.errors import AfterlogError, WriterBusy
from pipelines.replay import earlier, runners, targets
from pipelines.replay.client import Admin, Topic, admin
from pipelines.replay.deaths import Deaths
from pipelines.replay.journal import Journal
from pipelines.replay.model import Plan, PlannedRecord, Replayed
from pipelines.replay.pace import Pace
from pipelines.replay.sender import Fenced, NotCommitted, Sender, size_of
from pipelines.replay.states import Request, State, Status
from pipelines.run.stop import Stop
from pipelines.settings import Settings
from pipelines.stores.base import Store

BATCH = 500
MOST_DEATHS = 0.5
FEWEST_REPLAYED = 10  # below it, a share of records that died again says little
STOPPED = 130  # the exit code after SIGTERM or Ctrl-C

_MOST_OF_A_TRANSACTION = 8_000_000  # bytes
_LOOK_SECONDS = 0.5
_CHECK_SECONDS = 1.0


@dataclass(frozen=True)
class Progress:
    """How far a run is, in records of the plan; ``died`` counts those that were dead-lettered again meanwhile."""

    total: int
    replayed: int
    skipped: int
    died: int


@dataclass(frozen=True)
class Ended:
    """How a run ended; ``replayed`` and ``skipped`` count records of the plan, also those of earlier runs."""

    status: State
    replayed: int
    skipped: int
    sentence: str
    exit_code: int


def run(
    plan: Plan,
    store: Store,
    settings: Settings,
    *,
    rate: float | None = None,
    batch: int = BATCH,
    most_deaths: float = MOST_DEATHS,
    stop: Stop | None = None,
    progress: Callable[[Progress], None] = lambda progress: None,
    confirmed: Callable[[Sequence[Replayed]], None] = lambda replayed: None,
    elsewhere: Callable[[], earlier.Elsewhere] = dict,
) -> Ended:
    """Replay what of a plan does not stand on its targets yet, in the plan's order.

    ``store`` is that of the journal (`journal.journal_store`). ``rate`` is in records a second. ``batch`` is the
    most records of one transaction. ``confirmed`` gets each record that stands committed, at the start those that it
    may have got before. ``elsewhere`` tells to which topics other plans replay some of the dead letters. A plan that
    was asked to be cancelled is cancelled, and nothing more is replayed.

    Raises AfterlogError: WriterBusy (another process runs the plan), or one sentence about what is wrong. The plan can
    be run again after any of them.
    """
    with runners.alone(store, plan.plan_id), Journal(store, plan.cluster) as journal:
        return _Run(plan, journal, settings, rate, batch, most_deaths, stop, progress, confirmed, elsewhere).ended()


def cancel(plan: Plan, store: Store, settings: Settings) -> Ended | None:
    """Cancel a plan; return None if its runner does it, within a second or after its batch.

    Raises AfterlogError: a run was interrupted in a batch, and the cluster does not tell whether it was committed. The
    request stays, and the next run cancels the plan.
    """
    with Journal(store, plan.cluster) as journal:
        journal.ask_cancel(plan.plan_id)
    try:
        ended = run(plan, store, settings)
    except WriterBusy:
        return None
    return replace(ended, exit_code=0) if ended.status is State.CANCELLED else ended


def read_back(plan: Plan, store: Store, settings: Settings) -> list[Replayed]:
    """Return the records of a plan that stand on their targets, if no process runs it.

    Raises AfterlogError: the cluster does not tell, as the target's log was cut or the topic is another one.
    """
    with runners.alone(store, plan.plan_id), Journal(store, plan.cluster) as journal:
        before = journal.status(plan.plan_id)
        if before is None:
            return []
        asked = admin(settings)
        topics = targets.checked(asked, plan)
        begins = targets.bounds(plan, topics, journal.noted(plan.plan_id), before)
        return targets.read_back(settings, asked, plan, begins, topics, lambda: False) or []


class _Run:
    """One run of a plan."""

    def __init__(
        self,
        plan: Plan,
        journal: Journal,
        settings: Settings,
        rate: float | None,
        batch: int,
        most_deaths: float,
        stop: Stop | None,
        progress: Callable[[Progress], None],
        confirmed: Callable[[Sequence[Replayed]], None],
        elsewhere: Callable[[], earlier.Elsewhere],
    ) -> None:
        self._plan = plan
        self._journal = journal
        self._settings = settings
        self._rate = rate
        self._batch = batch
        self._most_deaths = most_deaths
        self._stop = stop
        self._progress = progress
        self._confirmed = confirmed
        self._elsewhere = elsewhere
        self._runner = uuid.uuid4().hex
        self._replayed = 0
        self._skipped = 0
        self._looked = 0.0

    def ended(self) -> Ended:
        """Run the plan, and remember how it ended."""
        plan_id = self._plan.plan_id
        before = self._journal.begin(plan_id, self._runner)
        self._replayed, self._skipped = before.replayed, before.skipped
        if not before.can_run:
            return self._as_before(before)
        try:
            ended = self._go(before)
        except Fenced:
            raise
        except NotCommitted as error:
            self._journal.end(plan_id, self._runner, State.FAILED, str(error), error.why.exit_code)
            raise error.why from None
        except AfterlogError as error:
            self._journal.end(plan_id, self._runner, State.FAILED, str(error), error.exit_code)
            raise
        sentence = ended.sentence if ended.exit_code == 1 else None
        self._journal.end(plan_id, self._runner, ended.status, sentence, ended.exit_code)
        return ended

    def _as_before(self, before: Status) -> Ended:
        plan_id = self._plan.plan_id
        words = {
            State.FINISHED: f"Plan {plan_id} is finished already.",
            State.CANCELLED: f"Plan {plan_id} is cancelled.",
            State.PAUSED: f"Plan {plan_id} is paused: {before.sentence or 'resume it to go on'}",
        }
        exit_code = 0 if before.state is State.FINISHED else 2
        return self._over(before.state, words[before.state], exit_code)

    def _go(self, before: Status) -> Ended:
        if not self._plan.records:
            return self._over(State.FINISHED, f"Plan {self._plan.plan_id} has no eligible record.", 0)
        asked = admin(self._settings)
        try:
            topics = targets.checked(asked, self._plan)
        except targets.Gone:
            is_cancelled = self._journal.request(self._plan.plan_id) is Request.CANCEL
            if is_cancelled and targets.are_gone(asked, self._plan):
                return self._cancelled()
            raise
        with Sender(self._settings, self._plan, topics) as sender:
            sender.initialise()
            topics = targets.checked(asked, self._plan)  # their ends, now that no earlier run can commit any more
            begins = targets.bounds(self._plan, topics, self._journal.noted(self._plan.plan_id), before)
            produced = targets.read_back(self._settings, asked, self._plan, begins, topics, self._is_stopped)
            if produced is None:
                return self._interrupted()
            self._note(topics, begins, produced)
            self._replayed = 0
            if produced:
                self._confirm(produced, skipped=0)
            positions = {replayed.record.position for replayed in produced}
            missing = [record for record in self._plan.records if record.position not in positions]
            if self._journal.request(self._plan.plan_id) is Request.CANCEL:
                return self._cancelled()
            knows_all = before.since_planned and self._journal.since <= self._plan.created_at
            if not knows_all and not self._plan.again:
                self._learn(asked, missing, may_be_forgotten=not before.since_planned)
            with Deaths(self._settings, asked, self._plan) as deaths:
                deaths.replayed(produced)
                self._skipped = 0
                return self._replay(asked, sender, deaths, missing)

    def _learn(self, asked: Admin, missing: Sequence[PlannedRecord], may_be_forgotten: bool) -> None:
        """Let the journal know which records stand as replays of other plans, if it was lost or restored.

        Raises Gone: nobody can tell it of some.
        """
        behind = earlier.Planned.of(self._plan)
        replays = earlier.look(
            self._settings, asked, missing, self._elsewhere(), behind=behind, stopped=self._is_stopped
        )
        if may_be_forgotten and replays.unknown and "replay_unknown" not in self._plan.allowed:
            raise targets.Gone(
                f"The journal does not know plan {self._plan.plan_id} from its beginning, and {replays.why}, so nobody "
                f"can tell which of {counted(len(replays.unknown), 'record')} were replayed meanwhile: make a new plan."
            )
        self._journal.learn({plan_id: [*records.values()] for plan_id, records in replays.replayed.items()})

    def _note(self, topics: dict[str, Topic], begins: targets.Ends, produced: Sequence[Replayed]) -> None:
        """Note, for each partition, the offset before which nothing of the plan stands."""
        noted = {(name, partition): (topics[name].ends or ())[partition] for name, partition in begins}
        for replayed in produced:
            topic_partition = replayed.record.topic, replayed.partition
            noted[topic_partition] = min(noted[topic_partition], replayed.offset)
        self._journal.note(self._plan.plan_id, noted)

    def _replay(self, asked: Admin, sender: Sender, deaths: Deaths, missing: Sequence[PlannedRecord]) -> Ended:
        pace = Pace(self._rate, self._batch)
        checked = time.monotonic()
        here = 0
        self._tell(deaths)
        for records in _batches(missing, pace.size):
            if (ended := self._wait(pace, deaths, here)) is not None:
                return ended
            if time.monotonic() - checked > _CHECK_SECONDS:
                targets.unchanged(asked, self._plan)
                checked = time.monotonic()
            free = self._journal.claim(self._plan.plan_id, records, self._plan.again)
            self._skipped += len(records) - len(free)
            if free:
                replayed = self._send(sender, free)
                self._confirm(replayed, self._skipped)
                deaths.replayed(replayed)
                pace.sent(len(free))
                here += len(free)
            self._tell(deaths)
        self._journal.confirm(self._plan.plan_id, [], self._replayed, self._skipped)
        return self._over(State.FINISHED, "", 0)

    def _send(self, sender: Sender, records: Sequence[PlannedRecord]) -> list[Replayed]:
        try:
            return sender.send(records)
        except NotCommitted:
            self._journal.release(self._plan.plan_id, records)
            raise

    def _confirm(self, replayed: Sequence[Replayed], skipped: int) -> None:
        self._replayed += len(replayed)
        self._journal.confirm(self._plan.plan_id, [produced.record for produced in replayed], self._replayed, skipped)
        self._confirmed(replayed)

    def _wait(self, pace: Pace, deaths: Deaths, here: int) -> Ended | None:
        """Wait until the next batch may go; return how the run ends if it must end first."""
        while True:
            if (ended := self._asked_to_end()) is not None:
                return ended
            died = deaths.look()
            if here >= FEWEST_REPLAYED and died > self._most_deaths * here:
                return self._over(
                    State.PAUSED,
                    f"{died:,} of {here:,} replayed records were dead-lettered again, more than "
                    f"{self._most_deaths:.0%}: find out why, then resume plan {self._plan.plan_id} or cancel it.",
                    1,
                )
            left = pace.wait
            if left <= 0:
                return None
            self._sleep(min(left, _LOOK_SECONDS / 2))

    def _asked_to_end(self) -> Ended | None:
        if self._is_stopped():
            return self._interrupted()
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return None
        self._looked = time.monotonic()
        request = self._journal.request(self._plan.plan_id)
        if request is Request.CANCEL:
            return self._cancelled()
        if request is Request.PAUSE:
            return self._over(State.PAUSED, f"Plan {self._plan.plan_id} is paused: resume it to go on.", 0)
        return None

    def _cancelled(self) -> Ended:
        return self._over(State.CANCELLED, f"Plan {self._plan.plan_id} is cancelled.", 0)

    def _interrupted(self) -> Ended:
        return self._over(State.READY, f"The run was stopped: run plan {self._plan.plan_id} again to go on.", STOPPED)

    def _over(self, state: State, sentence: str, exit_code: int) -> Ended:
        return Ended(state, self._replayed, self._skipped, sentence, exit_code)

    def _is_stopped(self) -> bool:
        return self._stop is not None and self._stop.asked()

    def _sleep(self, seconds: float) -> None:
        if self._stop is not None:
            self._stop.wait(seconds)
        else:
            time.sleep(seconds)

    def _tell(self, deaths: Deaths) -> None:
        self._progress(Progress(len(self._plan.records), self._replayed, self._skipped, len(deaths.died)))


def _batches(records: Sequence[PlannedRecord], most: int) -> Iterator[list[PlannedRecord]]:
    """Yield records in order, at most ``most`` at a time and not many bytes."""
    batch: list[PlannedRecord] = []
    size = 0
    for record in records:
        if batch and (len(batch) == most or size + size_of(record) > _MOST_OF_A_TRANSACTION):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += size_of(record)
    if batch:
        yield batch
