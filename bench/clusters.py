"""The same dead letters by one core and by two, and by one worker of a cluster and by two; each in a warm session."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.run_peers import limited_to
from pipelines.settings import ROOT
from tests.testing.spark_cluster import Cluster

ONE_AND_TWO = (1, 2)
DRIVER, EXECUTOR = "1750m", "1200m"


def by_cores(landing: Path, scratch: Path, records: int) -> dict[int, float]:
    """Return the seconds of sessions on this machine, each limited to so many cores."""
    seconds = {}
    for cores in ONE_AND_TWO:
        with limited_to(cores):
            seconds[cores] = _seconds(landing, scratch / f"cores-{cores}", records, {"spark.master": f"local[{cores}]"})
    return seconds


def by_workers(landing: Path, scratch: Path, records: int) -> dict[int, float]:
    """Return the seconds of sessions on clusters of so many workers, of one core each."""
    seconds = {}
    for workers in ONE_AND_TWO:
        with (
            tempfile.TemporaryDirectory(prefix="cluster-", dir=scratch) as directory,
            Cluster(Path(directory) / "spark", {}, workers, EXECUTOR) as cluster,
        ):
            seconds[workers] = _seconds(landing, scratch / f"workers-{workers}", records, cluster.properties)
    return seconds


def _seconds(landing: Path, out: Path, records: int, properties: dict[str, str]) -> float:
    given = {**properties, "spark.driver.memory": DRIVER}
    options = [word for name, value in given.items() for word in ("--property", f"{name}={value}")]
    command = [sys.executable, "-m", "bench.warm", "afterlog", str(landing), str(out), "--records", str(records)]
    done = subprocess.run([*command, *options], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return float(json.loads(done.stdout.strip().splitlines()[-1])["seconds"])
