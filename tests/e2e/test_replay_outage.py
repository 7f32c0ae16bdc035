"""Replays to a real broker that is killed in the middle of them."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipelines.broker import Broker
from pipelines.errors import AfterlogError, EnvironmentLacking
from pipelines.replay.sender import Sender
from pipelines.replay.states import State
from pipelines.settings import load
from tests.testing.kafka import KafkaAdmin
from tests.testing.replays import Replays

pytestmark = pytest.mark.thorough
RECORDS = 120


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that tests of this module kill and start again."""
    with Broker(tmp_path_factory.mktemp("mortal")) as broker:
        yield broker


@pytest.fixture(scope="module")
def client(mortal: Broker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(mortal.bootstrap_servers) as client:
        yield client


def replays_of(mortal: Broker, client: KafkaAdmin, tmp_path: Path, seconds: int) -> Replays:
    kafka = {"bootstrap_servers": mortal.bootstrap_servers, "timeout_seconds": seconds}
    return Replays(load(warehouse=str(tmp_path / "warehouse"), kafka=kafka), client)


def kill_in(monkeypatch: pytest.MonkeyPatch, step: str, seconds: float, kill: Callable[[], None]) -> threading.Event:
    """Let a thread kill the broker a while after a step of the third batch began; return the event of its end."""
    method, calls, ended = getattr(Sender, step), [0], threading.Event()

    def killing() -> None:
        time.sleep(seconds)
        try:
            kill()
        finally:
            ended.set()

    def dying(*arguments: object) -> object:
        calls[0] += 1
        if calls[0] == 3:
            threading.Thread(target=killing, daemon=True).start()
        return method(*arguments)

    monkeypatch.setattr(Sender, step, dying)
    return ended


@pytest.mark.parametrize("step", ["_begin", "_produce", "_commit"])
def test_a_broker_that_dies_and_comes_back(
    step: str, mortal: Broker, client: KafkaAdmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on by itself, or says that it must be run again; each record stands once either way."""
    replays = replays_of(mortal, client, tmp_path, 60)
    plan = replays.plan(f"outage{step}", RECORDS)

    def restart() -> None:
        mortal.kill()
        mortal.start()

    ended = kill_in(monkeypatch, step, random.Random(step).uniform(0, 0.01), restart)
    with contextlib.suppress(EnvironmentLacking):
        replays.run(plan)
    assert ended.wait(120)
    assert replays.run(plan).status is State.FINISHED
    assert replays.is_replayed_once(plan)


def test_a_broker_that_stays_away(
    mortal: Broker, client: KafkaAdmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends with one sentence; when the broker is back, the same plan goes on."""
    monkeypatch.setattr("pipelines.replay.sender.TRANSACTION_SECONDS", 10.0)
    replays = replays_of(mortal, client, tmp_path, 3)
    plan = replays.plan("outage-for-long", RECORDS)
    ended = kill_in(monkeypatch, "_commit", 0, mortal.kill)
    with pytest.raises(AfterlogError, match=r"No broker can be reached|do not say whether|run the plan again"):
        replays.run(plan)
    assert ended.wait(120)
    with pytest.raises(EnvironmentLacking, match="No broker can be reached"):
        replays.run(plan)
    mortal.start()
    patient = replays_of(mortal, client, tmp_path, 60)
    assert patient.run(plan).replayed == RECORDS
    assert patient.is_replayed_once(plan)
