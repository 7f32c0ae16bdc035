"""Records of benchmarks, by Spark or line by line: acknowledgements, dead letters, pushes of topologies, settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tests.testing import requests, statements

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIRST_MILLISECOND = 1_795_228_800_000
"""The beginning of an hour."""


def acknowledgements(
    spark: SparkSession, count: int, partitions: int = 8, first: int = 0, milliseconds: float = 0.5
) -> DataFrame:
    """Return what a producer interceptor reports about records, over partitions in turn, so many milliseconds apart.

    With half a millisecond, seven million records are of one hour.
    """
    from pyspark.sql import functions as F

    number = F.col("id")
    trace = F.concat(
        F.lit("00-"), F.substring(F.sha2(number.cast("string"), 256), 1, 32), F.lit("-00f067aa0ba902b7-01")
    )
    at = F.lit(FIRST_MILLISECOND) + F.floor(number * milliseconds)
    return spark.range(first, first + count, 1, 4).select(
        F.lit("orders").alias("topic"),
        (number % partitions).cast("int").alias("partition"),
        F.floor(number / partitions).alias("offset"),
        at.alias("timestamp"),
        F.lit(None).cast("string").alias("exception"),
        F.array(F.struct(F.lit("traceparent").alias("key"), F.base64(trace).alias("value"))).alias("headers"),
        (at + 5).alias("acknowledged_at"),
        F.lit("checkout-1").alias("client_id"),
    )


def dead_letters(
    spark: SparkSession,
    count: int,
    step: int,
    partitions: int = 8,
    first: int = 0,
    milliseconds: float = 0.5,
) -> DataFrame:
    """Return dead-letter records, one for each ``step``-th acknowledgement, so many milliseconds apart."""
    from pyspark.sql import functions as F

    number, source = F.col("id"), F.col("id") * step
    headers = {
        "topic": F.lit("orders"),
        "partition": (source % partitions).cast("string"),
        "offset": F.floor(source / partitions).cast("string"),
        "group": F.lit("orders-workers"),
        "message": F.lit("Offset rejected by client."),
    }
    return spark.range(first, first + count, 1, 2).select(
        F.lit("dlq.orders").alias("topic"),
        F.lit(0).alias("partition"),
        number.alias("offset"),
        (F.lit(FIRST_MILLISECOND) + F.floor(number * milliseconds)).alias("timestamp"),
        F.lit(0).alias("timestampType"),
        F.lit(None).cast("string").alias("key"),
        F.base64(F.lit("payload")).alias("value"),
        F.array(
            *(
                F.struct(F.lit(f"__dlq.errors.{name}").alias("key"), F.base64(value).alias("value"))
                for name, value in headers.items()
            )
        ).alias("headers"),
    )


def pushed(group: int, epoch: int, nodes: int) -> Iterator[str]:
    """Yield the request-log lines of one epoch of a group: a heartbeat that asks for a topology, and its push."""
    at, name = 60.0 * epoch + group / 100, f"group-{group}"
    names = ["source", *(f"step-{step}-{epoch if step == 7 else 0}" for step in range(nodes - 2)), "sink"]
    topology = requests.chain(names, f"in-{group}", f"in-{group + 1}")
    yield requests.heartbeat(at, name, topology_epoch=epoch, required=True)
    yield requests.push(at + 1, name, epoch=epoch, topology=topology)


def stated(topic: int, times: int) -> str:
    """Return a line on a topic's settings, of which one has changed so many times."""
    return statements.topic(f"topic-{topic}", times + topic / 500, {"retention.ms": str(604_800_000 + times)})


def land_lines(records: DataFrame, directory: Path) -> None:
    """Write records as JSON lines into a directory below a feed's landing directory."""
    records.write.option("ignoreNullFields", "false").json(str(directory))
