"""headers -> fields: what a dead-letter record's headers say, by the profile of who wrote them.

The profiles are data; one decoder reads them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F

from expectations.bronze.dlq_records import HEADERS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Encoding = Literal["text", "throwable", "int32", "int64"]

HEX_SHOWN = 64  # bytes of a binary header of the wrong length that are shown as text


@dataclass(frozen=True)
class Header:
    """A header of a profile and the field that it fills.

    ``throwable`` is text of which the part before ``": "`` counts, as Java's ``Throwable.toString()`` prints class and
    message; ``int32`` and ``int64`` are big-endian. Of two headers that fill one field the first with a value counts.
    """

    field: str
    name: str
    encoding: Encoding = "text"
    mandatory: bool = False


@dataclass(frozen=True)
class Profile:
    """The headers that one kind of writer puts on dead-letter records."""

    name: str
    headers: tuple[Header, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all headers of the profile."""
        return tuple(header.name for header in self.headers)

    @property
    def mandatory(self) -> tuple[str, ...]:
        """The names of the headers without which the profile is incomplete."""
        return tuple(header.name for header in self.headers if header.mandatory)


PROFILES = (
    Profile(
        "kip-1317",
        (
            Header("disposition", "_dlq.errors.disposition", mandatory=True),
            Header("original_topic", "_dlq.errors.original.topic", mandatory=True),
            Header("original_partition", "_dlq.errors.original.partition", mandatory=True),
            Header("original_offset", "_dlq.errors.original.offset", mandatory=True),
            Header("consumer_group", "_dlq.errors.original.consumer.group", mandatory=True),
            Header("routed_at", "_dlq.errors.timestamp", mandatory=True),
        ),
    ),
    Profile(
        "kip-1191",
        (
            Header("original_topic", "__dlq.errors.topic", mandatory=True),
            Header("original_partition", "__dlq.errors.partition", mandatory=True),
            Header("original_offset", "__dlq.errors.offset", mandatory=True),
            Header("consumer_group", "__dlq.errors.group", mandatory=True),
            Header("delivery_count", "__dlq.errors.delivery.count"),
            Header("error_message", "__dlq.errors.message"),
        ),
    ),
    Profile(
        "kafka-streams",
        (
            Header("original_topic", "__streams.errors.topic", mandatory=True),
            Header("original_partition", "__streams.errors.partition", mandatory=True),
            Header("original_offset", "__streams.errors.offset", mandatory=True),
            Header("error_message", "__streams.errors.message"),
            Header("exception_class", "__streams.errors.exception", "throwable"),
            Header("exception_stacktrace", "__streams.errors.stacktrace"),
        ),
    ),
    Profile(
        "kafka-connect",
        (
            Header("original_topic", "__connect.errors.topic", mandatory=True),
            Header("original_partition", "__connect.errors.partition", mandatory=True),
            Header("original_offset", "__connect.errors.offset", mandatory=True),
            Header("error_message", "__connect.errors.exception.message"),
            Header("exception_class", "__connect.errors.exception.class.name"),
            Header("exception_stacktrace", "__connect.errors.exception.stacktrace"),
            Header("connector_name", "__connect.errors.connector.name"),
            Header("task_id", "__connect.errors.task.id"),
            Header("stage", "__connect.errors.stage"),
            Header("stage_class", "__connect.errors.class.name"),
        ),
    ),
    Profile(
        "spring-kafka",
        (
            Header("original_topic", "kafka_dlt-original-topic", mandatory=True),
            Header("original_partition", "kafka_dlt-original-partition", "int32", mandatory=True),
            Header("original_offset", "kafka_dlt-original-offset", "int64", mandatory=True),
            Header("original_timestamp", "kafka_dlt-original-timestamp", "int64"),
            Header("original_timestamp_type", "kafka_dlt-original-timestamp-type"),
            Header("consumer_group", "kafka_dlt-original-consumer-group"),
            Header("error_message", "kafka_dlt-exception-message"),
            Header("error_message", "kafka_dlt-key-exception-message"),
            Header("exception_class", "kafka_dlt-exception-fqcn"),
            Header("exception_class", "kafka_dlt-key-exception-fqcn"),
            Header("exception_cause_class", "kafka_dlt-exception-cause-fqcn"),
            Header("exception_stacktrace", "kafka_dlt-exception-stacktrace"),
            Header("exception_stacktrace", "kafka_dlt-key-exception-stacktrace"),
        ),
    ),
)
FIELDS = tuple(dict.fromkeys(header.field for profile in PROFILES for header in profile.headers))
NAMES = tuple(name for profile in PROFILES for name in profile.names)


def decode(records: DataFrame) -> DataFrame:
    """Add what the column ``headers`` says, one row for each row.

    Adds ``header_profile``, ``<field>_text`` for each of FIELDS (null where absent or empty; a binary number of another
    length as ``0x...``), ``undecodable_headers`` (fields whose bytes are not UTF-8; null where none),
    ``reserved_header_collision`` and ``user_headers`` (in order, all headers but those of the record's profile).
    The last value of a name counts, as in Kafka's ``lastHeader``.
    """
    # One projection each: an expensive column that the next one uses more than once is computed once a row.
    reversed_headers, recognised, found, decoded = _projections()
    names = [F.col(column) for column in records.columns]
    return records.select("*", *reversed_headers).select("*", *recognised).select("*", *found).select(*names, *decoded)


@cache
def _projections() -> tuple[list[Column], ...]:
    """Return the columns that each projection adds; to describe them to the JVM takes hundreds of calls."""
    headers = F.coalesce("headers", F.array().cast(HEADERS))
    return (
        [F.reverse(headers["key"]).alias("_names"), F.reverse(headers["value"]).alias("_values")],
        [_profile().alias("_profile")],
        [*(_bytes(field).alias(f"_{field}") for field in FIELDS), _user_headers().alias("user_headers")],
        [
            _by_profile([profile.name for profile in PROFILES]).alias("header_profile"),
            *(_text(field).alias(f"{field}_text") for field in FIELDS),
            _undecodable().alias("undecodable_headers"),
            _collision().alias("reserved_header_collision"),
            F.col("user_headers"),
        ],
    )


def _profile() -> Column:
    """The place in PROFILES of the first of which all mandatory headers are there, else of the first with any."""
    complete = [_all(F.array_contains("_names", name) for name in profile.mandatory) for profile in PROFILES]
    some = [F.arrays_overlap("_names", F.array(*map(F.lit, profile.names))) for profile in PROFILES]
    return F.coalesce(
        *(
            F.when(condition, F.lit(place))
            for conditions in (complete, some)
            for place, condition in enumerate(conditions)
        )
    )


def _bytes(field: str) -> Column:
    """The last value of the header that fills the field in the record's profile."""
    choices = [[header.name for header in profile.headers if header.field == field] for profile in PROFILES]
    most = max(map(len, choices))
    names = [[(*choice, *[None] * most)[turn] for choice in choices] for turn in range(most)]
    values = [F.get("_values", (F.array_position("_names", _by_profile(turn)) - 1).cast("int")) for turn in names]
    return F.coalesce(*values)


def _text(field: str) -> Column:
    content = F.col(f"_{field}")
    text = F.make_valid_utf8(content.cast("string"))
    for encoding, decode_as in DECODERS.items():
        if places := _places(field, encoding):
            text = F.when(F.col("_profile").isin(*places), decode_as(content, text)).otherwise(text)
    return F.nullif(text, F.lit(""))


def _signed(content: Column, size: int) -> Column:
    """The decimal digits of a big-endian two's complement number, or what is there in hexadecimal digits."""
    extension = F.when(F.substring(F.hex(content), 1, 1) >= "8", F.lit("F" * (16 - 2 * size))).otherwise(F.lit(""))
    number = F.conv(F.concat(extension, F.hex(content)), 16, -10)
    shown = F.concat(F.lit("0x"), F.hex(F.substring(content, 1, HEX_SHOWN)))
    return F.when(F.length(content) == size, number).when(F.length(content) > 0, shown)


DECODERS: dict[Encoding, Callable[[Column, Column], Column]] = {
    "throwable": lambda content, text: F.substring_index(text, ": ", 1),
    "int32": lambda content, text: _signed(content, 4),
    "int64": lambda content, text: _signed(content, 8),
}
"""By encoding: the text of a value, from its bytes and its text, if it were UTF-8."""


def _undecodable() -> Column:
    fields = []
    for field in FIELDS:
        invalid = ~F.is_valid_utf8(F.col(f"_{field}").cast("string"))
        binary = _places(field, "int32") + _places(field, "int64")
        fields.append((field, invalid & ~F.col("_profile").isin(*binary) if binary else invalid))
    each = F.array_compact(F.array(*(F.when(invalid, F.lit(field)) for field, invalid in fields)))
    return F.when(_any(invalid for _, invalid in fields), each)


def _collision() -> Column:
    """Whether a recognised name occurs twice, or names of two profiles; what is cheap rules most rows out first."""
    repeated = F.size("_names") > F.size(F.array_distinct("_names"))
    recognised = F.filter("_names", lambda name: name.isin(*NAMES))
    twice = repeated & (F.size(recognised) > F.size(F.array_distinct(recognised)))
    others = [[name for name in NAMES if name not in profile.names] for profile in PROFILES]
    foreign = (F.size("user_headers") > 0) & F.arrays_overlap(
        "_names", F.get(F.array(*(F.array(*map(F.lit, names)) for names in others)), "_profile")
    )
    return F.coalesce(twice | foreign, F.lit(False))


def _user_headers() -> Column:
    def foreign_to(profile: Profile) -> Column:
        return F.filter("headers", lambda header: ~F.coalesce(header["key"].isin(*profile.names), F.lit(False)))

    found = [F.when(F.col("_profile") == place, foreign_to(profile)) for place, profile in enumerate(PROFILES)]
    return F.coalesce(*found, "headers", F.array())


def _by_profile(values: list[str | None]) -> Column:
    """The value at the place of the record's profile; null without a profile."""
    return F.get(F.array(*map(F.lit, values)), F.col("_profile"))


def _places(field: str, encoding: Encoding) -> list[int]:
    return [
        place
        for place, profile in enumerate(PROFILES)
        if any(header.field == field and header.encoding == encoding for header in profile.headers)
    ]


def _all(conditions: Iterable[Column]) -> Column:
    return reduce(and_, conditions)


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(or_, conditions)
