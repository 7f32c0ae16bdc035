"""Contract of silver.record_batches: valid record batches of landed log segments, typed."""

from expectations.bronze.record_batches import VERSION
from expectations.contract import Column, Contract
from expectations.provenance import origin
from expectations.rules import at_least, is_true, not_null, readable

READABLE = "error IS NULL"
HAS_PRODUCER = "producer_id >= 0"

CONTRACT = Contract(
    table="silver.record_batches",
    description="One row per record batch of a landed log segment whose checksum is right (KIP-98)."
    " silver.log_batches says which of them the log holds now, silver.log_files what is known of the segments.",
    columns=(
        *origin("bronze.record_batches", "batch", "Segment below the landing directory that the batch was read from."),
        Column(
            "topic",
            "string",
            "Topic, from the name of the segment's directory.",
            (
                not_null("A batch is of a topic.").where(READABLE),
                readable("unread", "A segment is landed as a broker, or its tiered storage, names it.", "file"),
                is_true(
                    "topic_metadata",
                    "error <> 'not_topic_metadata'",
                    "partition.metadata says its version, 0, and a topic id.",
                ).failing("cannot be read as partition.metadata", "file"),
            ),
        ),
        Column(
            "partition",
            "int",
            "Partition, from the name of the segment's directory.",
            (not_null("A batch is of a partition.").where(READABLE), at_least(0)),
        ),
        Column(
            "base_offset",
            "bigint",
            "Offset of the first record, also of one that compaction removed.",
            (
                not_null("A batch begins at an offset.").where(READABLE),
                at_least(0).where(READABLE),
                is_true(
                    "in_order", "error <> 'out_of_order'", "Offsets of a segment go up, from that of its name."
                ).failing("stood out of the order of offsets", "batch"),
            ),
        ),
        Column(
            "last_offset",
            "bigint",
            "Offset of the last record, also of one that compaction removed.",
            (
                not_null("A batch ends at an offset.").where(READABLE),
                is_true("not_before_base", "last_offset >= base_offset", "A batch ends where it begins, or later.")
                .where(READABLE)
                .failing("had a last offset before the first", "batch"),
            ),
        ),
        Column(
            "record_count",
            "int",
            "Records in the batch, without those that compaction removed.",
            (not_null("A batch says how many records it has.").where(READABLE), at_least(0).where(READABLE)),
        ),
        Column(
            "magic",
            "int",
            "Message format: 0, 1 or 2.",
            (
                is_true("known", "error <> 'unknown_magic'", "Brokers write message formats 0, 1 and 2.").failing(
                    "had an unknown message format", "batch"
                ),
            ),
        ),
        Column("compression", "string", "Codec: none, gzip, snappy, lz4 or zstd."),
        Column("timestamp_type", "string", "CreateTime, LogAppendTime, or NoTimestampType with magic 0."),
        Column("base_timestamp", "timestamp", "Timestamp of the first record; null where there is none."),
        Column("max_timestamp", "timestamp", "Greatest timestamp of the records; null where there is none."),
        Column("delete_horizon_at", "timestamp", "When compaction may remove tombstones and markers; null: not set."),
        Column("is_transactional", "boolean", "True where the batch is part of a transaction, or ends one."),
        Column("is_control", "boolean", "True where the batch holds a control record, not an application's."),
        Column(
            "control_type",
            "string",
            "COMMIT, ABORT, or the number of another type of control record; null where the batch holds none.",
            (not_null("A control record says its type.").where(f"{READABLE} AND is_control AND record_count > 0"),),
        ),
        Column("coordinator_epoch", "int", "Epoch of the coordinator that ended the transaction."),
        Column(
            "producer_id",
            "bigint",
            "Producer id, -1 for none: then the producer was not idempotent.",
            (
                is_true("of_transaction", HAS_PRODUCER, "Only a producer with an id has transactions.")
                .where(f"{READABLE} AND is_transactional")
                .failing("had a transaction, but no producer's id", "batch")
                .tolerated(),
            ),
        ),
        Column("producer_epoch", "int", "Producer epoch, -1 for none."),
        Column(
            "base_sequence",
            "int",
            "Sequence number of the first record, -1 for none.",
            (
                is_true("numbered", "base_sequence >= 0", "A producer with an id numbers its records.")
                .where(f"{READABLE} AND {HAS_PRODUCER} AND NOT is_control")
                .failing("came without a sequence number", "batch")
                .tolerated(),
            ),
        ),
        Column("last_sequence", "int", "Sequence number of the last record, -1 for none."),
        Column("partition_leader_epoch", "int", "Epoch of the leader that appended the batch, -1 for none."),
        Column("position", "bigint", "Where the batch begins in the segment, in bytes, once it is unpacked."),
        VERSION,
        Column(
            "size_in_bytes",
            "bigint",
            "Size of the batch with its header.",
            (
                is_true(
                    "plausible", "error <> 'implausible_size'", "A batch has the size of a header, or more."
                ).failing("had an impossible size", "batch"),
                is_true(
                    "complete",
                    "error NOT IN ('torn_batch', 'zero_filled')",
                    "All of a batch is there, unless its segment is the newest of the partition.",
                )
                .failing("ended too early", "batch")
                .hinting("A segment was copied while its broker wrote to it: land it again."),
                is_true("unpacked", "error <> 'damaged_pack'", "A packed segment can be unpacked to its end.")
                .failing("cannot be unpacked to its end", "segment")
                .hinting("Pack the segment again, and land it again."),
            ),
        ),
        Column(
            "crc",
            "bigint",
            "Checksum in the header.",
            (
                is_true("correct", "error <> 'wrong_crc'", "The checksum in the header is the batch's.").failing(
                    "had a wrong checksum", "batch"
                ),
            ),
        ),
        Column("_content_hash", "bigint", "Hash of the header, which has the checksum: tells duplicate from conflict."),
        Column(
            "header",
            "binary",
            "Header of the batch, the bytes.",
            (
                is_true("consistent", "error <> 'malformed'", "Under a right checksum the batch can be read.").failing(
                    "cannot be read", "batch"
                ),
            ),
            evidence=True,
        ),
        Column("attributes", "int", "Attributes in the header.", evidence=True),
        Column("control_key", "binary", "Key of the control record, the bytes.", evidence=True),
        Column("crc_ok", "boolean", "True where the checksum in the header is the batch's.", evidence=True),
        Column(
            "unread_bytes",
            "bigint",
            "Bytes from here on that are not understood; null where reading went on.",
            evidence=True,
        ),
        Column("error", "string", "Code of what is wrong with the batch.", evidence=True, content="text"),
        Column(
            "unread", "string", "Why no batch of the file was looked for: what it is in place of one.", evidence=True
        ),
    ),
    # Copies of a log can contradict each other without an error: the table keeps all of them.
    grain=("cluster", "_source", "version", "position"),
    content="_content_hash",
    position="position",
    ranges_per=("cluster", "_source", "version"),
    scope="topic",
)
