"""The present; times as a person types them -> moments in UTC: a date, a clock time, a day's name, or a span, 2h."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta

from expectations.text import visible
from pipelines.errors import UsageError

FORMS = "2026-11-21T02:00:00Z, 14:05, yesterday or 2h"
"""How a time can be written."""

_SPAN = re.compile(r"(?:[0-9]{1,9}[wdhms])+")
_UNITS = {"w": timedelta(weeks=1), "d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1)}
_UNITS |= {"s": timedelta(seconds=1)}
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_DAY = timedelta(days=1)


def now() -> datetime:
    """Return the present by this machine's clock, in UTC: all code asks here."""
    return datetime.now(UTC)


def millis() -> int:
    """Return the present in milliseconds since 1970."""
    return int(now().timestamp() * 1000)


def moment_of(text: str, name: str, now: datetime, *, ahead: bool = False) -> datetime:
    """Return the moment that a text names, as one of UTC; ``name`` is the argument that has it, such as ``--at``.

    A span, such as ``1h30m``, ends now, or begins now if the time lies ``ahead``. A clock time is the last one, or the
    next one ahead. A day's name stands for its first moment, unless a clock time follows it; ``tomorrow`` lies ahead.

    Raises UsageError: it names none, or one that lies on the other side of now.
    """
    words = text.strip().lower()
    try:
        at = _read(words, now, ahead) or _iso(text.strip())
    except (ValueError, OverflowError):
        raise UsageError(f"{name} '{visible(text[:40])}' is no time: write it like {FORMS}.") from None
    if ahead and at <= now:
        raise UsageError(f"{name} {visible(text[:40])} is not in the future.")
    if not ahead and at > now:
        raise UsageError(f"{name} {visible(text[:40])} is in the future.")
    return at


def _read(words: str, now: datetime, ahead: bool) -> datetime | None:
    """Return the moment that words name relative to now; None: they are no such words."""
    if words == "now":
        return now
    span = words if ahead else words.removesuffix(" ago")
    if words.isascii() and _SPAN.fullmatch(span):
        parts = re.findall(r"([0-9]+)([wdhms])", span)
        total = sum((int(number) * _UNITS[unit] for number, unit in parts), timedelta())
        return now + total if ahead else now - total
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    day, _, clock = words.partition(" ")
    if day in _DAYS:
        return midnight + _DAYS[day] * _DAY + (_since_midnight(clock) if clock else timedelta())
    if re.fullmatch(r"[0-9]{1,2}:[0-9:]+z?", words, re.ASCII):
        at = midnight + _since_midnight(words)
        if ahead:
            return at if at > now else at + _DAY
        return at if at <= now else at - _DAY
    return None


def _since_midnight(clock: str) -> timedelta:
    hour, colon, rest = clock.removesuffix("z").partition(":")
    at = time.fromisoformat(f"{hour:0>2}{colon}{rest}")
    return timedelta(hours=at.hour, minutes=at.minute, seconds=at.second)


def _iso(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
