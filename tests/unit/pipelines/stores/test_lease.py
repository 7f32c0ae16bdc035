"""The lease of a warehouse on S3, held in memory: taken, renewed, given back, taken over, and what its store can do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from pipelines.errors import EnvironmentLacking, WriterBusy
from pipelines.settings import Lock, Settings, load
from pipelines.stores import connection, lease, locations, lock

ROOT = "s3a://b/w"
FIRST = {"pid": 1, "host": "here", "command": "afterlog run", "since": "2026-11-29T10:00:00+00:00"}
SECOND = {**FIRST, "pid": 2}


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A store in memory in place of S3, whose times are not rounded."""
    memory = MemoryStore()
    monkeypatch.setattr(connection, "opened", lambda root: memory)
    monkeypatch.setattr(lease, "GRAIN", 0.0)
    return memory


def settings(**of_lock: float) -> Settings:
    given = Lock.model_construct(wait_seconds=0.0, lease_seconds=60.0).model_copy(update=of_lock)
    return load(warehouse=ROOT).model_copy(update={"lock": given})


def abandoned(seconds: float = 0.2) -> lease.Lease:
    """Take a lease whose holder then does nothing more."""
    held = lease.take(ROOT, FIRST, seconds)
    held._ends.set()
    held._thread.join()
    return held


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_second_writer_is_refused_and_named_the_first_one_until_it_gives_the_lease_back() -> None:
    with lock.writer(settings(), "the first one"):
        with pytest.raises(WriterBusy, match=r"^Another writer is at work on s3://b/w: process \d+ on .* \(the first"):
            lock.writer(settings(), "the second one").__enter__()
        assert "(the first one)" in (lock.holder(ROOT) or "")
    assert lock.holder(ROOT) is None
    with lock.writer(settings(), "the second one"):
        seen = lease.seen(ROOT)
        assert seen is not None
        assert seen.state.epoch == 2


def test_a_lease_is_renewed_also_after_a_store_that_did_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise GenericError("no answer")

    with lock.writer(settings(lease_seconds=0.9), "the first one"), monkeypatch.context() as broken:
        broken.setattr(obstore, "put", fails)
        broken.setattr(obstore, "get", fails)
        time.sleep(0.5)
        broken.undo()
        until(lambda: (seen := lease.seen(ROOT)) is not None and seen.state.renewed >= 2)
        assert lease.checked(ROOT)


def test_a_lease_that_nobody_renews_is_taken_over_and_its_holder_writes_nothing_more() -> None:
    first = abandoned()
    with pytest.raises(lease.Taken):
        lease.take(ROOT, SECOND, 60.0)
    time.sleep(0.25)
    other = lease.take(ROOT, SECOND, 60.0)
    lease._held[ROOT] = first
    with pytest.raises(WriterBusy, match=r"not renewed in time, and process 2 on here \(afterlog run\), since .* over"):
        locations.of(ROOT).write("silver.x.json", b"{}")  # it needs no session to say so
    first.give_back()
    assert first.taken_over() is not None
    assert lease.is_held_by(lease.seen(ROOT), other.token)
    other.give_back()
    del lease._held[ROOT]


def test_a_late_holder_goes_on_if_nobody_took_the_lease_over() -> None:
    late = abandoned()
    time.sleep(0.25)
    assert lease.checked(ROOT) is late
    lease.give_back(late)


@pytest.mark.parametrize("is_taken_over", [True, False])
def test_an_error_under_a_lease_that_was_taken_over_says_so(is_taken_over: bool, store: MemoryStore) -> None:
    def fail() -> None:
        with lock.writer(settings(), "a test"):
            if is_taken_over:
                obstore.put(
                    store, lease.LEASE, b'{"epoch": 9, "token": "t", "seconds": 1, "holder": null, "renewed": 0}'
                )
            raise RuntimeError("Java failed")

    with pytest.raises(WriterBusy if is_taken_over else RuntimeError, match=r"another writer took|Java failed"):
        fail()
    assert lease.checked(ROOT) is None


@pytest.mark.parametrize("text", [b"", b"[]", b'{"epoch": 1}'], ids=["empty", "a list", "half"])
def test_a_lease_that_is_damaged_is_named(store: MemoryStore, text: bytes) -> None:
    obstore.put(store, lease.LEASE, text)
    with pytest.raises(EnvironmentLacking, match=r"^The lease s3://b/w/_afterlog/lease cannot be read: remove"):
        lease.take(ROOT, FIRST, 60.0)


def test_a_store_that_takes_no_conditions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    put = obstore.put
    monkeypatch.setattr(obstore, "put", lambda *given, **named: put(*given, **{**named, "mode": "overwrite"}))
    with pytest.raises(EnvironmentLacking, match="does not keep writers apart"):
        lease.take(ROOT, FIRST, 60.0)
    assert lease.checked(ROOT) is None
    assert lock.holder(ROOT) is None
