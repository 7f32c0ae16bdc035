"""Every table, in the order data flows: the whole pipeline on one screen."""

from datetime import timedelta

from pipelines.stage import Refresh, Stage

BY_GROUP = Refresh("group_id", "group_id")

CATALOG = (
    Stage("bronze.dlq_records", feed="dlq", kind="land", directory="dlq"),
    Stage("silver.dlq_records", feed="dlq", kind="split", inputs=("bronze.dlq_records",)),
    Stage(
        "gold.dlq_summary",
        feed="dlq",
        kind="summarise",
        inputs=("silver.dlq_records",),
        refresh_by=Refresh("hour", "date_trunc('HOUR', routed_at)", spans=("routed_at", timedelta(hours=1))),
    ),
    Stage("bronze.streams_requests", feed="topology", kind="land", directory="streams-requests", numbered=True),
    Stage("silver.topology_pushes", feed="topology", kind="split", inputs=("bronze.streams_requests",)),
    Stage("silver.topology_statuses", feed="topology", kind="split", inputs=("bronze.streams_requests",)),
    Stage("silver.group_deletions", feed="topology", kind="split", inputs=("bronze.streams_requests",)),
    Stage("silver.group_heartbeats", feed="topology", kind="split", inputs=("bronze.streams_requests",)),
    Stage(
        "silver.topology_solicitations",
        feed="topology",
        kind="summarise",
        inputs=("silver.group_heartbeats", "silver.topology_pushes", "silver.group_deletions"),
        refresh_by=BY_GROUP,
    ),
    Stage(
        "silver.topology_nodes",
        feed="topology",
        kind="summarise",
        inputs=("silver.topology_pushes",),
        refresh_by=BY_GROUP,
    ),
    Stage(
        "gold.topology_revisions",
        feed="topology",
        kind="summarise",
        inputs=("silver.topology_pushes",),
        refresh_by=BY_GROUP,
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
        inputs=("silver.topology_pushes", "silver.topology_solicitations"),
        refresh_by=BY_GROUP,
    ),
)

LAYERS = ("bronze", "silver", "gold")
FEEDS = tuple(dict.fromkeys(stage.feed for stage in CATALOG))


def stages(feed: str | None = None, only: str | None = None, layer: str | None = None) -> tuple[Stage, ...]:
    """Return the stages of a feed, of a layer, or the one that fills a table (default all), in the order data flows."""
    return tuple(
        stage
        for stage in CATALOG
        if feed in (None, stage.feed) and only in (None, stage.table) and layer in (None, stage.layer)
    )


def stage_of(table: str) -> Stage:
    """Return the stage that fills a table; raises KeyError where none does."""
    return {stage.table: stage for stage in CATALOG}[table]
