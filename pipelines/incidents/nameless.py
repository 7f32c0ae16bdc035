"""An error's message and stack trace -> the same without values, of the same pattern and with the same top frame."""

from __future__ import annotations

import re

from pipelines.incidents.signature import (
    FOREIGN_DIGIT,
    FOREIGN_QUOTES,
    FRAME,
    MARK,
    MOST_OF_MESSAGE,
    MOST_OF_TRACE,
    VARYING_1,
    VARYING_2,
    frame_of,
    pattern_of,
)

_FRAMES = r"(?m)^[^\S\n]*at [\w.$/<>@-]+\((?:[\w$.-]+(?::\d+)?|Native Method|Unknown Source)\)"


def without_values(message: str, version: int | None) -> str:
    """Return a text of the same pattern as an error message, in which nothing is left of what varies.

    In the text of few patterns, most of them web addresses, what varies is a zero, as patterns would change there.
    """
    pattern = pattern_of(message, version) or ""
    texts = (pattern, pattern.replace(MARK, "0"), _in_zeros(message, version))
    return next((text for text in texts if pattern_of(text, version) == pattern), pattern)


def _in_zeros(message: str, version: int | None) -> str:
    """Return the line that a pattern is of with a zero for each part that varies, also where these stand together."""
    line = re.split(r"[\r\n]", message.lstrip(" ")[:MOST_OF_MESSAGE])[0]
    is_first = version is None or version < 2
    for pattern, instead in () if is_first else ((FOREIGN_QUOTES, '""'), (FOREIGN_DIGIT, "0")):
        line = re.sub(pattern, instead, line, flags=re.ASCII)
    varying = VARYING_1 if is_first else VARYING_2
    return re.sub(varying, lambda match: "".join(filter(None, match.groups())) + "0", line, flags=re.ASCII)


def without_messages(stacktrace: str) -> str:
    """Return the frames of a stack trace, without the messages between them; its top frame stays what it is."""
    begin = stacktrace[:MOST_OF_TRACE]
    frames = "\n".join(re.findall(_FRAMES, begin))
    frame = re.search(FRAME, "\n" + begin, re.ASCII)
    return frames if frame is None or frame_of(frames) == frame_of(stacktrace) else f"\tat {frame[1]}("
