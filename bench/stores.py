"""A warehouse on S3 against one in a directory: first runs and answers as commands, small runs in one warm session.

The server is moto, one request at a time, on this machine: what is measured is the work of requests, not a network.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench.harness import timed_run
from pipelines.catalog import stages
from pipelines.commands.generate import generate
from pipelines.jvm.session import spark_session
from pipelines.settings import ROOT, load
from pipelines.warehouse.tables import Warehouse
from tests.testing import s3

BUCKET = "lakehouse"
CAPTURES = ("tests/data/dlq", "demo/dlq")
TIMES = 3
ONTO, NEW = 100_000, 1_000

Seconds = dict[str, dict[str, list[float]]]
"""Seconds of each attempt, by what was done and by store (``directory``, ``s3``)."""


def measured(scratch: Path, scale: float) -> Seconds:
    """Return the seconds of the same work in both stores, one after the other."""
    with s3.server(BUCKET) as variables:
        os.environ.update(variables)
        landing = scratch / "captures"
        (landing / "dlq").mkdir(parents=True)
        for directory in CAPTURES:
            for file in (ROOT / directory).glob("*.jsonl"):
                (landing / "dlq" / file.name).symlink_to(file)
        spent: Seconds = {}
        for attempt in range(TIMES):
            for store, location in _places(scratch, f"first-{attempt}").items():
                seconds = _command("run", "--feed", "dlq", "--warehouse", location, "--landing", str(landing))
                spent.setdefault("first run", {}).setdefault(store, []).append(seconds)
        for words in (["top"], ["incidents"], ["trace", "dlq.orders:0:5"], ["describe", "--group", "checkout"]):
            for _ in range(TIMES):
                for store, location in _places(scratch, "first-0").items():
                    seconds = _command(*words, "--warehouse", location, "--landing", str(landing))
                    spent.setdefault(words[0], {}).setdefault(store, []).append(seconds)
        spent["small run, warm"] = _warm(scratch, scale)
    return spent


def _warm(scratch: Path, scale: float) -> dict[str, list[float]]:
    """Return the seconds of runs of ``NEW`` dead letters onto ``ONTO``, in one session."""
    places, landing = _places(scratch, "warm"), scratch / "generated"
    settings = {store: load(warehouse=location, landing=str(landing)) for store, location in places.items()}
    spent: dict[str, list[float]] = {store: [] for store in places}
    with spark_session(settings["s3"]) as spark:
        generate(max(NEW, int(ONTO * scale)), 5, landing)
        for own in settings.values():
            timed_run(Warehouse(own, spark), stages("dlq"))
        for batch in range(1, TIMES + 2):
            generate(NEW, 5, landing, batch=batch)
            for store, own in settings.items():
                seconds, _ = timed_run(Warehouse(own, spark), stages("dlq"))
                if batch > 1:
                    spent[store].append(seconds)
    return spent


def _places(scratch: Path, name: str) -> dict[str, str]:
    return {"directory": str(scratch / name), "s3": f"s3://{BUCKET}/{name}"}


def _command(*words: str) -> float:
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.start", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{words[0]} ends with {done.returncode}: {done.stderr[-1_000:]}")
    return time.perf_counter() - began


def ratio(seconds: dict[str, list[float]]) -> float:
    """Return how many times as long S3 takes as a directory."""
    return median(seconds["s3"]) / median(seconds["directory"])


def main(arguments: Sequence[str]) -> None:
    """Print the seconds as JSON: a process of its own, as its session reaches S3."""
    print(json.dumps(measured(Path(arguments[0]), float(arguments[1]))))


if __name__ == "__main__":
    main(sys.argv[1:])
