"""The columns that every table of landed rows, and every table that is split from one, begins with."""

from expectations.contract import Column

ADDED_BY_THE_RUN = ("_ingested_at", "_run_id")


def landed(
    bronze_id: str, source: str = "File below the landing directory, or kafka:<topic>/<topic id>/<partition>."
) -> tuple[Column, ...]:
    """Return the first columns of a bronze table, with the comments of ``_bronze_id`` and ``_source``."""
    return _columns(source, bronze_id, "landed")


def origin(
    table: str,
    unit: str = "row",
    source: str = "File below the landing directory that the line was read from.",
) -> tuple[Column, ...]:
    """Return the columns that say which row of a bronze table a unit, such as a row or a batch, comes from."""
    return _columns(source, f"Identifier of the row of {table} that the {unit} comes from.", "accepted")


def _columns(source: str, bronze_id: str, did: str) -> tuple[Column, ...]:
    return (
        Column("_source", "string", source),
        Column("_bronze_id", "string", bronze_id),
        Column("_ingested_at", "timestamp", f"When the run that {did} the row began."),
        Column("_run_id", "string", f"Run that {did} the row."),
        Column("cluster", "string", "Kafka cluster, a setting."),
    )
