"""Contract of bronze.streams_requests: lines of the brokers' request log that concern streams groups, as logged."""

from expectations.contract import ORIGIN, Column, Contract
from expectations.provenance import landed

CONTRACT = Contract(
    table="bronze.streams_requests",
    description="One row per logged request of the APIs that streams groups use, and per line that cannot be read.",
    columns=(
        *landed("SHA-256 of the line and its occurrence in a file, or of its place in a topic."),
        Column("api", "string", "Kafka's name of the API; null where the row is about a damaged file."),
        Column("logged_at", "timestamp", "Timestamp of the line, of the setting's time zone where it names none."),
        Column("line", "binary", "The line as logged."),
        Column("error", "string", "Why the line cannot be read as a request and its response; else null."),
    ),
    grain=ORIGIN,
)
