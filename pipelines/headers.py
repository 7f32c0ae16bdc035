"""headers -> fields: what a dead-letter record's headers say, by the profile of who wrote them last.

The profiles are data; one decoder reads them all. Connect, Streams and Spring keep the headers of a record that they
dead-letter, so one record may carry the sets of several writers. A set is complete with its last mandatory header: that
is its place in the order of headers. The last complete set is the record's own, the older ones are earlier hops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F

from expectations.bronze.dlq_records import HEADERS
from expectations.rules import INT32, INT64
from expectations.silver.dlq_records import HOPS

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
KIP_1317, KIP_1191, BOTH = 0, 1, len(PROFILES)  # places in WRITERS
WRITERS = (
    *PROFILES,
    Profile(  # a share group that writes the headers of both KIPs
        PROFILES[KIP_1317].name,
        (
            *PROFILES[KIP_1317].headers,
            *(header for header in PROFILES[KIP_1191].headers if header.field in ("delivery_count", "error_message")),
        ),
    ),
)
"""Who may have written a record's own set: a profile alone, or both of a share group."""
FIELDS = tuple(dict.fromkeys(header.field for profile in PROFILES for header in profile.headers))
NAMES = tuple(name for profile in PROFILES for name in profile.names)


def decode(records: DataFrame) -> DataFrame:
    """Add what the column ``headers`` says, one row for each row.

    Adds ``header_profile`` and ``header_profiles`` (both names where a share group wrote both of its sets),
    ``<field>_text`` for each of FIELDS (null where absent or empty; a binary number of another length as ``0x...``),
    ``undecodable_headers`` (fields whose bytes are not UTF-8; null where none), ``earlier_hops`` (oldest first),
    ``reserved_header_collision`` and ``user_headers`` (in order, all headers but those of the record's profile and of
    profiles whose set is complete). The last value of a name counts, as in Kafka's ``lastHeader``; of a set that occurs
    several times the one before has the value before.

    A header of KIP-1317 claims that draft, complete or not, unless a complete set of Connect, Streams or Spring stands
    behind it. Both sets of a share group are one writer's, in any order, unless another writer's stands between them.
    Without a complete set the profile is the first in PROFILES of which any header is there.
    """
    # One projection each: an expensive column that the next one uses more than once is computed once a row.
    names = [F.col(column) for column in records.columns]
    *steps, decoded = _projections()
    for columns in steps:
        records = records.select("*", *columns)
    return records.select(*names, *decoded)


@cache
def _projections() -> tuple[list[Column], ...]:
    """Return the columns that each projection adds; to describe them to the JVM takes hundreds of calls."""
    headers = F.coalesce("headers", F.array().cast(HEADERS))
    return (
        [F.reverse(headers["key"]).alias("_names"), F.reverse(headers["value"]).alias("_values")],
        [*(_place(profile).alias(f"_at_{at}") for at, profile in enumerate(PROFILES)), _is_repeated().alias("_again")],
        [_writer().alias("_profile")],
        [
            *(_bytes(field).alias(f"_{field}") for field in FIELDS),
            _has_earlier_hops().alias("_later"),
            _indexed().alias("_indexed"),
            _user_headers().alias("user_headers"),
        ],
        [
            _by_profile([profile.name for profile in WRITERS]).alias("header_profile"),
            _profiles().alias("header_profiles"),
            *(_text(field).alias(f"{field}_text") for field in FIELDS),
            _undecodable().alias("undecodable_headers"),
            _earlier_hops().alias("earlier_hops"),
            _collision().alias("reserved_header_collision"),
            F.col("user_headers"),
        ],
    )


def _place(profile: Profile) -> Column:
    """The place from the end of a profile's last set, null where it is not complete; any header claims KIP-1317."""
    places = [F.array_position("_names", name).cast("int") for name in profile.mandatory]  # 0 where absent
    if profile is PROFILES[KIP_1317]:
        return F.least(*(F.nullif(place, F.lit(0)) for place in places))  # nulls do not count
    return F.nullif(F.least(*places), F.lit(0))


def _is_repeated() -> Column:
    """Whether a recognised name occurs twice; what is cheap rules most rows out first."""
    recognised = F.filter("_names", lambda name: name.isin(*NAMES))
    repeated = F.size("_names") > F.size(F.array_distinct("_names"))
    return F.when(repeated, F.size(recognised) > F.size(F.array_distinct(recognised))).otherwise(F.lit(False))


def _writer() -> Column:
    """The place in WRITERS of who wrote the record's own set."""
    at = [F.col(f"_at_{place}") for place in range(len(PROFILES))]
    draft, shipped, *others = at
    last = F.least(*at)
    other = F.coalesce(F.least(*others), F.lit(2**31 - 1))
    some = [F.arrays_overlap("_names", F.array(*map(F.lit, profile.names))) for profile in PROFILES]
    return (
        F.when(draft.isNotNull() & shipped.isNotNull() & (F.greatest(draft, shipped) < other), F.lit(BOTH))
        .when(last.isNull(), F.coalesce(*(F.when(any_, F.lit(place)) for place, any_ in enumerate(some))))
        .otherwise(F.coalesce(*(F.when(one == last, F.lit(place)) for place, one in enumerate(at))))
    )


def _is_own(place: int) -> Column:
    """Whether the record's own set is, or includes, one of a profile."""
    writers = (place, BOTH) if place in (KIP_1317, KIP_1191) else (place,)
    return F.coalesce(F.col("_profile").isin(*writers), F.lit(False))


def _has_earlier_hops() -> Column:
    """Whether earlier hops may be there: a set that is not the record's own, or one that occurs again."""
    others = (F.col(f"_at_{place}").isNotNull() & ~_is_own(place) for place in range(len(PROFILES)))
    return F.col("_again") | _any(others)


def _bytes(field: str) -> Column:
    """The last value of the header that fills the field in the record's profile."""
    choices = [[header.name for header in profile.headers if header.field == field] for profile in WRITERS]
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


def _profiles() -> Column:
    """The profiles of which the record's own set meets a requirement."""
    both = (F.col("_profile") == BOTH) & _is_complete(PROFILES[KIP_1317])
    names = F.array(*(F.lit(PROFILES[place].name) for place in (KIP_1317, KIP_1191)))
    one = F.array(_by_profile([profile.name for profile in WRITERS]))
    nobody = F.array().cast("array<string>")
    return F.when(both, names).when(F.col("_profile").isNotNull(), one).otherwise(nobody)


def _is_complete(profile: Profile) -> Column:
    return _all(F.array_position("_names", name) > 0 for name in profile.mandatory)


def _indexed() -> Column:
    """The headers with their places, where several sets are to be told apart."""
    indexed = F.transform(
        "headers",
        lambda header, at: F.struct(at.alias("at"), header["key"].alias("key"), header["value"].alias("value")),
    )
    return F.when(_has_earlier_hops(), indexed)


def _earlier_hops() -> Column:
    """The sets that are not the record's own, oldest first; a share group's two that follow one another are one hop."""
    sets = F.array_sort(F.concat(*(_older_sets(place) for place in range(len(PROFILES)))))

    def joined(hops: Column, one: Column) -> Column:
        before = F.get(hops, F.size(hops) - 1)
        pair = before["partner"] == one["profile"]
        draft = one["profile"] == PROFILES[KIP_1317].name
        both = F.struct(
            one["at"].alias("at"),
            F.lit(PROFILES[KIP_1317].name).alias("profile"),
            F.lit(None).cast("string").alias("partner"),
            *(
                F.when(draft, F.coalesce(one[name], before[name]))
                .otherwise(F.coalesce(before[name], one[name]))
                .alias(name)
                for name in HOP_FIELDS
            ),
        )
        return F.when(pair, F.concat(F.slice(hops, 1, F.size(hops) - 1), F.array(both))).otherwise(
            F.concat(hops, F.array(one))
        )

    hops = F.aggregate(sets, F.filter(sets, lambda _: F.lit(False)), joined)
    shown = F.transform(
        hops, lambda hop: F.struct(hop["profile"].alias("profile"), *(hop[name].alias(name) for name in HOP_FIELDS))
    )
    return F.when(F.col("_later"), shown.cast(HOPS)).otherwise(F.array().cast(HOPS))


def _older_sets(place: int) -> Column:
    """The sets of a profile that are not the record's own, counted from the last: array of place, profile, fields."""
    profile = PROFILES[place]

    def occurrences(name: Column) -> Column:
        return F.filter("_indexed", lambda header: header["key"] == name)

    found = F.transform(F.array(*map(F.lit, profile.mandatory)), occurrences)
    count = F.array_min(F.transform(found, F.size))
    if place == KIP_1317:  # any header is a set
        count = F.greatest(count, F.when(F.col(f"_at_{place}").isNotNull(), F.lit(1)).otherwise(F.lit(0)))
    first = F.when(_is_own(place), F.lit(2)).otherwise(F.lit(1))

    def nth(turn: Column) -> Column:
        def value_of(field: str) -> Column:
            header = next((header for header in profile.headers if header.field == field), None)
            if header is None:
                return F.lit(None).cast("string")
            here = occurrences(F.lit(header.name))
            value = F.get(here, F.size(here) - turn)["value"]
            if not header.mandatory:  # whose it is can be told where each set has one
                value = F.when(F.size(here) == count, value)
            text = F.try_validate_utf8(value.cast("string"))
            decode_as = DECODERS.get(header.encoding)
            return F.nullif(decode_as(value, text) if decode_as else text, F.lit(""))

        values = {field: value_of(field) for field in HOP_FIELDS.values()}
        partner = {KIP_1317: PROFILES[KIP_1191].name, KIP_1191: PROFILES[KIP_1317].name}.get(place)
        return F.struct(
            F.array_max(F.transform(found, lambda here: F.get(here, F.size(here) - turn)["at"])).alias("at"),
            F.lit(profile.name).alias("profile"),
            F.lit(partner).cast("string").alias("partner"),
            *(_typed(name, values[field]).alias(name) for name, field in HOP_FIELDS.items()),
        )

    turns = F.when(count >= first, F.sequence(first, count)).otherwise(F.array().cast("array<int>"))
    return F.transform(turns, nth)


HOP_FIELDS = {
    "topic": "original_topic",
    "partition": "original_partition",
    "offset": "original_offset",
    "consumer_group": "consumer_group",
}


def _typed(name: str, text: Column) -> Column:
    if name == "partition":
        return F.when(text.rlike(INT32), text.try_cast("int"))
    if name == "offset":
        return F.when(text.rlike(INT64), text.try_cast("bigint"))
    return text


def _collision() -> Column:
    """Whether a recognised header belongs to no complete set; what is cheap rules most rows out first.

    Of a record without a complete set its own profile's headers, once each, are its set.
    """
    stray = (F.size("user_headers") > 0) & F.arrays_overlap(F.col("user_headers.key"), F.array(*map(F.lit, NAMES)))
    partial = F.col(f"_at_{KIP_1317}").isNotNull() & (F.col("_profile") != KIP_1317) & ~_is_complete(PROFILES[KIP_1317])
    uneven = F.col("_again") & _any(_is_uneven(place) for place in range(len(PROFILES)))
    return F.coalesce(stray, F.lit(False)) | F.coalesce(partial, F.lit(False)) | F.coalesce(uneven, F.lit(False))


def _is_uneven(place: int) -> Column:
    """Whether a name of a profile occurs more often than its sets."""
    profile = PROFILES[place]

    def counts(names: Iterable[str]) -> Column:
        return F.transform(
            F.array(*map(F.lit, names)), lambda name: F.size(F.filter("_names", lambda one: one == name))
        )

    alone = F.when(F.col("_profile") == place, F.lit(1)).otherwise(F.lit(0))
    sets = F.greatest(F.array_min(counts(profile.mandatory)), alone)
    return F.array_max(counts(profile.names)) > sets


def _user_headers() -> Column:
    def without(names: Column | list[str]) -> Column:
        def is_kept(header: Column) -> Column:
            key = header["key"]
            listed = key.isin(*names) if isinstance(names, list) else F.array_contains(names, key)
            return ~F.coalesce(listed, F.lit(False))

        return F.filter("headers", is_kept)

    no_names = F.array().cast("array<string>")
    present = F.concat(
        *(
            F.when(_is_own(place) | _is_complete(profile), F.array(*map(F.lit, profile.names))).otherwise(no_names)
            for place, profile in enumerate(PROFILES)
        )
    )
    several = _has_earlier_hops() | (F.col("_profile") == BOTH)
    own = [F.when(F.col("_profile") == place, without([*profile.names])) for place, profile in enumerate(PROFILES)]
    return F.coalesce(F.when(several, without(present)), *own, "headers", F.array())


def _by_profile(values: list[str | None]) -> Column:
    """The value at the place in WRITERS of who wrote the record's own set; null without a profile."""
    return F.get(F.array(*map(F.lit, values)), F.col("_profile"))


def _places(field: str, encoding: Encoding) -> list[int]:
    return [
        place
        for place, profile in enumerate(WRITERS)
        if any(header.field == field and header.encoding == encoding for header in profile.headers)
    ]


def _all(conditions: Iterable[Column]) -> Column:
    return reduce(and_, conditions)


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(or_, conditions)
