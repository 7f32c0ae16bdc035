"""Plans of shapes alone, without Spark: chains of writers from all profiles, and names that several writers share."""

from __future__ import annotations

import random

import pytest

from pipelines.columns.header_cuts import Shape
from pipelines.columns.header_sets import Planner
from pipelines.columns.headers import NUMBERS, read, text
from pipelines.columns.profiles import PROFILES, Header, Kind, Profile, profiles_of
from pipelines.settings import Dlq
from tests.testing.headers import Headers, Story, stories

ALL = profiles_of(Dlq())
NAMED = {profile.name: profile for profile in ALL}
SHARED = {"consumer_group"}  # both profiles of Spring have its name; in a map it has one value


def told(
    headers: Headers, topic: str | None = None, profiles: tuple[Profile, ...] = ALL
) -> list[tuple[str, str | None]]:
    """The profile and source topic of each hop, oldest first; the record's own is the last."""
    plan, texts = read(headers, profiles, topic)
    known = [header for header in headers if header and Planner(profiles).known(header[0])]

    def topic_of(places: tuple[int, ...]) -> str | None:
        return text(known[places[0]][1], "text") if places else None

    hops = [(hop.profile.name, topic_of(hop.indexes.get("original_topic", ()))) for hop in plan.hops]
    return [*hops, (plan.profiles[0], texts.get("original_topic"))] if plan.own else hops


def written(name: str, topic: str, *without: str) -> Headers:
    """A set of a profile, with the source topic and any other text as values."""
    return [
        (header.name, topic.encode() if header.field == "original_topic" else b"1")
        for header in NAMED[name].headers
        if header.name and header.name not in without
    ]


@pytest.mark.parametrize("seed", range(20))
def test_a_chain_of_any_writers_is_read_as_it_was_written(seed: int) -> None:
    seeded = random.Random(seed)
    for _ in range(300):
        _holds(stories(seeded, ALL))


def _holds(story: Story) -> None:
    plan, texts = read(story.headers, ALL, story.topic)
    (profile, expected), shown = story.hops[-1], [header and header[0] for header in story.headers]
    assert plan.own is not None
    assert [hop.profile.name for hop in (*plan.hops, plan.own)] == [profile.name for profile, _ in story.hops], shown
    assert not plan.has_strays, shown
    assert not plan.lacking
    if story.is_plain:
        assert texts == expected, shown
        assert [len(hop.indexes) for hop in plan.hops] == [len(fields) for _, fields in story.hops[:-1]], shown
        return
    mandatory = {header.field for header in profile.headers if header.mandatory and header.field}
    assert {name: texts.get(name) for name in mandatory} == {name: expected[name] for name in mandatory}, shown
    assert all(said in story.texts_of(name) for name, said in texts.items()), shown
    if [item for item, _ in story.written].count(profile) == 1 and profile.newest != "anywhere":
        assert expected.keys() - SHARED <= texts.keys(), shown


def test_an_optional_header_belongs_to_the_set_at_its_place() -> None:
    group = "kafka_dlt-original-consumer-group"
    first, second = written("spring-kafka", "payments"), written("spring-kafka", "payments.DLT", group)
    plan, texts = read([*first, *second], ALL)
    assert "consumer_group" not in texts
    assert [hop.indexes["consumer_group"] for hop in plan.hops] == [(len(first) - 1,)]


def test_a_name_that_two_writers_share_belongs_to_the_set_beside_it() -> None:
    group = "kafka_dlt-original-consumer-group"
    retry, classic = written("spring-retry-topic", "a"), written("spring-kafka", "a-dlt", group)
    assert told([*retry, *classic]) == [("spring-retry-topic", "a"), ("spring-kafka", "a-dlt")]
    plan, texts = read([*retry, *classic], ALL)
    assert "consumer_group" not in texts
    assert "consumer_group" in plan.hops[0].indexes
    plan, texts = read([*classic, *retry], ALL)
    assert (plan.profiles, texts["consumer_group"]) == (("spring-retry-topic",), "1")
    assert not plan.has_strays


def test_one_shared_name_makes_no_profile() -> None:
    for name in ("x-original-topic", "kafka_topic", "original_topic", "exception-type"):
        plan, _ = read([(name, b"a")], ALL)
        assert plan.own is None, name
        assert not plan.has_strays


def test_a_profile_of_the_settings_comes_before_a_shipped_one() -> None:
    own = Profile(
        "mine", tuple(Header(f"original_{part}", f"x-original-{part}", mandatory=True) for part in ("topic",))
    )
    headers = written("spring-cloud-stream", "orders")
    assert told(headers)[-1][0] == "spring-cloud-stream"
    assert told(headers, profiles=(*PROFILES, own, *ALL[len(PROFILES) :]))[-1][0] == "mine"


def test_the_nearest_profile_says_what_it_lacks() -> None:
    plan, _ = read(written("spring-retry-topic", "a", "kafka_original-offset"), ALL)
    assert (plan.profiles, plan.lacking) == (("spring-retry-topic",), ("kafka_original-offset",))


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ((("spring-kafka", "a"), ("spring-kafka", "a.DLT", "kafka_dlt-original-offset")), [("spring-kafka", "a")]),
        (
            (("kafka-connect", "a"), ("spring-kafka", "b"), ("only", "__connect.errors.topic")),
            [("kafka-connect", "a"), ("spring-kafka", "b")],
        ),
        (
            (("smallrye-dead-letter-queue", "a"), ("only", "dead-letter-topic"), ("only", "dead-letter-offset")),
            [("smallrye-dead-letter-queue", "a")],
        ),
    ],
)
def test_what_is_left_of_another_set_gives_no_value(
    sets: tuple[tuple[str, ...], ...], expected: list[tuple[str, str]]
) -> None:
    headers: Headers = []
    for name, topic, *without in sets:
        headers += [(topic, b"left")] if name == "only" else written(name, topic, *without)
    assert told(headers) == expected
    assert read(headers, ALL)[0].has_strays


def test_a_header_of_a_retry_topic_makes_no_classic_spring_record() -> None:
    lacking = ("kafka_original-partition",)
    plan, _ = read(written("spring-retry-topic", "a", *lacking), ALL)
    assert (plan.profiles, plan.lacking) == (("spring-retry-topic",), lacking)


def test_names_that_a_pipe_leaves_are_no_strays_and_make_no_profile() -> None:
    piped: Headers = [("kafka_topic", b"a"), ("kafka_offset", b"1")]
    assert read(piped, ALL)[0].own is None
    plan, _ = read([*piped, ("kafka_partition", b"0"), *written("spring-kafka", "a")], ALL)
    assert (plan.profiles, plan.has_strays) == (("spring-kafka",), False)


def test_values_side_by_side_are_one_a_hop() -> None:
    names = ("kafka_dlt-original-topic", "kafka_dlt-original-partition", "kafka_dlt-original-offset")
    headers: Headers = [(name, value) for name in names for value in (b"a", b"b", b"c")]
    assert told(headers) == [("spring-kafka", topic) for topic in "abc"]


@pytest.mark.parametrize(
    ("topics", "dlq_topic", "expected"),
    [
        (("a", "a.dlt"), "a.dlt.dead", ["spring-kafka", "smallrye-dead-letter-queue"]),
        (("a.dead", "a"), "a.dead.dlt", ["smallrye-dead-letter-queue", "spring-kafka"]),
        (("x", "dead-letter-topic-y"), "z", ["spring-kafka", "smallrye-dead-letter-queue"]),
        (("x", "y"), "z-dlt", ["smallrye-dead-letter-queue", "spring-kafka"]),
        (("x", "y"), "z", ["spring-kafka", "smallrye-dead-letter-queue"]),
    ],
)
def test_topics_tell_the_order_of_writers_that_write_first_and_that_append(
    topics: tuple[str, str], dlq_topic: str, expected: list[str]
) -> None:
    spring, smallrye = topics
    if expected[0].startswith("smallrye") and topics == ("a.dead", "a"):
        spring, smallrye = topics
    headers = [*written("smallrye-dead-letter-queue", smallrye), ("u", b""), *written("spring-kafka", spring)]
    assert [name for name, _ in told(headers, dlq_topic)] == expected


def placed(name: str, topic: str, offset: str, *without: str) -> Headers:
    """A set of a profile, with the source topic and the offset."""
    offsets = {header.name for header in NAMED[name].headers if header.field == "original_offset"}
    return [
        (known, offset.encode() if known in offsets else value)
        for known, value in filter(None, written(name, topic, *without))
    ]


def test_a_set_in_a_map_is_as_new_as_its_topic_says() -> None:
    spring, user = written("spring-kafka", "a.dlq"), ("u", b"")
    karafka = written("karafka", "a.dlq.DLT")
    headers = [*karafka[:2], user, *karafka[2:], *spring]
    assert told(headers, "a.dlq.DLT.dead") == [("spring-kafka", "a.dlq"), ("karafka", "a.dlq.DLT")]
    assert told([*written("karafka", "a"), *spring], "a.dlq.DLT") == [("karafka", "a"), ("spring-kafka", "a.dlq")]


@pytest.mark.parametrize("seed", range(20))
def test_a_map_in_random_order_is_as_new_as_its_topic_says(seed: int) -> None:
    sets = [*written("kafka-connect", "a"), *written("spring-kafka", "a.x"), *written("watermill", "a.x.y")]
    random.Random(seed).shuffle(sets)
    order = [("kafka-connect", "a"), ("spring-kafka", "a.x"), ("watermill", "a.x.y")]
    assert told([("u", b""), *sets], "a.x.y.z") == order
    connect = written("kafka-connect", "a.x.y.z")
    assert told([*sets, *connect], "a.x.y.z.dlq") == [*order, ("kafka-connect", "a.x.y.z")]
    assert not read(sets, ALL, "a.x.y.z")[0].has_strays


def test_places_count_where_topics_are_silent() -> None:
    karafka, spring = written("karafka", "x"), written("spring-kafka", "y")
    assert told([*karafka, *spring], "z") == [("karafka", "x"), ("spring-kafka", "y")]
    assert told([*spring, *karafka], "z") == [("spring-kafka", "y"), ("karafka", "x")]


@pytest.mark.parametrize("seed", range(20))
def test_topics_tell_the_order_of_what_a_relay_shuffled(seed: int) -> None:
    shuffled = [*written("spring-kafka", "a.x"), *written("kafka-connect", "a")]
    seeded = random.Random(seed)
    seeded.shuffle(shuffled)
    topics = [header[0] for header in shuffled if header and header[1] in (b"a", b"a.x")]
    parted = [
        header for header in shuffled if header and header[0] in topics
    ]  # one writer's topic between the other's headers
    headers = [parted[0], *(header for header in shuffled if header not in parted), parted[1]]
    assert told(headers, "a.x.y") == [("kafka-connect", "a"), ("spring-kafka", "a.x")]


def test_headers_of_two_writers_one_in_the_other_are_shuffled() -> None:
    connect, spring = written("kafka-connect", "a"), written("spring-kafka", "a.x")
    last = NAMED["spring-kafka"].mandatory[-1]
    behind = [header for header in spring if header and header[0] == last]
    front = [header for header in spring if header not in behind]
    split: list[Headers] = [[*front, *connect, *behind], [*front, *connect[:1], *behind, *connect[1:]]]
    for headers in (*split, [*connect[:1], *spring, *connect[1:]]):
        assert told(headers, "a.x.y") == [("kafka-connect", "a"), ("spring-kafka", "a.x")]


def test_what_was_shuffled_is_older_than_the_map_that_shuffled_it() -> None:
    smallrye, watermill = written("smallrye-dead-letter-queue", "x")[::-1], written("watermill", "y")
    for headers in ([*smallrye, *watermill], [*watermill, *smallrye]):
        assert told(headers, "z") == [("smallrye-dead-letter-queue", "x"), ("watermill", "y")]


def test_a_shared_name_among_shuffled_headers_belongs_to_what_stands_beside_it() -> None:
    shuffled = written("spring-kafka", "a")[::-1]
    plan, _ = read([*shuffled, *written("spring-retry-topic", "a.DLT")], ALL, "a.DLT-dlt")
    assert [(hop.profile.name, hop.indexes["consumer_group"]) for hop in plan.hops] == [("spring-kafka", (0,))]
    assert not plan.has_strays


def test_a_users_profile_proves_no_shuffle() -> None:
    names = {"original_offset": "my-offset", "original_topic": "my-topic"}
    mine = Profile("mine", tuple(Header(known, name, mandatory=True) for known, name in names.items()))
    headers = [*written("kafka-connect", "x"), ("my-topic", b"y"), ("my-offset", b"1")]
    assert told(headers, "z", (*PROFILES, mine)) == [("kafka-connect", "x"), ("mine", "y")]


def test_a_copy_of_all_headers_makes_no_hops() -> None:
    hops = [*placed("kafka-connect", "a", "7"), *placed("spring-kafka", "b", "8")]
    for headers in ([*hops, *hops], [*hops, *hops, *hops]):
        assert told(headers, "c") == [("kafka-connect", "a"), ("spring-kafka", "b")]
        assert not read(headers, ALL, "c")[0].has_strays
    first = placed("smallrye-dead-letter-queue", "b", "8")
    headers = [*first, *hops[:10], *first, *hops[:10]]
    assert told(headers, "c") == [("kafka-connect", "a"), ("smallrye-dead-letter-queue", "b")]


@pytest.mark.parametrize("other", [("a", "8"), ("b", "7")])
def test_a_set_with_another_place_is_another_hop(other: tuple[str, str]) -> None:
    headers = [*placed("kafka-connect", "a", "7"), *placed("kafka-connect", *other)]
    assert told(headers, "c") == [("kafka-connect", "a"), ("kafka-connect", other[0])]


def test_sets_that_do_not_know_their_place_are_no_copies() -> None:
    unknown: Headers = [
        (name, None if value == b"" else b"-1") for name, value in filter(None, written("kafka-streams", ""))
    ]
    assert len(told([*unknown, *unknown], "c")) == 2


def test_an_optional_header_that_an_older_set_may_have_left_fills_no_field() -> None:
    """Brighter leaves the message out if there is none, and replaces its other headers where they stand."""
    brighter, connect = written("brighter", "a.dlq.b.DLT"), written("kafka-connect", "a.dlq.b")
    plan, texts = read([*brighter, *connect], ALL, "a.dlq.b.DLT.dead")
    assert plan.profiles == ("brighter",)
    assert "error_message" not in texts
    assert not plan.has_strays
    late = [header for header in brighter if header and header[0] == "RejectionMessage"]
    early = [header for header in brighter if header not in late]
    assert read([*early, *connect, *late], ALL, "a.dlq.b.DLT.dead")[1]["error_message"] == "1"
    assert read(brighter, ALL, "a.dlq")[1]["error_message"] == "1"
    assert read([*connect, *brighter], ALL, "a.dlq.b.DLT.dead")[1]["error_message"] == "1"


@pytest.mark.parametrize("seed", range(300))
def test_of_two_profiles_one_of_which_has_all_names_the_one_that_explains_more_stands(seed: int) -> None:
    """One is a profile of the settings. All mandatory names of the inner one are optional names of the outer one."""
    seeded = random.Random(seed)
    names = [f"h{number}" for number in range(seeded.randint(3, 9))]
    inner = seeded.sample(names, seeded.randint(1, len(names) - 1))
    of_inner = set(seeded.sample(inner, seeded.randint(1, len(inner))))
    outer_left = [name for name in names if name not in of_inner]
    of_outer = set(seeded.sample(outer_left, seeded.randint(1, len(outer_left))))
    own_of_inner = [f"i{number}" for number in range(seeded.randrange(3))]
    kinds: list[Kind] = seeded.sample(["settings", "shipped"], 2)
    named = Profile(
        "inner", tuple(Header("", name, mandatory=name in of_inner) for name in (*inner, *own_of_inner)), kind=kinds[0]
    )
    other = Profile("outer", tuple(Header("", name, mandatory=name in of_outer) for name in names), kind=kinds[1])
    headers: Headers = [(name, b"1") for name in seeded.sample((*names, *own_of_inner), len(names) + len(own_of_inner))]
    explained = {"inner": len(inner) + len(own_of_inner), "outer": len(names)}
    most = max(explained.values())
    winners = [named for named in (named, other) if explained[named.name] == most]
    winner = min(winners, key=lambda item: item.kind != "settings")
    for profiles in ((named, other), (other, named)):
        plan, _ = read(headers, (*PROFILES, *profiles))
        assert (plan.profiles, plan.hops, plan.has_strays) == ((winner.name,), (), False)


@pytest.mark.parametrize("field", NUMBERS)
def test_minus_one_is_what_a_writer_does_not_know(field: str) -> None:
    known = [Header("original_topic", "t", mandatory=True), Header(field, "n"), Header("error_message", "m")]
    headers: Headers = [("t", b"a"), ("n", b"-1"), ("m", b"-1")]
    assert read(headers, (Profile("own", tuple(known)),))[1] == {"original_topic": "a", "error_message": "-1"}
    share_group = next(profile for profile in PROFILES if profile.name == "kip-1191")
    numbers = {name: b"-1" for name in share_group.names}
    assert read([*numbers.items()], ALL)[1]["original_offset"] == "-1"


def test_many_sets_take_little_time() -> None:
    names = tuple(name for name in PROFILES[3].names) * 1_000
    plan = Planner(PROFILES).plan(Shape(names))
    assert len(plan.hops) == 999
    front = [*written("smallrye-dead-letter-queue", "a") * 500, *written("kafka-connect", "b") * 500]
    assert len(told(front, "c")) == 1_000
