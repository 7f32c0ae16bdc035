"""landing/dlq, topics -> bronze.dlq_records: a row per line or record, its parts as bytes, or the line and an error."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from expectations.bronze.dlq_records import CONTRACT
from pipelines.columns import contract as columns
from pipelines.masked_landing import masked
from pipelines.settings import Settings
from pipelines.sources import captures

ordinary_form = captures.CAPTURE


def parse(lines: DataFrame, settings: Settings) -> DataFrame:
    """Return the contract's columns, without those that the run adds, for the lines of landed files.

    A row about a damaged file has no line: its ``_bronze_id`` comes from the file and from what is wrong with it.
    """
    about_the_file = F.concat_ws("\n", "_source", "damage").cast("binary")
    values = {
        "_bronze_id": F.sha2(F.coalesce(F.col("line"), about_the_file), 256),
        "cluster": F.lit(settings.cluster),
        "topic_id": F.lit(None).cast("string"),
        "masked": F.lit(None).cast("array<string>"),
    }
    return masked(captures.records(lines).select(*columns.of_contract(CONTRACT, values)), settings)


def parse_records(records: DataFrame, settings: Settings) -> DataFrame:
    """Return the same columns for the records of topics, which can always be read."""
    values = {
        "cluster": F.lit(settings.cluster),
        "lossy_encoding": F.lit(False),
        "form": F.lit(None).cast("string"),
        "raw": F.lit(None).cast("binary"),
        "error": F.lit(None).cast("string"),
        "masked": F.lit(None).cast("array<string>"),
    }
    return masked(records.select(*columns.of_contract(CONTRACT, values)), settings)
