"""Contract of silver.log_ranges: which offsets a landed log segment holds, and which it proves to be absent."""

from expectations.contract import Column, Contract
from expectations.rules import at_least, is_true, not_null

CONTRACT = Contract(
    table="silver.log_ranges",
    description="One row per run of offsets of a landed segment, in slices of a thousand, that are there or are not.",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting.", (not_null(),)),
        Column("segment", "string", "Segment below the landing directory.", (not_null(),)),
        Column("topic", "string", "Topic.", (not_null(),)),
        Column("partition", "int", "Partition.", (not_null(),)),
        Column("first_offset", "bigint", "First offset of the run.", (at_least(0),)),
        Column(
            "last_offset",
            "bigint",
            "Last offset of the run.",
            (is_true("not_before_first", "last_offset >= first_offset", "A run ends where it begins, or later."),),
        ),
        Column(
            "has_batch",
            "boolean",
            "True where batches stand at the offsets, whatever records they still have; false where nothing stands.",
            (not_null(),),
        ),
        Column(
            "is_present",
            "boolean",
            "True where each offset has its record; false where none has one: nothing stands there, or batches without"
            " records; null where batches have fewer records than offsets, as their headers do not tell which.",
            (
                is_true(
                    "in_a_batch",
                    "has_batch OR (is_present IS NOT NULL AND NOT is_present)",
                    "A record is in a batch.",
                ),
            ),
        ),
        Column("is_compacted", "boolean", "True where a batch of the segment has fewer records than offsets."),
        Column("slice", "string", "Part of gold.message_ledger that the run is of.", (not_null(),)),
        Column("topic_id", "string", "Topic id, where a partition.metadata landed beside the log."),
    ),
    grain=("cluster", "segment", "first_offset"),
)
