"""Contract of gold.message_ledger: the outcome of each produced message."""

from expectations.contract import Column, Contract
from expectations.rules import at_least, is_true, not_null, one_of
from expectations.silver.transactions import STATES

OUTCOMES = ("LOST", "ABORTED", "DEAD_LETTERED", "ABSENT", "FAILED", "ACKNOWLEDGED", "UNKNOWN")
LETTERS = (
    "array<struct<routed_at: timestamp, dlq_topic: string, dlq_partition: int, dlq_offset: bigint,"
    " consumer_group: string, disposition: string, delivery_count: int, times: int>>"
)

CONTRACT = Contract(
    table="gold.message_ledger",
    description="One row per produced message: by its offset where it is known, else by its acknowledgement.",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting.", (not_null(),)),
        Column("slice", "string", "Part of the table that is computed as one.", (not_null(),)),
        Column("topic", "string", "Topic, or its topic id where a DLQ knows no name.", (not_null(),)),
        Column("partition", "int", "Partition; null where it is unknown.", (at_least(0),)),
        Column("offset", "bigint", "Offset; null where it is unknown.", (at_least(0),)),
        Column(
            "acknowledgement_id",
            "string",
            "Where the offset is unknown: the _bronze_id of the acknowledgement.",
            (
                is_true(
                    "without_an_offset",
                    "(acknowledgement_id IS NULL) = (offset IS NOT NULL)",
                    "A message is known by its offset or by its acknowledgement.",
                ),
            ),
        ),
        Column(
            "outcome",
            "string",
            "First that applies of LOST, ABORTED, DEAD_LETTERED, ABSENT, FAILED, ACKNOWLEDGED, UNKNOWN. LOST:"
            " acknowledged, and absent from a log that is known not to be compacted, also where a group dead-lettered"
            " it. ABSENT: the same where that is not known; the setting [[segments.cleanup_policy]] for the topic"
            " decides it, or the cluster of [kafka], where Afterlog has DescribeConfigs on the topic.",
            (not_null(), one_of(*OUTCOMES)),
        ),
        Column(
            "acknowledged",
            "boolean",
            "True where the producer was told success and an offset, whatever happened later.",
            (not_null(), is_true("at_an_offset", "NOT acknowledged OR offset IS NOT NULL", "Success has an offset.")),
        ),
        Column("acknowledgement_count", "bigint", "Acknowledgements of the message; 0 where none landed."),
        Column("acknowledged_at", "timestamp", "When the producer was told, of the first acknowledgement."),
        Column("produced_at", "timestamp", "Timestamp of the record, as the acknowledgement says it."),
        Column("client_id", "string", "The producer's client.id.", content="text"),
        Column("trace_id", "string", "Trace of the message; many messages may share it.", content="text"),
        Column("error", "string", "Exception, or error, that the producer was told.", content="message"),
        Column("error_class", "string", "Its class."),
        Column(
            "transaction_state",
            "string",
            "State of its transaction, as in silver.transactions; null outside of transactions or of what landed.",
            (one_of(*STATES),),
        ),
        Column("producer_id", "bigint", "Producer id of the transaction."),
        Column("producer_epoch", "int", "Producer epoch of the transaction."),
        Column(
            "in_log",
            "boolean",
            "True where a landed segment has the record, false where one proves it absent; null where none tells, also"
            " where a batch at the offset has lost some records.",
        ),
        Column(
            "dead_lettered_count",
            "bigint",
            "Dead-letter records of the message, those rolled back left out. Those that did not land count where the"
            " headers of later ones tell them (silver.inferred_dead_letters).",
        ),
        Column("dead_lettered_again_count", "bigint", "Of these, those that repeat one of the same group."),
        Column("first_dead_lettered_at", "timestamp", "When it was first dead-lettered."),
        Column("dead_letters", LETTERS, "Its dead-letter records in order; times counts those of the same group."),
        Column("root_topic", "string", "Topic of the message behind it, itself if it is not a DLQ's; null in a loop."),
        Column("root_partition", "int", "Partition of the message behind it."),
        Column("root_offset", "bigint", "Offset of the message behind it."),
        Column("hop_count", "int", "DLQ topics between that message and this one; 0: none, null: a loop."),
    ),
    grain=("cluster", "topic", "partition", "offset", "acknowledgement_id"),
)
