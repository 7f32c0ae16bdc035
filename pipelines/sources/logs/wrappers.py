"""Lines as container runtimes, shippers and journals write them -> the lines that the broker printed.

``PATTERNS`` are the wrappers of text, ``_TEXTS`` the members of JSON objects that hold a line. A wrapper can hold
another one. It can name a stream, whose lines belong together, and the moment when it took the line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from pipelines.sources.logs import layouts

MOST_WRAPPERS = 4

_ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
_TAG = r"[^\s:\[\]]{1,100}(?:\[\d+\])?: ?"
_HOST = rf"(?!(?:{layouts.LEVELS})\b)[\w.:-]{{1,255}}"

# Named groups: stamp (or epoch), stream, tag (P begins with a part of a line), text; object holds the text in JSON.
PATTERNS = {
    "cri": rf"(?P<stamp>{_ISO}) (?P<stream>stdout|stderr) (?P<tag>[FP](?::\S*)?)(?: (?P<text>.*)|$)",
    "loki": rf"(?P<stamp>{_ISO})\s+(?P<stream>\{{(?:\w+=\"(?:[^\"\\]|\\.)*\"(?:, ?)?)*\}}) *(?P<text>.*)",
    "syslog": rf"(?:\d{{1,6}} )?<\d{{1,3}}>1 (?:(?P<stamp>{_ISO})|-) (?P<stream>\S+ \S+ \S+) \S+"
    r" (?:-|(?:\[(?:[^\]\\]|\\.)*\])+)(?: \ufeff?(?P<text>.*)|$)",
    "syslog of old": rf"(?:<\d{{1,3}}>)?[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? (?P<stream>{_HOST} {_TAG})"
    r"(?P<text>.*)",
    "journal with dates": rf"(?:<\d{{1,3}}>)?(?P<stamp>{_ISO}) (?P<stream>{_HOST} {_TAG})(?P<text>.*)",
    "journal with days": rf"[A-Z][a-z]{{2}} \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \w+ (?P<stream>{_HOST} {_TAG})"
    r"(?P<text>.*)",
    "journal in seconds": rf"(?P<epoch>\d{{10}}\.\d{{6}}) (?P<stream>{_HOST} {_TAG})(?P<text>.*)",
    "journal's export": r"(?:MESSAGE=(?P<text>.*)|_{0,2}[A-Z][A-Z0-9_]*=.*)$",
    "time stamp": rf"(?P<stamp>{_ISO})(?: (?P<text>.*)|$)",
    "grafana": rf"(?:\d{{13}}\t(?P<stamp>{_ISO})|\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{{3}})\t(?P<text>.*)",
    "kubectl": r"\[(?P<stream>pod/[^\]\s]+)\](?: (?P<text>.*)|$)",
    "fluent bit": r"\[\d+\] (?P<stream>[^\s:]+): \[\[?(?P<epoch>\d+(?:\.\d+)?)(?:, \{.*?\}\])?,"
    r" \{.*?\"(?:log|message|MESSAGE)\"=>\"(?P<text>.*?)(?:\"(?:, \"[^\"]+\"=>.*)?\}\]|)$",
    "fluent bit's end": r"\"(?:, \"[^\"]+\"=>.*)?\}\]$",
    "fluent bit's file": r"(?P<stream>[^\s:]+): \[(?P<epoch>\d+(?:\.\d+)?), (?P<object>\{.*\})\]$",
    "fluentd's file": rf"(?P<stamp>{_ISO})\t(?P<stream>[^\t]+)\t(?P<object>\{{.*\}})$",
    "fluentd": r"(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})? [+-]\d{4}) (?P<stream>[^\s:]+):"
    r" (?P<object>\{.*\})$",
    "compose": rf"(?:(?P<stamp>{_ISO}) )?(?P<stream>[A-Za-z0-9][\w.@-]*) +\|(?: (?P<text>.*)|$)",
    "stern": r"(?P<stream>[a-z0-9][a-z0-9.-]* [a-z0-9][a-z0-9-]*) (?P<text>.*)",
}
_COMPILED = {name: re.compile(pattern, re.DOTALL) for name, pattern in PATTERNS.items()}
_STARTS = {  # by what a line begins with, the wrappers that it can have, the most specific first
    "digit": (
        "syslog",
        "fluentd",
        "fluentd's file",
        "cri",
        "loki",
        "journal with dates",
        "journal in seconds",
        "time stamp",
        "grafana",
        "fluent bit's file",
        "compose",
        "stern",
    ),
    "letter": ("syslog of old", "journal with days", "journal's export", "fluent bit's file", "compose", "stern"),
    "<": ("syslog", "syslog of old", "journal with dates"),
    "[": ("kubectl", "fluent bit"),
    "_": ("journal's export",),
    '"': ("fluent bit's end",),
}
# Text can look like these by chance: they are removed only where that makes events of a file's lines.
DOUBTFUL = frozenset(
    {"time stamp", "grafana", "compose", "stern", "journal with dates", "journal's export", "syslog of old"}
)
JSON = "json"
_TEXTS = ("log", "MESSAGE", "line", "message", "msg", "Message")
_STAMPS = ("time", "timestamp", "@timestamp", "date", "ts", "__REALTIME_TIMESTAMP")
_STREAMS = ("stream", "labels", "_HOSTNAME", "_SYSTEMD_UNIT", "host", "kubernetes", "container_name", "source")
_DOCKER = frozenset({"log", "stream", "time", "attrs"})
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ESCAPES = {"#011": "\t", "#012": "\n", "#015": ""}  # rsyslog writes control characters like this


_PART = re.compile(" std(?:out|err) P[ :]")
_PART_WITHIN = 300
_SEVERAL = ('{"streams"', '{"status"', '{"data"')  # Loki's own answers


class Line(NamedTuple):
    """A line without its wrappers; ``raw`` is how it landed.

    ``stamp`` is when the outermost wrapper that says so took the line: ISO 8601, or seconds since 1970. If it
    ``is_part``, the next line of its stream continues it without a break.
    """

    raw: str
    text: str
    stream: str = ""
    stamp: str | float | None = None
    is_part: bool = False
    wrappers: tuple[str, ...] = ()


def unwrapped(raw: str, wanted: Collection[str] | None = None, pattern: layouts.Pattern | None = None) -> list[Line]:
    """Return the lines that a landed line holds: usually one.

    Of ``DOUBTFUL`` wrappers remove only the ``wanted`` ones, which the file has. If these are not known (None), remove
    one only if an event begins after it. ``pattern`` is the layout of the settings, if any.
    """
    lines = [Line(raw, _plain(raw))]
    for _ in range(MOST_WRAPPERS):
        inner = [removed for line in lines for removed in _removed(line, wanted, pattern)]
        if inner == lines:
            break
        lines = inner
    return lines


def is_one_line(raw: str) -> bool:
    """Tell, without removing wrappers, whether a landed line surely holds one whole line."""
    if raw.startswith("{"):
        is_docker = '"stream":"std' in raw
        return not raw.startswith(_SEVERAL) and '"logtag"' not in raw and (not is_docker or '\\n","stream":"' in raw)
    return not raw.startswith(("[{", ",{")) and _PART.search(raw, 0, _PART_WITHIN) is None


def _plain(text: str) -> str:
    """Return a line without its CR, a byte order mark, the mark before JSON in a sequence, and colours."""
    text = text.rstrip("\r\n")
    if text.startswith(("\ufeff", "\x1e")):
        text = text[1:]
    return _ANSI.sub("", text) if "\x1b" in text else text


def _removed(line: Line, wanted: Collection[str] | None, pattern: layouts.Pattern | None) -> Iterator[Line]:
    text = line.text
    first = text[:1]
    if first == "{" or text.startswith(("[{", ",{")):
        yield from _of_json(line)
        return
    kind = "digit" if first.isdigit() else "letter" if first.isalpha() else first
    for name in _STARTS.get(kind, ()):
        if name in line.wrappers or (name in DOUBTFUL and wanted is not None and name not in wanted):
            continue
        match = _COMPILED[name].match(text)
        if match is None:
            continue
        groups = match.groupdict()
        if wanted is None and name in DOUBTFUL and not layouts.begins_surely(groups.get("text") or "", pattern):
            continue
        stamp = groups.get("stamp") or (float(groups["epoch"]) if groups.get("epoch") else None)
        outer = line._replace(
            stream=f"{line.stream}\n{groups.get('stream') or ''}",
            stamp=stamp if line.stamp is None else line.stamp,
            is_part=line.is_part or (groups.get("tag") or "").startswith("P"),
            wrappers=(*line.wrappers, name),
        )
        if "object" in groups:
            yield from _of_json(outer._replace(text=groups["object"]))
            return
        inner = groups.get("text") or ""
        if name == "fluent bit" and '\\"' in inner:
            inner = _unquoted(inner)
        if "syslog" in name and "#01" in inner:
            for escape, character in _ESCAPES.items():
                inner = inner.replace(escape, character)
        yield outer._replace(text=_plain(inner))
        return
    yield line


def _unquoted(text: str) -> str:
    """Return what a string of JSON holds; the text itself if it is none: Fluent Bit once wrote it with escapes."""
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text


def _of_json(line: Line) -> Iterator[Line]:
    """Yield the lines that JSON holds; the line itself if it holds none, such as an event in a JSON layout."""
    try:
        value = json.loads(line.text.strip(" ,"), strict=False)
    except (ValueError, RecursionError):
        yield line
        return
    if isinstance(value, list):
        inner = [_of_object(line, member) for member in value if isinstance(member, dict)]
        yield from inner or [line]
        return
    streams = value.get("streams")
    if streams is None and isinstance(value.get("data"), dict):
        streams = value["data"].get("result")
    if isinstance(streams, list) and (entries := list(_of_streams(line, streams))):
        yield from entries
        return
    yield _of_object(line, value)


def _of_streams(line: Line, streams: list[Any]) -> Iterator[Line]:
    """Yield the entries of Loki's own answer, oldest first."""
    for stream in streams:
        if not isinstance(stream, dict) or not isinstance(stream.get("values"), list):
            continue
        name = f"{line.stream}\n{json.dumps(stream.get('stream'), sort_keys=True)}"
        entries = [
            entry
            for entry in stream["values"]
            if isinstance(entry, list) and len(entry) > 1 and all(isinstance(part, str) for part in entry[:2])
        ]
        entries = [entry for entry in entries if entry[0].isdigit() and len(entry[0]) < 25]
        for nanos, text, *_ in sorted(entries, key=lambda entry: int(entry[0])):
            yield line._replace(text=_plain(text), stream=name, stamp=int(nanos) / 1e9, wrappers=(*line.wrappers, JSON))


def _of_object(line: Line, members: Mapping[str, Any]) -> Line:
    """Return the line that an object holds, or the object as a line: an event in a JSON layout."""
    own = json.dumps(members, ensure_ascii=False) if line.text.strip(" ,")[:1] == "[" else line.text.strip(" ,")
    text = next((_text(members[name]) for name in _TEXTS if isinstance(members.get(name), str | list)), None)
    if text is None or (layouts.of_json(members) is not None and not layouts.is_dated_event(text)):
        return line._replace(text=own)
    stamp = next((members[name] for name in _STAMPS if isinstance(members.get(name), str | int | float)), None)
    if "__REALTIME_TIMESTAMP" in members and isinstance(stamp, str) and stamp.isdigit():
        stamp = int(stamp) / 1e6
    stream = json.dumps([members.get(name) for name in _STREAMS if name in members], sort_keys=True)
    return line._replace(
        text=_plain(text),
        stream=f"{line.stream}\n{stream}",
        stamp=stamp if line.stamp is None else line.stamp,
        is_part=(_DOCKER.issuperset(members) and "stream" in members and not text.endswith("\n"))
        or members.get("logtag") == "P",
        wrappers=(*line.wrappers, JSON),
    )


def _text(value: str | list[Any]) -> str | None:
    """Return a member's text; the journal writes text with control characters as a list of bytes."""
    if isinstance(value, str):
        return value
    if all(isinstance(byte, int) and 0 <= byte < 256 for byte in value):
        return bytes(value).decode("utf-8", "surrogateescape")
    return None
