"""All feeds into a warehouse on S3, a real server: four writers at once, some killed, one paused past its lease.

No commit is lost and none counts twice: at the end every table equals that of one calm run into a directory. Answers
are those of the directory, too, and need no JVM.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable

from bench.equal_tables import Comparer, Renames, Stored
from local import bundled
from pipelines.run.contracts import contracts
from pipelines.settings import ROOT, load
from tests.testing import s3

pytestmark = pytest.mark.thorough

BUCKET = "lakehouse"
LEASE_SECONDS = 4
WRITERS, KILLS = 4, 3
SEED = 11
SINCE_THE_RUN = re.compile(r"\d+ (second|minute)s? ago")
CALM = ("quality.stage_runs", "quality.expectation_results")
"""Tables that tell of runs: they differ when runs are killed."""
ANSWERS = [
    ["top"],
    ["incidents"],
    ["incidents", "--format", "json"],
    ["ask", "poison_pill_or_systemic"],
    ["ask", "messages_that_were_lost"],
    ["describe", "--group", "checkout"],
    ["alerts"],
    ["replay", "plans"],
    ["maintain", "--dry-run"],
]


@dataclass
class Places:
    """What landed, the warehouse of a calm run, and one on S3; ``environment`` names the server."""

    landing: Path
    directory: Path
    uri: str
    environment: dict[str, str]

    def start(self, *arguments: str, uri: str | None = None) -> subprocess.Popen[str]:
        """Start a command in a process group of its own."""
        place = str(self.directory) if uri is None else uri
        return subprocess.Popen(
            [sys.executable, "-m", "pipelines.start", *arguments, "--warehouse", place, "--landing", str(self.landing)],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def said(self, *arguments: str, uri: str | None = None) -> tuple[int, str]:
        """Return the exit code of a command and what it says, without the warehouse's name."""
        started = self.start(*arguments, uri=uri)
        out, err = started.communicate(timeout=300)
        told = f"{out}\n{err}".replace(self.uri.replace("s3:", "s3a:"), "W").replace(str(self.directory), "W")
        return started.returncode, SINCE_THE_RUN.sub("ago", told)

    def table(self, name: str, *, is_calm: bool) -> Stored | None:
        """Return a table of the calm run or of S3; None if there is none."""
        place = f"{self.directory if is_calm else self.uri}/{name.replace('.', '/')}"
        if not DeltaTable.is_deltatable(place, self.options):
            return None
        return Stored(name, DeltaTable(place, storage_options=self.options), Renames())

    @property
    def options(self) -> dict[str, str]:
        return {name: value for name, value in self.environment.items() if name.startswith("AWS_")}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    base = tmp_path_factory.mktemp("s3-runs")
    bundled.land(load(landing=str(base / "landing")))
    with s3.server(BUCKET) as variables:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "AFTERLOG_"))}
        limits = {
            "AFTERLOG_LOCK__LEASE_SECONDS": str(LEASE_SECONDS),
            "AFTERLOG_LOCK__WAIT_SECONDS": "300",
            "AFTERLOG_REPORT__DIRECTORY": str(base / "reports"),
        }
        found = Places(base / "landing", base / "warehouse", f"s3://{BUCKET}/w", {**own, **variables, **limits})
        calm = found.start("run")
        _, err = calm.communicate(timeout=600)
        assert calm.returncode in (0, 1), err
        _storm(found)
        yield found


def _storm(places: Places) -> None:
    """Let several writers run at once until one of them ends a run, and kill some and pause one on the way."""
    chance = random.Random(SEED)
    writers = [places.start("run", uri=places.uri) for _ in range(WRITERS)]
    try:
        for number in range(KILLS):
            time.sleep(chance.uniform(6, 16))
            holder = _holder(places, writers)
            if holder is None:
                continue
            if number == 1:  # paused until another has taken over and written
                os.killpg(holder.pid, signal.SIGSTOP)
                time.sleep(LEASE_SECONDS * 3)
                os.killpg(holder.pid, signal.SIGCONT)
                continue
            os.killpg(holder.pid, signal.SIGKILL)
            writers.append(places.start("run", uri=places.uri))
        codes = []
        for writer in writers:
            _, err = writer.communicate(timeout=600)
            codes.append(writer.returncode)
            assert writer.returncode in (0, 1, 4, -signal.SIGKILL), err
        assert {0, 1} & {*codes}
    finally:
        for writer in writers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(writer.pid, signal.SIGKILL)
            writer.wait()
    assert places.said("run", uri=places.uri)[0] in (0, 1)


def _holder(places: Places, writers: list[subprocess.Popen[str]]) -> subprocess.Popen[str] | None:
    """Return the writer that has the lease, by what its object says."""
    import obstore

    store = s3.store(BUCKET, places.environment)
    state = json.loads(bytes(obstore.get(store, "w/_afterlog/lease").bytes()))
    pid = (state["holder"] or {}).get("pid")
    return next((writer for writer in writers if writer.pid == pid and writer.poll() is None), None)


def test_every_table_equals_that_of_a_calm_run_into_a_directory(places: Places) -> None:
    comparer = Comparer(Renames())
    names = [contract.table for contract in contracts() if contract.table not in CALM]
    different = {}
    for name in names:
        calm, stormy = places.table(name, is_calm=True), places.table(name, is_calm=False)
        assert calm is not None
        compared = comparer.tables(name, calm, stormy)
        if not compared.is_equal:
            different[name] = compared.findings
    assert different == {}


@pytest.mark.parametrize("question", ANSWERS, ids=" ".join)
def test_an_answer_is_that_of_the_directory(places: Places, question: list[str]) -> None:
    (calm_code, calm), (code, stormy) = places.said(*question), places.said(*question, uri=places.uri)
    assert [*difflib.unified_diff(calm.splitlines(), stormy.splitlines(), n=0)] == []
    assert code == calm_code
