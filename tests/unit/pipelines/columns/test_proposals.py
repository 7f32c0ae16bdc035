"""Profiles that are proposed for letters of unknown writers: what they place, and that they read what was written."""

from __future__ import annotations

import random
import struct
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.columns.headers import read
from pipelines.columns.profiles import profiles_of
from pipelines.columns.proposals import Proposal, pasted_profile, proposals, read_by
from pipelines.columns.writers import Letter
from pipelines.settings import Dlq
from tests.testing.made_up_writers import AT, made_up

Headers = list[tuple[str, bytes | None]]


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_pasted_proposals_read_what_made_up_writers_wrote(seed: int, number: int) -> None:
    seeded = random.Random(seed)
    writers = [made_up(seeded, at) for at in range(number)]
    written = [writer.letter(seeded, at) for writer in writers for at in range(30)]
    seeded.shuffle(written)
    made = proposals([letter for letter, _ in written], Dlq())
    pasted = Dlq(profile=tuple(pasted_profile(item.toml) for item in made))
    shown = "\n".join(f"{item.toml}\n{item.tried}" for item in made)
    for letter, texts in written:
        plan, found = read(letter.headers, profiles_of(pasted), letter.topic)
        assert plan.own is not None, shown
        assert not plan.lacking, shown
        assert found == texts, f"{shown}\n{writers}"
    assert [item.whole for item in made] == [30] * number
    assert "anna" not in shown


def b(value: object) -> bytes:
    return str(value).encode()


def int32(number: int) -> bytes:
    return struct.pack(">i", number)


def int64(number: int) -> bytes:
    return struct.pack(">q", number)


def acme(at: int, topic: bytes = b"orders") -> Headers:
    """Headers of a writer that writes text."""
    origin = [("acme-topic", topic), ("acme-partition", b(at % 3)), ("acme-offset", b(at))]
    return [*origin, ("acme-error", b"no luck today"), ("error-level", b"3")]


def zed(at: int, topic: bytes = b"dlq.orders") -> Headers:
    """Headers of a writer that writes binary numbers."""
    origin = [("zed.src.topic", topic), ("zed.src.partition", int32(at % 3)), ("zed.src.offset", int64(at))]
    return [*origin, ("zed.exception", b"java.lang.IllegalStateException: anna")]


def letters(topic: str, *rows: Headers, is_accepted: bool = False) -> list[Letter]:
    return [Letter(topic, tuple(row), AT, is_accepted) for row in rows]


def lines(proposal: Proposal) -> list[str]:
    """The headers of a proposal: name, field and encoding, with a * if it is mandatory."""
    return [
        f"{header.name} {header.field} {header.encoding}{' *' if header.mandatory else ''}"
        for header in pasted_profile(proposal.toml).headers
    ]


ACME = [
    "acme-topic original_topic text *",
    "acme-partition original_partition text *",
    "acme-offset original_offset text *",
    "acme-error error_message text",
]
ZED = [
    "zed.src.topic original_topic text *",
    "zed.src.partition original_partition int32 *",
    "zed.src.offset original_offset int64 *",
    "zed.exception exception_class throwable",
    "zed.exception error_message text",
]


def test_what_one_header_says_twice_fills_two_fields_and_what_is_left_is_named() -> None:
    named, other = proposals([*letters("dlq.a", *map(acme, range(9))), *letters("dlq.b", *map(zed, range(8)))], Dlq())
    assert lines(named) == ACME
    assert sorted(lines(other)) == sorted(ZED)
    assert named.toml.endswith('# Not placed: "error-level" (decimal digits).')
    assert (named.name, other.name) == ("acme", "zed")


def test_an_id_of_a_message_names_no_owner_and_text_after_failed_no_stack_trace() -> None:
    def bus(at: int) -> Headers:
        named = [("ServiceBus.MessageId", b"%032x" % (at * 7919)), ("ServiceBus.FailedQ", b"billing@host")]
        error = [("ServiceBus.Exception.Type", b"java.lang.IllegalStateException")]
        return [*error, ("ServiceBus.Exception.Message", b"no"), *named]

    (item,) = proposals(letters("errors", *map(bus, range(9))), Dlq())
    assert {line.split()[1] for line in lines(item)} == {"exception_class", "error_message"}
    assert '"ServiceBus.FailedQ" (text), "ServiceBus.MessageId" (text)' in item.toml


@pytest.mark.parametrize("alone", [0, 5], ids=["never alone", "also alone"])
def test_a_record_that_two_writers_dead_lettered_shows_both(alone: int) -> None:
    chained = letters("dlq2.orders", *([("traceparent", b"1"), *acme(at), *zed(at)] for at in range(6)))
    stage_run, other = proposals([*letters("dlq.orders", *map(acme, range(alone))), *chained], Dlq())
    assert [line for line in lines(stage_run) if "error" not in line] == ACME[:3]
    assert sorted(lines(other)) == sorted(ZED)
    assert (stage_run.read, stage_run.older, other.whole) == (alone, 6, 6)


def test_a_writer_that_is_known_alone_keeps_its_headers_in_a_chain() -> None:
    def unlike(at: int) -> Headers:
        return [("OffsetOfSource", b(at)), ("originalTopic", b"orders"), ("srcPartition", b(at % 3))]

    alone = letters("dlq.orders", *map(unlike, range(9)))
    mixed = letters("dlq2.orders", *([*zed(at)[:2], *unlike(at), *zed(at)[2:]] for at in range(6)))
    item, other = proposals([*alone, *mixed], Dlq())
    assert {line.split()[0] for line in lines(item)} == {"originalTopic", "srcPartition", "OffsetOfSource"}
    assert sorted(lines(other)) == sorted(ZED)


def test_equal_names_with_other_encodings_are_told_apart_by_their_topics() -> None:
    names = ("x-original-topic", "x-original-partition", "x-original-offset")
    texts = [list(zip(names, (b"a", b(at % 3), b(at)), strict=True)) for at in range(9)]
    binary = [list(zip(names, (b"b", int32(at % 3), int64(at)), strict=True)) for at in range(8)]
    named, other = proposals([*letters("dlq.a", *texts), *letters("dlq.b", *binary)], Dlq())
    assert (named.name, other.name) == ("my-profile", "my-profile-2")
    assert (pasted_profile(named.toml).topic, pasted_profile(other.toml).topic) == ("dlq.a", "dlq.b")
    assert (named.whole, other.whole) == (9, 8)


def test_a_proposal_takes_no_records_of_a_known_writer() -> None:
    known = [("x-original-topic", b"orders"), ("x-original-partition", int32(1)), ("x-original-offset", int64(7))]
    known += [("x-original-timestamp", int64(AT)), ("x-original-timestamp-type", b"CreateTime")]
    known += [("x-exception-fqcn", b"a.BException"), ("x-exception-message", b"no"), ("x-exception-stacktrace", b"at")]
    unknown = [[("x-original-topic", b"orders"), ("x-original-offset", b(at))] for at in range(9)]
    (stage_run,) = proposals(letters("dlq.plain", *unknown), Dlq())
    profiles = profiles_of(Dlq(profile=(pasted_profile(stage_run.toml),)))
    assert read_by(Letter("error.orders.g", tuple(known)), profiles).profile == "spring-cloud-stream"
    assert stage_run.read == 9


def test_what_a_profile_of_the_settings_knows_does_not_tell_a_new_writer() -> None:
    other = {"name": "other", "headers": [{"name": "acme-*"}, {"name": "other-id", "mandatory": True}]}
    dlq = Dlq.model_validate({"profile": [other]})
    assert proposals(letters("dlq.orders", *map(acme, range(9))), dlq) == []
    (item,) = proposals(letters("dlq.orders", *([*acme(at), ("failed-attempts", b"3")] for at in range(9))), dlq)
    assert lines(item)[-1] == "failed-attempts delivery_count text *"


def test_values_alone_show_what_names_do_not() -> None:
    stack = b"java.lang.X: no\n\tat com.acme.M.run(M.java:1)\n"
    rows: list[Headers] = [
        [("h1", b"orders"), ("h2", int32(at % 3)), ("h3", int64(at)), ("h4", b"a.b.CException"), ("h5", stack)]
        for at in range(9)
    ]
    (item,) = proposals(letters("dlq.orders", *rows), Dlq())
    assert lines(item) == [
        "h1 original_topic text *",
        "h2 original_partition int32 *",
        "h3 original_offset int64 *",
        "h4 exception_class text",
        "h5 exception_stacktrace text",
    ]


def test_a_header_that_names_the_dlq_topic_is_not_the_origin() -> None:
    rows: list[Headers] = [
        [("dlq-topic", b"dlq.orders"), ("source", b"orders"), ("dlq-offset", b(at))] for at in range(9)
    ]
    (item,) = proposals(letters("dlq.orders", *rows), Dlq())
    assert lines(item) == ["source original_topic text *", "dlq-offset original_offset text *"]


def test_what_is_not_in_every_record_is_not_mandatory() -> None:
    rows = [acme(at) if at else acme(at)[:2] + acme(at)[3:] for at in range(9)]
    (item,) = proposals(letters("dlq.orders", *rows), Dlq())
    assert [line for line in lines(item) if line.endswith("*")] == ACME[:2]
    assert (item.whole, item.part) == (8, 1)


def test_records_with_errors_alone_do_not_make_the_origin_optional() -> None:
    rows = [*map(acme, range(9)), *(acme(at)[3:] for at in range(3))]
    (stage_run,) = proposals(letters("dlq.orders", *rows), Dlq())
    assert lines(stage_run) == ACME
    assert (len(stage_run.letters), stage_run.read) == (12, 9)


def test_a_header_that_names_something_else_is_not_the_writers() -> None:
    rows = [[*acme(at)[:3], ("order-attempts", b"3")] for at in range(9)]
    (item,) = proposals(letters("dlq.orders", *rows), Dlq())
    assert lines(item) == ACME[:3]
    assert "order-attempts" in item.toml


def test_a_proposal_without_an_origin_says_so_first() -> None:
    rows: list[Headers] = [[("acme-error", b"no luck"), ("acme-attempts", b"3")]] * 9
    (item,) = proposals(letters("dlq.orders", *rows), Dlq())
    assert item.toml.startswith("# Without an origin: ")
    assert item.said.startswith("No header shows where the records come from. ")
    assert "9 without an origin" in item.said


def test_the_newest_set_stands_first_if_older_ones_tell_older_topics() -> None:
    twice = [[*acme(at, b"dlq.orders")[:4], *acme(at)[:4]] for at in range(3)]
    first = [*letters("dlq.orders", *map(acme, range(9))), *letters("dlq2.orders", *twice)]
    (item,) = proposals(first, Dlq())
    assert pasted_profile(item.toml).newest == "first"
    last = [*letters("dlq.orders", *map(acme, range(9))), *letters("dlq2.orders", *(row[::-1] for row in twice))]
    (item,) = proposals(last, Dlq())
    assert pasted_profile(item.toml).newest == "last"


def test_headers_in_any_order_are_those_of_a_map() -> None:
    shuffled = [random.Random(at).sample([*acme(at), ("traceparent", b"u")], len(acme(at)) + 1) for at in range(9)]
    (item,) = proposals(letters("dlq.orders", *shuffled), Dlq())
    assert pasted_profile(item.toml).newest == "anywhere"
    between = [[*acme(at)[:2], ("traceparent", b"u"), *acme(at)[2:]] for at in range(9)]
    (item,) = proposals(letters("dlq.orders", *map(acme, range(9)), *between), Dlq())
    assert pasted_profile(item.toml).newest == "last"


def test_a_header_that_comes_once_an_attempt_repeats() -> None:
    rows = [[*acme(at), ("acme-attempt", b"1"), ("acme-attempt", b"2")] for at in range(3)]
    (item,) = proposals(letters("dlq.orders", *rows), Dlq())
    assert [header.name for header in pasted_profile(item.toml).headers if header.repeats] == ["acme-attempt"]


def test_nothing_is_proposed_for_headers_of_applications() -> None:
    user: Headers = [("x-topic", b"orders"), ("created-at", b(AT)), ("retry-after", b"3"), ("user-group", b"a")]
    user += [("traceparent", b"1"), ("ce_type", b"orders"), ("__TypeId__", b"com.acme.Order"), ("user-id", b"17")]
    assert proposals(letters("dlq.orders", *[user] * 9, is_accepted=True), Dlq()) == []
    assert proposals(letters("dlq.orders", *[user[1:]] * 9), Dlq()) == []
    assert proposals([], Dlq()) == []


def test_a_writer_that_a_profile_of_the_settings_would_shadow_is_left_out() -> None:
    made = proposals(letters("dlq.orders", *map(acme, range(9))), Dlq())
    pasted = Dlq(profile=(pasted_profile(made[0].toml),))
    assert proposals(letters("dlq.orders", *map(acme, range(9))), pasted) == []


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.text(max_size=9) | st.sampled_from(["topic", "a-offset\n", '"offset"', "\u202eerror", "\x1b-at"]),
                st.none() | st.binary(max_size=9) | st.sampled_from([b"1", b"orders", int64(7)]),
            ),
            max_size=6,
        ),
        max_size=6,
    )
)
def test_whatever_headers_come_the_proposals_can_be_pasted_together(rows: list[Headers]) -> None:
    made = proposals(letters("dlq.orders", *rows), Dlq())
    text = "\n\n".join(item.toml for item in made)
    assert all(line.isprintable() for line in text.split("\n"))
    pasted = Dlq.model_validate(tomllib.loads(text).get("dlq", {}))
    assert [profile.name for profile in pasted.profile] == [named.name for named in made]
