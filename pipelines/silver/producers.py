"""bronze.producers -> silver.producers: what a client makes of a producer's settings, and what its topic supports."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from expectations.silver.producers import CONTRACT, VERSION
from pipelines.columns import contract as columns
from pipelines.settings import Settings
from pipelines.sources import json_lines

# Column -> the names that clients have for a setting, Kafka's and librdkafka's other ones.
SETTINGS = {
    "enable_idempotence": ("enable.idempotence",),
    "acks": ("request.required.acks",),
    "retries": ("message.send.max.retries",),
    "max_in_flight_requests_per_connection": ("max.in.flight.requests.per.connection", "max.in.flight"),
    "transactional_id": ("transactional.id",),
}
NUMBERS = ("retries", "max_in_flight_requests_per_connection")
_FIELDS = ", ".join(
    f"`{name}`: {'bigint' if column in NUMBERS else 'string'}"
    for column, others in SETTINGS.items()
    for name in (column, *others)
)
RECORD = (
    "struct<client_id: string, topic: string, client_version: string, broker_version: string,"
    f" message_format_version: string, producer_id: bigint, stated_at: bigint, {_FIELDS}>"
)
MODES = {"true": "required", "false": "off"}  # KIP-185: what a 1.0.0 producer makes of the old settings
KNOWN_SINCE = {"0.11": tuple(MODES), "1.0": ("required", "requested", "off")}  # values of enable.idempotence
# A library's name can stand before the version, as in `librdkafka 2.5.0`; behind it Confluent's releases of Kafka have
# `-ccs` or `-ce`. The text then gives major, minor and patch.
CLIENT = r"\A(?:(.*?[A-Za-z].*?)[ /:-]*v?)??([0-9]{1,4})[.]([0-9]{1,4})(?:[.]([0-9]{1,4}))?(?:[^0-9].*)?\z"
JAVA = r"(?i)\A(?:v|java|(?:apache[ -])?kafka(?:[ -](?:clients?|java))*)?\z"
LIBRDKAFKA = r"(?i)rdkafka|confluent-kafka"
CONFLUENT = r"(?i)-(?:ccs|ce)\b"


def transform(bronze: DataFrame, settings: Settings) -> DataFrame:
    """Return one candidate for each bronze row, in the contract's columns; unreadable values are null."""
    stated = F.col("_object")

    def setting(name: str) -> Column:
        return F.coalesce(*(stated[setting] for setting in (name, *SETTINGS[name])))

    read = json_lines.objects(bronze, RECORD, numbers_as_clients_write_them=True).select(
        "*",
        *(stated[name].alias(name) for name in ("client_id", "topic", "producer_id")),
        *(
            _trimmed(stated[name]).alias(name)
            for name in ("client_version", "broker_version", "message_format_version")
        ),
        F.lower(_trimmed(setting("enable_idempotence"))).alias("enable_idempotence"),
        F.regexp_replace(F.lower(_trimmed(setting("acks"))), r"\A-1\z", "all").alias("acks"),
        *(F.when(setting(name) >= 0, setting(name)).alias(name) for name in NUMBERS),
        _trimmed(setting("transactional_id")).alias("transactional_id"),
        F.nullif(stated["stated_at"], F.lit(-1)).alias("stated_at_millis"),
    )
    mode, version = F.col("enable_idempotence"), F.col("broker_version")
    versioned = read.withColumns(
        {
            "client_library": _library(F.col("client_version")),
            "_client": _version(F.col("client_version")),
            "requested_mode": F.when(mode == "true", MODES["true"])
            .when(mode == "false", MODES["false"])
            .otherwise(mode),
        }
    ).withColumn("most_in_flight", F.when(_is_java() & (F.col("_client") < _number("1.0")), 1).otherwise(5))
    values = {
        "client_knows_mode": _knows(mode),
        "client_mode": _client_mode(),
        "contradiction": _contradiction(),
        "is_on_by_default": _is_java() & (F.col("_client") >= _number("3.0")),
        "message_format": F.when(_since(version, "3.0"), 2).otherwise(_message_format(F.col("message_format_version"))),
        "broker_has_idempotence": F.coalesce(
            _since(version, "0.11"), F.when(_message_format(F.col("message_format_version")) == 2, True)
        ),
        "broker_tells_format": _since(version, "1.0"),
        "stated_at": columns.time_of_millis(F.col("stated_at_millis")),
    }
    return versioned.select(*columns.of_contract(CONTRACT, values))


def _client_mode() -> Column:
    """Return what a client makes of its settings: IDEMPOTENT, PLAIN or REFUSED; null if that is not known.

    It was measured with the clients that docs/feeds.md names. A client that does not know the mode ignores it.
    """
    asks = F.coalesce(F.col("requested_mode").isin("required", "requested"), F.lit(False))
    is_off = F.coalesce(F.col("requested_mode") == "off", F.lit(False))
    in_transactions = F.col("transactional_id").isNotNull()
    clashes = F.coalesce(_contradiction().isin("acks", "retries", "max_in_flight"), F.lit(False))
    many = F.coalesce(F.col("max_in_flight_requests_per_connection") > F.col("most_in_flight"), F.lit(False))
    by_default = _has_default()
    is_4 = _is_java() & (F.col("_client") >= _number("4.0"))
    knows = F.coalesce(F.col("_client") >= F.when(_is_java(), _number("0.11")).otherwise(_number("1.0")), F.lit(True))
    return (
        F.when(~knows | F.coalesce(~_knows(F.col("enable_idempotence")), F.lit(False)), "PLAIN")
        .when(is_off, F.when(in_transactions, "REFUSED").otherwise("PLAIN"))
        .when(asks | in_transactions, F.when(clashes, "REFUSED").otherwise("IDEMPOTENT"))
        .when(~by_default, "PLAIN")
        .when(many & is_4, "REFUSED")
        .when(by_default, F.when(clashes, "PLAIN").otherwise("IDEMPOTENT"))
    )


def _contradiction() -> Column:
    """Return a setting that idempotence does not go with, one that clients refuse in any case first; null if none."""
    return (
        F.when(F.col("max_in_flight_requests_per_connection") > F.col("most_in_flight"), "max_in_flight")
        .when(F.col("acks") != "all", "acks")
        .when(F.col("retries") == 0, "retries")
        .when((F.col("requested_mode") == "off") & F.col("transactional_id").isNotNull(), "transactional_id")
    )


def _has_default() -> Column:
    """Tell whether the client has idempotence if nothing sets it; null if its library or version is not known.

    Confluent does not say which of its own patches of 3.0 and 3.1 have the repair of 3.0.1 and 3.1.1.
    """
    client = F.col("_client")
    java = (client >= _number("3.0.1")) & (client != _number("3.1"))
    is_own_patch = F.col("client_version").rlike(CONFLUENT) & java & (client < _number("3.2"))
    return F.when(_is_java(), F.when(~is_own_patch, java)).when(F.col("client_library") == "librdkafka", F.lit(False))


def _is_java() -> Column:
    return F.col("client_library") == "java"


def _library(client: Column) -> Column:
    """Return the library that a client's version names: java, librdkafka or another; null if there is no version."""
    name = F.trim(F.regexp_extract(client, CLIENT, 1))
    return F.when(
        client.rlike(CLIENT),
        F.when(name.rlike(JAVA), "java").when(client.rlike(LIBRDKAFKA), "librdkafka").otherwise(F.lower(name)),
    )


def _version(text: Column) -> Column:
    """Return the Kafka version, or a library's own, of a text as a number to compare; null if it has none.

    Confluent's 4.x is Kafka's 1.x, 5.x is 2.0 to 2.5, 6.x is 2.6 to 2.8, 7.x is 3.x, and 8.x is 4.x.
    """
    major, minor, patch = (
        F.coalesce(F.regexp_extract(text, CLIENT, part).try_cast("bigint"), F.lit(0)) for part in (2, 3, 4)
    )
    of_confluent = F.when(major >= 7, major - 4).when(major >= 5, 2).when(major == 4, 1).otherwise(0)
    minor_of_confluent = F.when(major == 6, minor + 6).when(major < 4, 11).otherwise(minor)
    is_confluent = text.rlike(CONFLUENT) & (major >= 3)
    return F.when(
        text.rlike(CLIENT),
        F.when(is_confluent, of_confluent).otherwise(major) * 100_000_000
        + F.when(is_confluent, minor_of_confluent).otherwise(minor) * 10_000
        + patch,
    )


def _number(version: str) -> int:
    """Return a version as ``_version`` does."""
    major, minor, patch = (*map(int, version.split(".")), 0, 0)[:3]
    return major * 100_000_000 + minor * 10_000 + patch


def _trimmed(text: Column) -> Column:
    return F.nullif(F.trim(text), F.lit(""))


def _message_format(version: Column) -> Column:
    """Return the magic (0, 1, 2) of a message format, given as the magic or as a Kafka version that has the format."""
    magic = F.regexp_extract(version, r"\A[vV]?([012])\z", 1)
    is_v1 = version.rlike(r"\A0\.10(?:\D|\z)")
    by_version = F.when(_since(version, "0.11"), 2).when(is_v1, 1).otherwise(0)
    return F.when(magic != "", magic.try_cast("int")).when(version.rlike(VERSION), by_version)


def _knows(mode: Column) -> Column:
    """Tell whether the client knows the value of enable.idempotence; null if its version is not told, or no value."""
    known = F.lit(False)
    for since, values in KNOWN_SINCE.items():
        known = known | ((F.col("_client") >= _number(since)) & mode.isin(*values))
    of_librdkafka = (F.col("_client") >= _number("1.0")) & mode.isin(*MODES)
    return F.when(_is_java(), known).when(F.col("client_library") == "librdkafka", of_librdkafka)


def _since(version: Column, since: str) -> Column:
    """Tell whether a Kafka version is the given one or later; null if the text is not a version."""
    return F.when(version.rlike(VERSION), _version(version) >= _number(since))
