"""How soon records of topics are in gold, and what a process costs that follows them."""

from __future__ import annotations

import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from deltalake import DeltaTable

from bench.harness import Bench
from local.kafka_client import KafkaClient, Message
from pipelines.broker import Broker
from pipelines.installation import COMMAND
from pipelines.settings import Settings
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import kip_1191


def follow(bench: Bench) -> None:
    """Measure the time from a dead letter to its count in gold, at 100 a second for a minute on this machine."""
    settings, topic, warm, count = bench.settings("follow"), "dlq.bench", 500, bench.records(6_000)
    with Broker(bench.scratch / "broker") as broker, KafkaClient(broker.bootstrap_servers) as client:
        client.create_topic(topic)
        with following(settings, broker, every=1) as process:
            client.produce(topic, paced(warm, []))
            await_gold(settings, warm, process)
            before = sum(resident(process).values())
            written: list[float] = []
            client.produce(topic, paced(count, written))
            await_gold(settings, warm + count, process)
            after = sum(resident(process).values())
            began = time.perf_counter()
            process.terminate()
            if process.wait(60):
                raise RuntimeError(f"afterlog run --follow ended with {process.returncode}")
            stopped = time.perf_counter() - began
    commits = [(at, total - warm) for at, total in counted(settings)]
    latencies = sorted(next(at for at, total in commits if total > number) - at for number, at in enumerate(written))
    parts: dict[str, Any] = {
        "records": count,
        "per_second": PER_SECOND,
        "every_seconds": 1,
        "resident_mib": [before, after],
    }
    bench.keep("dead letter to gold while following, median", median(latencies), "s", **parts)
    bench.keep("dead letter to gold while following, 95th percentile", latencies[int(0.95 * len(latencies))], "s")
    bench.keep("afterlog run --follow, SIGTERM to its end", stopped, "s", 10.0)


PER_SECOND = 100


@contextmanager
def following(settings: Settings, broker: Broker, every: float) -> Iterator[psutil.Popen]:
    """Follow the dead-letter topics of a broker in a process, and kill it at the end if it still runs."""
    variables = {"AFTERLOG_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap_servers, "AFTERLOG_DLQ__SOURCE": "kafka"}
    places = ["--warehouse", settings.warehouse, "--landing", settings.landing]
    Path(settings.warehouse).parent.mkdir(parents=True, exist_ok=True)  # a run does not make it
    process = psutil.Popen(
        [os.fspath(COMMAND), "run", "--follow", "--every", str(every), "--feed", "dlq", *places],
        env=os.environ | variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def paced(count: int, written: list[float], per_second: float = PER_SECOND) -> Iterator[Message]:
    """Yield dead letters at a constant rate, and append the time of each to ``written``."""
    began = time.perf_counter()
    for number in range(count):
        time.sleep(max(0.0, began + number / per_second - time.perf_counter()))
        written.append(time.time())
        yield Message(b"payload", headers=kip_1191(offset=number), partition=0)


def counted(settings: Settings) -> list[tuple[float, int]]:
    """Return when each version of gold.dlq_summary was committed, and its number of records, in order."""
    location = Path(Warehouse(settings).location("gold.dlq_summary"))
    versions = []
    for version in range((Warehouse(settings).last_version("gold.dlq_summary") or 0) + 1):
        rows = DeltaTable(location, version=version).scan(["record_count"])
        total = sum(row["record_count"] for batch in rows for row in batch.to_struct_array().to_pylist())
        versions.append(((location / "_delta_log" / f"{version:020}.json").stat().st_mtime, total))
    return versions


def await_gold(settings: Settings, count: int, process: psutil.Popen) -> None:
    """Wait until gold counts this many records."""
    until = time.monotonic() + 300
    while True:
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError("afterlog run --follow does not bring the records to gold")
        if Warehouse(settings).last_version("gold.dlq_summary") is not None:
            rows = jvmless.rows(
                Warehouse(settings), "gold.dlq_summary", {"cluster": settings.cluster}, ["record_count"]
            )
            if sum(row["record_count"] for row in rows) >= count:
                return
        time.sleep(0.5)


def resident(process: psutil.Popen) -> dict[str, float]:
    """Return the resident memory in MiB of a process and its children, by program."""
    mebibytes: dict[str, float] = defaultdict(float)
    for member in (process, *process.children(recursive=True)):
        mebibytes[member.name()] += member.memory_info().rss / 2**20
    return dict(mebibytes)
