"""Small state files of a warehouse, on a local disk or on what Hadoop's file systems reach."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pipelines.errors import EnvironmentLacking

STATE = "_progress"


def is_local(warehouse: str) -> bool:
    """Tell whether a warehouse is a directory of this machine."""
    return "://" not in warehouse


def read_text(warehouse: str, name: str) -> str | None:
    """Return the text of a state file, or None where there is none."""
    if is_local(warehouse):
        try:
            return (Path(warehouse) / STATE / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
    file_system, path = _hadoop(warehouse, name)
    if not file_system.exists(path):
        return None
    stream = file_system.open(path)
    try:
        return bytes(stream.readAllBytes()).decode("utf-8")
    finally:
        stream.close()


def write_text(warehouse: str, name: str, text: str) -> None:
    """Replace a state file in one step: a reader, or a crash, sees the old text or the new one.

    Raises EnvironmentLacking: the disk is full or not writable.
    """
    if not is_local(warehouse):
        file_system, path = _hadoop(warehouse, name)
        stream = file_system.create(path, True)  # object stores show an object only once it is closed
        stream.write(bytearray(text.encode("utf-8")))
        stream.close()
        return
    target = Path(warehouse) / STATE / name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_text(target, text)
    except OSError as error:
        raise EnvironmentLacking(
            f"Progress cannot be written to {target.parent} ({error.strerror}): free some space or mend permissions."
        ) from None


def replace_text(target: Path, text: str) -> None:
    """Write a local file beside its target, flush it to the disk and rename it into place."""
    scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with scratch.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(target)


def _hadoop(warehouse: str, name: str) -> tuple[Any, Any]:
    """Return Hadoop's file system of a warehouse and the path of a state file; Py4J's objects have no types."""
    from pyspark.sql import SparkSession

    spark = SparkSession.active()
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(f"{warehouse.rstrip('/')}/{STATE}/{name}")
    return path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), path
