"""The same jobs written by hand in Spark, without contract, gate, quarantine, counts or safety after a crash."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from expectations.contract import contract_of
from pipelines.settings import Settings
from pipelines.steps.refresh import select_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def landing_to_gold(spark: SparkSession, settings: Settings, warehouse: Path) -> None:
    """Land, decode, drop repeated grains and summarise into three tables, each read from the one before."""
    from pipelines.silver import dlq_records as silver

    write(landed(spark, settings), warehouse / "bronze")

    contract = contract_of("silver.dlq_records")
    decoded = silver.transform(spark.read.format("delta").load(str(warehouse / "bronze")), settings)
    typed = decoded.where("header_profile IS NOT NULL").dropDuplicates(list(contract.grain))
    write(typed.select([column.name for column in contract.stored]), warehouse / "silver")

    dead_lettered = spark.read.format("delta").load(str(warehouse / "silver"))
    no_markers = dead_lettered.selectExpr("cluster", "_bronze_id", "true AS is_control_marker").where("false")
    frames: dict[str, Any] = {"dlq_records": dead_lettered, "dlq_control_markers": no_markers}
    counts = spark.sql(select_of("gold.dlq_counts"), **frames)
    write(spark.sql(select_of("gold.dlq_summary"), dlq_counts=counts), warehouse / "gold")


def decode(spark: SparkSession, settings: Settings, out: Path) -> None:
    """Write the decoded rows of all lines, repeated ones included, as Parquet."""
    from pipelines.silver import dlq_records as silver

    silver.transform(landed(spark, settings), settings).write.parquet(str(out))


def landed(spark: SparkSession, settings: Settings) -> DataFrame:
    """Return a row of bronze for each landed line."""
    from pyspark.sql import functions as F

    from pipelines.bronze import dlq_records as bronze

    files = [str(path) for path in sorted(settings.landing_of("dlq").glob("*.jsonl"))]
    lines = spark.read.option("lineSep", "\n").text(files)
    lines = lines.select(
        F.col("_metadata.file_name").alias("_source"),
        F.col("value").cast("binary").alias("line"),
        F.lit(None).cast("string").alias("damage"),
    )
    return bronze.parse(lines, settings).withColumns({"_ingested_at": F.current_timestamp(), "_run_id": F.lit("1")})


def write(rows: DataFrame, path: Path) -> None:
    """Append rows to a Delta table."""
    rows.write.format("delta").mode("append").save(str(path))
