"""Rows -> commits to a Delta table, told from those of other writers, and compacted at times."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.errors import WriterBusy
from pipelines.stores import lease
from pipelines.warehouse import few_rows, opened_tables
from pipelines.warehouse.logged_tables import LoggedTables

if TYPE_CHECKING:
    from deltalake import DeltaTable as OpenedTable
    from pyarrow import RecordBatchReader  # type: ignore[import-untyped]
    from pyarrow import Table as ArrowTable
    from pyspark.sql import DataFrame, DataFrameWriter

COMPACTED_EVERY = 64  # commits; conf/spark-defaults.conf sets which files compaction merges
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


@dataclass(frozen=True)
class Commits(LoggedTables):
    """How rows are committed to a table, by Spark or without it."""

    def _replaced(
        self, table: str, opened: OpenedTable, rows: ArrowTable | RecordBatchReader, predicate: str | None
    ) -> None:
        """Replace the rows that meet a predicate (None: all) by others, without Delta's planning."""
        before = opened.version()
        with self.committing(table, opened) as turn:
            few_rows.replace(opened, rows, predicate, turn)
        self._compact_at_times(table, before)

    def _plain(self, table: str) -> OpenedTable | None:
        """Return a table, opened, if ``few_rows`` can write it; None if only Spark can."""
        opened = self.opened_table(table) if self.opens_tables else None
        return opened if opened is not None and few_rows.is_plain(opened) else None

    def _plain_for(self, table: str, rows: DataFrame) -> OpenedTable | None:
        """Return a table, opened, if ``few_rows`` can write it and the rows have its columns."""
        opened = self._plain(table)
        return opened if opened is not None and few_rows.have_its_columns(rows, opened) else None

    def _collected(self, table: str, rows: DataFrame) -> tuple[OpenedTable, ArrowTable] | None:
        """Return a table and a few rows for ``few_rows`` to write; None if only Spark can write them."""
        opened = self._plain_for(table, rows)
        if opened is None:
            return None
        few = few_rows.collected(rows)
        return None if few is None else (opened, few)

    @contextlib.contextmanager
    def committing(self, table: str, opened: OpenedTable, mark: str = "") -> Iterator[few_rows.Turn]:
        """Yield what a commit to an opened table carries: a mark, and what tells it from those of other writers.

        The writer's lease is looked at when the table is open, so that who took it over since commits later.

        Raises WriterBusy: the lease was taken over.
        """
        turn = few_rows.Turn(f"{mark} {self.store.checked()}".strip(), self.store.is_shared)
        self.store.forget(self.log(table))
        yield turn
        opened_tables.committed(self.store, self.table_path(table), opened)

    def _append(self, table: str, opened: OpenedTable, rows: ArrowTable | RecordBatchReader, mark: str = "") -> None:
        """Append rows without Delta's planning. Without rows there is no commit."""
        before = opened.version()
        with self.committing(table, opened, mark) as turn:
            few_rows.append(opened, rows, turn)
        self._compact_at_times(table, before)

    def _written(self, table: str, writer: DataFrameWriter, more: str = "") -> int:
        """Write, and return the number of rows written, from the metrics of the commit.

        A random mark in its user metadata tells the commit from those of other writers. Delta makes no commit for an
        append without rows.
        """
        mark = f"afterlog-{secrets.token_hex(8)} {more}".rstrip()
        before = self.state(table)[1]
        if self.store.is_shared:
            writer = writer.option("txnAppId", few_rows.TURN).option("txnVersion", before + 1)
        from delta.exceptions import DeltaConcurrentModificationException

        try:
            with self._committing(table, mark) as said:
                writer.option("userMetadata", said).save(self.location(table))
        except DeltaConcurrentModificationException:
            if not self.store.is_shared:
                raise
            if not self.was_committed(table, before, mark):  # else the answer to it was lost
                raise WriterBusy(few_rows.TURN_IS_LOST) from None
        after = self._compact_at_times(table, before)
        if self.opens_tables:
            actions = (self.commit(table, version) for version in range(before + 1, after + 1))
            infos = [action.get("commitInfo", {}) for of_one in actions for action in of_one]
        elif after > before:
            from delta.tables import DeltaTable

            history = DeltaTable.forPath(self.spark, self.location(table)).history().where(f"version > {before}")
            infos = [row.asDict(recursive=True) for row in history.select("userMetadata", "operationMetrics").collect()]
        else:
            infos = []
        own = [info["operationMetrics"] for info in infos if info.get("userMetadata") == said]
        if not own and infos and self.store.is_shared:  # Delta left it out, as another writer's turn came first
            raise WriterBusy(few_rows.TURN_IS_LOST)
        if not own:
            return 0
        # numOutputRows includes the rows that Delta copies from files that it rewrites.
        return int(own[0].get("numOutputRows", 0)) - int(own[0].get("numCopiedRows", 0))

    def _compact_at_times(self, table: str, before: int) -> int:
        """Compact a table's small files once every COMPACTED_EVERY commits; return the version before compaction.

        Each commit adds small files, and each file costs every reader time. Compaction adds no rows to the change feed
        and deletes no file, so readers of older versions can continue. ``before`` is the version before the last write.
        """
        after = self.state(table)[1]
        if after // COMPACTED_EVERY != before // COMPACTED_EVERY:
            from delta.exceptions import DeltaConcurrentModificationException
            from delta.tables import DeltaTable

            # If another writer has committed, a later commit triggers the next compaction.
            with self._committing(table), contextlib.suppress(DeltaConcurrentModificationException):
                DeltaTable.forPath(self.spark, self.location(table)).optimize().executeCompaction()
        return after

    @contextlib.contextmanager
    def _committing(self, table: str, mark: str = "") -> Iterator[str]:
        """Let Spark's commits to a table in the block say a mark and the number of the lease; yield this text.

        On S3 the log store reads the lease again before each commit, and refuses one of a lease that was taken over.

        Raises WriterBusy: the lease was taken over already.
        """
        said = f"{mark} {self.store.checked()}".strip()
        if held := lease.held(self.root):
            self.spark.conf.set("afterlog.warehouse", self.root)
            self.spark.conf.set("afterlog.fence", held.fence())
        if said:
            self.spark.conf.set(USER_METADATA, said)
        try:
            yield said
        finally:
            self.store.forget(self.log(table))
            if mark:
                self.spark.conf.unset(USER_METADATA)
