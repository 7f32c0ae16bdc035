"""Text that a person can look at without harm: what a terminal obeys or hides, or a page reads, is escaped."""

from __future__ import annotations

import html

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    """Escape controls, line ends, bidirectional marks and all else that is not printable, as JSON and Java do.

    >>> visible('dlq.orders\\n')
    'dlq.orders\\\\n'
    """
    return (
        text
        if text.isprintable()
        else "".join(character if character.isprintable() else _escaped(character) for character in text)
    )


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return _SHORT.get(character) or "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def in_docs(text: str) -> str:
    """Escape text for Data Docs, which read a description as HTML and ``$name`` in it as a parameter."""
    return html.escape(text).replace("$", "&#36;")
