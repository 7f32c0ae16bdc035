"""``make bench-peers``: Afterlog beside what else a user would pick, on the same generated dead letters, in one run.

Each peer runs in a process of its own, DQX also in an environment of its own below ``.cache/peers``. A ``command`` is
timed from the start of its process to its end. ``warm`` is the work alone: in a session that is warm, or after the
imports. Ratios are to the fastest of the same kind. Prints a table and, without ``--only``, writes
``bench/results/peers.json``.
Exit code: 0 done, 1 a peer's counts cannot be right, 2 wrong arguments, 3 a peer cannot be set up or run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table

from local.install import environ
from pipelines.commands.generate import generate
from pipelines.errors import AfterlogError, EnvironmentLacking
from pipelines.jvm import jars, java
from pipelines.settings import ROOT

RESULTS = ROOT / "bench" / "results"
ENVIRONMENTS = ROOT / ".cache" / "peers"
REQUIREMENTS = ROOT / "bench" / "dqx-requirements.txt"
SEED = 1
LEAST_RECORDS = 1_000
MEMORY = 2  # GiB, of DuckDB and of each Spark driver
MOST_SHOWN = 300  # characters of why a process failed
COMMAND, WARM = "command", "warm"


@dataclass(frozen=True)
class Work:
    """What every peer gets: a landing directory, a scratch directory, the number of records and of cores."""

    landing: Path
    scratch: Path
    records: int
    cores: int

    @property
    def decoded(self) -> Path:
        """The decoded rows, for peers that only judge rows."""
        return self.scratch / "decoded"


@dataclass(frozen=True)
class Counts:
    """The rows of a peer's tables; None where it has no such table."""

    accepted: int
    quarantined: int | None = None
    held: int | None = None


@dataclass(frozen=True)
class Expected:
    """What the ledger of the generated records says about them."""

    records: int
    accepted: int
    quarantined: int

    def doubt(self, peer: Peer, counts: Counts) -> str | None:
        """Return why a peer's counts cannot be right, if so: its rules are Afterlog's or laxer."""
        quarantined = counts.quarantined or 0
        if peer.is_exact and not counts.held:
            if (counts.accepted, quarantined) != (self.accepted, self.quarantined):
                return f"{self.accepted:,} accepted and {self.quarantined:,} quarantined are right"
            return None
        seen = counts.accepted + quarantined + (counts.held or 0)
        if seen > self.records:
            return f"it has more rows than the {self.records:,} records"
        if counts.held:
            return None
        if counts.accepted < self.accepted:
            return f"{self.accepted:,} or more are to be accepted"
        if not peer.keeps_repeated and quarantined > self.quarantined:
            return f"at most {self.quarantined:,} are to be quarantined"
        if peer.keeps_repeated and seen < self.records:
            return f"it lost some of the {self.records:,} records"
        return None


@dataclass(frozen=True)
class Peer:
    """One way to do the work.

    ``prepare`` returns what runs it, as a function of the directory for its tables. A peer prints its own seconds as
    JSON on its last line, unless it is measured as a command alone (``kinds``). ``is_exact``: its counts are those of
    the ledger. ``keeps_repeated``: it does not drop repeated grains.
    """

    name: str
    title: str
    kinds: tuple[str, ...]
    prepare: Callable[[Work], Callable[[Path], Sequence[str | Path]]]
    count: Callable[[Path], Counts]
    is_exact: bool = False
    keeps_repeated: bool = False


@dataclass(frozen=True)
class Measured:
    """The seconds of a peer, one for each attempt, and what its tables hold."""

    peer: str
    title: str
    kind: str
    seconds: tuple[float, ...]
    counts: Counts

    @property
    def median(self) -> float:
        """The median of the attempts."""
        return median(self.seconds)


# --- peers ------------------------------------------------------------------------------------------------------------


def _own_command(work: Work) -> Callable[[Path], Sequence[str | Path]]:
    run = (sys.executable, "-m", "pipelines.start", "run", "--feed", "dlq", "--landing", work.landing)
    return lambda out: [*run, "--warehouse", out]


def _warm(what: str) -> Callable[[Work], Callable[[Path], Sequence[str | Path]]]:
    def prepare(work: Work) -> Callable[[Path], Sequence[str | Path]]:
        session = ("--records", str(work.records), "--master", f"local[{work.cores}]", "--memory", f"{MEMORY}g")
        return lambda out: [sys.executable, "-m", "bench.warm", what, work.landing, out, *session]

    return prepare


def _duck(work: Work) -> Callable[[Path], Sequence[str | Path]]:
    limits = ("--threads", str(work.cores), "--memory", f"{MEMORY}GiB")
    return lambda out: [sys.executable, ROOT / "bench" / "duck.py", work.landing, out, *limits]


def _dqx(work: Work) -> Callable[[Path], Sequence[str | Path]]:
    python = environment("dqx", ("pip", "sync", REQUIREMENTS))
    if not work.decoded.exists():
        ran("the rows for DQX", _warm("decode")(work)(work.decoded))
    session = ("--class-path", jars.class_path("spark"), "--master", f"local[{work.cores}]", "--memory", f"{MEMORY}g")
    return lambda out: [python, ROOT / "bench" / "dqx.py", work.decoded, out, *session]


def _rows(table: Path) -> int | None:
    return DeltaTable(str(table)).count() if (table / "_delta_log").is_dir() else None


def _own_tables(out: Path) -> Counts:
    return Counts(
        _rows(out / "silver" / "dlq_records") or 0,
        _rows(out / "quarantine" / "dlq_records") or 0,
        _rows(out / "held" / "dlq_records") or 0,
    )


def _tables(out: Path) -> Counts:
    return Counts(_rows(out / "silver") or 0, _rows(out / "quarantine"))


PEERS = (
    Peer("afterlog", "Afterlog", (COMMAND,), _own_command, _own_tables, is_exact=True),
    Peer("afterlog-warm", "Afterlog", (WARM,), _warm("afterlog"), _own_tables, is_exact=True),
    Peer("duckdb", "DuckDB and deltalake", (COMMAND, WARM), _duck, _tables),
    Peer("by-hand", "Spark by hand", (WARM,), _warm("by-hand"), _tables),
    Peer("dqx", "DQX, on decoded rows", (WARM,), _dqx, _tables, keeps_repeated=True),
)


# --- processes --------------------------------------------------------------------------------------------------------


def environment(name: str, install: Sequence[str | Path]) -> Path:
    """Make or update an environment with its packages alone, and return its Python.

    Raises EnvironmentLacking: uv cannot install the packages.
    """
    directory, uv = ENVIRONMENTS / name, Path(sys.executable).with_name("uv")
    variables = environ() | {"VIRTUAL_ENV": str(directory)}
    create = ("venv", "--allow-existing", "--python", sys.executable, directory)
    for arguments_of_uv in (create, install):
        done = _run([uv, *arguments_of_uv, "--quiet"], variables)
        if done.returncode:
            raise EnvironmentLacking(f"The packages of the peer {name} cannot be installed: {_reason(done.stderr)}")
    return directory / "bin" / "python"


def ran(title: str, command: Sequence[str | Path]) -> tuple[float, str]:
    """Run a peer's process and return the seconds from its start to its end and the last line of its output.

    Raises EnvironmentLacking: the process fails.
    """
    # Settings come from conf/afterlog.toml alone.
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("AFTERLOG_", "PYTHON"))}
    began = time.perf_counter()
    done = _run(command, mine | {"JAVA_HOME": str(java.java_home())})
    seconds = time.perf_counter() - began
    # 1: a gate held rows, which the counts show.
    if done.returncode and not (done.returncode == 1 and "pipelines.start" in command):
        raise EnvironmentLacking(f"{title} ends with {done.returncode}: {_reason(done.stderr)}")
    return seconds, _last(done.stdout)


def _run(command: Sequence[str | Path], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [os.fspath(word) for word in command],
            cwd=ROOT,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise EnvironmentLacking(f"{command[0]} cannot be started: {error.strerror}; run `make setup`.") from None


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["it says nothing"])[-1].strip()


def _reason(text: str) -> str:
    """Return the line that names the exception, if one does (a query's plan can follow it), else the last line."""
    errors: list[str] = re.findall(r"(?m)^(?:[\w.]*(?:Error|Exception)\b|error:).*$", text)
    return (errors or [_last(text)])[-1][:MOST_SHOWN]


def measure(peer: Peer, work: Work, attempts: int) -> list[Measured]:
    """Run a peer several times, each time into an empty directory, and return a result for each kind.

    Raises EnvironmentLacking: it cannot be set up or run.
    """
    command_of, out = peer.prepare(work), work.scratch / peer.name
    seconds: dict[str, list[float]] = {kind: [] for kind in peer.kinds}
    for _ in range(attempts):
        shutil.rmtree(out, ignore_errors=True)
        whole, said = ran(peer.title, command_of(out))
        if COMMAND in seconds:
            seconds[COMMAND].append(whole)
        if WARM in seconds:
            seconds[WARM].append(float(json.loads(said)["seconds"]))
    counts = peer.count(out)
    shutil.rmtree(out)
    return [Measured(peer.name, peer.title, kind, tuple(spent), counts) for kind, spent in seconds.items()]


# --- command ----------------------------------------------------------------------------------------------------------


def ratios(measured: Sequence[Measured]) -> list[float]:
    """Return, for each result, its seconds against those of the fastest of the same kind."""
    fastest: dict[str, float] = {}
    for result in measured:
        fastest[result.kind] = min(result.median, fastest.get(result.kind, result.median))
    return [result.median / fastest[result.kind] for result in measured]


def show(measured: Sequence[Measured], records: int) -> None:
    """Print a row for each result."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("peer", "measured as", "seconds", "records/s", "to the fastest", "accepted", "quarantined", "held"):
        table.add_column(name, justify="left" if name in ("peer", "measured as") else "right")
    for result, ratio in zip(measured, ratios(measured), strict=True):
        rows = (result.counts.accepted, result.counts.quarantined, result.counts.held)
        numbers = (f"{result.median:,.2f}", f"{records / result.median:,.0f}", f"{ratio:.2f} x")
        table.add_row(result.title, result.kind, *numbers, *("-" if count is None else f"{count:,}" for count in rows))
    console = Console()
    console.width = max(console.width, 110) if not console.is_terminal else console.width
    console.print(table)


def as_json(measured: Sequence[Measured], expected: Expected, given: argparse.Namespace) -> dict[str, Any]:
    """Return what was measured, where and on what, as a JSON-ready object."""
    return {
        "cpus": os.cpu_count(),
        "cores": given.cores,
        "python": platform.python_version(),
        "records": given.records,
        "seed": SEED,
        "expected": asdict(expected),
        "peers": [
            {
                "peer": result.peer,
                "measured_as": result.kind,
                "seconds": list(result.seconds),
                "records_per_second": given.records / result.median,
                "to_the_fastest": ratio,
                **asdict(result.counts),
            }
            for result, ratio in zip(measured, ratios(measured), strict=True)
        ],
    }


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one sentence."""
        self.exit(2, f"{message[:1].upper()}{message[1:]}.\n")


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's arguments; a wrong one ends the process with exit code 2."""
    parser = _Parser(prog="make bench-peers", description=__doc__)
    parser.add_argument("--records", type=int, default=100_000, help="generated dead letters; default: 100000")
    parser.add_argument("--attempts", type=int, default=1, help="runs of each peer; the median counts; default: 1")
    parser.add_argument("--cores", type=int, default=2, help="that each peer uses; default: 2")
    names = [peer.name for peer in PEERS]
    parser.add_argument("--only", action="append", choices=names, help="measure this peer; may be repeated")
    given = parser.parse_args(words)
    there = len(_cores())
    if given.records < LEAST_RECORDS:
        parser.error(f"--records is {given.records}: give {LEAST_RECORDS} or more")
    if given.attempts < 1:
        parser.error(f"--attempts is {given.attempts}: give 1 or more")
    if not 1 <= given.cores <= there:
        parser.error(f"--cores is {given.cores}: give 1 to {there}, the cores of this machine")
    return given


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


@contextmanager
def limited_to(cores: int) -> Iterator[None]:
    """Limit this process, and the processes that it starts, to so many cores while the block runs."""
    before = _cores()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, before[:cores])
    try:
        yield
    finally:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, before)


def main(words: Sequence[str] | None = None) -> int:
    """Measure the peers, print and keep the results, and return the exit code."""
    given = arguments(words)
    measured: list[Measured] = []
    problems: list[tuple[int, str]] = []
    try:
        with limited_to(given.cores), tempfile.TemporaryDirectory(prefix="afterlog-peers-") as name:
            work = Work(Path(name) / "landing", Path(name), given.records, given.cores)
            outcomes = generate(given.records, SEED, work.landing).counts()["outcomes"]
            expected = Expected(given.records, outcomes["accepted"], outcomes.get("quarantined", 0))
            for peer in PEERS:
                if given.only and peer.name not in given.only:
                    continue
                print(f"{peer.title} ({' and '.join(peer.kinds)}) ...", file=sys.stderr, flush=True)
                try:
                    results = measure(peer, work, given.attempts)
                except EnvironmentLacking as error:
                    problems.append((error.exit_code, str(error)))
                    continue
                if doubt := expected.doubt(peer, results[0].counts):
                    problems.append((1, f"The counts of {peer.title} ({peer.name}) cannot be right: {doubt}."))
                measured += results
    except AfterlogError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if measured:
        show(measured, given.records)
    if measured and not given.only:
        RESULTS.mkdir(parents=True, exist_ok=True)
        kept = json.dumps(as_json(measured, expected, given), indent=2) + "\n"
        (RESULTS / "peers.json").write_text(kept, encoding="utf-8")
    for _, problem in problems:
        print(problem, file=sys.stderr)
    return max((code for code, _ in problems), default=0)


if __name__ == "__main__":
    sys.exit(main())
