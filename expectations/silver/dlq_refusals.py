"""Contract of silver.dlq_refusals: how many dead letters break which rule, by slice of their DLQ topic and hour."""

from expectations.contract import Column, Contract
from expectations.rules import at_least, is_true, not_null

CONTRACT = Contract(
    table="silver.dlq_refusals",
    description="One row per slice of a DLQ topic and hour: the dead letters in quarantine, or those that are held.",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting.", (not_null(),)),
        Column("slice", "string", "Part of the DLQ topic; null for lines that name no place in one."),
        Column("dlq_topic", "string", "Dead-letter topic; null for lines that name none."),
        Column(
            "hour",
            "timestamp",
            "Hour of the dead letters (UTC), its beginning: of what they say, else of Kafka's timestamp, "
            "else of their landing; never after that of their landing.",
            (is_true("whole_hour", "hour = date_trunc('HOUR', hour)", "An hour begins at minute 0."),),
        ),
        Column("is_held", "boolean", "Whether they are held, or else in quarantine.", (not_null(),)),
        Column("record_count", "bigint", "Dead letters.", (at_least(1, "A group of records is not empty."),)),
        Column("first_at", "timestamp", "Time of the first of them, within the hour."),
        Column(
            "last_at",
            "timestamp",
            "Time of the last of them, within the hour.",
            (
                is_true(
                    "in_the_hour",
                    "first_at >= hour AND last_at >= first_at AND last_at < hour + INTERVAL 1 HOUR",
                    "The dead letters of an hour have their times in it.",
                ),
            ),
        ),
        Column("first_stated_at", "timestamp", "The earliest time that they, or else Kafka, say; null for none."),
        Column("last_stated_at", "timestamp", "The latest time that they, or else Kafka, say; null for none."),
        Column(
            "broken_rules",
            "array<struct<code: string, record_count: bigint, first_at: timestamp, last_at: timestamp>>",
            "Rules that they break: how many break each, and the times of the first and the last that do.",
        ),
    ),
    grain=("cluster", "slice", "dlq_topic", "hour", "is_held"),
)
