"""Contract of silver.log_gaps: offsets between the landed segments of a log of which no landed segment tells."""

from expectations.contract import Column, Contract
from expectations.rules import at_least, is_true, not_null

CONTRACT = Contract(
    table="silver.log_gaps",
    description="One row per run of offsets between landed segments of a partition that no landed segment tells of.",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting.", (not_null(),)),
        Column("topic", "string", "Topic.", (not_null(),)),
        Column("partition", "int", "Partition.", (not_null(),)),
        Column("first_offset", "bigint", "First offset of the run.", (at_least(0),)),
        Column(
            "last_offset",
            "bigint",
            "Last offset of the run.",
            (is_true("not_before_first", "last_offset >= first_offset", "A run ends where it begins, or later."),),
        ),
        Column("log", "string", "Partition and topic: part of the table that is computed as one."),
    ),
    grain=("cluster", "topic", "partition", "first_offset"),
)
