"""Functions of Spark that DuckDB lacks, in Python: hashes, and Java's regular expressions.

DuckDB calls them row by row. A hash takes less than a microsecond. A search takes ten, so what was found in a text is
kept: many records of an incident have the same message.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SEED = 42  # of Spark's hashes
MOST_TEXTS = 1_000  # of at most 16,000 characters, for each function
ALIKE = re.compile(
    r"""(?x)(?:
        [^\\\[\](){}*+?|.^$] | \\[AdDwWsS] | \\x[0-9a-fA-F]{2} | \\[nrt] | \\[!-/:-@\[-`{-~]  # characters
        | \[\^?(?:[^\\\[\]&] | \\[dDwWsS] | \\x[0-9a-fA-F]{2} | \\[nrt] | \\[!-/:-@\[-`{-~])+\]  # classes
        | \((?:\?:|\?[=!]|\?<[=!]|(?!\?)) | \) | \| | \^  # groups, and what stands before and after
        | (?:[*+?] | \{[0-9]+(?:,[0-9]*)?\})[?+]?(?![*+?{])  # quantifiers
    )*"""
)
"""Patterns that Java and Python (with ``re.ASCII``) search alike: without ``.``, ``$``, ``\\b``, flags, references."""

REPLACEMENT = re.compile(r"(?:[^\\$]|\$[1-9](?![0-9]))*")
"""Replacements that mean the same: text, and groups."""
_GROUP = re.compile(r"\$([1-9])")

_PATTERNS: dict[int, re.Pattern[str]] = {}
_NUMBERS = count()


@cache
def number_of(pattern: str) -> int:
    """Return the number that stands for a pattern in this process: a long text would be handed over for each row."""
    number = next(_NUMBERS)
    _PATTERNS[number] = re.compile(pattern, re.ASCII)
    return number


def register(connection: DuckDBPyConnection) -> None:
    """Make the functions known to a database. Close its connection before the process ends."""
    from duckdb.sqltypes import BIGINT, BLOB, INTEGER, VARCHAR

    connection.create_function("java_replace", java_replace, [VARCHAR, INTEGER, VARCHAR], VARCHAR)
    connection.create_function("java_extract", java_extract, [VARCHAR, INTEGER, INTEGER], VARCHAR)
    connection.create_function("xxhash64_of", xxhash64_of, [BLOB], BIGINT)


@lru_cache(maxsize=MOST_TEXTS)
def java_replace(text: str, pattern: int, replacement: str) -> str:
    """Return ``regexp_replace`` of a text; ``$1`` in the ``REPLACEMENT`` is what the first group found, or nothing.

    Raises ValueError: a match of nothing, which Java also finds within a character beyond 16 bits.
    """

    def of(found: re.Match[str]) -> str:
        if not found[0]:
            raise ValueError("a match of nothing is replaced")
        if found.lastindex is None:
            return text_alone
        return first + "".join([(found[int(group)] or "") + text for group, text in groups])

    first, *rest = _GROUP.split(replacement)
    groups = tuple(zip(rest[::2], rest[1::2], strict=True))
    text_alone = first + "".join(rest[1::2])
    return _PATTERNS[pattern].sub(of, text)


@lru_cache(maxsize=MOST_TEXTS)
def java_extract(text: str, pattern: int, group: int) -> str:
    """Return ``regexp_extract`` of a text: empty if nothing is found."""
    found = _PATTERNS[pattern].search(text)
    return (found.group(group) if found else None) or ""


def xxhash64_of(content: bytes) -> int:
    """Return ``xxhash64`` of bytes, or of a text's bytes in UTF-8, as a signed number."""
    import xxhash

    unsigned: int = xxhash.xxh64_intdigest(content, SEED)
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned
