"""The profiles as data, and the decoder alone: who wrote the headers, and big-endian numbers."""

from __future__ import annotations

import random
import struct
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pytest

from pipelines.columns.header_sets import planner_of
from pipelines.columns.headers import NUMBERS, decode, read, shapes_of
from pipelines.columns.profiles import FIELDS, NAMES, PROFILES, Header, Profile, profiles_of
from pipelines.settings import Dlq
from tests.testing.headers import Headers, stories

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


TOPIC = "dlq"
ALL = profiles_of(Dlq())


def decoded(
    spark: SparkSession,
    rows: dict[str, Any],
    profiles: tuple[Profile, ...] = PROFILES,
    values: dict[str, bytes | None] | None = None,
    topics: dict[str, str] | None = None,
    topic: str = TOPIC,
) -> dict[str, Row]:
    schema = "id string, cluster string, topic string, headers array<struct<key: string, value: binary>>, value binary"
    given = [
        (name, "c", (topics or {}).get(name, topic), headers, (values or {}).get(name))
        for name, headers in rows.items()
    ]
    records = spark.createDataFrame(given, schema)
    return {row["id"]: row for row in decode(records, shapes_of(records, profiles)).collect()}


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
    assert [rows[f"int32 {number}"]["original_partition_text"] for number in INT32] == [
        _unless_unknown(number) for number in INT32
    ]
    assert [rows[f"int64 {number}"]["original_offset_text"] for number in INT64] == [
        _unless_unknown(number) for number in INT64
    ]


def _unless_unknown(number: int) -> str | None:
    return None if number == -1 else str(number)


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
            left = [name for name in profile.names if name != profile.mandatory[1]]
            assert kept == ([] if claimed else left), name


def test_the_first_of_which_any_is_there_is_the_profile_where_no_set_is_complete(rows: dict[str, Row]) -> None:
    for profile in PROFILES:
        for later in PROFILES[PROFILES.index(profile) + 1 :]:
            row = rows[f"{profile.name} incomplete, {later.name} too"]
            assert row["header_profile"] == profile.name
            assert row["reserved_header_collision"]


def test_a_random_mixture_is_read_as_its_plan_says(spark: SparkSession) -> None:
    _hold_equal(spark, seed=1191, records=1_000)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(8))
def test_many_random_mixtures_are_read_as_their_plans_say(seed: int, spark: SparkSession) -> None:
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


def test_profiles_of_settings_take_part_as_the_plan_says(spark: SparkSession) -> None:
    _hold_equal(spark, seed=4, records=1_000, own=OWN)


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
    row = decoded(spark, {"both": [(name, name.encode()) for name in names]}, (*PROFILES, *own))["both"]
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
    empty: list[tuple[str, bytes | None]] = [("x-topic", b""), ("x-offset", b""), ("x-position", second)]
    given: dict[str, list[tuple[str, bytes | None]]] = {
        "header": [*empty, ("x-fallback", b"orders")],
        "prefix": [*empty, ("x-fallback", None), ("x-more-1", b"orders")],
        "path": [*empty, ("x-fallback", b""), ("x-more-1", b"")],
        "none": [*empty[:2], ("x-fallback", b""), ("x-more-1", b"")],
    }
    share_group: list[tuple[str, bytes | None]] = [(name, b"1") for name in PROFILES[1].mandatory]
    given |= {f"{name} before a share group": [*headers, *share_group] for name, headers in [*given.items()]}
    found = decoded(
        spark, given, (*PROFILES, *own), {"path": b'{"t":"orders"}', "path before a share group": b'{"t":"orders"}'}
    )
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
    connect, share_group = ([(name, b"1") for name in PROFILES[place].mandatory] for place in (3, 1))
    headers = [("x-topic", b"orders"), *connect, ("x-offset-a", b"7"), *share_group]
    row = decoded(spark, {"all": headers}, (*PROFILES, *own))["all"]
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
    connect = [(name, b"1") for name in PROFILES[3].mandatory]
    wide = [("x-why", b"no"), ("x-topic", b"orders")]
    given = {"once": [*connect, *wide], "twice": [*connect, *connect, *wide], "again": [*connect, *wide, wide[1]]}
    rows = decoded(spark, given, (*PROFILES, *own))
    assert {name: row["header_profile"] for name, row in rows.items()} == dict.fromkeys(given, "wide")
    assert all(row["user_headers"] == [] for row in rows.values())
    assert [rows[name]["reserved_header_collision"] for name in given] == [False, False, False]


def test_chains_of_writers_are_read_as_they_were_written(spark: SparkSession) -> None:
    seeded = random.Random(45)
    told = {str(number): stories(seeded, ALL) for number in range(500)}
    topics = {name: story.topic for name, story in told.items()}
    rows = decoded(spark, {name: story.headers for name, story in told.items()}, ALL, topics=topics)
    for name, story in told.items():
        row, (_, texts) = rows[name], read(story.headers, ALL, story.topic)
        assert _said(row) == texts
        profiles = [*(hop["profile"] for hop in row["earlier_hops"]), row["header_profile"]]
        assert profiles == [profile.name for profile, _ in story.hops]
        if story.is_plain:
            assert texts == story.hops[-1][1]
            assert [_texts(hop) for hop in row["earlier_hops"]] == [_hop(*hop) for hop in story.hops[:-1]]
            assert [(header[0], _bytes(header[1])) for header in row["user_headers"]] == story.user_headers


def _texts(hop: Row) -> tuple[str | None, ...]:
    return tuple(None if value is None else str(value) for value in hop)


def _hop(profile: Profile, texts: dict[str, str]) -> tuple[str | None, ...]:
    fields = ("original_topic", "original_partition", "original_offset", "consumer_group")
    return (profile.name, *(texts.get(field) for field in fields))


def test_the_default_name_of_a_dlq_topic_tells_the_group_that_headers_do_not(spark: SparkSession) -> None:
    names = (Header("original_topic", "x-topic", mandatory=True), Header("consumer_group", "x-group"))
    profiles = (*PROFILES, Profile("named", names, before_group="dead.{original_topic}."))
    given: dict[str, tuple[Headers, str | None]] = {
        "default": ([("x-topic", b"orders")], "billing.eu"),
        "header": ([("x-topic", b"orders"), ("x-group", b"audit")], "audit"),
        "other source": ([("x-topic", b"order")], None),
        "no group": ([("x-topic", b"orders.billing.eu")], None),
        "no source": ([("x-topic", b"")], None),
        "other writer": ([(name, b"orders") for name in PROFILES[3].mandatory], None),
    }
    rows = decoded(
        spark, {name: headers for name, (headers, _) in given.items()}, profiles, topic="dead.orders.billing.eu"
    )
    for name, (headers, group) in given.items():
        assert rows[name]["consumer_group_text"] == group, name
        assert read(headers, profiles, "dead.orders.billing.eu")[1].get("consumer_group") == group, name


def test_names_of_several_writers_look_like_a_writers(spark: SparkSession) -> None:
    of_nobody = ["original_topic", "original_partition", "kafka_offset"]
    given = [("c", "known", [(name, b"1") for name in of_nobody]), ("c", "none", [("trace", b"1"), ("b3", b"1")])]
    given.append(("c", "unknown", [("my-topic", b"1"), ("my-offset", b"1")]))
    schema = "cluster string, topic string, headers array<struct<key: string, value: binary>>, value binary"
    plans = shapes_of(spark.createDataFrame([(*row, None) for row in given], schema), ALL)
    found = {topic: (plans.planner.plan(shape).own, looks) for (_, topic), ((shape, looks),) in plans.by_topic.items()}
    assert found == {"known": (None, True), "none": (None, False), "unknown": (None, True)}


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
    """Hold that Spark reads mixtures of sets, complete or not, as the plan of their shape says."""
    seeded = random.Random(seed)
    profiles = (*ALL[: len(PROFILES)], *own, *ALL[len(PROFILES) :])
    given = {str(number): _mixture(seeded, profiles) for number in range(records)}
    rows = decoded(spark, given, profiles)
    seen = {"hops": 0, "collisions": 0, "both": 0, "incomplete": 0, "unknown": 0}
    for number, headers in given.items():
        row, (plan, texts) = rows[number], read(headers, profiles, TOPIC)
        shown = [header and header[0] for header in headers]
        assert row["header_profile"] == (plan.own and plan.own.profile.name), shown
        assert row["header_profiles"] == list(plan.profiles), shown
        assert row["missing_headers"] == list(plan.lacking), shown
        assert row["reserved_header_collision"] == plan.has_strays, shown
        assert [hop["profile"] for hop in row["earlier_hops"]] == [hop.profile.name for hop in plan.hops], shown
        assert _said(row) == texts, shown
        user = [None if header is None else (header[0], _bytes(header[1])) for header in row["user_headers"]]
        taken = [header for header in headers if header not in user]
        assert [header for header in headers if header in user] == user, shown
        planner = planner_of(profiles)
        assert all(header and planner.known(header[0]) in plan.taken for header in taken), shown
        seen["hops"] += len(plan.hops) > 1
        seen["collisions"] += plan.has_strays
        seen["both"] += len(plan.profiles) == 2
        seen["incomplete"] += bool(plan.lacking)
        seen["unknown"] += plan.own is None
    assert min(seen.values()) > records / 200, seen


def _mixture(seeded: random.Random, profiles: tuple[Profile, ...]) -> Headers:
    """Return sets of random writers, complete or not, in any order, one after another or mixed, and foreign headers."""
    named = [profile for profile in profiles if profile.mandatory]

    def value(header: Header) -> bytes | None:
        if seeded.random() < 0.08:
            return seeded.choice([None, b"", b"\xff", b"x" * 9, b"-1", b"007"])
        number = seeded.choice([-1, 0, 7, 2**31 - 1, seeded.randrange(99)])
        if header.encoding == "int32":
            return struct.pack(">i", number)
        if header.encoding == "int64":
            return struct.pack(">q", number * 2**20)
        if header.encoding == "integer":
            return number.to_bytes(5, "big", signed=True)
        return str(number).encode() if header.field in NUMBERS else b"%c%d: e" % (97 + seeded.randrange(26), number)

    def some_set() -> Headers:
        profile = seeded.choice(PROFILES if seeded.random() < 0.6 else named)
        chosen = [header for header in profile.headers if header.name and (header.mandatory or seeded.random() < 0.4)]
        if chosen and seeded.random() < 0.3:
            chosen = seeded.sample(chosen, seeded.randrange(1, len(chosen) + 1))
        if seeded.random() < 0.3:
            seeded.shuffle(chosen)
        if chosen and seeded.random() < 0.1:
            chosen.append(seeded.choice(chosen))
        return [
            (f"{candidate.name}{seeded.choice('ab') if candidate.is_prefix else ''}", value(candidate))
            for candidate in chosen
        ]

    def foreign() -> Headers:
        names = ["traceparent", "x-retr", "", None, "_dlq.errors.reason", "kafka_dlt-original-topic "]
        return [None if seeded.random() < 0.1 else (seeded.choice(names), seeded.choice([None, b"", b"u"]))]

    parts = [some_set() if seeded.random() < 0.75 else foreign() for _ in range(seeded.randrange(7))]
    headers = [header for part in parts for header in part]
    if seeded.random() < 0.15:
        seeded.shuffle(headers)
    return headers


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
