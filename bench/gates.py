"""What gates cost: rows split by rules, Spark jobs by the number of rules, topics held apart."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench import peers
from bench.harness import Bench
from bench.records import dead_letters, land_lines
from expectations.contract import ORIGIN, Column, Contract
from expectations.rules import at_least, between, is_true, matches, not_null, one_of
from pipelines.catalog import stages
from pipelines.commands.generate import generate
from pipelines.run import runner
from pipelines.steps.split import SplitBatch
from pipelines.stores import lock
from pipelines.warehouse.tables import Warehouse, quarantine_contract

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
