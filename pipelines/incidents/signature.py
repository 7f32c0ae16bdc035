r"""An error's message and stack trace -> the parts of a fingerprint, as sql/silver/dlq_errors.sql computes them.

Commands that choose the dead letters of an incident need the parts without a JVM. Tests hold both to the same text and
to the same results. No pattern has `\b`: up to Java 18 it is the end of a word in any script, later of ASCII alone, as
`\w` and Python's patterns are.
"""

from __future__ import annotations

import re

KEPT = ("Offset rejected by client.", "Offset delivery count exceeded the threshold.")
MOST_OF_MESSAGE = 500
MOST_OF_TRACE = 16_000

FIRST_LOOK = r"(?=[\w\x22\x27`.+-])(?![A-Za-z_]++(?![\w.+@:-]))"
"""Holds before a character that can begin a match, unless it begins a word of letters alone. Without this look a search
takes two to four times as long."""
VARYING = FIRST_LOOK + (
    r"(?:\w+://\S+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+|\"[^\"]*\"|(?<!\w)\x27[^\x27]*\x27(?!\w)|`[^`]*`"
    r"|(?:(?<!\w)(?=\w)|(?<=\w)(?=-))(?:[a-z0-9-]+\.)+[a-z0-9-]+:\d+"
    r"|(?:(?<!\w)(?=\w)|(?<=\w)(?=-))(?:[a-z0-9-]+\.)+"
    r"(?:com|net|org|io|dev|cloud|local|internal|svc|lan|corp|eu|de|uk|fr|us|cn|in)(?!\w|\.\w)"
    r"|(?<!\w)[0-9a-fA-F]+(?:-[0-9a-fA-F]+)+(?!\w)|(?<!\w)\w*\d\w*(?:[-.:/+]\w+)*)"
).replace('\\"', '"')
JOINED = r"<\*>(?:[^A-Za-z0-9_<]+<\*>)+"
FRAME = (
    r"\n[^\S\n]*+at (?:[^/\s(]*+/)*+(?!java\.|javax\.|jakarta\.|jdk\.|sun\.|com\.sun\.|kotlin\.|kotlinx\.|scala\."
    r"|groovy\.|akka\.|org\.apache\.|org\.springframework\.|org\.hibernate\.|org\.slf4j\.|io\.confluent\.|io\.netty\."
    r"|io\.micrometer\.|io\.opentelemetry\.|com\.fasterxml\.|com\.google\.|reactor\.)([^\s(/]+)\("
)

_VARYING = re.compile(VARYING, re.ASCII)
_JOINED = re.compile(JOINED, re.ASCII)
_FRAME = re.compile(FRAME, re.ASCII)
_NUMBER = re.compile(r"\d+", re.ASCII)
_LINE = re.compile(r"[^\r\n]*")


def pattern_of(message: str | None) -> str | None:
    """Return the first line of an error message with ``<*>`` for what varies in it."""
    if message is None or message in KEPT:
        return message
    line = _LINE.match(message.lstrip(" ")[:MOST_OF_MESSAGE])
    return _JOINED.sub("<*>", _VARYING.sub("<*>", line[0] if line else ""))


def frame_of(stacktrace: str | None) -> str | None:
    """Return the top frame of a stack trace that is not of a framework, without its line and its numbers."""
    found = _FRAME.search("\n" + (stacktrace or "")[:MOST_OF_TRACE])
    return _NUMBER.sub("*", found[1]) if found else None
