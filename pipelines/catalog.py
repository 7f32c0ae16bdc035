"""Every table, in the order data flows: the whole pipeline on one screen."""

from datetime import timedelta

from pipelines.columns import slices
from pipelines.stage import Own, Refresh, Stage

HOUR = "date_trunc('HOUR', {})"
BY_GROUP = Refresh("group_id", "group_id")
BY_GROUP_SEEN = Refresh(  # a describe without a description shows none
    "group_id",
    {
        "silver.topology_pushes": "group_id",
        "silver.topology_statuses": "IF(topology_hash IS NULL, array(), array(group_id))",
    },
)

CATALOG = (
    Stage("bronze.dlq_records", feed="dlq", kind="land", directory="dlq"),
    Stage("silver.dlq_records", feed="dlq", kind="split", inputs=("bronze.dlq_records",)),
    Stage("bronze.streams_requests", feed="topology", kind="land", directory="streams-requests", numbered=True),
    Stage("silver.topology_pushes", feed="topology", kind="split", inputs=("bronze.streams_requests",)),
    Stage("silver.topology_statuses", feed="topology", kind="split", inputs=("bronze.streams_requests",)),
    Stage("silver.group_deletions", feed="topology", kind="split", inputs=("bronze.streams_requests",)),
    Stage("silver.group_heartbeats", feed="topology", kind="split", inputs=("bronze.streams_requests",)),
    Stage(
        "silver.topology_solicitations",
        feed="topology",
        kind="summarise",
        inputs=(
            "silver.group_heartbeats",
            "silver.topology_pushes",
            "silver.topology_statuses",
            "silver.group_deletions",
        ),
        refresh_by=Refresh(
            "group_id",
            {
                "silver.group_heartbeats": "IF(steady_since IS NULL, array(group_id), array())",
                "silver.topology_pushes": "group_id",
                "silver.topology_statuses": "group_id",
                "silver.group_deletions": "group_id",
            },
        ),
    ),
    Stage(
        "silver.topology_nodes",
        feed="topology",
        kind="summarise",
        inputs=("silver.topology_pushes", "silver.topology_statuses"),
        refresh_by=BY_GROUP_SEEN,
    ),
    Stage(
        "gold.topology_revisions",
        feed="topology",
        kind="summarise",
        inputs=("silver.topology_pushes", "silver.topology_statuses"),
        refresh_by=BY_GROUP_SEEN,
    ),
    Stage(
        "gold.topology_current",
        feed="topology",
        kind="summarise",
        inputs=(
            "gold.topology_revisions",
            "silver.topology_pushes",
            "silver.topology_statuses",
            "silver.group_deletions",
            "silver.group_heartbeats",
        ),
        refresh_by=BY_GROUP,
    ),
    Stage(
        "gold.topology_changes",
        feed="topology",
        kind="summarise",
        inputs=("gold.topology_revisions", "silver.topology_nodes"),
        refresh_by=BY_GROUP,
    ),
    Stage(
        "gold.topology_edges",
        feed="topology",
        kind="summarise",
        inputs=("silver.topology_nodes", "gold.topology_revisions"),
        refresh_by=BY_GROUP,
    ),
    Stage(
        "gold.push_health",
        feed="topology",
        kind="summarise",
        inputs=(
            "silver.topology_pushes",
            "silver.topology_solicitations",
            "silver.topology_statuses",
            "silver.group_deletions",
            "silver.group_heartbeats",
        ),
        refresh_by=BY_GROUP,
    ),
    Stage("bronze.acknowledgements", feed="delivery", kind="land", directory="acknowledgements", numbered=True),
    Stage("bronze.producers", feed="delivery", kind="land", directory="producers"),
    Stage("bronze.broker_logs", feed="delivery", kind="land", directory="broker-logs", numbered=True),
    Stage("bronze.record_batches", feed="delivery", kind="land", directory="segments", reader="segments"),
    Stage("silver.acknowledgements", feed="delivery", kind="split", inputs=("bronze.acknowledgements",)),
    Stage("silver.record_batches", feed="delivery", kind="split", inputs=("bronze.record_batches",)),
    Stage("silver.producers", feed="delivery", kind="split", inputs=("bronze.producers",)),
    Stage("silver.dlq_write_failures", feed="delivery", kind="split", inputs=("bronze.broker_logs",)),
    Stage(
        "silver.log_copies",
        feed="delivery",
        kind="summarise",
        inputs=("silver.record_batches",),
        refresh_by=Refresh("topic", "topic"),
    ),
    Stage(
        "silver.log_batches",
        feed="delivery",
        kind="summarise",
        inputs=("silver.record_batches", "silver.log_copies"),
        refresh_by=Refresh(
            "segment",
            {"silver.record_batches": "_source", "silver.log_copies": "segment"},
        ),
    ),
    Stage(
        "silver.transactions",
        feed="delivery",
        kind="summarise",
        inputs=("silver.log_batches",),
        refresh_by=Refresh(
            "producer", "IF(is_transactional, array(concat(partition, ':', producer_id, ':', topic)), array())"
        ),
    ),
    Stage(
        "silver.log_ranges",
        feed="delivery",
        kind="summarise",
        inputs=("silver.log_batches", "silver.log_copies"),
        refresh_by=Refresh("segment", "segment"),
    ),
    Stage("silver.topic_policies", feed="delivery", kind="ask", inputs=("silver.log_ranges",)),
    Stage("silver.acknowledged_topics", feed="delivery", kind="ask", inputs=("silver.acknowledgements",)),
    Stage(
        "silver.dlq_control_markers",
        feed="delivery",
        kind="summarise",
        inputs=("silver.dlq_records", "silver.log_batches", "silver.log_ranges"),
        refresh_by=Refresh(
            "source_slice",
            {
                "silver.dlq_records": slices.where_known("original_topic", "original_partition", "original_offset"),
                "silver.log_batches": "IF(is_control, "
                f"{slices.where_known('topic', 'partition', 'base_offset')}, array())",
                "silver.log_ranges": "slice",
            },
        ),
    ),
    Stage(
        "gold.dlq_summary",
        feed="dlq",
        also=("delivery",),
        kind="summarise",
        inputs=("silver.dlq_records", "silver.dlq_control_markers"),
        refresh_by=Refresh("hour", HOUR.format("routed_at"), spans=("routed_at", timedelta(hours=1))),
    ),
    Stage(
        "silver.dead_letters",
        feed="delivery",
        kind="summarise",
        inputs=(
            "silver.dlq_records",
            "quarantine.dlq_records",
            "held.dlq_records",
            "silver.transactions",
            "silver.dlq_control_markers",
        ),
        refresh_by=Refresh(
            "slice",
            {
                "silver.dlq_records": slices.expression("dlq_topic", "dlq_partition", "dlq_offset"),
                "quarantine.dlq_records": slices.where_known("dlq_topic", "dlq_partition", "dlq_offset"),
                "held.dlq_records": slices.where_known("dlq_topic", "dlq_partition", "dlq_offset"),
                "silver.transactions": "slices",
                "silver.dlq_control_markers": "slice",
            },
        ),
    ),
    Stage(
        "silver.dlq_roots",
        feed="delivery",
        kind="summarise",
        inputs=("silver.dead_letters",),
        refresh_by=Refresh("cluster", "cluster"),
    ),
    Stage(
        "silver.dlq_gaps",
        feed="delivery",
        kind="summarise",
        inputs=("silver.dead_letters", "silver.transactions", "silver.log_ranges"),
        refresh_by=Refresh(
            "dlq_log",
            {
                "silver.dead_letters": "concat(dlq_partition, ':', dlq_topic)",
                "silver.transactions": "concat(partition, ':', topic)",
                "silver.log_ranges": "concat(partition, ':', topic)",
            },
        ),
    ),
    Stage(
        "gold.message_ledger",
        feed="delivery",
        kind="summarise",
        inputs=(
            "silver.acknowledgements",
            "silver.dead_letters",
            "silver.dlq_roots",
            "silver.transactions",
            "silver.log_ranges",
            "silver.topic_policies",
        ),
        refresh_by=Refresh(
            "slice",
            {
                "silver.acknowledgements": "slice",
                "silver.dead_letters": "IF(counts AND source_slice IS NOT NULL, array(source_slice), array())",
                "silver.dlq_roots": "slice",
                "silver.transactions": "slices",
                "silver.log_ranges": "slice",
                "silver.topic_policies": Own("topic", "topic", where="NOT in_log"),
            },
        ),
    ),
    Stage(
        "gold.reconciliation",
        feed="delivery",
        kind="summarise",
        inputs=(
            "gold.message_ledger",
            "silver.dead_letters",
            "silver.dlq_gaps",
            "silver.dlq_write_failures",
            "silver.acknowledged_topics",
        ),
        refresh_by=Refresh(
            "hour",
            {
                "gold.message_ledger": "array_distinct(concat(IF(acknowledgement_count > 0, "
                f"array({HOUR.format('coalesce(acknowledged_at, produced_at)')}), array()), "
                f"transform(dead_letters, letter -> {HOUR.format('letter.routed_at')})))",
                "silver.dead_letters": HOUR.format("coalesce(routed_at, dlq_timestamp)"),
                "silver.dlq_gaps": HOUR.format("found_at"),
                "silver.dlq_write_failures": HOUR.format("failed_at"),
                "silver.acknowledged_topics": Own("topic", "topic", where="unacknowledged_count IS NULL"),
            },
        ),
    ),
    Stage(
        "gold.delivery_guarantees",
        feed="delivery",
        kind="summarise",
        inputs=("silver.producers", "silver.log_batches"),
        refresh_by=Refresh("topic", "topic"),
    ),
)

LAYERS = ("bronze", "silver", "gold")
FEEDS = tuple(dict.fromkeys(stage.feed for stage in CATALOG))


def stages(feed: str | None = None, only: str | None = None, layer: str | None = None) -> tuple[Stage, ...]:
    """Return the stages of a feed, of a layer, or the one that fills a table (default all), in the order data flows."""
    return tuple(
        stage
        for stage in CATALOG
        if feed in (None, stage.feed, *stage.also) and only in (None, stage.table) and layer in (None, stage.layer)
    )


def stage_of(table: str) -> Stage:
    """Return the stage that fills a table; raises KeyError where none does."""
    return {stage.table: stage for stage in CATALOG}[table]
