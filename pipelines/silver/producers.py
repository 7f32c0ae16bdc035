"""bronze.producers -> silver.producers: how a producer asks for idempotence, and what its topic and brokers support."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from expectations.silver.producers import CONTRACT, VERSION
from pipelines.columns import contract as columns
from pipelines.settings import Settings
from pipelines.sources import json_lines

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RECORD = (
    "struct<client_id: string, topic: string, client_version: string, enable_idempotence: string,"
    " broker_version: string, message_format_version: string, producer_id: bigint, stated_at: bigint>"
)
MODES = {"true": "required", "false": "off"}  # KIP-185: what a 1.0.0 producer makes of the old settings
KNOWN_SINCE = {(0, 11): tuple(MODES), (1, 0): ("required", "requested", "off")}  # values of enable.idempotence


def transform(bronze: DataFrame, settings: Settings) -> DataFrame:
    """Return one candidate for each bronze row, in the contract's columns; unreadable values are null."""
    stated = F.col("_object")
    read = json_lines.objects(bronze, RECORD).select(
        "*",
        *(stated[name].alias(name) for name in ("client_id", "topic", "producer_id")),
        *(
            _trimmed(stated[name]).alias(name)
            for name in ("client_version", "broker_version", "message_format_version")
        ),
        F.lower(_trimmed(stated["enable_idempotence"])).alias("enable_idempotence"),
        stated["stated_at"].alias("stated_at_millis"),
    )
    mode = F.col("enable_idempotence")
    values = {
        "requested_mode": F.when(mode == "true", MODES["true"]).when(mode == "false", MODES["false"]).otherwise(mode),
        "client_knows_mode": _knows(F.col("client_version"), mode),
        "message_format": _message_format(F.col("message_format_version")),
        "broker_has_idempotence": _since_0_11(F.col("broker_version")),
        "broker_tells_format": _since_0_11(F.col("broker_version"))
        & ~F.col("broker_version").rlike(r"\A0\.11(?:\D|\z)"),
        "stated_at": columns.time_of_millis(F.col("stated_at_millis")),
    }
    return read.select(*columns.of_contract(CONTRACT, values))


def _trimmed(text: Column) -> Column:
    return F.nullif(F.trim(text), F.lit(""))


def _message_format(version: Column) -> Column:
    """Return the magic (0, 1, 2) of a message format, given as the magic or as a Kafka version that has the format."""
    magic = F.regexp_extract(version, r"\A[vV]?([012])\z", 1)
    is_v1 = version.rlike(r"\A0\.10(?:\D|\z)")
    by_version = F.when(_since_0_11(version), 2).when(is_v1, 1).otherwise(0)
    return F.when(magic != "", magic.try_cast("int")).when(version.rlike(VERSION), by_version)


def _knows(version: Column, mode: Column) -> Column:
    """Tell whether a client of that version knows the value of enable.idempotence; null if it is not a version."""
    known = F.lit(False)
    for since, values in KNOWN_SINCE.items():
        known = known | (_since(version, *since) & mode.isin(*values))
    return known


def _since_0_11(version: Column) -> Column:
    """Tell whether a Kafka version is 0.11 or later; null if the text is not a version."""
    return _since(version, 0, 11)


def _since(version: Column, since_major: int, since_minor: int) -> Column:
    """Tell whether a Kafka version is the given one or later; null if the text is not a version."""
    major = F.regexp_extract(version, r"\A([0-9]{1,4})\.([0-9]{1,4})", 1).try_cast("int")
    minor = F.regexp_extract(version, r"\A([0-9]{1,4})\.([0-9]{1,4})", 2).try_cast("int")
    return F.when(version.rlike(VERSION), (major > since_major) | ((major == since_major) & (minor >= since_minor)))
