"""A small JVM with only Kafka's clients, for requests to a cluster while no Spark session runs.

The JVM starts in a quarter of a second; its first answer from Kafka takes about a second more.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pipelines.errors import EnvironmentLacking
from pipelines.jvm import jars, java, session

_JAVA_OPTIONS = ["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
_small: list[tuple[Any, subprocess.Popen[bytes]]] = []


def jvm() -> Any:
    """Return a JVM with Kafka's clients: the Spark session's if one runs in this process, else a small one."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    running = getattr(context, "_gateway", None)
    if running is not None:
        return running.jvm
    if _small and _small[0][1].poll() is not None:
        hang_up()
    if not _small:
        _small.append(_started())
        atexit.register(hang_up)
    return _small[0][0].jvm


def hang_up() -> None:
    """Stop the small JVM, if one runs."""
    while _small:
        gateway, process = _small.pop()
        gateway.shutdown()
        if process.stdin:
            process.stdin.close()  # the JVM exits when its standard input closes
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()


def cut_off() -> None:
    """Kill the small JVM, if one runs; a thread that waits for its answer gets an error."""
    for _, process in list(_small):
        process.kill()


def _started() -> tuple[Any, subprocess.Popen[bytes]]:
    """Start a JVM that exits when this process does; return its gateway and its process."""
    from py4j.java_gateway import (  # type: ignore[import-untyped]
        GatewayParameters,
        JavaGateway,
        launch_gateway,
    )

    directory = Path(jars.class_path("spark")).parent
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    spark_jars = Path(spec.submodule_search_locations[0]) / "jars"
    # Kafka's OAuth login parses tokens with Jackson.
    names = [f"{name}-[0-9]*.jar" for name in ("slf4j-api", "jackson-core", "jackson-databind", "jackson-annotations")]
    needed = [*directory.glob("kafka-clients-*.jar"), *(jar for name in names for jar in spark_jars.glob(name))]
    (py4j,) = spark_jars.glob("py4j-*.jar")
    session.quieten_py4j()  # at level DEBUG Py4J logs everything that it sends, including secrets
    try:
        port, token, process = launch_gateway(
            jarpath=os.fspath(py4j),
            classpath=os.pathsep.join(map(os.fspath, needed)),
            javaopts=_JAVA_OPTIONS,
            java_path=os.fspath(java.java_home() / "bin" / "java"),
            die_on_exit=True,
            daemonize_redirect=True,
            enable_auth=True,
            return_proc=True,
        )
    except (OSError, ValueError):
        raise EnvironmentLacking("No JVM can be started to ask Kafka: check the free memory.") from None
    return JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token)), process
