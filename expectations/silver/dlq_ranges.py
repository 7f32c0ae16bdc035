"""Contract of silver.dlq_ranges: which offsets of DLQ topics landed."""

from expectations.contract import Column, Contract
from expectations.rules import is_true, not_null

CONTRACT = Contract(
    table="silver.dlq_ranges",
    description="One row per range of adjacent offsets of a DLQ topic whose records landed, within a slice.",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting.", (not_null(),)),
        Column("dlq_topic", "string", "Dead-letter topic.", (not_null(),)),
        Column("dlq_topic_id", "string", "Its topic id, where the source knows it."),
        Column("dlq_partition", "int", "Partition.", (not_null(),)),
        Column("first_offset", "bigint", "First offset of the range.", (not_null(),)),
        Column(
            "last_offset",
            "bigint",
            "Last offset of the range.",
            (not_null(), is_true("in_order", "first_offset <= last_offset", "A range ends where it begins or later.")),
        ),
        Column("routed_at", "timestamp", "When the first record of the range was dead-lettered."),
        Column("slice", "string", "Part of this table that is computed as one.", (not_null(),)),
    ),
    grain=("cluster", "dlq_topic", "dlq_topic_id", "dlq_partition", "first_offset"),
)
