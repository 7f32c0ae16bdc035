"""The project's own Airflow: its environment, its database, and its processes with the web interface (``up``)."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from rich.console import Console

from pipelines.errors import AfterlogError, EnvironmentLacking, UsageError
from pipelines.settings import AIRFLOW_HOME, ROOT

COMPONENTS = {
    "api-server": ("api-server",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
_READY_SECONDS = 180.0
_STOP_SECONDS = 10.0


def environment(home: Path = AIRFLOW_HOME, port: int = 8080) -> dict[str, str]:
    """Return the environment variables that tie Airflow to this project alone.

    Variables of another Airflow (``AIRFLOW_*``) are left out, so that no command here reaches a production database.
    """
    address = f"http://127.0.0.1:{port}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
    unproxied = ",".join(filter(None, (kept.get("NO_PROXY") or kept.get("no_proxy"), "127.0.0.1,localhost")))
    return {
        **kept,
        "NO_PROXY": unproxied,
        "no_proxy": unproxied,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', os.defpath)}",
        "PYTHONPATH": os.fspath(ROOT),
        "AIRFLOW_HOME": os.fspath(home),
        "AIRFLOW__CORE__DAGS_FOLDER": os.fspath(ROOT / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": address,
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }


def prepare(home: Path = AIRFLOW_HOME) -> None:
    """Create or migrate Airflow's database and create the pool, unless this version of Airflow already did.

    Raises EnvironmentLacking: Airflow cannot prepare its database.
    """
    stamp = home / ".prepared"
    if stamp.exists() and (home / "airflow.db").exists() and stamp.read_text() == version("apache-airflow"):
        return
    home.mkdir(parents=True, exist_ok=True)
    log = home / "prepare.log"
    with log.open("wb") as out:
        argv = [sys.executable, "-m", "local.airflow_runs", "prepare"]
        ended = subprocess.run(argv, cwd=ROOT, env=environment(home), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    if ended.returncode != 0:
        raise EnvironmentLacking(f"Airflow's database in {home} cannot be prepared; {log} says why.")
    stamp.write_text(version("apache-airflow"))


def up(port: int, home: Path = AIRFLOW_HOME) -> None:
    """Serve Airflow with its web interface until Ctrl-C or TERM, then end every process that it started.

    Raises EnvironmentLacking: the port is in use, or a component of Airflow ended.
    """
    console = Console(highlight=False)
    _claim(port)
    with console.status("Preparing Airflow's database"):
        prepare(home)
    with _components(home, port) as (started, logs):
        with console.status("Starting Airflow"):
            _await_ready(started, logs, port)
        for line in (
            f"Airflow is at http://127.0.0.1:{port} (for this machine only).",
            "No login is needed: whoever opens that page is admin. DAGs run by themselves.",
            f"Logs: {logs}",
            "Ctrl-C stops it.",
        ):
            console.print(line, soft_wrap=True)
        while True:
            _all_alive(started, logs)
            time.sleep(1)


def _claim(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise EnvironmentLacking(
                f"Port {port} cannot be used ({error.strerror}); choose another one, for example "
                f"AFTERLOG_PORT={port + 1 if port < 65535 else 8081} make up."
            ) from None


@contextmanager
def _components(home: Path, port: int) -> Iterator[tuple[dict[str, subprocess.Popen[bytes]], Path]]:
    logs = home / "logs" / "up"
    logs.mkdir(parents=True, exist_ok=True)
    started: dict[str, subprocess.Popen[bytes]] = {}
    shared = {**environment(home, port), "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32)}
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        for name, arguments in COMPONENTS.items():
            with (logs / f"{name}.log").open("wb") as out:
                started[name] = subprocess.Popen(
                    [sys.executable, "-m", "airflow", *arguments],
                    cwd=ROOT,
                    env=shared,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
        yield started, logs
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        stop(list(started.values()))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def stop(started: Sequence[subprocess.Popen[Any]], seconds: float = _STOP_SECONDS) -> None:
    """End processes and all their descendants, also those in other sessions: TERM first, then KILL."""
    family = [member for process in started for member in _family(process.pid)]
    _signal(family, signal.SIGTERM)
    _, left = psutil.wait_procs(family, timeout=seconds)
    late = [descendant for member in left for descendant in _family(member.pid)]
    _signal([*late, *left], signal.SIGKILL)
    psutil.wait_procs([*late, *left], timeout=seconds)
    for process in started:
        process.wait()


def _family(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    return []


def _signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _await_ready(started: dict[str, subprocess.Popen[bytes]], logs: Path, port: int) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until = time.monotonic() + _READY_SECONDS
    while time.monotonic() < until:
        _all_alive(started, logs)
        try:
            with opener.open(f"http://127.0.0.1:{port}/api/v2/monitor/health", timeout=5) as answer:
                health = json.load(answer)
            if all((health[part] or {}).get("status") == "healthy" for part in ("scheduler", "dag_processor")):
                return
        except (OSError, ValueError, LookupError):
            pass
        time.sleep(0.5)
    raise EnvironmentLacking(f"Airflow did not start within {_READY_SECONDS:.0f} seconds; the logs in {logs} say why.")


def _all_alive(started: dict[str, subprocess.Popen[bytes]], logs: Path) -> None:
    for name, process in started.items():
        if process.poll() is not None:
            raise EnvironmentLacking(f"Airflow's {name} ended; {logs / f'{name}.log'} says why.")


def main() -> int:
    """Run ``up`` on port AFTERLOG_PORT (default 8080) and return the exit code."""
    text = os.environ.get("AFTERLOG_PORT") or "8080"
    try:
        if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
            raise UsageError("AFTERLOG_PORT must be a number from 1 to 65535.")
        up(int(text))
    except KeyboardInterrupt:
        print("Airflow is stopped.", file=sys.stderr)
    except AfterlogError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
