"""All feeds on a cluster of Spark, whose workers have none of this project's code, into a warehouse on S3.

One of two workers is killed in the middle of a split. At the end every table equals that of a run on this machine.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import obstore
import pytest
from deltalake import DeltaTable

from bench.equal_tables import Comparer, Renames, Stored
from pipelines.commands.generate import generate
from pipelines.jvm.session import SHORT_LIVED
from pipelines.run.contracts import contracts
from pipelines.settings import ROOT
from pipelines.sources.logs import files
from tests.testing import s3
from tests.testing.spark_cluster import Cluster, Worker

pytestmark = pytest.mark.thorough

BUCKET = "lakehouse"
RECORDS = 2_000
SPLIT = "silver.dlq_records"
OF_RUNS = ("quality.stage_runs", "quality.expectation_results")
"""Tables that tell of runs: the engines differ, and their examples depend on the order of rows."""
MADE = ("silver.dlq_records", "silver.record_batches", "silver.broker_starts", "silver.topology_pushes")
"""Tables that are not empty: Python workers read the sources of the second and the third."""
CAPTURED = ("acknowledgements", "dlq", "segments", "broker-logs", "streams-requests")
MOST_SECONDS = 300.0
QUICK = {**SHORT_LIVED, "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Properties of a user who has little data."""


@dataclass
class Runs:
    """Warehouses of a run on this machine and of one on a cluster, and what happened there.

    ``said`` is what that run and its driver logged.
    """

    here: str
    there: str
    variables: dict[str, str]
    said: str
    survivor: Worker

    def table(self, warehouse: str, name: str) -> Stored:
        """Return a table of a warehouse."""
        delta = DeltaTable(f"{warehouse}/{name.replace('.', '/')}", storage_options=self.variables)
        return Stored(name, delta, Renames())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    base = tmp_path_factory.mktemp("cluster")
    landing, here, there = base / "landing", str(base / "warehouse"), f"s3://{BUCKET}/w"
    generate(RECORDS, 7, landing)
    for directory in CAPTURED:
        shutil.copytree(ROOT / "tests" / "data" / directory, landing / directory, dirs_exist_ok=True)
    _land_a_large_log(landing / "broker-logs")
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "AFTERLOG_"))}
    own["AFTERLOG_REPORT__DIRECTORY"] = str(base / "reports")
    afterlog, places = [sys.executable, "-m", "pipelines.start"], ["--landing", str(landing), "--warehouse"]
    with s3.server(BUCKET) as variables, Cluster(base / "spark", variables) as cluster:
        assert "No module named 'pipelines'" in cluster.python("import pipelines").stderr
        (base / "afterlog.toml").write_text(_settings(cluster), encoding="utf-8")
        environment, said = {**own, **variables}, base / "said"
        on_cluster = [*afterlog, "--config", str(base / "afterlog.toml"), "--verbose"]
        killed, survivor = cluster.workers
        with said.open("w") as told, (base / "shown").open("w") as shown, (base / "calm").open("w") as of_calm:
            there_too = [*on_cluster, "run", "--engine", "spark", "--master", cluster.url, *places, there]
            running = subprocess.Popen(there_too, cwd=ROOT, env=environment, stdout=shown, stderr=told)
            started = [running]
            try:
                _wait_for_the_split(variables, running, said)
                assert killed.is_busy()
                killed.kill()
                calm = subprocess.Popen([*afterlog, "run", *places, here], cwd=ROOT, env=own, stderr=of_calm)
                started.append(calm)
                assert running.wait(MOST_SECONDS) in (0, 1), said.read_text()
                assert calm.wait(MOST_SECONDS) in (0, 1), (base / "calm").read_text()
            finally:
                for process in started:
                    process.kill()
        yield Runs(here, there, environment, said.read_text(encoding="utf-8"), survivor)


def _land_a_large_log(directory: Path) -> None:
    """Land a log that tasks read, as it is large when it is unpacked."""
    text = b"".join(file.read_bytes() for file in sorted(directory.iterdir()))
    times = 1 + files.MOST_HERE // files.PACKED // len(text)
    (directory / "packed.log.gz").write_bytes(gzip.compress(text * times, compresslevel=0))


def _settings(cluster: Cluster) -> str:
    chosen = {**QUICK, **cluster.properties}
    chosen.pop("spark.master")
    return "\n".join(["shared_directories = true", "[spark]", *(f'"{key}" = "{chosen[key]}"' for key in chosen), ""])


def _wait_for_the_split(at: Mapping[str, str], running: subprocess.Popen[bytes], said: Path) -> None:
    """Wait until executors write the candidates of the split; it must not be over."""
    store = s3.store(BUCKET, at)
    until = time.monotonic() + MOST_SECONDS
    while not obstore.list(store, f"w/_staged/{SPLIT}").collect():
        assert running.poll() is None, said.read_text()
        assert time.monotonic() < until
        time.sleep(0.1)
    assert f"{SPLIT}: " not in said.read_text(encoding="utf-8")


def test_an_executor_was_lost_and_the_run_went_on(runs: Runs) -> None:
    assert "Lost executor" in runs.said


def test_executors_log_nothing_that_may_quote_a_record(runs: Runs) -> None:
    assert "Spark Executor Command" in runs.survivor.logged()
    assert not {" INFO ", " WARN ", " ERROR "} & {*re.findall(r" [A-Z]+ ", runs.survivor.logged())}
    assert str(ROOT / "conf") not in runs.survivor.logged()


def test_every_table_equals_that_of_a_run_on_this_machine(runs: Runs) -> None:
    comparer, different, empty = Comparer(Renames()), {}, []
    for name in (contract.table for contract in contracts() if contract.table not in OF_RUNS):
        compared = comparer.tables(name, runs.table(runs.here, name), runs.table(runs.there, name))
        if not compared.is_equal:
            different[name] = compared.findings
        if not compared.now:
            empty.append(name)
    assert different == {}
    assert not {*MADE} & {*empty}
