"""Planned offsets of topics -> their records, read by Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipelines.kafka.offsets import OffsetRange
from pipelines.kafka.properties import properties
from pipelines.settings import Settings, Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GROUP_PREFIX = "afterlog"
SPLIT_FROM = 20_000  # offsets of a batch from which several tasks read one partition


def records(spark: SparkSession, settings: Settings, topics: Topics, spans: Sequence[OffsetRange]) -> DataFrame:
    """Return the records of spans, at most one span a partition; the read fails if offsets are gone.

    The columns are ``_source``, ``_bronze_id`` and those of bronze.dlq_records that hold the record.
    """
    from pyspark.sql import functions as F

    from pipelines.columns.contract import time_of_millis

    ids = {span.topic: span.topic_id for span in spans}
    assigned: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for span in spans:
        assigned.setdefault(span.topic, []).append(span.partition)
        starts.setdefault(span.topic, {})[str(span.partition)] = span.start
        ends.setdefault(span.topic, {})[str(span.partition)] = span.end
    reader = (
        spark.read.format("kafka")
        .options(**{f"kafka.{name}": value for name, value in properties(settings.kafka).items()})
        .option("kafka.isolation.level", topics.isolation_level)
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("kafka.allow.auto.create.topics", "false")
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "true")
        .option("groupIdPrefix", GROUP_PREFIX)
        .option("kafkaConsumer.pollTimeoutMs", str(round(4000 * settings.kafka.timeout_seconds)))
    )
    if sum(span.length for span in spans) >= SPLIT_FROM:
        reader = reader.option("minPartitions", str(spark.sparkContext.defaultParallelism))
    topic_id = F.from_json(F.lit(json.dumps(ids)), "map<string, string>")[F.col("topic")]
    millis = F.unix_millis("timestamp")
    place = (F.lit(settings.cluster), topic_id, F.col("partition"), F.col("offset"), millis)
    return reader.load().select(
        F.concat(F.lit("kafka:"), "topic", F.lit("/"), topic_id, F.lit("/"), F.col("partition")).alias("_source"),
        F.sha2(F.concat_ws("\n", *(part.cast("string") for part in place)).cast("binary"), 256).alias("_bronze_id"),
        "topic",
        topic_id.alias("topic_id"),
        "partition",
        "offset",
        time_of_millis(millis).alias("timestamp"),
        F.when(F.col("timestampType") >= 0, F.col("timestampType")).alias("timestamp_type"),
        "key",
        "value",
        F.coalesce("headers", F.array()).alias("headers"),
    )


def lines(records: DataFrame) -> DataFrame:
    """Return the values of records as lines: ``_source``, ``_bronze_id``, ``line``, ``damage``."""
    from pyspark.sql import functions as F

    nothing = F.when(F.col("value").isNull(), "the record has no value")
    return records.select("_source", "_bronze_id", F.col("value").alias("line"), nothing.alias("damage"))
