"""Lines that are no JSON objects say what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pipelines.sources import json_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_text_of_kafkas_tools_is_told_what_to_land_instead(spark: SparkSession) -> None:
    dump = "the line is text of kafka-dump-log: land the log segment"
    configs = "the line is text of kafka-configs --describe: `afterlog collect` asks for settings and lands them"
    expected = {
        "Dumping /data/t-0/00000000000000000000.log\r": dump,
        "baseOffset: 0 lastOffset: 2 count: 3 baseSequence: 0": dump,
        "| offset: 0 CreateTime: 1795228875344 keySize: 1": dump,
        "Dynamic configs for topic t are:": configs,
        "All configs for broker 1 are:": configs,
        "  cleanup.policy=compact sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact}": configs,
        "offset: none": "the line is not a JSON object",
        "[1]": "the line is not a JSON object",
        '{"a": "Dumping /x"': "the line is not valid JSON",
    }
    lines = spark.createDataFrame([(line,) for line in expected], "line string")
    found = lines.select("line", json_lines.error(F.col("line").cast("binary")).alias("error")).collect()
    assert {row["line"]: row["error"] for row in found} == expected
