"""Contract of gold.trust_findings: why the answers of other tables may not be the whole truth."""

from expectations.contract import Column, Contract
from expectations.incidents import CLUSTER
from expectations.rules import at_least, not_null, one_of

CONTRACT = Contract(
    table="gold.trust_findings",
    description="One row per finding about a topic, group, client or rule.",
    columns=(
        CLUSTER,
        Column(
            "kind",
            "string",
            "LOST_MESSAGES, ABSENT_MESSAGES, FAILED_DLQ_WRITES, MISSING_DLQ_OFFSETS, ABORTED_DLQ_WRITES, "
            "MISSING_HEADERS, UNKNOWN_WRITER, QUARANTINED, QUARANTINE_RISING, INFERRED_DISPOSITIONS, LATE_DATA, "
            "REFUSED_PUSHES, "
            "TOPOLOGY_<health> or a verdict on a guarantee.",
            (not_null(),),
        ),
        Column("topic", "string", "Topic that it is about; null where it is about none."),
        Column("name", "string", "Group, client or rule that it is about; null where it is about none."),
        Column("severity", "string", "critical, high, medium or low.", (one_of("critical", "high", "medium", "low"),)),
        Column("since", "timestamp", "When it was first seen; an hour's beginning for counts by hour."),
        Column("last_at", "timestamp", "When it was last seen."),
        Column("amount", "bigint", "How many messages, records, offsets or pushes.", (at_least(1),)),
        Column("evidence", "string", "The finding in words.", (not_null(),)),
        Column("remedy", "string", "The command that tells more.", (not_null(),)),
    ),
    grain=("cluster", "kind", "topic", "name"),
)
