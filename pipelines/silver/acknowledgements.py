"""bronze.acknowledgements -> silver.acknowledgements: what a producer was told of each record, typed."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from expectations import kafka_errors
from expectations.silver.acknowledgements import CONTRACT, UNKNOWN_OFFSET, UNKNOWN_PARTITION, UNKNOWN_SIZE
from pipelines.columns import contract as columns
from pipelines.columns import slices
from pipelines.settings import Settings
from pipelines.sources import json_lines

RECORD = (
    "struct<topic: string, partition: int, offset: bigint, baseOffset: bigint, relativeOffset: bigint,"
    " timestamp: bigint, serializedKeySize: int, serializedValueSize: int, exception: string,"
    " errorCode: int, headers: array<struct<key: string, value: binary>>, acknowledged_at: bigint, client_id: string>"
)
NO_OFFSET = UNKNOWN_OFFSET - 1
NO_ERROR = ("", "null", "none")
TRACEPARENT = "traceparent"
# W3C Trace Context: version, trace-id, parent-id, flags. Version 00 ends there; later versions can have more.
W3C = r"\A(?!ff|00-.{53})[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?\z"


def transform(bronze: DataFrame, settings: Settings) -> DataFrame:
    """Return one candidate for each bronze row, in the contract's columns; unreadable values are null."""
    fields = F.col("_object")
    readable = fields.isNotNull()

    def number(name: str, unknown: int) -> Column:
        return F.when(readable, F.coalesce(fields[name], F.lit(unknown)))

    read = json_lines.objects(bronze, RECORD, numbers_as_clients_write_them=True).select(
        "*",
        fields["topic"].alias("topic"),
        number("partition", UNKNOWN_PARTITION).alias("partition"),
        F.when(readable, _offset(fields)).alias("offset"),
        fields["timestamp"].alias("timestamp_millis"),
        F.nullif(fields["acknowledged_at"], F.lit(-1)).alias("acknowledged_at_millis"),
        columns.time_of_millis(fields["timestamp"]).alias("timestamp"),
        columns.time_of_millis(fields["acknowledged_at"]).alias("acknowledged_at"),
        number("serializedKeySize", UNKNOWN_SIZE).alias("key_size"),
        number("serializedValueSize", UNKNOWN_SIZE).alias("value_size"),
        fields["client_id"].alias("client_id"),
        _error(fields).alias("error"),
        F.when(readable, F.coalesce(fields["headers"], F.array())).alias("headers"),
    )
    outcome = (
        F.when(F.col("error").isNotNull(), F.when(_rules_a_write_out(), "FAILED").otherwise("UNKNOWN"))
        .when(F.col("offset") >= 0, "ACKNOWLEDGED")
        .otherwise("UNKNOWN")
    )
    values = {
        "outcome": F.when(F.col("line_error").isNull(), outcome),
        "error_class": F.nullif(F.regexp_extract("error", r"\A([\w.$]+)(?::|\z)", 1), F.lit("")),
        "trace_id": _trace_id(settings.acknowledgements.trace_header),
        "slice": slices.of_acknowledgement(),
    }
    return read.select(*columns.of_contract(CONTRACT, values))


def _error(value: Column) -> Column:
    """Return the exception, or what the error code means where there is no exception; null on success."""
    text, code = value["exception"], F.nullif(value["errorCode"], F.lit(0))
    names = F.create_map(*(F.lit(part) for pair in kafka_errors.NAMES.items() for part in pair))
    name = F.coalesce(F.try_element_at(names, code), F.concat(F.lit("error code "), code.cast("string")))
    return F.when(~F.lower(F.trim(text)).isin(*NO_ERROR), text).otherwise(name)


def _rules_a_write_out() -> Column:
    """Tell whether the error proves that the record was not written; else that is open.

    A client that says -1 for the partition had not assigned the record to one, so did not send it; one that says
    nothing may have. Else the first name in the error's text that does not only wrap another decides, or the code.
    """
    error = F.col("error")
    names = F.filter(
        F.transform(F.split(error, kafka_errors.BETWEEN_NAMES), _spelled),
        lambda name: ~name.isin(*kafka_errors.WRAPPERS),
    )
    return F.coalesce(
        (F.col("_object.partition") == UNKNOWN_PARTITION)
        | error.rlike(kafka_errors.NEVER_SENT)
        | F.get(names, F.lit(0)).isin(*kafka_errors.RULE_A_WRITE_OUT)
        | F.col("_object.errorCode").isin(*kafka_errors.REFUSALS),
        F.lit(False),
    )


def _spelled(name: Column) -> Column:
    """Return a name or text of an error as ``kafka_errors.spelled`` does."""
    bare = F.upper(F.regexp_replace(name, kafka_errors.PACKAGE, ""))
    return F.regexp_replace(F.regexp_replace(bare, kafka_errors.NOT_SPELLED, ""), kafka_errors.AROUND, "")


def _offset(value: Column) -> Column:
    """Return the offset, or KIP-512's sum of base and relative offset; with an unknown base the sum is unknown.

    A sum that is not an int64 becomes NO_OFFSET, which the contract refuses.
    """
    base = value["baseOffset"]
    total = F.try_add(base, F.greatest(F.coalesce(value["relativeOffset"], F.lit(0)), F.lit(0)))
    known = F.when((base == UNKNOWN_OFFSET) | base.isNull(), base).otherwise(F.coalesce(total, F.lit(NO_OFFSET)))
    return F.coalesce(value["offset"], known, F.lit(UNKNOWN_OFFSET).cast("bigint"))


def _trace_id(header: str) -> Column:
    """Return the trace of the last header of that name: the trace-id of a W3C traceparent, else the header's text.

    The header ``traceparent`` itself gives only a trace-id, never other text.
    """
    named = F.filter("headers", lambda pair: pair["key"] == header)
    value = F.try_element_at(named, F.lit(-1))["value"].cast("string")
    trace_id = F.nullif(F.regexp_extract(value, W3C, 1), F.lit(""))
    if header == TRACEPARENT:
        return trace_id
    return F.coalesce(trace_id, F.when(F.is_valid_utf8(value), F.nullif(value, F.lit(""))))
