"""Contract of bronze.streams_requests: lines of the brokers' request log that concern streams groups, as logged."""

from expectations.contract import ORIGIN, Column, Contract
from expectations.provenance import landed

CONTRACT = Contract(
    table="bronze.streams_requests",
    description="One row per logged request of the APIs that streams groups use, and per line that cannot be read.",
    columns=(
        *landed("SHA-256 of the line and its occurrence in a file, or of its place in a topic."),
        Column("api", "string", "Kafka's name of the API; null where the row is about a damaged file."),
        Column(
            "logged_at",
            "timestamp",
            "Timestamp of the line; where it names no zone, of that of its wrapper, else of the setting.",
        ),
        Column(
            "line",
            "binary",
            "The line as it landed, with its wrapper; parts of a line are lines of it.",
            content="line",
        ),
        Column(
            "message",
            "string",
            "What the line says, where `line` has it escaped or in parts; else null.",
            content="line",
        ),
        Column(
            "error", "string", "Why the line cannot be read as a request and its response; else null.", content="text"
        ),
    ),
    grain=ORIGIN,
)
