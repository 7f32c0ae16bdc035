"""Contract of gold.dlq_misconfigurations: groups whose dead letters would be lost or useless, before it happens."""

from expectations.contract import Column, Contract
from expectations.incidents import CLUSTER
from expectations.rules import not_null, one_of

SEVERITIES = {
    "SHARE_VERSION": ("critical",),
    "WRONG_PREFIX": ("critical",),
    "DLQ_MISSING": ("critical", "high"),
    "DLQ_NOT_ENABLED": ("critical",),
    "COMPACTED_DLQ": ("critical", "high"),
    "OWN_INPUT": ("critical",),
    "TOO_FEW_IN_SYNC": ("high",),
    "NOT_LANDED_IN_TIME": ("high",),
    "SMALLER_MESSAGES": ("high",),
    "NOT_A_SHARE_GROUP": ("high",),
    "SHORTER_RETENTION": ("medium",),
    "COPY_OFF": ("medium",),
    "READS_A_DLQ": ("low",),
    "READS_UNCOMMITTED": ("low",),
}

CONTRACT = Contract(
    table="gold.dlq_misconfigurations",
    description="One row per group and kind of mistake in the settings that its dead letters depend on, as of now.",
    columns=(
        CLUSTER,
        Column("kind", "string", f"{', '.join(SEVERITIES)}.", (not_null(), one_of(*SEVERITIES))),
        Column("group_id", "string", "Group whose dead letters are concerned.", (not_null("A group has them."),)),
        Column("dlq_topic", "string", "DLQ topic that the group is set to.", (not_null("Without one, none is lost."),)),
        Column("source_topic", "string", "Topic that the group reads, where the mistake is about one; else null."),
        Column("severity", "string", "critical, high, medium or low.", (one_of("critical", "high", "medium", "low"),)),
        Column("since", "timestamp", "When the settings were first seen so.", (not_null(),)),
        Column("last_seen_at", "timestamp", "When they were last seen so.", (not_null(),)),
        Column("evidence", "string", "The mistake in words.", (not_null(),)),
        Column("remedy", "string", "The command that fixes it.", (not_null(),)),
    ),
    grain=("cluster", "kind", "group_id"),
)
