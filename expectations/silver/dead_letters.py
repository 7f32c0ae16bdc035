"""Contract of silver.dead_letters: every dead-letter record, whether it counts, and what its topic's log says of it."""

from expectations.contract import Column, Contract
from expectations.incidents import OWNER
from expectations.rules import is_true, not_null, one_of
from expectations.silver.dlq_records import SHARE_GROUP
from expectations.silver.transactions import STATES

CONTRACT = Contract(
    table="silver.dead_letters",
    description="One row per place in a DLQ topic whose record landed, accepted, refused by its contract or held.",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting.", (not_null(),)),
        Column("dlq_topic", "string", "Dead-letter topic.", (not_null(),)),
        Column("dlq_topic_id", "string", "Its topic id, where the source knows it."),
        Column("dlq_partition", "int", "Partition of the dead-letter topic.", (not_null(),)),
        Column("dlq_offset", "bigint", "Offset in the dead-letter topic.", (not_null(),)),
        Column("dlq_timestamp", "timestamp", "Kafka's timestamp of the record."),
        Column("header_profile", "string", "Who wrote the headers, as in silver.dlq_records."),
        Column("disposition", "string", "Why the record was dead-lettered."),
        Column("original_topic", "string", "Topic of the record that failed."),
        Column("original_partition", "int", "Partition of the record that failed."),
        Column("original_offset", "bigint", "Offset of the record that failed."),
        Column("consumer_group", "string", "Group that could not consume the record."),
        Column("delivery_count", "int", "How often the record was delivered."),
        Column("error_message", "string", "Message of the broker or of the exception.", content="message"),
        Column("routed_at", "timestamp", "When the record was dead-lettered."),
        Column("payload_copied", "boolean", "False where the broker wrote headers only."),
        Column(
            "is_control_marker",
            "boolean",
            "True where the landed log of the source holds a transaction's control marker at the offset, not data.",
        ),
        Column(
            "control_marker_suspected",
            "boolean",
            "True where the record has a control marker's bytes and no landed segment holds its source's offset: it"
            " counts until one does.",
        ),
        Column(
            "is_accepted", "boolean", "True where the record is in silver.dlq_records, not in quarantine, nor held."
        ),
        Column("is_held", "boolean", "True where the record is in held.dlq_records: its topic broke the contract."),
        Column(
            "lacks_mandatory_headers",
            "boolean",
            "True where a share group's record (kip-1317, kip-1191) does not have all mandatory headers of KIP-1317.",
        ),
        Column(
            "write_state",
            "string",
            "State of the transaction that wrote it, as in silver.transactions; null: none, or its log has not landed.",
            (one_of(*STATES),),
        ),
        Column(
            "is_counted",
            "boolean",
            "True where a source record was dead-lettered: accepted, no proved marker, not rolled back.",
            (
                not_null(),
                is_true(
                    "with_a_source",
                    f"NOT is_counted OR source_slice IS NOT NULL OR NOT ({SHARE_GROUP})",
                    "A counted dead letter names its source record, unless a profile of the settings cannot.",
                ),
            ),
        ),
        Column("slice", "string", "Part of this table that is computed as one.", (not_null(),)),
        Column("source_slice", "string", "Part of gold.message_ledger that the record that failed is of."),
        OWNER,
    ),
    grain=("cluster", "dlq_topic", "dlq_topic_id", "dlq_partition", "dlq_offset"),
)
