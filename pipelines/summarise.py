"""Silver -> gold: compute again, with the table's SELECT, only the groups that new input touches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from expectations.contract import contract_of
from expectations.verdict import Verdict
from pipelines import lakehouse
from pipelines.catalog import CATALOG
from pipelines.errors import UsageError
from pipelines.progress import Batch
from pipelines.settings import ROOT, Settings
from pipelines.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MOST_GROUPS = 5_000
ROWS_OF_A_FILE = 250_000


@dataclass(frozen=True)
class Summary:
    """Fresh rows of a table, the rows that they are made from, and the predicate on the table that they replace."""

    settings: Settings
    stage: Stage
    inputs: dict[str, Any]
    rows: DataFrame
    replaces: str | None
    read: int

    @classmethod
    def of(cls, spark: SparkSession, settings: Settings, stage: Stage, batch: dict[str, Batch]) -> Summary | None:
        """Compute again the groups of the batch's rows, from the whole of the inputs, as of the batch, in these groups.

        None where the batch changes nothing. ``rows`` are cached: the caller lets go of them.
        """
        from pyspark.sql import functions as F

        assert stage.refresh_by is not None
        refresh = stage.refresh_by
        news = [table for table, versions in batch.items() if (versions.start or 0) < versions.end]
        changed = reduce(
            lambda some, more: some.union(more),
            (_grouped(_changes(spark, settings, table, batch[table]), refresh.group_of(table)) for table in news),
        )
        touched = None  # every group
        if any(versions.start is not None for versions in batch.values()):
            counts = changed.groupBy("_group").agg(F.count_if("_is_first").alias("_rows"))
            found = counts.limit(MOST_GROUPS + 1).collect()
            if not found:
                return None
            if len(found) <= MOST_GROUPS:
                touched = [row["_group"] for row in found]
                read = sum(row["_rows"] for row in found)
        if touched is None:
            read = changed.where("_is_first").count()
            if not read:
                return None
        inputs = {}
        for table, versions in batch.items():
            rows = lakehouse.read(spark, settings, table, versions.end)
            if touched is not None:
                rows = rows.where(_among(rows, refresh.group_of(table), touched, refresh.spans))
            inputs[name_of(table)] = rows
        fresh = _selected(spark, select_of(stage.table), inputs)
        if touched is not None:  # a row of several groups gives rows of others too, which lack their other inputs
            fresh = fresh.where(_is_one_of(F.col(refresh.column), touched))
        replaces = None if touched is None else _predicate(refresh.column, touched)
        return cls(settings, stage, inputs, fresh.persist(), replaces, read)

    def gate(self, run_id: str) -> tuple[Verdict, int]:
        """Check facts: the input's grain is unique, the fresh rows add up, the table's own rules hold.

        Return how many fresh rows there are, too: the same query counts them.
        """
        from pyspark.sql import functions as F

        from expectations import suite

        text = (ROOT / "sql" / "facts" / f"{self.stage.table.replace('.', '/')}.sql").read_text(encoding="utf-8")
        facts = _selected(self.rows.sparkSession, text, {**self.inputs, "fresh": self.rows})
        rules = contract_of(self.stage.table).rules
        broken = [_count_broken(rule.broken(), rule.code) for rule in rules]
        counted = self.rows.select(*broken, F.count(F.lit(1)).alias("_rows"))
        found = {name: int(value or 0) for name, value in facts.crossJoin(counted).collect()[0].asDict().items()}
        count = found.pop("_rows")
        store = self.settings.reports() / "gx"
        return suite.gate_facts(found, self.stage.table, run_id=run_id, store=store), count

    def write(self, count: int) -> int:
        """Replace the touched groups by the ``count`` fresh rows in one commit; return how many rows they have now."""
        assert self.stage.refresh_by is not None
        rows = self.rows.select([column.name for column in contract_of(self.stage.table).stored])
        files = -(-count // ROWS_OF_A_FILE)
        if files > 1:  # in order of the groups, so that a refresh of a few rewrites a few files
            column = self.stage.refresh_by.column
            rows = rows.repartitionByRange(files, column).sortWithinPartitions(column)
        else:
            rows = rows.coalesce(1)
        return lakehouse.replace_groups(self.settings, self.stage.table, rows, self.replaces)


def select_of(table: str) -> str:
    """Return the SELECT that makes a gold table."""
    return (ROOT / "sql" / f"{table.replace('.', '/')}.sql").read_text(encoding="utf-8")


def _count_broken(broken: Column, code: str) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(F.count_if(broken), F.lit(0)).alias(code)


def name_of(table: str) -> str:
    """Return what a SELECT calls an input: ``x`` for ``silver.x``, ``quarantined_x`` for ``quarantine.x``."""
    layer, _, name = table.partition(".")
    return f"quarantined_{name}" if layer == "quarantine" else name


def _changes(spark: SparkSession, settings: Settings, table: str, versions: Batch) -> DataFrame:
    """Return the changed rows of an input, as they were and as they are.

    Of a table whose groups are replaced as a whole, the rows that came back as they were are left out.
    """
    from pyspark.sql import functions as F

    changes = lakehouse.changes(spark, settings, table, versions)
    if versions.start is None or table not in {stage.table for stage in CATALOG if stage.kind == "summarise"}:
        return changes
    sign = F.when(F.col("_change_type").isin("insert", "update_postimage"), 1).otherwise(-1)
    names = [name for name in changes.columns if name != "_change_type"]
    return changes.groupBy(*names).agg(F.sum(sign).alias("_times")).where("_times <> 0")


def _grouped(rows: DataFrame, group: str) -> DataFrame:
    """Return a row per group of each row, and whether it is the row's first."""
    from pyspark.sql import functions as F

    if not _is_array(rows, group):
        return rows.select(F.expr(group).alias("_group"), F.lit(True).alias("_is_first"))
    exploded = rows.select(F.posexplode(F.expr(group)).alias("_place", "_group"))
    return exploded.select("_group", (F.col("_place") == 0).alias("_is_first"))


def _is_array(rows: DataFrame, group: str) -> bool:
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType

    return isinstance(rows.select(F.expr(group)).schema[0].dataType, ArrayType)


def _selected(spark: SparkSession, text: str, frames: Mapping[str, DataFrame]) -> DataFrame:
    """Return what a query selects, which names DataFrames in braces.

    As ``spark.sql(text, **frames)``, but that compares all that is cached, each snapshot of Delta's, with each of them
    before it drops their views: a tenth of a small run.
    """
    views = {name: f"_{name}_{uuid4().hex}" for name in frames}
    catalog = spark._jsparkSession.sessionState().catalog()
    try:
        for name, frame in frames.items():
            frame.createTempView(views[name])
        return spark.sql(text.format(**views))
    finally:
        for view in views.values():
            catalog.dropTempView(view)


def _among(rows: DataFrame, group: str, touched: list[Any], spans: tuple[str, timedelta] | None) -> Column:
    """Return the predicate on an input that holds in the touched groups, with bounds that let Delta skip files."""
    from pyspark.sql import functions as F

    if _is_array(rows, group):
        return F.exists(F.expr(group), lambda one: _is_one_of(one, touched))
    values = [value for value in touched if value is not None]
    bounds = F.lit(True)
    if values and spans is not None:
        spanned = F.col(spans[0])
        bounds = (spanned >= F.lit(min(values))) & (spanned < F.lit(max(values) + spans[1]))
    return _is_one_of(F.expr(group), touched, bounds)


def _is_one_of(group: Column, touched: list[Any], bounds: Column | None = None) -> Column:
    from pyspark.sql import functions as F

    values = [value for value in touched if value is not None]
    among = group.isin(values) if values else F.lit(False)
    if bounds is not None:
        among = among & bounds
    return among | group.isNull() if None in touched else among


def _predicate(column: str, touched: list[Any]) -> str:
    """Return the groups as a predicate in SQL text, which is what Delta's replaceWhere takes; values are quoted."""
    values = ", ".join(_literal(value) for value in touched if value is not None)
    parts = [f"`{column}` IN ({values})"] if values else []
    parts += [f"`{column}` IS NULL"] if None in touched else []
    return " OR ".join(parts) or "false"


def _literal(value: Any) -> str:
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}Z'"
    if isinstance(value, str):
        escaped = "".join(unit if unit.isascii() and unit.isalnum() else f"\\U{ord(unit):08x}" for unit in value)
        return f"'{escaped}'"
    raise UsageError(f"A group of type {type(value).__name__} cannot be refreshed.")
