"""Spark's classes -> an archive that a JVM maps when it starts, instead of reading and checking each.

This is HotSpot's dynamic class-data sharing (JEP 350). ``make setup`` makes the archive by letting a JVM do a little of
everything; without one, or with one of another Java or other jars, sessions start as they always did.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shlex
import sys
import tempfile
import time
from pathlib import Path

from pipelines import jars, java
from pipelines.errors import AfterlogError

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


def make() -> None:
    """Make the archive: land, judge, summarise and query a few records in a JVM that then writes what it loaded."""
    from pipelines import lock, query, runner, session
    from pipelines.catalog import stages
    from pipelines.generate import generate
    from pipelines.settings import load

    archive = place()
    archive.parent.mkdir(parents=True, exist_ok=True)
    unfinished = archive.with_suffix(f".{os.getpid()}.tmp")
    dumping = shlex.join([f"-XX:ArchiveClassesAtExit={unfinished}", "-Xlog:disable"])
    with tempfile.TemporaryDirectory(prefix="afterlog-") as scratch:
        settings = load(
            warehouse=f"{scratch}/warehouse",
            landing=f"{scratch}/landing",
            spark={"spark.driver.extraJavaOptions": dumping},
        )
        generate(RECORDS, 1, Path(settings.landing))
        spark = session.start(settings, brisk=True)
        with lock.writer(settings, "set-up"):
            runner.run(spark, settings, stages("dlq"))
        with contextlib.redirect_stdout(io.StringIO()):
            query.answer(
                spark, settings, "SELECT disposition, count(*) FROM silver.dlq_records GROUP BY ALL", {}, "json"
            )
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # on which the JVM ends, and writes the archive
        gateway.proc.wait(MOST_SECONDS)
    if unfinished.is_file():
        for stale in archive.parent.glob("spark-*.jsa"):
            stale.unlink()
        unfinished.replace(archive)


def main() -> int:
    """Make the archive for ``make setup``, which goes on without one."""
    try:
        if not place().is_file():
            print("Preparing Spark for a faster start (once) ...", file=sys.stderr)
            began = time.monotonic()
            make()
            print(f"... done in {time.monotonic() - began:.0f} s.", file=sys.stderr)
    except AfterlogError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except Exception as error:
        print(f"That was not possible ({type(error).__name__}): Spark starts as it always does.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
