from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pipelines.commands import arguments
from pipelines.errors import UsageError
from pipelines.moments import moment_of

NOW = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("2026-11-20", "2026-11-20 00:00:00", id="a date"),
        pytest.param("2026-11-20T02:00:00Z", "2026-11-20 02:00:00", id="a time of UTC"),
        pytest.param("2026-11-20T02:00:00+02:00", "2026-11-20 00:00:00", id="a time of a zone"),
        pytest.param("2026-11-20 02:00", "2026-11-20 02:00:00", id="no zone"),
        pytest.param("now", "2026-11-21 12:30:00", id="now"),
        pytest.param("2h", "2026-11-21 10:30:00", id="hours"),
        pytest.param("1d2h30m5s", "2026-11-20 09:59:55", id="several units"),
        pytest.param(" 3W ago ", "2026-10-31 12:30:00", id="ago"),
        pytest.param("12:30", "2026-11-21 12:30:00", id="a clock time that is now"),
        pytest.param("9:05", "2026-11-21 09:05:00", id="a clock time of today"),
        pytest.param("14:05:07Z", "2026-11-20 14:05:07", id="a clock time of yesterday"),
        pytest.param("today", "2026-11-21 00:00:00", id="today"),
        pytest.param("Yesterday", "2026-11-20 00:00:00", id="yesterday"),
        pytest.param("yesterday 9:05", "2026-11-20 09:05:00", id="yesterday at a clock time"),
    ],
)
def test_a_time_is_read_as_a_person_types_it(text: str, told: str) -> None:
    assert moment_of(text, "--at", NOW) == datetime.fromisoformat(f"{told}+00:00")


@pytest.mark.parametrize(
    ("text", "after"),
    [("2h", timedelta(hours=2)), ("12:30", timedelta(days=1)), ("14:00", timedelta(hours=1.5))],
)
def test_a_time_ahead_comes_after_now(text: str, after: timedelta) -> None:
    assert moment_of(text, "--mute-until", NOW, ahead=True) - NOW == after
    assert moment_of("tomorrow 9:00", "--mute-until", NOW, ahead=True) == datetime(2026, 11, 22, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "2", "-2h", "2 h", "2x", "٢h", "25:00", "14:99", "yesterday noon", "yesterday 2026-11-20"),
        *("2026-13-01", "9999-12-31T23:59:59-14:00", "999999999w", "2h\x1b[31m", "2h ago ago"),
    ],
)
def test_what_is_no_time_is_one_sentence(text: str) -> None:
    with pytest.raises(UsageError) as told:
        moment_of(text, "--at", NOW)
    assert str(told.value).endswith(" is no time: write it like 2026-11-21T02:00:00Z, 14:05, yesterday or 2h.")
    assert "\x1b" not in str(told.value)


def test_a_span_that_lies_ahead_is_not_ago() -> None:
    with pytest.raises(UsageError):
        moment_of("2h ago", "--mute-until", NOW, ahead=True)


def test_a_question_takes_a_time_relative_to_the_present() -> None:
    asked = arguments.parameters_of(["now=2h"])["now"]
    assert isinstance(asked, datetime)
    assert timedelta(hours=2) <= datetime.now(UTC) - asked < timedelta(hours=2, minutes=1)


def test_tomorrow_is_a_time_only_where_times_lie_ahead() -> None:
    assert moment_of("tomorrow", "--mute-until", NOW, ahead=True) > NOW
    with pytest.raises(UsageError, match="--at tomorrow is in the future"):
        moment_of("tomorrow", "--at", NOW)


@pytest.mark.parametrize("text", ["2099-01-01", "2026-11-21T12:30:01Z"])
def test_a_time_that_has_not_come_is_refused_where_times_lie_behind(text: str) -> None:
    with pytest.raises(UsageError, match=f"--at {text} is in the future"):
        moment_of(text, "--at", NOW)
    with pytest.raises(UsageError, match="--mute-until yesterday is not in the future"):
        moment_of("yesterday", "--mute-until", NOW, ahead=True)
