"""What a cluster said of its settings -> bronze.cluster_settings: each line as it came, once."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from tests.testing.builders import landed_lines
from tests.testing.statements import topic

CONFIGS = "the line is text of kafka-configs --describe: `afterlog collect` asks for settings and lands them"


def test_a_statement_lands_once_for_each_moment(spark: SparkSession, settings: Settings) -> None:
    lines = (topic("orders", 0), topic("orders", 1), "Dynamic configs for topic orders are:")
    done, landed = landed_lines(spark, settings, "bronze.cluster_settings", *lines, lines[0])
    assert (done.read, done.accepted, done.duplicates) == (4, 3, 1)
    assert [landed[line]["error"] for line in lines] == [None, None, CONFIGS]
