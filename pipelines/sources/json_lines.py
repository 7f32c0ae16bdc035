"""Lines -> JSON objects: a feed of JSON lines, kept as it came, read strictly."""

from __future__ import annotations

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.columns.once import computed_once
from pipelines.settings import Settings
from pipelines.sources import kafka_tools, landing

_STRICT = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "misread",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "maxStringLen": str(2**31 - 1),
}
_BYTE_ORDER_MARK = "\ufeff"
UNKNOWN = "-1"  # what Kafka's clients write for a number that they do not know
LIBRDKAFKAS_UNKNOWN = "-1001"  # what librdkafka writes for an offset that it does not know
_NUMBER = re.compile(r"`?(?P<name>[\w.]+)`?: (?P<type>int|bigint)\b")


def text(line: Column) -> Column:
    """Return a line (binary) as text, without a byte order mark."""
    decoded = line.cast("string")
    return F.when(decoded.startswith(_BYTE_ORDER_MARK), F.substring(decoded, 2, 1 << 30)).otherwise(decoded)


def begins_object(json: Column) -> Column:
    """Tell whether JSON text is an object, if it is valid: white space can stand before it."""
    return F.ltrim(json, F.lit(" \t\r\n")).startswith("{")


def parsed(json: Column, record: str) -> Column:
    """Return JSON text as ``struct<line: array<record>, misread: string>``; the object is the first of two elements.

    ``misread`` is not null if a value is not of its type, or the text is not JSON. Fields that the type does not name
    are ignored. Text after the object is not ignored: the array then does not have two elements.
    """
    wrapped = F.concat(F.lit('{"line":['), json, F.lit(",null]}"))
    return F.from_json(wrapped, f"line array<{record}>, misread string", _STRICT)


def error(line: Column) -> Column:
    """Return why a line (binary) is not a JSON object; null if it is one."""
    json = text(line)
    no_object = (
        F.when(json.rlike(f"^(?:{kafka_tools.DUMP_LOG})"), "the line is text of kafka-dump-log: land the log segment")
        .when(
            json.rlike(f"^(?:{kafka_tools.CONFIGS})"),
            "the line is text of kafka-configs --describe: `afterlog collect` asks for settings and lands them",
        )
        .otherwise("the line is not a JSON object")
    )
    return (
        F.when(~F.is_valid_utf8(json), "the line is not UTF-8")
        .when(~begins_object(json), no_object)
        .when(F.try_parse_json(json).isNull(), "the line is not valid JSON")
    )


def landed(lines: DataFrame, settings: Settings) -> DataFrame:
    """Return the columns of a bronze table of JSON lines, without those that the run adds.

    Equal lines are one row, or rows of their own if the stage has ``lines_are_events``.
    """
    return lines.select(
        "_source",
        landing.line_id(lines).alias("_bronze_id"),
        F.lit(settings.cluster).alias("cluster"),
        "line",
        F.coalesce(F.col("damage"), error(F.col("line"))).alias("error"),
    )


def objects(bronze: DataFrame, record: str, *, numbers_as_clients_write_them: bool = False) -> DataFrame:
    """Return bronze rows with their object as ``_object``, of the given struct type, null if it cannot be read.

    ``line_error`` is bronze's error, or says that a field is not of its type. Numbers as clients write them can be
    text, and librdkafka's unknown is -1, as Kafka's; the record then has numbers (int, bigint) in its own struct only.
    """
    types = (
        {match["name"]: match["type"] for match in _NUMBER.finditer(record)} if numbers_as_clients_write_them else {}
    )
    json = F.when(F.col("error").isNull(), text(F.col("line")))
    as_read = _NUMBER.sub(r"`\g<name>`: string", record) if types else record
    read = bronze.withColumn("_read", computed_once(parsed(json, as_read)))
    misread = F.col("_read.misread").isNotNull() | (F.size("_read.line") != 2) | F.col("_read.line").isNull()
    typed = read_object = F.get("_read.line", F.lit(0))
    if types:
        numbers = F.struct(*(_number(read_object[name], type_).alias(name) for name, type_ in types.items()))
        read = read.withColumn("_numbers", computed_once(numbers))
        for name in types:
            number = F.col("_numbers")[name]
            misread = misread | (number.isNull() & _told(read_object[name]).isNotNull())
            typed = typed.withField(f"`{name}`", number)
    line_error = F.coalesce(F.col("error"), F.when(misread, "a field of the object is not of its type"))
    return (
        read.withColumn("line_error", line_error)
        .withColumn("_object", F.when(F.col("line_error").isNull(), typed))
        .drop("_read", "_numbers", "error")
    )


def _number(text: Column, type_: str) -> Column:
    """Return the number of a text, null if it tells none; text as a number is written back takes no pattern."""
    number = text.try_cast(type_)
    is_plain = (number.cast("string") == text) & (text != LIBRDKAFKAS_UNKNOWN)
    return F.when(is_plain, number).otherwise(_told(text).try_cast(type_))


def _told(number: Column) -> Column:
    """Return the text of a number; null if there is none, the empty text if it is not the text of a whole number."""
    trimmed = F.lower(F.trim(number))
    return (
        F.when(trimmed.isin("", "null"), None)
        .when(trimmed == LIBRDKAFKAS_UNKNOWN, UNKNOWN)
        .when(trimmed.rlike(r"\A-?[0-9]+\z"), trimmed)
        .when(trimmed.isNotNull(), "")
    )
