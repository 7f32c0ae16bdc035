"""Planned offsets of topics -> their records, read by Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from pipelines.kafka.offsets import OffsetRange
from pipelines.kafka.properties import properties
from pipelines.settings import Settings, Topics

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

GROUP_PREFIX = "afterlog"
SPLIT_FROM = 20_000  # offsets of a batch from which several tasks read one partition
FEW = 200  # offsets that a consumer in the driver reads, record by record

_PLAIN = """
  topic string, partition int, offset bigint, millis bigint, timestampType int, key binary, value binary,
  headers array<struct<key: string, value: binary>>
"""


def records(spark: SparkSession, settings: Settings, topics: Topics, spans: Sequence[OffsetRange]) -> DataFrame:
    """Return the records of spans, at most one span a partition; the read fails if offsets are gone.

    The columns are ``_source``, ``_bronze_id`` and those of bronze.dlq_records that hold the record.
    """
    from pyspark.sql import functions as F

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
        .option("kafkaConsumer.pollTimeoutMs", str(round(1000 * poll_seconds(settings))))
    )
    if sum(span.length for span in spans) >= SPLIT_FROM:
        reader = reader.option("minPartitions", str(spark.sparkContext.defaultParallelism))
    return _identified(reader.load().withColumn("millis", F.unix_millis("timestamp")), settings, spans)


def has_far_time(error: Exception) -> bool:
    """Tell whether a read failed because Spark cannot hold the timestamp of a record, such as one in nanoseconds."""
    text = str(error)
    return "java.lang.ArithmeticException" in text and "org.apache.spark.sql.kafka010" in text


def few_records(spark: SparkSession, settings: Settings, topics: Topics, spans: Sequence[OffsetRange]) -> DataFrame:
    """Return what ``records`` does, for few offsets: a consumer of this process reads them, whatever their timestamps.

    Raises Py4JError: offsets are gone, or the brokers do not answer.
    """
    found = list(_consumed(spark.sparkContext._jvm, settings, topics, spans))
    return _identified(spark.createDataFrame(found, _PLAIN), settings, spans)


def _consumed(jvm: Any, settings: Settings, topics: Topics, spans: Sequence[OffsetRange]) -> Iterator[tuple[Any, ...]]:
    """Yield the values of ``_PLAIN`` of each record."""
    config = {
        **properties(settings.kafka),
        "isolation.level": topics.isolation_level,
        "allow.auto.create.topics": "false",
        "enable.auto.commit": "false",
        "auto.offset.reset": "none",
    }
    java_properties = jvm.java.util.Properties()
    for name, value in config.items():
        java_properties.setProperty(name, value)
    longest = jvm.java.time.Duration.ofMillis(round(1000 * poll_seconds(settings)))
    deserializer = jvm.org.apache.kafka.common.serialization.ByteArrayDeserializer
    consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(java_properties, deserializer(), deserializer())
    try:
        for span in spans:
            topic_partition = jvm.org.apache.kafka.common.TopicPartition(span.topic, span.partition)
            consumer.assign(jvm.java.util.Collections.singletonList(topic_partition))
            consumer.seek(topic_partition, span.start)
            while (before := consumer.position(topic_partition)) < span.end:
                for record in consumer.poll(longest).records(topic_partition):
                    if record.offset() < span.end:
                        yield _values(span, record)
                if consumer.position(topic_partition) == before:
                    raise TimeoutError(f"org.apache.kafka.clients: nothing came from offset {before}")
    finally:
        consumer.close(jvm.java.time.Duration.ofSeconds(2))


def _values(span: OffsetRange, record: Any) -> tuple[Any, ...]:
    from py4j.java_gateway import get_field  # type: ignore[import-untyped]

    kind = get_field(record.timestampType(), "id")
    headers = [(header.key(), header.value()) for header in record.headers().toArray()]
    coordinate = (span.topic, span.partition, record.offset())
    return (*coordinate, record.timestamp(), kind, record.key(), record.value(), headers)


def poll_seconds(settings: Settings) -> float:
    """Return how long a read waits for a partition whose leader does not answer."""
    return 4 * settings.kafka.timeout_seconds


def _identified(read: DataFrame, settings: Settings, spans: Sequence[OffsetRange]) -> DataFrame:
    """Return records with their identity, and with times that are in range."""
    from pyspark.sql import functions as F

    from pipelines.columns.contract import time_of_millis

    ids = {span.topic: span.topic_id for span in spans}
    topic_id = F.from_json(F.lit(json.dumps(ids)), "map<string, string>")[F.col("topic")]
    identity = (F.lit(settings.cluster), topic_id, F.col("partition"), F.col("offset"), F.col("millis"))
    return read.select(
        F.concat(F.lit("kafka:"), "topic", F.lit("/"), topic_id, F.lit("/"), F.col("partition")).alias("_source"),
        F.sha2(F.concat_ws("\n", *(part.cast("string") for part in identity)).cast("binary"), 256).alias("_bronze_id"),
        "topic",
        topic_id.alias("topic_id"),
        "partition",
        "offset",
        time_of_millis(F.col("millis")).alias("timestamp"),
        F.when(F.col("timestampType") >= 0, F.col("timestampType")).alias("timestamp_type"),
        "key",
        "value",
        F.coalesce("headers", F.array()).alias("headers"),
    )


def size_of(records: DataFrame) -> Column:
    """Return the size of each record, or line, in bytes: of its key, its value and its headers."""
    from pyspark.sql import functions as F

    def size(content: str | Column) -> Column:
        return F.coalesce(F.octet_length(content), F.lit(0)).cast("bigint")

    sizes = [size(name) for name in ("key", "value", "line") if name in records.columns]
    if "headers" in records.columns:
        each = F.transform("headers", lambda header: size(header["key"]) + size(header["value"]))
        total = F.aggregate(each, F.lit(0).cast("bigint"), lambda sum_, size: sum_ + size)
        sizes.append(F.coalesce(total, F.lit(0)))
    return reduce(add, sizes)


def lines(records: DataFrame) -> DataFrame:
    """Return the values of records as lines: ``_source``, ``_bronze_id``, ``line``, ``damage``."""
    from pyspark.sql import functions as F

    nothing = F.when(F.col("value").isNull(), "the record has no value")
    return records.select("_source", "_bronze_id", F.col("value").alias("line"), nothing.alias("damage"))
