"""Contract of bronze.record_batches: the header of every batch of a landed log segment, without payload."""

from expectations.contract import ORIGIN, Column, Contract
from expectations.provenance import landed

# What a file can be in place of a segment: by its code words for one such file, and what to do.
UNREAD = {
    "not_a_segment": (
        "is no segment by its path",
        "Land segments as a broker names them, <topic>-<partition>/<base offset>.log.",
    ),
    "packed": (
        "is packed or encrypted in a way that is not read",
        "Unpack it, or land it as .log.gz or .log.zst. Fetch a tiered segment that its plugin compressed or encrypted"
        " through the plugin.",
    ),
    "dump_text": (
        "is the text of kafka-dump-log",
        "Land the segment that the tool was asked about: it has all that the text has.",
    ),
    "configs_text": (
        "is the text of kafka-configs --describe",
        "Land it as topic.properties beside the topic's segments, or run `afterlog collect`.",
    ),
}

FILE = (
    "struct<size_in_bytes: bigint, modified_ns: bigint, topic_id: string, first_version: int, batch_count: bigint,"
    " covered: array<struct<first_offset: bigint, last_offset: bigint>>, greatest_timestamp: bigint, least_epoch: int,"
    " greatest_epoch: int, greatest_epoch_offset: bigint, read_to: bigint, digest: binary>"
)
VERSION = Column(
    "version",
    "int",
    "Landed version of the segment, from 1: of a batch, the one that it was first read from; later ones may go on.",
)
OF_A_FILE = Column(
    "file",
    FILE,
    "Null of a batch; else the row is of a landed version of a segment: its size, time of modification, topic id from"
    " partition.metadata, the version since which its batches are held, their number, the runs of offsets that it"
    " speaks for, greatest timestamp (epoch ms), least and greatest leader epoch and the offset where that begins, up"
    " to where it was read, digest of all headers until there.",
)

CONTRACT = Contract(
    table="bronze.record_batches",
    description="One row per record batch of a landed log segment, per place in one where no batch can be read, and per"
    " landed version of a segment.",
    columns=(
        *landed(
            "SHA-256 of cluster, segment, version, position and checksum; where there is an error, of its place.",
            "Segment below the landing directory that the batch was read from.",
        ),
        Column("topic", "string", "Topic, from the name of the segment's directory."),
        Column("partition", "int", "Partition, from the name of the segment's directory."),
        VERSION,
        OF_A_FILE,
        Column("position", "bigint", "Where the batch begins in the segment, in bytes; of a file its end."),
        Column("size_in_bytes", "bigint", "Size of the batch with its header, as the header says it."),
        Column("unread_bytes", "bigint", "Bytes from here on that are not understood; null where reading went on."),
        Column("header", "binary", "Header of the batch, the bytes."),
        Column("error", "string", "Code of what is wrong with the batch; else null.", content="text"),
        Column("base_offset", "bigint", "Offset of the first record, also of one that compaction removed."),
        Column("last_offset", "bigint", "Offset of the last record, also of one that compaction removed."),
        Column("magic", "int", "Message format: 0, 1 or 2."),
        Column("attributes", "int", "Attributes: codec, timestamp type, transactional, control, delete horizon."),
        Column("crc", "bigint", "Checksum in the header."),
        Column("crc_ok", "boolean", "True where the checksum in the header is the batch's."),
        Column("compression", "string", "Codec: none, gzip, snappy, lz4 or zstd."),
        Column("timestamp_type", "string", "CreateTime, LogAppendTime, or NoTimestampType with magic 0."),
        Column("base_timestamp", "bigint", "Epoch ms of the first record, -1 for none; or the delete horizon."),
        Column("max_timestamp", "bigint", "Greatest epoch ms of the records, -1 for none."),
        Column("is_transactional", "boolean", "True where the batch is part of a transaction, or ends one."),
        Column("is_control", "boolean", "True where the batch holds a control record, not an application's."),
        Column("has_delete_horizon", "boolean", "True where compaction has written the delete horizon."),
        Column("producer_id", "bigint", "Producer id, -1 for none."),
        Column("producer_epoch", "int", "Producer epoch, -1 for none."),
        Column("base_sequence", "int", "Sequence number of the first record, -1 for none."),
        Column("last_sequence", "int", "Sequence number of the last record, -1 for none."),
        Column("partition_leader_epoch", "int", "Epoch of the leader that appended the batch, -1 for none."),
        Column("record_count", "int", "Records in the batch, without those that compaction removed."),
        Column("control_key", "binary", "Key of the control record, the bytes."),
        Column("control_type", "string", "COMMIT, ABORT, or the number of another type of control record."),
        Column("coordinator_epoch", "int", "Epoch of the coordinator that ended the transaction."),
    ),
    grain=ORIGIN,
)
