"""Contract of silver.dlq_write_failures: DLQ writes that failed, of which no consumer is notified."""

from expectations.contract import Column, Contract
from expectations.provenance import origin
from expectations.rules import at_least, is_true, not_null, readable

READABLE = "error IS NULL"

CONTRACT = Contract(
    table="silver.dlq_write_failures",
    description="One row per write to a DLQ that a broker gave up: the records are archived, and in no DLQ.",
    columns=(
        *origin("bronze.broker_events"),
        Column("event_id", "string", "SHA-256 of the event's first two lines and its occurrence in its file."),
        Column(
            "failed_at",
            "timestamp",
            "When the broker logged it.",
            (not_null("A line of the log has a time.").where(READABLE),),
        ),
        Column("consumer_group", "string", "Share group whose records they are; null where the log does not say."),
        Column("dlq_topic", "string", "DLQ topic that could not be written; null where the log does not say."),
        Column(
            "reason",
            "string",
            "What the broker, or the exception, says; null where neither says anything.",
            content="text",
        ),
        Column("error_class", "string", "Class of the exception."),
        Column("original_topic", "string", "Topic of the records; null where the log does not name them."),
        Column("original_topic_id", "string", "Its topic id."),
        Column("original_partition", "int", "Partition of the records."),
        Column("first_offset", "bigint", "Offset of the first record.", (at_least(0),)),
        Column(
            "last_offset",
            "bigint",
            "Offset of the last record.",
            (
                is_true(
                    "not_before_first", "last_offset >= first_offset", "A range ends where it begins, or later."
                ).failing("had a last offset before the first"),
            ),
        ),
        Column("offset_count", "bigint", "Offsets in the range; null where they are more than an int64 counts."),
        Column("delivery_count", "int", "How often the records were delivered, where the log says it."),
        Column("cause", "string", "Why the records were to be dead-lettered, where the log says it.", content="text"),
        Column("is_attributed", "boolean", "True where the log names the records."),
        Column("is_partial", "boolean", "True where the file ends before more of the event may have been logged."),
        Column("_content_hash", "bigint", "Hash of the event: tells a duplicate from a conflict."),
        Column("line", "binary", "The event as logged.", evidence=True, content="line"),
        Column(
            "error",
            "string",
            "Why the event cannot be read.",
            (readable("error", "An event of the log can be read.", "event"),),
            evidence=True,
            content="text",
        ),
    ),
    grain=("cluster", "event_id", "failed_at"),
    content="_content_hash",
    lossy="is_partial",
    ranges_per=("cluster",),
)
