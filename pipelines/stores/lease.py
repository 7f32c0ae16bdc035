"""A lease on an object store: one object, taken, renewed and given back by conditional puts. One is the writer's.

`taking`, `renewing` and `releasing` yield what to ask the store and get its answers, so that a test can try every order
of what several writers ask (tests/unit/pipelines/warehouse/test_lease_model.py). No decision compares clocks of two
machines: the store's own clock says how old a lease is. docs/decisions/0075 says what a lease cannot promise.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
from collections.abc import Generator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pipelines import moments
from pipelines.errors import AfterlogError, EnvironmentLacking, WriterBusy
from pipelines.settings import s3
from pipelines.stores import connection
from pipelines.stores.connection import asked

if TYPE_CHECKING:
    from obstore.store import ObjectStore

LEASE, CLOCK = "_afterlog/lease", "_afterlog/clock"
GRAIN = 1.0  # seconds: times of objects are whole seconds
RENEWED_IN = 3  # parts of a lease's life
_AFRESH = 1.0  # seconds until a renewal that failed is tried again

Facts = dict[str, Any]


@dataclass(frozen=True)
class State:
    """What the lease says. ``holder`` is None if it is free, ``renewed`` makes the text of each renewal another one.

    ``epoch`` counts the leases of a warehouse, the fencing number of commits; ``token`` is of one lease only.
    """

    epoch: int
    token: str
    seconds: float
    holder: Facts | None
    renewed: int = 0


@dataclass(frozen=True)
class Seen:
    """The lease as the store has it, and when the store took it, in seconds of the store's clock."""

    state: State
    etag: str
    at: float


@dataclass(frozen=True)
class Look:
    """Ask for the lease; the answer is what is `Seen`, or None."""


@dataclass(frozen=True)
class Now:
    """Ask for the time of the store's clock, in seconds."""


@dataclass(frozen=True)
class Put:
    """Write the lease if its ETag is still ``over`` (None: if there is no lease).

    The answer is the new ETag; None if the store refused it, or if no answer came: then nobody knows.
    """

    state: State
    over: str | None


@dataclass(frozen=True)
class Mine:
    """A lease that is held, as its holder wrote it last."""

    state: State
    etag: str


Request = Look | Now | Put
Steps = Generator[Request, Any, Mine]


class Taken(Exception):
    """Another writer has the lease; ``state`` is None if its lease could not be seen."""

    def __init__(self, state: State | None) -> None:
        """Keep the state."""
        super().__init__()
        self.state = state


def taking(holder: Facts, seconds: float, token: str) -> Steps:
    """Take a lease that is free or was not renewed in time.

    Raises Taken: another writer has it.
    """
    seen: Seen | None = yield Look()
    if seen and seen.state.holder is not None:
        now: float = yield Now()
        if now - seen.at < seen.state.seconds + GRAIN:
            raise Taken(seen.state)
    mine = State(seen.state.epoch + 1 if seen else 1, token, seconds, holder)
    return (yield from _written(mine, seen.etag if seen else None))


def renewing(mine: Mine) -> Steps:
    """Renew a lease, also after it could have been taken over.

    Raises Taken: it was.
    """
    return (yield from _written(replace(mine.state, renewed=mine.state.renewed + 1), mine.etag))


def releasing(mine: Mine) -> Steps:
    """Give a lease back; its epoch stays. If this does not arrive, or comes too late, the lease ends by itself."""
    yield Put(replace(mine.state, token="", holder=None), mine.etag)
    return mine


def _written(state: State, over: str | None) -> Steps:
    """Write the lease; without an answer, or after a refusal, look whether an attempt of this writer came through."""
    etag: str | None = yield Put(state, over)
    if etag is not None:
        return Mine(state, etag)
    seen: Seen | None = yield Look()
    if seen is None or seen.state.token != state.token:
        raise Taken(seen.state if seen else None)
    return Mine(seen.state, seen.etag)


def is_held_by(seen: Seen | None, token: str) -> bool:
    """Tell whether the lease is still the one of a token: what is asked before a commit."""
    return seen is not None and seen.state.token == token


class Lease:
    """A lease that this process holds; a thread renews it until it is given back."""

    def __init__(self, target: LeaseObject, mine: Mine) -> None:
        """Start to renew."""
        self.target, self.epoch, self.token = target, mine.state.epoch, mine.state.token
        self._mine = mine
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()

    def fence(self) -> str:
        """Return the part of the lease's text that no other lease has."""
        return json.dumps({"token": self.token})[1:-1]

    def taken_over(self) -> WriterBusy | None:
        """Ask the store; return the error that names the writer that took the lease over, or None.

        Raises EnvironmentLacking: the store does not answer.
        """
        seen = _look(self.target)
        return None if is_held_by(seen, self.token) else _lost(self.target.root, seen.state if seen else None)

    def give_back(self) -> None:
        """Stop to renew, and give the lease back unless it was taken over."""
        self._ends.set()
        self._thread.join()
        with contextlib.suppress(EnvironmentLacking):
            _done(releasing(self._mine), self.target)

    def _renew(self) -> None:
        pause = self._mine.state.seconds / RENEWED_IN
        wait = pause
        while not self._ends.wait(wait):
            try:
                self._mine = _done(renewing(self._mine), self.target)
                wait = pause
            except Taken:
                return  # the next commit notices it
            except AfterlogError:
                wait = min(_AFRESH, pause)


_held: dict[str, Lease] = {}  # the writers' leases of this process, by root


def take(root: str, holder: Facts, seconds: float, name: str = LEASE) -> Lease:
    """Take a lease of a warehouse for this process, the writer's if no other is named.

    Raises Taken: another process has it. EnvironmentLacking: the store cannot be used, or does not keep writers apart.
    """
    target = LeaseObject(root, name)
    try:
        mine = _done(taking(holder, seconds, secrets.token_hex(8)), target)
    except Taken as taken:
        if taken.state is None:
            raise _without_conditions(root) from None
        raise
    if name == LEASE and _answer(Put(mine.state, None), target) is not None:  # creating it again must be refused
        _done(releasing(mine), target)
        raise _without_conditions(root)
    found = Lease(target, mine)
    if name == LEASE:
        _held[root] = found
    return found


def give_back(lease: Lease) -> None:
    """Give a lease of this process back."""
    if _held.get(lease.target.root) is lease:
        del _held[lease.target.root]
    lease.give_back()


def checked(root: str) -> Lease | None:
    """Return this process's writer's lease before something is written there; None if it holds none.

    Raises WriterBusy: the lease was taken over. EnvironmentLacking: the store does not answer.
    """
    lease = _held.get(root)
    if lease is not None and (lost := lease.taken_over()):
        raise lost
    return lease


def held(root: str) -> Lease | None:
    """Return this process's writer's lease of a warehouse as it was last known; None if it holds none."""
    return _held.get(root)


def seen(root: str, name: str = LEASE) -> Seen | None:
    """Return a lease of a warehouse as it is; raises EnvironmentLacking: the store cannot be used."""
    return _look(LeaseObject(root, name))


def is_live(root: str, name: str) -> bool:
    """Tell whether a process has a lease and renewed it in time."""
    found = seen(root, name)
    if found is None or found.state.holder is None:
        return False
    now: float = _answer(Now(), LeaseObject(root, name))
    return now - found.at < found.state.seconds + GRAIN


def facts(purpose: str) -> Facts:
    """Return what a lock or lease says about this process."""
    since = moments.now().isoformat(timespec="seconds")
    return {"pid": os.getpid(), "host": socket.gethostname(), "command": purpose, "since": since}


def described(holder: Facts | None) -> str:
    """Describe the process that holds a lease or a lock."""
    try:
        assert holder is not None
        return f"process {holder['pid']} on {holder['host']} ({holder['command']}), since {holder['since']}"
    except (AssertionError, KeyError, TypeError):
        return "a process that has not said its name yet"


def _without_conditions(root: str) -> EnvironmentLacking:
    return EnvironmentLacking(
        f"The store of {s3.shown(root)} does not keep writers apart, as it does not answer conditional puts "
        "(If-None-Match) as S3 does: name a warehouse on another store."
    )


def _lost(root: str, state: State | None) -> WriterBusy:
    by = described(state.holder) if state and state.holder else "another writer"
    return WriterBusy(
        f"The lease of {s3.shown(root)} was not renewed in time, and {by} took it over: "
        "nothing more is written; run again when it is done."
    )


@dataclass(frozen=True)
class LeaseObject:
    """The object that holds a lease."""

    root: str
    name: str

    @property
    def store(self) -> ObjectStore:
        """The store of the warehouse."""
        return connection.opened(self.root)


def _done(steps: Steps, target: LeaseObject) -> Mine:
    """Take the steps with a real store."""
    answer: Any = None
    try:
        while True:
            answer = _answer(steps.send(answer), target)
    except StopIteration as done:
        mine: Mine = done.value
        return mine


def _answer(request: Request, target: LeaseObject) -> Any:
    import obstore
    from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError

    root, store = target.root, target.store
    if isinstance(request, Look):
        return _look(target)
    if isinstance(request, Now):
        asked(root, lambda: obstore.put(store, CLOCK, b""))
        return asked(root, lambda: obstore.head(store, CLOCK)["last_modified"].timestamp())
    mode = connection.mode_over(request.over)
    text = json.dumps(asdict(request.state)).encode()

    def put() -> str | None:
        try:
            return connection.version_of(obstore.put(store, target.name, text, mode=mode, use_multipart=False))
        except (AlreadyExistsError, PreconditionError, GenericError):
            return None

    return asked(root, put)


def _look(target: LeaseObject) -> Seen | None:
    import obstore

    def look() -> Seen | None:
        try:
            found = obstore.get(target.store, target.name)
        except FileNotFoundError:
            return None
        said = json.loads(bytes(found.bytes()))
        modified: datetime = found.meta["last_modified"]
        return Seen(State(**said), connection.version_of(found.meta), modified.timestamp())

    try:
        return asked(target.root, look)
    except (ValueError, TypeError):
        raise EnvironmentLacking(
            f"The lease {s3.shown(target.root)}/{target.name} cannot be read: remove this object when no writer "
            "is at work."
        ) from None
