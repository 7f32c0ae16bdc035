"""The only module that touches Delta: create, read, insert, replace, remove, register."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pipelines import delta_log
from pipelines.errors import FeedIncomplete, UsageError, unreadable_log
from pipelines.progress import Batch
from pipelines.settings import Settings
from pipelines.storage import is_local, read_file

if TYPE_CHECKING:
    from deltalake import DeltaTable as LocalTable
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, DataFrameWriter, Observation, SparkSession

    from expectations.contract import Contract

PROPERTIES = {
    # Consumers of a table read its changes; deletion vectors stay off so that readers without Spark see the truth.
    "delta.enableChangeDataFeed": "true",
    "delta.enableDeletionVectors": "false",
}
CREATED_AT_ONCE = 4
COMPACTED_EVERY = 64  # commits; conf/spark-defaults.conf says which files are small
OBSERVED_WITHIN_SECONDS = 30.0
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_TABLE = re.compile(r"[a-z]+\.[a-z_]+")


def location(settings: Settings, table: str) -> str:
    """Return where a table is: ``silver.x`` is ``<warehouse>/silver/x``."""
    if not _TABLE.fullmatch(table):
        raise UsageError(f"{table!r} is not a table: tables are named like silver.dlq_records.")
    return f"{settings.warehouse.rstrip('/')}/{table.replace('.', '/')}"


def quarantine_contract(contract: Contract) -> Contract:
    """Return the columns and grain of a table's quarantine as a contract of its own."""
    from expectations.contract import Contract

    name = contract.table.partition(".")[2]
    return Contract(
        table=f"quarantine.{name}",
        description=f"Rows that break the contract of {contract.table}, with every candidate column and why.",
        columns=contract.quarantine,
        grain=contract.identity,
    )


def exists(spark: SparkSession | None, settings: Settings, table: str) -> bool:
    """Tell whether a table has a Delta log; a session is needed only for a warehouse that is not local."""
    if is_local(settings.warehouse):
        return local_version(settings, table) is not None
    from delta.tables import DeltaTable

    assert spark is not None
    return DeltaTable.isDeltaTable(spark, location(settings, table))


def ensure(spark: SparkSession, settings: Settings, contract: Contract) -> bool:
    """Create a table if it is not there; return whether it was created."""
    if exists(spark, settings, contract.table):
        return False
    if is_local(settings.warehouse):
        _create_local(settings, contract)
        return True
    from delta.tables import DeltaTable

    builder = DeltaTable.createIfNotExists(spark).location(location(settings, contract.table))
    for column in contract.stored:
        builder = builder.addColumn(column.name, column.type, comment=column.comment)
    for name, value in PROPERTIES.items():
        builder = builder.property(name, value)
    builder.comment(contract.description).execute()
    return True


def _create_local(settings: Settings, contract: Contract) -> None:
    """Write a table's first commit without Spark, to which every table would be a command to plan, ten times slower."""
    from deltalake import DeltaTable, Schema
    from pyspark.sql.types import DataType, StructType

    schema = StructType()
    for column in contract.stored:
        schema.add(column.name, DataType.fromDDL(column.type), metadata={"comment": column.comment})
    DeltaTable.create(
        location(settings, contract.table),
        Schema.from_json(schema.json()),
        description=contract.description,
        configuration=PROPERTIES,
    )
    # The version's checksum, a convenience of Delta's: without it each first write asks Spark what an empty log holds.
    log = Path(location(settings, contract.table)) / "_delta_log"
    actions: dict[str, Any] = {}
    for line in (log / f"{0:020}.json").read_text(encoding="utf-8").splitlines():
        actions |= json.loads(line)
    known = {"metadata": actions["metaData"], "protocol": actions["protocol"], "allFiles": []}
    counts = {"tableSizeBytes": 0, "numFiles": 0, "numMetadata": 1, "numProtocol": 1}
    (log / f"{0:020}.crc").write_text(json.dumps({**counts, **known}), encoding="utf-8")


def ensure_all(spark: SparkSession, settings: Settings, contracts: Iterable[Contract]) -> None:
    """Create the tables that are not there, several at a time: each is little work and much waiting."""
    with ThreadPoolExecutor(CREATED_AT_ONCE) as pool:
        for _ in pool.map(lambda contract: ensure(spark, settings, contract), contracts):
            pass


def local_version(settings: Settings, table: str) -> int | None:
    """Return the latest version of a table in a local warehouse from its log's file names; None where there is none."""
    _, names = _local_log(settings, table)
    versions = [int(match[1]) for name in names if (match := re.match(r"(\d{20})\.(?:json|checkpoint)", name))]
    return max(versions, default=None)


def local_table(settings: Settings, table: str) -> LocalTable:
    """Open a table of a local warehouse for the reader without a JVM.

    Raises UsageError: others than its log decide about its commits. EnvironmentLacking: its log cannot be read.
    """
    from deltalake import DeltaTable

    try:
        found = DeltaTable(location(settings, table))
    except Exception as error:
        if delta_log.is_about_coordination(error):
            raise delta_log.coordinated(table, "its table features") from None
        if delta_log.fault(Path(location(settings, table)), refused=True):
            raise unreadable_log(table) from None
        raise
    protocol = found.protocol()
    features = [*(protocol.reader_features or ()), *(protocol.writer_features or ())]
    if by := delta_log.coordinator(found.metadata().configuration, features):
        raise delta_log.coordinated(table, by)
    return found


def local_damaged_files(settings: Settings, table: str) -> list[str]:
    """Return the data files of a table in a local warehouse that are not there or not as long as its log says.

    Raises as ``local_table``.
    """
    directory, files = Path(location(settings, table)), local_table(settings, table).get_add_actions()
    sizes = zip(map(str, files["path"].to_pylist()), files["size_bytes"].to_pylist(), strict=True)
    return sorted(path for path, size in sizes if _size(directory / path) != size)


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except OSError:
        return None


def local_versions_after(settings: Settings, versions: Mapping[str, int | None]) -> int:
    """Return how many versions tables in a local warehouse have after the given ones (None: after their creation)."""
    return _versions_after({table: local_version(settings, table) for table in versions}, versions)


def local_gap(settings: Settings, table: str) -> int | None:
    """Return the first commit that a reader needs and does not find: those after the last checkpoint, or all."""
    _, names = _local_log(settings, table)
    commits = {int(name[:20]) for name in names if re.fullmatch(r"\d{20}\.json", name)}
    checkpoint = max((int(name[:20]) for name in names if re.match(r"\d{20}\.checkpoint", name)), default=-1)
    return next((number for number in range(checkpoint + 1, max(commits, default=-1)) if number not in commits), None)


def local_id(settings: Settings, table: str) -> str | None:
    """Return the id in a table's latest checksum or its first commit; None where neither is left."""
    directory, names = _local_log(settings, table)
    checksums = [name for name in names if name.endswith(".crc") and not name.startswith(".")]
    if checksums:
        metadata = json.loads((directory / checksums[-1]).read_text(encoding="utf-8")).get("metadata")
        if metadata:
            return str(metadata["id"])
    if f"{0:020}.json" in names:
        for line in (directory / f"{0:020}.json").read_text(encoding="utf-8").splitlines():
            if metadata := json.loads(line).get("metaData"):
                return str(metadata["id"])
    return None


def _local_log(settings: Settings, table: str) -> tuple[Path, list[str]]:
    directory = Path(location(settings, table)) / "_delta_log"
    names = sorted(os.listdir(directory)) if directory.is_dir() else []
    if by := delta_log.staged(directory, names):
        raise delta_log.coordinated(table, f"there are commits in {by}")
    return directory, names


def local_bytes_after(settings: Settings, table: str, version: int | None) -> int:
    """Return roughly how many bytes a table in a local warehouse gained after a version (None: since it began)."""
    directory = Path(location(settings, table))
    commit = directory / "_delta_log" / f"{version or 0:020}.json"
    since = commit.stat().st_mtime if version is not None and commit.exists() else 0.0
    facts = (file.stat() for file in directory.glob("*.parquet"))
    return sum(fact.st_size for fact in facts if fact.st_mtime > since)


def state(spark: SparkSession, settings: Settings, table: str) -> tuple[str, int]:
    """Return a table's Delta id, which another table at the same place does not share, and its latest version."""
    snapshot = _snapshot(spark, settings, table)
    return str(snapshot.metadata().id()), int(snapshot.version())


def _snapshot(spark: SparkSession, settings: Settings, table: str) -> Any:
    """Return Delta's latest snapshot of a table, an object of the JVM.

    Raises UsageError: others than its log decide about its commits.
    """
    jvm: Any = spark.sparkContext._jvm
    nothing = jvm.scala.Option.empty()
    try:
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, location(settings, table))
        snapshot = log.update(False, nothing, nothing)
    except Exception as error:
        if delta_log.is_about_coordination(error):
            raise delta_log.coordinated(table, "its table features") from None
        raise
    said = str(snapshot.metadata().configuration().mkString("\n"))
    properties = dict(line.partition(" -> ")[::2] for line in said.splitlines())
    features = str(snapshot.protocol().readerAndWriterFeatureNames().mkString("\n")).splitlines()
    if by := delta_log.coordinator(properties, features):
        raise delta_log.coordinated(table, by)
    return snapshot


def size(spark: SparkSession, settings: Settings, table: str) -> int:
    """Return how many bytes the files of a table have."""
    return int(_snapshot(spark, settings, table).sizeInBytes())


def was_committed(spark: SparkSession, settings: Settings, table: str, after: int, mark: str) -> bool:
    """Tell whether a commit after a version of a table carries a mark."""
    from delta.tables import DeltaTable
    from pyspark.sql import functions as F

    history = DeltaTable.forPath(spark, location(settings, table)).history()
    return not history.where((F.col("version") > after) & F.col("userMetadata").contains(mark)).isEmpty()


def versions_after(spark: SparkSession, settings: Settings, versions: Mapping[str, int | None]) -> int:
    """Return how many versions tables have after the given ones (None: after their creation)."""
    ends = {table: state(spark, settings, table)[1] for table in versions if exists(spark, settings, table)}
    return _versions_after(ends, versions)


def _versions_after(ends: Mapping[str, int | None], versions: Mapping[str, int | None]) -> int:
    read = {table: version or 0 for table, version in versions.items()}  # version 0 is empty: no news
    return sum(max(0, end - read[table]) for table, end in ends.items() if end is not None)


def read(spark: SparkSession, settings: Settings, table: str, version: int | None = None) -> DataFrame:
    """Return a table's rows, at a version if one is given."""
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return reader.load(location(settings, table))


@dataclass(frozen=True)
class Changes:
    """The rows of a batch, and what sees how far the change feed was read: it must not end before its last commit.

    Delta has missed a trailing commit before (delta#6314); the next batch would begin after it.
    """

    spark: SparkSession
    settings: Settings
    table: str
    batch: Batch
    rows: DataFrame
    seen: Observation | None = None

    def check(self) -> None:
        """Compare the last version that was read with the last one of the batch that changed rows, by the log.

        To be called when an action has read all rows. The first action is looked at; it costs no pass of its own.

        Raises FeedIncomplete: a version is missing, so that nothing must be recorded as read.
        """
        if self.seen is None:
            return
        last = self._last_read()
        read_up_to = self.batch.start if last is None else last
        assert read_up_to is not None
        for version in range(self.batch.end, read_up_to, -1):
            if self._changed_rows(version):
                raise FeedIncomplete(
                    f"The change feed of {self.table} ends at version {read_up_to}, but {version} changed rows, too: "
                    f"nothing of this batch is recorded as read; run again, and report it if it happens again."
                )

    def _last_read(self) -> int | None:
        """Return the last version that an action saw; where Spark did not tell in time, ask for it once more."""
        from pyspark.sql import functions as F

        assert self.seen is not None
        observed: Any = self.seen
        until = time.monotonic() + OBSERVED_WITHIN_SECONDS
        while not observed._jo.future().isCompleted():  # it comes in a queue of events, which drops some when full
            if time.monotonic() >= until:
                feed = _feed(self.spark, self.settings, self.table, self.batch)
                last = feed.agg(F.max("_commit_version")).collect()[0][0]
                break
            time.sleep(0.005)
        else:
            last = observed.get["last"]
        return None if last is None else int(last)

    def _changed_rows(self, version: int) -> bool:
        """Tell from a commit whether it changed rows: what the feed shows of it is there, and not empty."""
        actions = _actions(self.settings, self.table, version)
        files = [action["cdc"]["path"] for action in actions if "cdc" in action]
        if not files:
            changed = (action.get("add") or action.get("remove") or {} for action in actions)
            files = [action["path"] for action in changed if action.get("dataChange")]
        if not files:
            return False
        root = location(self.settings, self.table)
        paths = [file if "://" in file else f"{root}/{unquote(file)}" for file in files]
        return not self.spark.read.parquet(*paths).isEmpty()


def changes(spark: SparkSession, settings: Settings, table: str, batch: Batch) -> Changes:
    """Return the rows of a batch: all of them from the beginning, else those that later versions inserted or changed.

    Changed rows come twice, as they were and as they are, with Delta's ``_change_type``.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    if batch.start is None:
        rows = read(spark, settings, table, batch.end).withColumn("_change_type", F.lit("insert"))
        return Changes(spark, settings, table, batch, rows)
    seen = Observation()
    rows = (
        _feed(spark, settings, table, batch)
        .observe(seen, F.max("_commit_version").alias("last"))
        .drop("_commit_version", "_commit_timestamp")
    )
    return Changes(spark, settings, table, batch, rows, seen)


def _feed(spark: SparkSession, settings: Settings, table: str, batch: Batch) -> DataFrame:
    assert batch.start is not None
    return (
        spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", batch.start + 1)
        .option("endingVersion", batch.end)
        .load(location(settings, table))
    )


def _actions(settings: Settings, table: str, version: int) -> list[dict[str, Any]]:
    """Return the actions of a commit; of one that is no longer in the log, none."""
    text = read_file(settings.warehouse, f"{table.replace('.', '/')}/_delta_log/{version:020}.json")
    return [json.loads(line) for line in (text or "").splitlines()]


def can_read(spark: SparkSession, settings: Settings, table: str, batch: Batch) -> bool:
    """Tell whether every version of a batch is still in the table's log."""
    from pyspark.errors import PySparkException

    try:
        if batch.start is None:
            read(spark, settings, table, batch.end).schema  # noqa: B018
        else:  # the feed's range is checked on analysis; what is observed and never read, Spark would keep for good
            _feed(spark, settings, table, batch).schema  # noqa: B018
    except PySparkException:
        return False
    return True


def standing(
    spark: SparkSession, settings: Settings, table: str, bounds: SparkColumn | None = None
) -> DataFrame | None:
    """Return a table's rows within bounds; None where Delta's file statistics alone say that there are none.

    They stay what they are now: without a version, a frame would show what this very run writes to the table.
    """
    _, version = state(spark, settings, table)
    if version == 0:  # created, never written
        return None
    rows = read(spark, settings, table, version)
    if bounds is not None:
        rows = rows.where(bounds)
    return rows if rows.inputFiles() else None


def insert(
    settings: Settings,
    table: str,
    rows: DataFrame,
    contract: Contract,
    bounds: SparkColumn | None,
    mark: str = "",
) -> int:
    """Insert rows which the caller knows to be absent from the table; return how many were written.

    On a local warehouse, where the lock keeps other writers away, this is an append. Elsewhere it is an insert-only,
    null-safe MERGE on the grain, so that Delta's conflict check arbitrates between writers.
    The commit carries the mark.
    """
    spark = rows.sparkSession
    rows = rows.select([column.name for column in contract.stored])
    if is_local(settings.warehouse):
        writer = rows.write.format("delta").mode("append").option("mergeSchema", "true")
        return _written(spark, settings, table, writer, mark)
    from delta.tables import DeltaTable
    from pyspark.sql import functions as F

    # Under other names, so that the bounds, which speak of plain columns, mean the table's.
    named = {column.name: f"_new_{column.name}" for column in contract.stored}
    condition = F.lit(True) if bounds is None else bounds
    for name in contract.grain:
        condition = condition & F.col(name).eqNullSafe(F.col(named[name]))
    merge = (
        DeltaTable.forPath(spark, location(settings, table))
        .merge(rows.withColumnsRenamed(named), condition)
        .whenNotMatchedInsert(values={f"`{name}`": F.col(new) for name, new in named.items()})
    )
    before = state(spark, settings, table)[1]
    if mark:
        spark.conf.set(USER_METADATA, mark)
    try:
        merged = merge.execute()
    finally:
        if mark:
            spark.conf.unset(USER_METADATA)
    _compact_at_times(spark, settings, table, before)
    return int(merged.collect()[0]["num_inserted_rows"])


def replace_matching(
    settings: Settings, table: str, rows: DataFrame, keys: Sequence[str], under: Mapping[str, str] | None = None
) -> int:
    """Replace the rows of a table that share the keys (null-safe) with the given ones; return how many they were.

    ``under`` names the column of the given rows that holds the table's key where that is to change.
    """
    from delta.tables import DeltaTable

    merged = (
        DeltaTable.forPath(rows.sparkSession, location(settings, table))
        .alias("old")
        .merge(rows.alias("new"), _same(keys, under))
        .whenMatchedUpdateAll()
        .execute()
    )
    return int(merged.collect()[0]["num_updated_rows"])


def remove_matching(settings: Settings, table: str, rows: DataFrame, keys: Sequence[str]) -> int:
    """Remove the rows of a table that share the keys (null-safe) with the given ones; return how many were removed."""
    from delta.tables import DeltaTable

    merged = (
        DeltaTable.forPath(rows.sparkSession, location(settings, table))
        .alias("old")
        .merge(rows.alias("new"), _same(keys))
        .whenMatchedDelete()
        .execute()
    )
    return int(merged.collect()[0]["num_deleted_rows"])


def remove_where(spark: SparkSession, settings: Settings, table: str, condition: SparkColumn) -> None:
    """Remove the rows of a table for which a condition holds."""
    from delta.tables import DeltaTable

    before = state(spark, settings, table)[1]
    DeltaTable.forPath(spark, location(settings, table)).delete(condition)
    _compact_at_times(spark, settings, table, before)


def replace_groups(
    settings: Settings, table: str, rows: DataFrame, groups: str | None, contract: Contract | None = None
) -> int:
    """Replace the rows for which the SQL predicate holds (None: all) in one commit; return how many were written.

    With all rows the columns of a table that an earlier version made are replaced, too, if there is a contract.
    """
    spark = rows.sparkSession
    if groups is not None:
        writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", groups)
        return _written(spark, settings, table, writer)
    stored = [(field.name, field.dataType) for field in read(spark, settings, table).schema]
    if contract is None or stored == [(field.name, field.dataType) for field in rows.schema]:
        return _written(spark, settings, table, rows.write.format("delta").mode("overwrite"))
    writer = _commented(rows, contract).write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    return _written(spark, settings, table, writer)


def append_objects(
    spark: SparkSession, settings: Settings, contract: Contract, objects: Sequence[dict[str, Any]]
) -> None:
    """Append a few rows given as JSON-ready objects, timestamps as ISO-8601 text."""
    rows = _commented(rows_of_objects(spark, contract, objects), contract)
    before = state(spark, settings, contract.table)[1]
    writer = rows.write.format("delta").mode("append").option("mergeSchema", "true")  # a column may be new
    writer.save(location(settings, contract.table))
    _compact_at_times(spark, settings, contract.table, before)


def rows_of_objects(spark: SparkSession, contract: Contract, objects: Sequence[dict[str, Any]]) -> DataFrame:
    """Return rows given as JSON-ready objects.

    They go to Spark as one literal: createDataFrame would start Python workers for them.
    """
    from pyspark.sql import functions as F

    schema = f"array<struct<{', '.join(f'`{column.name}`: {column.type}' for column in contract.stored)}>>"
    parsed = F.from_json(F.lit(json.dumps(objects)), schema, {"mode": "FAILFAST"})
    return spark.range(1).select(F.inline(parsed)).coalesce(1)


def _commented(rows: DataFrame, contract: Contract) -> DataFrame:
    """Return the columns of a contract with their comments, which a table that lacks one of them takes over."""
    from pyspark.sql import functions as F

    return rows.select(
        [F.col(f"`{one.name}`").alias(one.name, metadata={"comment": one.comment}) for one in contract.stored]
    )


def absent(settings: Settings, table: str) -> UsageError:
    """Return the error that a table is not there, which says the way on."""
    return UsageError(
        f"There is no table {table} in {settings.warehouse} yet: land files in {settings.landing} "
        f"and run `afterlog run`, or name another warehouse with --warehouse."
    )


def register(spark: SparkSession, settings: Settings, tables: Iterable[str]) -> None:
    """Make tables of the warehouse known to Spark SQL by their names, in a catalog that ends with the session.

    Raises UsageError: a table is not there.
    """
    from delta.tables import DeltaTable
    from pyspark.sql import functions as F  # noqa: F401  # a session is needed from here on

    for table in sorted(set(tables)):
        if not exists(spark, settings, table):
            raise absent(settings, table)
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {table.partition('.')[0]}")
        if spark.catalog.tableExists(table):
            # Perhaps it is another warehouse's. Dropping an external table drops its name only.
            spark.sql(f"DROP TABLE {table}")
        state(spark, settings, table)  # refuses what Afterlog cannot follow
        DeltaTable.createIfNotExists(spark).tableName(table).location(location(settings, table)).execute()


def _same(keys: Sequence[str], under: Mapping[str, str] | None = None) -> SparkColumn:
    from pyspark.sql import functions as F

    condition = F.lit(True)
    for key in keys:
        condition = condition & F.col(f"old.`{key}`").eqNullSafe(F.col(f"new.`{(under or {}).get(key, key)}`"))
    return condition


def _written(spark: SparkSession, settings: Settings, table: str, writer: DataFrameWriter, more: str = "") -> int:
    """Write, and return the rows written, as the commit itself counts them.

    The commit is known by a mark that it carries, whoever else commits. Delta does not commit an append without rows.
    """
    mark = f"afterlog-{secrets.token_hex(8)} {more}".rstrip()
    before = state(spark, settings, table)[1]
    writer.option("userMetadata", mark).save(location(settings, table))
    after = _compact_at_times(spark, settings, table, before)
    if is_local(settings.warehouse):
        log = Path(location(settings, table)) / "_delta_log"
        commits = (log / f"{version:020}.json" for version in range(before + 1, after + 1))
        actions = (line for commit in commits for line in commit.read_text(encoding="utf-8").splitlines())
        infos = [json.loads(action).get("commitInfo", {}) for action in actions]
    elif after > before:
        from delta.tables import DeltaTable

        history = DeltaTable.forPath(spark, location(settings, table)).history().where(f"version > {before}")
        infos = [row.asDict(recursive=True) for row in history.select("userMetadata", "operationMetrics").collect()]
    else:
        infos = []
    own = [info["operationMetrics"] for info in infos if info.get("userMetadata") == mark]
    if not own:
        return 0
    # What Delta carries over from files that it rewrites is output too.
    return int(own[0].get("numOutputRows", 0)) - int(own[0].get("numCopiedRows", 0))


def _compact_at_times(spark: SparkSession, settings: Settings, table: str, before: int) -> int:
    """Merge a table's small files, once in so many commits: each commit adds some, and every reader pays for each.

    The change feed shows nothing of it, and no file is deleted: who still reads older versions goes on. ``before`` is
    the version before what was just written; return the one after it.
    """
    after = state(spark, settings, table)[1]
    if after // COMPACTED_EVERY != before // COMPACTED_EVERY:
        from delta.exceptions import DeltaConcurrentModificationException
        from delta.tables import DeltaTable

        with contextlib.suppress(DeltaConcurrentModificationException):  # another writer; there will be another time
            DeltaTable.forPath(spark, location(settings, table)).optimize().executeCompaction()
    return after
