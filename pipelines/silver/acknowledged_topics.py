"""silver.acknowledgements -> silver.acknowledged_topics: the topics that have acknowledgements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from expectations.silver.acknowledged_topics import CONTRACT
from pipelines.columns.cached import cached
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def refresh(warehouse: Warehouse, news: DataFrame | None) -> int:
    """Add the topics of new acknowledgements; return how many were added."""
    if news is None:
        return 0
    named = news.where("_change_type <> 'delete'").select("cluster", "topic").distinct()
    existing_rows = warehouse.existing_rows(CONTRACT.table)
    if existing_rows is not None:
        named = named.join(existing_rows, on=["cluster", "topic"], how="left_anti")
    with cached(named.coalesce(1)) as found:
        if not found.count():  # reads all new rows, as the check of the change feed requires
            return 0
        return warehouse.insert(found, CONTRACT)
