"""Contract of silver.dlq_settings: how the settings that dead letters depend on changed."""

from expectations.contract import Column, Contract
from expectations.incidents import CLUSTER
from expectations.rules import not_null, one_of
from expectations.silver.cluster_settings import KINDS

CONTRACT = Contract(
    table="silver.dlq_settings",
    description="One row per change of a setting of a topic, group, broker or cluster, the first value included.",
    columns=(
        CLUSTER,
        Column("kind", "string", "cluster, broker, topic or group.", (not_null(), one_of(*KINDS))),
        Column("name", "string", "Topic, group or node of the broker; empty for the cluster.", (not_null(),)),
        Column(
            "setting",
            "string",
            "Kafka's name of the setting, a fact as in silver.cluster_settings, or state: whether it is there.",
            (not_null(),),
        ),
        Column("since", "timestamp", "When the value was seen first.", (not_null(),)),
        Column("until", "timestamp", "When the next value was seen first; null for the present value."),
        Column("value", "string", "The value; null where it is unknown."),
        Column("source", "string", "Where Kafka has it from, such as DYNAMIC_TOPIC_CONFIG or DEFAULT_CONFIG."),
        Column("previous_value", "string", "The value before; null where there was none, or where it is unknown."),
    ),
    grain=("cluster", "kind", "name", "setting", "since"),
)
