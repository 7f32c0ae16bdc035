"""Text or JSON of an event, as a logger's layout printed it -> its time, level, thread, logger and message.

The layout is found by looking at the event: where its date is, what stands beside it, whether the logger is before the
message or after it. A pattern in log4j's language replaces this if the settings have one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

LEVELS = "TRACE|DEBUG|INFO|NOTICE|WARNING|WARN|ERROR|FATAL|CRITICAL|SEVERE"
FIRST_YEAR, LAST_YEAR = 1970, 9998
EPOCH = datetime(1970, 1, 1)
MOST_DELAY = timedelta(minutes=10)  # between an event and the moment when a wrapper takes it
QUARTER = timedelta(minutes=15)

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = "|".join(_MONTHS)
_CLOCK = r"(?P<hour>\d\d):?(?P<minute>\d\d):?(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?(?!\d)"
_ZONE = r"(?P<zone>Z\b|[+-]\d\d(?::?\d\d)?(?!\d)|(?:UTC|GMT|[A-Z]{3,4})(?=\]|\)|\s))"
_DAY = (
    r"(?:(?P<year>\d{4})(?P<by>[-/.]?)(?P<month>\d\d)(?P=by)(?P<day>\d\d)"
    rf"|(?P<day2>\d\d) (?P<name>{_MONTH}) (?P<year2>\d{{4}}))"
)
_NOT_A_LEVEL = rf"(?!\s?(?:{LEVELS})\b)"
_DATE = rf"{_DAY}[T ,:]{{1,2}}{_CLOCK}(?:{_NOT_A_LEVEL} ?{_ZONE})?"
_LEVEL = rf"[\[(<]?(?P<level{{}}>{LEVELS})(?![\w])[\])>]?\s*[|:]?\s*"
_THREAD = r"\[(?P<thread{}>[^\]\n]{{1,200}})\]"
_BEFORE = rf"(?:{_LEVEL.format(0)}(?:-\s+)?)?(?:{_THREAD.format(0)}\s+)?[\[(]?"

_BEGINS = re.compile(rf"{_BEFORE}{_DATE}")
_BEGINS_LATER = re.compile(rf"(?!\s|Caused by|\.\.\. ).{{1,40}}?(?<!\d){_DATE}")
_CLOCK_ONLY = re.compile(
    r"[\[(]?(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?(?=[\])\s])"
)
_LOGGER = r"(?P<logger>[A-Za-z_][\w.$/-]*)(?P<line>:(?:\d+|\?))?"
_IS_LOGGER = r"(?=[A-Za-z_][\w.$/-]*(?::(?:\d+|\?))?\s*[-:]\s)"
_AFTER = re.compile(
    rf"[\])]?\s*(?:[|:,-]\s+)?"
    rf"(?:{_LEVEL.format(1)}(?:{_THREAD.format(1)}\s+{_IS_LOGGER})?"
    rf"|{_THREAD.format(2)}\s*[|:]?\s*(?:{_LEVEL.format(2)})?)?"
    rf"(?:[\[(]?{_LOGGER}[\])]?\s*(?P<dash>-|:)\s+)?"
    r"(?P<message>.*)",
    re.DOTALL,
)
_WORD = re.compile(r"[A-Za-z_]\w*(?:\.[\w$]+)+")
_TAIL = re.compile(
    r"(?P<message>.*?) \((?P<logger>[A-Za-z_][\w$]*(?:[.$][\w$]+)*)\)(?: \[(?P<thread>[^\]\n]*)\])?(?P<more>\n.*)?\Z",
    re.DOTALL,
)


class Parts(NamedTuple):
    """What an event says. ``at`` is the time on its clock, ``offset`` that of its zone from UTC; None: not said.

    A time of day without a date is a time on 1970-01-01 with ``is_clock`` true.
    """

    at: datetime | None
    offset: timedelta | None
    level: str | None
    thread: str | None
    logger: str | None
    message: str
    is_clock: bool = False


def is_dated_event(text: str) -> bool:
    """Tell whether a line begins an event: with a date and a time, which a level and a thread can precede."""
    return _BEGINS.match(text) is not None


def begins_surely(text: str, pattern: Pattern | None = None) -> bool:
    """Tell whether a line begins an event with its date, a time of day or in JSON: not only after other text."""
    if pattern is not None:
        return pattern.begins(text)
    if text[:1] == "{":
        return parsed_json(text) is not None
    return _BEGINS.match(text) is not None or _CLOCK_ONLY.match(text) is not None


def begins(text: str, pattern: Pattern | None = None, is_known: bool = False) -> bool:
    """Tell whether a line begins an event; ``is_known``: the file has events that begin with their date."""
    if pattern is not None or text[:1] == "{":
        return begins_surely(text, pattern)
    if is_known:
        return _BEGINS.match(text) is not None
    return begins_surely(text) or _BEGINS_LATER.match(text) is not None


def parts(text: str, pattern: Pattern | None = None) -> Parts | None:
    """Return what an event says; None if its text does not begin as an event does."""
    if pattern is not None:
        return pattern.parts(text)
    if text[:1] == "{":
        return parsed_json(text)
    if (match := _BEGINS.match(text) or _CLOCK_ONLY.match(text) or _BEGINS_LATER.match(text)) is None:
        return None
    at, offset = _time(match)
    rest = _AFTER.match(text, match.end())
    assert rest is not None
    head = {**match.groupdict(), **rest.groupdict()}
    level = head.get("level0") or head["level1"] or head["level2"]
    thread = head.get("thread0") or head["thread1"] or head["thread2"]
    logger = head["logger"]
    start = rest.start("message")
    if logger is not None and not (head["line"] or head["dash"] == "-" or "." in logger):
        logger, start = None, rest.start("logger")
    whole = rest.start("thread1") - 1 if head["thread1"] else start if logger is None else rest.start("logger")
    message = text[start:]
    if not head["line"] and (after := _TAIL.match(text, whole)) is not None:
        is_before = logger is not None and (
            head.get("thread0")
            or head["thread2"]
            or ("." in logger and (head["thread1"] or "." not in after["logger"]))
        )
        if not is_before:
            logger, thread = after["logger"], after["thread"] or (None if head["thread1"] else thread)
            message = after["message"] + (after["more"] or "")
    return Parts(at, offset, level, thread, logger, message, "hour" in head and "year" not in head)


def logger_of(text: str, pattern: Pattern | None = None) -> str | None:
    """Return the logger of an event; without the rest, this is fast where the logger ends a line."""
    if pattern is None and text.endswith(")") and "\n" not in text:
        last = text[text.rfind(" (") + 2 : -1]
        if _WORD.fullmatch(last) is not None:
            return last
    said = parts(text, pattern)
    return None if said is None else said.logger


def why_unread(text: str, pattern: Pattern | None = None) -> str:
    """Return why a line does not begin an event, as the end of a sentence about the line."""
    if pattern is not None:
        return f"the line does not fit the layout of the settings, {pattern.text}"
    if text[:1] in ("{", "["):
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            if text[:1] == "{":
                return "the line begins like JSON, but is cut off or not valid JSON"
        else:
            return "the JSON of the line has no time, or no message"
    if re.match(r"[\[(]?\d\d:\d\d:\d\d", text):
        return "the line begins with a time without a date"
    if re.match(r"[\[(]?\d{10,}", text):
        return "the line begins with a number, not with a date and a time"
    if re.match(rf"{_BEFORE}{_DAY}", text):
        return "the line begins with a date without a time of day"
    if re.match(r"[\[(]?\d{1,2}[/.-]\d{1,2}[/.-]\d{2,4}", text):
        return "the line begins with a date whose day and month are not certain"
    return "the line does not begin with a date and a time"


def shape(text: str, most: int = 60) -> str:
    """Return how a line looks, without what it says: letters are a, digits are 9, what is not plain ASCII is ?."""
    shown = (
        "9" if character.isdigit() else "a" if character.isalpha() else character if " " <= character <= "~" else "?"
        for character in text[:most]
    )
    return "".join(shown)


def moment(said: Parts, stamp: str | float | None, zone: tzinfo) -> int | None:
    """Return when an event was logged, in microseconds since 1970; None if it does not say, or no broker can have.

    ``stamp`` is when a wrapper took the line. If the event names no zone, its clock has the offset that brings it next
    to the stamp: the stamp's own, that of ``zone``, else a multiple of 15 minutes. Without a stamp it is in ``zone``.
    """
    if said.at is None:
        return None
    taken, stamped = stamp_of(stamp)
    at, offset = said.at, said.offset
    try:
        if said.is_clock:
            if taken is None:
                return None
            local = taken + (stamped or timedelta())
            at = datetime.combine(local.date(), at.time())
            at += round((local - at) / timedelta(days=1)) * timedelta(days=1)
        if offset is None and taken is not None:
            offset = _offset(at, taken, stamped, zone)
        utc = at - (_offset_in(zone, at) if offset is None else offset)
    except (OverflowError, ValueError):
        return None
    if not FIRST_YEAR <= utc.year <= LAST_YEAR:
        return None
    return (utc - EPOCH) // timedelta(microseconds=1)


def _offset(at: datetime, taken: datetime, stamped: timedelta | None, zone: tzinfo) -> timedelta:
    own = stamped if stamped is not None else timedelta()
    for offset in (own, _offset_in(zone, at)):
        if abs(at - offset - taken) <= MOST_DELAY:
            return offset
    quarters = round((at - taken) / QUARTER) * QUARTER
    is_near = abs(at - quarters - taken) <= timedelta(minutes=2) and abs(quarters) <= timedelta(hours=14)
    return quarters if is_near else own


def _offset_in(zone: tzinfo, at: datetime) -> timedelta:
    return at.replace(tzinfo=zone).utcoffset() or timedelta()


@lru_cache(maxsize=8)
def stamp_of(stamp: str | float | None) -> tuple[datetime | None, timedelta | None]:
    """Return a wrapper's moment in UTC, and the offset that it names; None where there is none."""
    if stamp is None:
        return None, None
    try:
        if isinstance(stamp, str) and (match := re.fullmatch(_DATE, stamp)):
            at, offset = _time(match)
            return (None, None) if at is None else (at - (offset or timedelta()), offset)
        return _of_number(float(stamp)), None
    except (ValueError, OverflowError):
        return None, None


def _of_number(number: float) -> datetime:
    """Return the moment of seconds, milliseconds, microseconds or nanoseconds since 1970."""
    for least, unit in ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3)):
        if abs(number) >= least:
            return EPOCH + timedelta(microseconds=round(number * unit * 1e6))
    return EPOCH + timedelta(microseconds=round(number * 1e6))


def _time(match: re.Match[str]) -> tuple[datetime | None, timedelta | None]:
    """Return the time on the clock, and the offset from UTC that it names; None for a time that does not exist."""
    said = match.groupdict()
    year, month, day = said.get("year"), said.get("month"), said.get("day")
    if said.get("name"):
        year, month, day = said["year2"], f"{_MONTHS.index(said['name'].title()) + 1}", said["day2"]
    micros = int((said.get("fraction") or "").ljust(6, "0")[:6])
    try:
        hour, minute, second = (int(said.get(part) or 0) for part in ("hour", "minute", "second"))
        at = datetime(int(year or 1970), int(month or 1), int(day or 1), hour, minute, second, micros)
        return at, _named_offset(said.get("zone"), at)
    except ValueError:
        return None, None


def _named_offset(zone: str | None, at: datetime) -> timedelta | None:
    if not zone:
        return None
    if zone in ("Z", "UTC", "GMT"):
        return timedelta()
    if zone[0] in "+-":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        return -offset if zone[0] == "-" else offset
    try:
        return _offset_in(ZoneInfo(zone), at)
    except (ZoneInfoNotFoundError, ValueError):
        return None


# --- JSON ----------------------------------------------------------------------------------------------------------

# Names of members, without case and signs; a member of an object has the object's name before its own.
_FIELDS = {
    "at": ("timestamp", "time", "instant", "timemillis", "ts", "datetime", "date", "logtimestamp", "eventtime"),
    "level": ("level", "loglevel", "severity", "lvl", "levelname", "fieldslevel", "priority"),
    "thread": ("thread", "threadname", "processthreadname", "fieldsthreadname", "fieldsthread"),
    "logger": ("logger", "loggername", "loglogger", "fieldsloggername", "fieldslogger", "category"),
    "message": ("message", "msg", "shortmessage", "logmessage"),
    "stack": (
        *("errorstacktrace", "exceptionstacktrace", "stacktrace", "fieldsexceptionstacktrace", "fieldsstacktrace"),
        *("thrownextendedstacktrace", "thrownstacktrace", "thrown", "exception", "throwable", "throwableinformation"),
        "fullmessage",  # of GELF: the stack trace, or the whole of which the short message is the beginning
    ),
}
_NAME = ("errortype", "exceptionexceptionclass", "exceptionclass", "thrownname", "fieldsexceptionexceptionclass")
_SAID: tuple[str, ...] = (
    "errormessage",
    "exceptionexceptionmessage",
    "exceptionmessage",
    "thrownmessage",
    "thrownlocalizedmessage",
)
_SAID += ("fieldsexceptionexceptionmessage",)
_SIGNS = re.compile(r"[^a-z0-9]")
_GELF = {"0": "FATAL", "1": "FATAL", "2": "FATAL", "3": "ERROR", "4": "WARN", "5": "INFO", "6": "INFO", "7": "DEBUG"}
_DEPTH = 3


@lru_cache(maxsize=4)
def parsed_json(text: str) -> Parts | None:
    """Return what a line with a JSON object says as an event; None if it is none."""
    try:
        members = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
    return of_json(members) if isinstance(members, dict) else None


def of_json(members: Mapping[str, Any]) -> Parts | None:
    """Return what a JSON object says as an event; None if it lacks time, level or message."""
    by_name = dict(reversed(list(_named(members, "", _DEPTH))))
    said = {field: next((by_name[name] for name in names if name in by_name), None) for field, names in _FIELDS.items()}
    if said["at"] is None or said["level"] is None or not isinstance(said["message"], str):
        return None
    at, offset = _of_member(said["at"])
    level = str(said["level"])
    message = said["message"].replace("\r\n", "\n").rstrip("\n")
    stack = _stack(
        said["stack"], [next((by_name[name] for name in names if name in by_name), None) for names in (_NAME, _SAID)]
    )
    if stack.startswith(message):
        message = stack
    elif stack and not message.endswith(stack):
        message = f"{message}\n{stack}"
    thread, logger = (said[name] if isinstance(said[name], str) else None for name in ("thread", "logger"))
    return Parts(at, offset, _GELF.get(level, level.upper()), thread, logger, message)


def _named(members: Mapping[str, Any], before: str, depth: int) -> Iterator[tuple[str, Any]]:
    for name, value in members.items():
        key = before + _SIGNS.sub("", str(name).lower())
        yield key, value
        if isinstance(value, Mapping) and depth > 1:
            yield from _named(value, key, depth - 1)


def _of_member(value: Any) -> tuple[datetime | None, timedelta | None]:
    """Return the time in a member; a number is the moment in UTC."""
    try:
        if isinstance(value, Mapping):  # log4j2's instant
            seconds, nanos = int(value["epochSecond"]), int(value.get("nanoOfSecond", 0))
            return EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000), timedelta()
        if isinstance(value, str) and (match := re.fullmatch(_DATE, value.strip())):
            return _time(match)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return _of_number(float(value)), timedelta()
    except (KeyError, ValueError, TypeError, OverflowError):
        pass
    return None, None


def _stack(stack: Any, parts: list[Any]) -> str:
    """Return a stack trace as text, which begins with the exception's name and message."""
    name, said = (part if isinstance(part, str) else None for part in parts)
    if isinstance(stack, Mapping):
        name = name or next((stack[key] for key in ("name", "class") if isinstance(stack.get(key), str)), None)
        said = said or (stack["message"] if isinstance(stack.get("message"), str) else None)
        stack = ""
    if isinstance(stack, list):
        stack = "\n".join(_frame(frame) for frame in stack)
    stack = (stack if isinstance(stack, str) else "").replace("\r\n", "\n").strip("\n")
    if name and not stack.startswith(name):
        head = name if said is None else f"{name}: {said}"
        stack = f"{head}\n{stack}" if stack else head
    return str(stack)


def _frame(frame: Any) -> str:
    if isinstance(frame, Mapping):
        return f"\tat {frame.get('class')}.{frame.get('method')}({frame.get('file')}:{frame.get('line')})"
    return str(frame)


# --- a pattern of the settings -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pattern:
    """A layout in log4j's pattern language: ``%d %p %t %c %C %F %L %M %m %n %x %X %r``, their long names, and text.

    Widths such as ``%-5p`` are understood, as are the date formats in letters of Java, and log4j's names for them.

    Raises ValueError: the pattern has no date, no message, or something that is not understood.
    """

    text: str

    def __post_init__(self) -> None:
        """Check the pattern."""
        _compiled(self.text)

    def begins(self, text: str) -> bool:
        """Tell whether a line begins an event."""
        return _compiled(self.text)[0].match(text) is not None

    def parts(self, text: str) -> Parts | None:
        """Return what an event says."""
        head, whole = _compiled(self.text)
        match = whole.match(text) or head.match(text)
        if match is None:
            return None
        said = match.groupdict()
        if said.get("epoch"):
            at, offset = _of_number(float(said["epoch"])), timedelta()
        else:
            at, offset = _time(match)  # type: ignore[assignment]
        message = (said["message"] or "") + (said.get("more") or "") if "message" in said else text[match.end() :]
        level, thread, logger = (said.get(name) for name in ("level", "thread", "logger"))
        return Parts(at, offset, level, thread, logger, message, "hour" in said and "year" not in said)


_CONVERSION = re.compile(r"%(?P<width>-?\d*(?:\.-?\d+)?)(?P<word>[A-Za-z]+|%)(?P<options>(?:\{[^{}]*\})*)")
_WORDS = {
    **dict.fromkeys(("p", "level"), ("level", rf"(?:{LEVELS})")),
    **dict.fromkeys(("t", "thread", "tn", "threadName"), ("thread", r".{0,200}?")),
    **dict.fromkeys(("c", "logger"), ("logger", r"[^\s]*?")),
    **dict.fromkeys(("m", "msg", "message"), ("message", r".*?")),
    **dict.fromkeys(("d", "date"), ("date", "")),
    **dict.fromkeys(("C", "class", "F", "file", "M", "method", "l", "location", "L", "line"), ("", r"[^\n]*?")),
    **dict.fromkeys(("x", "NDC", "X", "mdc", "MDC", "r", "relative", "pid", "sn", "marker"), ("", r"[^\n]*?")),
    **dict.fromkeys(("n", "ex", "xEx", "xThrowable", "throwable", "exception", "rEx", "xwEx"), ("", "")),
}
_LETTERS = {
    **{"yyyy": r"(?P<year>\d{4})", "uuuu": r"(?P<year>\d{4})", "MMM": rf"(?P<name>{_MONTH})", "MM": r"(?P<month>\d\d)"},
    **{"dd": r"(?P<day>\d\d)", "HH": r"(?P<hour>\d\d)", "mm": r"(?P<minute>\d\d)", "ss": r"(?P<second>\d\d)"},
    **{"SSSSSSSSS": r"(?P<fraction>\d{9})", "SSSSSS": r"(?P<fraction>\d{6})", "SSS": r"(?P<fraction>\d{3})"},
    **{"nnn": r"(?P<fraction>\d{3})", "XXX": r"(?P<zone>Z|[+-]\d\d:\d\d)", "XX": r"(?P<zone>Z|[+-]\d{4})"},
    **{"X": r"(?P<zone>Z|[+-]\d\d)", "Z": r"(?P<zone>[+-]\d{4})", "z": r"(?P<zone>[A-Z]{3,4})"},
}
_DATES = {
    "DATE": "dd MMM yyyy HH:mm:ss,SSS",
    "ABSOLUTE": "HH:mm:ss,SSS",
    "ISO8601_BASIC": "yyyyMMdd'T'HHmmss,SSS",
    "COMPACT": "yyyyMMddHHmmssSSS",
}
_QUOTED = re.compile(r"'([^']*)'|([A-Za-z])\2*|.", re.DOTALL)


@lru_cache(maxsize=16)
def _compiled(pattern: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return what matches the beginning of an event, up to its message, and what matches a whole event."""
    parts_: list[str] = []
    at = message_at = 0
    has_date = has_message = False
    for match in _CONVERSION.finditer(pattern):
        parts_.append(_literal(pattern[at : match.start()]))
        at = match.end()
        if match["word"] == "%":
            parts_.append("%")
            continue
        word = next(
            (match["word"][:end] for end in range(len(match["word"]), 0, -1) if match["word"][:end] in _WORDS), ""
        )
        if not word:
            raise ValueError(f"it has %{match['word']}, which is not understood here")
        name, value = _WORDS[word]
        if name == "date":
            has_date, value = True, _date(re.findall(r"\{([^{}]*)\}", match["options"]))
        elif name == "message":
            has_message, message_at = True, len(parts_)
            value = f"(?P<message>{value})"
        elif name and f"?P<{name}>" not in "".join(parts_):
            value = f"(?P<{name}>{value})"
        padded = match["width"] and name not in ("message", "date")
        parts_.append(rf"[ ]*{value}[ ]*" if padded else value)
        parts_.append(_literal(match["word"][len(word) :]))
    parts_.append(_literal(pattern[at:]))
    if not has_date or not has_message:
        raise ValueError("it needs a date (%d) and the message (%m)")
    try:
        head = re.compile("".join(parts_[:message_at]), re.DOTALL)
        return head, re.compile("".join(parts_) + r"(?P<more>\n.*)?\Z", re.DOTALL)
    except re.error:
        raise ValueError("it has a part twice that can be there once") from None


def _literal(text: str) -> str:
    return re.sub(r"(?:\\ | )+", "[ ]+", re.escape(text))


def _date(options: list[str]) -> str:
    format_ = options[0] if options else "DEFAULT"
    if format_ == "UNIX":
        return r"(?P<epoch>\d{10})"
    if format_ == "UNIX_MILLIS":
        return r"(?P<epoch>\d{13})"
    format_ = _DATES.get(format_, format_)
    if format_.startswith(("DEFAULT", "ISO8601")):
        return _DATE
    pieces = []
    for match in _QUOTED.finditer(format_):
        if match[2]:
            if match[0] not in _LETTERS:
                raise ValueError(f"its date has {match[0]}, which is not understood here")
            pieces.append(_LETTERS[match[0]])
        else:
            pieces.append(re.escape(match[1] if match[1] is not None else match[0]))
    return "".join(pieces)
