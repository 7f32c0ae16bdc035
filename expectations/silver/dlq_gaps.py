"""Contract of silver.dlq_gaps: offsets of DLQ topics that never landed, between offsets that did."""

from expectations.contract import Column, Contract
from expectations.rules import at_least, is_true, not_null

CONTRACT = Contract(
    table="silver.dlq_gaps",
    description="One row per run of offsets of a DLQ topic that never landed, with what its own log says of them.",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting.", (not_null(),)),
        Column("dlq_topic", "string", "Dead-letter topic.", (not_null(),)),
        Column("dlq_topic_id", "string", "Its topic id, where the source knows it."),
        Column("dlq_partition", "int", "Partition.", (not_null(),)),
        Column("first_offset", "bigint", "First offset that did not land.", (not_null(),)),
        Column("last_offset", "bigint", "Last offset that did not land.", (not_null(),)),
        Column("found_at", "timestamp", "When the record behind the gap was dead-lettered."),
        Column("offset_count", "bigint", "Offsets in the gap.", (at_least(1),)),
        Column("marker_count", "bigint", "Of these, markers of transactions.", (at_least(0),)),
        Column("aborted_count", "bigint", "Of these, records whose transaction was aborted.", (at_least(0),)),
        Column("compacted_count", "bigint", "Of these, offsets that compaction removed.", (at_least(0),)),
        Column(
            "unexplained_count",
            "bigint",
            "Of these, offsets that nothing explains: records that were lost on the way, or a log that did not land.",
            (is_true("within_gap", "unexplained_count BETWEEN 0 AND offset_count", "No more than there are."),),
        ),
        Column("dlq_log", "string", "Partition and topic: part of the table that is computed as one.", (not_null(),)),
    ),
    grain=("cluster", "dlq_topic", "dlq_topic_id", "dlq_partition", "first_offset"),
)
