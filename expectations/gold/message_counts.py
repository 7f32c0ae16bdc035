"""Contract of gold.message_counts: what gold.reconciliation adds up of gold.message_ledger."""

from expectations.contract import Column, Contract
from expectations.rules import at_least, is_true, not_null


def counts(**comments: str) -> tuple[Column, ...]:
    """Return a column of counts for each name, with its comment."""
    return tuple(Column(f"{name}_count", "bigint", comment) for name, comment in comments.items())


COUNTS = (
    *counts(
        acknowledged="Messages whose producer was told success and an offset.",
        failed="Messages whose producer was told an error that rules out that they were written.",
        unknown="Messages of which nothing tells whether they were written: an error left it open, or no offset came.",
        aborted="Acknowledged messages whose transaction was aborted.",
        open="Acknowledged messages whose transaction has not ended in what landed.",
        lost="Acknowledged messages that are absent from a log which is known not to be compacted.",
        absent="Messages of outcome ABSENT: absent from a log that may be compacted, for all that is known.",
        dead_lettered="Dead-letter records.",
        client_rejected="Of these, by disposition CLIENT_REJECTED.",
        max_delivery_attempts_reached="Of these, by disposition MAX_DELIVERY_ATTEMPTS_REACHED.",
        circuit_breaker_archived="Of these, by disposition CIRCUIT_BREAKER_ARCHIVED.",
        coordinator_initiated="Of these, by disposition COORDINATOR_INITIATED.",
    ),
    Column(
        "no_disposition_count",
        "bigint",
        "Of these, those whose disposition nothing tells.",
        (
            is_true(
                "adds_up",
                "client_rejected_count + max_delivery_attempts_reached_count + circuit_breaker_archived_count"
                " + coordinator_initiated_count + no_disposition_count = dead_lettered_count",
                "Each record has one disposition, or none.",
            ),
        ),
    ),
    *counts(
        dead_lettered_again="Dead-letter records that repeat one of the same message and group.",
        dead_lettered_aborted="Dead-letter records of messages whose transaction was aborted.",
    ),
)

CONTRACT = Contract(
    table="gold.message_counts",
    description="One row per slice of the ledger, hour, topic and group; few rows stand for thousands of messages.",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting.", (not_null(),)),
        Column("slice", "string", "Part of gold.message_ledger that is counted.", (not_null(),)),
        Column("hour", "timestamp", "Hour (UTC) of gold.reconciliation; null where nothing tells the time."),
        Column("topic", "string", "Topic of the messages.", (not_null(),)),
        Column("consumer_group", "string", "Group that dead-lettered them; null for messages that were sent."),
        *COUNTS,
        Column(
            "unacknowledged_count",
            "bigint",
            "Messages that a group dead-lettered and no acknowledgement knows, DLQs' own left out.",
            (at_least(0),),
        ),
    ),
    grain=("cluster", "slice", "hour", "topic", "consumer_group"),
)
