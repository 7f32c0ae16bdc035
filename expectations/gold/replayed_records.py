"""Contract of gold.replayed_records: what stands on its target, as the target itself told."""

from expectations.contract import Column, Contract
from expectations.replays import ATTEMPT, CLUSTER, FIRST, GROUP, LETTER, PLAN_ID, SOURCE, TARGET
from expectations.rules import not_null

CONTRACT = Contract(
    table="gold.replayed_records",
    description="One row per record that a plan replayed: it stands committed at its place on the target.",
    columns=(
        CLUSTER,
        PLAN_ID,
        *LETTER,
        *SOURCE,
        GROUP,
        ATTEMPT,
        *TARGET,
        Column("replayed_at", "timestamp", "Kafka's timestamp of the record on the target.", (not_null(),)),
        *FIRST,
    ),
    grain=("cluster", "plan_id", "dlq_topic", "dlq_topic_id", "dlq_partition", "dlq_offset"),
)
