"""A file system that only Hadoop reaches, such as HDFS: an active Spark session reads and writes its files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pipelines.errors import UsageError
from pipelines.stores.base import File, Store

# Schemes on which a file that is written shows before it is whole, and a rename can replace another file in one step.
RENAMING = ("file", "hdfs", "viewfs", "adl", "wasb", "wasbs")


@dataclass(frozen=True)
class Hadoop(Store):
    """The files below a URI of Hadoop; nothing is locked there, as Delta's log store arbitrates between writers."""

    root: str
    opens_tables = False

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes; None if there is no such file."""
        files, path = self._found(name)
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, name: str, content: bytes, durable: bool = True) -> None:
        """Replace a file in one step."""
        files, path = self._found(name)
        if self.root.partition("://")[0].lower() in RENAMING:
            _replace(files, path, content)
            return
        stream = files.create(path, True)
        stream.write(bytearray(content))
        stream.close()

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""
        files, path = self._found(name)
        files.delete(path, False)

    def files(self, directory: str) -> list[File]:
        """Return the files directly in a directory, by name; none if there is no such directory."""
        found = [
            File(
                status.getPath().getName(),
                int(status.getLen()),
                datetime.fromtimestamp(status.getModificationTime() / 1000, UTC),
            )
            for status in self._listed(directory)
            if status.isFile()
        ]
        return sorted(found, key=lambda file: file.name)

    def names(self, directory: str) -> list[str]:
        """Return the names of files and directories directly in a directory, in order; none if it is not there."""
        return sorted(status.getPath().getName() for status in self._listed(directory))

    def is_empty(self) -> bool:
        """Tell whether nothing is below the root, or no such root."""
        return next(self._listed(""), None) is None

    @contextlib.contextmanager
    def lock(self, name: str, purpose: str, wait_seconds: float = 0.0) -> Iterator[bool]:
        """Raise UsageError: nothing can be locked there."""
        raise UsageError(
            f"{self.root} has no locks, which this needs: name a warehouse in a directory or on an object store."
        )
        yield False

    def is_locked(self, name: str) -> bool:
        """Return False: nothing can be locked there."""
        return False

    def remove_empty(self, *directories: str) -> None:
        """Remove directories that are there and hold nothing."""
        for directory in directories:
            files, path = self._found(directory)
            if files.exists(path) and next(self._listed(directory), None) is None:
                files.delete(path, False)

    def _listed(self, directory: str) -> Iterator[Any]:
        """Yield the status of each file and directory directly in a directory; none if it is not there."""
        files, path = self._found(directory)
        listed = files.listStatusIterator(path) if files.exists(path) else None
        while listed is not None and listed.hasNext():
            yield listed.next()

    def _found(self, name: str) -> tuple[Any, Any]:
        """Return Hadoop's file system and the path of a file in it, as untyped Py4J objects."""
        from pyspark.sql import SparkSession

        spark = SparkSession.active()
        jvm: Any = spark.sparkContext._jvm
        path = jvm.org.apache.hadoop.fs.Path(f"{self.root}/{name}" if name else self.root)
        return path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), path


def _replace(files: Any, path: Any, content: bytes) -> None:
    """Write a file beside its target and rename it into place, as Spark does with the progress of its own streams."""
    from pyspark.sql import SparkSession

    jvm: Any = SparkSession.active().sparkContext._jvm
    streaming = jvm.org.apache.spark.sql.execution.streaming
    files.mkdirs(path.getParent())
    stream = streaming.checkpointing.CheckpointFileManager.create(path, files.getConf()).createAtomic(path, True)
    try:
        stream.write(bytearray(content))
    except BaseException:
        stream.cancel()
        raise
    stream.close()
