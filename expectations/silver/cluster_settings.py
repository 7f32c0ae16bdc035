"""Contract of silver.cluster_settings: what a cluster said about its topics, groups, brokers and itself, and when."""

from expectations.contract import Column, Contract
from expectations.json_lines import EVIDENCE, READABLE
from expectations.provenance import origin
from expectations.rules import GREATEST_MILLIS, between, is_true, not_null, one_of

KINDS = ("cluster", "broker", "topic", "group")
STATES = ("present", "missing", "unknown")
SETTINGS = "array<struct<name: string, value: string, source: string>>"

CONTRACT = Contract(
    table="silver.cluster_settings",
    description="One row per statement on a topic, a group, a broker or the cluster: its settings at that moment.",
    columns=(
        *origin("bronze.cluster_settings"),
        Column(
            "kind",
            "string",
            "cluster, broker, topic or group.",
            (not_null("It says what it is about.").where(READABLE), one_of(*KINDS)),
        ),
        Column(
            "name",
            "string",
            "Name of the topic, id of the group or node of the broker; empty for the cluster.",
            (
                not_null("It is named.").where(READABLE),
                is_true("named", "name <> '' OR kind = 'cluster'", "Only the cluster has no name.").failing(
                    "came with an empty name"
                ),
            ),
        ),
        Column(
            "state",
            "string",
            "present, missing, or unknown where Afterlog has no right to see it.",
            (not_null("It is there or not.").where(READABLE), one_of(*STATES)),
        ),
        Column(
            "observed_at",
            "timestamp",
            "When it was so.",
            (
                not_null("A statement has a moment.").where(READABLE),
                between(0, GREATEST_MILLIS, "A time in epoch milliseconds.").of("observed_at_millis"),
            ),
        ),
        Column(
            "settings",
            SETTINGS,
            "Settings under Kafka's names, and facts that a describe tells (partitions, replicas, in_sync_replicas,"
            " topic_id, group_type, sources, share.version, cluster_id, bootstrap_servers), with the source of the"
            " value that Kafka names. A null value is unknown: a right is lacking, or brokers are too old.",
            (
                not_null("A statement has settings.").where(READABLE),
                is_true(
                    "each_named",
                    "NOT exists(settings, one -> one.name IS NULL OR one.name = '')"
                    " AND size(array_distinct(transform(settings, one -> one.name))) = size(settings)",
                    "Each setting has a name of its own.",
                ).failing("came with a setting without a name, or with two of one name"),
            ),
        ),
        Column("_content_hash", "bigint", "Hash of state and settings: tells a duplicate from a conflict."),
        Column("observed_at_millis", "bigint", "The moment as the line says it.", evidence=True),
        *EVIDENCE,
    ),
    grain=("cluster", "kind", "name", "observed_at"),
    content="_content_hash",
)
