"""Contract of silver.log_copies: the offsets of each landed segment that another landed copy supersedes."""

from expectations.contract import Column, Contract
from expectations.rules import at_least, not_null

RANGES = "array<struct<first_offset: bigint, last_offset: bigint>>"

CONTRACT = Contract(
    table="silver.log_copies",
    description="One row per landed segment, as its latest version has it, and what of it the log no longer holds.",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting.", (not_null(),)),
        Column("segment", "string", "Segment below the landing directory.", (not_null(),)),
        Column("topic", "string", "Topic.", (not_null(),)),
        Column("partition", "int", "Partition.", (not_null(),)),
        Column("topic_id", "string", "Topic id in the partition.metadata beside it; null where none landed."),
        Column("first_version", "int", "Version since which what the segment holds was only added to.", (at_least(1),)),
        Column("batch_count", "bigint", "Sound batches in it.", (at_least(0),)),
        Column("first_offset", "bigint", "First offset that it speaks for; null where it holds no batch."),
        Column("last_offset", "bigint", "Last offset that it speaks for."),
        Column("leader_epoch", "int", "Greatest leader epoch of its batches; null where they have none."),
        Column(
            "came_late",
            "boolean",
            "True where it was modified last and is an older copy nevertheless, by leader epoch and timestamps.",
        ),
        Column("is_of_older_topic", "boolean", "True where the topic was created again since: it speaks for nothing."),
        Column("superseded_ranges", RANGES, "Offsets of it for which another copy speaks."),
        Column("truncated_from", "bigint", "Offset from which on a later leader's log has something else, or nothing."),
    ),
    grain=("cluster", "segment"),
)
