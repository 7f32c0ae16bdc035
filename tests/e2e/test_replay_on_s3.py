"""Dead letters of a warehouse on S3: planned, replayed by a run that is killed, and by the next one, each once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipelines.broker import Broker
from pipelines.settings import ROOT, load
from pipelines.stores import locations
from tests.testing import s3
from tests.testing.kafka import KafkaAdmin
from tests.testing.replays import letters_in, no_rules

BUCKET, TARGET, COUNT = "lakehouse", "replayed-on-s3", 120


@dataclass
class Lakehouse:
    """A warehouse on S3, and the environment of commands."""

    uri: str
    environment: dict[str, str]

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "pipelines.start", *words, "--warehouse", self.uri],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def said(self, *words: str) -> tuple[int, str]:
        started = self.start(*words)
        out, err = started.communicate(timeout=120)
        return started.returncode, out or err


@pytest.fixture
def lakehouse(
    broker: Broker, kafka: KafkaAdmin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Lakehouse]:
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    kafka.create_topic(TARGET, 3)
    with s3.server(BUCKET) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        uri = f"s3://{BUCKET}/{tmp_path.name}"
        monkeypatch.setenv("AFTERLOG_KAFKA__BOOTSTRAP_SERVERS", broker.bootstrap_servers)
        monkeypatch.setenv("AFTERLOG_REPLAY__RULES", no_rules(tmp_path))
        letters_in(load(warehouse=uri), COUNT)
        yield Lakehouse(uri, dict(os.environ))


@pytest.mark.thorough
def test_a_run_that_is_killed_and_the_next_one_replay_each_once(lakehouse: Lakehouse, kafka: KafkaAdmin) -> None:
    allowed = ("--allow", "other_record_possible")
    code, said = lakehouse.said("replay", "plan", "--where", "true", "--to", TARGET, "--format", "json", *allowed)
    plan = json.loads(said)
    assert (code, plan["eligible"]) == (0, COUNT)

    slow = lakehouse.start("replay", "run", plan["plan"], "--rate", "4", "--batch", "5")
    until = time.monotonic() + 60
    while len(kafka.read(TARGET, committed=True)) < 10:
        assert slow.poll() is None
        assert time.monotonic() < until
    busy = lakehouse.said("replay", "run", plan["plan"])
    assert (busy[0], "Another process runs plan" in busy[1]) == (4, True)
    slow.send_signal(signal.SIGKILL)
    slow.communicate()

    until = time.monotonic() + 60
    while (ended := lakehouse.said("replay", "run", plan["plan"], "--format", "json"))[0] == 4:
        assert time.monotonic() < until
        time.sleep(1)
    assert (ended[0], json.loads(ended[1])["replayed"]) == (0, COUNT)
    standing = Counter(dict(record.headers)["afterlog.replay.record"] for record in kafka.read(TARGET, committed=True))
    assert (len(standing), {*standing.values()}) == (COUNT, {1})

    assert f"{COUNT} of {COUNT} records" in lakehouse.said("replay", "status", plan["plan"])[1].replace(",", "")
    assert plan["plan"] in lakehouse.said("replay", "plans")[1]
    again = lakehouse.said("replay", "plan", "--where", "true", "--to", TARGET, "--format", "json", *allowed)
    assert (again[0], json.loads(again[1])["eligible"]) == (1, 0)
    assert locations.of(lakehouse.uri.replace("s3:", "s3a:")).names("_replay")[0].startswith(plan["plan"])
