"""Contract of gold.replay_discards: dead letters that a rule or a person gave up; nothing is deleted."""

from expectations.contract import Column, Contract
from expectations.replays import CLUSTER, LETTER, SOURCE
from expectations.rules import not_null

CONTRACT = Contract(
    table="gold.replay_discards",
    description="One row per dead letter that is not to be replayed, with who decided it, when and why.",
    columns=(
        CLUSTER,
        *LETTER,
        *SOURCE,
        Column("discarded_at", "timestamp", "When.", (not_null(),)),
        Column("discarded_by", "string", "Account that ran the command."),
        Column("rule", "string", "Name of the remediation rule that decided; null: a person did."),
        Column("note", "string", "What the person wrote; null without.", content="text"),
    ),
    grain=("cluster", "dlq_topic", "dlq_topic_id", "dlq_partition", "dlq_offset"),
)
