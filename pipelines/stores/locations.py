"""The path or URI of a warehouse -> its store, and whether the store is safe for several writers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from pipelines.settings import s3
from pipelines.stores import objects
from pipelines.stores.base import Store
from pipelines.stores.directory import Directory
from pipelines.stores.hadoop import Hadoop

# Schemes on which no commit can replace another: HDFS and Azure rename only to a free name, and Google Cloud Storage
# creates an object only if there is none.
ATOMIC = ("hdfs", "abfs", "abfss", "adl", "wasb", "wasbs", "gs")
# Delta's log stores that know only the writers of their own JVM.
OF_ONE_JVM = ("S3SingleDriverLogStore", "LocalLogStore")


@lru_cache(maxsize=64)
def of(root: str) -> Store:
    """Return the store of a warehouse, or of another directory or URI."""
    scheme = scheme_of(root)
    if scheme is None:
        return Directory(root.rstrip("/") or root)
    return objects.Objects(root.rstrip("/")) if scheme in objects.SCHEMES else Hadoop(root.rstrip("/"))


def scheme_of(root: str) -> str | None:
    """Return the scheme of a URI in lower case; None for a directory."""
    return root.partition("://")[0].lower() if "://" in root else None


def directory_of(root: str) -> Path | None:
    """Return a warehouse's directory if it is a path or a ``file:`` URI; None if it is elsewhere."""
    scheme = scheme_of(root)
    if scheme is None:
        return Path(root)
    if scheme != "file":
        return None
    return Path("/" + root.partition("://")[2].partition("/")[2])  # Hadoop does not decode percent escapes in it


def unsafe_store(root: str, properties: Mapping[str, str]) -> str | None:
    """Say why two writers could lose each other's commits, given Spark's properties; None if they cannot.

    On a file system of this machine the writer's lock prevents it. On S3 sessions have our own log store. Elsewhere a
    log store that the properties name counts as safe.
    """
    scheme = scheme_of(root)
    if directory_of(root) is not None:
        return None
    store = properties.get(f"spark.delta.logStore.{scheme}.impl") or properties.get("spark.delta.logStore.class") or ""
    if store.endswith(OF_ONE_JVM):
        return f"{store.rpartition('.')[2]} knows of the writers of one process only"
    if store or s3.is_s3(root) or scheme in ATOMIC:
        return None
    return "nothing is known of it that makes commits of two writers safe"
