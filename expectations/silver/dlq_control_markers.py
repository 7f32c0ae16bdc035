"""Contract of silver.dlq_control_markers: which dead-letter records are control markers, as a landed log shows."""

from expectations.contract import Column, Contract
from expectations.rules import not_null

CONTRACT = Contract(
    table="silver.dlq_control_markers",
    description="One row per dead-letter record that is a control marker in its source's landed log, or only looks so.",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting.", (not_null(),)),
        Column("_bronze_id", "string", "Identifier of the row of silver.dlq_records.", (not_null(),)),
        Column("dlq_topic", "string", "Dead-letter topic.", (not_null(),)),
        Column("dlq_topic_id", "string", "Its topic id, where the source knows it."),
        Column("dlq_partition", "int", "Partition of the dead-letter topic.", (not_null(),)),
        Column("dlq_offset", "bigint", "Offset in the dead-letter topic.", (not_null(),)),
        Column("original_topic", "string", "Topic whose log decides."),
        Column("original_partition", "int", "Partition whose log decides."),
        Column("original_offset", "bigint", "Offset in that log."),
        Column("routed_at", "timestamp", "When the record was dead-lettered."),
        Column(
            "is_control_marker",
            "boolean",
            "True where the log holds a control batch at the offset; false where it holds data, though the bytes of the"
            " dead-letter record look like a marker's.",
            (not_null(),),
        ),
        Column("control_type", "string", "COMMIT, ABORT, or the number of another type of control record."),
        Column("slice", "string", "Part of silver.dead_letters that the record is of.", (not_null(),)),
        Column("source_slice", "string", "Part of this table that is computed as one.", (not_null(),)),
    ),
    grain=("cluster", "dlq_topic", "dlq_topic_id", "dlq_partition", "dlq_offset"),
)
