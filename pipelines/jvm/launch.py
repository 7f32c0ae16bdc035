"""Launch JVMs: which Java runs, with which options, class path and log. Needs only Python, as set-up calls it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.errors import EnvironmentLacking
from pipelines.installation import ROOT, install
from pipelines.jvm import java

CONF = ROOT / "conf"
LIGHT = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # for a JVM that starts fast and works little


def options(*more: str, heap: str | None = None, log: str | None = None) -> list[str]:
    """Return Java options: the most memory for objects, and the file in conf/ that says what Log4j logs where."""
    sized = [f"-Xmx{heap}"] if heap else []
    return [*sized, *([f"-Dlog4j2.configurationFile={(CONF / log).as_uri()}"] if log else []), *more]


def command(*arguments: str, options: Sequence[str] = (), class_path: str | None = None) -> list[str]:
    """Return the command line of a JVM; the arguments are a main class, a source file or ``-jar`` with its own.

    Raises EnvironmentLacking: there is no usable Java.
    """
    return [_executable(), *options, *(("-cp", class_path) if class_path else ()), *arguments]


def gateway(class_path: str, options: Sequence[str], **starting: bool) -> tuple[int, str, subprocess.Popen[bytes]]:
    """Start a JVM that answers Py4J and ends with this process; return its port, its token and its process.

    Raises EnvironmentLacking: there is no usable Java, or it does not start.
    """
    from py4j.java_gateway import launch_gateway  # type: ignore[import-untyped]

    executable, (py4j, *_) = _executable(), pyspark_jars("py4j-*.jar")
    try:
        started: tuple[int, str, subprocess.Popen[bytes]] = launch_gateway(
            jarpath=os.fspath(py4j),
            classpath=class_path,
            javaopts=list(options),
            java_path=executable,
            die_on_exit=True,
            enable_auth=True,
            return_proc=True,
            **starting,
        )
    except (OSError, ValueError):
        raise EnvironmentLacking(
            f"{executable} does not start: check the free memory; `afterlog doctor` says what else is wrong here."
        ) from None
    return started


def end(gateway: Any, process: subprocess.Popen[bytes]) -> None:
    """End a gateway and its JVM."""
    with contextlib.suppress(Exception):  # after Ctrl-C the JVM has perhaps ended
        gateway.shutdown()
    if process.stdin:
        process.stdin.close()  # the JVM exits when its standard input closes
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
    process.kill()
    process.wait()


def pyspark_jars(*patterns: str) -> list[Path]:
    """Return the jars that PySpark ships under such names, without importing PySpark.

    Raises EnvironmentLacking: there is none.
    """
    spec = importlib.util.find_spec("pyspark")
    directories = (spec and spec.submodule_search_locations) or ()
    found = [
        jar for directory in directories for pattern in patterns for jar in Path(directory).glob(f"jars/{pattern}")
    ]
    if not found:
        raise EnvironmentLacking(f"PySpark is not installed here; run `{install('pyspark')}`.")
    return found


def _executable() -> str:
    return os.fspath(java.java_home() / "bin" / "java")
