"""Contract of bronze.dlq_records: every line or record of a dead-letter topic, as it came."""

from expectations.contract import ORIGIN, Column, Contract
from expectations.provenance import landed

HEADERS = "array<struct<key: string, value: binary>>"

CONTRACT = Contract(
    table="bronze.dlq_records",
    description="One row per distinct line of a landed file (or per record of a topic), kept as it came.",
    columns=(
        *landed("SHA-256 of the raw line; of a topic's record, of its place and time."),
        Column("topic", "string", "Topic that held the record."),
        Column("topic_id", "string", "Topic id where the source knows it; null from files."),
        Column("partition", "int", "Partition that held the record."),
        Column("offset", "bigint", "Offset of the record."),
        Column("timestamp", "timestamp", "Kafka's timestamp of the record; null where Kafka has none (-1)."),
        Column("timestamp_type", "int", "0 CreateTime, 1 LogAppendTime; null where unknown."),
        Column("key", "binary", "Record key, the bytes.", content="key"),
        Column("value", "binary", "Record value, the bytes.", content="payload"),
        Column("headers", HEADERS, "All headers in order, with duplicates.", content="headers"),
        Column("lossy_encoding", "boolean", "True where bytes were lost before the record landed, or may have been."),
        Column(
            "raw", "binary", "The line, where it is not in the capture form, as it came; else null.", content="line"
        ),
        Column("error", "string", "Why the line cannot be read as a record; else null.", content="text"),
        Column("form", "string", "Form in which the record landed; null from topics, and where it cannot be read."),
        Column(
            "masked",
            "array<string>",
            "What masks hid before the record was written: key, value, header NAME, a path, error, line; else null.",
            later=True,
        ),
    ),
    grain=ORIGIN,
)
