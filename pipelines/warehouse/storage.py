"""The location of a warehouse, whether its store is safe for several writers, and its small state files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipelines.errors import EnvironmentLacking
from pipelines.settings import s3
from pipelines.warehouse import lease

STATE = "_progress"
# Schemes on which no commit can replace another: HDFS and Azure rename only to a free name, and Google Cloud Storage
# creates an object only if there is none.
ATOMIC = ("hdfs", "abfs", "abfss", "adl", "wasb", "wasbs", "gs")
# Schemes on which a file that is written shows before it is whole, and a rename can replace another file in one step.
RENAMING = ("file", "hdfs", "viewfs", "abfs", "abfss", "adl", "wasb", "wasbs")
# Delta's log stores that know only the writers of their own JVM.
OF_ONE_JVM = ("S3SingleDriverLogStore", "LocalLogStore")


def is_local(warehouse: str) -> bool:
    """Tell whether a warehouse is a directory of this machine."""
    return "://" not in warehouse


def scheme_of(warehouse: str) -> str | None:
    """Return the scheme of a warehouse's URI in lower case; None for a directory."""
    return None if is_local(warehouse) else warehouse.partition("://")[0].lower()


def directory_of(warehouse: str) -> Path | None:
    """Return a warehouse's directory if it is a path or a ``file:`` URI; None if it is elsewhere."""
    if is_local(warehouse):
        return Path(warehouse)
    if scheme_of(warehouse) != "file":
        return None
    return Path("/" + warehouse.partition("://")[2].partition("/")[2])  # Hadoop does not decode percent escapes in it


def unsafe_store(warehouse: str, properties: Mapping[str, str]) -> str | None:
    """Say why two writers could lose each other's commits, given Spark's properties; None if they cannot.

    On a file system of this machine the writer's lock prevents it. On S3 sessions have our own log store. Elsewhere a
    log store that the properties name counts as safe.
    """
    scheme = scheme_of(warehouse)
    if directory_of(warehouse) is not None:
        return None
    store = properties.get(f"spark.delta.logStore.{scheme}.impl") or properties.get("spark.delta.logStore.class") or ""
    if store.endswith(OF_ONE_JVM):
        return f"{store.rpartition('.')[2]} knows of the writers of one process only"
    if store or s3.is_s3(warehouse) or scheme in ATOMIC:
        return None
    return "nothing is known of it that makes commits of two writers safe"


def read_text(warehouse: str, name: str) -> str | None:
    """Return the text of a state file; None if it does not exist."""
    return read_file(warehouse, f"{STATE}/{name}")


def read_file(warehouse: str, path_within: str) -> str | None:
    """Return the text of a file in a warehouse; None if it does not exist."""
    if is_local(warehouse):
        try:
            return (Path(warehouse) / path_within).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
    file_system, path = _hadoop(warehouse, path_within)
    if not file_system.exists(path):
        return None
    stream = file_system.open(path)
    try:
        return bytes(stream.readAllBytes()).decode("utf-8")
    finally:
        stream.close()


def names_in(place: str, path_within: str) -> Iterator[str]:
    """Yield the names in a directory below a URI; none if it does not exist."""
    file_system, path = _hadoop(place, path_within)
    if not file_system.exists(path):
        return
    found = file_system.listStatusIterator(path)
    while found.hasNext():
        yield found.next().getPath().getName()


def remove_empty(place: str, *directories: str) -> None:
    """Remove directories below a URI that are there and hold nothing."""
    for path_within in directories:
        file_system, path = _hadoop(place, path_within)
        if file_system.exists(path) and not file_system.listStatusIterator(path).hasNext():
            file_system.delete(path, False)


def write_text(warehouse: str, name: str, text: str) -> None:
    """Replace a state file in one step: readers see the old or the new text, also after a crash.

    Raises EnvironmentLacking: the disk is full or not writable. WriterBusy: the lease on S3 was taken over.
    """
    if not is_local(warehouse):
        lease.checked(warehouse)
        file_system, path = _hadoop(warehouse, f"{STATE}/{name}")
        if scheme_of(warehouse) in RENAMING:
            _replace(file_system, path, text)
        else:
            stream = file_system.create(path, True)  # an object store shows the object only after close()
            stream.write(bytearray(text.encode("utf-8")))
            stream.close()
        return
    target = Path(warehouse) / STATE / name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_text(target, text)
    except OSError as error:
        raise EnvironmentLacking(
            f"Progress cannot be written to {target.parent} ({error.strerror}): free some space or fix permissions."
        ) from None


def replace_text(target: Path, text: str, durable: bool = True) -> None:
    """Write a local file beside its target, flush it to the disk (if ``durable``) and rename it into place."""
    scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with scratch.open("w", encoding="utf-8") as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    scratch.replace(target)


def _replace(file_system: Any, path: Any, text: str) -> None:
    """Write a file beside its target and rename it into place, as Spark does with the progress of its own streams."""
    from pyspark.sql import SparkSession

    jvm: Any = SparkSession.active().sparkContext._jvm
    streaming = jvm.org.apache.spark.sql.execution.streaming
    file_system.mkdirs(path.getParent())
    stream = streaming.checkpointing.CheckpointFileManager.create(path, file_system.getConf()).createAtomic(path, True)
    try:
        stream.write(bytearray(text.encode("utf-8")))
    except BaseException:
        stream.cancel()
        raise
    stream.close()


def size_of(file: Path) -> int | None:
    """Return the size of a local file in bytes; None if it cannot be read."""
    try:
        return file.stat().st_size
    except OSError:
        return None


def _hadoop(warehouse: str, path_within: str) -> tuple[Any, Any]:
    """Return Hadoop's file system of a warehouse and the path of a file in it, as untyped Py4J objects."""
    from pyspark.sql import SparkSession

    spark = SparkSession.active()
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{warehouse.rstrip('/')}/{path_within}")
    return path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), path
