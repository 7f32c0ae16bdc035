"""Every table, in the order data flows: the whole pipeline on one screen."""

from typing import TypeVar

from pipelines.stage import Derive, Land, LookUp, Split, Stage, Summarise

# fmt: off
CATALOG: tuple[Stage, ...] = (
    Land("bronze.dlq_records", feed="dlq", directory="dlq"),
    Split("silver.dlq_records", feed="dlq", inputs=("bronze.dlq_records",)),
    Land("bronze.streams_requests", feed="topology", directory="streams-requests", lines_are_events=True,
         is_rotated=True),
    Split("silver.topology_pushes", feed="topology", inputs=("bronze.streams_requests",)),
    Split("silver.topology_statuses", feed="topology", inputs=("bronze.streams_requests",)),
    Split("silver.group_deletions", feed="topology", inputs=("bronze.streams_requests",)),
    Split("silver.group_heartbeats", feed="topology", inputs=("bronze.streams_requests",)),
    Summarise("silver.topology_solicitations", feed="topology", inputs=(
        "silver.group_heartbeats", "silver.topology_pushes", "silver.topology_statuses", "silver.group_deletions")),
    Summarise("silver.topology_nodes", feed="topology", inputs=("silver.topology_pushes", "silver.topology_statuses")),
    Summarise("gold.topology_revisions", feed="topology", inputs=(
        "silver.topology_pushes", "silver.topology_statuses")),
    Summarise("gold.topology_current", feed="topology", inputs=(
        "gold.topology_revisions", "silver.topology_pushes", "silver.topology_statuses", "silver.group_deletions",
        "silver.group_heartbeats")),
    Summarise("gold.topology_changes", feed="topology", inputs=("gold.topology_revisions", "silver.topology_nodes")),
    Summarise("gold.topology_edges", feed="topology", inputs=("silver.topology_nodes", "gold.topology_revisions")),
    Summarise("gold.push_health", feed="topology", inputs=(
        "silver.topology_pushes", "silver.topology_solicitations", "silver.topology_statuses", "silver.group_deletions",
        "silver.group_heartbeats")),
    Land("bronze.cluster_settings", feed="collect", directory="cluster-settings"),
    Split("silver.cluster_settings", feed="collect", inputs=("bronze.cluster_settings",)),
    Summarise("silver.dlq_settings", feed="collect", inputs=("silver.cluster_settings",)),
    Summarise("gold.dlq_misconfigurations", feed="collect", inputs=("silver.dlq_settings", "silver.cluster_settings")),
    Land("bronze.acknowledgements", feed="delivery", directory="acknowledgements", lines_are_events=True),
    Land("bronze.producers", feed="delivery", directory="producers"),
    Land("bronze.changes", feed="delivery", directory="changes"),
    Land("bronze.broker_events", feed="delivery", directory="broker-logs", lines_are_events=True,
         is_rotated=True),
    Land("bronze.record_batches", feed="delivery", directory="segments", reader="segments"),
    Split("silver.acknowledgements", feed="delivery", inputs=("bronze.acknowledgements",)),
    Split("silver.record_batches", feed="delivery", inputs=("bronze.record_batches",)),
    Split("silver.log_files", feed="delivery", inputs=("bronze.record_batches",)),
    Split("silver.producers", feed="delivery", inputs=("bronze.producers",)),
    Split("silver.changes", feed="delivery", inputs=("bronze.changes",)),
    Split("silver.dlq_write_failures", feed="delivery", inputs=("bronze.broker_events",)),
    Split("silver.broker_starts", feed="delivery", inputs=("bronze.broker_events",)),
    Summarise("silver.log_copies", feed="delivery", inputs=(
        "silver.log_files", "silver.record_batches", "held.record_batches")),
    Summarise("silver.log_batches", feed="delivery", inputs=("silver.record_batches", "silver.log_copies")),
    Summarise("silver.log_ranges", feed="delivery", inputs=("silver.log_batches", "silver.log_copies")),
    Summarise("silver.log_gaps", feed="delivery", inputs=("silver.log_ranges",)),
    Summarise("silver.transactions", feed="delivery", inputs=("silver.log_batches", "silver.log_gaps")),
    LookUp("silver.topic_policies", feed="delivery", inputs=("silver.log_ranges",)),
    LookUp("silver.acknowledged_topics", feed="delivery", inputs=("silver.acknowledgements",)),
    Summarise("silver.dlq_control_markers", feed="delivery", inputs=(
        "silver.dlq_records", "silver.log_batches", "silver.log_ranges")),
    Summarise("gold.dlq_counts", feed="dlq", also=("delivery",), inputs=(
        "silver.dlq_records", "silver.dlq_control_markers")),
    Summarise("gold.dlq_summary", feed="dlq", also=("delivery",), inputs=("gold.dlq_counts",)),
    Summarise("silver.dlq_errors", feed="dlq", also=("delivery",), inputs=(
        "silver.dlq_records", "silver.dlq_control_markers")),
    Derive("silver.dlq_episodes", feed="dlq", also=("delivery",), inputs=("silver.dlq_errors",)),
    Summarise("silver.dlq_refusals", feed="dlq", inputs=("quarantine.dlq_records", "held.dlq_records")),
    Summarise("silver.dead_letters", feed="delivery", inputs=(
        "silver.dlq_records", "quarantine.dlq_records", "held.dlq_records", "silver.transactions",
        "silver.dlq_control_markers")),
    Summarise("silver.message_attributes", feed="delivery", inputs=("silver.acknowledgements", "silver.dead_letters")),
    Summarise("silver.record_ranges", feed="delivery", inputs=(
        "silver.dead_letters", "silver.acknowledgements", "silver.log_batches", "silver.log_ranges")),
    Derive("gold.dlq_incidents", feed="dlq", also=("delivery",), inputs=(
        "silver.dlq_episodes", "silver.message_attributes", "silver.record_ranges")),
    Summarise("silver.inferred_dead_letters", feed="delivery", inputs=("silver.dlq_records",)),
    Summarise("silver.dlq_hops", feed="delivery", inputs=("silver.dead_letters", "silver.inferred_dead_letters")),
    Summarise("silver.dlq_roots", feed="delivery", inputs=("silver.dlq_hops",)),
    Summarise("silver.dlq_ranges", feed="delivery", inputs=("silver.dead_letters",)),
    Summarise("silver.dlq_gaps", feed="delivery", inputs=(
        "silver.dlq_ranges", "silver.log_batches", "silver.transactions", "silver.log_ranges")),
    Summarise("gold.message_ledger", feed="delivery", inputs=(
        "silver.acknowledgements", "silver.dead_letters", "silver.inferred_dead_letters", "silver.dlq_roots",
        "silver.transactions", "silver.log_ranges", "silver.topic_policies")),
    Summarise("gold.message_counts", feed="delivery", inputs=("gold.message_ledger",)),
    Summarise("gold.reconciliation", feed="delivery", inputs=(
        "gold.message_counts", "silver.dead_letters", "silver.dlq_gaps", "silver.dlq_write_failures",
        "silver.acknowledged_topics")),
    Summarise("gold.delivery_guarantees", feed="delivery", inputs=("silver.producers", "silver.log_batches")),
    Summarise("gold.incident_suspects", feed="dlq", also=("topology", "delivery"), inputs=(
        "gold.dlq_incidents", "gold.topology_revisions", "gold.topology_edges", "silver.producers",
        "silver.dlq_write_failures", "silver.broker_starts", "silver.dlq_refusals", "silver.changes")),
    Derive("gold.blast_radius", feed="dlq", also=("topology", "delivery"), inputs=(
        "gold.dlq_incidents", "gold.topology_revisions", "silver.topology_nodes", "gold.topology_current")),
    Summarise("gold.trust_findings", feed="dlq", also=("topology", "delivery"), inputs=(
        "gold.reconciliation", "gold.delivery_guarantees", "gold.topology_current", "gold.push_health",
        "gold.dlq_incidents", "gold.dlq_summary", "silver.dlq_refusals")),
)
# fmt: on

SCHEMA = 1
"""The version of the tables' schema. It grows when an earlier version of Afterlog would read or write them wrongly.

Each table's properties say with which one it agrees. docs/decisions/0090-number-the-schema-of-a-warehouse.md
"""
LAYERS = ("bronze", "silver", "gold")
FEEDS = tuple(dict.fromkeys(stage.feed for stage in CATALOG))
POOL = "afterlog_writer"
"""The Airflow pool of one slot that DAGs of feeds and `maintain` share: one writer at a time on a warehouse."""
Type = TypeVar("Type", bound=Stage)


def stages(feed: str | None = None, only: str | None = None, layer: str | None = None) -> tuple[Stage, ...]:
    """Return the stages of a feed, of a layer or of one table (default: all), in the order data flows."""
    return tuple(
        stage
        for stage in CATALOG
        if feed in (None, stage.feed, *stage.also) and only in (None, stage.table) and layer in (None, stage.layer)
    )


def readers(table: str) -> tuple[Stage, ...]:
    """Return the stages that read a table."""
    return tuple(stage for stage in CATALOG if table in stage.inputs)


def stages_of_type(wanted: type[Type]) -> tuple[Type, ...]:
    """Return the stages of a type, in the order data flows.

    >>> stages_of_type(Land)[0].table
    'bronze.dlq_records'
    """
    return tuple(stage for stage in CATALOG if isinstance(stage, wanted))
