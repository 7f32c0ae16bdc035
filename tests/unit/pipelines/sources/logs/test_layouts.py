"""Layouts of real programs: what their events say, in which zone, and why a line does not begin an event."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from pipelines.sources import broker_log
from pipelines.sources.logs import layouts, unknown
from pipelines.sources.logs.files import Reader, Text
from pipelines.sources.logs.layouts import Pattern, moment, parts
from pipelines.sources.request_log import rows

# Beside what tests/testing/clothes.py prints: the text, then level, thread, logger and message.
SAMPLES = {
    "level in brackets, as kafka-gc and others": (
        "2026-11-21 02:41:06,581 [INFO] [main] kafka.A - said",
        ("INFO", "main", "kafka.A", "said"),
    ),
    "log4j 1 TTCC with a date": (
        "2026-11-21 02:41:06,581 [main] INFO  org.apache.kafka.A  - said - it",
        ("INFO", "main", "org.apache.kafka.A", "said - it"),
    ),
    "log4j's DATE": ("21 Nov 2026 02:41:06,581 INFO [main] a.b.A: said", ("INFO", "main", "a.b.A", "said")),
    "ISO8601_BASIC": ("20261121T024106,581 INFO a.b.A - said", ("INFO", None, "a.b.A", "said")),
    "slashes": ("2026/11/21 02:41:06 INFO a.b.A - said", ("INFO", None, "a.b.A", "said")),
    "brackets around all": ("[2026-11-21 02:41:06,581] [INFO] [main] a.A: said", ("INFO", "main", "a.A", "said")),
    "bars": ("2026-11-21 02:41:06.581 | INFO | said (a.b.A)", ("INFO", None, "a.b.A", "said")),
    "a message in brackets": (
        "[2026-11-21 02:41:06,581] INFO [Broker id=3] said (kafka.A)",
        ("INFO", None, "kafka.A", "[Broker id=3] said"),
    ),
    "a message in brackets, and a colon": (
        "[2026-11-21 02:41:06,581] TRACE [Broker id=1] add: said - it (state.change.logger)",
        ("TRACE", None, "state.change.logger", "[Broker id=1] add: said - it"),
    ),
    "a message in brackets, and a dash": (
        "[2026-11-21 02:41:06,581] INFO [Broker id=1] add - said (kafka.A)",
        ("INFO", None, "kafka.A", "[Broker id=1] add - said"),
    ),
    "a message like a logger": (
        "[2026-11-21 02:41:06,581] INFO error: said - it (kafka.A$)",
        ("INFO", None, "kafka.A$", "error: said - it"),
    ),
    "a message that ends like a logger": (
        "2026-11-21 02:41:06,581 [main] INFO a.A - said (a.b.C)",
        ("INFO", "main", "a.A", "said (a.b.C)"),
    ),
    "the logger after several lines": (
        "[2026-11-21 02:41:06,581] ERROR one\ntwo (kafka.A)\njava.lang.E: why\n\tat a",
        ("ERROR", None, "kafka.A", "one\ntwo\njava.lang.E: why\n\tat a"),
    ),
    # elastic/ecs-logging-java with stackTraceAsArray
    "ECS with a list": (
        '{"@timestamp":"2026-11-21T02:41:06.581Z","log.level":"ERROR","message":"said","process.thread.name":"main",'
        '"log.logger":"a.A","error.type":"x.Y","error.message":"why","error.stack_trace":["x.Y: why","\\tat a"]}',
        ("ERROR", "main", "a.A", "said\nx.Y: why\n\tat a"),
    ),
    # apache/logging-log4j2, log4j-core: JsonLayout with compact and eventEol
    "log4j2's frames": (
        '{"timeMillis":1795228866581,"thread":"main","level":"ERROR","loggerName":"a.A","message":"said",'
        '"thrown":{"name":"x.Y","message":"why","extendedStackTrace":[{"class":"a.B","method":"c","file":"B.java",'
        '"line":7}]}}',
        ("ERROR", "main", "a.A", "said\nx.Y: why\n\tat a.B.c(B.java:7)"),
    ),
    # apache/logging-log4j2, GelfLayout.java, and log4j-layout-template-json: GelfLayout.json
    "GELF with a stack": (
        '{"version":"1.1","host":"k","timestamp":1795228866.581,"level":3,"_thread":"main","_logger":"a.A",'
        '"full_message":"x.Y: why\\n\\tat a\\n","short_message":"said"}',
        ("ERROR", "main", "a.A", "said\nx.Y: why\n\tat a"),
    ),
    # mp911de/logstash-gelf: the short message is the beginning of the full one
    "GELF with a long message": (
        '{"version":"1.1","short_message":"said: a lo","full_message":"said: a long text","timestamp":1795228866.581,'
        '"level":6}',
        ("INFO", None, None, "said: a long text"),
    ),
    "GELF": (
        '{"version":"1.1","host":"k","short_message":"said","timestamp":1795228866.581,"level":6,"_logger":"a.A",'
        '"_thread":"main"}',
        ("INFO", "main", "a.A", "said"),
    ),
    "an exception without a stack": (
        '{"time":"2026-11-21 02:41:06,581","level":"WARN","logger":"a.A","msg":"said",'
        '"exception":{"exception_class":"x.Y","exception_message":"why"}}',
        ("WARN", None, "a.A", "said\nx.Y: why"),
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_samples(name: str) -> None:
    text, expected = SAMPLES[name]
    said = parts(text)
    assert layouts.begins(text.split("\n")[0])
    assert said is not None
    assert (said.level, said.thread, said.logger, said.message) == expected
    at = moment(said, None, UTC)
    assert at is not None
    assert datetime.fromtimestamp(at // 1_000_000, UTC) == datetime(2026, 11, 21, 2, 41, 6, tzinfo=UTC)


HERE = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "stamp", "hour"),
    [
        ("2026-11-21 02:41:06 INFO", None, 1),  # the setting
        ("2026-11-21 02:41:06 UTC INFO", None, 2),  # the event itself
        ("2026-11-21T02:41:06+0300 INFO", "2026-11-21T02:41:06Z", 23),
        ("2026-11-21 02:41:06 EST INFO", None, 7),
        ("2026-11-21 02:41:06 INFO", "2026-11-21T02:41:06Z", 2),  # the wrapper
        ("2026-11-21 02:41:06 INFO", "2026-11-21T02:41:06+05:30", 21),
        ("2026-11-21 02:41:06 INFO", 1795228866.7, 2),
        ("2026-11-21 02:41:06 INFO", "2026-11-21T01:41:07.000000417Z", 1),  # the setting, which the wrapper proves
        ("2026-11-21 02:41:06 INFO", "2026-11-21T01:46:07Z", 1),  # also if it was taken some minutes later
        ("2026-11-21 02:41:06 INFO", "2026-11-20T18:41:07Z", 18),  # a clock in a third zone
        ("2026-11-21 02:41:06 INFO", "2026-11-20T18:49:55Z", 2),  # taken late: it tells its own zone only
        ("02:41:06.581 [main] INFO", "2026-11-21T02:41:07Z", 2),  # a time of day is of the wrapper's date
        ("23:59:59.581 [main] INFO", "2026-11-21T00:00:01Z", 23),
        ("2026-02-30 02:41:06 INFO", None, None),
        ("0001-01-01 02:41:06 INFO", None, None),
        ("02:41:06.581 [main] INFO", None, None),
    ],
)
def test_a_time_is_read_in_its_zone(text: str, stamp: str | float | None, hour: int | None) -> None:
    said = parts(text)
    assert said is not None
    at = moment(said, stamp, HERE)
    assert (None if at is None else datetime.fromtimestamp(at // 1_000_000, UTC).hour) == hour


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("02:41:06.581 [main] INFO x", "the line begins with a time without a date"),
        ("2026-11-21 INFO x", "the line begins with a date without a time of day"),
        ("11/21/2026 02:41:06 INFO x", "the line begins with a date whose day and month are not certain"),
        ("1795228866581 INFO x", "the line begins with a number, not with a date and a time"),
        ('{"level":"INFO"}', "the JSON of the line has no time, or no message"),
        ('{"level":"INFO', "the line begins like JSON, but is cut off or not valid JSON"),
        ("2026-02-30 02:41:06 INFO x", "the line begins with a date or a time that does not exist"),
        ("0001-01-01 02:41:06 INFO x", "the time of the line is in no year in which a broker can have logged"),
        ("INFO x", "the line does not begin with a date and a time"),
    ],
)
def test_a_line_without_a_time_is_told_the_true_reason(text: str, why: str) -> None:
    assert unknown.why_no_time(text, parts(text)) == why
    if text[0] != "{":
        [row, *_] = rows(Text([f"{text} DELETE_GROUPS\n".encode()]), "UTC", None)
        assert row.error == why


STACK = ["[2026-11-21 02:41:06,581] ERROR said (a.A)", "java.lang.Error: why", *["\tat a.B.c(B.java:7)"] * 9]


@pytest.mark.parametrize("reader", [rows, broker_log.rows])
def test_a_file_is_told_of_if_most_of_its_lines_are_in_no_known_layout(reader: Reader) -> None:
    def finding(*lines: str) -> list[str]:
        return [row.damage for row in reader(Text(["\n".join(lines).encode()]), "UTC", None, None) if row.damage]

    strange = "21.11.2026 02:41 said"
    assert finding(*STACK) == finding(strange, strange, *STACK) == []
    assert finding(strange, strange, STACK[0]) == [
        "Most lines are in no known layout, 2 of 3: the line begins with a date whose day and month are not certain."
        " The first looks like '99.99.9999 99:99 aaaa'. Name it as layout under"
        f" [{'streams_requests' if reader is rows else 'broker_logs'}] in the settings, then land the file again."
    ]
    indented = [f"  {line}" for line in STACK]
    not_read = [f'{{"text":"[2026-11-21 02:41:0{second},581] INFO said (a.A)"}}' for second in range(3)]
    assert [len(finding(*lines)) for lines in (indented, indented[2:], not_read)] == [1, 1, 1]


def test_events_in_braces_that_are_no_json_are_told_apart() -> None:
    started = (
        f"{{2026-11-21 02:41:0{n}}} INFO [BrokerServer id={n}] Transition from STARTING to STARTED" for n in "12"
    )
    found = broker_log.rows(Text(["\n".join(started).encode()]), "UTC", Pattern("{%d{yyyy-MM-dd HH:mm:ss}} %p %m%n"))
    assert [(row.kind, row.error, row.logged_micros) for row in found] == [
        (broker_log.STARTED, None, 1795228861000000),
        (broker_log.STARTED, None, 1795228862000000),
    ]


def test_a_shape_shows_no_value() -> None:
    assert (
        layouts.shape("INFO 2026-11-21: Zahlung über 12 \u20ac (orders)\t\x1b")
        == "aaaa 9999-99-99: aaaaaaa aaaa 99 ? (aaaaaa)??"
    )


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("%d{dd/MM/yyyy HH:mm:ss} | %-5p | %m | %c%n", "21/11/2026 02:41:06 | INFO  | said | it | a.A", "said | it"),
        ("%p %d{UNIX_MILLIS} %c{1.}: %msg%n%ex", "INFO 1795228866581 a.A: said\nx.Y: why", "said\nx.Y: why"),
        ("%level{length=1}", "", None),
        ("%d{EEE} %m", "", None),
        ("%d %d %m", "", None),
        ("%highlight{%d} %m", "", None),
    ],
)
def test_a_pattern_of_the_settings(pattern: str, text: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match=r"^its? "):
            Pattern(pattern)
        return
    said = Pattern(pattern).parts(text)
    assert said is not None
    assert (said.level, said.logger, said.message) == ("INFO", "a.A", expected)
    assert moment(said, None, UTC) in (1795228866000000, 1795228866581000)
    assert not Pattern(pattern).begins("[2026-11-21 02:41:06,581] INFO said")
