"""The change feed of a table: the rows of a range of its versions, and a check that the feed is complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote
from uuid import uuid4

from pipelines.errors import FeedIncomplete
from pipelines.warehouse.data_files import DataFiles
from pipelines.warehouse.progress import Batch
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_COMMITS = 16  # whose files are looked up, one after the other, to tell their size


@dataclass(frozen=True)
class Changes:
    """The rows of a batch, and the name under which Spark notes how far it read the change feed.

    The feed must not end before the batch's last commit. Delta has missed a trailing commit before (delta#6314), and
    the next batch would begin after that commit.
    """

    warehouse: Warehouse
    table: str
    batch: Batch
    rows: DataFrame
    noted: str | None = None

    def check(self, read: DataFrame | None = None) -> None:
        """Check that the feed was read up to the batch's last version that, by the log, changed rows.

        ``read`` is a DataFrame of all rows that was collected, or one of `cached` rows that are kept by now: its plan
        tells how far it read, without an extra pass over the rows. Without it the feed is asked for its last version.

        Raises FeedIncomplete: a version is missing, so the batch must not be recorded as read.
        """
        if self.noted is None:
            return
        last = self._last_read(read)
        read_up_to = self.batch.start if last is None else last
        assert read_up_to is not None
        for version in range(self.batch.end, read_up_to, -1):
            if self._changed_rows(version):
                raise FeedIncomplete(
                    f"The change feed of {self.table} ends at version {read_up_to}, but {version} changed rows, too: "
                    f"nothing of this batch is recorded as read; run again, and report it if it happens again."
                )

    def _last_read(self, read: DataFrame | None) -> int | None:
        """Return the last version that was read; if the plan does not tell it, query the feed."""
        from pyspark.sql import functions as F

        # PySpark's Observation waits for an event, which does not come if the rows were read through a cache.
        metrics: Any = read._jdf.queryExecution().observedMetrics().get(self.noted) if read is not None else None
        if metrics is None or metrics.isEmpty():
            last = _feed(self.warehouse, self.table, self.batch).agg(F.max("_commit_version")).collect()[0][0]
        else:
            last = metrics.get().get(0)
        return None if last is None else int(last)

    def _changed_rows(self, version: int) -> bool:
        """Tell whether a commit changed rows: whether the files that the feed reads for it contain any row."""
        by_change = changed_files(self.warehouse.commit(self.table, version))
        files = [path for paths in by_change.values() for path in paths]
        if not files:
            return False
        directory = self.warehouse.location(self.table)
        paths = [file if "://" in file else f"{directory}/{unquote(file)}" for file in files]
        return not self.warehouse.spark.read.parquet(*paths).isEmpty()


@dataclass(frozen=True)
class NamedFiles:
    """Data files that commits of a table name, by the change type of their rows (``""``: it is in the rows).

    ``by_change`` has their paths with their sizes in bytes.
    """

    files: DataFiles
    by_change: dict[str, dict[str, int]]

    def size(self) -> int:
        """Return the size of the files in bytes."""
        return sum(sum(sizes.values()) for sizes in self.by_change.values())

    def paths(self) -> dict[str, list[str]]:
        """Return the paths of the files below the table's directory, by the change type of their rows."""
        return {change: [*map(unquote, paths)] for change, paths in self.by_change.items()}

    def rows(self, spark: SparkSession) -> DataFrame:
        """Return the rows of the files, with their change type."""
        from pyspark.sql import functions as F

        by_change = self.paths()
        with_type = self.files.read(spark, by_change.get("", ()), "_change_type")
        of_one_type = (
            self.files.read(spark, paths).withColumn("_change_type", F.lit(change))
            for change, paths in by_change.items()
            if change and paths
        )
        return reduce(lambda some, more: some.unionByName(more), of_one_type, with_type)


def changes(warehouse: Warehouse, table: str, batch: Batch) -> Changes:
    """Return the rows of a batch, with Delta's ``_change_type``.

    A batch from the beginning holds all rows of the table as inserts. Any other batch holds the rows that its versions
    inserted, changed or deleted. A changed row comes twice: before and after the change. Where no session
    is needed, the files that the commits name are read; then there is no feed that could end early.
    """
    from pyspark.sql import functions as F

    if batch.start is None:
        rows = warehouse.read(table, batch.end).withColumn("_change_type", F.lit("insert"))
        return Changes(warehouse, table, batch, rows)
    named = _named_files(warehouse, table, batch)
    if named is not None:
        return Changes(warehouse, table, batch, named.rows(warehouse.spark))
    noted = uuid4().hex
    rows = (
        _feed(warehouse, table, batch)
        .observe(noted, F.max("_commit_version").alias("last"))
        .drop("_commit_version", "_commit_timestamp")
    )
    return Changes(warehouse, table, batch, rows, noted)


def batch_files(warehouse: Warehouse, table: str, batch: Batch) -> NamedFiles | None:
    """Return the files that tell the rows of a batch; None if only Delta can read them."""
    if batch.start is not None:
        return _named_files(warehouse, table, batch)
    return all_rows(warehouse, table, batch.end)


def all_rows(warehouse: Warehouse, table: str, version: int | None = None) -> NamedFiles | None:
    """Return the files of all rows of a version (None: the last one); None if only Delta can read them."""
    files = warehouse.data_files(table, version) if warehouse.opens_tables else None
    if files is None:
        return None
    return NamedFiles(files, {"insert": {quote(path): size for path, size in files.sizes.items()}})


def can_read(warehouse: Warehouse, table: str, batch: Batch) -> bool:
    """Tell whether every version of a batch is still in the table's log."""
    from deltalake.exceptions import DeltaError
    from pyspark.errors import PySparkException

    if batch.start is not None and _named_files(warehouse, table, batch) is not None:
        return True
    try:
        if batch.start is None:
            warehouse.read(table, batch.end).schema  # noqa: B018
        else:  # analysis checks the feed's range
            _feed(warehouse, table, batch).schema  # noqa: B018
    except (PySparkException, DeltaError):
        return False
    return True


def _named_files(warehouse: Warehouse, table: str, batch: Batch) -> NamedFiles | None:
    """Return the data files that a batch's commits name.

    Return None if the files alone do not tell the changes: only Spark opens the table, it is not plain, a commit is
    missing, or it changes the table's columns or protocol.
    """
    files = warehouse.data_files(table) if warehouse.opens_tables else None
    if files is None:
        return None
    assert batch.start is not None
    named: dict[str, dict[str, int]] = {}
    for version in range(batch.start + 1, batch.end + 1):
        actions = warehouse.commit(table, version)
        if not actions or any("metaData" in action or "protocol" in action for action in actions):
            return None
        for change, paths in changed_files(actions).items():
            named.setdefault(change, {}).update(paths)
    return None if any("://" in path for paths in named.values() for path in paths) else NamedFiles(files, named)


def changed_files(actions: Sequence[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the paths and sizes of the files that tell a commit's changes, by the change type of their rows.

    A commit with change data tells all changes by it; these files have the change type in each row (``""``).
    """
    if changed := {action["cdc"]["path"]: action["cdc"]["size"] for action in actions if "cdc" in action}:
        return {"": changed}
    return {
        change: {
            action[kind]["path"]: action[kind].get("size") or 0
            for action in actions
            if kind in action and action[kind].get("dataChange")
        }
        for kind, change in (("add", "insert"), ("remove", "delete"))
    }


def _feed(warehouse: Warehouse, table: str, batch: Batch) -> DataFrame:
    assert batch.start is not None
    return (
        warehouse.spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", batch.start + 1)
        .option("endingVersion", batch.end)
        .load(warehouse.location(table))
    )
