"""Contract of bronze.broker_events: failed DLQ writes and starts in the brokers' own log, as logged."""

from expectations.contract import ORIGIN, Column, Contract
from expectations.provenance import landed

CONTRACT = Contract(
    table="bronze.broker_events",
    description="One row per failed DLQ write, with all lines that tell of it, and per line that tells of a start.",
    columns=(
        *landed(
            "SHA-256 of the lines, and of the event's occurrence among those of its file.",
            "File below the landing directory that the event was read from.",
        ),
        Column("kind", "string", "DLQ_WRITE_FAILED or BROKER_STARTED; null where the row is about a damaged file."),
        Column(
            "logged_at",
            "timestamp",
            "Timestamp of the event; where it names no zone, of that of its wrapper, else of the setting.",
        ),
        Column(
            "line",
            "binary",
            "The event as logged, without wrappers, with its continuation lines and the event that says how it ended.",
            content="line",
        ),
        Column("message", "string", "What the event says, where its layout is JSON; else null.", content="line"),
        Column(
            "event_id", "string", "SHA-256 of the event's first two lines and its occurrence: a longer copy has it."
        ),
        Column("is_partial", "boolean", "True where the file ends before more of the event may have been logged."),
        Column("error", "string", "Why the event cannot be read; else null.", content="text"),
    ),
    grain=ORIGIN,
)
