"""Contract of silver.log_batches: every landed batch, and whether its log still holds it, as landed copies show."""

from expectations.contract import Column, Contract
from expectations.rules import not_null, one_of

REASONS = ("VERSION", "TOPIC", "COPY", "LEADER")

CONTRACT = Contract(
    table="silver.log_batches",
    description="One row per sound batch of each landed version of a segment; superseded_by is null where it counts.",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting.", (not_null(),)),
        Column("segment", "string", "Segment below the landing directory.", (not_null(),)),
        Column("version", "int", "Landed version of the segment that the batch was first read from.", (not_null(),)),
        Column("position", "bigint", "Where the batch begins in the segment, in bytes.", (not_null(),)),
        Column("size_in_bytes", "bigint", "Size of the batch with its header."),
        Column("topic", "string", "Topic.", (not_null(),)),
        Column("partition", "int", "Partition.", (not_null(),)),
        Column("topic_id", "string", "Topic id of the segment now; null where no partition.metadata landed."),
        Column("base_offset", "bigint", "Offset of the first record.", (not_null(),)),
        Column("last_offset", "bigint", "Offset of the last record.", (not_null(),)),
        Column("record_count", "int", "Records in the batch, without those that compaction removed."),
        Column("max_timestamp", "timestamp", "Greatest timestamp of the records; null where there is none."),
        Column("leader_epoch", "int", "Epoch of the leader that appended the batch, -1 for none."),
        Column("is_transactional", "boolean", "True where the batch is part of a transaction, or ends one."),
        Column("is_control", "boolean", "True where the batch holds a control record, not an application's."),
        Column("control_type", "string", "COMMIT, ABORT, or the number of another type of control record."),
        Column("producer_id", "bigint", "Producer id, -1 for none."),
        Column("producer_epoch", "int", "Producer epoch, -1 for none."),
        Column(
            "superseded_by",
            "string",
            "Null where the batch counts; else what took its place: VERSION, a later version of its file; TOPIC, the"
            " topic was created again; COPY, another file speaks for its offsets; LEADER, the log was truncated.",
            (one_of(*REASONS),),
        ),
    ),
    grain=("cluster", "segment", "version", "position"),
)
