"""Contract of gold.reconciliation: counts of sent and dead-lettered messages, and what does not add up."""

from expectations.contract import Column, Contract
from expectations.gold.message_counts import COUNTS, counts
from expectations.rules import is_true, not_null

CONTRACT = Contract(
    table="gold.reconciliation",
    description="One row per hour, topic and consumer group; messages that were sent stand in rows of no group.",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting.", (not_null(),)),
        Column(
            "hour",
            "timestamp",
            "Hour (UTC), its beginning; null where nothing tells the time.",
            (is_true("whole_hour", "hour = date_trunc('HOUR', hour)", "An hour begins at minute 0."),),
        ),
        Column("topic", "string", "Topic; null for failed DLQ writes whose records the log does not name."),
        Column("consumer_group", "string", "Group; null where the row is of none."),
        *COUNTS,
        *counts(
            unacknowledged="Messages that a group dead-lettered and no acknowledgement knows, DLQs' own left out; null"
            " where no acknowledgement of the topic has ever landed, so that nothing can tell.",
            control_marker="Dead-letter records that the source's log proves to be a transaction's marker, no message.",
            suspected_marker="Dead-letter records that look like one where the log has not landed: they are counted.",
            dlq_gap="Offsets of the DLQ topic that did not land, between others that did.",
            dlq_gap_marker="Of these, markers of transactions.",
            dlq_gap_aborted="Of these, records of aborted transactions.",
            dlq_gap_compacted="Of these, removed by compaction.",
        ),
        Column(
            "dlq_gap_unexplained_count",
            "bigint",
            "Of these, those that nothing explains.",
            (is_true("within_gaps", "dlq_gap_unexplained_count BETWEEN 0 AND dlq_gap_count", "No more than all."),),
        ),
        *counts(
            dlq_write_failure="DLQ writes that a broker gave up, of which no consumer hears.",
            dlq_write_failure_offset="Offsets in these writes, where the log names them.",
            dlq_write_failure_unattributed="Writes of which the log does not name the records.",
            aborted_dlq_write="Finding: records of the DLQ topic that readers saw, of aborted transactions.",
            committed_without_headers="Finding: records of committed transactions without the headers of KIP-1317.",
        ),
    ),
    grain=("cluster", "hour", "topic", "consumer_group"),
)
