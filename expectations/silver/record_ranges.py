"""Contract of silver.record_ranges: which offsets around dead-lettered records hold records, as other feeds tell."""

from expectations.contract import Column, Contract
from expectations.incidents import CLUSTER
from expectations.rules import at_least, is_true, not_null

RANGE = "first_offset: bigint, last_offset: bigint"

CONTRACT = Contract(
    table="silver.record_ranges",
    description="One row per slice with dead-lettered records of which acknowledgements or landed segments tell.",
    columns=(
        CLUSTER,
        Column("slice", "string", "Part of gold.message_ledger that the records are of.", (not_null(),)),
        Column("topic", "string", "Source topic.", (not_null(),)),
        Column("partition", "int", "Its partition.", (not_null(),)),
        Column("dead_lettered_count", "bigint", "Source records of the slice that were dead-lettered.", (at_least(1),)),
        Column(
            "acknowledged_dead_lettered_count",
            "bigint",
            "Those of them that were acknowledged; about all if every producer of the topic tells.",
            (
                is_true(
                    "of_dead_lettered",
                    "acknowledged_dead_lettered_count BETWEEN 0 AND dead_lettered_count",
                    "They are some of the dead-lettered ones.",
                ),
            ),
        ),
        Column("acknowledged", f"array<struct<{RANGE}>>", "Offsets that were acknowledged, as ranges without gaps."),
        Column("landed", f"array<struct<{RANGE}>>", "Offsets of which landed segments tell."),
        Column(
            "without_record",
            f"array<struct<{RANGE}, offset_count: bigint>>",
            "Ranges where so many of these offsets hold no record: transaction markers, and what compaction removed.",
        ),
    ),
    grain=("cluster", "slice"),
)
