"""Alerts from real processes: a run, a run that cannot begin, a process that follows, a run of a DAG."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from local import warm
from local.demo import Airflow
from pipelines.settings import ROOT, Settings
from pipelines.stores import lock
from pipelines.warehouse import actions, jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import kip_1191, land, line, warehouse_of
from tests.testing.following import Following
from tests.testing.receiver import Receiver, receiving

SECRET = "canary-5d41402abc4b"
PATH = "secret-path"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


def routes(receiver: Receiver) -> dict[str, str]:
    told = {"route": [{"name": "hook", "url": receiver.address, "storm_from": 2}], "timeout_seconds": 2}
    return {"AFTERLOG_ALERTS": json.dumps(told)}


def letters(first: int, count: int, group: str) -> list[str]:
    """Dead letters of the last minutes, whose keys, values and headers hold a secret."""
    now = datetime.now(UTC)
    found = []
    for number in range(count):
        at = int((now - timedelta(seconds=count - number)).timestamp() * 1000)
        headers = [*kip_1191(offset=str(number), group=group, message=f"{SECRET} failed"), ("x-user", SECRET.encode())]
        found.append(line(first + number, timestamp=at, key=SECRET.encode(), value=SECRET.encode(), headers=headers))
    return found


def run(settings: Settings, **environment: str) -> tuple[int, str]:
    """Run ``afterlog run``; return its exit code and what it said."""
    command = [sys.executable, "-c", "from pipelines.cli import main; main()", "run", "--feed", "dlq"]
    command += ["--warehouse", settings.warehouse, "--landing", settings.landing]
    ended = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)} | environment, capture_output=True, text=True, timeout=300
    )
    return ended.returncode, ended.stdout + ended.stderr


def told(receiver: Receiver) -> list[tuple[str, str | None]]:
    return [(row["kind"], row["group"]) for _, body in receiver.got for row in body["alerts"]]


def until(holds: Callable[[], Any]) -> None:
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.thorough  # unit/pipelines/commands/test_incidents.py has the same runs in one process
def test_runs_tell_what_is_new_whatever_becomes_of_them(
    empty_warehouse: Path, tmp_path: Path, receiver: Receiver
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    land(settings, {"a.jsonl": letters(0, 30, "fraud-workers")})
    receiver.behaviours = ["500"]
    code, said = run(settings, **routes(receiver))
    assert code == 0, said
    assert "afterlog: Route hook did not take an alert: HTTP 500. The next run tries it again." in said
    assert PATH not in said

    receiver.behaviours = ["200"]
    receiver.got.clear()
    until(lambda: run(settings, **routes(receiver))[0] == 0 and receiver.got)  # an idle run sends what waits
    assert told(receiver) == [("opened", "fraud-workers")]

    (row,) = jvmless.rows(Warehouse(settings), "gold.dlq_incidents", {"cluster": settings.cluster})
    actions.act(Warehouse(settings), row["incident_id"], actions.RESOLVE)
    with lock.writer(settings, "another writer"):
        code, said = run(settings, AFTERLOG_LOCK__WAIT_SECONDS="0", **routes(receiver))
    assert code == 4, said
    assert told(receiver)[1:] == [("resolved", "fraud-workers")]
    assert SECRET not in json.dumps(receiver.got)


@pytest.mark.thorough
def test_a_receiver_that_hangs_delays_no_cycle(empty_warehouse: Path, tmp_path: Path, receiver: Receiver) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    receiver.behaviours = ["hang"]
    following = Following(settings, tmp_path / "log", **routes(receiver))
    try:
        land(settings, {"a.jsonl": letters(0, 30, "fraud-workers")})
        following.until(lambda _: bool(receiver.got))  # it starts Java first
        began = time.monotonic()
        following.until_idle()
        assert time.monotonic() - began < 10
        receiver.behaviours = ["200"]
        receiver.got.clear()
        until(lambda: receiver.got)
        assert told(receiver) == [("opened", "fraud-workers")]
        receiver.behaviours = ["hang"]
        land(settings, {"b.jsonl": letters(100, 30, "paid-app")})
        until(lambda: len(receiver.got) > 1)
        assert following.stop()[0] == 0
    finally:
        following.process.kill()
    assert PATH not in (tmp_path / "log").read_text()


@pytest.mark.thorough
def test_a_run_of_a_dag_tells_what_is_new_also_with_its_commands_in_one_process(
    tmp_path: Path, receiver: Receiver
) -> None:
    feed = tmp_path / "landing" / "dlq"
    feed.mkdir(parents=True)
    (feed / "a.jsonl").write_text("\n".join(letters(0, 30, "fraud-workers")) + "\n")
    with warm.process(tmp_path / "commands.log", {}) as command:
        variables = routes(receiver) | {"AFTERLOG_COMMAND": command}
        airflow = Airflow(tmp_path, tmp_path / "airflow.log", Console(file=io.StringIO()), variables)
        try:
            done = airflow.run("dlq", {name: str(tmp_path / name) for name in ("landing", "warehouse")})
        finally:
            airflow.close()
    assert done["state"] == "success"
    assert (tmp_path / "commands.log").read_text().count(": exit code 0, ") == 4  # three layers and the reports
    assert told(receiver) == [("opened", "fraud-workers")]
    kept = "".join(path.read_text(errors="replace") for path in tmp_path.rglob("*.log"))
    assert PATH not in kept
    assert PATH not in json.dumps(done)
