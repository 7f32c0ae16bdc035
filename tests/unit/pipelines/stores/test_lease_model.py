"""Every order in which two and three writers can take, renew, lose and give back a lease, with pauses and lost answers.

The writers run the lease's own code. A step answers one writer's request. A put can be answered, be done without an
answer, be lost, or arrive later; a writer that gets no step pauses or is dead. Only the store has a clock that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import pytest

from pipelines.stores import lease
from pipelines.stores.lease import Look, Now, Put, Seen, State

SECONDS = 2.0
LATE = SECONDS + lease.GRAIN  # what a tick of the store's clock adds
Program = Callable[[str], Generator[Any, Any, str]]


@dataclass(frozen=True)
class Commit:
    """Put a commit into a table's log, after the look at the lease."""


@dataclass(frozen=True)
class Either:
    """Let the exploration go both ways."""


def held_by(token: str) -> Any:
    """Return a holder that can be hashed."""
    return (("pid", token),)


def writer(token: str, commits: int = 2) -> Generator[Any, Any, str]:
    """Take the lease, look at it before each commit as the log store does, renew it or not, and give it back."""
    try:
        mine = yield from lease.taking(held_by(token), SECONDS, token)
        for _ in range(commits):
            if (yield Either()):
                mine = yield from lease.renewing(mine)
            if not lease.is_held_by((yield Look()), token):
                return "stopped"
            yield Commit()
        yield from lease.releasing(mine)
    except lease.Taken as taken:
        return "refused itself" if taken.state and taken.state.token == token else "stopped"
    return "done"


class World(NamedTuple):
    """What the store has and each writer has been answered; ``stale`` are commits under another writer's lease."""

    answers: tuple[tuple[Any, ...], ...]
    seen: Seen | None = None
    clock: float = 0.0
    late: tuple[Put, ...] = ()  # puts that will arrive later
    left: int = 0  # answers that can still be lost
    stale: tuple[int, ...] = ()
    committed: frozenset[tuple[int, str]] = frozenset()  # epoch and token


class Broken(AssertionError):
    """What must not happen did."""


def put(world: World, request: Put) -> tuple[World, str | None]:
    """Let a put arrive: the ETag is that of the text, as on S3."""
    there, over = world.seen, request.over
    if (there.etag if there else None) != over:
        return world, None
    if there and there.state.holder is not None and there.state.token != request.state.token and request.state.token:
        if world.clock - there.at < there.state.seconds:
            raise Broken("a lease was taken over before its end")
        if request.state.epoch <= there.state.epoch:
            raise Broken("an epoch came twice")
    etag = repr(request.state)
    return world._replace(seen=Seen(request.state, etag, world.clock)), etag


class Exploration:
    """All worlds that some writers can reach."""

    def __init__(self, writers: int, program: Program = writer, ticks: int = 2, lost: int = 1) -> None:
        self.program, self.tokens = program, [f"writer {number}" for number in range(writers)]
        self.end = ticks * LATE
        self.begin = World(((),) * writers, left=lost, stale=(0,) * writers)
        self.outcomes: set[tuple[str, ...]] = set()
        self.asked = cache(self._asked)

    def run(self) -> int:
        """Visit every world once; return how many there are."""
        known, open_ones = {self.begin}, [self.begin]
        while open_ones:
            for after in self.after(open_ones.pop()):
                if after not in known:
                    known.add(after)
                    open_ones.append(after)
        return len(known)

    def _asked(self, number: int, answers: tuple[Any, ...]) -> tuple[Any, str | None]:
        """Return what a writer asks next, or how it ended."""
        steps = self.program(self.tokens[number])
        try:
            request = next(steps)
            for answer in answers:
                request = steps.send(answer)
        except StopIteration as ended:
            return None, ended.value
        return request, None

    def after(self, world: World) -> Iterator[World]:
        if world.clock < self.end:
            yield world._replace(clock=world.clock + LATE)
        for place, request in enumerate(world.late):
            yield put(world._replace(late=world.late[:place] + world.late[place + 1 :]), request)[0]
        ends = []
        for number, token in enumerate(self.tokens):
            request, ended = self.asked(number, world.answers[number])
            ends.append(ended)
            if request is not None:
                yield from self.answered(world, number, token, request)
        if all(ends):
            self.outcomes.add(tuple(map(str, ends)))
        if "refused itself" in ends:
            raise Broken("a writer refused itself")

    def answered(self, world: World, number: int, token: str, request: Any) -> Iterator[World]:
        def told(after: World, answer: Any) -> World:
            mine = (*after.answers[number], answer)
            return after._replace(answers=(*after.answers[:number], mine, *after.answers[number + 1 :]))

        match request:
            case Look():
                yield told(world, world.seen)
            case Now():
                yield told(world, world.clock)
            case Either():
                yield told(world, True)
                yield told(world, False)
            case Put():
                yield told(*put(world, request))
                if world.left:
                    one_less = world._replace(left=world.left - 1)
                    yield told(put(one_less, request)[0], None)
                    yield told(one_less, None)
                    yield told(one_less._replace(late=(*one_less.late, request)), None)
            case Commit():
                yield told(self.committed(world, number, token), True)

    def committed(self, world: World, number: int, token: str) -> World:
        """Let a commit arrive; of a writer whose lease was taken over, only the one that was on its way may."""
        epoch = next(answer.state.epoch for answer in reversed(world.answers[number]) if isinstance(answer, Seen))
        if any(epoch == other and token != by for other, by in world.committed):
            raise Broken("two writers committed under one epoch")
        stale = list(world.stale)
        if not lease.is_held_by(world.seen, token):
            stale[number] += 1
            if stale[number] > 1:
                raise Broken("a writer went on after its lease was taken over")
        return world._replace(stale=tuple(stale), committed=world.committed | {(epoch, token)})


@pytest.mark.parametrize(
    ("writers", "commits", "ticks", "lost"),
    [(2, 2, 1, 1), (2, 1, 2, 2), (3, 1, 1, 0)],
    ids=["two commits each", "two lost answers", "three writers"],
)
def test_no_order_lets_two_writers_work_under_one_lease(writers: int, commits: int, ticks: int, lost: int) -> None:
    explored = Exploration(writers, lambda token: writer(token, commits), ticks, lost)
    assert explored.run() > 1_000
    assert ("done",) * writers in explored.outcomes  # one after the other
    assert any("done" in ends and "stopped" in ends for ends in explored.outcomes)


def unchecked(token: str) -> Generator[Any, Any, str]:
    """Commit twice after one look."""
    try:
        mine = yield from lease.taking(held_by(token), SECONDS, token)
        yield Look()
        yield Commit()
        yield Commit()
        yield from lease.releasing(mine)
    except lease.Taken:
        return "stopped"
    return "done"


def without(change: Callable[[Any], Any]) -> Program:
    """Return the writer with other requests than its own."""

    def changed(token: str) -> Generator[Any, Any, str]:
        steps = writer(token)
        request = next(steps)
        while True:
            answer = yield change(request)
            try:
                request = steps.send(answer)
            except StopIteration as ended:
                return str(ended.value)

    return changed


def renews_alike(request: Any) -> Any:
    """Write the same text with each renewal, so that its ETag is the same."""
    return replace(request, state=replace(request.state, renewed=0)) if isinstance(request, Put) else request


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (unchecked, "went on after its lease was taken over"),
        (without(renews_alike), "before its end"),
    ],
    ids=["no look", "equal renewals"],
)
def test_the_exploration_finds_what_a_worse_lease_allows(program: Program, found: str) -> None:
    with pytest.raises(Broken, match=found):
        Exploration(2, program).run()


def test_a_holder_that_does_not_look_whether_its_lost_put_arrived_refuses_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rash(state: State, over: str | None) -> lease.Steps:
        etag = yield Put(state, over)
        if etag is None:
            raise lease.Taken(state)
        return lease.Mine(state, etag)

    monkeypatch.setattr(lease, "_written", rash)
    with pytest.raises(Broken, match="refused itself"):
        Exploration(2).run()
