"""A small JVM with only Kafka's clients, for requests to a cluster while no Spark session runs.

The JVM starts in a quarter of a second; its first answer from Kafka takes about a second more.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.jvm import jars, launch, session

if TYPE_CHECKING:
    from py4j.java_gateway import GatewayParameters  # type: ignore[import-untyped]

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
        launch.end(*_small.pop())


def cut_off() -> None:
    """Kill the small JVM, if one runs; a thread that waits for its answer gets an error."""
    for _, process in list(_small):
        process.kill()


def start(needed: Iterable[Path], **parameters: Any) -> tuple[GatewayParameters, subprocess.Popen[bytes]]:
    """Start a JVM with these jars that exits when this process does; return how a gateway reaches it, and its process.

    ``parameters`` are more of the gateway's.
    """
    from py4j.java_gateway import GatewayParameters

    session.quieten_py4j()  # at level DEBUG Py4J logs everything that it sends, including secrets
    options = launch.options(*launch.LIGHT, "-Xshare:auto", heap="96m")
    port, token, process = launch.gateway(os.pathsep.join(map(os.fspath, needed)), options, daemonize_redirect=True)
    return GatewayParameters(port=port, auth_token=token, **parameters), process


def _started() -> tuple[Any, subprocess.Popen[bytes]]:
    from py4j.java_gateway import JavaGateway

    clients = Path(jars.class_path("spark")).parent.glob("kafka-clients-*.jar")
    # Kafka's OAuth login parses tokens with Jackson.
    names = ("slf4j-api", "jackson-core", "jackson-databind", "jackson-annotations")
    found, process = start([*clients, *launch.pyspark_jars(*(f"{name}-[0-9]*.jar" for name in names))])
    return JavaGateway(gateway_parameters=found), process
