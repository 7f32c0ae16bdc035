"""What producers report of their records -> bronze.acknowledgements: equal lines are different events."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from tests.testing.builders import landed_lines, rows
from tests.testing.deliveries import acknowledgement

TABLE = "bronze.acknowledgements"


def test_each_line_is_an_event_with_its_bytes_or_its_error(spark: SparkSession, settings: Settings) -> None:
    without_offset = acknowledgement(offset=-1)
    lines = (without_offset, without_offset, acknowledgement(offset=1), "acks=all")
    done, landed = landed_lines(spark, settings, TABLE, *lines)
    assert (done.read, done.accepted, done.duplicates) == (4, 4, 0)
    assert [landed[line]["error"] for line in lines] == [None, None, None, "the line is not a JSON object"]
    assert len({row["_bronze_id"] for row in rows(spark, settings, TABLE)}) == 4
