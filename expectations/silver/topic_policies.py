"""Contract of silver.topic_policies: whether compaction can have removed offsets that are absent from a topic's log."""

from expectations.contract import Column, Contract

CONTRACT = Contract(
    table="silver.topic_policies",
    description="One row per topic in whose landed log offsets are absent: its cleanup.policy, as far as it is known.",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting."),
        Column("topic", "string", "Topic."),
        Column(
            "cleanup_policy",
            "string",
            "delete, compact, 'compact,delete' or empty; of all that is said, that which compacts. Null: unknown.",
        ),
        Column(
            "source",
            "string",
            "What says so: setting, cluster, or log, where a landed batch has lost records to compaction; null where"
            " nothing does.",
        ),
        Column(
            "is_compacted",
            "boolean",
            "True where compaction may remove records. Null: unknown, as [[segments.cleanup_policy]] does not name the"
            " topic and no cluster of [kafka] tells, for which Afterlog needs DescribeConfigs on the topic.",
        ),
        Column(
            "setting_policy",
            "string",
            "What the setting [[segments.cleanup_policy]] says, or else topic.properties beside landed segments; null"
            " where nothing does.",
        ),
        Column("cluster_policy", "string", "What the cluster said last; null where it never did."),
        Column("observed_at", "timestamp", "When the cluster first said that."),
    ),
    grain=("cluster", "topic"),
)
