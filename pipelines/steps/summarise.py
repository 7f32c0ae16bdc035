"""Inputs -> summarised table: compute again, with the table's SELECT, only the groups that new input touches."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from expectations.contract import contract_of
from expectations.verdict import Verdict
from pipelines.columns.cached import cached
from pipelines.engines import choose
from pipelines.engines.choose import Engine, LeftToSpark
from pipelines.stage import Derive, Summarise
from pipelines.steps.by_duckdb import REPEATED, DuckSummary
from pipelines.steps.derive import derived, shares
from pipelines.steps.refresh import (
    REPLACED,
    Along,
    EachOf,
    OwnRows,
    Refresh,
    Span,
    facts_of,
    name_of,
    parameters_of,
    ranges_among,
    ranges_of,
    refresh_of,
    select_of,
)
from pipelines.warehouse import change_feed
from pipelines.warehouse.change_feed import Changes
from pipelines.warehouse.groups import EPOCH, MOST_GROUPS, Groups
from pipelines.warehouse.progress import Batch
from pipelines.warehouse.tables import ROWS_OF_A_FILE, Warehouse

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

_ROWS = "_rows"
log = logging.getLogger("afterlog")


@contextlib.contextmanager
def summary(warehouse: Warehouse, stage: Summarise, batch: dict[str, Batch]) -> Iterator[Summary | DuckSummary | None]:
    """Compute again the groups that a batch touches, by the engine that suits; DuckDB can leave them to Spark.

    Yield None if the batch changes nothing. What is yielded can be used until the block ends.
    """
    warehouse.take_later_columns(contract_of(stage.table))
    chosen = choose.of_refresh(warehouse, stage.table)
    with contextlib.ExitStack() as stack:
        made: Summary | DuckSummary | None = None
        if chosen.is_duckdb:
            try:
                made = stack.enter_context(DuckSummary.of(warehouse, stage, batch))
            except LeftToSpark as left:
                chosen = choose.left_to_spark(stage.table, left)
        if not chosen.is_duckdb:
            made = stack.enter_context(Summary.of(warehouse, stage, batch))
        yield replace(made, engine=chosen) if made is not None else None


@dataclass(frozen=True)
class Summary:
    """Fresh rows of a table, the inputs that they are made from, and the groups of the table's rows to replace."""

    warehouse: Warehouse
    stage: Summarise
    refresh: Refresh
    inputs: dict[str, Any]
    rows: DataFrame
    replaces: Groups | None
    read: int
    engine: Engine | None = None

    @classmethod
    @contextlib.contextmanager
    def of(cls, warehouse: Warehouse, stage: Summarise, batch: dict[str, Batch]) -> Iterator[Summary | None]:
        """Compute again the groups that a batch touches, from all rows of the inputs in these groups as of the batch.

        Yield None if the batch changes nothing. ``rows`` are cached until the block ends.
        """
        made = cls._made(warehouse, stage, batch)
        if made is None:
            yield None
            return
        with cached(made.rows) as rows:
            yield replace(made, rows=rows)

    @classmethod
    def _made(cls, warehouse: Warehouse, stage: Summarise, batch: dict[str, Batch]) -> Summary | None:
        from pyspark.sql import functions as F

        refresh = refresh_of(stage)
        news = [table for table, versions in batch.items() if (versions.start or 0) < versions.end]
        changes = {table: change_feed.changes(warehouse, table, batch[table]) for table in news}
        changed = [_touched(stage, refresh, feed) for feed in changes.values()]  # none if all inputs are empty
        touched, read = None, 0  # every group
        if changed and any(versions.start is not None for versions in batch.values()):
            counts = reduce(_followed_by, changed).groupBy("_group").agg(F.count_if("_is_first").alias("_rows"))
            asked = counts.limit(MOST_GROUPS + 1).select(_collectable(counts), "_rows")
            found = asked.collect()
            for feed in changes.values():
                if not isinstance(refresh.groups[feed.table], OwnRows):
                    feed.check(asked)
            if not found:
                return None
            if len(found) <= MOST_GROUPS:
                kind = counts.schema["_group"].dataType
                touched = [_collected(row["_group"], kind) for row in found]
                read = sum(row["_rows"] for row in found)
        chains = {table: group for table, group in refresh.groups.items() if isinstance(group, Along)}
        for table, chain in chains.items():
            if touched is not None:
                end = batch[table].end
                touched = _reached(warehouse, table, end, touched, chain.following, chain.group, chain.times)
        if touched is None:
            read = reduce(_followed_by, changed).where("_is_first").count() if changed else 0
            if not read and not warehouse.state(stage.table)[1]:
                return None  # no input rows, and no rows of the table to replace
        inputs = {}
        for table, versions in batch.items():
            rows = warehouse.read(table, versions.end)
            group = refresh.groups[table]
            if touched is not None and not isinstance(group, OwnRows):
                among: list[Any] | None = touched
                if isinstance(group, Along):
                    end = versions.end
                    among = _reached(warehouse, table, end, touched, group.group, group.following, group.times)
                if among is not None:
                    place = group.group if isinstance(group, Along) else group
                    rows = _among(warehouse, table, versions.end, rows, place, among, refresh.span)
            inputs[name_of(table)] = rows
        text = select_of(stage.table)
        if touched is not None:  # input rows of several groups also give rows of untouched groups: incomplete ones
            among = touched if None in touched or not shares(stage) else [*touched, None]
            text = f"SELECT * FROM (\n{text}\n) WHERE {Groups(refresh.column, tuple(among)).predicate()}"
        fresh = _selected(warehouse.spark, text, inputs, parameters_of(warehouse.settings))
        if touched is not None:
            for table, chain in chains.items():  # facts are about touched groups, without the rows that these lead to
                name = name_of(table)
                inputs[name] = inputs[name].where(_is_one_of(F.expr(chain.group), touched))
        if isinstance(stage, Derive):
            existing_rows = warehouse.read(stage.table)
            if touched is not None:
                existing_rows = existing_rows.where(_is_one_of(F.col(refresh.column), touched))
            fresh = derived(warehouse.spark, stage, refresh.column, fresh, existing_rows)
        replaces = None if touched is None else Groups(refresh.column, tuple(touched))
        return cls(warehouse, stage, refresh, inputs, fresh, replaces, read)

    def facts(self) -> tuple[dict[str, int], int]:
        """Return how many rows break what, and the number of fresh rows, which the same query counts.

        The facts are those of the table, the uniqueness of its grain, and the contract's rules.
        """
        from pyspark.sql import functions as F

        text = facts_of(self.stage.table)
        facts = _selected(self.rows.sparkSession, text, {**self.inputs, "fresh": self.rows}, {})
        contract = contract_of(self.stage.table)
        broken = [_count_broken(rule.broken(), rule.code) for rule in contract.rules]
        counted = self.rows.select(*broken, F.count(F.lit(1)).alias(_ROWS))
        parts = (facts, _repeated(self.rows, contract.grain), counted)
        found = {row["fact"]: row["count"] or 0 for row in reduce(_followed_by, map(_by_name, parts)).collect()}
        return found, found.pop(_ROWS)

    def gate(self, run_id: str) -> tuple[Verdict, int]:
        """Check the facts; return the verdict and the number of fresh rows."""
        from expectations import suite

        found, count = self.facts()
        store = self.warehouse.settings.reports() / "gx"
        return suite.gate_facts(found, self.stage.table, run_id=run_id, store=store), count

    def write(self, count: int) -> int:
        """Replace the touched groups by the ``count`` fresh rows in one commit; return how many rows were written."""
        contract = contract_of(self.stage.table)
        rows = self.rows.select([column.name for column in contract.stored])
        files = -(-count // ROWS_OF_A_FILE)
        if files > 1:  # sorted by group, so that a refresh of few groups rewrites few files
            column = self.refresh.column
            rows = rows.repartitionByRange(files, column).sortWithinPartitions(column)
        else:
            rows = rows.coalesce(1)
        return self.warehouse.replace_groups(self.stage.table, rows, self.replaces, contract, count)


def _repeated(rows: DataFrame, grain: Sequence[str]) -> DataFrame:
    """Return one row: how many values of a grain occur in several rows; null counts as a value.

    Values are compared by hashes of 128 bits, which take less memory than long names. ``xxhash64`` skips nulls, so
    whether a column is null is hashed as well.
    """
    from pyspark.sql import functions as F

    columns = [F.col(f"`{name}`") for name in grain]
    values = [*columns, *(column.isNull() for column in columns)]
    hashes = [F.xxhash64(F.lit(seed), *values).alias(f"_hash_{seed}") for seed in (0, 1)]
    repeated = rows.groupBy(*hashes).count().where(F.col("count") > 1)
    return repeated.agg(F.count(F.lit(1)).alias(REPEATED))


def _by_name(counts: DataFrame) -> DataFrame:
    """Return one row of counts as one row per count, with the count's name."""
    from pyspark.sql import functions as F

    pairs = [
        F.struct(F.lit(name).alias("fact"), F.col(f"`{name}`").cast("bigint").alias("count")) for name in counts.columns
    ]
    return counts.select(F.inline(F.array(*pairs)))


def _followed_by(some: DataFrame, more: DataFrame) -> DataFrame:
    return some.unionAll(more)


def _count_broken(broken: Column, code: str) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(F.count_if(broken), F.lit(0)).alias(code)


def _changed(feed: Changes, counted: Sequence[str]) -> DataFrame:
    """Return the changed rows of an input, as they were before and as they are now.

    If the input's groups are replaced as a whole, rows that were written back unchanged are left out. ``counted`` names
    the columns that count.
    """
    from pyspark.sql import functions as F

    changes = feed.rows
    if feed.batch.start is None or feed.table not in REPLACED:
        return changes
    sign = F.when(F.col("_change_type").isin("insert", "update_postimage"), 1).otherwise(-1)
    return changes.groupBy(*counted).agg(F.sum(sign).alias("_times")).where("_times <> 0")


def _collectable(counts: DataFrame) -> Column:
    """Return the group in a form that Python can hold: times as microseconds, as their conversion fails in year 1."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import TimestampType

    is_time = isinstance(counts.schema["_group"].dataType, TimestampType)
    return (F.unix_micros("_group") if is_time else F.col("_group")).alias("_group")


def _collected(group: Any, kind: DataType) -> Any:
    from pyspark.sql.types import TimestampType

    is_time = group is not None and isinstance(kind, TimestampType)
    return EPOCH + timedelta(microseconds=group) if is_time else group


def _touched(stage: Summarise, refresh: Refresh, feed: Changes) -> DataFrame:
    """Return one row per group that each changed row of an input touches, and whether it is the row's first group.

    If the groups are found in the table itself, the table's own rows count instead of the input's.
    """
    from pyspark.sql import functions as F

    group = refresh.groups[feed.table]
    columns = [name for name in feed.rows.columns if name != "_change_type"]
    changed = _changed(feed, refresh.counts(feed.table, columns))
    if isinstance(group, Along):
        return _grouped(changed, group.group)
    if not isinstance(group, OwnRows):
        return _grouped(changed, group)
    asked = changed.select(group.column).distinct().limit(MOST_GROUPS + 1)
    named = [row[0] for row in asked.collect()]
    feed.check(asked)
    is_few = len(named) <= MOST_GROUPS  # with more values take all rows of the condition
    _, version = feed.warehouse.state(stage.table)
    among = ranges_of([group.column], group.column, named, None) if is_few else []
    own = feed.warehouse.read(stage.table, version, among or None).where(group.condition)
    if is_few:
        own = own.where(_is_one_of(F.col(group.column), named))
    return own.select(F.col(refresh.column).alias("_group"), F.lit(True).alias("_is_first"))


def _grouped(rows: DataFrame, group: str | EachOf) -> DataFrame:
    """Return one row per group of each row, and whether it is the row's first group."""
    from pyspark.sql import functions as F

    expression = group.expression if isinstance(group, EachOf) else group
    if not _is_array(rows, expression):
        return rows.select(F.expr(expression).alias("_group"), F.lit(True).alias("_is_first"))
    exploded = rows.select(F.posexplode(F.expr(expression)).alias("_place", "_group"))
    return exploded.select("_group", (F.col("_place") == 0).alias("_is_first"))


def _is_array(rows: DataFrame, group: str) -> bool:
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType

    return isinstance(rows.select(F.expr(group)).schema[0].dataType, ArrayType)


def _selected(
    spark: SparkSession, text: str, frames: Mapping[str, DataFrame], parameters: Mapping[str, Any]
) -> DataFrame:
    """Return what a query selects; its text names DataFrames in braces.

    ``spark.sql(text, **frames)`` does the same, but takes a tenth of a small run: before it drops the views, it
    compares each of them with everything that is cached, such as each of Delta's snapshots.
    """
    views = {name: f"_{name}_{uuid4().hex}" for name in frames}
    catalog = spark._jsparkSession.sessionState().catalog()
    try:
        for name, frame in frames.items():
            frame.createTempView(views[name])
        return spark.sql(text.format(**views), args=dict(parameters))
    finally:
        for view in views.values():
            catalog.dropTempView(view)


def _among(
    warehouse: Warehouse,
    table: str,
    version: int,
    rows: DataFrame,
    group: str | EachOf,
    touched: list[Any],
    span: Span | None,
) -> DataFrame:
    """Return an input's rows in the touched groups, without the files that have none by their statistics."""
    from pyspark.sql import functions as F

    if isinstance(group, str) and _is_array(rows, group):
        return rows.where(F.exists(F.expr(group), lambda one: _is_one_of(one, touched)))
    if ranges := ranges_among(rows.columns, group, touched, span):
        rows = warehouse.read(table, version, ranges)
    if isinstance(group, EachOf):
        return rows.where(F.exists(F.expr(group.expression), lambda one: _is_one_of(one, touched)))
    return rows.where(_is_one_of(F.expr(group), touched))


def _reached(
    warehouse: Warehouse, table: str, version: int, groups: list[Any], place: str, leads_to: str, times: int
) -> list[Any] | None:
    """Return groups and those that an input's rows lead to from them, in so many steps; None for more than the most.

    ``place`` and ``leads_to`` are the expressions of the group that a row is in, and of the one that it leads to.
    """
    from pyspark.sql import functions as F

    reached, last = set(groups), list(groups)
    for _ in range(times):
        rows = _among(warehouse, table, version, warehouse.read(table, version), place, last, None)
        led = rows.select(F.expr(leads_to).alias("_group")).where("_group IS NOT NULL").distinct()
        last = [row["_group"] for row in led.limit(MOST_GROUPS + 1).collect() if row["_group"] not in reached]
        reached.update(last)
        if len(reached) > MOST_GROUPS:
            return None
        if not last:
            break
    return list(reached)


def _is_one_of(group: Column, touched: list[Any]) -> Column:
    from pyspark.sql import functions as F

    values = [value for value in touched if value is not None]
    if values and isinstance(values[0], datetime):  # a literal of a time before 1582 would be in another calendar
        among = F.unix_micros(group).isin([(value - EPOCH) // timedelta(microseconds=1) for value in values])
    elif values and isinstance(values[0], date):
        among = F.unix_date(group).isin([(value - EPOCH.date()).days for value in values])
    else:
        among = group.isin(values) if values else F.lit(False)
    return among | group.isNull() if None in touched else among
