"""Lines -> Kafka records: the capture form and the forms of other tools, read strictly; each bad line says why.

Spark's ``from_json`` parses a line of the capture form once, base64 included, and tells whether a value has a wrong
type. If one has, or may have, the line is parsed again into variants, which keep the types of JSON. They show in which
of ``FORMS`` the line is, or which error it has. Where kcat's JSON is not UTF-8, its strings are read as bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from expectations.rules import GREATEST_MILLIS
from pipelines.columns.contract import time_of_millis
from pipelines.sources import json_lines
from pipelines.sources.capture_fields import (
    ESCAPE,
    FIELDS,
    PAYLOAD,
    SCHEMA_IDS,
    Line,
    is_lost,
    is_null,
    is_string,
    payload,
    string_of,
    whole,
)
from pipelines.sources.unpacking import BINARY_FILES, NOT_PRINTED, PRINTED, UNPACKED

CAPTURE, SPARK, KCAT, RPK, CONSOLE = "capture", "spark", "kcat", "rpk", "console-consumer"
CONFLUENT, REDPANDA_CONSOLE, KAFBAT = "confluent", "redpanda-console", "kafbat"
FORMS = (CAPTURE, SPARK, KCAT, RPK, CONSOLE, CONFLUENT, REDPANDA_CONSOLE, KAFBAT, *BINARY_FILES)
"""The names of all forms that land."""

GREATEST_PARTITION = 2**31 - 1

_PARTS = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
_HEADERS = "array<struct<key: string, value: binary>>"
# `payload` and `tstype` are kcat's fields. kcat never writes true or false there, so they count as of a wrong type.
_CAPTURE = (
    "struct<topic: string, partition: int, offset: bigint, timestamp: {time}, timestampType: int, key: binary,"
    f" value: binary, headers: array<struct<key: string, value: binary>>, payload: boolean, tstype: boolean,"
    f" {UNPACKED}: string>"
)
_ANY = f"struct<{', '.join(f'{name}: variant' for name in FIELDS)}>"
_ANY_RENAMED = (
    f"struct<line: array<struct<{', '.join(f'{name}: variant' for name in FIELDS.values())}>>, misread: string>"
)
# from_json turns any JSON value into text where it expects text, so text that looks like another type is parsed again.
_LOOKS_UNQUOTED = r'\n(?:[-0-9\[{"]|(?:true|false)(?:\n|\z))'  # 1E400 becomes "Infinity", with its quotes
_HALF_SURROGATE_PAIR = (
    rf"{ESCAPE}(?:[dD][89abAB][0-9a-fA-F]{{2}}(?!\\u[dD][c-fC-F]))"
    r"|(?<!\\)(?:\\\\)*(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
_REPLACED = rf"(?i){ESCAPE}fffd"
# rpk writes the fields of its struct in this order, and no others.
_RPK = (
    r'(?s)\A\s*\{\s*"topic"\s*:.*"timestamp"\s*:\s*-?\d+\s*,\s*"partition"\s*:\s*\d+\s*,\s*"offset"\s*:\s*\d+\s*\}\s*\z'
)
_TOPIC = r"\A[A-Za-z0-9._-]*[A-Za-z][A-Za-z0-9._-]*\z"
_SUFFIXES = r"(?i)(?:\.(?:gz|zst|zstd|json|jsonl|ndjson|txt|log|out|tsv|csv|dump))+\z"
_NO_TOPIC = (
    r"(?i)\A(?:dlq|dlt|dump|data|exports?|files?|lines|out|output|records?|results?|stdout|test|console|consumer?|kafka|"
    r"(?:topic-?)?messages?.*)(?:[-_.]?\d+)?\z|\d{4}-?\d\d-?\d\d"
)

NOT_AN_OBJECT, NOT_JSON = "the line is not a JSON object", "the line is not valid JSON"
HALF_PAIR = "a string holds half a surrogate pair"
NOT_UTF_8 = "the line is not UTF-8"
MIXED_BYTES = "the line mixes bytes that are not UTF-8 with escapes of characters"
NO_FORM = "the line is in none of the forms that land: it has no topic, partition and offset"
TOPIC = "topic is not a string that names a topic"
PARTITION = "partition is not a whole number from 0 to 2147483647"
OFFSET = "offset is not a whole number from 0 to 9223372036854775807"
TIME = "timestamp is not a time"
MIXED_FORMS = "the line mixes the capture form with kcat's JSON"
UNNAMED = (
    "the line names no topic, and neither does its file: land it in a directory of the topic's name, dlq/<topic>/<file>"
)

_NAMED_BY_FILE = (CONSOLE, KAFBAT, REDPANDA_CONSOLE)  # forms without a field of the topic


def records(lines: DataFrame) -> DataFrame:
    """Return each line with its record: topic, partition, offset, timestamp, timestamp_type, key, value, headers.

    ``form`` names the form of the line, ``raw`` holds its bytes if this is not the capture form, and ``lossy_encoding``
    marks records that lost bytes before they landed. If ``error`` is not null, ``form`` and all columns of the record
    are null. The steps are separate projections; Spark keeps them apart as long as later ones use a parsed line twice.
    """
    steps, columns = _projections()
    names = lines.columns
    for name, column in steps.items():
        lines = lines.withColumn(name, column)
    return lines.select(*names, *columns)


@cache
def _projections() -> tuple[dict[str, Column], list[Column]]:
    """Return the columns that each step adds, and a record's; cached, because building them takes many JVM calls."""
    plain, line, read, said = F.col("_plain"), F.col("line"), F.col("_read"), F.col("_said")
    steps = {
        "_text": json_lines.text(line),
        "_read": json_lines.parsed(F.col("_text"), _CAPTURE.format(time="bigint")),
        "_plain": F.coalesce(_is_plain_capture(), F.lit(False)),
        "_said": F.when(~plain & line.isNotNull(), _said()),
    }
    captured = _captured("_read")
    form = F.when(plain, F.coalesce(_kind_of_file(read), F.lit(CAPTURE))).otherwise(said["form"])
    columns = [
        *(F.when(plain, captured[part]).otherwise(said[part]).alias(part) for part in _PARTS),
        form.alias("form"),
        F.coalesce(F.when(plain, _is_marked(read)).otherwise(said["lossy"]), F.lit(False)).alias("lossy_encoding"),
        F.when(~F.coalesce(form == CAPTURE, F.lit(False)), _own_bytes()).alias("raw"),
        F.when(~plain, F.coalesce(said["error"], F.col("damage"))).alias("error"),
    ]
    return steps, columns


def _said() -> Column:
    """Return what a line that is not plain says: a record's columns, ``form`` and ``lossy``, or ``error``.

    All of it is one expression that only such lines evaluate: a projection for each step would copy every line.
    """
    by_text = _CAPTURE.format(time="string")
    none = F.lit(None)

    def parsed(is_utf8: Column) -> Column:
        this = Line(is_utf8, none, none, none, none, none)
        return _with(
            json_lines.parsed(_json(this), _ANY).cast(_ANY_RENAMED), lambda again: timed(replace(this, again=again))
        )

    def timed(this: Line) -> Column:
        typed = F.when(this.is_text("timestamp"), json_lines.parsed(F.col("_text"), by_text))
        return _with(typed, lambda timed: formed(replace(this, timed=timed)))

    def formed(this: Line) -> Column:
        return _with(_form(this), lambda form: read(replace(this, form=form)))

    def read(this: Line) -> Column:
        return _with(_fields_of_form(this), lambda fields: headed(replace(this, fields=fields)))

    def headed(this: Line) -> Column:
        return _with(_headers(this), lambda headers: judged(replace(this, headers=headers)))

    def judged(this: Line) -> Column:
        return _with(_error(this), lambda error: answered(this, error))

    def answered(this: Line, error: Column) -> Column:
        kind = F.coalesce(_kind_of_file(F.col("_read")), _kind_of_file(this.timed), this.form)
        columns = _other(this) | {"form": kind, "lossy": F.coalesce(_is_lossy(this), F.lit(False))}
        return F.struct(
            error.alias("error"), *(F.when(error.isNull(), column).alias(name) for name, column in columns.items())
        )

    return _with(F.is_valid_utf8("_text"), parsed)


def _with(value: Column, body: Callable[[Column], Column]) -> Column:
    """Return what the body makes of a value that is computed once."""
    return F.transform(F.array(value), body)[0]


def _first(*cases: tuple[Column, Column | str]) -> Column:
    """Return the value of the first case that applies, else null.

    It is one flat CASE: where Spark looks for common parts of nested ones, its time doubles with each level.
    """
    (applies, value), *others = cases
    chosen = F.when(applies, value)
    for applies, value in others:
        chosen = chosen.when(applies, value)
    return chosen


def _form(this: Line) -> Column:
    """Return the first form that the line looks like; null if it looks like none."""
    confluent = this.text("timestampType").isin("CREATE_TIME", "LOG_APPEND_TIME", "NO_TIMESTAMP_TYPE")
    return _first(
        (this.text(UNPACKED).startswith(CONSOLE), CONSOLE),
        (this.has("payload") | this.has("tstype"), KCAT),
        (this.has("__confluent_index") | (this.is_text("timestampType") & confluent), CONFLUENT),
        (this.has("partitionID"), REDPANDA_CONSOLE),
        (this.has("Partition") & this.has("Offset"), KAFBAT),
        (~this.has("timestampType") & F.col("_text").rlike(_RPK), RPK),
        (this.timed.isNotNull(), SPARK),
        (this.has("topic") | this.has("partition") | this.has("offset"), CAPTURE),
    )


def _fields_of_form(this: Line) -> Column:
    """Return the variants that all forms have under some name: partition, offset, time, key and value."""

    def struct_of(*fields: str) -> Column:
        names = ("partition", "offset", "time", "key", "value")
        return F.struct(*(this.field(field).alias(name) for name, field in zip(names, fields, strict=True)))

    form = this.form
    return (
        F.when(form.isin(KCAT, CONSOLE), struct_of("partition", "offset", "ts", "key", "payload"))
        .when(form == KAFBAT, struct_of("Partition", "Offset", "Timestamp", "Key", "Value"))
        .when(form == REDPANDA_CONSOLE, struct_of("partitionID", "offset", "timestamp", "key", "value"))
        .otherwise(struct_of("partition", "offset", "timestamp", "key", "value"))
    )


def _headers(this: Line) -> Column:
    """Return the headers; null if they are not as the form has them."""
    form = this.form
    pairs = F.try_variant_get(
        this.field("headers"), "$", "array<struct<key: variant, value: variant, stringValue: variant>>"
    )

    def are_pairs(value: str) -> Column:
        return F.forall(
            pairs,
            lambda header: (
                F.coalesce(F.schema_of_variant(header["key"]) == "STRING", F.lit(False))
                & F.coalesce(F.schema_of_variant(header[value]).isin("STRING", "VOID"), F.lit(True))
            ),
        )

    def texts(value: str) -> Column:
        return F.transform(
            pairs, lambda header: _header(string_of(header["key"]), string_of(header[value]).cast("binary"))
        )

    def payloads() -> Column:
        said = F.try_variant_get(this.field("headers"), "$", f"array<struct<key: variant, value: {PAYLOAD}>>")
        return F.transform(said, lambda header: _header(string_of(header["key"]), payload(header["value"])))

    of_kafbat = F.map_entries(F.try_variant_get(this.field("Headers"), "$", "map<string, string>"))
    absent = F.when(form == KAFBAT, this.is_absent("Headers")).otherwise(this.is_absent("headers"))
    return _first(
        (absent, F.array().cast(_HEADERS)),
        (form.isin(KCAT, CONSOLE), _flat_headers(this)),
        (form == KAFBAT, F.transform(of_kafbat, lambda header: _header(header["key"], header["value"].cast("binary")))),
        (form == REDPANDA_CONSOLE, payloads()),
        ((form == CONFLUENT) & are_pairs("stringValue"), texts("stringValue")),
        ((form == RPK) & are_pairs("value"), texts("value")),
        ((form == SPARK) & are_pairs("value"), this.timed["line"][0]["headers"]),
        ((form == CAPTURE) & are_pairs("value"), F.col("_read.line")[0]["headers"]),
    )


def _header(name: Column, value: Column) -> Column:
    return F.struct(name.alias("key"), value.alias("value"))


def _error(this: Line) -> Column:
    """Return the first reason why the line is not a record; null if it is one."""
    form, fields = this.form, this.fields
    is_json = this.again["misread"].isNull() & (F.size(this.again["line"]) == 2)
    of_kcat, of_console = form == KCAT, form == CONSOLE
    has_base64 = form.isin(CAPTURE, SPARK)
    captured = F.when(form == SPARK, this.timed["line"][0]["key"]).otherwise(F.col("_read.line")[0]["key"])
    value = F.when(form == SPARK, this.timed["line"][0]["value"]).otherwise(F.col("_read.line")[0]["value"])
    misread = F.when(form == SPARK, this.timed["misread"]).otherwise(F.col("_read.misread"))
    wrong_headers = this.headers.isNull() & (~has_base64 | misread.isNull() | ~_are_named_texts(this))
    payload_error = this.text("payload_error")
    return _first(
        (~json_lines.begins_object(F.col("_text")), NOT_AN_OBJECT),
        (~F.coalesce(is_json, F.lit(False)), NOT_JSON),
        (_has_half_surrogate_pair(), HALF_PAIR),
        (of_console & payload_error.isin(*NOT_PRINTED), payload_error),
        (form.isNull(), NO_FORM),
        (of_kcat & this.mixes_bytes(), MIXED_BYTES),
        (~(of_kcat | of_console) & ~this.is_utf8, NOT_UTF_8),
        (form.isin(*_NAMED_BY_FILE) & _topic_of_file().isNull(), UNNAMED),
        (~form.isin(*_NAMED_BY_FILE) & (~this.is_text("topic") | (this.text("topic") == "")), TOPIC),
        (whole(fields["partition"], 0, GREATEST_PARTITION).isNull(), PARTITION),
        (whole(fields["offset"], 0, 2**63 - 1).isNull(), OFFSET),
        (of_kcat & (this.has("value") | this.has("timestamp") | this.has("timestampType")), MIXED_FORMS),
        (of_kcat & ~this.is_absent("key_error"), "kcat could not decode the key"),
        (of_kcat & ~this.is_absent("payload_error"), "kcat could not decode the payload"),
        (
            of_kcat
            & ~this.is_absent("tstype")
            & ~(this.is_text("tstype") & this.text("tstype").isin("create", "logappend", "unknown")),
            "tstype is none of create, logappend, unknown",
        ),
        (~is_null(fields["time"]) & this.millis().isNull(), TIME),
        (
            has_base64 & ~this.is_absent("timestampType") & whole(this.field("timestampType"), -1, 1).isNull(),
            "timestampType is none of -1, 0, 1",
        ),
        (has_base64 & ~this.is_absent("key") & captured.isNull(), "key is not base64"),
        (has_base64 & ~this.is_absent("value") & value.isNull(), "value is not base64"),
        ((form == RPK) & this.has("value_size"), "rpk left out the value, with --meta-only"),
        (
            (form == REDPANDA_CONSOLE)
            & (
                this.payload("key").isNull() & ~this.is_absent("key")
                | this.payload("value").isNull() & ~this.is_absent("value")
            ),
            "key or value is not an object with a payload",
        ),
        (wrong_headers & (of_kcat | of_console), "headers is not a flat array of names and values"),
        (wrong_headers & (form == KAFBAT), "Headers is not an object of names and texts"),
        (wrong_headers & (form == CONFLUENT), "headers is not an array of objects with a key and a stringValue"),
        (wrong_headers, "headers is not an array of objects with a key and a value"),
        (has_base64 & misread.isNotNull(), "a header's value is not base64"),
    )


def _are_named_texts(this: Line) -> Column:
    """Tell whether headers are objects with a key, and a value that is text or null."""
    pairs = F.try_variant_get(this.field("headers"), "$", "array<struct<key: variant, value: variant>>")
    are_texts = F.forall(
        pairs,
        lambda header: (
            F.coalesce(F.schema_of_variant(header["key"]) == "STRING", F.lit(False))
            & F.coalesce(F.schema_of_variant(header["value"]).isin("STRING", "VOID"), F.lit(True))
        ),
    )
    return F.coalesce(are_texts, F.lit(False))


def _value_of(this: Line, part: str) -> Column:
    """Return the key or the value of a record that is not plain."""
    form, said = this.form, string_of(this.fields[part])
    return (
        F.when(form == CAPTURE, F.col("_read.line")[0][part])
        .when(form == SPARK, this.timed["line"][0][part])
        .when(form == REDPANDA_CONSOLE, payload(this.payload(part)))
        .otherwise(this.bytes(said))
    )


def _other(this: Line) -> dict[str, Column]:
    """Return the columns of a record that is not plain."""
    fields, kind = this.fields, F.coalesce(this.text("tstype"), this.text("timestampType"))
    is_timed = ~this.form.isin(KCAT, CONSOLE) | this.text("tstype").isin("create", "logappend")
    by_number = F.when(this.form.isin(CAPTURE, SPARK), whole(this.field("timestampType"), 0, 1).cast("int"))
    topic = F.make_valid_utf8(this.bytes(this.text("topic")).cast("string"))
    return {
        "topic": F.when(this.form.isin(*_NAMED_BY_FILE), _topic_of_file()).otherwise(topic),
        "partition": whole(fields["partition"], 0, GREATEST_PARTITION).cast("int"),
        "offset": whole(fields["offset"], 0, 2**63 - 1),
        "timestamp": F.when(is_timed, time_of_millis(this.millis())),
        "timestamp_type": F.when(kind.isin("create", "CREATE_TIME"), 0)
        .when(kind.isin("logappend", "LOG_APPEND_TIME"), 1)
        .otherwise(by_number),
        "key": _value_of(this, "key"),
        "value": _value_of(this, "value"),
        "headers": this.headers,
    }


def _is_lossy(this: Line) -> Column:
    """Tell whether the record lost bytes, or may have: what a form never keeps, and U+FFFD in place of other bytes.

    rpk writes null as empty; objects of headers keep neither order nor duplicates; decoded values are no bytes.
    """
    form, fields = this.form, this.fields
    is_decoded = ~(
        (is_string(fields["key"]) | is_null(fields["key"])) & (is_string(fields["value"]) | is_null(fields["value"]))
    )
    is_renamed = F.exists(this.headers, lambda header: header["key"].contains("\ufffd"))
    is_unlike = is_decoded | is_renamed | _is_replaced() | reduce(or_, (this.has(name) for name in SCHEMA_IDS))
    of_headers = F.try_variant_get(this.field("headers"), "$", f"array<struct<value: {PAYLOAD}>>")
    return (
        F.when(form.isin(CAPTURE, SPARK), F.coalesce(_is_marked(this.timed), F.lit(False)))
        .when(form == RPK, F.lit(True))
        .when(form == CONSOLE, this.text(UNPACKED).endswith(" lossy"))
        .when(
            form == REDPANDA_CONSOLE,
            is_lost(this.payload("key"))
            | is_lost(this.payload("value"))
            | F.coalesce(F.exists(of_headers, lambda header: is_lost(header["value"])), F.lit(False)),
        )
        .when(form == KAFBAT, is_unlike | (F.size(this.headers) > 0))
        .otherwise(is_unlike)
    )


def _own_bytes() -> Column:
    """Return the bytes of the line, or those that a console consumer printed, which it quotes."""
    line = F.col("line")
    quoted = F.try_variant_get(F.try_parse_json(F.decode(line, "ISO-8859-1")), "$.printed", "string")
    unquoted = F.when(~quoted.rlike(r"[^\x00-\xff]"), F.encode(quoted, "ISO-8859-1"))
    return F.when(line.startswith(F.lit(PRINTED)), F.coalesce(unquoted, line)).otherwise(line)


def _json(this: Line) -> Column:
    """Return the text to parse; if it is not UTF-8, each byte as a character, unless escapes name others, too."""
    as_bytes = F.decode(F.col("_text").cast("binary"), "ISO-8859-1")
    return F.when(this.strings_are_bytes(), as_bytes).otherwise(F.col("_text"))


def _kind_of_file(read: Column) -> Column:
    """Return the format of the binary file that a line of the capture form was made from, else null."""
    said = read["line"][0][UNPACKED]
    kind = F.split_part(said, F.lit(" "), F.lit(1))
    return F.when(said.isNotNull() & kind.isin(*BINARY_FILES), kind)


def _is_marked(read: Column) -> Column:
    """Tell whether a binary file held values that are neither bytes nor text."""
    return read["line"][0][UNPACKED].isin(*(f"{kind} lossy" for kind in BINARY_FILES))


def _is_replaced() -> Column:
    """Tell whether the line holds U+FFFD, which other tools write for bytes that are not UTF-8."""
    return F.col("_text").contains("\ufffd") | F.col("_text").contains("\\u") & F.col("_text").rlike(_REPLACED)


def _captured(read: str) -> dict[str, Column]:
    """Return the columns of a record in the capture form, without its timestamp if this is text."""
    record = F.col(f"{read}.line")[0]
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
        F.coalesce(record["timestampType"].between(-1, 1), ~F.col("_text").rlike(_RPK)),
        ~texts.rlike(_LOOKS_UNQUOTED),
        F.is_valid_utf8("_text"),
        ~_has_half_surrogate_pair(),
    )


def _has_half_surrogate_pair() -> Column:
    return F.col("_text").contains("\\u") & F.col("_text").rlike(_HALF_SURROGATE_PAIR)


def _topic_of_file() -> Column:
    """Return the topic that the file's directory names, else the file itself; null if neither clearly does."""
    path = F.split("_source", "/")
    directories = F.filter(F.slice(path, 1, F.size(path) - 1), lambda name: name.rlike(_TOPIC))
    name = F.regexp_replace(F.element_at(path, -1), _SUFFIXES, "")
    of_name = F.when(name.rlike(_TOPIC) & ~name.rlike(_NO_TOPIC), name)
    return F.when(F.size(directories) == 1, directories[0]).when(F.size(directories) == 0, of_name)


def _flat_headers(this: Line) -> Column:
    """Return kcat's flat array [name, value, name, value ...] as headers; null if it is not such an array."""
    flat = F.when(
        this.kind("headers").isin("ARRAY<STRING>", "ARRAY<VOID>"),
        F.try_variant_get(this.field("headers"), "$", "array<string>"),
    )
    names = F.filter(flat, lambda _, at: at % 2 == 0)
    values = F.filter(flat, lambda _, at: at % 2 == 1)
    complete = (F.size(flat) % 2 == 0) & F.forall(names, lambda name: name.isNotNull())
    headers = F.transform(
        names,
        lambda name, at: _header(F.make_valid_utf8(this.bytes(name).cast("string")), this.bytes(F.get(values, at))),
    )
    return F.when(complete, headers)


def _all(*conditions: Column) -> Column:
    return reduce(and_, conditions)
