"""Lines become events: continuations, streams, parts; events that a log printed twice are one."""

from __future__ import annotations

from collections import Counter

from hypothesis import assume, given
from hypothesis import strategies as st

from pipelines.sources.logs import events, layouts
from pipelines.sources.logs.events import Copy, Event

A, B = "[2026-11-21 02:41:06,581] INFO a (x.A)", "[2026-11-21 02:41:07,581] INFO b (x.B)"


def texts(*lines: str) -> list[str]:
    return [event.text for event in events.events(lines)]


def test_lines_continue_the_event_of_their_stream() -> None:
    found = list(
        events.events(
            [f"kafka-1  | {A}", f"kafka-2  | {B}", "kafka-1  | \tat a", "kafka-2  | \tat b", "kafka-2  | \tat c"]
        )
    )
    assert [(event.text, event.lines, event.ends) for event in found] == [
        (f"{A}\n\tat a", 2, True),
        (f"{B}\n\tat b\n\tat c", 3, True),
    ]


def test_lines_that_a_shipper_printed_within_an_entry_continue_it() -> None:
    other = B.replace("b (", "c (")
    landed = [f'2026-11-21T02:41:06Z {{a="1"}} {A}', "x.E: why", "at a", f'2026-11-21T02:41:07Z {{a="2"}} {B}', other]
    assert texts(*landed) == [f"{A}\nx.E: why\nat a", B, other]
    assert texts("Limit: 9", landed[3], *landed[:3]) == ["Limit: 9", f"{A}\nx.E: why\nat a", B]


def test_lines_before_the_first_event_belong_to_none() -> None:
    found = list(events.events(["\tat a", "more", A]))
    assert [(event.text, event.begins) for event in found] == [("\tat a\nmore", False), (A, True)]


def test_parts_of_different_streams_are_joined_apart() -> None:
    half = len(A) // 2
    stamp = "2026-11-21T02:41:06.581000417Z"
    assert texts(
        f"{stamp} stdout P {A[:half]}",
        f"{stamp} stderr P {B[:half]}",
        f"{stamp} stdout F {A[half:]}",
        f"{stamp} stderr F {B[half:]}",
    ) == [A, B]


def test_json_over_several_lines_is_one_event() -> None:
    # apache/logging-log4j2, log4j-core: JsonLayout without compact
    lines = ["{", '  "timeMillis" : 1795228866581,', '  "level" : "INFO",', '  "message" : "a\\nb"', "}"]
    found = list(events.events([*lines, *lines, "{", '  "cut"', A]))
    said = [layouts.parts(event.text) for event in found]
    assert [sentence and sentence.message for sentence in said] == ["a\nb", "a\nb", None, "a"]
    assert [event.begins for event in found] == [True, True, False, True]
    assert "\n".join(event.raw for event in found).split("\n") == [*lines, *lines, "{", '  "cut"', A]


def test_a_layout_of_the_settings_decides_where_looking_cannot() -> None:
    pattern = layouts.Pattern("%d{dd/MM/yyyy HH:mm:ss} %p %m%n")
    strange = ["21/11/2026 02:41:06 INFO a", "\tat a", "21/11/2026 02:41:07 INFO b"]
    assert [event.text for event in events.events(strange, pattern)] == ["\n".join(strange[:2]), strange[2]]
    assert [(event.text, event.pattern) for event in events.events([A, B], pattern)] == [(A, None), (B, None)]


def test_an_event_has_a_bounded_number_of_lines() -> None:
    [event] = events.events([A, *["\tat a"] * (events.MOST_OF_AN_EVENT + 7)])
    assert (event.lines, event.text.count("\n")) == (events.MOST_OF_AN_EVENT + 8, events.MOST_OF_AN_EVENT - 1)


# --- events that are printed twice ---------------------------------------------------------------------------------


def kept(printed: list[tuple[str, str]]) -> Counter[str]:
    """Return what ``once`` keeps of events, each with its logger."""
    made = [Event(said, said, "", None, 1, True) for said, _ in printed]
    copies = (Copy(hash(event.text), logger, event) for event, (_, logger) in zip(made, printed, strict=True))
    return Counter(event.text for event in events.once(copies))


def of(*said: str, logger: str = "x") -> list[tuple[str, str]]:
    return [(sentence, logger) for sentence in said]


def test_an_event_that_repeats_the_one_before_it_is_one() -> None:
    assert kept(of("a", "a", "b", "b")) == Counter("ab")
    assert kept([*of("w", logger="y"), *of("a", "a")]) == Counter("wa")


def test_copies_can_have_other_copies_between_them() -> None:
    assert kept(of("a", "b", "a", "b")) == Counter("ab")


def test_equal_events_are_two_where_a_logger_prints_once() -> None:
    assert kept(of("a", "b", "b", "c")) == Counter("abbc")
    assert kept([*of("1", logger="w"), *of("e"), *of("2", logger="w"), *of("e")]) == Counter("1e2e")


def test_equal_events_are_two_where_each_is_printed_twice() -> None:
    assert kept(of("a", "a", "a", "a", "b", "b")) == Counter("aab")


def test_a_copy_that_is_not_written_yet_tells_nothing() -> None:
    assert kept(of("a", "a", "b")) == Counter("ab")


@given(st.data())
def test_once_gives_the_events_of_a_model(data: st.DataObject) -> None:
    """Threads log through loggers that print once or twice; what one thread prints stays in order."""
    twice = {logger: data.draw(st.booleans(), label=logger) for logger in ("k", "o")}
    happened: list[tuple[str, str]] = []
    printed: list[list[tuple[str, str]]] = []
    for thread in range(data.draw(st.integers(1, 3), label="threads")):
        own: list[tuple[str, str]] = []
        for number in range(data.draw(st.integers(1, 8), label="events")):
            logger = data.draw(st.sampled_from(sorted(twice)))
            event = (f"{logger}{thread}.{number}", logger)
            times = data.draw(st.sampled_from([1, 1, 1, 1, 2]), label="equal events")
            happened += [event] * times
            own += [event] * (times * (1 + twice[logger]))
        printed.append(own)
    log: list[tuple[str, str]] = []
    while any(printed):
        own = data.draw(st.sampled_from([item for item in printed if item]))
        log.append(own.pop(0))
    # Most pairs of a logger that prints twice stand side by side, and most events of one that prints once stand alone.
    for logger, is_twice in twice.items():
        evidence = 0
        places: dict[str, list[int]] = {}
        for place, (said, its) in enumerate(log):
            if its == logger:
                places.setdefault(said, []).append(place)
        for own_places in places.values():
            for first, second in zip(own_places[::2], own_places[1::2], strict=False):
                evidence += 1 if second == first + 1 or not is_twice else -1
            if len(own_places) % 2:
                evidence -= own_places[-1] != len(log) - 1
        assume(not places or (evidence > 0) == is_twice)
    assert kept(log) == Counter(said for said, _ in happened)
