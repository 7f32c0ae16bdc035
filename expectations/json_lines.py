"""Columns that the contracts of feeds of JSON lines share."""

from expectations.contract import Column
from expectations.rules import is_true

READABLE = "line_error IS NULL"


def landed(bronze_id: str) -> tuple[Column, ...]:
    """Return the columns of a bronze table; ``bronze_id`` is the comment of its column ``_bronze_id``."""
    return (
        Column("_source", "string", "File below the landing directory, or kafka:<topic>/<topic id>/<partition>."),
        Column("_bronze_id", "string", bronze_id),
        Column("_ingested_at", "timestamp", "When the run that landed the row began."),
        Column("_run_id", "string", "Run that landed the row."),
        Column("cluster", "string", "Kafka cluster, a setting."),
        Column("line", "binary", "The line as it came, fields that are not known here included."),
        Column("error", "string", "Why the line is no JSON object; else null."),
    )


def origin(table: str) -> tuple[Column, ...]:
    """Return the columns that say which row of a bronze table a row comes from."""
    return (
        Column("_source", "string", "File below the landing directory that the line was read from."),
        Column("_bronze_id", "string", f"Identifier of the row of {table} that the row comes from."),
        Column("_ingested_at", "timestamp", "When the run that accepted the row began."),
        Column("_run_id", "string", "Run that accepted the row."),
        Column("cluster", "string", "Kafka cluster, a setting."),
    )


EVIDENCE = (
    Column("line", "binary", "The line as it came.", evidence=True),
    Column(
        "line_error",
        "string",
        "Why the line cannot be read.",
        (
            is_true("readable", READABLE, "A line is a JSON object whose fields are of their types.").failing(
                "cannot be read", "line"
            ),
        ),
        evidence=True,
    ),
)
