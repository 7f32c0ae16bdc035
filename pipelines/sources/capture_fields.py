"""A line of a capture, parsed into variants -> its fields as columns, and what types they have."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from expectations.rules import GREATEST_MILLIS
from pipelines.sources.unpacking import UNPACKED

SCHEMA_IDS = ("key_schema_id", "value_schema_id", "keySchemaId", "valueSchemaId")  # kcat's and kafkactl's
# The fields of all forms, each with its name in the code: Kafbat's differ from others only in their case.
FIELDS = {
    **{
        name: name for name in ("topic", "partition", "offset", "key", "headers", "timestamp", "timestampType", "value")
    },
    **{name: name for name in ("tstype", "ts", "payload", "key_error", "payload_error")},
    **{name: name for name in (*SCHEMA_IDS, "value_size", "partitionID", "__confluent_index", UNPACKED)},
    **{name: f"kafbat{name}" for name in ("Partition", "Offset", "Timestamp", "Key", "Value", "Headers")},
}
ESCAPE = r"(?<!\\)(?:\\\\)*\\u"
_NON_ASCII_ESCAPE = rf"{ESCAPE}(?!00[0-7])"
_ISO_TIME = r"\A\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d(?::?\d\d)?)\z"
PAYLOAD = "struct<payload: variant, rawPayload: string, isPayloadNull: boolean>"


@dataclass(frozen=True)
class Line:
    """What is known of a line that is not plain, the columns in the order in which they are found.

    ``again`` is the line parsed into variants, ``timed`` the capture form with a time as text, and ``fields`` has the
    fields of the line's form.
    """

    is_utf8: Column
    again: Column
    timed: Column
    form: Column
    fields: Column
    headers: Column

    def field(self, field: str) -> Column:
        """Return a field as the variant that the JSON has."""
        return self.again["line"][0][FIELDS[field]]

    def kind(self, field: str) -> Column:
        """Return the type of a field in the JSON: STRING, BIGINT, VOID for null ...; null if there is no such field."""
        return F.schema_of_variant(self.field(field))

    def has(self, field: str) -> Column:
        """Tell whether the line has a field, which may be null."""
        return self.field(field).isNotNull()

    def is_absent(self, field: str) -> Column:
        """Tell whether a field does not exist or is null."""
        return F.coalesce(self.kind(field) == "VOID", F.lit(True))

    def is_text(self, field: str) -> Column:
        """Tell whether a field is text."""
        return F.coalesce(self.kind(field) == "STRING", F.lit(False))

    def text(self, field: str) -> Column:
        """Return a field as text."""
        return F.try_variant_get(self.field(field), "$", "string")

    def payload(self, field: str) -> Column:
        """Return a key or value of Redpanda Console, with raw data or without (its save-messages-dialog.tsx)."""
        return F.try_variant_get(self.field(field), "$", PAYLOAD)

    def millis(self) -> Column:
        """Return the record's time in epoch milliseconds, given as such or in ISO-8601 with its zone; else null."""
        time = self.fields["time"]
        text = string_of(time)
        zoned = F.regexp_replace(text, r"([+-]\d\d)(\d\d)\z", "$1:$2")
        millis = F.unix_millis(F.when(is_string(time) & text.rlike(_ISO_TIME), zoned.try_cast("timestamp")))
        of_text = F.when(millis.between(-1, GREATEST_MILLIS), millis)
        return F.coalesce(whole(time, -1, GREATEST_MILLIS), of_text)

    def strings_are_bytes(self) -> Column:
        """Tell whether each character of a string stands for a byte."""
        return ~self.is_utf8 & ~self.mixes_bytes()

    def mixes_bytes(self) -> Column:
        """Tell whether text that is not UTF-8 has escapes of characters beyond ASCII, which kcat does not write."""
        return ~self.is_utf8 & F.col("_text").contains("\\u") & F.col("_text").rlike(_NON_ASCII_ESCAPE)

    def bytes(self, text: Column) -> Column:
        """Return the bytes of a string of the line."""
        return F.when(self.strings_are_bytes(), F.encode(text, "ISO-8859-1")).otherwise(text.cast("binary"))


def string_of(variant: Column) -> Column:
    """Return a variant as text."""
    return F.try_variant_get(variant, "$", "string")


def is_string(variant: Column) -> Column:
    """Tell whether a variant is text."""
    return F.coalesce(F.schema_of_variant(variant) == "STRING", F.lit(False))


def is_null(variant: Column) -> Column:
    """Tell whether a variant does not exist or is null."""
    return F.coalesce(F.schema_of_variant(variant) == "VOID", F.lit(True))


def whole(variant: Column, least: int, greatest: int) -> Column:
    """Return a whole number in the range as bigint, else null."""
    number = F.when(F.schema_of_variant(variant) == "BIGINT", F.try_variant_get(variant, "$", "bigint"))
    return F.when(number.between(least, greatest), number)


def payload(said: Column) -> Column:
    """Return the bytes of a payload: its raw data, else its text."""
    raw = F.try_to_binary(said["rawPayload"], F.lit("base64"))
    is_null = F.coalesce(said["isPayloadNull"], F.lit(False))
    return F.when(~is_null, F.coalesce(raw, string_of(said["payload"]).cast("binary")))


def is_lost(said: Column) -> Column:
    """Tell whether a payload is there without its raw data, as text that lost bytes or as decoded JSON."""
    is_there = said.isNotNull() & ~F.coalesce(said["isPayloadNull"], F.lit(False))
    has_raw = F.try_to_binary(said["rawPayload"], F.lit("base64")).isNotNull()
    is_whole = is_string(said["payload"]) & ~F.coalesce(string_of(said["payload"]).contains("\ufffd"), F.lit(False))
    return is_there & ~has_raw & ~is_whole
