"""A standalone cluster of Spark on this machine, from PySpark's own jars: a master, and workers of one core each.

No process of it has this project's code. Workers run in a directory of their own, with a Python that has only the
packages that docs/deploy.md names.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path
from types import TracebackType

import psutil

from pipelines.jvm import java, launch

PACKAGES = ("cramjam", "crc32c", "pyarrow")
"""What Python workers need beside PySpark, which they take from Spark's own directory."""
_MOST_SECONDS = 60.0


class Worker:
    """A worker, its executors and their Pythons."""

    def __init__(self, process: subprocess.Popen[bytes], directory: Path) -> None:
        """Keep what ends it, and where it logs."""
        self.process = process
        self.directory = directory

    def is_busy(self) -> bool:
        """Tell whether an executor runs."""
        return any("CoarseGrainedExecutorBackend" in " ".join(_command(process)) for process in self._below())

    def kill(self) -> None:
        """Kill the worker, then its executors, with -9."""
        below = self._below()
        self.process.kill()
        for item in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                item.kill()
        self.process.wait()

    def logged(self) -> str:
        """Return what its executors wrote to standard error."""
        return "".join(file.read_text(encoding="utf-8") for file in self.directory.glob("app-*/*/stderr"))

    def _below(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []


class Cluster:
    """A master and workers; ``variables`` are those of the workers, such as what names a server of S3."""

    def __init__(
        self, scratch: Path, variables: Mapping[str, str], workers: int = 2, memory: str = "800m", cores: int = 1
    ) -> None:
        """Keep where it runs; ``memory`` is that of each executor."""
        java.ensure()
        (jar, *_) = launch.pyspark_jars("spark-core_*.jar")
        self.scratch, self.count, self.memory, self.cores = scratch, workers, memory, cores
        self.home = jar.parent.parent
        self.url = ""
        self.workers: list[Worker] = []
        self._master: subprocess.Popen[bytes] | None = None
        packages, commands = scratch / "packages", scratch / "bin"
        for directory in (packages, commands):
            directory.mkdir(parents=True)
        for package in PACKAGES:
            installed = distribution(package)
            for name in {file.parts[0] for file in installed.files or () if file.parts[0] != ".."}:
                (packages / name).symlink_to(Path(str(installed.locate_file(name))).resolve())
        (commands / "python3").symlink_to(Path(sys._base_executable).resolve())  # type: ignore[attr-defined]
        self.environment = {
            "HOME": os.fspath(scratch),
            "JAVA_HOME": os.environ["JAVA_HOME"],
            "PATH": os.pathsep.join((os.fspath(commands), os.defpath)),
            "PYTHONPATH": os.fspath(packages),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SPARK_HOME": os.fspath(self.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SCALA_VERSION": jar.stem.partition("_")[2].partition("-")[0],  # as bin/spark-class sets it
            **variables,
        }

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a session that uses all of it, for small data."""
        return {
            "spark.master": self.url,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.executor.memory": self.memory,
            "spark.default.parallelism": "2",
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "1",
            "spark.shuffle.io.retryWait": "1s",
        }

    def python(self, program: str) -> subprocess.CompletedProcess[str]:
        """Run a program by the Python of the workers, as they would."""
        return subprocess.run(
            ["python3", "-c", program], cwd=self.scratch, env=self.environment, capture_output=True, text=True
        )

    def __enter__(self) -> Cluster:
        """Start the master and its workers."""
        try:
            self._master = self._started("master", "Master")
            self.url = self._said("master", r"Starting Spark master at (spark://\S+)")
            for number in range(self.count):
                name = f"worker-{number}"
                limits = ("--cores", str(self.cores), "--memory", "4g", "--work-dir", os.fspath(self.scratch / name))
                process = self._started(name, "Worker", *limits, self.url)
                self.workers.append(Worker(process, self.scratch / name))
            for number in range(self.count):
                self._said(f"worker-{number}", r"Successfully registered with master (\S+)")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes."""
        self._end()

    def _started(self, name: str, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = launch.command(
            *(f"org.apache.spark.deploy.{kind.lower()}.{kind}", "--host", "127.0.0.1"),
            *("--port", "0", "--webui-port", "0", *arguments),
            options=launch.options(*launch.LIGHT, heap="256m"),
            class_path=os.fspath(self.home / "jars" / "*"),
        )
        with (self.scratch / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                command, cwd=self.scratch, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def _said(self, name: str, pattern: str) -> str:
        """Return what a process logs as soon as it does."""
        log, until = self.scratch / f"{name}.log", time.monotonic() + _MOST_SECONDS
        while time.monotonic() < until:
            if found := re.search(pattern, log.read_text(encoding="utf-8", errors="replace")):
                return found[1]
            time.sleep(0.1)
        raise TimeoutError(log.read_text(encoding="utf-8", errors="replace")[-2_000:])

    def _end(self) -> None:
        for worker in self.workers:
            worker.kill()
        if self._master is not None:
            self._master.send_signal(signal.SIGKILL)
            self._master.wait()


def _command(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []
