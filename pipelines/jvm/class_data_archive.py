"""Spark's classes -> an archive that a JVM maps when it starts, instead of reading and checking each.

This is HotSpot's dynamic class-data sharing (JEP 350). ``make setup`` makes the archive by letting a JVM do a little of
everything; without one, or with one of another Java or other jars, sessions start as they always did.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from pipelines.jvm import jars, java

RECORDS = 100
MOST_SECONDS = 60


def place() -> Path:
    """Return where the archive of this Java and these jars belongs; raises EnvironmentLacking as `java.find`."""
    import pyspark

    # HotSpot refuses an archive when a jar's time of modification is another.
    spark = Path(pyspark.__file__).parent / "jars"
    changed = max(
        (jar.stat().st_mtime_ns for jar in (*spark.glob("*.jar"), *(jars.JARS / "spark").glob("*.jar"))), default=0
    )
    found = java.find()
    used = [
        os.fspath(found.home.resolve()),
        found.version,
        pyspark.__version__,
        os.fspath(spark),
        jars.sizes(),
        changed,
    ]
    return java.WRAPPERS / f"spark-{hashlib.sha256(json.dumps(used).encode()).hexdigest()[:12]}.jsa"


def options() -> tuple[str, ...]:
    """Return what a JVM is told so that it maps the archive, and says nothing where it cannot; nothing without one."""
    archive = place()
    if not archive.is_file():
        return ()
    return (f"-XX:SharedArchiveFile={archive}", "-Xlog:disable")
