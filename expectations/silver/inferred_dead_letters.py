"""Contract of silver.inferred_dead_letters: dead letters that the headers of later dead letters tell."""

from expectations.contract import Column, Contract
from expectations.rules import at_least, not_null

CONTRACT = Contract(
    table="silver.inferred_dead_letters",
    description="One row per earlier hop of a dead letter whose source and DLQ place its headers tell.",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting.", (not_null(),)),
        Column("told_by_topic", "string", "DLQ topic of the record whose headers tell it.", (not_null(),)),
        Column("told_by_topic_id", "string", "Its topic id; null where the record came from files alone."),
        Column("told_by_partition", "int", "Its partition.", (not_null(),)),
        Column("told_by_offset", "bigint", "Its offset.", (not_null(),)),
        Column("hop", "int", "Number of the hop, from 0, the oldest.", (not_null(), at_least(0))),
        Column("header_profile", "string", "Who wrote the headers of the hop.", (not_null(),)),
        Column("original_topic", "string", "Topic of the record that failed.", (not_null(),)),
        Column("original_partition", "int", "Its partition.", (not_null(),)),
        Column("original_offset", "bigint", "Its offset.", (not_null(),)),
        Column("consumer_group", "string", "Group that could not consume it; null where the hop names none."),
        Column("dlq_topic", "string", "DLQ topic to which it went: the source of the next hop.", (not_null(),)),
        Column("dlq_partition", "int", "Partition in it.", (not_null(),)),
        Column("dlq_offset", "bigint", "Offset in it.", (not_null(),)),
        Column("slice", "string", "Part of this table that is computed as one.", (not_null(),)),
        Column("source_slice", "string", "Slice of the record that failed.", (not_null(),)),
        Column("dlq_slice", "string", "Slice of the place in the DLQ topic.", (not_null(),)),
    ),
    grain=("cluster", "told_by_topic", "told_by_topic_id", "told_by_partition", "told_by_offset", "hop"),
)
