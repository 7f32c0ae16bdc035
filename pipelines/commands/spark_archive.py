"""Make the class-data archive of Spark's classes (JEP 350), as part of set-up or of the demo."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pipelines.catalog import stages
from pipelines.commands import query
from pipelines.commands.generate import generate
from pipelines.errors import AfterlogError
from pipelines.jvm import session
from pipelines.jvm.class_data_archive import DUE, archive_path, can_be_made
from pipelines.run import runner
from pipelines.settings import load
from pipelines.stores import lock
from pipelines.warehouse.tables import Warehouse

RECORDS = 100
MOST_SECONDS = 180
TABLES = (
    "bronze.dlq_records",
    "silver.dlq_records",
    "gold.dlq_counts",
)  # one table of each kind needs nearly all classes


def make() -> None:
    """Land, split and summarise a few records and query them in a JVM, which then writes the archive of its classes."""
    archive = archive_path()
    with tempfile.TemporaryDirectory(prefix="afterlog-") as scratch:
        settings = load(
            warehouse=f"{scratch}/warehouse",
            landing=f"{scratch}/landing",
            spark={"spark.driver.extraJavaOptions": options(archive)},
        )
        generate(RECORDS, 1, Path(settings.landing))
        spark = session.start(settings, short_lived=True)
        with lock.writer(settings, "set-up"):
            runner.run(Warehouse(settings, spark), [stage for stage in stages("dlq") if stage.table in TABLES])
        with contextlib.redirect_stdout(io.StringIO()):
            query.answer(
                Warehouse(settings, spark),
                "SELECT disposition, count(*) FROM silver.dlq_records GROUP BY ALL",
                {},
                "json",
            )
        spark.stop()
        write(archive)


def options(archive: Path) -> str:
    """Return the options of a JVM that writes the archive when it ends."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    return shlex.join([f"-XX:ArchiveClassesAtExit={_unfinished(archive)}", "-Xlog:disable"])


def write(archive: Path) -> None:
    """End this process's JVM, which has such options and no session; it writes the archive, and older ones go."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends on this
    gateway.proc.wait(MOST_SECONDS)
    if _unfinished(archive).is_file():
        for stale in archive.parent.glob("spark-*.jsa"):
            stale.unlink()
        _unfinished(archive).replace(archive)
        DUE.unlink(missing_ok=True)


def _unfinished(archive: Path) -> Path:
    return archive.with_suffix(f".{os.getpid()}.tmp")


def main() -> int:
    """Make the archive for ``make setup``, which can go on without it."""
    DUE.unlink(missing_ok=True)  # if it cannot be made, nobody tries again
    try:
        if can_be_made() and not archive_path().is_file():
            print("Preparing Spark for a faster start (once) ...", file=sys.stderr)
            began = time.monotonic()
            make()
            print(f"... done in {time.monotonic() - began:.0f} s.", file=sys.stderr)
    except AfterlogError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except Exception as error:
        why = "it took too long" if isinstance(error, subprocess.TimeoutExpired) else type(error).__name__
        print(f"That was not possible ({why}): Spark starts as it always does, some seconds later.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
