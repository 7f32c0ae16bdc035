"""Glob patterns of settings -> regular expressions."""

import re

_WILD = {"*": ".*", "?": "."}


def regex(glob: str) -> str:
    """Return the regular expression of a glob pattern with ``*`` and ``?``; every other character is literal."""
    return r"(?s)\A" + "".join(_WILD.get(character, re.escape(character)) for character in glob) + r"\z"


def like(glob: str) -> str:
    """Return the pattern of SQL's ``LIKE ... ESCAPE '!'`` for a glob pattern."""
    return "".join(
        {"*": "%", "?": "_"}.get(character, f"!{character}" if character in "!%_" else character) for character in glob
    )


def matches(glob: str, name: str) -> bool:
    """Tell whether a name matches a glob pattern, as Spark would with its regular expression.

    >>> matches('dlq.*', 'dlq.orders')
    True
    """
    return re.search(regex(glob).removesuffix(r"\z") + r"\Z", name) is not None
