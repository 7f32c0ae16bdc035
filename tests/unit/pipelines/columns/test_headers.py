"""The profiles as data, and the decoder alone: who wrote the headers, and big-endian numbers."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pytest

from pipelines.columns.headers import FIELDS, NAMES, PROFILES, Header, Profile, decode
from tests.testing import headers as reference

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


def decoded(
    spark: SparkSession,
    rows: dict[str, Any],
    own: tuple[Profile, ...] = (),
    values: dict[str, bytes | None] | None = None,
) -> dict[str, Row]:
    schema = "id string, headers array<struct<key: string, value: binary>>, value binary"
    given = [(name, headers, (values or {}).get(name)) for name, headers in rows.items()]
    return {row["id"]: row for row in decode(spark.createDataFrame(given, schema), own).collect()}


def test_order_of_recognition_and_mandatory_headers() -> None:
    assert {profile.name: profile.mandatory for profile in PROFILES} == {
        "kip-1317": (
            "_dlq.errors.disposition",
            "_dlq.errors.original.topic",
            "_dlq.errors.original.partition",
            "_dlq.errors.original.offset",
            "_dlq.errors.original.consumer.group",
            "_dlq.errors.timestamp",
        ),
        "kip-1191": ("__dlq.errors.topic", "__dlq.errors.partition", "__dlq.errors.offset", "__dlq.errors.group"),
        "kafka-streams": ("__streams.errors.topic", "__streams.errors.partition", "__streams.errors.offset"),
        "kafka-connect": ("__connect.errors.topic", "__connect.errors.partition", "__connect.errors.offset"),
        "spring-kafka": ("kafka_dlt-original-topic", "kafka_dlt-original-partition", "kafka_dlt-original-offset"),
    }
    assert [profile.name for profile in PROFILES] == [
        "kip-1317",
        "kip-1191",
        "kafka-streams",
        "kafka-connect",
        "spring-kafka",
    ]
    assert len(set(NAMES)) == len(NAMES)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[str, Row]:
    """The rows of all cases in this module, from one Spark job."""
    given: dict[str, list[tuple[str, bytes | None]]] = {"empty": []}
    for profile in PROFILES:
        complete: list[tuple[str, bytes | None]] = [(name, b"1") for name in profile.names]
        given |= {
            f"{profile.name}: all": complete,
            f"{profile.name}: all null": [(name, None) for name in profile.names],
            f"{profile.name}: last of two": [*[(name, b"0") for name in profile.names], *complete],
        }
        given |= {f"only {name}": [(name, b"1")] for name in profile.names}
        for later in PROFILES:
            incomplete = [header for header in complete if header[0] != profile.mandatory[1]]
            whole: list[tuple[str, bytes | None]] = [(name, b"1") for name in later.mandatory]
            given[f"{profile.name} behind {later.name}"] = [*whole, *complete]
            given[f"{profile.name} incomplete before {later.name}"] = [*incomplete, *whole]
            given[f"{profile.name} incomplete behind {later.name}"] = [*whole, *incomplete]
            given[f"{profile.name} incomplete, {later.name} too"] = [*whole[1:], *incomplete]
    for number in INT32:
        given[f"int32 {number}"] = [("kafka_dlt-original-partition", struct.pack(">i", number))]
    for number in INT64:
        given[f"int64 {number}"] = [("kafka_dlt-original-offset", struct.pack(">q", number))]
    return decoded(spark, given)


seeded = random.Random(1317)
INT32 = [0, 1, 0x7F, 0x80, 2**31 - 1, -1, -(2**31), *(seeded.randrange(-(2**31), 2**31) for _ in range(50))]
INT64 = [0, 1, 0x7F, 0x80, 2**63 - 1, -1, -(2**63), *(seeded.randrange(-(2**63), 2**63) for _ in range(50))]


def test_big_endian_numbers(rows: dict[str, Row]) -> None:
    assert [rows[f"int32 {number}"]["original_partition_text"] for number in INT32] == list(map(str, INT32))
    assert [rows[f"int64 {number}"]["original_offset_text"] for number in INT64] == list(map(str, INT64))


@pytest.mark.parametrize("profile", PROFILES, ids=attrgetter("name"))
def test_each_name_alone_is_recognised_and_fills_its_field(profile: Profile, rows: dict[str, Row]) -> None:
    for header in profile.headers:
        row = rows[f"only {header.name}"]
        shown = "0x31" if header.encoding.startswith("int") else "1"
        assert row["header_profile"] == profile.name
        assert _said(row) == {header.field: shown}
        assert row["user_headers"] == []
        assert not row["reserved_header_collision"]


@pytest.mark.parametrize("profile", PROFILES, ids=attrgetter("name"))
def test_presence_does_not_depend_on_values(profile: Profile, rows: dict[str, Row]) -> None:
    assert rows[f"{profile.name}: all"]["header_profile"] == profile.name
    assert rows[f"{profile.name}: all null"]["header_profile"] == profile.name
    assert _said(rows[f"{profile.name}: all null"]) == {}


@pytest.mark.parametrize("profile", PROFILES, ids=attrgetter("name"))
def test_of_a_set_that_occurs_twice_the_last_counts_and_the_other_is_an_earlier_hop(
    profile: Profile, rows: dict[str, Row]
) -> None:
    row = rows[f"{profile.name}: last of two"]
    assert _said(row) == _said(rows[f"{profile.name}: all"])
    assert [hop["profile"] for hop in row["earlier_hops"]] == [profile.name]
    assert not row["reserved_header_collision"]
    assert row["user_headers"] == []


@pytest.mark.parametrize("profile", PROFILES, ids=attrgetter("name"))
def test_the_set_that_was_complete_last_is_the_records_own(profile: Profile, rows: dict[str, Row]) -> None:
    for later in PROFILES:
        if later is profile:
            continue
        row = rows[f"{profile.name} behind {later.name}"]
        share_group = {profile.name, later.name} == {"kip-1317", "kip-1191"}
        assert row["header_profile"] == ("kip-1317" if share_group else profile.name)
        assert row["header_profiles"] == (["kip-1317", "kip-1191"] if share_group else [profile.name])
        assert [hop["profile"] for hop in row["earlier_hops"]] == ([] if share_group else [later.name])
        assert not row["reserved_header_collision"]
        assert row["user_headers"] == []


@pytest.mark.parametrize("profile", PROFILES, ids=attrgetter("name"))
def test_the_rest_of_a_set_is_nobodys(profile: Profile, rows: dict[str, Row]) -> None:
    for later in PROFILES:
        if later is profile:
            continue
        for name in (
            f"{profile.name} incomplete behind {later.name}",
            f"{profile.name} incomplete before {later.name}",
        ):
            row = rows[name]
            claimed = profile.name == "kip-1317" and (later.name == "kip-1191" or "behind" in name)
            assert row["header_profile"] == ("kip-1317" if claimed else later.name), name
            assert row["reserved_header_collision"] == (not claimed or later.name == "kip-1191"), name
            assert len(row["earlier_hops"]) == (later.name != "kip-1191" and profile.name == "kip-1317"), name
            kept = [header["key"] for header in row["user_headers"]]
            assert kept == ([] if claimed else [*profile.names[:1], *profile.names[2:]]), name


def test_the_first_of_which_any_is_there_is_the_profile_where_no_set_is_complete(rows: dict[str, Row]) -> None:
    for profile in PROFILES:
        for later in PROFILES[PROFILES.index(profile) + 1 :]:
            row = rows[f"{profile.name} incomplete, {later.name} too"]
            assert row["header_profile"] == profile.name
            assert row["reserved_header_collision"]


def test_a_random_mixture_says_what_the_reference_decoder_tells(spark: SparkSession) -> None:
    _hold_equal(spark, seed=1191, records=2_500)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(8))
def test_many_random_mixtures_say_what_the_reference_decoder_tells(seed: int, spark: SparkSession) -> None:
    _hold_equal(spark, seed, records=20_000)


OWN = (
    Profile(
        "own-a",
        (
            Header("original_topic", "x-topic", mandatory=True),
            Header("original_partition", "x-partition", "int32", mandatory=True),
            Header("original_offset", "x-offset", "int64", mandatory=True),
            Header("consumer_group", "x-group"),
            Header("", "x-retry-", is_prefix=True),
        ),
    ),
    Profile(
        "own-b",
        (
            Header("original_topic", "x-topic", mandatory=True),
            Header("original_partition", "x-where", mandatory=True),
        ),
    ),
    Profile(
        "own-c",
        (
            Header("original_topic", "kafka_dlt-original-topic", mandatory=True),
            Header("original_partition", "x-js-partition", mandatory=True),
            Header("original_offset", "x-js-offset", mandatory=True),
        ),
    ),
    Profile(
        "own-d",
        (
            Header("original_topic", path="$.t", mandatory=True),
            Header("original_partition", path="$.p"),
            Header("original_offset", path="$['o']", mandatory=True),
            Header("stage", "x-envelope"),
        ),
    ),
)


def test_profiles_of_settings_take_part_as_the_reference_decoder_tells(spark: SparkSession) -> None:
    _hold_equal(spark, seed=4, records=2_500, own=OWN)


def test_a_profile_that_gives_way_keeps_no_other_from_being_the_last_writers(spark: SparkSession) -> None:
    own = tuple(
        Profile(name, tuple(Header(field, header, mandatory=True) for field, header in mapped.items()))
        for name, mapped in {
            "first": {"original_topic": "a-topic", "original_offset": "a-offset"},
            "between": {"original_topic": "a-topic", "original_offset": "b-offset"},
            "last": {"original_topic": "b-topic", "original_offset": "b-offset"},
        }.items()
    )
    names = ["a-topic", "a-offset", "b-topic", "b-offset"]
    row = decoded(spark, {"both": [(name, name.encode()) for name in names]}, own)["both"]
    assert (row["header_profile"], row["original_topic_text"]) == ("last", "b-topic")
    assert [(hop["profile"], hop["topic"]) for hop in row["earlier_hops"]] == [("first", "a-topic")]
    assert (row["user_headers"], row["reserved_header_collision"]) == ([], False)


def test_of_two_headers_of_a_field_the_first_that_is_not_empty_counts_in_all_sets(spark: SparkSession) -> None:
    own = (
        Profile(
            "two",
            (
                Header("original_topic", "x-topic", mandatory=True),
                Header("original_topic", "x-fallback", mandatory=True),
                Header("original_topic", "x-more-", is_prefix=True),
                Header("original_topic", path="$.t"),
                Header("original_offset", "x-offset", "int64"),
                Header("original_offset", "x-position", "int64"),
            ),
        ),
    )
    second = struct.pack(">q", 7)
    empty: list[reference.Header] = [("x-topic", b""), ("x-offset", b""), ("x-position", second)]
    given: dict[str, list[reference.Header]] = {
        "header": [*empty, ("x-fallback", b"orders")],
        "prefix": [*empty, ("x-fallback", None), ("x-more-1", b"orders")],
        "path": [*empty, ("x-fallback", b""), ("x-more-1", b"")],
        "none": [*empty[:2], ("x-fallback", b""), ("x-more-1", b"")],
    }
    share_group: list[reference.Header] = [(name, b"1") for name in reference.SETS["kip-1191"]]
    given |= {f"{name} before a share group": [*headers, *share_group] for name, headers in [*given.items()]}
    found = decoded(spark, given, own, {"path": b'{"t":"orders"}', "path before a share group": b'{"t":"orders"}'})
    for name in ("header", "prefix", "path", "none"):
        row, later = found[name], found[f"{name} before a share group"]
        told = (row["original_topic_text"], row["original_offset_text"])
        assert told == ((None, None) if name == "none" else ("orders", "7")), name
        assert row["undecodable_headers"] is None
        hop = later["earlier_hops"][0]
        assert (hop["topic"], hop["offset"]) == ((None, None) if name == "none" else ("orders", 7)), name


def test_a_mandatory_prefix_takes_part_in_the_position_of_an_earlier_hop(spark: SparkSession) -> None:
    own = (
        Profile(
            "split",
            (
                Header("original_topic", "x-topic", mandatory=True),
                Header("original_offset", "x-offset-", mandatory=True, is_prefix=True),
            ),
        ),
    )
    connect, share_group = (
        [(name, b"1") for name in reference.SETS[profile]] for profile in ("kafka-connect", "kip-1191")
    )
    headers = [("x-topic", b"orders"), *connect, ("x-offset-a", b"7"), *share_group]
    row = decoded(spark, {"all": headers}, own)["all"]
    assert row["header_profile"] == "kip-1191"
    assert [hop["profile"] for hop in row["earlier_hops"]] == ["kafka-connect", "split"]


def test_a_name_under_a_prefix_of_a_complete_set_collides_with_nothing_if_other_names_repeat(
    spark: SparkSession,
) -> None:
    own = (
        Profile("wide", (Header("error_message", "x-why", mandatory=True), Header("", "x-", is_prefix=True))),
        Profile(
            "narrow", tuple(Header(f"original_{part}", f"x-{part}", mandatory=True) for part in ("topic", "offset"))
        ),
    )
    connect = [(name, b"1") for name in reference.SETS["kafka-connect"]]
    wide = [("x-why", b"no"), ("x-topic", b"orders")]
    given = {"once": [*connect, *wide], "twice": [*connect, *connect, *wide], "again": [*connect, *wide, wide[1]]}
    rows = decoded(spark, given, own)
    assert {name: row["header_profile"] for name, row in rows.items()} == dict.fromkeys(given, "wide")
    assert all(row["user_headers"] == [] for row in rows.values())
    assert [rows[name]["reserved_header_collision"] for name in given] == [False, False, True]


def test_no_headers_say_nothing(rows: dict[str, Row]) -> None:
    row = rows["empty"]
    assert row["header_profile"] is None
    assert row["undecodable_headers"] is None
    assert row["user_headers"] == []
    assert row["reserved_header_collision"] is False
    assert _said(row) == {}


def _said(row: Row) -> dict[str, Any]:
    return {field: row[f"{field}_text"] for field in FIELDS if row[f"{field}_text"] is not None}


def _hold_equal(spark: SparkSession, seed: int, records: int, own: tuple[Profile, ...] = ()) -> None:
    seeded = random.Random(seed)
    mixtures = _mixtures(seeded, bool(own))
    given = {str(number): next(mixtures) for number in range(records)}
    values = {number: seeded.choice(ENVELOPES) for number in given}
    rows = decoded(spark, given, own, values)
    seen = {"hops": 0, "collisions": 0, "both": 0}
    for number, headers in given.items():
        row, expected = rows[number], reference.told(headers, values[number], own=bool(own))
        found = {
            "header_profile": row["header_profile"],
            "header_profiles": set(row["header_profiles"]),
            "earlier_hops": [tuple(hop) for hop in row["earlier_hops"]],
            "reserved_header_collision": row["reserved_header_collision"],
            "user_headers": [
                None if header is None else (header[0], _bytes(header[1])) for header in row["user_headers"]
            ],
            "original": [row[f"original_{part}_text"] for part in ("topic", "partition", "offset")],
            "delivery_count": row["delivery_count_text"],
        }
        assert found == expected, ([header and header[0] for header in headers], values[number])
        if own and found["header_profile"] in reference.OWN:
            seen[found["header_profile"]] = seen.get(found["header_profile"], 0) + 1
        seen["hops"] += len(found["earlier_hops"]) > 1
        seen["collisions"] += found["reserved_header_collision"]
        seen["both"] += len(found["header_profiles"]) == 2
    assert min(seen.values()) > records / 100, seen
    assert len(seen) == 3 + len(own), seen
    assert any(row["header_profile"] is None for row in rows.values())


ENVELOPES = [
    None,
    b"",
    b"v",
    b"[]",
    b'{"t":"e","p":1,"o":2}',
    b' {"p":null,"o":9223372036854775807,"t":"\\u00e4"}',
    b'{"t":"e","p":1}',
    b'{"t":"","p":-1,"o":"7"}',
    b'{"t":"e","o":2',
    b'{"t":"\xff","o":2}',
]


def _mixtures(seeded: random.Random, own: bool = False) -> Iterator[list[reference.Header]]:
    """Yield sets of random writers, complete or not, in any order, one after another or mixed, and foreign headers."""

    sets = reference.SETS | reference.OWN if own else reference.SETS

    def value(profile: str, name: str) -> bytes | None:
        if seeded.random() < 0.08:
            return seeded.choice([None, b"", b"\xff", b"x" * 9, b"-1", b"007"])
        if profile in reference.BINARY and name.endswith("partition"):
            return struct.pack(">i", seeded.randrange(-1, 99))
        if profile in reference.BINARY and name.endswith("offset"):
            return struct.pack(">q", seeded.randrange(-1, 2**40))
        if name.endswith(("partition", "offset", "count")):
            return b"%d" % seeded.choice([0, 7, 2**31 - 1, 2**31, 2**63 - 1, 2**63, seeded.randrange(99)])
        return b"%c%d" % (97 + seeded.randrange(26), seeded.randrange(100))

    def some_set() -> list[reference.Header]:
        profile = seeded.choice([*sets])
        names = [*sets[profile], *(name for name in reference.OPTIONAL[profile] if seeded.random() < 0.4)]
        if names and seeded.random() < 0.3:
            names = seeded.sample(names, seeded.randrange(1, len(names) + 1))
        if seeded.random() < 0.3:
            seeded.shuffle(names)
        if names and seeded.random() < 0.1:
            names.append(seeded.choice(names))
        return [(name, value(profile, name)) for name in names]

    def foreign() -> list[reference.Header]:
        names = [
            "traceparent",
            "x-retry-",
            "x-retry-at",
            "x-retr",
            "",
            None,
            "_dlq.errors.reason",
            "__connect.errors",
            "kafka_dlt-original-topic ",
        ]
        return [None if seeded.random() < 0.1 else (seeded.choice(names), seeded.choice([None, b"", b"u"]))]

    while True:
        parts = [some_set() if seeded.random() < 0.75 else foreign() for _ in range(seeded.randrange(7))]
        headers = [header for part in parts for header in part]
        mixed = seeded.random()
        if mixed < 0.15:
            seeded.shuffle(headers)
        elif mixed < 0.4:  # sets that are interleaved, each in its own order
            turns = [turn for turn, part in enumerate(parts) for _ in part]
            seeded.shuffle(turns)
            each = [iter(part) for part in parts]
            headers = [next(each[turn]) for turn in turns]
        yield headers


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
