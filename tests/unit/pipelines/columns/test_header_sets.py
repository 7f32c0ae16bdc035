"""Plans of shapes alone, without Spark: chains of writers from all profiles, and names that several writers share."""

from __future__ import annotations

import random

import pytest

from pipelines.columns.header_sets import Planner, Shape
from pipelines.columns.headers import read, text
from pipelines.columns.profiles import PROFILES, Header, Profile, profiles_of
from pipelines.settings import Dlq
from tests.testing.headers import Headers, Story, stories

ALL = profiles_of(Dlq())
NAMED = {profile.name: profile for profile in ALL}


def told(
    headers: Headers, topic: str | None = None, profiles: tuple[Profile, ...] = ALL
) -> list[tuple[str, str | None]]:
    """The profile and source topic of each hop, oldest first; the record's own is the last."""
    plan, texts = read(headers, profiles, topic)
    known = [header for header in headers if header and Planner(profiles).known(header[0])]

    def topic_of(places: tuple[int, ...]) -> str | None:
        return text(known[places[0]][1], "text") if places else None

    hops = [(hop.profile.name, topic_of(hop.places.get("original_topic", ()))) for hop in plan.hops]
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
    assert plan.own.profile == profile, shown
    assert {name: said for name, said in texts.items() if said} == expected, shown
    hops = [(hop.profile.name, len(hop.places)) for hop in plan.hops]
    assert hops == [(profile.name, len(fields)) for profile, fields in story.hops[:-1]], shown
    assert not plan.has_strays, shown
    assert not plan.lacking


def test_an_optional_header_belongs_to_the_set_at_its_place() -> None:
    group = "kafka_dlt-original-consumer-group"
    first, second = written("spring-kafka", "payments"), written("spring-kafka", "payments.DLT", group)
    plan, texts = read([*first, *second], ALL)
    assert "consumer_group" not in texts
    assert [hop.places["consumer_group"] for hop in plan.hops] == [(len(first) - 1,)]


def test_a_name_that_two_writers_share_belongs_to_the_set_beside_it() -> None:
    group = "kafka_dlt-original-consumer-group"
    retry, classic = written("spring-retry-topic", "a"), written("spring-kafka", "a-dlt", group)
    assert told([*retry, *classic]) == [("spring-retry-topic", "a"), ("spring-kafka", "a-dlt")]
    plan, texts = read([*retry, *classic], ALL)
    assert "consumer_group" not in texts
    assert "consumer_group" in plan.hops[0].places
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


def test_many_sets_take_little_time() -> None:
    names = tuple(name for name in PROFILES[3].names) * 1_000
    plan = Planner(PROFILES).plan(Shape(names))
    assert len(plan.hops) == 999
    front = [*written("smallrye-dead-letter-queue", "a") * 500, *written("kafka-connect", "b") * 500]
    assert len(told(front, "c")) == 1_000
