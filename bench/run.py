"""``make bench``: what contracts cost, what a run costs, as ratios of things measured in the same process.

Prints a table and writes ``bench/results/<benchmark>.json``. ``--only NAME`` runs one, ``--scale 0.1`` shrinks all.
``soak`` takes hours and is run by its name only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import psutil
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table

from bench import clusters, peers, replays
from bench import incidents as labelled
from bench import site as pages
from bench import skew as unevenly
from bench import stores as on_stores
from bench.growth import SCENARIOS, Cost, cost_onto, draw
from bench.records import acknowledgements, dead_letters, land_lines, pushed
from expectations.contract import ORIGIN, Column, Contract
from expectations.rules import at_least, between, is_true, matches, not_null, one_of
from local.kafka_client import KafkaClient, Message
from pipelines.broker import Broker
from pipelines.catalog import stages
from pipelines.commands.generate import generate
from pipelines.installation import COMMAND
from pipelines.jvm import jars, launch
from pipelines.jvm.session import spark_session
from pipelines.run import contracts, runner
from pipelines.run.follow import health_file
from pipelines.settings import ROOT, Settings, load
from pipelines.steps import scopes
from pipelines.steps.split import SplitBatch
from pipelines.steps.summarise import Refreshed, Refreshing
from pipelines.stores import lock
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse, quarantine_contract
from tests.testing import segments as log
from tests.testing.builders import kip_1191

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RESULTS = ROOT / "bench" / "results"
FIRST_RUN_ON_S3, ANY_OTHER_ON_S3 = 2.0, 1.5  # times the seconds of a directory
EVERY_EXECUTION = {"spark.sql.ui.retainedExecutions": "2000"}  # whose metrics `growth` reads


@dataclass
class Finding:
    """A measured figure and its target."""

    name: str
    value: float
    unit: str
    target: str = ""
    met: bool | None = None
    parts: dict[str, Any] = field(default_factory=dict)


class Bench:
    """A Spark session, a scratch directory and the figures found so far."""

    def __init__(self, spark: SparkSession, scratch: Path, scale: float) -> None:
        """Keep what the benchmarks share; ``scale`` multiplies the numbers of records."""
        self.spark = spark
        self.scratch = scratch
        self.scale = scale
        self.findings: list[Finding] = []

    def settings(self, name: str, **more: Any) -> Settings:
        """Return settings with a warehouse and a landing directory of their own."""
        directory = self.scratch / name
        return load(warehouse=str(directory / "warehouse"), landing=str(directory / "landing"), **more)

    def records(self, count: int) -> int:
        """Return a number of records, multiplied by the scale, at least 100."""
        return max(100, int(count * self.scale))

    def keep(self, name: str, value: float, unit: str, target: float | None = None, **parts: Any) -> None:
        """Keep a figure; ``target`` is the highest value that meets the target."""
        met = None if target is None else value <= target
        self.findings.append(Finding(name, value, unit, "" if target is None else f"<= {target:g} {unit}", met, parts))

    def run(self, settings: Settings, feed: str = "dlq") -> float:
        """Run a feed's stages once and return the seconds, the lock included."""
        began = time.perf_counter()
        with lock.writer(settings, "bench"):
            done = runner.run(Warehouse(settings, self.spark), stages(feed))
        seconds = time.perf_counter() - began
        if any(stage_run.status == "broken" for stage_run in done):
            raise RuntimeError("a gate broke: the benchmark measures nothing")
        return seconds

    def warm_up(self) -> None:
        """Run both sides once, so that the JVM compiles them before the measurements."""
        settings = self.settings("warm-up")
        generate(self.records(20_000), 7, Path(settings.landing))
        self.run(settings)
        peers.landing_to_gold(self.spark, settings, self.scratch / "warm-up-peer")


@contextmanager
def timed(owner: Any, name: str, spent: dict[str, float]) -> Iterator[None]:
    """Add up the seconds spent in a method while the block runs."""
    method = getattr(owner, name)

    def timing(*arguments: Any, **keywords: Any) -> Any:
        began = time.perf_counter()
        try:
            return method(*arguments, **keywords)
        finally:
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - began

    setattr(owner, name, timing)
    try:
        yield
    finally:
        setattr(owner, name, method)


def pipeline(bench: Bench) -> None:
    """Measure landing to gold with contracts, gates and quarantine against the same jobs by hand without them."""
    count, ratios, shares, ours, theirs = bench.records(1_000_000), [], [], [], []
    generated = bench.settings("pipeline")
    generate(count, 1, Path(generated.landing))
    for attempt in range(2):
        settings = generated.model_copy(update={"warehouse": str(bench.scratch / f"pipeline-{attempt}")})
        gates: dict[str, float] = {}
        summaries = timed(Refreshed, "gate", gates), timed(Refreshing, "_facts", gates)
        with timed(SplitBatch, "gate", gates), timed(scopes, "count", gates), summaries[0], summaries[1]:
            ours.append(bench.run(settings))
        began = time.perf_counter()
        peers.landing_to_gold(bench.spark, settings, bench.scratch / f"peer-{attempt}")
        theirs.append(time.perf_counter() - began)
        ratios.append(ours[-1] / theirs[-1])
        shares.append((gates["gate"] + gates["_facts"]) / ours[-1])
        shutil.rmtree(settings.warehouse)
        shutil.rmtree(bench.scratch / f"peer-{attempt}")
    parts = {"records": count, "seconds": ours, "by_hand_seconds": theirs}
    bench.keep("landing to gold / by hand without contracts", median(ratios), "x", 1.4, **parts)
    bench.keep("share of the gates in it", 100 * median(shares), "%", 20.0)
    bench.keep("records per second, landing to gold", count / median(ours), "records/s")


RULES = (
    not_null(),
    at_least(0),
    between(0, 10_000_000),
    is_true("even_or_odd", "abs(c0) % 2 IN (0, 1)"),
)
CANDIDATES = Contract(
    table="silver.bench",
    description="Twelve rules over eight columns.",
    columns=(
        *(Column(name, "string", name) for name in ORIGIN),
        Column("c0", "bigint", "a number", RULES),
        Column("c1", "bigint", "a number", (not_null(), between(0, 99))),
        Column("c2", "string", "a name", (not_null(), matches("word", r"\A[a-z]{1,12}\z"))),
        Column("c3", "string", "a kind", (not_null(), one_of("red", "green", "blue"))),
        Column("c4", "string", "a payload", (not_null(), is_true("long", "length(c4) >= 32"))),
    ),
    grain=("c0",),
)


def split(bench: Bench) -> None:
    """Measure the split and the gate of candidates by 12 rules against a two-pass split by hand."""
    count, settings = bench.records(2_000_000), bench.settings("split")
    candidates = candidates_of(bench.spark, count, bench.scratch / "candidates")
    Warehouse(settings, bench.spark).ensure(CANDIDATES)
    Warehouse(settings, bench.spark).ensure(quarantine_contract(CANDIDATES))
    checks = [(rule.code, rule.broken()) for rule in CANDIDATES.rules]
    contract = CANDIDATES.with_gate(1.0, None)
    ours, theirs, gates = [], [], []
    for attempt in range(3):
        began = time.perf_counter()
        with SplitBatch.between(Warehouse(settings, bench.spark), contract, candidates, candidates) as batch:
            gate_began = time.perf_counter()
            batch.gate("bench")
            gates.append(time.perf_counter() - gate_began)
            batch.write()
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        peers.two_pass_split(candidates, checks, bench.scratch / f"two-pass-{attempt}")
        theirs.append(time.perf_counter() - began)
        for table in (CANDIDATES.table, "quarantine.bench"):
            shutil.rmtree(Warehouse(settings).location(table))
        Warehouse(settings, bench.spark).ensure(CANDIDATES)
        Warehouse(settings, bench.spark).ensure(quarantine_contract(CANDIDATES))
    ratios = [mine / peer for mine, peer in zip(ours[1:], theirs[1:], strict=True)]
    parts = {"candidates": count, "rules": len(checks), "seconds": ours[1:], "by_hand_seconds": theirs[1:]}
    bench.keep("split and gate / two-pass split by hand", median(ratios), "x", 1.1, **parts, gate_seconds=gates[1:])


def candidates_of(spark: SparkSession, count: int, path: Path) -> DataFrame:
    """Write candidates, 2 % of them bad, and return them as read from disk."""
    from pyspark.sql import functions as F

    number = F.col("id")
    rows = spark.range(0, count, 1, 4).select(
        F.lit("bench").alias("cluster"),
        F.lit("bench").alias("_source"),
        F.sha2(number.cast("string"), 256).alias("_bronze_id"),
        F.when(number % 100 == 1, -number).otherwise(number).alias("c0"),
        (number % 100).alias("c1"),
        F.when(number % 200 == 3, F.lit("9bad")).otherwise(F.lit("word")).alias("c2"),
        F.element_at(F.array(F.lit("red"), F.lit("green"), F.lit("blue")), (number % 3 + 1).cast("int")).alias("c3"),
        F.when(number % 200 != 5, F.sha2((number + 1).cast("string"), 256)).alias("c4"),
    )
    peers.write(rows, path)
    return spark.read.format("delta").load(str(path))


def nothing_new(bench: Bench) -> None:
    """Measure a run with nothing new, in a warm session and as a command from a cold start."""
    settings = bench.settings("nothing-new")
    generate(bench.records(1_000), 3, Path(settings.landing))
    bench.run(settings)
    bench.keep("run with nothing new, warm session", median(bench.run(settings) for _ in range(5)), "s", 3.0)
    command = ["run", "--warehouse", settings.warehouse, "--landing", settings.landing]
    bench.keep("afterlog run with nothing new, as a command", cold(command), "s", 3.0)


def increment(bench: Bench) -> None:
    """Measure 1,000 new records on top of 5,000,000 against 1,000 in an empty warehouse."""
    large, onto = bench.settings("onto-many"), bench.records(5_000_000)
    generate(onto, 5, Path(large.landing))
    bench.run(large)
    many, none = [], []
    for batch in range(1, 3):
        generate(1_000, 5, Path(large.landing), batch=batch)
        many.append(bench.run(large))
        small = bench.settings(f"onto-none-{batch}")
        generate(1_000, 5 + batch, Path(small.landing))
        Warehouse(small, bench.spark).ensure_all(contracts.contracts())
        none.append(bench.run(small))
    parts = {"onto": onto, "seconds": many, "onto_none_seconds": none}
    bench.keep("1,000 records onto many / onto none", median(many) / median(none), "x", 2.0, **parts)


def topology(bench: Bench) -> None:
    """Measure pushes of 500 groups, 50 nodes, 4 epochs, from landing to gold; then one push on top of them."""
    settings, groups, nodes, epochs = bench.settings("topology"), bench.records(500), 50, 4
    directory = settings.landing_of("streams-requests")
    directory.mkdir(parents=True)
    lines = (line for group in range(groups) for epoch in range(epochs) for line in pushed(group, epoch, nodes))
    (directory / "all.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    all_seconds = bench.run(settings, "topology")
    single = []
    for epoch in (epochs, epochs + 1):
        (directory / f"{epoch}.log").write_text(list(pushed(0, epoch, nodes))[-1] + "\n", encoding="utf-8")
        single.append(bench.run(settings, "topology"))
    parts = {"groups": groups, "nodes": nodes, "epochs": epochs}
    bench.keep(f"{groups * epochs:,} pushes of {nodes} nodes, landing to gold", all_seconds, "s", **parts)
    bench.keep("one push on top of them", min(single), "s", seconds=single)
    bench.keep("one push on top / all of them", min(single) / all_seconds, "x")


def ledger(bench: Bench) -> None:
    """Measure acknowledgements against dead letters, then 1,000 more; a partition's offsets come in order."""
    settings, acknowledged, dead = bench.settings("ledger"), bench.records(5_000_000), bench.records(100_000)
    Warehouse(settings, bench.spark).ensure_all(contracts.contracts())
    land_lines(acknowledgements(bench.spark, acknowledged), settings.landing_of("acknowledgements") / "first")
    land_lines(dead_letters(bench.spark, dead, acknowledged // dead), settings.landing_of("dlq") / "first")
    bench.run(settings, "dlq")
    seconds = bench.run(settings, "delivery")
    rows = Warehouse(settings, bench.spark).read("gold.message_ledger").groupBy("outcome").count().collect()
    outcomes = {row["outcome"]: row["count"] for row in rows}
    if outcomes != {"ACKNOWLEDGED": acknowledged - dead, "DEAD_LETTERED": dead}:
        raise RuntimeError(f"the ledger is wrong: {outcomes}")
    land_lines(
        acknowledgements(bench.spark, 1_000, first=acknowledged), settings.landing_of("acknowledgements") / "more"
    )
    more = bench.run(settings, "delivery")
    parts = {"acknowledgements": acknowledged, "dead_letters": dead, "seconds": seconds}
    bench.keep("acknowledgements against dead letters, landing to gold", acknowledged / seconds, "acks/s", **parts)
    bench.keep("1,000 more on top / all of them", more / seconds, "x", seconds=more)


def growth(bench: Bench) -> None:
    """Measure a few new rows on top of none, and of more and more rows of history."""
    every: list[Cost] = []
    for scenario in SCENARIOS:
        costs = []
        # The first runs of a feed compile its code, so they do not count.
        cost_onto(bench.spark, bench.settings(f"growth-before-{len(every)}"), scenario, 0, 1)
        for history, landed_in in scenario.histories:
            rows = int(history * bench.scale) // landed_in * landed_in
            settings = bench.settings(f"growth-{len(every) + len(costs)}")
            costs.append(cost_onto(bench.spark, settings, scenario, rows, landed_in))
            print(f"  {costs[-1].line()}", file=sys.stderr, flush=True)
        first, last = costs[0], costs[-1]
        name = f"{scenario.name}: {scenario.new:,} onto {last.history:,}, against onto none"
        bench.keep(name, last.seconds / first.seconds, "x", 1.5, costs=[asdict(cost) for cost in costs])
        every += costs
    draw(every, (ROOT / "docs" if bench.scale == 1 else RESULTS) / "growth.svg")


def segments(bench: Bench) -> None:
    """Measure a log segment of 1 GiB to bronze, against Kafka's own classes if Java can compile them, and to gold."""
    settings, size = bench.settings("segments"), int(2**30 * bench.scale)
    segment = settings.landing_of("segments") / "orders-0" / f"{0:020}.log"
    segment.parent.mkdir(parents=True)
    records = [log.record(delta, os.urandom(1_000)) for delta in range(16)]
    body = log.batch(0, records=records, record_count=len(records), last_delta=len(records) - 1)
    batches = size // len(body)
    with segment.open("wb") as out:
        for number in range(batches):  # the checksum of a batch does not cover its base offset
            out.write((number * len(records)).to_bytes(8, "big") + body[8:])
    Warehouse(settings, bench.spark).ensure_all(contracts.contracts())
    began = time.perf_counter()
    with lock.writer(settings, "bench"):
        runner.run(Warehouse(settings, bench.spark), stages(only="bronze.record_batches"))
    bronze = time.perf_counter() - began
    delivery = bench.run(settings, "delivery")
    mebibytes = segment.stat().st_size / 2**20
    bench.keep("log segment to bronze", mebibytes / bronze, "MiB/s", mebibytes=mebibytes, batches=batches)
    bench.keep("its batches, bronze to gold", delivery, "s")
    if kafka := kafka_reads(segment):
        bench.keep("log segment to bronze / read by Kafka itself", bronze / kafka, "x", seconds=[bronze, kafka])


def kafka_reads(segment: Path) -> float | None:
    """Return the seconds that Kafka's classes take to read a segment, without JVM start; None without a compiler."""
    source = ROOT / "bench" / "ReadSegment.java"
    command = launch.command(str(source), str(segment), class_path=jars.class_path("broker"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(done.stdout.split()[-1]) if done.returncode == 0 else None


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


def jobs(bench: Bench) -> None:
    """Count Spark jobs per stage, and of a gate by its number of rules."""
    settings = bench.settings("jobs")
    tracker = bench.spark.sparkContext.statusTracker()
    generate(bench.records(5_000), 4, Path(settings.landing))
    with lock.writer(settings, "bench"):
        for stage in stages("dlq"):
            bench.spark.sparkContext.setJobGroup(stage.table, stage.table)
            runner.run(Warehouse(settings, bench.spark), [stage])
            bench.keep(f"Spark jobs, {stage.table}", len(tracker.getJobIdsForGroup(stage.table)), "jobs")
    from expectations import suite

    candidates = candidates_of(bench.spark, 1_000, bench.scratch / "few")
    counts = {}
    for rules in (RULES[:2], RULES * 6):
        numbered = tuple(at_least(-10 - number) if number >= len(RULES) else rule for number, rule in enumerate(rules))
        contract = Contract("silver.bench", "bench", (Column("c0", "bigint", "a number", numbered),), ("c0",))
        group = f"{len(numbered)} rules"
        bench.spark.sparkContext.setJobGroup(group, group)
        suite.gate(candidates, contract, run_id="bench", store=None)
        counts[len(numbered)] = len(tracker.getJobIdsForGroup(group))
    bench.spark.sparkContext.setJobGroup("bench", "bench")
    few, many = counts.values()
    bench.keep("Spark jobs of a gate, many rules - few", many - few, "jobs", 0.0, jobs_by_rules=counts)


def bulkheads(bench: Bench) -> None:
    """Measure bronze to silver of 1,000 topics against one topic with as many records: all good, or all held."""
    from pyspark.sql import functions as F

    count, tracker = bench.records(100_000), bench.spark.sparkContext.statusTracker()
    for kind in ("good", "held"):
        seconds: dict[int, list[float]] = {1: [], 1_000: []}
        numbers = {}
        for attempt in range(3):
            for topics in seconds:
                settings = bench.settings(f"{kind}-{topics}-{attempt}")
                topic = F.concat(F.lit("dlq.t"), (F.col("offset") % topics).cast("string"))
                records = dead_letters(bench.spark, count, 1).withColumn("topic", topic)
                if kind == "held":
                    records = records.withColumn("headers", F.slice("headers", 1, 0))
                land_lines(records, settings.landing_of("dlq") / "a")
                group = f"{kind}, {topics} topics, {attempt}"
                with lock.writer(settings, "bench"):
                    runner.run(Warehouse(settings, bench.spark), stages(only="bronze.dlq_records"))
                    bench.spark.sparkContext.setJobGroup(group, group)
                    began = time.perf_counter()
                    (done,) = runner.run(Warehouse(settings, bench.spark), stages(only="silver.dlq_records"))
                    seconds[topics].append(time.perf_counter() - began)
                    bench.spark.sparkContext.setJobGroup("bench", "bench")
                if (done.held, done.accepted) != ((count, 0) if kind == "held" else (0, count)):
                    raise RuntimeError("the benchmark measures something else")
                numbers[topics] = len(tracker.getJobIdsForGroup(group))
        ratio = median(many / single for single, many in zip(seconds[1][1:], seconds[1_000][1:], strict=True))
        bench.keep(f"silver of 1,000 topics against one, all {kind}", ratio, "x", 1.5, seconds=seconds, jobs=numbers)


def memory(bench: Bench) -> None:
    """Measure the peak memory of ``afterlog run`` over a million records, JVM and Python together.

    A process that Java forks shares its memory for a moment: shared pages count once.
    """
    settings = bench.settings("memory")
    generate(bench.records(1_000_000), 6, Path(settings.landing))
    command = [os.fspath(COMMAND), "run", "--warehouse", settings.warehouse, "--landing", settings.landing]
    process, peak = psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), 0
    while process.poll() is None:
        try:
            family = [process, *process.children(recursive=True)]
            peak = max(peak, sum(member.memory_full_info().pss for member in family))
        except psutil.NoSuchProcess:
            pass
        time.sleep(0.2)
    if process.returncode:
        raise RuntimeError(f"afterlog run ended with {process.returncode}")
    bench.keep("peak memory, 1,000,000 records", peak / 2**30, "GiB", 2.5)


def query(bench: Bench) -> None:
    """Measure ``afterlog sql "select 1"`` from a cold start."""
    bench.keep('afterlog sql "select 1", cold', cold(["sql", "select 1"]), "s")


def demo(bench: Bench) -> None:
    """Measure ``make demo`` after set-up, in a copy of the project."""
    copy = bench.scratch / "demo"
    ignored = shutil.ignore_patterns(".venv", ".jars", ".git", "warehouse", "landing", ".airflow", ".cache")
    shutil.copytree(ROOT, copy, ignore=ignored)
    for name in (".venv", ".jars"):
        if (ROOT / name).exists():
            (copy / name).symlink_to(ROOT / name)
    began = time.perf_counter()
    environment = os.environ | {"PYTHONPATH": str(copy)}
    subprocess.run(
        [sys.executable, "-m", "local.demo"], cwd=copy, env=environment, check=True, stdout=subprocess.DEVNULL
    )
    bench.keep("make demo, once set up", (time.perf_counter() - began) / 60, "min", 5.0)


def cold(command: list[str]) -> float:
    """Return the median seconds of three cold starts of a command."""
    spent = []
    for _ in range(3):
        began = time.perf_counter()
        subprocess.run([os.fspath(COMMAND), *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        spent.append(time.perf_counter() - began)
    return median(spent)


def incidents(bench: Bench) -> None:
    """How often incidents, verdicts and first suspects are right; at full scale the document gets the figures."""
    all_found: dict[labelled.Drawn, labelled.Score] = {}
    for seed, shape, number in labelled.ALL if bench.scale == 1 else labelled.ALL[:1]:
        count = max(8, int(number * bench.scale))
        score = labelled.measured(bench.spark, bench.scratch / "incidents" / shape, seed, count, shape)
        all_found[seed, shape, count] = score
        for name, share in score.shares.items():
            what = f"wrong {name} of {count} scenarios ({shape})"
            bench.keep(what, 100 * (1 - share), "%", 100 * (1 - labelled.TARGETS[name]))
    if bench.scale == 1:
        labelled.write(labelled.markdown(all_found, labelled.commit()))


def site(bench: Bench) -> None:
    """Measure the site with many incidents and applications: its builds, and what a person does on its pages."""
    settings, scale = bench.settings("site"), bench.scale
    incidents, applications = max(1, int(10_000 * scale)), max(1, int(500 * scale))
    for name, (value, unit) in pages.measured(settings, bench.scratch, incidents, applications).items():
        is_act = unit == "ms" and "open" not in name
        bench.keep(f"site of {incidents:,} incidents, {name}", value, unit, 100.0 if is_act else None)


def replay(bench: Bench) -> None:
    """Measure records a second of a replay, against a bare producer of the same client, on a broker of this machine."""
    count = bench.records(100_000)
    with Broker(bench.scratch / "replay-broker") as broker:
        large = replays.measured(broker.bootstrap_servers, bench.scratch, count)
        small = replays.measured(broker.bootstrap_servers, bench.scratch / "small", count // 10, batch=50)
    parts = {"records": count, "bytes": replays.SIZE, "seconds": large.replayed, "bare_seconds": large.bare}
    bench.keep("records replayed", count / median(large.replayed), "records/s", **parts)
    bench.keep("records of a bare producer", count / median(large.bare), "records/s")
    bench.keep("a replay / a bare producer", large.ratio, "x")
    bench.keep("records replayed, in transactions of 50", count // 10 / median(small.replayed), "records/s")


def stores(bench: Bench) -> None:
    """Measure a warehouse on S3 against one in a directory."""
    directory = bench.scratch / "stores"
    command = [sys.executable, "-m", "bench.stores", str(directory), str(bench.scale)]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    for work, seconds in json.loads(done.stdout).items():
        target = FIRST_RUN_ON_S3 if work == "first run" else ANY_OTHER_ON_S3
        bench.keep(f"{work}: S3 / directory", on_stores.ratio(seconds), "x", target, seconds=seconds)


def cluster(bench: Bench) -> None:
    """Measure 1,000,000 dead letters by one core and by two, and by one worker of a cluster and by two."""
    count, directory = bench.records(1_000_000), bench.scratch / "cluster"
    generate(count, 1, directory / "landing")
    cores = clusters.by_cores(directory / "landing", directory, count)
    bench.keep("one core / two", cores[1] / cores[2], "x", records=count, seconds=cores)
    workers = clusters.by_workers(directory / "landing", directory, count)
    bench.keep("one worker / two", workers[1] / workers[2], "x", records=count, seconds=workers)


def skew(bench: Bench) -> None:
    """Measure 200,000 dead letters whose topics or incidents are not spread evenly, against as many that are."""
    count, seconds = bench.records(200_000), {}
    for attempt, shape in enumerate((unevenly.EVEN, *unevenly.SHAPES)):  # the first large batch of a session is slow
        cost = unevenly.measured(bench.spark, bench.settings(f"skew-{attempt}"), shape, count)
        seconds[shape] = cost.seconds
        parts = {"records": count, "incidents": cost.incidents, "slowest": cost.slowest}
        bench.keep(
            f"{shape} / {unevenly.EVEN}", cost.seconds / seconds[unevenly.EVEN], "x", seconds=cost.seconds, **parts
        )


def engines(bench: Bench) -> None:
    """Measure 500,000 dead letters with each setting of the engine, the second time in a session."""
    count, spent = bench.records(500_000), {}
    for attempt in range(2):
        for engine in ("auto", "spark"):
            settings = bench.settings(f"engine-{engine}-{attempt}", engine=engine)
            generate(count, 5, Path(settings.landing))
            spent[engine] = bench.run(settings)
            shutil.rmtree(bench.scratch / f"engine-{engine}-{attempt}")
    bench.keep('engine = "spark" / "auto"', spent["spark"] / spent["auto"], "x", records=count, seconds=spent)


BENCHMARKS: dict[str, Callable[[Bench], None]] = {
    benchmark.__name__: benchmark
    for benchmark in (
        nothing_new,
        jobs,
        split,
        bulkheads,
        growth,
        pipeline,
        increment,
        topology,
        ledger,
        segments,
        follow,
        catch_up,
        replay,
        memory,
        query,
        incidents,
        site,
        stores,
        engines,
        cluster,
        skew,
        demo,
        soak,
    )
}
TAKES_HOURS = {soak.__name__}


def show(findings: list[Finding]) -> None:
    """Print the figures."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, justify in (("what", "left"), ("measured", "right"), ("target", "left"), ("", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for finding in findings:
        verdict = "" if finding.met is None else "met" if finding.met else "missed"
        table.add_row(finding.name, f"{finding.value:,.2f} {finding.unit}", finding.target, verdict)
    Console().print(table)


def main() -> None:
    """Run the benchmarks and write their results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=sorted(BENCHMARKS), help="run one benchmark")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the numbers of records")
    arguments = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    machine = {"cpus": os.cpu_count(), "python": platform.python_version(), "scale": arguments.scale}
    shown: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="afterlog-bench-") as scratch:
        settings = load(spark={"spark.master": "local[2]", **EVERY_EXECUTION})
        with spark_session(settings) as spark:
            bench = Bench(spark, Path(scratch), arguments.scale)
            bench.warm_up()
            for name in arguments.only or (benchmark for benchmark in BENCHMARKS if benchmark not in TAKES_HOURS):
                print(f"{name} ...", file=sys.stderr, flush=True)
                bench.findings = []
                BENCHMARKS[name](bench)
                findings = [finding.__dict__ for finding in bench.findings]
                (RESULTS / f"{name}.json").write_text(json.dumps({**machine, "findings": findings}, indent=2) + "\n")
                shown += bench.findings
    show(shown)


if __name__ == "__main__":
    main()
