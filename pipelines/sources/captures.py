"""Lines -> Kafka records: the capture form and kcat's JSON, read strictly; each line that cannot be read says why.

Spark's ``from_json`` parses a line of the capture form once, base64 included, and tells whether a value has a wrong
type. If one has, or may have, the line is parsed again into variants, which keep the types of JSON. They show whether
the line is kcat's JSON, or which error it has.
"""

from __future__ import annotations

from functools import cache, reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from expectations.rules import GREATEST_MILLIS
from pipelines.columns.contract import time_of_millis
from pipelines.sources import json_lines

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

GREATEST_PARTITION = 2**31 - 1

# `payload` and `tstype` are kcat's fields. kcat never writes true or false there, so they count as of a wrong type.
_CAPTURE = (
    "struct<topic: string, partition: int, offset: bigint, timestamp: bigint, timestampType: int, key: binary,"
    " value: binary, headers: array<struct<key: string, value: binary>>, payload: boolean, tstype: boolean>"
)
_FIELDS = (
    *("topic", "partition", "offset", "key", "headers"),
    *("timestamp", "timestampType", "value"),
    *("tstype", "ts", "payload", "key_error", "payload_error"),
)
_ANY = f"struct<{', '.join(f'{name}: variant' for name in _FIELDS)}>"
# from_json turns any JSON value into text where it expects text, so text that looks like another type is parsed again.
_LOOKS_UNQUOTED = r'\n(?:[-0-9\[{"]|(?:true|false)(?:\n|\z))'  # 1E400 becomes "Infinity", with its quotes
_HALF_SURROGATE_PAIR = (
    r"(?<!\\)(?:\\\\)*(?:\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F])"
)


def records(lines: DataFrame) -> DataFrame:
    """Return each line with its record: topic, partition, offset, timestamp, timestamp_type, key, value, headers.

    ``lossy_encoding`` marks kcat's JSON, whose strings cannot keep all bytes. If ``error`` is not null, all columns of
    the record are null. The steps are separate projections; Spark keeps them apart as long as later ones use a parsed
    line twice.
    """
    steps, columns = _projections()
    names = lines.columns
    for name, column in steps.items():
        lines = lines.withColumn(name, column)
    return lines.select(*names, *columns, "lossy_encoding", "error")


@cache
def _projections() -> tuple[dict[str, Column], list[Column]]:
    """Return the columns that each step adds, and a record's; cached, because building them takes many JVM calls."""
    plain, readable = F.col("_plain"), F.col("error").isNull()
    steps = {
        "_text": json_lines.text(F.col("line")),
        "_read": json_lines.parsed(F.col("_text"), _CAPTURE),
        "_plain": F.coalesce(_is_plain_capture(), F.lit(False)),
        "_again": F.when(~plain & F.col("line").isNotNull(), json_lines.parsed(F.col("_text"), _ANY)),
        "error": F.when(~plain, _error()),
        "lossy_encoding": ~plain & readable & F.coalesce(_is_kcat(), F.lit(False)),
    }
    captured, kcat = _captured(), _written_by_kcat()
    of_kcat = F.col("lossy_encoding")
    columns = [F.when(of_kcat, kcat[name]).when(readable, captured[name]).alias(name) for name in captured]
    return steps, columns


def _captured() -> dict[str, Column]:
    """Return the columns of a record in the capture form."""
    record = F.col("_read.line")[0]
    return {
        "topic": record["topic"],
        "partition": record["partition"],
        "offset": record["offset"],
        "timestamp": time_of_millis(record["timestamp"]),
        "timestamp_type": F.when(record["timestampType"] >= 0, record["timestampType"]),
        "key": record["key"],
        "value": record["value"],
        "headers": F.coalesce(record["headers"], F.array()),
    }


def _is_plain_capture() -> Column:
    """Tell whether the line is certainly in the capture form; null means no."""
    record = F.col("_read.line")[0]
    names = F.array_join(record["headers"]["key"], "\n", "{")  # a missing name counts as one that looks unquoted
    texts = F.concat_ws("\n", F.lit(""), record["topic"], names)
    return _all(
        F.col("_read.misread").isNull(),
        F.size("_read.line") == 2,
        record["topic"] != "",
        record["partition"] >= 0,
        record["offset"] >= 0,
        F.coalesce(record["timestamp"].between(-1, GREATEST_MILLIS), F.lit(True)),
        F.coalesce(record["timestampType"].between(-1, 1), F.lit(True)),
        ~texts.rlike(_LOOKS_UNQUOTED),
        F.is_valid_utf8("_text"),
        ~_has_half_surrogate_pair(),
    )


def _has_half_surrogate_pair() -> Column:
    return F.col("_text").contains("\\u") & F.col("_text").rlike(_HALF_SURROGATE_PAIR)


def _again(field: str) -> Column:
    return F.col("_again.line")[0][field]


def _kind(field: str) -> Column:
    """Return the type of a field in the JSON: STRING, BIGINT, VOID for null ...; null if the field does not exist."""
    return F.schema_of_variant(_again(field))


def _has(field: str) -> Column:
    return _again(field).isNotNull()


def _is_absent(field: str) -> Column:
    return F.coalesce(_kind(field) == "VOID", F.lit(True))


def _is_text(field: str) -> Column:
    return F.coalesce(_kind(field) == "STRING", F.lit(False))


def _text(field: str) -> Column:
    return F.try_variant_get(_again(field), "$", "string")


def _number(field: str, least: int, greatest: int) -> Column:
    """Return a field as bigint if it is a whole number in the range, else null."""
    number = F.when(_kind(field) == "BIGINT", F.try_variant_get(_again(field), "$", "bigint"))
    return F.when(number.between(least, greatest), number)


def _is_kcat() -> Column:
    return _has("payload") | _has("tstype")


def _error() -> Column:
    """Return the first reason why the line is not a record; null if it is one."""
    captured = F.col("_read.line")[0]
    is_kcat, headers = _is_kcat(), _kcat_headers()
    capture_headers = F.try_variant_get(_again("headers"), "$", "array<struct<key: variant, value: variant>>")
    well_formed = F.forall(
        capture_headers,
        lambda header: (
            F.coalesce(F.schema_of_variant(header["key"]) == "STRING", F.lit(False))
            & F.coalesce(F.schema_of_variant(header["value"]).isin("STRING", "VOID"), F.lit(True))
        ),
    )
    reasons = {
        "the line is not a JSON object": ~json_lines.begins_object(F.col("_text")),
        "the line is not valid JSON": F.col("_again.misread").isNotNull()
        | (F.size("_again.line") != 2)
        | F.col("_again.line").isNull(),
        "a string holds half a surrogate pair": _has_half_surrogate_pair(),
        "the line is neither in the capture form nor kcat's JSON": ~(
            _has("topic") | _has("partition") | _has("offset")
        ),
        "topic is not a string that names a topic": ~_is_text("topic") | (_text("topic") == ""),
        "partition is not a whole number from 0 to 2147483647": _number("partition", 0, GREATEST_PARTITION).isNull(),
        "offset is not a whole number from 0 to 9223372036854775807": _number("offset", 0, 2**63 - 1).isNull(),
        "the line mixes the capture form with kcat's JSON": is_kcat
        & (_has("value") | _has("timestamp") | _has("timestampType")),
        "kcat could not decode the key": is_kcat & ~_is_absent("key_error"),
        "kcat could not decode the payload": is_kcat & ~_is_absent("payload_error"),
        "tstype is none of create, logappend, unknown": is_kcat
        & ~_is_absent("tstype")
        & ~(_is_text("tstype") & _text("tstype").isin("create", "logappend", "unknown")),
        "ts is not a time in milliseconds": is_kcat & ~_is_absent("ts") & _number("ts", -1, GREATEST_MILLIS).isNull(),
        "headers is not a flat array of names and values": is_kcat & ~_is_absent("headers") & headers.isNull(),
        "the line is not UTF-8": ~is_kcat & ~F.is_valid_utf8("_text"),
        "timestamp is not a time in milliseconds": ~is_kcat
        & ~_is_absent("timestamp")
        & _number("timestamp", -1, GREATEST_MILLIS).isNull(),
        "timestampType is none of -1, 0, 1": ~is_kcat
        & ~_is_absent("timestampType")
        & _number("timestampType", -1, 1).isNull(),
        "key is not base64": ~is_kcat & ~_is_absent("key") & captured["key"].isNull(),
        "value is not base64": ~is_kcat & ~_is_absent("value") & captured["value"].isNull(),
        "headers is not an array of objects with a key and a value": ~is_kcat
        & ~_is_absent("headers")
        & ~F.coalesce(well_formed, F.lit(False)),
        "a header's value is not base64": ~is_kcat & F.col("_read.misread").isNotNull(),
    }
    error = F.when(F.col("line").isNull(), F.col("damage"))
    for reason, applies in reasons.items():
        error = error.when(applies, F.lit(reason))
    return error


def _written_by_kcat() -> dict[str, Column]:
    """Return the columns of a record in kcat's JSON; values that kcat decoded from Avro to JSON stay JSON text."""
    known = _text("tstype").isin("create", "logappend")
    return {
        "topic": _text("topic"),
        "partition": _number("partition", 0, GREATEST_PARTITION).cast("int"),
        "offset": _number("offset", 0, 2**63 - 1),
        "timestamp": F.when(known, time_of_millis(_number("ts", 0, GREATEST_MILLIS))),
        "timestamp_type": F.when(_text("tstype") == "create", 0).when(_text("tstype") == "logappend", 1),
        "key": _text("key").cast("binary"),
        "value": _text("payload").cast("binary"),
        "headers": F.coalesce(_kcat_headers(), F.array()),
    }


def _kcat_headers() -> Column:
    """Return kcat's flat array [name, value, name, value ...] as headers; null if it is not such an array."""
    flat = F.when(
        _kind("headers").isin("ARRAY<STRING>", "ARRAY<VOID>"),
        F.try_variant_get(_again("headers"), "$", "array<string>"),
    )
    names = F.filter(flat, lambda _, at: at % 2 == 0)
    values = F.filter(flat, lambda _, at: at % 2 == 1)
    complete = (F.size(flat) % 2 == 0) & F.forall(names, lambda name: name.isNotNull())
    headers = F.transform(
        names, lambda name, at: F.struct(name.alias("key"), F.get(values, at).cast("binary").alias("value"))
    )
    return F.when(complete, headers)


def _all(*conditions: Column) -> Column:
    return reduce(and_, conditions)
