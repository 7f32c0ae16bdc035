"""Events in random layouts and wrappers are read back equal; mutated lines crash nothing, and none is lost."""

from __future__ import annotations

import random
import re
from collections import Counter
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.sources import broker_log, request_log
from pipelines.sources.logs import events, layouts, wrappers
from pipelines.sources.logs.files import Text
from tests.testing.clothes import EPOCH, LAYOUTS, WRAPPERS, Logged, dressed

BEGIN = datetime(2026, 11, 21, 2, 41, 6, 581000)
ZONE = ZoneInfo("Asia/Kolkata")
WORDS = [
    "DLQ",
    "orders-1",
    "=",
    "ünï",
    '"quoted"',
    "\\n",
    "{a=[b]}",
    "10:15",
    "<init>",
    "-",
    "a.b.C",
    "100%",
    "|",
    "[x]",
]

word = st.sampled_from(WORDS)
line = st.lists(word, min_size=1, max_size=5).map(lambda words: "said " + " ".join(words) + " so")
frame = st.sampled_from(["\tat kafka.A.b(A.java:7)", "Caused by: a.b.C: no", "\t... 7 more"])


@st.composite
def logged(draw: st.DrawFn) -> list[Logged]:
    """Draw the events of a broker, in order."""
    offset = draw(st.integers(-48, 56)) * timedelta(minutes=15)
    at = BEGIN
    made = []
    for number in range(draw(st.integers(1, 6))):
        at += timedelta(milliseconds=draw(st.integers(1000, 90_000)))
        stack = draw(st.lists(frame, max_size=3))
        made.append(
            Logged(
                at,
                draw(st.sampled_from(["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"])),
                draw(st.sampled_from(["main", "data-plane-kafka-request-handler-1", "a thread (b)"])),
                draw(st.sampled_from(["kafka.server.KafkaServer", "org.apache.kafka.X$Y", "kafka.request.logger"])),
                f"{number} " + "\n".join(draw(st.lists(line, min_size=1, max_size=3))),
                "\n".join(["a.b.D: why", *stack]) if stack else "",
                offset,
            )
        )
    return made


OF_ONE_MOMENT = Logged(
    BEGIN, "INFO", "main", "kafka.X", "0 said so", "a.b.D: why\n\tat kafka.A.b(A.java:7)", timedelta(0)
)


@example([OF_ONE_MOMENT], "dates with a zone", "grafana", 5)
@given(logged(), st.sampled_from(sorted(LAYOUTS)), st.sampled_from(sorted(WRAPPERS)), st.integers(5, 90))
def test_events_are_read_back_equal(sent: list[Logged], layout: str, wrapper: str, most: int) -> None:
    printer, says_when = LAYOUTS[layout], WRAPPERS[wrapper][1]
    if not says_when:
        sent = [Logged(**{**vars(record), "offset": ZONE.utcoffset(BEGIN)}) for record in sent]
    raw = "\n".join(dressed(sent, layout, wrapper, most)).encode() + b"\n"
    found = list(events.events(Text([raw[:70], raw[70:]])))
    assert len(found) == len(sent)
    for item, event in zip(sent, found, strict=True):
        said = layouts.parts(event.text)
        assert said is not None
        assert (said.level, said.message) == (item.level, item.text)
        assert said.logger == (item.logger.rpartition(".")[2] if printer.has_short_logger else item.logger)
        assert said.thread == (item.thread if printer.has_thread else None)
        at = item.at if printer.has_fraction else item.at.replace(microsecond=0)
        assert layouts.moment(said, event.stamp, ZONE) == (at - EPOCH) // timedelta(microseconds=1)


@given(logged(), st.sampled_from([name for name, item in LAYOUTS.items() if item.pattern]))
def test_a_layout_of_the_settings_reads_what_log4j_prints_with_it(sent: list[Logged], layout: str) -> None:
    printer = LAYOUTS[layout]
    pattern = layouts.Pattern(printer.pattern)
    found = list(events.events(dressed(sent, layout, "none"), pattern))
    said = [layouts.parts(event.text, pattern) for event in found]
    assert [sentence and (sentence.level, sentence.message, sentence.thread) for sentence in said] == [
        (record.level, record.text, record.thread if printer.has_thread else None) for record in sent
    ]


def _mutated(line: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 3)):
        at, to = sorted((chance.randint(0, len(line)), chance.randint(0, len(line))))
        what = chance.random()
        if what < 0.3:
            line = line[:at] + line[to:]
        elif what < 0.6:
            line = line[:at] + bytes(chance.randrange(256) for _ in range(chance.randint(1, 4))) + line[at:]
        elif what < 0.8:
            line = line[:at] + line[at:to] * 2 + line[to:]
        else:
            line = (
                line[:at]
                + chance.choice([b'{"', b"]}", b'\\"', b"\\ud800", b"\x1b[", b"2026-11-31", b"P "])
                + line[at:]
            )
    return line.replace(b"\n", b"")


def _fuzz(lines: int, seed: int) -> None:
    chance = random.Random(seed)
    api = '{"requestHeader":{"requestApiKeyName":"STREAMS_GROUP_HEARTBEAT"}}'
    messages = [
        "Completed request:" + api,
        "Failed to write to DLQ, proceeding to ARCHIVED regardless.",
        "[BrokerServer id=3] Transition from STARTING to STARTED",
        "Unable to produce X(param: ShareGroupDLQRecordParameter[groupId=g, ",
    ]
    done = 0
    while done < lines:
        sent = [
            Logged(
                BEGIN + timedelta(seconds=n),
                "INFO",
                "main",
                "a.b.C",
                chance.choice(messages),
                chance.choice(["", "x.Y: z\n\tat a"]),
            )
            for n in range(chance.randint(1, 20))
        ]
        raw = dressed(sent, chance.choice(sorted(LAYOUTS)), chance.choice(sorted(WRAPPERS)), chance.randint(20, 400))
        raw = [raw[0], *raw] if chance.random() < 0.1 else raw
        data = b"\n".join(_mutated(text.encode(), chance) if chance.random() < 0.5 else text.encode() for text in raw)
        done += len(raw)
        landed = [text for text in Text([data]) if text.startswith("{") or text.strip(" \t\r\x0b\x0c\ufeff")]
        known, every = events.sampled(landed)
        read = Counter(part for item in events.joined(every, known) for part in item.raw.split("\n"))
        assert set(read) == set(landed)
        told = Counter(part for event in events.events(landed) for part in event.raw.split("\n"))
        blank = {row for row in landed if all(not part.text.strip() for part in wrappers.unwrapped(row, known.wanted))}
        assert set(landed) - set(told) <= blank
        for reader in (request_log.rows, broker_log.rows):
            for row in reader(Text([data]), "UTC", None):
                assert row.damage is not None or row.line is not None or row.kind is None
                assert row.message is None or row.message.encode()
                assert row.error is None or not re.search(r"\d{4}|heartbeat", row.error)


@pytest.mark.parametrize("seed", range(2))
def test_mutated_lines_crash_nothing_and_none_is_lost(seed: int) -> None:
    _fuzz(2_000, seed)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(100, 110))
def test_100_000_mutated_lines_crash_nothing_and_none_is_lost(seed: int) -> None:
    _fuzz(10_000, seed)
