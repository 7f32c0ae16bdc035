"""A warehouse and its Delta tables: create, read, insert, replace, remove, register."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from expectations.contract import Column, Contract, later_columns
from expectations.provenance import ADDED_BY_THE_RUN
from pipelines import moments
from pipelines.errors import UsageError
from pipelines.stores.hadoop import Hadoop
from pipelines.warehouse import delta_log, few_rows, opened_tables, ranges, schema_mark
from pipelines.warehouse.at_once import CREATED_AT_ONCE, OPENED_AT_ONCE, at_once
from pipelines.warehouse.commits import Commits
from pipelines.warehouse.data_files import PLAIN_READER, DataFiles
from pipelines.warehouse.groups import Groups, runs
from pipelines.warehouse.ranges import Range
from pipelines.warehouse.schemas import schema_of

if TYPE_CHECKING:
    from deltalake import DeltaTable as OpenedTable
    from pyarrow import RecordBatchReader  # type: ignore[import-untyped]
    from pyarrow import Table as ArrowTable
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame


PROPERTIES = {
    # Stages read the change feeds of their inputs. Deletion vectors stay off, so that readers without Spark see the
    # right rows.
    "delta.enableChangeDataFeed": "true",
    "delta.enableDeletionVectors": "false",
}
ROWS_OF_A_FILE = 100_000  # of bronze and of tables that are sorted
CHECK_OF_REPLACED = "spark.databricks.delta.replaceWhere.constraintCheck.enabled"


@dataclass(frozen=True)
class Warehouse(Commits):
    """The tables under the directory or URI that the settings name: created, read, written, and named for Spark SQL.

    Where the store ``opens_tables``, tables are created, examined and opened without a session. Elsewhere all of it
    needs one.
    """

    def ensure(self, contract: Contract) -> bool:
        """Create a table if it does not exist; return whether it was created."""
        if self.exists(contract.table):
            return False
        if self.opens_tables:
            self._create_without_spark(contract)
            return True
        from delta.tables import DeltaTable

        builder = DeltaTable.createIfNotExists(self.spark).location(self.location(contract.table))
        for column in contract.stored:
            builder = builder.addColumn(column.name, column.type, comment=column.comment)
        for name, value in (PROPERTIES | schema_mark.PRESENT).items():
            builder = builder.property(name, value)
        with self._committing(contract.table):
            if isinstance(self.store, Hadoop):  # Delta creates no table where a crash left a log without commits
                log = self.log(contract.table)
                self.store.remove_empty(f"{log}/_staged_commits", log)
            builder.comment(contract.description).execute()
        return True

    def ensure_all(self, contracts: Iterable[Contract]) -> None:
        """Create the missing tables in parallel, because asking for a table and creating it is mostly waiting."""
        at_once(OPENED_AT_ONCE if self.store.is_shared else CREATED_AT_ONCE, self.ensure, contracts)

    def _create_without_spark(self, contract: Contract) -> None:
        """Write a table's first commit without Spark, which is ten times slower: it plans a command for each table."""
        said, log = self.store.checked(), self.log(contract.table)
        self.store.forget(log)
        # deltalake creates no table with a property that Delta does not know. Another writer may have created it.
        protocol = {"minReaderVersion": PLAIN_READER, "minWriterVersion": few_rows.PLAIN_WRITER}
        metadata = {
            "id": str(uuid4()),
            "description": contract.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema_of(contract).to_json(),
            "partitionColumns": [],
            "createdTime": moments.millis(),
            "configuration": PROPERTIES | schema_mark.PRESENT,
        }
        first = ({"protocol": protocol}, {"metaData": metadata})
        delta_log.write(self.store, log, 0, "CREATE TABLE", first, said, durable=False)
        # Delta's optional checksum file of the version: without it the first write to each table makes Spark compute
        # the state of the empty log.
        actions: dict[str, Any] = {}
        for action in self.commit(contract.table, 0):
            actions |= action
        known = {"metadata": actions["metaData"], "protocol": actions["protocol"], "allFiles": []}
        counts = {"tableSizeBytes": 0, "numFiles": 0, "numMetadata": 1, "numProtocol": 1}
        checksum = json.dumps({**counts, **known})
        self.store.write(f"{log}/{0:020}.crc", checksum.encode(), durable=False)

    def read(self, table: str, version: int | None = None, among: Sequence[Range] | None = None) -> DataFrame:
        """Return a table's rows within ranges (None: all), at the given version or at the latest.

        Where the store opens tables, rows are those of the version that is the latest now, also if the table changes.
        """
        if self.opens_tables and (files := self.data_files(table, version)) is not None:
            return files.rows(self.spark, among)
        from pyspark.sql import functions as F

        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        rows = reader.load(self.location(table))
        for column in self.lacking(table, rows.columns):
            rows = rows.withColumn(column.name, F.lit(None).cast(column.type))
        return rows if among is None else rows.where(ranges.within(among))

    def existing_rows(self, table: str, among: Sequence[Range] | None = None) -> DataFrame | None:
        """Return a table's rows within ranges (None: all); None if file statistics alone show that there are none.

        The DataFrame is fixed to the table's present version. Without a version it would also show the rows that this
        run writes.
        """
        if self.opens_tables and (files := self.data_files(table)) is not None:
            return files.rows(self.spark, among) if files.paths(among) else None
        _, version = self.state(table)
        if version == 0:  # created, never written
            return None
        rows = self.read(table, version, among)
        return rows if rows.inputFiles() else None

    def data_files(self, table: str, version: int | None = None) -> DataFiles | None:
        """Return the files of a table, at the given version or at the latest; None if only Delta can read it."""
        return self.files_of(table, self.opened_table(table, version))

    def files_of(self, table: str, opened: OpenedTable) -> DataFiles | None:
        """Return the files of an opened table; None if only Delta can read it."""
        lacking = self.lacking(table, (field.name for field in opened.schema().fields))
        return DataFiles.of(opened, self.store, self.table_path(table), lacking)

    @staticmethod
    def lacking(table: str, names: Iterable[str]) -> list[Column]:
        """Return the columns that came to a table later and are not among those that it has; readers see nulls."""
        there = {*names}
        return [column for column in later_columns(table) if column.name not in there]

    def take_later_columns(self, contract: Contract) -> None:
        """Give a table the columns that came to it later, with nulls in the rows that it has."""
        table = contract.table
        if not (later_columns(table) and self.lacking(table, there := self._stored_names(table))):
            return
        if (opened := self._plain(table)) is None:
            from pyspark.sql import functions as F

            columns = [F.lit(None).cast(column.type).alias(column.name) for column in contract.stored]
            self._add_columns(self.spark.range(0).select(columns), contract)
            return
        lacking = {column.name for column in self.lacking(table, there)}
        opened.alter.add_columns([field for field in schema_of(contract).fields if field.name in lacking])
        opened_tables.committed(self.store, self.table_path(table), opened)

    def _stored_names(self, table: str) -> list[str]:
        if self.opens_tables:
            return [field.name for field in self.opened_table(table).schema().fields]
        return list(self.spark.read.format("delta").load(self.location(table)).columns)

    def rows_of_objects(self, contract: Contract, objects: Sequence[dict[str, Any]]) -> DataFrame:
        """Return a DataFrame of rows given as JSON-ready objects.

        The objects go to Spark as one literal, because createDataFrame would start Python workers.
        """
        from pyspark.sql import functions as F

        schema = f"array<struct<{', '.join(f'`{column.name}`: {column.type}' for column in contract.stored)}>>"
        parsed = F.from_json(F.lit(json.dumps(objects)), schema, {"mode": "FAILFAST"})
        return self.spark.range(1).select(F.inline(parsed)).coalesce(1)

    def insert(
        self,
        rows: DataFrame | ArrowTable,
        contract: Contract,
        among: Sequence[Range] | None = None,
        mark: str = "",
        are_few: bool = False,
    ) -> int:
        """Insert rows that the caller knows to be missing from the contract's table; return how many were written.

        With a lock or a lease this is an append, which fails if another writer commits between. Elsewhere it is an
        insert-only, null-safe MERGE on the grain, so that Delta's conflict check arbitrates between writers. Columns
        that the table lacks are added, as files of an older version lack columns of a newer contract. The
        ranges must include every row of the table that has the grain of a new row. The user metadata of the commit
        contains the mark. ``are_few`` says that the rows surely fit into memory.
        """
        from pyspark.sql import DataFrame

        rows = rows.select([column.name for column in contract.stored])
        if not isinstance(rows, DataFrame):
            rows = few_rows.in_order(rows, contract.sorted_by)
            opened = self._plain(contract.table)
            if opened is not None and few_rows.has_columns_of(opened, contract):
                self._append(contract.table, opened, rows, mark)
                return int(rows.num_rows)
            rows = self.spark.createDataFrame(rows)
        if self.opens_tables:
            ordered = rows.sortWithinPartitions(contract.sorted_by) if contract.sorted_by else rows
            if are_few and (collected := self._collected(contract.table, ordered)) is not None:
                opened, few = collected
                self._append(contract.table, opened, few, mark)
                return int(few.num_rows)
            writer = ordered.write.format("delta").mode("append").option("mergeSchema", "true")
            most = ROWS_OF_A_FILE if contract.sorted_by else 0  # 0: no limit
            return self._written(contract.table, writer.option("maxRecordsPerFile", most), mark)
        from delta.tables import DeltaTable
        from pyspark.sql import functions as F

        before = self.state(contract.table)[1]
        self._add_columns(rows, contract)
        # Rename the new rows' columns: the ranges use plain column names, which must refer to the table.
        named = {column.name: f"_new_{column.name}" for column in contract.stored}
        condition = F.lit(True) if among is None else ranges.within(among)
        for name in contract.grain:
            condition = condition & F.col(name).eqNullSafe(F.col(named[name]))
        merge = (
            DeltaTable.forPath(self.spark, self.location(contract.table))
            .merge(rows.withColumnsRenamed(named), condition)
            .whenNotMatchedInsert(values={f"`{name}`": F.col(new) for name, new in named.items()})
        )
        with self._committing(contract.table, mark):
            merged = merge.execute()
        self._compact_at_times(contract.table, before)
        return int(merged.collect()[0]["num_inserted_rows"])

    def _add_columns(self, rows: DataFrame, contract: Contract) -> None:
        """Add the columns, and fields of structs, that a table lacks: a merge does not."""
        stored = self.spark.read.format("delta").load(self.location(contract.table)).schema
        there = {field.name: field.dataType.simpleString() for field in stored}
        if any(there.get(field.name) != field.dataType.simpleString() for field in rows.schema):
            writer = _commented(rows.limit(0), contract).write.format("delta").mode("append")
            with self._committing(contract.table):
                writer.option("mergeSchema", "true").save(self.location(contract.table))

    def append_objects(self, contract: Contract, objects: Sequence[dict[str, Any]]) -> None:
        """Append a few rows given as JSON-ready objects, timestamps as ISO-8601 text."""
        opened = self._plain(contract.table)
        if opened is not None and (few := few_rows.of_objects(opened, contract, objects)) is not None:
            self._append(contract.table, opened, few)
            return
        rows = _commented(self.rows_of_objects(contract, objects), contract)
        before = self.state(contract.table)[1]
        writer = rows.write.format("delta").mode("append").option("mergeSchema", "true")  # a column may be new
        with self._committing(contract.table):
            writer.save(self.location(contract.table))
        self._compact_at_times(contract.table, before)

    def replace_matching(
        self, table: str, rows: DataFrame, keys: Sequence[str], under: Mapping[str, str] | None = None
    ) -> int:
        """Replace the table's rows that have the same keys (null-safe) as given rows; return how many were replaced.

        If the replacement changes a key, ``under`` maps it to the column of the given rows that holds the old value. A
        row stays that of the run that first brought it.
        """
        from delta.tables import DeltaTable
        from pyspark.sql import functions as F

        replaced = DeltaTable.forPath(self.spark, self.location(table))
        names = [name for name in replaced.toDF().columns if name in rows.columns and name not in ADDED_BY_THE_RUN]
        merge = (
            replaced.alias("old")
            .merge(rows.alias("new"), _same(keys, under))
            .whenMatchedUpdate(set={f"`{name}`": F.col(f"new.`{name}`") for name in names})
        )
        with self._committing(table):
            merged = merge.execute()
        return int(merged.collect()[0]["num_updated_rows"])

    def remove_matching(self, table: str, rows: DataFrame, keys: Sequence[str]) -> int:
        """Remove the table's rows that have the same keys (null-safe) as given rows; return how many were removed."""
        from delta.tables import DeltaTable

        merge = (
            DeltaTable.forPath(self.spark, self.location(table))
            .alias("old")
            .merge(rows.alias("new"), _same(keys))
            .whenMatchedDelete()
        )
        with self._committing(table):
            merged = merge.execute()
        return int(merged.collect()[0]["num_deleted_rows"])

    def remove_where(self, table: str, condition: SparkColumn) -> None:
        """Remove the rows of a table that meet a condition."""
        from delta.tables import DeltaTable

        before = self.state(table)[1]
        with self._committing(table):
            DeltaTable.forPath(self.spark, self.location(table)).delete(condition)
        self._compact_at_times(table, before)

    def replace_groups(
        self,
        table: str,
        rows: DataFrame | ArrowTable | RecordBatchReader,
        groups: Groups | None,
        contract: Contract | None = None,
        count: int | None = None,
        are_added: bool = False,
    ) -> int:
        """Replace the rows of groups (None: all) by the given ones in one commit; return how many were given.

        If all rows are replaced and a contract is given, the columns of the table are replaced too if an earlier
        version of Afterlog created them with other names or types. ``count`` is the number of rows, if it is known.
        Rows of Arrow have the columns of the table, their number is given, and their groups have a
        ``deltalake_predicate``. If they ``are_added``, they are those of ``count`` rows that the groups lack.

        Raises UsageError: some rows are replaced, but the table has not the columns of its contract. Raises
        RuntimeError: a given row is in none of the groups.
        """
        from pyspark.sql import DataFrame

        predicate: str | None = groups.deltalake_predicate() if groups else None
        if not isinstance(rows, DataFrame):
            assert count is not None
            opened = self.opened_table(table)
            if are_added:
                self._append(table, opened, rows)
            else:
                self._replaced(table, opened, rows, predicate)
            return count
        are_few = count is not None and count <= few_rows.MOST_ROWS and (predicate is not None or not groups)
        if are_few and (collected := self._collected(table, rows)) is not None:
            opened, few = collected
            self._replaced(table, opened, few, predicate)
            return int(few.num_rows)
        if groups is not None:
            from pyspark.errors import AnalysisException

            predicate = groups.predicate()
            if not rows.where(f"NOT coalesce({predicate}, false)").isEmpty():
                raise RuntimeError(f"rows of {table} are in other groups than those that are replaced")
            if count is not None and (added := self._added(table, rows, groups, count)) is not None:
                self._append(table, *added)
                return count
            writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", predicate)
            # Delta would compare each row with each group, which takes minutes for many rows of many groups.
            self.spark.conf.set(CHECK_OF_REPLACED, "false")
            try:
                return self._written(table, writer)
            except AnalysisException as error:
                if contract is None or error.getCondition() != "DELTA_METADATA_MISMATCH":
                    raise
                raise UsageError(
                    f"{table} has other columns than its contract: `afterlog rebuild {table}` gives it the new columns."
                ) from None
            finally:
                self.spark.conf.unset(CHECK_OF_REPLACED)
        return self._overwritten(table, rows, contract)

    def _overwritten(self, table: str, rows: DataFrame, contract: Contract | None) -> int:
        """Replace all rows of a table, and its columns if a contract is given and they are others."""
        stored = [(field.name, field.dataType) for field in self.read(table).schema]
        if contract is None or stored == [(field.name, field.dataType) for field in rows.schema]:
            return self._written(table, rows.write.format("delta").mode("overwrite"))
        writer = _commented(rows, contract).write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        return self._written(table, writer)

    def _added(self, table: str, rows: DataFrame, groups: Groups, count: int) -> tuple[OpenedTable, ArrowTable] | None:
        """Return a table and the few of ``count`` given rows that its groups lack.

        Return None if they are not few, if a row of the groups is not given, or if only Spark can write the table.
        """
        from pyspark.sql import functions as F

        opened = self._plain_for(table, rows)
        if opened is None:
            return None
        among = [{groups.column: ends} for ends in runs(groups.values)] if None not in groups.values else None
        there = self.read(table, opened.version(), among).where(groups.predicate())
        if not 0 <= count - there.count() <= few_rows.MOST_ROWS:
            return None
        signed = rows.withColumn("_times", F.lit(1)).unionAll(there.withColumn("_times", F.lit(-1)))
        differing = signed.groupBy(*rows.columns).agg(F.sum("_times").alias("_times")).where("_times <> 0")
        few = few_rows.collected(differing.limit(few_rows.MOST_ROWS + 1))
        if few is None or few.num_rows > few_rows.MOST_ROWS or few["_times"].to_pylist() != [1] * few.num_rows:
            return None
        return opened, few.drop_columns(["_times"])

    def register(self, tables: Iterable[str]) -> None:
        """Register tables in Spark SQL under their names, in a catalog that ends with the session.

        Raises UsageError: a table does not exist, or its Delta log alone does not decide which commits count.
        """
        from delta.tables import DeltaTable

        spark = self.spark
        for table in sorted(set(tables)):
            if not self.exists(table):
                raise self.absent(table)
            spark.sql(f"CREATE DATABASE IF NOT EXISTS {table.partition('.')[0]}")
            if spark.catalog.tableExists(table):
                # The name may refer to another warehouse. Dropping an external table drops only its name.
                spark.sql(f"DROP TABLE {table}")
            self.state(table)  # raises UsageError if Afterlog cannot follow the table's commits
            DeltaTable.createIfNotExists(spark).tableName(table).location(self.location(table)).execute()


def quarantine_contract(contract: Contract) -> Contract:
    """Return the contract of a table's quarantine: its columns and its grain."""
    from expectations.contract import Contract

    name = contract.table.partition(".")[2]
    return Contract(
        table=f"quarantine.{name}",
        description=f"Rows that break the contract of {contract.table}, with every candidate column and why.",
        columns=contract.quarantine,
        grain=contract.identity,
    )


def _commented(rows: DataFrame, contract: Contract) -> DataFrame:
    """Return rows in a contract's columns with their comments: a table that lacks a column takes over its comment."""
    from pyspark.sql import functions as F

    return rows.select(
        [
            F.col(f"`{column.name}`").alias(column.name, metadata={"comment": column.comment})
            for column in contract.stored
        ]
    )


def _same(keys: Sequence[str], under: Mapping[str, str] | None = None) -> SparkColumn:
    from pyspark.sql import functions as F

    condition = F.lit(True)
    for key in keys:
        condition = condition & F.col(f"old.`{key}`").eqNullSafe(F.col(f"new.`{(under or {}).get(key, key)}`"))
    return condition
