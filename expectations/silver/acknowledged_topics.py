"""Contract of silver.acknowledged_topics: the topics of which an acknowledgement has landed."""

from expectations.contract import Column, Contract

CONTRACT = Contract(
    table="silver.acknowledged_topics",
    description="One row per topic of which an acknowledgement has landed: of other topics nothing can lack one.",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting."),
        Column("topic", "string", "Topic, as the acknowledgements name it."),
    ),
    grain=("cluster", "topic"),
)
