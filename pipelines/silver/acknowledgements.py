"""bronze.acknowledgements -> silver.acknowledgements: what a producer was told of each record, typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from expectations.silver.acknowledgements import CONTRACT, UNKNOWN_OFFSET, UNKNOWN_PARTITION
from pipelines.columns import contract as columns
from pipelines.columns import slices
from pipelines.settings import Settings
from pipelines.sources import json_lines

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RECORD = (
    "struct<topic: string, partition: int, offset: bigint, baseOffset: bigint, relativeOffset: bigint,"
    " timestamp: bigint, serializedKeySize: int, serializedValueSize: int, exception: string,"
    " headers: array<struct<key: string, value: binary>>, acknowledged_at: bigint, client_id: string>"
)
NO_OFFSET = UNKNOWN_OFFSET - 1
TRACEPARENT = "traceparent"
# W3C Trace Context: version, trace-id, parent-id, flags. Version 00 ends there; later versions can have more.
W3C = r"\A(?!ff|00-.{53})[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?\z"


def transform(bronze: DataFrame, settings: Settings) -> DataFrame:
    """Return one candidate for each bronze row, in the contract's columns; unreadable values are null."""
    fields = F.col("_object")
    readable = fields.isNotNull()
    read = json_lines.objects(bronze, RECORD).select(
        "*",
        fields["topic"].alias("topic"),
        F.when(readable, F.coalesce(fields["partition"], F.lit(UNKNOWN_PARTITION))).alias("partition"),
        F.when(readable, _offset(fields)).alias("offset"),
        fields["timestamp"].alias("timestamp_millis"),
        fields["acknowledged_at"].alias("acknowledged_at_millis"),
        columns.time_of_millis(fields["timestamp"]).alias("timestamp"),
        columns.time_of_millis(fields["acknowledged_at"]).alias("acknowledged_at"),
        fields["serializedKeySize"].alias("key_size"),
        fields["serializedValueSize"].alias("value_size"),
        fields["client_id"].alias("client_id"),
        F.nullif(fields["exception"], F.lit("")).alias("error"),
        F.when(readable, F.coalesce(fields["headers"], F.array())).alias("headers"),
    )
    outcome = (
        F.when(F.col("error").isNotNull(), "FAILED").when(F.col("offset") >= 0, "ACKNOWLEDGED").otherwise("UNKNOWN")
    )
    values = {
        "outcome": F.when(F.col("line_error").isNull(), outcome),
        "error_class": F.nullif(F.regexp_extract("error", r"\A([\w.$]+)(?::|\z)", 1), F.lit("")),
        "trace_id": _trace_id(settings.acknowledgements.trace_header),
        "slice": slices.of_acknowledgement(),
    }
    return read.select(*columns.of_contract(CONTRACT, values))


def _offset(told: Column) -> Column:
    """Return the offset, or KIP-512's sum of base and relative offset; with an unknown base the sum is unknown.

    A sum that is not an int64 becomes NO_OFFSET, which the contract refuses.
    """
    base = told["baseOffset"]
    total = F.try_add(base, F.coalesce(told["relativeOffset"], F.lit(0)))
    known = F.when((base == UNKNOWN_OFFSET) | base.isNull(), base).otherwise(F.coalesce(total, F.lit(NO_OFFSET)))
    return F.coalesce(told["offset"], known, F.lit(UNKNOWN_OFFSET).cast("bigint"))


def _trace_id(header: str) -> Column:
    """Return the trace of the last header of that name: the trace-id of a W3C traceparent, else the header's text.

    The header ``traceparent`` itself gives only a trace-id, never other text.
    """
    named = F.filter("headers", lambda one: one["key"] == header)
    value = F.try_element_at(named, F.lit(-1))["value"].cast("string")
    trace_id = F.nullif(F.regexp_extract(value, W3C, 1), F.lit(""))
    if header == TRACEPARENT:
        return trace_id
    return F.coalesce(trace_id, F.when(F.is_valid_utf8(value), F.nullif(value, F.lit(""))))
