from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from pipelines.errors import EnvironmentLacking, UsageError, WriterBusy
from pipelines.replay.journal import Journal, journal_store
from pipelines.replay.model import Source
from pipelines.replay.runners import alone, is_running
from pipelines.replay.states import Request, State, Status
from pipelines.settings import load
from pipelines.stores import connection, lease
from pipelines.stores.base import Store
from pipelines.stores.directory import Directory
from pipelines.stores.locations import of
from pipelines.stores.objects import Objects
from tests.testing.replays import numbered

RECORDS = numbered(4, "orders")


@pytest.fixture(params=["directory", "objects"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A place of a journal; objects are held in memory, whose times are not rounded."""
    if request.param == "directory":
        return of(str(tmp_path / "_replay"))
    memory = MemoryStore()
    monkeypatch.setattr(connection, "opened", lambda root: memory)
    monkeypatch.setattr(lease, "GRAIN", 0.0)
    return Objects("s3a://b/w/_replay")


@pytest.fixture
def journal(place: Store) -> Iterator[Journal]:
    with Journal(place, "default") as made:
        yield made


def status(journal: Journal, plan_id: str = "a") -> Status:
    found = journal.status(plan_id)
    assert found is not None
    return found


def test_a_plan_from_its_beginning_to_its_end(journal: Journal) -> None:
    assert journal.status("a") is None
    journal.add("a")
    assert status(journal).is_untouched
    assert journal.begin("a", "me").is_untouched
    assert journal.claim("a", RECORDS[:2], again=False) == RECORDS[:2]
    assert not status(journal).is_untouched
    journal.confirm("a", RECORDS[:2], replayed=2, skipped=0)
    journal.end("a", "me", State.FINISHED)
    found = status(journal)
    assert (found.state, found.attempted, found.replayed, found.since_planned) == (State.FINISHED, 2, 2, True)
    assert journal.begin("a", "me").state is State.FINISHED
    assert not journal.begin("a", "me").can_run


def test_a_plan_that_the_journal_does_not_know_may_have_been_attempted(journal: Journal) -> None:
    before = journal.begin("a", "me")
    assert (before.since_planned, before.is_untouched, before.can_run) == (False, False, True)
    journal.add("a")
    assert not status(journal).is_untouched


def test_a_run_that_died_is_ready(journal: Journal) -> None:
    journal.add("a")
    with alone(journal.store, "a"):
        journal.begin("a", "me")
        assert status(journal).state is State.RUNNING
    assert status(journal).state is State.READY
    assert journal.begin("a", "another").can_run


def test_only_the_last_runner_ends_a_plan(journal: Journal) -> None:
    journal.add("a")
    journal.begin("a", "first")
    journal.begin("a", "second")
    journal.end("a", "first", State.FAILED, "fenced")
    with alone(journal.store, "a"):
        assert status(journal).state is State.RUNNING
    journal.end("a", "second", State.FAILED, "why")
    assert (status(journal).state, status(journal).sentence) == (State.FAILED, "why")
    assert journal.begin("a", "third").can_run


def test_pause_and_resume(journal: Journal) -> None:
    journal.add("a")
    journal.ask_pause("a")
    assert status(journal).state is State.PAUSED
    assert not journal.begin("a", "me").can_run
    journal.resume("a")
    assert status(journal).state is State.READY
    journal.begin("a", "me")
    journal.ask_pause("a")
    assert journal.request("a") is Request.PAUSE
    journal.end("a", "me", State.PAUSED)
    assert (status(journal).state, journal.request("a")) == (State.PAUSED, None)
    journal.resume("a")
    assert status(journal).state is State.READY
    journal.resume("a")
    assert status(journal).state is State.READY


def test_a_pause_of_a_run_that_died_holds(journal: Journal) -> None:
    journal.add("a")
    journal.begin("a", "me")
    journal.ask_pause("a")
    assert status(journal).state is State.PAUSED
    assert not journal.begin("a", "another").can_run


def test_cancel_without_a_runner(journal: Journal) -> None:
    journal.add("a")
    journal.ask_cancel("a")
    assert status(journal).state is State.CANCELLED
    with pytest.raises(UsageError, match="is cancelled"):
        journal.resume("a")
    journal.ask_pause("a")
    assert (status(journal).state, journal.request("a")) == (State.CANCELLED, None)


def test_cancel_with_a_batch_of_which_nobody_knows(journal: Journal) -> None:
    journal.add("a")
    journal.begin("a", "me")
    journal.claim("a", RECORDS, again=False)
    journal.ask_cancel("a")
    assert (status(journal).state, journal.request("a")) == (State.READY, Request.CANCEL)
    journal.ask_pause("a")
    assert journal.request("a") is Request.CANCEL
    assert journal.claim("b", RECORDS, again=False) == []
    journal.begin("a", "me")
    journal.confirm("a", RECORDS[:1], replayed=1, skipped=0)
    journal.end("a", "me", State.CANCELLED)
    assert (status(journal).state, journal.request("a")) == (State.CANCELLED, None)
    assert journal.claim("b", RECORDS, again=False) == RECORDS[1:]


def test_cancel_of_a_plan_that_runs(journal: Journal) -> None:
    journal.add("a")
    with alone(journal.store, "a"):
        journal.begin("a", "me")
        journal.ask_cancel("a")
        assert (status(journal).state, journal.request("a")) == (State.RUNNING, Request.CANCEL)


def test_claims(journal: Journal) -> None:
    letters = [item.letter for item in RECORDS]
    journal.add("a")
    journal.add("b")
    assert journal.claims(letters) == {}
    journal.claim("a", RECORDS[:2], again=False)
    assert journal.claim("a", RECORDS[:2], again=False) == RECORDS[:2]
    assert journal.claim("b", RECORDS, again=False) == RECORDS[2:]
    assert journal.claims(letters) == dict(zip(letters, "aabb", strict=True))
    journal.release("a", RECORDS[:1])
    assert journal.claim("b", RECORDS[:1], again=False) == RECORDS[:1]
    journal.confirm("a", RECORDS[1:2], replayed=1, skipped=0)
    journal.release("a", RECORDS[1:2])
    assert journal.claim("b", RECORDS[1:2], again=False) == []
    assert journal.claim("b", RECORDS[1:2], again=True) == RECORDS[1:2]


def test_a_source_record_is_taken_once_whatever_dead_letter_of_it_a_plan_has(journal: Journal) -> None:
    """Two groups dead-lettered the same records, and a plan for each group runs at the same time."""
    others = [replace(item, letter=item.letter._replace(topic="dlq.of-another-group")) for item in RECORDS]
    assert journal.claim("a", RECORDS[:2], again=False) == RECORDS[:2]
    assert journal.claim("b", others, again=False) == others[2:]
    assert journal.claim("b", others[:1], again=True) == others[:1]
    assert journal.claimed_sources(item.source for item in others[1:3]) == {
        others[1].source.coordinate: "a",
        others[2].source.coordinate: "b",
    }
    unknown = [replace(item, source=Source(None, None, None)) for item in others]
    assert journal.claimed_sources(item.source for item in unknown) == {}
    journal.release("a", RECORDS[:2])
    assert journal.claim("c", others[1:2], again=False) == others[1:2]


def test_a_journal_of_an_older_version_is_completed(tmp_path: Path) -> None:
    with Journal(of(str(tmp_path)), "default") as journal:
        journal.claim("a", RECORDS[:1], again=False)
        journal._database.connection.execute("DROP INDEX claims_of_sources")
        for column in ("source_topic", "source_partition", "source_record"):
            journal._database.connection.execute(f"ALTER TABLE claims DROP COLUMN {column}")
    with Journal(of(str(tmp_path)), "default") as journal, Journal(of(str(tmp_path)), "default"):
        assert journal.claim("b", RECORDS, again=False) == RECORDS[1:]
        assert set(journal.claimed_sources(item.source for item in RECORDS)) == {
            item.source.coordinate for item in RECORDS[1:]
        }


def test_clusters_of_one_warehouse_have_topics_of_the_same_names(place: Store) -> None:
    """A record of a file has a place without a topic's id, so that it equals that of another cluster's record."""
    records = [replace(item, letter=item.letter._replace(topic_id="")) for item in RECORDS]
    with Journal(place, "east") as east, Journal(place, "west") as west:
        assert east.claim("a", records, again=False) == records
        assert west.claims(record.letter for record in records) == {}
        assert west.claimed_sources(record.source for record in records) == {}
        assert west.claim("b", records, again=False) == records
        east.confirm("a", records, replayed=4, skipped=0)
        assert east.claim("c", records, again=False) == []
        assert set(east.claims(record.letter for record in records).values()) == {"a"}
        assert set(west.claimed_sources(record.source for record in records).values()) == {"b"}


def test_claims_of_a_journal_that_did_not_know_the_cluster_hold_for_each(tmp_path: Path) -> None:
    with Journal(of(str(tmp_path)), "east") as journal:
        journal.claim("a", RECORDS[:1], again=False)
        journal._database.connection.execute("ALTER TABLE claims DROP COLUMN cluster")
    for cluster in ("east", "west"):
        with Journal(of(str(tmp_path)), cluster) as journal:
            assert journal.claim(f"of {cluster}", RECORDS[:1], again=False) == []


def test_a_cancelled_plan_that_is_made_anew_can_be_run(journal: Journal) -> None:
    journal.add("a")
    assert not journal.revive("a")
    journal.ask_cancel("a")
    assert status(journal).state is State.CANCELLED
    assert journal.revive("a")
    assert journal.begin("a", "me").can_run


def test_a_claim_costs_the_same_however_many_there_are(journal: Journal) -> None:
    """Plans have hundreds of thousands of dead letters of one topic: the work must not grow with those claimed."""
    records = numbered(3_200, "orders")
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    def steps_of(first: int) -> int:
        nonlocal steps
        steps = 0
        batch = records[first : first + 100]
        assert journal.claim("a", batch, again=False) == batch
        assert len(journal.claims(item.letter for item in batch)) == 100
        return steps

    journal._database.connection.set_progress_handler(step, 10)
    few = steps_of(100)
    journal.claim("a", records[200:3_100], again=False)
    many = steps_of(3_100)
    assert few > 100
    assert many < 1.5 * few


def test_notes(journal: Journal) -> None:
    journal.note("a", {("t", 0): 5, ("t", 1): 0})
    journal.note("b", {("t", 0): 9})
    journal.note("a", {("t", 0): 7})
    assert (journal.noted("a"), journal.noted("b"), journal.noted("c")) == ({("t", 0): 7}, {("t", 0): 9}, {})


def test_one_runner_a_plan(place: Store) -> None:
    with alone(place, "a"):
        assert is_running(place, "a")
        assert not is_running(place, "b")
        with pytest.raises(WriterBusy, match="Another process runs plan a"), alone(place, "a"):
            pass
        with alone(place, "b"):
            pass
    assert not is_running(place, "a")


@pytest.mark.parametrize("plan_id", ["", "../x", "a/b", ".hidden", "x" * 101, "a b"])
def test_a_plans_id_is_no_path(plan_id: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="in its id"), alone(of(str(tmp_path)), plan_id):
        pass


def _begin_and_die(directory: Path) -> None:
    with Journal(of(str(directory)), "default") as journal:
        journal._database.connection.execute("BEGIN IMMEDIATE")
        journal._database.connection.execute("UPDATE plans SET attempted = 99")
        os._exit(9)


def test_a_process_that_dies_in_a_change_leaves_none(tmp_path: Path) -> None:
    with Journal(of(str(tmp_path)), "default") as journal:
        journal.add("a")
        process: Any = multiprocessing.get_context("spawn").Process(target=_begin_and_die, args=(tmp_path,))
        process.start()
        process.join()
        assert process.exitcode == 9
        assert status(journal).attempted == 0
        journal.claim("a", RECORDS, again=False)
        assert status(journal).attempted == 4


def test_processes_that_claim_at_the_same_time_get_each_record_once(place: Store) -> None:
    records = numbered(60, "orders")
    claimed: list[Any] = []

    def claim(plan_id: str) -> None:
        with Journal(place, "default") as journal:
            journal.add(plan_id)
            for first in range(0, len(records), 5):
                claimed.extend(journal.claim(plan_id, records[first : first + 5], again=False))

    claimants = [threading.Thread(target=claim, args=(f"plan-{number}",)) for number in range(3)]
    for claimant in claimants:
        claimant.start()
    for claimant in claimants:
        claimant.join()
    assert sorted(item.letter for item in claimed) == sorted(record.letter for record in records)
    with Journal(place, "default") as journal:
        assert sum(status(journal, f"plan-{number}").attempted for number in range(3)) == len(records)


@pytest.mark.parametrize("place", ["objects"], indirect=True)
def test_an_answer_that_is_lost_changes_nothing_twice(place: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(place, Objects)
    put = Objects.replace
    with Journal(place, "default") as journal:
        journal.add("a")
        with monkeypatch.context() as patched:
            patched.setattr(Objects, "replace", lambda *given: [put(*given), None][1])
            assert journal.claim("a", RECORDS, again=False) == RECORDS
        assert status(journal).attempted == len(RECORDS)
    with Journal(place, "default") as journal:
        assert status(journal).attempted == len(RECORDS)


@pytest.mark.parametrize("place", ["objects"], indirect=True)
def test_a_store_that_fails_leaves_no_change_in_memory(place: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise EnvironmentLacking("no answer")

    with Journal(place, "default") as journal:
        with monkeypatch.context() as patched:
            patched.setattr(Objects, "replace", fails)
            with pytest.raises(EnvironmentLacking):
                journal.claim("a", RECORDS, again=False)
        assert journal.claim("b", RECORDS, again=False) == RECORDS


@pytest.mark.parametrize("place", ["objects"], indirect=True)
def test_an_object_that_was_removed_or_made_anew_ends_the_run(place: Store) -> None:
    assert isinstance(place, Objects)
    with Journal(place, "default") as journal:
        journal.add("a")
        place.remove("journal.db")
        with pytest.raises(EnvironmentLacking, match="was removed while"):
            journal.claim("a", RECORDS, again=False)
        with Journal(place, "default"), pytest.raises(EnvironmentLacking, match="was removed while"):
            journal.claim("a", RECORDS, again=False)


@pytest.mark.parametrize("place", ["objects"], indirect=True)
def test_a_journal_that_was_restored_knows_what_happens_from_then_on(
    place: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(place, Objects)
    with Journal(place, "default") as journal:
        journal.add("a")
        before = journal.since
    with Journal(place, "default") as journal:
        assert journal.since == before
    found = place.versioned("journal.db")
    assert found is not None
    versioned = Objects.versioned
    later = replace(found, modified_at=found.modified_at + timedelta(minutes=10))
    with monkeypatch.context() as patched:
        patched.setattr(
            Objects, "versioned", lambda *of: later if (now := versioned(*of)) and now.version == found.version else now
        )
        with Journal(place, "default") as restored:
            assert restored.since > before
            since = restored.since
            restored.add("b")
    with Journal(place, "default") as again:
        assert again.since == since


@pytest.mark.parametrize("place", ["objects"], indirect=True)
def test_an_answer_that_is_lost_while_another_process_writes(place: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(place, Objects)
    put = Objects.replace
    with Journal(place, "default") as journal, Journal(place, "default") as other:
        journal.add("a")

        def lose(*given: Any) -> None:
            put(*given)
            monkeypatch.setattr(Objects, "replace", put)
            other.add("b")

        monkeypatch.setattr(Objects, "replace", lose)
        assert journal.claim("a", RECORDS, again=False) == RECORDS
        assert status(journal).attempted == len(RECORDS)
        assert status(journal, "b").is_untouched


@pytest.mark.parametrize("place", ["objects"], indirect=True)
def test_the_database_of_a_directory_is_one_of_an_object(place: Store, tmp_path: Path) -> None:
    assert isinstance(place, Objects)
    with Journal(of(str(tmp_path)), "default") as journal:
        journal.add("a")
    place.write("journal.db", (tmp_path / "journal.db").read_bytes())
    with Journal(place, "default") as journal:
        assert status(journal).is_untouched
        journal.add("b")
    for content in (b"", b"SQLite", b"no database " * 100):
        place.write("journal.db", content)
        with pytest.raises(EnvironmentLacking, match=r"journal\.db is damaged: move it away"):
            Journal(place, "default")


def test_a_damaged_journal(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_bytes(b"no database " * 100)
    with pytest.raises(EnvironmentLacking, match=r"journal\.db is damaged: move it away"):
        Journal(of(str(tmp_path)), "default")


def test_a_journal_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "_replay").write_text("a file")
    with pytest.raises(EnvironmentLacking, match="cannot be written"):
        Journal(of(str(tmp_path / "_replay")), "default")


def test_the_journal_is_in_the_warehouse() -> None:
    assert journal_store(load(warehouse="/somewhere/warehouse")) == Directory("/somewhere/warehouse/_replay")
    assert journal_store(load(warehouse="s3a://bucket/warehouse")) == Objects("s3a://bucket/warehouse/_replay")
    with pytest.raises(UsageError, match="Only Spark opens hdfs://name/w, and replays are made without it"):
        journal_store(load(warehouse="hdfs://name/w"))
