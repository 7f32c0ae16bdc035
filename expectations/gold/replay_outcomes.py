"""Contract of gold.replay_outcomes: what became of each replayed record."""

from expectations.contract import Column, Contract
from expectations.replays import ATTEMPT, CLUSTER, GROUP, LETTER, PLAN_ID, TARGET
from expectations.rules import not_null, one_of

CONTRACT = Contract(
    table="gold.replay_outcomes",
    description="One row per replayed record: delivered, died again, or unknown as yet.",
    columns=(
        CLUSTER,
        PLAN_ID,
        *LETTER,
        GROUP,
        ATTEMPT,
        *TARGET,
        Column(
            "outcome",
            "string",
            "DIED_AGAIN: a dead letter names its place on the target. DELIVERED: the group committed an offset behind "
            "it. UNKNOWN: neither is known.",
            (not_null(), one_of("DELIVERED", "DIED_AGAIN", "UNKNOWN")),
        ),
        Column("known_by", "string", "What tells the outcome: dead_letter or committed_offset; null: nothing does."),
        Column("died_in_topic", "string", "Dead-letter topic of the first dead letter after the replay."),
        Column("died_in_partition", "int", "Its partition."),
        Column("died_in_offset", "bigint", "Its offset."),
        Column("died_at", "timestamp", "When it was dead-lettered."),
        Column("looked_at", "timestamp", "When the outcome was last found to be another one.", (not_null(),)),
    ),
    grain=("cluster", "plan_id", "dlq_topic", "dlq_topic_id", "dlq_partition", "dlq_offset"),
)
