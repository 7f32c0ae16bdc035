"""Lines of the brokers' request log -> the API that each concerns, its timestamp, the JSON of the exchange.

``kafka.request.logger`` writes one line per request at DEBUG: a timestamp, ``Completed request:`` and a JSON object
with the request's header, the request, the response, the connection and the times. At TRACE it writes other forms too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from pipelines.columns.once import computed_once
from pipelines.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from pipelines.settings import Settings

PUSH = "STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE"
HEARTBEAT = "STREAMS_GROUP_HEARTBEAT"
DESCRIBE = "STREAMS_GROUP_DESCRIBE"
DELETION = "DELETE_GROUPS"
APIS = (PUSH, HEARTBEAT, DESCRIBE, DELETION)

FIRST_YEAR, LAST_YEAR = 1970, 9998
MOST_NAME = 80  # characters of an API's name
OTHER_LINES = "lines of no API"

_NAMED = r'"requestApiKeyName":"([A-Z_]+)"'
_MENTIONED = rf"(?<![A-Z_])({'|'.join(APIS)})(?![A-Z_])"
_EXCHANGE = r"(?s)Completed request:(\{.*\})"
# log4j's ISO8601 and similar forms. Any short text can precede it, such as a bracket or a log shipper's words.
TIME = (
    r"^.{0,40}?([0-9]{4}-[0-9]{2}-[0-9]{2})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})[,.]([0-9]{3,6})(Z|[+-][0-9]{2}:?[0-9]{2})?"
)


def api(line: Column) -> Column:
    """Return which API of streams groups a line (binary) concerns, null if it concerns another API or none.

    A line of the JSON form names its API in the header. Any other line concerns the first API that it mentions.
    """
    text = line.cast("string")
    named = F.regexp_extract(text, _NAMED, 1)
    concerned = F.when(named == "", F.nullif(F.regexp_extract(text, _MENTIONED, 1), F.lit(""))).otherwise(named)
    return F.when(concerned.isin(*APIS), concerned)


def other_api(line: Column) -> Column:
    """Return what a line (binary) that ``api`` skips concerns: Kafka's name of its API, or ``OTHER_LINES``."""
    named = F.substring(F.regexp_extract(line.cast("string"), _NAMED, 1), 1, MOST_NAME)
    return F.when(named == "", F.lit(OTHER_LINES)).otherwise(named)


def exchange(line: Column) -> Column:
    """Return the JSON object of a line (binary), null if the line has none."""
    return F.nullif(F.regexp_extract(line.cast("string"), _EXCHANGE, 1), F.lit(""))


def logged_at(line: Column, timezone: str) -> Column:
    """Return a line's timestamp, null if it has none; it is in the given zone, unless the line names a zone.

    A year in which no broker can have logged gives null, as a time at the end of the calendar would be outside of the
    calendar in another zone.

    Raises UsageError: Java does not know the time zone, although Python does.
    """
    _require_zone(timezone)
    text = line.cast("string")
    date, time, fraction, zone = (F.regexp_extract(text, TIME, place) for place in (1, 2, 3, 4))
    stated = F.concat(date, F.lit(" "), time, F.lit("."), fraction)
    unzoned = F.to_utc_timestamp(stated.try_cast("timestamp_ntz").cast("timestamp"), timezone)
    time = F.when(date == "", None).when(zone == "", unzoned).otherwise(F.concat(stated, zone).try_cast("timestamp"))
    return F.when(F.year(time).between(FIRST_YEAR, LAST_YEAR), time)


def _require_zone(timezone: str) -> None:
    """Check a time zone by Java's list, which lacks some names of the machine's, and new ones."""
    from pyspark.sql import SparkSession

    java: Any = SparkSession.active().sparkContext._jvm
    try:
        java.java.time.ZoneId.of(timezone, java.java.time.ZoneId.SHORT_IDS)
    except PySparkException:
        raise UsageError(
            f"The timezone {timezone} of a log is none that Java {java.System.getProperty('java.version')} knows: "
            "name another zone with the same times under [streams_requests] or [broker_logs] in the settings."
        ) from None


def error(line: Column) -> Column:
    """Return why a line that concerns one of the APIs cannot be read; null if it can."""
    json = exchange(line)
    return (
        F.when(~F.is_valid_utf8(line.cast("string")), "the line is not UTF-8")
        .when(logged_at(line, "UTC").isNull(), "the line does not begin with a date and a time")
        .when(json.isNull(), "the line is not a completed request with its JSON: cut off, or logged at TRACE")
        .when(F.try_parse_json(json).isNull(), "the JSON of the request is cut off or not valid")
    )


def exchanges(bronze: DataFrame, settings: Settings, apis: tuple[str, ...], request: str, response: str) -> DataFrame:
    """Return bronze rows with ``_skipped``, ``request`` and ``response`` (of the types given), and the shared columns.

    Rows of other APIs are skipped; rows about damaged files count as pushes. A value that is not of its type is null.
    """
    header = "requestHeader: struct<requestApiVersion: int, correlationId: int, clientId: string>"
    schema = (
        f"{header}, request: struct<{request}>, response: struct<{response}>, connection: string, principal: string, "
        "totalTimeMs: double"
    )
    wanted = F.col("api").isin(*apis)
    if PUSH in apis:
        wanted = wanted | F.col("api").isNull()
    json = F.when(wanted & F.col("error").isNull(), exchange(F.col("line")))
    read = bronze.withColumn("_json", computed_once(json)).withColumn(
        "_read", computed_once(F.from_json("_json", f"struct<{schema}>"))
    )
    return read.select(
        "_source",
        "_bronze_id",
        "cluster",
        "logged_at",
        "line",
        "error",
        (~F.coalesce(wanted, F.lit(False))).alias("_skipped"),
        F.col("_read.connection").alias("connection"),
        F.col("_read.requestHeader.correlationId").alias("correlation_id"),
        F.col("_read.requestHeader.clientId").alias("client_id"),
        F.col("_read.principal").alias("principal"),
        F.col("_read.requestHeader.requestApiVersion").alias("api_version"),
        F.col("_read.totalTimeMs").alias("total_ms"),
        F.col("_read.request").alias("request"),
        F.col("_read.response").alias("response"),
        F.xxhash64("_json").alias("_content_hash"),
    )
