"""A directory or URI -> its tables as their Delta logs have them: versions, commits, states."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from pipelines.errors import AfterlogError, UsageError, opening, unreadable_log
from pipelines.settings import Settings
from pipelines.stores import locations
from pipelines.stores.base import Store
from pipelines.warehouse import delta_log, opened_tables, schema_mark
from pipelines.warehouse.at_once import OPENED_AT_ONCE, at_once

if TYPE_CHECKING:
    from deltalake import DeltaTable as OpenedTable
    from pyspark.sql import SparkSession

_TABLE = re.compile(r"[a-z]+\.[a-z_]+")
_VERSION = re.compile(r"(\d{20})\.(?:json|checkpoint)")


@dataclass(frozen=True)
class LoggedTables:
    """The tables under the directory or URI that the settings name, and the Spark session that reads and writes them.

    Where the store ``opens_tables``, tables are examined and opened without a session. Elsewhere all of it needs one.
    """

    settings: Settings
    session: SparkSession | None = None

    @property
    def spark(self) -> SparkSession:
        """The Spark session that the caller has started."""
        assert self.session is not None, "this needs a Spark session"
        return self.session

    @property
    def root(self) -> str:
        """The directory or URI that contains all tables."""
        return self.settings.warehouse

    @property
    def shown(self) -> str:
        """The root as messages say it."""
        return self.store.shown

    @property
    def store(self) -> Store:
        """Where the tables are."""
        return locations.of(self.root)

    @property
    def opens_tables(self) -> bool:
        """Tell whether tables are read and written without a JVM; else they need a session."""
        return self.store.opens_tables

    @property
    def cluster(self) -> str:
        """The Kafka cluster that the settings name, the first of several."""
        return self.settings.cluster

    def of_clusters(self) -> tuple[Self, ...]:
        """Return the warehouse with the settings of each cluster."""
        return tuple(replace(self, settings=own) for own in self.settings.of_clusters())

    def refuse_spark_only(self, what: str) -> None:
        """Raise UsageError if only Spark opens the warehouse, and ``what`` a command does needs no session."""
        if not self.opens_tables:
            raise UsageError(
                f"Only Spark opens {self.shown}, and {what} without it: name a warehouse in a directory or on an "
                "object store."
            )

    def location(self, table: str) -> str:
        """Return the path or URI of a table: ``silver.x`` is at ``<warehouse>/silver/x``."""
        if not _TABLE.fullmatch(table):
            raise UsageError(f"{table!r} is not a table: tables are named like silver.dlq_records.")
        return f"{self.root.rstrip('/')}/{self.table_path(table)}"

    @staticmethod
    def table_path(table: str) -> str:
        """Return the path of a table below the root."""
        return table.replace(".", "/")

    @classmethod
    def log(cls, table: str) -> str:
        """Return the path of a table's Delta log below the root."""
        return f"{cls.table_path(table)}/_delta_log"

    def exists(self, table: str) -> bool:
        """Tell whether a table has a Delta log."""
        return self.last_version(table) is not None  # a crash can leave a log without commits

    def absent(self, table: str) -> UsageError:
        """Return the error for a table that does not exist; its message says what to do."""
        return UsageError(
            f"There is no table {table} in {self.shown} yet: `afterlog run` creates it. "
            f"Or name another warehouse with --warehouse."
        )

    def commit(self, table: str, version: int) -> list[dict[str, Any]]:
        """Return the actions of a commit; none if the commit is no longer in the log."""
        return delta_log.actions_of(self.store.text(f"{self.log(table)}/{version:020}.json") or "")

    def last_version(self, table: str) -> int | None:
        """Return the latest version of a table, from the file names of its log; None if there is none."""
        versions = [int(match[1]) for name in self._log_names(table) if (match := _VERSION.match(name))]
        return max(versions, default=None)

    def was_never_written(self, table: str) -> bool:
        """Tell, with a request instead of the five that open it, whether an existing table has only been created."""
        try:
            return self.last_version(table) == 0 and not any("add" in action for action in self.commit(table, 0))
        except ValueError:  # whoever opens the table is told that it is damaged
            return False

    def opened_table(self, table: str, version: int | None = None) -> OpenedTable:
        """Open a table, at the given version or at the latest, with ``deltalake``, the reader without a JVM.

        As long as the log does not change, callers share what it returns. A write through it takes it to the new
        version, which no other caller gets.

        Raises UsageError: the table's Delta log alone does not decide which commits count. EnvironmentLacking: the log
        cannot be read.
        """
        return opened_tables.once(self.store, self.table_path(table), version, lambda: self._opened(table, version))

    def open_ahead(self, tables: Iterable[str]) -> None:
        """Open tables that a command is about to read, at the same time, where each request takes its time.

        The command reads the same lists in a ``pinned`` block. What cannot be opened is told when it is read.
        """
        if not (self.store.is_shared and self.opens_tables):
            return

        def opened(table: str) -> None:
            with contextlib.suppress(AfterlogError):
                if self.exists(table) and not self.was_never_written(table):
                    self.opened_table(table)

        at_once(OPENED_AT_ONCE, opened, tables)

    def _opened(self, table: str, version: int | None) -> OpenedTable:
        """Open a table: see ``opened_table``."""
        from deltalake import DeltaTable

        try:
            found = DeltaTable(
                self.store.for_deltalake(self.table_path(table)), version=version, storage_options=self.store.options()
            )
        except Exception as error:
            if delta_log.is_about_coordination(error):
                raise delta_log.coordinated(table, "its table features") from None
            if delta_log.fault(self.store, self.table_path(table), refused=True):
                raise unreadable_log(table) from None
            raise opening(error, table) from None
        protocol = found.protocol()
        features = [*(protocol.reader_features or ()), *(protocol.writer_features or ())]
        if by := delta_log.coordinator(found.metadata().configuration, features):
            raise delta_log.coordinated(table, by)
        schema_mark.refuse_newer(table, found.metadata().configuration)
        return found

    def damaged_files(self, table: str) -> list[str]:
        """Return the data files of a table that are missing or whose size differs from the one in its log.

        Raises the same errors as ``opened_table``.
        """
        files = self.opened_table(table).get_add_actions()
        sizes = dict(zip(map(str, files["path"].to_pylist()), files["size_bytes"].to_pylist(), strict=True))
        there = {
            f"{within}{file.name}": file.size
            for within in {path[: path.rfind("/") + 1] for path in sizes}
            for file in self.store.files(f"{self.table_path(table)}/{within}".rstrip("/"))
        }
        return sorted(path for path, size in sizes.items() if there.get(path) != size)

    def missing_commit(self, table: str) -> int | None:
        """Return the version of the first missing commit that a reader needs; None if none is missing.

        A reader needs the commits after the last checkpoint, or all commits if there is no checkpoint.
        """
        names = self._log_names(table)
        commits = {int(name[:20]) for name in names if re.fullmatch(r"\d{20}\.json", name)}
        checkpoint = max((int(name[:20]) for name in names if re.match(r"\d{20}\.checkpoint", name)), default=-1)
        needed = range(checkpoint + 1, max(commits, default=-1))
        return next((number for number in needed if number not in commits), None)

    def table_id(self, table: str) -> str | None:
        """Return a table's Delta id from its latest checksum, its first commit or a checkpoint; None if unknown."""
        names = self._log_names(table)
        checksums = [name for name in names if name.endswith(".crc") and not name.startswith(".")]
        if checksums:
            text = self.store.text(f"{self.log(table)}/{checksums[-1]}")
            metadata = json.loads(text or "{}").get("metadata")
            if metadata:
                return str(metadata["id"])
        for action in self.commit(table, 0):
            if metadata := action.get("metaData"):
                return str(metadata["id"])
        if not self.opens_tables or f"{0:020}.json" in names or not any(map(_VERSION.match, names)):
            return None
        return self.state(table)[0]  # an erasure has removed the first commit

    def bytes_after(self, table: str, version: int | None) -> int:
        """Return roughly how many bytes a table has gained since a version (None: since its creation)."""
        table_path, commit = self.table_path(table), f"{version or 0:020}.json"
        log = {file.name: file.modified_at for file in self.store.files(self.log(table))}
        since = log.get(commit) if version is not None else None
        files = (file for file in self.store.files(table_path) if file.name.endswith(".parquet"))
        return sum(file.size for file in files if since is None or file.modified_at > since)

    def _log_names(self, table: str) -> list[str]:
        log = self.log(table)
        names = self.store.names(log)
        if self.opens_tables and (by := delta_log.staged(self.store, log, names)):
            raise delta_log.coordinated(table, f"there are commits in {by}")
        return names

    def versions_after(self, versions: Mapping[str, int | None]) -> int:
        """Return how many versions the tables together have after the given ones (None: after their creation)."""
        late = 0
        for table, version in versions.items():
            end = self.last_version(table) if self.opens_tables else self._version_if_any(table)
            late += max(0, (end or 0) - (version or 0))  # version 0 only creates the table
        return late

    def _version_if_any(self, table: str) -> int | None:
        return self.state(table)[1] if self.exists(table) else None

    def state(self, table: str) -> tuple[str, int]:
        """Return a table's Delta id and its latest version; a table recreated at the same path has another id."""
        if self.opens_tables:
            opened = self.opened_table(table)
            return str(opened.metadata().id), opened.version()
        snapshot = self._snapshot(table)
        return str(snapshot.metadata().id()), int(snapshot.version())

    def size(self, table: str) -> int:
        """Return the total size of a table's files in bytes; without a Spark query where the store opens tables."""
        if self.opens_tables:
            return sum(self.opened_table(table).get_add_actions()["size_bytes"].to_pylist())
        return int(self._snapshot(table).sizeInBytes())

    def _snapshot(self, table: str) -> Any:
        """Return Delta's latest snapshot of a table, a JVM object.

        Raises UsageError: the table's Delta log alone does not decide which commits count.
        """
        jvm: Any = self.spark.sparkContext._jvm
        nothing = jvm.scala.Option.empty()
        try:
            logs = jvm.org.apache.spark.sql.delta.DeltaLog
            snapshot = logs.forTable(self.spark._jsparkSession, self.location(table)).update(False, nothing, nothing)
        except Exception as error:
            if delta_log.is_about_coordination(error):
                raise delta_log.coordinated(table, "its table features") from None
            raise
        said = str(snapshot.metadata().configuration().mkString("\n"))
        properties = dict(line.partition(" -> ")[::2] for line in said.splitlines())
        features = str(snapshot.protocol().readerAndWriterFeatureNames().mkString("\n")).splitlines()
        if by := delta_log.coordinator(properties, features):
            raise delta_log.coordinated(table, by)
        schema_mark.refuse_newer(table, properties)
        return snapshot

    def was_committed(self, table: str, after: int, mark: str) -> bool:
        """Tell whether the user metadata of a commit after the given version contains a mark."""
        if self.opens_tables:
            end = self.last_version(table) or 0
            infos = (
                action.get("commitInfo") or {} for v in range(after + 1, end + 1) for action in self.commit(table, v)
            )
            return any(mark in (info.get("userMetadata") or "") for info in infos)
        from delta.tables import DeltaTable
        from pyspark.sql import functions as F

        history = DeltaTable.forPath(self.spark, self.location(table)).history()
        return not history.where((F.col("version") > after) & F.col("userMetadata").contains(mark)).isEmpty()
