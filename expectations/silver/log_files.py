"""Contract of silver.log_files: what is known of each landed version of a log segment as a whole."""

from expectations.bronze.record_batches import VERSION
from expectations.contract import Column, Contract
from expectations.provenance import origin
from expectations.rules import at_least, not_null

RANGES = "array<struct<first_offset: bigint, last_offset: bigint>>"

CONTRACT = Contract(
    table="silver.log_files",
    description="One row per landed version of a log segment. silver.record_batches has their batches.",
    columns=(
        *origin("bronze.record_batches", "version", "Segment below the landing directory."),
        Column("topic", "string", "Topic, from the name of the segment's directory.", (not_null(),)),
        Column("partition", "int", "Partition, from the name of the segment's directory.", (not_null(), at_least(0))),
        VERSION,
        Column("size_in_bytes", "bigint", "Size of the file, packed where it is.", (at_least(0),)),
        Column("modified_ns", "bigint", "When the file was modified, in nanoseconds since 1970."),
        Column(
            "topic_id", "string", "Topic id, from partition.metadata or the segment's name; null where none landed."
        ),
        Column("first_version", "int", "Version since which the segment's batches are held.", (at_least(1),)),
        Column("batch_count", "bigint", "Sound batches in it.", (at_least(0),)),
        Column("covered", RANGES, "Runs of offsets that it speaks for."),
        Column("greatest_timestamp", "bigint", "Greatest epoch ms of its batches, -1 for none."),
        Column("least_epoch", "int", "Least leader epoch of its batches, -1 for none."),
        Column("greatest_epoch", "int", "Greatest leader epoch of its batches, -1 for none."),
        Column("greatest_epoch_offset", "bigint", "Offset where the greatest leader epoch begins; null for none."),
        Column("read_to", "bigint", "Bytes up to where it was read, once it is unpacked.", (at_least(0),)),
        Column("_content_hash", "bigint", "Hash of what is known of it: tells duplicate from conflict."),
    ),
    grain=("cluster", "_source", "version"),
    content="_content_hash",
    ranges_per=("cluster", "_source"),
)
