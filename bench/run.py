"""``make bench``: what a run costs, as ratios of things measured in the same process.

Prints a table and writes ``bench/results/<benchmark>.json``. ``--only NAME`` runs one, ``--scale 0.1`` shrinks all.
``years`` takes hours and is run by its name only.
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
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median

import psutil
from rich.console import Console
from rich.table import Table

from bench import clusters, replays
from bench import incidents as labelled
from bench import small_files as questions
from bench import stores as on_stores
from bench import years as small_runs
from bench.following import follow
from bench.gates import bulkheads
from bench.growth import SCENARIOS, Cost, cost_onto
from bench.harness import Bench, Finding
from bench.records import acknowledgements, dead_letters, land_lines
from pipelines.broker import Broker
from pipelines.commands.generate import generate
from pipelines.installation import COMMAND
from pipelines.jvm.session import spark_session
from pipelines.run import contracts
from pipelines.settings import ROOT, load
from pipelines.warehouse.tables import Warehouse

RESULTS = ROOT / "bench" / "results"
FIRST_RUN_ON_S3, ANY_OTHER_ON_S3 = 2.0, 1.5  # times the seconds of a directory
EVERY_EXECUTION = {"spark.sql.ui.retainedExecutions": "2000"}  # whose metrics `growth` reads


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
    for number, scenario in enumerate(SCENARIOS):
        costs: list[Cost] = []
        # The first runs of a feed compile its code, so they do not count.
        cost_onto(bench.spark, bench.settings(f"growth-before-{number}"), scenario, 0, 1)
        for history, landed_in in scenario.histories:
            rows = int(history * bench.scale) // landed_in * landed_in
            settings = bench.settings(f"growth-{number}-{len(costs)}")
            costs.append(cost_onto(bench.spark, settings, scenario, rows, landed_in))
            print(f"  {costs[-1].line()}", file=sys.stderr, flush=True)
        first, last = costs[0], costs[-1]
        name = f"{scenario.name}: {scenario.new:,} onto {last.history:,}, against onto none"
        bench.keep(name, last.seconds / first.seconds, "x", 1.5, costs=[asdict(cost) for cost in costs])


def years(bench: Bench) -> None:
    """Measure what a year of daily runs, each with `maintain` and a report, adds to time, files, bytes and memory."""
    days = small_runs.simulate(bench.scratch / "years", max(2 * small_runs.PART, int(365 * bench.scale)))
    for trend in small_runs.trends(days[small_runs.WARM_UP :], small_runs.PART):
        is_kept = trend.name in ("rows", "files of data", "MiB of data")  # silver never goes
        target = None if is_kept or not trend.then else 1.2
        bench.keep(
            f"{trend.name}, after {len(days)} days", trend.now / (trend.then or 1), "x", target, trend=asdict(trend)
        )


def small_files(bench: Bench) -> None:
    """Measure questions on two tables of 2,000 small files, after `maintain`, and after the files are merged."""
    for state, seconds in questions.measured(bench.settings("small-files"), max(10, int(2_000 * bench.scale))).items():
        for question, value in seconds.items():
            bench.keep(f"{question}, {state}", value, "s")


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


def replay(bench: Bench) -> None:
    """Measure records a second of a replay, against a bare producer of the same client, on a broker of this machine."""
    count = bench.records(100_000)
    with Broker(bench.scratch / "replay-broker") as broker:
        large = replays.measured(broker.bootstrap_servers, bench.scratch, count)
        small = replays.measured(broker.bootstrap_servers, bench.scratch / "small", count // 10, batch=50)
    bench.keep(
        "records replayed",
        count / median(large.replayed),
        "records/s",
        records=count,
        bytes=replays.SIZE,
        seconds=large.replayed,
        bare_seconds=large.bare,
    )
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
        bulkheads,
        growth,
        years,
        small_files,
        ledger,
        follow,
        replay,
        memory,
        incidents,
        stores,
        engines,
        cluster,
        demo,
    )
}
TAKES_HOURS = {years.__name__}


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
