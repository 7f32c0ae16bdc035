"""Contract of silver.dlq_roots: the source record behind a DLQ record that was dead-lettered again."""

from expectations.contract import Column, Contract
from expectations.rules import between, is_true, not_null

CONTRACT = Contract(
    table="silver.dlq_roots",
    description="One row per record of a DLQ topic that a group read from there and could not consume either.",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting.", (not_null(),)),
        Column("topic", "string", "DLQ topic that was read.", (not_null(),)),
        Column("partition", "int", "Partition in it.", (not_null(),)),
        Column("offset", "bigint", "Offset in it.", (not_null(),)),
        Column(
            "root_topic", "string", "Topic of the source record; null where more than eight hops lead to it: a loop."
        ),
        Column("root_partition", "int", "Its partition."),
        Column("root_offset", "bigint", "Its offset."),
        Column(
            "hop_count",
            "int",
            "DLQ topics between the source record and the later dead-letter record; null in a loop.",
            (
                between(1, 8),
                is_true("with_a_root", "(hop_count IS NULL) = (root_topic IS NULL)", "A root is some hops away."),
            ),
        ),
        Column("slice", "string", "Part of gold.message_ledger that the record is of.", (not_null(),)),
    ),
    grain=("cluster", "topic", "partition", "offset"),
)
