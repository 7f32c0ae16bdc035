"""Spark's properties: where they are set, and which of them endanger a warehouse."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

from pipelines.settings import ROOT, Settings

_FLAGS = re.compile(r"fs\.s3a\.(?:bucket\..+\.)?performance\.flags")
_CREATE = re.compile(r"fs\.s3a\.(?:bucket\..+\.)?create\.performance")


def defaults() -> dict[str, str]:
    """Return the properties of conf/spark-defaults.conf."""
    lines = (ROOT / "conf" / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    pairs = (line.split(None, 1) for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return {name: value.strip() for name, value in pairs}


def unchecked_creation(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield source and name of each property that lets S3A create objects without checking whether they exist.

    Spark's launcher reads PYSPARK_SUBMIT_ARGS and the ``spark-defaults.conf`` in SPARK_CONF_DIR; Hadoop reads
    ``core-site.xml``.
    """
    for source, name, value in configured(settings):
        short = name.removeprefix("spark.hadoop.")
        flags = {flag.strip().lower() for flag in value.split(",")}
        of_flags = _FLAGS.fullmatch(short) and flags & {"create", "*"}
        if of_flags or (_CREATE.fullmatch(short) and flags == {"true"}):
            yield source, name


def configured(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Yield the source, name and value of every property that a session takes, wherever it is set."""
    for name, value in defaults().items():
        yield "conf/spark-defaults.conf", name, value
    for name, value in settings.spark.items():
        yield "[spark] of the settings", name, value
    for variable, of_home in (("SPARK_CONF_DIR", ""), ("SPARK_HOME", "conf")):
        if os.environ.get(variable):
            path = Path(os.environ[variable]) / of_home / "spark-defaults.conf"
            with contextlib.suppress(OSError, UnicodeDecodeError):
                for name, value in _read_properties(path.read_text(encoding="utf-8")).items():
                    yield str(path), name, value
    with contextlib.suppress(ValueError):
        words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
        for option, text in pairwise(words):
            name, equals, value = text.partition("=")
            if option in ("--conf", "-c") and equals:
                yield "PYSPARK_SUBMIT_ARGS", name, value
    if os.environ.get("HADOOP_CONF_DIR"):
        path = Path(os.environ["HADOOP_CONF_DIR"]) / "core-site.xml"
        with contextlib.suppress(OSError, ElementTree.ParseError):
            for entry in ElementTree.parse(path).iter("property"):
                yield str(path), (entry.findtext("name") or "").strip(), entry.findtext("value") or ""


def _read_properties(text: str) -> dict[str, str]:
    """Parse lines of a name, a separator (space, ``=`` or ``:``) and a value, as Spark reads them."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (re.split(r"\s*[=:\s]\s*", line, maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {name: value for name, *rest in pairs for value in rest}
