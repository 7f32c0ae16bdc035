"""Contract of gold.dlq_summary: dead-lettered records per hour, topics, owner and disposition."""

from expectations.contract import Contract
from expectations.gold.dlq_counts import CLUSTER, GROUPS

CONTRACT = Contract(
    table="gold.dlq_summary",
    description="One row per hour, DLQ topic, original topic, owner and disposition; proved markers left out.",
    columns=(CLUSTER, *GROUPS),
    grain=("cluster", "hour", "dlq_topic", "original_topic", "consumer_group", "disposition", "owner"),
)
