"""Checks of this machine: Java, Python packages, JVM jars, the disk, the project's own Airflow."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import urllib.request
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec

from pipelines.commands.check import Check, environment_error
from pipelines.installation import CONFIGURATIONS, IS_CHECKOUT, setup
from pipelines.jvm import jars, java
from pipelines.settings import AIRFLOW_HOME
from pipelines.stores import locations
from pipelines.text import files_of, size_of
from pipelines.warehouse.tables import Warehouse

SPARE_BYTES = 2 << 30
LEAST_BYTES = 200 << 20


def runs_spark() -> bool:
    """Tell whether Spark is to run here: what is installed to ask only has no PySpark."""
    return IS_CHECKOUT or find_spec("pyspark") is not None


def check_java(warehouse: Warehouse) -> Iterator[Check]:
    """Say which Java is used."""
    if not runs_spark():
        return
    chosen = java.find()
    yield Check("Java", "ok", f"Java {chosen.version}, from {chosen.source}: {chosen.home}")


def check_packages(warehouse: Warehouse) -> Iterator[Check]:
    """Compare the Python packages with the versions that Afterlog pins."""
    try:
        pinned = [re.match(r"([\w.-]+)==([^;\s]+)(?:.*extra == .(\w+))?", line) for line in requires("afterlog") or ()]
    except PackageNotFoundError:
        yield environment_error("Python packages", "Afterlog is not installed here.", f"Run `{setup()}`.")
        return
    installed, absent, wrong = {}, set(), False
    for pin in filter(None, pinned):
        try:
            installed[pin[1]] = version(pin[1])
        except PackageNotFoundError:
            if pin[3] and not IS_CHECKOUT:
                absent.update({pin[3]} - {"all"})
                continue
            installed[pin[1]] = "missing"
        if installed[pin[1]] != pin[2]:
            wrong = True
            finding = f"{pin[1]} is {installed[pin[1]]}, not {pin[2]}."
            remedy = setup() if IS_CHECKOUT else f"pip install '{pin[1]}=={pin[2]}'"
            yield environment_error("Python packages", finding, f"Run `{remedy}`.")
    if not wrong:
        found = ", ".join(f"{name} {number}" for name, number in sorted(installed.items()))
        without = f"; extras not installed: {', '.join(sorted(absent))}" if absent else ""
        yield Check("Python packages", "ok", found + without)


def check_jars(warehouse: Warehouse) -> Iterator[Check]:
    """Say whether the JVM jars are there, each of its size."""
    if not runs_spark():
        return
    if reason := jars.fault():
        yield environment_error("JVM jars", f"{reason}.", f"Run `{setup()}`.")
        return
    sizes = jars.sizes()
    parts = []
    for conf in CONFIGURATIONS:
        if of_conf := [size for name, size in sizes.items() if name.startswith(f"{conf}/")]:
            parts.append(f"{conf} {files_of(len(of_conf), sum(of_conf))}")
    yield Check("JVM jars", "ok", f"As conf/ivy.xml names them, each of its size: {'; '.join(parts)}.")


def check_disk(warehouse: Warehouse) -> Iterator[Check]:
    """Say whether the warehouse can be written, and how much space is free."""
    root = locations.directory_of(warehouse.root)
    if root is None:
        return
    directory = next(part for part in (root, *root.parents) if part.exists())
    if not directory.is_dir():
        yield environment_error("disk", f"{directory} is not a directory.", "Name another warehouse with --warehouse.")
        return
    if not os.access(directory, os.W_OK | os.X_OK):
        yield environment_error(
            "disk", f"{directory} cannot be written.", "Fix its permissions or name another warehouse."
        )
        return
    free = shutil.disk_usage(directory).free
    finding = f"{size_of(free)} free at {directory}."
    if free >= SPARE_BYTES:
        yield Check("disk", "ok", finding)
    else:
        remedy = "Free some space: 2 GB or more."
        lacks = free < LEAST_BYTES
        yield Check("disk", "error" if lacks else "warning", finding, remedy, lacks=lacks)


def check_airflow(warehouse: Warehouse) -> Iterator[Check]:
    """Check the project's own Airflow: whether this version prepared it, and whether it answers if `make up` runs."""
    if not IS_CHECKOUT:
        return
    installed = version("apache-airflow")
    try:
        prepared = (AIRFLOW_HOME / ".prepared").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        prepared = None
    if prepared not in (None, installed):
        finding = f"{AIRFLOW_HOME} was prepared by Airflow {prepared}, {installed} is installed."
        yield Check("Airflow", "warning", finding, "`make up` or `make demo` migrates it.")
    home = f"home {AIRFLOW_HOME}" if prepared else "no home yet (`make up` makes one)"
    text = os.environ.get("AFTERLOG_PORT") or "8080"
    port = int(text) if text.isascii() and text.isdigit() else 8080
    address = f"http://127.0.0.1:{port}"
    health = _health(address)
    if health is None:
        with socket.socket() as probe:
            probe.settimeout(2)
            taken = probe.connect_ex(("127.0.0.1", port)) == 0
        if taken:
            finding = f"What listens on port {port} is not an Airflow that answers."
            yield Check("Airflow", "warning", finding, "Choose another port: AFTERLOG_PORT=8081 make up.")
        else:
            yield Check("Airflow", "ok", f"Airflow {installed}, {home}; not serving (`make up` starts it).")
        return
    ill = [part for part in ("metadatabase", "scheduler", "dag_processor") if health.get(part) != "healthy"]
    if ill:
        remedy = f"Read {AIRFLOW_HOME / 'logs' / 'up'}, then restart `make up`."
        yield environment_error("Airflow", f"At {address}, not healthy: {', '.join(ill)}.", remedy)
    else:
        yield Check("Airflow", "ok", f"Airflow {installed}, {home}; healthy at {address}.")


def _health(address: str) -> dict[str, str | None] | None:
    """Ask Airflow's API for the state of its components; None if nothing answers as Airflow does."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{address}/api/v2/monitor/health", timeout=2) as answer:
            parts = json.load(answer)
        return {name: (part or {}).get("status") for name, part in parts.items() if isinstance(part, dict | None)}
    except (OSError, ValueError, AttributeError):
        return None
