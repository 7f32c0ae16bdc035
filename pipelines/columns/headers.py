"""headers -> fields: what a dead-letter record's headers say, by the profile of their last writer.

The profiles are data; one decoder reads them all. Connect, Streams and Spring keep the headers of a record that they
dead-letter, so one record can carry the header sets of several writers. A set is complete if it has all mandatory
headers; the position of the last of them is the position of the set. The last complete set is the record's own, the
older sets are earlier hops. Profiles from the settings follow the same rules. An envelope in the record's value counts
as the oldest set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F

from expectations.bronze.dlq_records import HEADERS
from expectations.rules import INT32, INT64
from expectations.silver.dlq_records import HOPS
from pipelines.columns import globs

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Encoding = Literal["text", "throwable", "int32", "int64"]

HEX_SHOWN = 64  # bytes of a binary header of the wrong length that are shown as text


@dataclass(frozen=True)
class Header:
    """A header of a profile and the field that it fills.

    ``throwable`` is the text of Java's ``Throwable.toString()``, class and message: the part before ``": "`` counts.
    ``int32`` and ``int64`` are big-endian. If two headers fill one field, the first that has a value counts.

    In a profile from the settings ``name`` can be a prefix (``is_prefix``). It matches all headers that begin with it
    and that no other name of the profile matches more closely; the last of them gives the value. If ``path`` is not
    empty, the value comes from that path in the JSON of the record's value instead of a header. A header without a
    field is only recognised.
    """

    field: str
    name: str = ""
    encoding: Encoding = "text"
    mandatory: bool = False
    is_prefix: bool = False
    path: str = ""


@dataclass(frozen=True)
class Profile:
    """The headers that one kind of writer puts on dead-letter records; ``topic`` is a glob that limits the topics."""

    name: str
    headers: tuple[Header, ...]
    topic: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all headers of the profile, without prefixes."""
        return tuple(header.name for header in self.headers if header.name and not header.is_prefix)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The prefixes that match further headers of the profile."""
        return tuple(header.name for header in self.headers if header.is_prefix)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths in an envelope that the profile reads."""
        return tuple(header.path for header in self.headers if header.path)

    @property
    def mandatory(self) -> tuple[str, ...]:
        """The names of the headers without which the profile is incomplete, without prefixes."""
        return tuple(header.name for header in self._mandatory if header.name and not header.is_prefix)

    @property
    def mandatory_prefixes(self) -> tuple[Header, ...]:
        """The prefixes that must each match at least one header."""
        return tuple(header for header in self._mandatory if header.is_prefix)

    @property
    def mandatory_paths(self) -> tuple[str, ...]:
        """The paths that must lead to a value."""
        return tuple(header.path for header in self._mandatory if header.path)

    @property
    def mandatory_fields(self) -> tuple[str, ...]:
        """The fields that must have a value."""
        return tuple(dict.fromkeys(header.field for header in self._mandatory))

    @property
    def is_envelope(self) -> bool:
        """Whether an envelope alone makes a set of the profile, so that the set has no position among the headers."""
        return not self.mandatory and not self.mandatory_prefixes

    @property
    def _mandatory(self) -> tuple[Header, ...]:
        return tuple(header for header in self.headers if header.mandatory)

    def shares_headers_with(self, other: Profile) -> bool:
        """Tell whether a header can belong to both profiles."""
        pairs = [(prefix, other) for prefix in self.prefixes] + [(prefix, self) for prefix in other.prefixes]
        return not set(self.names).isdisjoint(other.names) or any(
            any(name.startswith(prefix) for name in of.names)
            or any(known_prefix.startswith(prefix) or prefix.startswith(known_prefix) for known_prefix in of.prefixes)
            for prefix, of in pairs
        )


def _original(prefix: str) -> tuple[Header, ...]:
    """Return the mandatory headers for topic, partition and offset of the record that failed."""
    fields = ("topic", "partition", "offset")
    return tuple(Header(f"original_{field}", f"{prefix}{field}", mandatory=True) for field in fields)


PROFILES = (
    Profile(
        "kip-1317",
        (
            Header("disposition", "_dlq.errors.disposition", mandatory=True),
            *_original("_dlq.errors.original."),
            Header("consumer_group", "_dlq.errors.original.consumer.group", mandatory=True),
            Header("routed_at", "_dlq.errors.timestamp", mandatory=True),
        ),
    ),
    Profile(
        "kip-1191",
        (
            *_original("__dlq.errors."),
            Header("consumer_group", "__dlq.errors.group", mandatory=True),
            Header("delivery_count", "__dlq.errors.delivery.count"),
            Header("error_message", "__dlq.errors.message"),
        ),
    ),
    Profile(
        "kafka-streams",
        (
            *_original("__streams.errors."),
            Header("error_message", "__streams.errors.message"),
            Header("exception_class", "__streams.errors.exception", "throwable"),
            Header("exception_stacktrace", "__streams.errors.stacktrace"),
        ),
    ),
    Profile(
        "kafka-connect",
        (
            *_original("__connect.errors."),
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
KIP_1317, KIP_1191 = 0, 1  # indexes in PROFILES
SHARE_GROUP = Profile(
    PROFILES[KIP_1317].name,
    (
        *PROFILES[KIP_1317].headers,
        *(header for header in PROFILES[KIP_1191].headers if header.field in ("delivery_count", "error_message")),
    ),
)
"""A share group that writes the headers of both KIPs."""
FIELDS = tuple(dict.fromkeys(header.field for profile in PROFILES for header in profile.headers))
NAMES = tuple(name for profile in PROFILES for name in profile.names)


def decode(records: DataFrame, own: tuple[Profile, ...] = ()) -> DataFrame:
    """Decode the column ``headers``, one row for each row; ``own`` are profiles beside the built-in ones.

    Adds ``header_profile`` and ``header_profiles`` (both names if a share group wrote both of its sets),
    ``<field>_text`` for each of FIELDS (null if absent or empty; a binary number of the wrong length as ``0x...``),
    ``undecodable_headers`` (fields whose bytes are not UTF-8; null if none), ``earlier_hops`` (oldest first),
    ``reserved_header_collision`` and ``user_headers`` (in order, all headers except those of the record's profile and
    of profiles whose set is complete). The last value of a name counts, as in Kafka's ``lastHeader``. If a set occurs
    several times, the set before the last takes the value before the last, and so on.

    Any header of KIP-1317, a draft, makes it the record's profile, even if the set is incomplete, unless a complete set
    of a writer other than a share group follows. The two sets of a share group have one writer, in any order, unless
    another writer's set stands between them. If a record has no complete set, its profile is the first that has any
    header there: of PROFILES those that share no headers with ``own`` come first, then ``own``, then the rest.

    Of profiles that share headers at most one has a set in a record: the first of ``own`` that is complete, else the
    built-in one. A profile that gives way to another does not displace a third. Profiles with paths need the column
    ``value``; profiles with a topic glob need the column ``topic``.
    """
    # Each step is a projection: an expensive column that the next step uses several times is computed once per row.
    names = [F.col(column) for column in records.columns]
    *steps, decoded = _projections(own)
    for columns in steps:
        records = records.select("*", *columns)
    return records.select(*names, *decoded)


@cache
def _projections(own: tuple[Profile, ...]) -> tuple[list[Column], ...]:
    """Return the columns that each projection adds; cached, because building them takes hundreds of JVM calls."""
    return _Decoder((*PROFILES, *own)).projections()


class _Decoder:
    """The columns that decode a record's headers, for the built-in profiles followed by others."""

    def __init__(self, profiles: tuple[Profile, ...]) -> None:
        self.profiles = profiles
        self.both = len(profiles)  # the index in writers of a share group that wrote both of its sets
        self.writers = (*profiles, SHARE_GROUP)
        self.names = tuple(dict.fromkeys(name for profile in profiles for name in profile.names))
        self.paths = tuple(dict.fromkeys(path for profile in profiles for path in profile.paths))

    @cached_property
    def rivals(self) -> dict[int, tuple[int, ...]]:
        """By a profile's index: the profiles that share headers with it and take precedence if they have a set."""
        own = range(len(PROFILES), len(self.profiles))
        return {
            place: tuple(
                name
                for name in own
                if (name < place or place < len(PROFILES)) and profile.shares_headers_with(self.profiles[name])
            )
            for place, profile in enumerate(self.profiles)
        }

    def projections(self) -> tuple[list[Column], ...]:
        """Return the columns that each projection adds."""
        headers = F.coalesce("headers", F.array().cast(HEADERS))
        envelope = [[self._envelope().alias("_envelope")], self._path_values()] if self.paths else []
        return (
            *envelope,
            [F.reverse(headers["key"]).alias("_names"), F.reverse(headers["value"]).alias("_values")],
            *([self._place(place).alias(f"_at_{place}") for place in those] for those in self._in_order()),
            [self._writer().alias("_profile"), self._is_repeated().alias("_again")],
            [
                *(self._bytes(field).alias(f"_{field}") for field in FIELDS),
                self._has_earlier_hops().alias("_later"),
                self._indexed().alias("_indexed"),
                self._user_headers().alias("user_headers"),
            ],
            [
                self._by_profile([profile.name for profile in self.writers]).alias("header_profile"),
                self._profiles().alias("header_profiles"),
                *(self._text(field).alias(f"{field}_text") for field in FIELDS),
                self._undecodable().alias("undecodable_headers"),
                self._earlier_hops().alias("earlier_hops"),
                self._collision().alias("reserved_header_collision"),
                F.col("user_headers"),
            ],
        )

    def _in_order(self) -> list[list[int]]:
        """Return the indexes of profiles in the order of evaluation: each profile after those that take precedence."""
        free = [place for place, rivals in self.rivals.items() if not rivals]
        own = [place for place, rivals in self.rivals.items() if rivals and place >= len(PROFILES)]
        built_in = [place for place, rivals in self.rivals.items() if rivals and place < len(PROFILES)]
        return [free, *([place] for place in own), *([built_in] if built_in else [])]

    def _envelope(self) -> Column:
        """Return the value as JSON if a profile with paths applies and the value can be an object or an array."""
        content = F.col("value")
        begins = F.substring(content, 1, 1).isin(*(bytes([byte]) for byte in b"{[ \t\r\n"))
        asked = [self._applies(profile) for profile in self.profiles if profile.paths]
        text = F.try_validate_utf8(content.cast("string"))
        return F.when(_any(asked) & begins, F.try_parse_json(text))

    def _path_values(self) -> list[Column]:
        return [
            F.try_variant_get("_envelope", path, "string").alias(f"_path_{place}")
            for place, path in enumerate(self.paths)
        ]

    def _path(self, path: str) -> Column:
        return F.col(f"_path_{self.paths.index(path)}")

    def _applies(self, profile: Profile) -> Column:
        if not profile.topic:
            return F.lit(True)
        return F.coalesce(F.col("topic").rlike(globs.regex(profile.topic)), F.lit(False))

    def _is_limited(self, profile: Profile) -> bool:
        """Tell whether a set of the profile depends on more than the names of its mandatory headers."""
        return bool(profile.topic or profile.mandatory_paths or profile.mandatory_prefixes)

    def _place(self, place: int) -> Column:
        """Return the position, counted from the end, of a profile's last set; null if the set is not complete.

        For KIP-1317 any one header is enough.
        """
        profile = self.profiles[place]
        places = [F.array_position("_names", name).cast("int") for name in profile.mandatory]  # 0 if absent
        if place == KIP_1317:
            at = F.least(*(F.nullif(position, F.lit(0)) for position in places))  # least() skips nulls
        else:
            places += [self._place_of_prefix(profile, header) for header in profile.mandatory_prefixes]
            behind_all = F.size("_names") + 1  # counted from the end: an envelope is the oldest set
            at = F.nullif(_least(places), F.lit(0)) if places else behind_all
            if self._is_limited(profile):
                at = F.when(self._is_complete(profile), at)
        if rivals := self.rivals[place]:
            at = F.when(_all(F.col(f"_at_{rival}").isNull() for rival in rivals), at)
        return at

    def _place_of_prefix(self, profile: Profile, header: Header) -> Column:
        return F.array_position(F.transform("_names", _matches(profile, header)), F.lit(True)).cast("int")

    def _is_complete(self, profile: Profile) -> Column:
        conditions = [F.array_position("_names", name) > 0 for name in profile.mandatory]
        if self._is_limited(profile):
            conditions += [F.exists("_names", _matches(profile, header)) for header in profile.mandatory_prefixes]
            conditions += [self._path(path).isNotNull() for path in profile.mandatory_paths]
            conditions.append(self._applies(profile))
        return _all(conditions)

    def _is_repeated(self) -> Column:
        """Tell whether a recognised name occurs twice; a cheap check rules out most rows first."""
        recognised = F.filter("_names", lambda name: name.isin(*self.names))
        repeated = F.size("_names") > F.size(F.array_distinct("_names"))
        return F.when(repeated, F.size(recognised) > F.size(F.array_distinct(recognised))).otherwise(F.lit(False))

    def _writer(self) -> Column:
        """Return the index in ``writers`` of the writer of the record's own set."""
        at = [F.col(f"_at_{place}") for place in range(len(self.profiles))]
        draft, shipped, *others = at
        last = F.least(*at)
        other = F.coalesce(F.least(*others), F.lit(2**31 - 1))
        order = sorted(range(len(self.profiles)), key=lambda place: place < len(PROFILES) and bool(self.rivals[place]))
        some = [F.when(self._has_some(self.profiles[place]), F.lit(place)) for place in order]
        return (
            F.when(draft.isNotNull() & shipped.isNotNull() & (F.greatest(draft, shipped) < other), F.lit(self.both))
            .when(last.isNull(), F.coalesce(*some))
            .otherwise(F.coalesce(*(F.when(position == last, F.lit(place)) for place, position in enumerate(at))))
        )

    def _has_some(self, profile: Profile) -> Column:
        """Tell whether a record has any header or path of a profile."""
        conditions = [F.arrays_overlap("_names", F.array(*map(F.lit, profile.names)))] if profile.names else []
        conditions += [F.exists("_names", _matches(profile, header)) for header in profile.headers if header.is_prefix]
        conditions += [self._path(path).isNotNull() for path in profile.paths]
        some = (
            _any(F.coalesce(condition, F.lit(False)) for condition in conditions)
            if len(conditions) > 1
            else conditions[0]
        )
        return self._applies(profile) & some if profile.topic else some

    def _is_own(self, place: int) -> Column:
        """Tell whether the record's own set is, or includes, a set of a profile."""
        writers = (place, self.both) if place in (KIP_1317, KIP_1191) else (place,)
        return F.coalesce(F.col("_profile").isin(*writers), F.lit(False))

    def _has_earlier_hops(self) -> Column:
        """Tell whether a record can have earlier hops: a set that is not its own, or a recognised name that repeats."""
        others = (F.col(f"_at_{place}").isNotNull() & ~self._is_own(place) for place in range(len(self.profiles)))
        return F.col("_again") | _any(others)

    def _bytes(self, field: str) -> Column:
        """Return the bytes that fill the field by the record's profile; the last header of a name counts."""
        choices = [[header for header in profile.headers if header.field == field] for profile in self.writers]
        values = []
        for turn in range(max(map(len, choices))):
            headers = [choice[turn] if turn < len(choice) else None for choice in choices]
            names = [header.name if header and header.name and not header.is_prefix else None for header in headers]
            value = F.get("_values", (F.array_position("_names", self._by_profile(names)) - 1).cast("int"))
            for place, header in enumerate(headers):
                if header and (header.is_prefix or header.path):
                    value = F.when(F.col("_profile") == place, self._elsewhere(place, header)).otherwise(value)
            values.append(value)
        *others, last = values
        return F.coalesce(*(F.nullif(value, F.lit(b"")) for value in others), last)

    def _elsewhere(self, place: int, header: Header) -> Column:
        """Return the value of the last header that a prefix matches, or the value at a path."""
        if header.path:
            return self._path(header.path).cast("binary")
        return F.get("_values", self._place_of_prefix(self.writers[place], header) - 1)

    def _text(self, field: str) -> Column:
        content = F.col(f"_{field}")
        text = F.make_valid_utf8(content.cast("string"))
        for encoding, decode_as in DECODERS.items():
            if places := self._places(field, encoding):
                text = F.when(F.col("_profile").isin(*places), decode_as(content, text)).otherwise(text)
        return F.nullif(text, F.lit(""))

    def _undecodable(self) -> Column:
        fields = []
        for field in FIELDS:
            invalid = ~F.is_valid_utf8(F.col(f"_{field}").cast("string"))
            binary = self._places(field, "int32") + self._places(field, "int64")
            fields.append((field, invalid & ~F.col("_profile").isin(*binary) if binary else invalid))
        each = F.array_compact(F.array(*(F.when(invalid, F.lit(field)) for field, invalid in fields)))
        return F.when(_any(invalid for _, invalid in fields), each)

    def _profiles(self) -> Column:
        """Return the names of the profiles that the record's own set satisfies if one of them is required."""
        both = (F.col("_profile") == self.both) & self._is_complete(PROFILES[KIP_1317])
        names = F.array(*(F.lit(PROFILES[place].name) for place in (KIP_1317, KIP_1191)))
        writers = F.array(self._by_profile([profile.name for profile in self.writers]))
        nobody = F.array().cast("array<string>")
        return F.when(both, names).when(F.col("_profile").isNotNull(), writers).otherwise(nobody)

    def _indexed(self) -> Column:
        """Return the headers with their positions, if several sets must be told apart."""
        indexed = F.transform(
            "headers",
            lambda header, at: F.struct(at.alias("at"), header["key"].alias("key"), header["value"].alias("value")),
        )
        return F.when(self._has_earlier_hops(), indexed)

    def _earlier_hops(self) -> Column:
        """Return the sets that are not the record's own, oldest first; two adjacent sets of a share group are one."""
        sets = F.array_sort(F.concat(*(self._older_sets(place) for place in range(len(self.profiles)))))

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

    def _older_sets(self, place: int) -> Column:
        """Return the sets of a profile that are not the record's own, newest first: position, profile, fields."""
        profile = self.profiles[place]

        def occurrences(header: Header) -> Column:
            matches = _matches(profile, header)
            return F.filter("_indexed", lambda one: matches(one["key"]))

        def occurrences_of(name: Column) -> Column:
            return F.filter("_indexed", lambda header: header["key"] == name)

        found = F.transform(F.array(*map(F.lit, profile.mandatory)), occurrences_of)
        count = F.array_min(F.transform(found, F.size)) if profile.mandatory else F.lit(1)
        if place == KIP_1317:  # one header is enough
            count = F.greatest(count, F.when(F.col(f"_at_{place}").isNotNull(), F.lit(1)).otherwise(F.lit(0)))
        if self._is_limited(profile) or self.rivals[place]:
            count = F.when(F.col(f"_at_{place}").isNotNull(), count).otherwise(F.lit(0))
        first = F.when(self._is_own(place), F.lit(2)).otherwise(F.lit(1))

        def nth(turn: Column) -> Column:
            def value_in(header: Header) -> Column:
                if header.path:  # the record has one value, which belongs to the last set
                    return F.when(turn == 1, F.nullif(self._path(header.path), F.lit("")))
                here = occurrences(header) if header.is_prefix else occurrences_of(F.lit(header.name))
                value = F.get(here, F.size(here) - turn)["value"]
                if not header.mandatory or header.is_prefix:  # its set is known only if each set has one
                    value = F.when(F.size(here) == count, value)
                text = F.try_validate_utf8(value.cast("string"))
                decode_as = DECODERS.get(header.encoding)
                return F.nullif(decode_as(value, text) if decode_as else text, F.lit(""))

            def value_of(field: str) -> Column:
                headers = [header for header in profile.headers if header.field == field]
                if not headers:
                    return F.lit(None).cast("string")
                values = list(map(value_in, headers))
                return F.coalesce(*values) if len(values) > 1 else values[0]

            last = F.size("_names") - F.col(f"_at_{place}")
            if profile.is_envelope:
                at = F.lit(-1)
            elif not profile.mandatory:
                at = last
            else:
                at = F.array_max(F.transform(found, lambda here: F.get(here, F.size(here) - turn)["at"]))
                if profile.mandatory_prefixes:  # which only the last set is known to have
                    at = F.when(turn == 1, last).otherwise(at)
            values = {field: value_of(field) for field in HOP_FIELDS.values()}
            partner = {KIP_1317: PROFILES[KIP_1191].name, KIP_1191: PROFILES[KIP_1317].name}.get(place)
            return F.struct(
                at.alias("at"),
                F.lit(profile.name).alias("profile"),
                F.lit(partner).cast("string").alias("partner"),
                *(_typed(name, values[field]).alias(name) for name, field in HOP_FIELDS.items()),
            )

        turns = F.when(count >= first, F.sequence(first, count)).otherwise(F.array().cast("array<int>"))
        return F.transform(turns, nth)

    def _collision(self) -> Column:
        """Tell whether a recognised header belongs to no complete set; cheap checks rule out most rows first.

        If a record has no complete set, its own profile's headers, once each, count as its set.
        """
        recognised = F.array(*map(F.lit, self.names))
        stray = (F.size("user_headers") > 0) & F.arrays_overlap(F.col("user_headers.key"), recognised)
        draft = PROFILES[KIP_1317]
        partial = F.col(f"_at_{KIP_1317}").isNotNull() & (F.col("_profile") != KIP_1317) & ~self._is_complete(draft)
        uneven = F.col("_again") & _any(self._is_uneven(places, names) for places, names in self._owners().items())
        return F.coalesce(stray, F.lit(False)) | F.coalesce(partial, F.lit(False)) | F.coalesce(uneven, F.lit(False))

    def _owners(self) -> dict[tuple[int, ...], list[str]]:
        """Return header names by the profiles that have them, also by a prefix: several if profiles share headers."""
        owners: dict[tuple[int, ...], list[str]] = {}
        for name in self.names:
            places = tuple(
                place
                for place, profile in enumerate(self.profiles)
                if name in profile.names or any(map(name.startswith, profile.prefixes))
            )
            owners.setdefault(places, []).append(name)
        return owners

    def _is_uneven(self, places: Sequence[int], names: Sequence[str]) -> Column:
        """Tell whether one of these profiles' names occurs more often than their sets."""
        return F.array_max(_counts(names)) > F.greatest(*(count for place in places for count in self._sets(place)))

    def _sets(self, place: int) -> list[Column]:
        """Return the number of a profile's sets, counted in two ways; the greater number is right."""
        profile = self.profiles[place]
        sets = F.array_min(_counts(profile.mandatory)) if profile.mandatory else F.lit(1)
        if self._is_limited(profile):
            sets = F.when(self._is_complete(profile), sets).otherwise(F.lit(0))
        return [sets, F.when(F.col("_profile") == place, F.lit(1)).otherwise(F.lit(0))]

    def _user_headers(self) -> Column:
        def without(names: Column | list[str], prefixes: Column | list[str]) -> Column:
            def is_kept(header: Column) -> Column:
                key = header["key"]
                if isinstance(names, list):
                    listed = key.isin(*names) if names else F.lit(False)
                else:
                    listed = F.array_contains(names, key)
                if not isinstance(prefixes, list):
                    listed = listed | F.exists(prefixes, lambda prefix: key.startswith(prefix))
                elif prefixes:
                    listed = listed | _any(map(key.startswith, prefixes))
                return ~F.coalesce(listed, F.lit(False))

            return F.filter("headers", is_kept)

        none = F.array().cast("array<string>")

        def present(of: Callable[[Profile], Sequence[str]]) -> Column:
            return F.concat(
                *(
                    F.when(
                        self._is_own(place) | self._is_complete(profile), F.array(*map(F.lit, of(profile)))
                    ).otherwise(none)
                    for place, profile in enumerate(self.profiles)
                    if of(profile)
                )
            )

        prefixes: Column | list[str] = []
        if any(profile.prefixes for profile in self.profiles):
            prefixes = present(lambda profile: profile.prefixes)
        several = self._has_earlier_hops() | (F.col("_profile") == self.both)
        for place, profile in enumerate(self.profiles):
            if self.rivals[place]:  # its set can be complete and still give way
                several = several | self._is_complete(profile)
        own = [
            F.when(F.col("_profile") == place, without([*profile.names], [*profile.prefixes]))
            for place, profile in enumerate(self.profiles)
        ]
        whole = without(present(lambda profile: profile.names), prefixes)
        return F.coalesce(F.when(several, whole), *own, "headers", F.array())

    def _by_profile(self, values: list[str | None]) -> Column:
        """Return the value that belongs to the writer of the record's own set; null without a profile.

        ``values`` has one value for each of ``writers``, in order.
        """
        return F.get(F.array(*map(F.lit, values)), F.col("_profile"))

    def _places(self, field: str, encoding: Encoding) -> list[int]:
        return [
            place
            for place, profile in enumerate(self.writers)
            if any(header.field == field and header.encoding == encoding for header in profile.headers)
        ]


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


def _matches(profile: Profile, header: Header) -> Callable[[Column], Column]:
    """Return a function that tells whether a name is that of a header, or fits its prefix and no closer name."""
    closer = [prefix for prefix in profile.prefixes if prefix != header.name and prefix.startswith(header.name)]

    def matches(name: Column) -> Column:
        if not header.is_prefix:
            return F.coalesce(name == header.name, F.lit(False))
        fits = name.startswith(header.name)
        if exact := [one for one in profile.names if one.startswith(header.name)]:
            fits = fits & ~name.isin(*exact)
        if closer:
            fits = fits & ~_any(map(name.startswith, closer))
        return F.coalesce(fits, F.lit(False))

    return matches


def _signed(content: Column, size: int) -> Column:
    """Return a big-endian two's complement number in decimal digits; bytes of another length as ``0x...``."""
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


def _counts(names: Iterable[str]) -> Column:
    """Return how often each name occurs."""
    return F.transform(
        F.array(*map(F.lit, names)), lambda name: F.size(F.filter("_names", lambda present: present == name))
    )


def _least(columns: Sequence[Column]) -> Column:
    return F.least(*columns) if len(columns) > 1 else columns[0]


def _all(conditions: Iterable[Column]) -> Column:
    return reduce(and_, conditions)


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(or_, conditions)
