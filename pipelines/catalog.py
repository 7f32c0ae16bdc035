"""Every table, in the order data flows: the whole pipeline on one screen."""

from datetime import timedelta

from pipelines.stage import Refresh, Stage

CATALOG = (
    Stage("bronze.dlq_records", feed="dlq", kind="land"),
    Stage("silver.dlq_records", feed="dlq", kind="split", inputs=("bronze.dlq_records",)),
    Stage(
        "gold.dlq_summary",
        feed="dlq",
        kind="summarise",
        inputs=("silver.dlq_records",),
        refresh_by=Refresh("hour", "date_trunc('HOUR', routed_at)", spans=("routed_at", timedelta(hours=1))),
    ),
)

FEEDS = tuple(dict.fromkeys(stage.feed for stage in CATALOG))


def stages(feed: str | None = None, only: str | None = None) -> tuple[Stage, ...]:
    """Return the stages of a feed (default all), or the one that fills a table, in the order data flows."""
    return tuple(
        stage for stage in CATALOG if (feed is None or stage.feed == feed) and (only is None or stage.table == only)
    )


def stage_of(table: str) -> Stage:
    """Return the stage that fills a table; raises KeyError where none does."""
    return {stage.table: stage for stage in CATALOG}[table]
