"""How soon records of topics are in gold, and what a process costs that follows them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from deltalake import DeltaTable

from bench.harness import Bench
from bench.records import dead_letters, land_lines
from local.kafka_client import KafkaClient, Message
from pipelines.broker import Broker
from pipelines.catalog import stages
from pipelines.installation import COMMAND
from pipelines.run import contracts, runner
from pipelines.run.follow import health_file
from pipelines.settings import Settings
from pipelines.stores import lock
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


def soak(bench: Bench) -> None:
    """Follow a trickle for two hours; compare memory and cycle seconds of the last quarter with the second."""
    settings, per_second = bench.settings("soak"), 2
    samples: list[dict[str, Any]] = []
    with Broker(bench.scratch / "broker-to-soak") as broker, KafkaClient(broker.bootstrap_servers) as client:
        client.create_topic("dlq.soak")
        with following(settings, broker, every=5) as process:
            ends = time.monotonic() + 7_200 * bench.scale
            while time.monotonic() < ends:
                client.produce("dlq.soak", paced(60 * per_second, [], per_second))
                cycle = json.loads(health_file(Warehouse(settings)).read_text(encoding="utf-8"))["last_cycle"]
                took = datetime.fromisoformat(cycle["ended_at"]) - datetime.fromisoformat(cycle["began_at"])
                facts = {"at": cycle["ended_at"], "seconds": took.total_seconds(), "resident_mib": resident(process)}
                samples.append(facts)
                print(facts, file=sys.stderr, flush=True)
            await_gold(settings, 60 * per_second * len(samples), process)
    quarter = len(samples) // 4
    then, now = samples[quarter : 2 * quarter], samples[-quarter:]
    # Take the minimum: a heap fills and empties, but memory that leaks stays.
    least = [min(sum(sample["resident_mib"].values()) for sample in part) for part in (then, now)]
    cycles = [median(sample["seconds"] for sample in part) for part in (then, now)]
    hours = f"{len(samples) / 60:.1f} h of following"
    bench.keep(f"memory over {hours}, last / second quarter", least[1] / least[0], "x", 1.05, samples=samples)
    bench.keep(f"seconds of a cycle over {hours}, last / second quarter", cycles[1] / cycles[0], "x")


def catch_up(bench: Bench) -> None:
    """Measure the same records from a topic and from files, to bronze and on to gold."""
    from pyspark.sql import functions as F

    count = bench.records(500_000)
    payload = F.base64(F.repeat(F.sha2(F.col("offset").cast("string"), 256), 8))
    records = dead_letters(bench.spark, count, 1).withColumn("value", payload)
    with Broker(bench.scratch / "broker-to-catch-up") as broker, KafkaClient(broker.bootstrap_servers) as client:
        client.create_topic("dlq.orders", 2)
        files = bench.settings("catch-up-files")
        land_lines(records, files.landing_of("dlq") / "all")
        headers = F.transform(
            "headers", lambda header: F.struct(header["key"].alias("key"), F.unbase64(header["value"]).alias("value"))
        )
        produced = records.select("topic", F.unbase64("value").alias("value"), headers.alias("headers"))
        produced.write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap_servers).save()
        kafka = {"bootstrap_servers": broker.bootstrap_servers}
        topics = bench.settings("catch-up-topics", kafka=kafka, dlq={"source": "kafka"})
        spent: dict[str, list[tuple[float, float]]] = {"files": [], "topics": []}
        for attempt in range(2):
            for name, given in (("files", files), ("topics", topics)):
                settings = given.model_copy(update={"warehouse": str(bench.scratch / f"catch-up-{name}-{attempt}")})
                Warehouse(settings, bench.spark).ensure_all(contracts.contracts())
                began = time.perf_counter()
                with lock.writer(settings, "bench"):
                    (landed,) = runner.run(Warehouse(settings, bench.spark), stages("dlq", layer="bronze"))
                bronze = time.perf_counter() - began
                if landed.accepted != count:
                    raise RuntimeError(f"{landed.accepted:,} of {count:,} records landed from {name}")
                spent[name].append((bronze, bronze + bench.run(settings)))
                shutil.rmtree(settings.warehouse)
    best = {name: [min(seconds) for seconds in zip(*both, strict=True)] for name, both in spent.items()}
    parts: dict[str, Any] = {"records": count, "seconds": spent}
    bench.keep("records per second, topic to bronze", count / best["topics"][0], "records/s", **parts)
    bench.keep("records per second, files to bronze", count / best["files"][0], "records/s")
    bench.keep("topic / the same records from files, to bronze", best["topics"][0] / best["files"][0], "x")
    bench.keep("topic / the same records from files, to gold", best["topics"][1] / best["files"][1], "x")
