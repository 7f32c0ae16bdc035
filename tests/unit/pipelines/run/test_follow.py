"""The loop of ``afterlog run --follow``: clock and stages are fakes; the lock, the files and the logs are real."""

from __future__ import annotations

import contextlib
import json
import logging
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from expectations.verdict import Verdict
from pipelines.catalog import CATALOG, stages
from pipelines.cli import app
from pipelines.errors import AfterlogError, EnvironmentLacking, UsageError
from pipelines.jvm import session
from pipelines.kafka.errors import NoTopics
from pipelines.moments import now
from pipelines.run import follow, freshness, idleness, repeated, runner, stopped
from pipelines.run.follow import Cycle, Follower, health_file
from pipelines.settings import ROOT, Lock, Settings, load
from pipelines.stage import Stage
from pipelines.stores import lock
from pipelines.warehouse import progress
from pipelines.warehouse.progress import Batch, Held, Progress
from pipelines.warehouse.quality import StageRun, Status
from pipelines.warehouse.tables import Warehouse

BRONZE, SILVER, GOLD = "bronze.dlq_records", "silver.dlq_records", "gold.dlq_summary"
STAGES = [stage for table in (BRONZE, SILVER, GOLD) for stage in stages(only=table)]
AWAY = EnvironmentLacking("No broker can be reached (broker:9092: no answer).")
News = list[StageRun] | BaseException | None


def ran(table: str, status: Status = "passed", read: int = 0, message: str | None = None) -> StageRun:
    at = now()
    return StageRun("r", table, status, at, at, read=read, accepted=read, message=message)


@dataclass
class FakeStop:
    """Asks to stop as soon as a number of cycles has begun to wait; time passes only during a wait."""

    cycles: int
    at: float = 0.0
    waits: list[float] = field(default_factory=list)
    is_asked: bool = False
    is_about_to_be_asked: bool = False
    last_words: Callable[[], int] = lambda: 0
    listened: int = 0

    def asked(self) -> bool:
        return self.is_asked

    def is_why(self) -> bool:
        self.is_asked |= self.is_about_to_be_asked
        return self.is_asked

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.at += seconds
        self.is_asked = len(self.waits) >= self.cycles

    def listen(self) -> None:
        self.listened += 1


class World:
    """The result of each cycle: nothing new (None), stage runs, or an error."""

    def __init__(self, settings: Settings, news: Sequence[News], monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings = settings
        self.news = list(news)
        self.stop = FakeStop(len(news))
        self.said: list[str] = []
        self.reported: list[StageRun] = []
        self.shown: list[list[StageRun]] = []
        self.health: list[dict[str, Any]] = []
        self.asked_of: list[list[str]] = []
        self.noted: list[bool] = []
        self.sessions = 0
        self.jvm_ended = False
        self.within: Callable[[], None] = lambda: None
        self.follower = Follower(
            settings,
            STAGES,
            every_seconds=10,
            health=health_file(Warehouse(settings)),
            sessions=self.session,
            stop=self.stop,  # type: ignore[arg-type]
            say=self.said.append,
            report=self.reported.append,
            show=lambda done: self.shown.append(list(done)),
            clock=lambda: self.stop.at,
        )
        monkeypatch.setattr(idleness, "idle", self.idle)
        monkeypatch.setattr(runner, "run", self.run)
        monkeypatch.setattr(freshness, "unread_bytes", lambda warehouse, stages: 1)
        monkeypatch.setattr(session, "tune_for", lambda spark, settings, short_work: None)
        monkeypatch.setattr(session, "jvm_ended", lambda: self.jvm_ended)
        written = follow.replace_text

        def replaced(target: Path, text: str) -> None:
            written(target, text)
            if target == self.follower.health:
                self.health.append(json.loads(target.read_text()))

        monkeypatch.setattr(follow, "replace_text", replaced)

    @contextlib.contextmanager
    def session(self, settings: Settings) -> Iterator[Any]:
        self.sessions += 1
        assert session.LONG_LIVED.items() <= settings.spark.items()
        yield object()
        self.sessions -= 100

    def idle(self, warehouse: Warehouse, stages: Sequence[Stage]) -> bool:
        self.asked_of.append([stage.table for stage in stages])
        self.now = self.news.pop(0)
        if isinstance(self.now, AfterlogError):
            raise self.now
        return self.now is None

    def run(self, warehouse: Warehouse, stages: Sequence[Stage], take: Any, **how: Any) -> list[StageRun]:
        assert lock.holder(warehouse.root)
        self.noted.append(how["note_failures"])
        self.within()
        if isinstance(self.now, BaseException):
            raise self.now
        assert self.now is not None
        for stage_run in self.now:
            if stage_run.status == "broken":
                block(warehouse.settings, stage_run.table)
            take(stage_run)
        return self.now


def block(settings: Settings, table: str, end: int = 5) -> None:
    reached = Progress(pending={SILVER: Batch(3, end)}, blocked_since="2026-11-21T03:00:00+00:00", message="It broke.")
    progress.save(Warehouse(settings), table, reached)


@pytest.fixture
def world(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Callable[..., World]:
    return lambda *news: World(settings, news, monkeypatch)


def test_with_nothing_new_no_session_is_started_and_the_lock_is_let_go(world: Callable[..., World]) -> None:
    found = world(None, None)
    assert found.follower.follow() == 0
    assert (found.sessions, found.shown, found.reported, found.said) == (0, [], [], [])
    assert found.stop.waits == [10, 10]
    assert lock.holder(found.settings.warehouse) is None


def test_one_session_is_kept_and_ends_with_the_loop(world: Callable[..., World]) -> None:
    found = world([ran(BRONZE, read=3), ran(GOLD, "idle")], None, [ran(BRONZE, read=4)])
    seen: list[int] = []
    found.within = lambda: seen.append(found.sessions)
    assert found.follower.follow() == 0
    assert seen == [1, 1]
    assert found.sessions == 1 - 100  # the session was closed
    assert found.stop.listened == 1  # Spark replaces the handler of SIGINT
    assert [[stage_run.read for stage_run in done] for done in found.shown] == [[3, 0], [4]]
    assert [report_.status for report_ in found.reported] == ["passed", "passed"]


def test_a_warehouse_at_a_uri_is_asked_only_while_its_session_is_there(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_uri = settings.model_copy(update={"warehouse": (tmp_path / "warehouse").as_uri()})
    found = World(by_uri, ([ran(BRONZE, read=3)], [ran(BRONZE, read=4)]), monkeypatch)
    found.follower.health = tmp_path / "follow.json"

    def asked(warehouse: Warehouse, stages: Sequence[Stage]) -> set[str]:
        assert found.sessions == 1
        return {"silver.topology_pushes"}

    monkeypatch.setattr(idleness, "blocked_upstream", asked)
    assert found.follower.follow() == 1
    assert found.sessions == 1 - 100


@pytest.mark.parametrize(
    ("lasted", "pause"), [(0, 10), (4, 6), (9.9, 0.5), (25, 0.5)], ids=["at once", "short", "just", "overrun"]
)
def test_cycles_begin_with_the_beat_and_leave_others_a_turn(
    world: Callable[..., World], lasted: float, pause: float
) -> None:
    found = world([ran(BRONZE, read=1)])

    def last() -> None:
        found.stop.at += lasted

    found.within = last
    found.follower.follow()
    assert found.stop.waits == [pytest.approx(pause)]


def test_what_fails_is_said_once_and_tried_again_with_longer_pauses(world: Callable[..., World]) -> None:
    found = world(None, *[AWAY] * 8, None, AWAY)
    assert found.follower.follow() == 0
    assert found.stop.waits == [10, 1, 2, 4, 8, 16, 32, 60, 60, 10, 1]
    again = f"{AWAY} It is tried again."
    assert [said for said in found.said if said.startswith("No broker")] == [again, again]
    assert found.said[1].startswith("It works again, after it failed since ")
    assert found.sessions == 0


def test_each_cycle_is_passed_on_without_the_lock(
    world: Callable[..., World], caplog: pytest.LogCaptureFixture
) -> None:
    found = world(None, [ran(BRONZE, read=3)], AWAY)
    passed: list[tuple[str, int]] = []

    def take(cycle: Cycle, done: Sequence[StageRun]) -> None:
        assert not lock.holder(found.settings.warehouse)
        passed.append((cycle.result, sum(stage_run.read for stage_run in done)))
        raise OSError(28, "No space left on device")

    found.follower.afterwards = take
    assert found.follower.follow() == 0
    assert passed == [("idle", 0), ("read", 3), ("failed", 0)]
    assert [record.getMessage() for record in caplog.records if "space" in record.getMessage()]


def test_a_cluster_that_is_away_at_first_is_waited_for(world: Callable[..., World]) -> None:
    found = world(AWAY, NoTopics("The cluster shows no topics."), None)
    assert found.follower.follow() == 0
    assert found.stop.waits == [1, 10, 10]
    assert len(found.said) == 3


def test_settings_that_never_worked_end_it_at_once(world: Callable[..., World]) -> None:
    found = world(UsageError("The brokers refuse the user of [kafka]."), None)
    with pytest.raises(UsageError, match="refuse the user"):
        found.follower.follow()
    assert found.stop.waits == []
    assert found.health[-1]["state"] == "ended"


def test_what_brokers_refuse_later_holds_up_nothing_else(world: Callable[..., World]) -> None:
    refused = UsageError("Afterlog is not allowed to read topic dlq.new: grant it the operation Read.")
    found = world(None, refused, refused, [ran(BRONZE, read=1)])
    assert found.follower.follow() == 0
    assert found.stop.waits == [10, 10, 10, 10]
    assert len(found.said) == 2


def test_an_error_is_told_by_its_kind_and_noted_once(world: Callable[..., World]) -> None:
    secret = "payload-5d41402abc4b"
    found = world(*[[ran(BRONZE, read=1)], [], [], []])
    errors = iter([None, ValueError(secret), ValueError(secret), None])

    def fail() -> None:
        if error := next(errors):
            raise error

    found.within = fail
    assert found.follower.follow() == 0
    assert found.noted == [True, True, False, False]
    assert found.said[0].startswith("Afterlog failed with ValueError;")
    assert len(found.said) == 2
    assert secret not in json.dumps([found.said, found.health])


def test_a_jvm_that_ended_ends_it(world: Callable[..., World]) -> None:
    found = world([])
    found.jvm_ended = True

    def fail() -> None:
        raise ConnectionError

    found.within = fail
    with pytest.raises(EnvironmentLacking, match="JVM has ended"):
        found.follower.follow()


def test_a_session_that_cannot_start_ends_it(world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    found = world([ran(BRONZE, read=1)], None)

    def no_java(settings: Settings) -> Any:
        raise EnvironmentLacking("There is no Java.")

    monkeypatch.setattr(found.follower, "sessions", no_java)
    with pytest.raises(EnvironmentLacking, match="no Java"):
        found.follower.follow()


BROKE = [ran(BRONZE, read=60), ran(SILVER, read=60), ran(GOLD, "broken", read=60, message="It broke.")]
HELD = [ran(BRONZE, read=60), ran(SILVER, "broken", read=60, message="It broke."), ran(GOLD, read=6)]
SINCE = "2026-11-21T03:00:00+00:00"


def hold_scopes(settings: Settings, *scopes: str) -> None:
    held = {scope: Held(SINCE, f"{scope} broke.", 9, "now") for scope in scopes}
    progress.save(Warehouse(settings), SILVER, Progress(held=held))


def test_what_a_gate_holds_is_told_once_does_not_rest_and_shows_in_the_exit_code(world: Callable[..., World]) -> None:
    still = [ran(BRONZE, read=1), ran(SILVER, "held", message="dlq.a broke."), ran(GOLD, read=1)]
    found = world(HELD, None, still)
    found.within = lambda: hold_scopes(found.settings, "dlq.a")
    assert found.follower.follow() == 1
    assert found.asked_of == [[BRONZE, SILVER, GOLD]] * 3
    told = [(stage_run.table, stage_run.status) for stage_run in found.reported]
    passed = [(BRONZE, "passed"), (GOLD, "passed")]
    assert told == [(BRONZE, "passed"), (SILVER, "broken"), (GOLD, "passed"), *passed]
    (blocked,) = found.health[-1]["blocked"]
    assert (blocked["table"], blocked["since"]) == (SILVER, SINCE)
    assert "9 rows of dlq.a are held since 2026-11-21 03:00:00 UTC" in blocked["message"]


def test_files_that_a_gate_refused_block_nothing_and_show_in_the_exit_code(world: Callable[..., World]) -> None:
    verdict = Verdict(SILVER, "r", 60, (), success=False)
    refused = replace(ran(SILVER, "broken", read=60, message="It broke."), verdict=verdict)
    found = world([refused], [ran(BRONZE, read=1)])
    assert found.follower.follow() == 1
    assert found.asked_of == [[BRONZE, SILVER, GOLD]] * 2
    assert found.health[-1]["blocked"] == []


def test_what_was_held_before_shows_and_what_is_accepted_does_not(world: Callable[..., World]) -> None:
    found = world(None, None)
    hold_scopes(found.settings, "dlq.a", "dlq.b")
    assert found.follower.follow() == 1
    assert [(stage_run.table, stage_run.status) for stage_run in found.reported] == [(SILVER, "held")]
    found = world(None, None)
    waits = found.stop.wait

    def wait(seconds: float) -> None:
        progress.save(Warehouse(found.settings), SILVER, Progress())
        waits(seconds)

    found.stop.wait = wait  # type: ignore[method-assign]
    assert found.follower.follow() == 0
    assert found.health[-1]["blocked"] == []


def test_a_broken_gate_is_told_once_rests_and_shows_in_the_exit_code(world: Callable[..., World]) -> None:
    found = world(BROKE, None, [ran(BRONZE, read=1)])
    assert found.follower.follow() == 1
    assert found.asked_of == [[BRONZE, SILVER, GOLD], [BRONZE, SILVER], [BRONZE, SILVER]]
    assert [(stage_run.table, stage_run.status) for stage_run in found.reported] == [
        (BRONZE, "passed"),
        (SILVER, "passed"),
        (GOLD, "broken"),
        (BRONZE, "passed"),
    ]
    blocked = [{"table": GOLD, "since": "2026-11-21T03:00:00+00:00", "message": "It broke."}]
    assert found.health[-1]["blocked"] == blocked
    results = [row["last_cycle"]["result"] for row in found.health if row["state"] == "waiting"]
    assert results == ["broken", "idle", "read"]


@pytest.mark.parametrize(
    "moved",
    [Progress(), Progress(pending={SILVER: Batch(3, 9)}, blocked_since="later"), None],
    ids=["let pass by another run", "another batch", "another warehouse"],
)
def test_a_batch_that_is_done_with_is_followed_again(world: Callable[..., World], moved: Progress | None) -> None:
    found = world(BROKE, None)

    def fix(done: Sequence[StageRun]) -> None:
        if moved:
            progress.save(Warehouse(found.settings), GOLD, moved)
        else:
            (Path(found.settings.warehouse) / "_progress" / f"{GOLD}.json").unlink()

    found.follower.show = fix
    assert found.follower.follow() == 0
    assert found.asked_of[1] == [BRONZE, SILVER, GOLD]
    assert found.said == [f"{GOLD}: the batch at which its gate broke is done with; it is followed again."]


def test_everything_that_depends_on_a_resting_stage_rests(settings: Settings, world: Callable[..., World]) -> None:
    follower = world().follower
    follower.stages = CATALOG
    letters = "silver.dead_letters"
    follower.blocked[letters] = follow.Blocked(letters, "", "", {})
    follower.blocked[SILVER] = follow.Blocked(SILVER, "", "", {}, ("dlq.a",))
    awake = {stage.table for stage in follower._awake()}
    assert not awake & {letters, "silver.dlq_roots", "gold.message_ledger"}
    assert {BRONZE, SILVER, GOLD, "silver.acknowledgements", "gold.topology_edges"} <= awake


def hold(warehouse: str, ready: Any, done: Any) -> None:
    with lock.writer(load(warehouse=warehouse), "somebody else"):
        ready.set()
        done.wait(60)


@contextlib.contextmanager
def somebody_else(settings: Settings) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    other = context.Process(target=hold, args=(settings.warehouse, ready, done))
    other.start()
    assert ready.wait(60)
    try:
        yield
    finally:
        done.set()
        other.join(60)


def test_another_writer_is_waited_for_and_then_the_cycle_is_skipped(world: Callable[..., World]) -> None:
    found = world(*[None] * 4)
    found.follower.settings = found.settings.model_copy(update={"lock": Lock(wait_seconds=0.4)})
    with somebody_else(found.settings):
        assert found.follower.follow() == 0
    assert found.stop.waits == [0.2, 0.2, pytest.approx(9.6), 0.2]
    assert found.asked_of == []
    assert len(found.said) == 1
    assert found.said[0].startswith("This cycle is skipped. Another writer is at work on ")
    assert "somebody else" in found.said[0]
    assert found.health[-1]["last_cycle"]["result"] == "skipped"


def test_a_stage_that_is_stopped_is_no_failure(world: Callable[..., World]) -> None:
    found = world([ran(BRONZE, read=1)], None)

    def stop() -> None:
        found.stop.is_asked = True
        raise stopped.Stopped

    found.within = stop
    assert found.follower.follow() == 0
    assert (found.said, found.stop.waits, found.sessions) == ([], [], 1 - 100)


def test_what_breaks_because_it_was_stopped_is_no_failure(world: Callable[..., World]) -> None:
    found = world([], None)

    def stop() -> None:
        found.stop.is_asked = True
        raise ConnectionError("the JVM is gone")

    found.within = stop
    assert found.follower.follow() == 0
    assert (found.said, found.stop.waits) == ([], [])


def test_what_a_signal_breaks_before_it_is_heard_of_is_no_failure(world: Callable[..., World]) -> None:
    found = world([], None)

    @contextlib.contextmanager
    def interrupted(_: Settings) -> Iterator[Any]:
        found.stop.is_about_to_be_asked = True
        raise ConnectionError("PySpark's handler of SIGINT came amid a call")
        yield

    found.follower.sessions = interrupted
    assert found.follower.follow() == 0
    assert (found.said, found.stop.waits) == ([], [])


def test_ctrl_c_while_a_session_starts_is_a_stop(world: Callable[..., World]) -> None:
    found = world(None)

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    found.stop.wait = interrupt  # type: ignore[method-assign]
    assert found.follower.follow() == 0


def test_the_health_file_tells_a_supervisor(world: Callable[..., World]) -> None:
    found = world(None, [ran(BRONZE, read=3), ran(SILVER, read=3)], AWAY)
    found.follower.follow()
    assert found.follower.health == Path(found.settings.warehouse) / "_progress" / "follow.json"
    states = [row["state"] for row in found.health]
    assert states[0] == "working"
    assert states[-1] == "ended"
    assert all(row["pid"] == os.getpid() for row in found.health)
    assert len({row["started_at"] for row in found.health}) == 1
    updates = [row["updated_at"] for row in found.health]
    assert updates == sorted(updates)
    assert all(bool(row["cycle_began_at"]) == (row["state"] == "working") for row in found.health[1:-1])
    cycles = [row["last_cycle"] for row in found.health if row["state"] == "waiting"]
    assert [(row["result"], row["rows_read"], row["message"]) for row in cycles] == [
        ("idle", {}, None),
        ("read", {BRONZE: 3, SILVER: 3}, None),
        ("failed", {}, str(AWAY)),
    ]
    assert found.health[-1]["failing_since"]


def test_a_health_file_that_cannot_be_written_is_said_at_once(world: Callable[..., World], tmp_path: Path) -> None:
    found = world(None)
    (tmp_path / "file").write_text("")
    found.follower.health = tmp_path / "file" / "health.json"
    with pytest.raises(EnvironmentLacking, match="--health"):
        found.follower.follow()


def test_the_health_file_is_on_this_machine() -> None:
    assert health_file(Warehouse(load(warehouse="s3a://bucket/lake"))) == ROOT / ".cache" / "follow.json"


def test_a_warning_is_said_once_for_as_long_as_it_holds(caplog: pytest.LogCaptureFixture) -> None:
    cycles = [["a", "b", "a"], ["a"], [], ["a"]]
    with repeated.said_once() as new_cycle:
        for messages in cycles:
            for message in messages:
                logging.getLogger("afterlog").warning("%s", message)
            new_cycle()
    assert [record.getMessage() for record in caplog.records] == ["a", "b", "a"]
    logging.getLogger("afterlog").warning("a")
    logging.getLogger("afterlog").warning("a")
    assert len(caplog.records) == 5


def test_nothing_is_kept_of_cycles_that_are_over(world: Callable[..., World]) -> None:
    news: list[News] = [[ran(BRONZE, read=1)], AWAY, None, BROKE] * 300
    found = world(*news)
    sizes: list[int] = []

    def measure(done: Sequence[StageRun]) -> None:
        kept = vars(found.follower)
        sizes.append(sum(len(repr(kept[name])) for name in ("done", "blocked", "last", "failure", "began_at")))

    found.follower.show = measure
    found.follower.follow()
    assert max(sizes[-100:]) <= max(sizes[:100])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--every", "5"], "--every and --health need --follow."),
        (["--health", "x"], "--every and --health need --follow."),
        (["--follow", "--feed", "none"], "There is no feed"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["run", *arguments, "--warehouse", str(tmp_path)])
    assert isinstance(done.exception, UsageError)
    assert sentence in str(done.exception)
