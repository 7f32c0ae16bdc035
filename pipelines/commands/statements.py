"""Text of SQL as people type it -> its tokens, the tables that it names, its statements, and whether it ends."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from pipelines.commands.stored import LAYERS

_TOKEN = re.compile(
    r"""
      (?P<skipped> \s+ | --[^\n]* )
    | (?P<comment> /\* )
    | (?P<literal> [rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
    | (?P<quoted> `(?:[^`]|``)*` )
    | (?P<name> [^\W\d]\w* )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)


def statement_tables(text: str) -> set[str]:
    """Return the names in a statement that look like tables of a warehouse, without literals and comments.

    A column of an alias that is called like a layer looks like a table too, so callers leave out what does not exist.
    """
    tokens = list(tokens_of(text))
    tables = set()
    for position, (layer, dot, name) in enumerate(zip(tokens, tokens[1:], tokens[2:], strict=False)):
        behind_dot = position > 0 and tokens[position - 1] == "."
        in_catalog = behind_dot and position > 1 and tokens[position - 2].lower() == "spark_catalog"
        if dot == "." and layer.lower() in LAYERS and (not behind_dot or in_catalog):
            tables.add(f"{layer}.{name}".lower())
    return tables


def tokens_of(text: str) -> Iterator[str]:
    """Yield names (unquoted) and single characters; a string literal becomes one ``'``, which is never a name."""
    for kind, token, _ in _scanned(text):
        if kind == "quoted":
            yield token[1:-1].replace("``", "`")
        elif kind == "literal":
            yield "'"
        elif kind == "open" and not token.startswith("/*"):  # a quote without an end, which Spark will refuse
            yield from (token[0], *tokens_of(token[1:]))
        elif kind in ("name", "other"):
            yield token


def _end_of_comment(text: str, position: int) -> int | None:
    """Return where a bracketed comment ends, None if it does not; Spark's bracketed comments nest."""
    depth = 1
    while depth:
        bracket = re.compile(r"/\*|\*/").search(text, position)
        if bracket is None:
            return None
        depth += 1 if bracket[0] == "/*" else -1
        position = bracket.end()
    return position


def statements(text: str) -> tuple[list[str], str]:
    """Return the statements of a text that end with ``;``, and what comes after the last ``;``."""
    complete, begun = [], 0
    for kind, token, end in _scanned(text):
        if kind == "open":
            break
        if token == ";":
            if not is_blank(text[begun : end - 1]):
                complete.append(text[begun : end - 1].strip())
            begun = end
    return complete, text[begun:]


def is_blank(text: str) -> bool:
    """Tell whether a text has nothing but spaces and comments."""
    return all(kind in ("skipped", "comment") for kind, _, _ in _scanned(text))


def is_open(text: str) -> bool:
    """Tell whether a literal, a comment or a bracket has no end yet."""
    tokens = list(_scanned(text))
    brackets = [token for kind, token, _ in tokens if kind == "other"]
    return any(kind == "open" for kind, _, _ in tokens) or brackets.count("(") > brackets.count(")")


def is_in_text(text: str) -> bool:
    """Tell whether a text ends within a literal or a comment."""
    kind, token, _ = deque(_scanned(text), maxlen=1).pop() if text else (None, "", 0)
    return kind == "open" or token.startswith("--")


def _scanned(text: str) -> Iterator[tuple[str | None, str, int]]:
    """Yield the kind, text and end of each token; the rest of the text is ``open`` if a token in it has no end."""
    position = 0
    while match := _TOKEN.match(text, position):
        kind, position = match.lastgroup, match.end()
        if kind == "comment":
            end = _end_of_comment(text, position)
            kind = "open" if end is None else kind
            position = len(text) if end is None else end
        elif match[0] in ("'", '"', "`"):
            kind, position = "open", len(text)
        yield kind, text[match.start() : position], position
