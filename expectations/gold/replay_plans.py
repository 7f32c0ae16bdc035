"""Contract of gold.replay_plans: what was planned to be replayed, by whom, where to, under which rules."""

from expectations.contract import Column, Contract
from expectations.replays import CLUSTER, PLAN_ID
from expectations.rules import at_least, not_null

CONTRACT = Contract(
    table="gold.replay_plans",
    description="One row per plan of a replay; a plan never changes, and its records are in gold.replays.",
    columns=(
        CLUSTER,
        PLAN_ID,
        Column("plan_hash", "string", "SHA-256 over the options, targets and records, bytes included.", (not_null(),)),
        Column("created_at", "timestamp", "When it was made.", (not_null(),)),
        Column("created_by", "string", "Account that made it."),
        Column(
            "choice",
            "string",
            "What chose the records: an incident, places, a condition, or the rules.",
            content="text",
        ),
        Column("target", "string", "original, or the topic that all records go to.", (not_null(),)),
        Column("kafka_cluster_id", "string", "Kafka's id of the cluster with the targets."),
        Column(
            "targets",
            "array<struct<topic: string, topic_id: string, ends: array<bigint>>>",
            "Topics that the records go to, their ids, and the end offset of each partition before the plan was made.",
        ),
        Column("again", "boolean", "True: records that were replayed before may be replayed again."),
        Column(
            "max_replays", "int", "A record that died after more replays than this is not eligible.", (at_least(0),)
        ),
        Column("rules_hash", "string", "SHA-256 of the remediation rules; another one makes the plan expire."),
        Column("ignores_rules", "boolean", "True: rules that hold or discard records did not count."),
        Column("transform", "string", "Name of the file that repaired the records; null: they go as they were."),
        Column("transform_hash", "string", "SHA-256 of that file."),
        Column("record_count", "bigint", "Chosen records.", (at_least(0),)),
        Column("eligible_count", "bigint", "Of these, those that a run replays.", (at_least(0),)),
        Column("order_kept", "string", "Which order the replay keeps, and where it cannot."),
        Column("allowed", "array<string>", "Doubts in spite of which records are replayed.", later=True),
    ),
    grain=("cluster", "plan_id"),
)
