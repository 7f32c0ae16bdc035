"""Contract of silver.dlq_hops: records of DLQ topics that were dead-lettered again, with their origins."""

from expectations.contract import Column, Contract
from expectations.rules import not_null

CONTRACT = Contract(
    table="silver.dlq_hops",
    description="One row per record of a DLQ topic that a later dead letter names as its origin, with its own origin.",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting.", (not_null(),)),
        Column("topic", "string", "DLQ topic that was read.", (not_null(),)),
        Column("partition", "int", "Partition in it.", (not_null(),)),
        Column("offset", "bigint", "Offset in it.", (not_null(),)),
        Column("original_topic", "string", "Topic of the record that this record is the dead letter of."),
        Column("original_partition", "int", "Its partition."),
        Column("original_offset", "bigint", "Its offset."),
        Column("slice", "string", "Part of this table that is computed as one.", (not_null(),)),
    ),
    grain=("cluster", "topic", "partition", "offset"),
)
