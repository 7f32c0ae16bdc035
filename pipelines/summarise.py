"""Silver -> gold: compute again, with the table's SELECT, only the groups that new input touches."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

from expectations.contract import contract_of
from expectations.verdict import Verdict
from pipelines import lakehouse
from pipelines.errors import UsageError
from pipelines.progress import Batch
from pipelines.settings import ROOT, Settings
from pipelines.stage import Refresh, Stage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MOST_GROUPS = 5_000


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

        None where the batch holds no rows. ``rows`` are cached: the caller lets go of them.
        """
        from pyspark.sql import functions as F

        assert stage.refresh_by is not None
        refresh = stage.refresh_by
        group = F.expr(refresh.group).alias("_group")
        changed = reduce(
            lambda some, more: some.union(more),
            (
                lakehouse.changes(spark, settings, table, versions).select(group)
                for table, versions in batch.items()
                if (versions.start or 0) < versions.end
            ),
        )
        found = changed.groupBy("_group").agg(F.count("*").alias("_rows")).limit(MOST_GROUPS + 1).collect()
        if not found:
            return None
        touched = [row["_group"] for row in found]
        everything = len(touched) > MOST_GROUPS
        inputs = {
            table.partition(".")[2]: lakehouse.read(spark, settings, table, versions.end)
            for table, versions in batch.items()
        }
        if not everything:
            inputs = {name: rows.where(_among(refresh, touched)) for name, rows in inputs.items()}
        rows = spark.sql(select_of(stage.table), None, **inputs).persist()
        read = changed.count() if everything else sum(row["_rows"] for row in found)
        return cls(settings, stage, inputs, rows, None if everything else _predicate(refresh.column, touched), read)

    def gate(self, run_id: str) -> Verdict:
        """Check facts: the input's grain is unique, the fresh rows add up, the table's own rules hold."""
        from expectations import suite

        text = (ROOT / "sql" / "facts" / f"{self.stage.table.replace('.', '/')}.sql").read_text(encoding="utf-8")
        facts = self.rows.sparkSession.sql(text, **self.inputs, fresh=self.rows)
        rules = contract_of(self.stage.table).rules
        broken = self.rows.select(*[_count_broken(rule.broken(), rule.code) for rule in rules])
        found = {name: int(value or 0) for name, value in facts.crossJoin(broken).collect()[0].asDict().items()}
        return suite.gate_facts(found, self.stage.table, run_id=run_id, store=self.settings.reports() / "gx")

    def write(self) -> int:
        """Replace the touched groups in one commit; return how many rows they have now."""
        names = [column.name for column in contract_of(self.stage.table).stored]
        return lakehouse.replace_groups(
            self.settings, self.stage.table, self.rows.select(names).coalesce(1), self.replaces
        )


def select_of(table: str) -> str:
    """Return the SELECT that makes a gold table."""
    return (ROOT / "sql" / f"{table.replace('.', '/')}.sql").read_text(encoding="utf-8")


def _count_broken(broken: Column, code: str) -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(F.count_if(broken), F.lit(0)).alias(code)


def _among(refresh: Refresh, touched: list[Any]) -> Column:
    """Return the predicate on the input that holds in the touched groups, with bounds that let Delta skip files."""
    from pyspark.sql import functions as F

    group = F.expr(refresh.group)
    values = [value for value in touched if value is not None]
    among = group.isin(values) if values else F.lit(False)
    if values and refresh.spans is not None:
        spanned = F.col(refresh.spans[0])
        among = among & (spanned >= F.lit(min(values))) & (spanned < F.lit(max(values) + refresh.spans[1]))
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
