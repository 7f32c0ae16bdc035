"""Contract of silver.transactions: the offsets of each transaction in a partition, and how it ended."""

from expectations.contract import Column, Contract
from expectations.rules import at_least, is_true, not_null, one_of

RANGES = "array<struct<first_offset: bigint, last_offset: bigint>>"
STATES = ("COMMITTED", "ABORTED", "OPEN", "UNKNOWN")

CONTRACT = Contract(
    table="silver.transactions",
    description="One row per transaction of a producer, or what landed of it, in a partition's log (KIP-98).",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting.", (not_null(),)),
        Column("topic", "string", "Topic.", (not_null(),)),
        Column("partition", "int", "Partition.", (not_null(),)),
        Column("producer_id", "bigint", "Producer id.", (not_null(),)),
        Column("producer_epoch", "int", "Producer epoch of the data."),
        Column("first_offset", "bigint", "First offset of its data.", (at_least(0),)),
        Column(
            "last_offset",
            "bigint",
            "Last offset of its data; offsets between may be of other producers.",
            (is_true("not_before_first", "last_offset >= first_offset", "It ends where it begins, or later."),),
        ),
        Column(
            "state",
            "string",
            "COMMITTED, ABORTED; OPEN: no marker ends it up to the end of the landed log; UNKNOWN: offsets behind its"
            " data have not landed, or its marker was compacted away.",
            (not_null(), one_of(*STATES)),
        ),
        Column(
            "marker_offset",
            "bigint",
            "Offset of the marker that ended it.",
            (
                is_true("behind_data", "marker_offset > last_offset", "A marker stands behind what it ends."),
                is_true(
                    "where_ended",
                    "(marker_offset IS NULL) = (state IN ('OPEN', 'UNKNOWN'))",
                    "What is known to have ended has a marker.",
                ),
            ),
        ),
        Column("marker_epoch", "int", "Producer epoch of the marker: that of the data, or the next one."),
        Column("ended_at", "timestamp", "Timestamp of the marker."),
        Column("last_written_at", "timestamp", "Greatest timestamp of the data."),
        Column("batch_count", "bigint", "Batches of data.", (at_least(1),)),
        Column("record_count", "bigint", "Records, without those that compaction removed.", (at_least(0),)),
        Column("ranges", RANGES, "The offsets of its data, in order; those of other producers are left out."),
        Column("slices", "array<string>", "Parts of gold.message_ledger that the transaction touches."),
        Column("topic_id", "string", "Topic id, where a partition.metadata landed beside the log."),
        Column("producer", "string", "Partition, producer and topic: part of the table that is computed as one."),
    ),
    grain=("cluster", "topic", "partition", "producer_id", "producer_epoch", "first_offset"),
)
