"""A warehouse at a URI, where inserts are merges and Delta's own readers answer."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from tests.testing.builders import land, line, rows, run

BRONZE, SILVER = "bronze.dlq_records", "silver.dlq_records"


def test_a_batch_in_which_no_line_names_an_offset_is_quarantined(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    by_uri = settings.model_copy(update={"warehouse": (tmp_path / "uri").as_uri()})
    land(by_uri, {"a.jsonl": ["no JSON", "no JSON either"]})
    assert run(spark, by_uri, BRONZE, SILVER)[SILVER].quarantined == 2
    land(by_uri, {"b.jsonl": [line(1)]})
    assert run(spark, by_uri, BRONZE, SILVER)[SILVER].accepted == 1
    assert [row["dlq_offset"] for row in rows(spark, by_uri, SILVER)] == [1]
