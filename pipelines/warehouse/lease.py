"""The writer's lease of a warehouse on S3: one object, taken, renewed and given back by conditional puts.

`taking`, `renewing` and `releasing` yield what to ask the store and get its answers, so that a test can try every order
of what several writers ask (tests/unit/pipelines/warehouse/test_lease_model.py). No decision compares clocks of two
machines: the store's own clock says how old a lease is. docs/decisions/0075 says what a lease cannot promise.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from pipelines.errors import AfterlogError, EnvironmentLacking, WriterBusy
from pipelines.settings import s3

if TYPE_CHECKING:
    from obstore.store import ObjectStore, S3Credential

LEASE, CLOCK = "_afterlog/lease", "_afterlog/clock"
GRAIN = 1.0  # seconds: times of objects are whole seconds
PATIENCE = timedelta(seconds=15)  # of a request with its repetitions
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
Answer = TypeVar("Answer")


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

    def __init__(self, root: str, store: ObjectStore, mine: Mine) -> None:
        """Start to renew."""
        self.root, self.epoch, self.token = root, mine.state.epoch, mine.state.token
        self._store, self._mine = store, mine
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
        seen = _look(self._store, self.root)
        return None if is_held_by(seen, self.token) else _lost(self.root, seen.state if seen else None)

    def give_back(self) -> None:
        """Stop to renew, and give the lease back unless it was taken over."""
        self._ends.set()
        self._thread.join()
        with contextlib.suppress(EnvironmentLacking):
            _done(releasing(self._mine), self._store, self.root)

    def _renew(self) -> None:
        pause = self._mine.state.seconds / RENEWED_IN
        wait = pause
        while not self._ends.wait(wait):
            try:
                self._mine = _done(renewing(self._mine), self._store, self.root)
                wait = pause
            except Taken:
                return  # the next commit notices it
            except AfterlogError:
                wait = min(_AFRESH, pause)


_held: dict[str, Lease] = {}


def take(root: str, holder: Facts, seconds: float) -> Lease:
    """Take the lease of a warehouse for this process.

    Raises Taken: another writer has it. EnvironmentLacking: the store cannot be used, or does not keep writers apart.
    """
    store = _store(root)
    try:
        mine = _done(taking(holder, seconds, secrets.token_hex(8)), store, root)
    except Taken as taken:
        if taken.state is None:
            raise _without_conditions(root) from None
        raise
    if _answer(Put(mine.state, None), store, root) is not None:  # a lease is there: to create one must be refused
        _done(releasing(mine), store, root)
        raise _without_conditions(root)
    _held[root] = found = Lease(root, store, mine)
    return found


def give_back(lease: Lease) -> None:
    """Give a lease of this process back."""
    del _held[lease.root]
    lease.give_back()


def checked(root: str) -> Lease | None:
    """Return this process's lease of a warehouse before something is written there; None if it holds none.

    Raises WriterBusy: the lease was taken over. EnvironmentLacking: the store does not answer.
    """
    lease = _held.get(root)
    if lease is not None and (lost := lease.taken_over()):
        raise lost
    return lease


def seen(root: str) -> Seen | None:
    """Return the lease of a warehouse as it is; raises EnvironmentLacking: the store cannot be used."""
    return _look(_store(root), root)


def described(holder: Facts | None) -> str:
    """Describe the process that holds a lease or a lock."""
    try:
        assert holder is not None
        return f"process {holder['pid']} on {holder['host']} ({holder['command']}), since {holder['since']}"
    except (AssertionError, KeyError, TypeError):
        return "a process that has not said its name yet"


def _without_conditions(root: str) -> EnvironmentLacking:
    return EnvironmentLacking(
        f"The store of {root} does not keep writers apart, as it does not answer conditional puts (If-None-Match) as "
        "S3 does: name a warehouse on another store."
    )


def _lost(root: str, state: State | None) -> WriterBusy:
    by = described(state.holder) if state and state.holder else "another writer"
    return WriterBusy(
        f"The lease of {root} was not renewed in time, and {by} took it over: "
        "nothing more is written; run again when it is done."
    )


def _done(steps: Steps, store: ObjectStore, root: str) -> Mine:
    """Take the steps with a real store."""
    answer: Any = None
    try:
        while True:
            answer = _answer(steps.send(answer), store, root)
    except StopIteration as done:
        mine: Mine = done.value
        return mine


def _answer(request: Request, store: ObjectStore, root: str) -> Any:
    import obstore
    from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError

    if isinstance(request, Look):
        return _look(store, root)
    if isinstance(request, Now):
        _asked(root, lambda: obstore.put(store, CLOCK, b""))
        return _asked(root, lambda: obstore.head(store, CLOCK)["last_modified"].timestamp())
    mode: Any = "create" if request.over is None else {"e_tag": request.over}
    text = json.dumps(asdict(request.state)).encode()

    def put() -> str | None:
        try:
            return obstore.put(store, LEASE, text, mode=mode, use_multipart=False)["e_tag"]
        except (AlreadyExistsError, PreconditionError, GenericError):
            return None

    return _asked(root, put)


def _look(store: ObjectStore, root: str) -> Seen | None:
    import obstore

    def look() -> Seen | None:
        try:
            found = obstore.get(store, LEASE)
        except FileNotFoundError:
            return None
        said = json.loads(bytes(found.bytes()))
        modified: datetime = found.meta["last_modified"]
        return Seen(State(**said), found.meta["e_tag"] or "", modified.timestamp())

    try:
        return _asked(root, look)
    except (ValueError, TypeError):
        raise EnvironmentLacking(
            f"The lease {root}/{LEASE} cannot be read: remove this object when no writer is at work."
        ) from None


def _asked(root: str, ask: Callable[[], Answer]) -> Answer:
    """Return what the store answers.

    Raises EnvironmentLacking: it does not answer, or it refuses. An error's own text stays unsaid: it can quote keys.
    """
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

    try:
        return ask()
    except (PermissionDeniedError, UnauthenticatedError):
        why = "S3 refuses it: check the keys and their permissions, GetObject and PutObject"
    except FileNotFoundError:
        why = "there is no such bucket: create it, or name another warehouse"
    except BaseError:
        endpoint = s3.connection().endpoint
        at = f" at {urlsplit(endpoint).hostname}" if endpoint else ""
        why = f"S3{at} does not answer as it should: check the network, AWS_ENDPOINT_URL, AWS_REGION and the keys"
    raise EnvironmentLacking(f"The lease of {root} cannot be read and written, as {why}.") from None


def _store(root: str) -> ObjectStore:
    """Open the warehouse's place on S3; keys come from the environment, a profile, or the role of the machine."""
    from obstore.store import S3Store

    found = s3.connection()
    bucket, _, prefix = root.partition("://")[2].partition("/")
    config: dict[str, Any] = {"endpoint": found.endpoint, "region": found.region}
    provider = _provider(found.keys) if found.keys else None
    return S3Store(
        bucket,
        prefix=prefix or None,
        **{name: value for name, value in config.items() if value},
        conditional_put="etag",
        virtual_hosted_style_request=found.endpoint is None,
        client_options={
            "timeout": "10s",
            "connect_timeout": "5s",
            "allow_http": bool(found.endpoint and found.endpoint.lower().startswith("http://")),
        },
        retry_config={"max_retries": 3, "retry_timeout": PATIENCE},
        credential_provider=provider,
    )


def _provider(keys: s3.Keys) -> Callable[[], S3Credential]:
    def provide() -> S3Credential:
        return {
            "access_key_id": keys.access_key_id,
            "secret_access_key": keys.secret_access_key,
            "token": keys.token,
            "expires_at": None,
        }

    return provide
