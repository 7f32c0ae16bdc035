"""Columns that the contracts of feeds of JSON lines share."""

from expectations import provenance
from expectations.contract import Column
from expectations.rules import readable

READABLE = "line_error IS NULL"


def landed(bronze_id: str) -> tuple[Column, ...]:
    """Return the columns of a bronze table; ``bronze_id`` is the comment of its column ``_bronze_id``."""
    return (
        *provenance.landed(bronze_id),
        Column("line", "binary", "The line as it came, fields that are not known here included.", content="line"),
        Column("error", "string", "Why the line is no JSON object; else null.", content="text"),
    )


EVIDENCE = (
    Column("line", "binary", "The line as it came.", evidence=True, content="line"),
    Column(
        "line_error",
        "string",
        "Why the line cannot be read.",
        (readable("line_error", "A line is a JSON object whose fields are of their types."),),
        evidence=True,
    ),
)
