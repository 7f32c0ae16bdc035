"""bronze.streams_requests -> silver.topology_statuses: a row for each group of a response to a describe request."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from expectations.silver.topology_statuses import CONTRACT
from pipelines.columns import descriptions
from pipelines.columns.exchanges import error_name, items, row
from pipelines.columns.once import computed_once
from pipelines.settings import Settings
from pipelines.sources import request_log

REQUEST = "includeTopologyDescription: boolean"
RESPONSE = (
    "groups: array<struct<errorCode: int, errorMessage: string, groupId: string, groupState: string, groupEpoch: int,"
    " topology: struct<epoch: int>, members: array<struct<memberId: string>>, topologyDescription: string,"
    " topologyDescriptionStatus: int>>"
)
STATUS_NAMES = ("NOT_REQUESTED", "NOT_STORED", "ERROR", "AVAILABLE")


def transform(bronze: DataFrame, settings: Settings) -> DataFrame:
    """Return, in the contract's columns, one candidate per group of a response, or one if the row names no group."""
    describes = request_log.exchanges(bronze, settings, (request_log.DESCRIBE,), REQUEST, RESPONSE)
    described = descriptions.described(items(describes, "response.groups"), F.col("_group.topologyDescription"))
    status = F.when(F.col("_group").isNotNull(), F.coalesce(F.col("_group.topologyDescriptionStatus"), F.lit(0)))
    names = F.array(*(F.lit(name) for name in STATUS_NAMES))
    values = {
        "described_at": F.col("logged_at"),
        "group_id": F.col("_group.groupId"),
        "description_requested": F.coalesce(F.col("request.includeTopologyDescription"), F.lit(False)),
        "error_code": F.col("_group.errorCode"),
        "error_name": error_name(F.col("_group.errorCode")),
        "error_message": F.col("_group.errorMessage"),
        "group_state": F.nullif(F.col("_group.groupState"), F.lit("")),
        "group_epoch": F.col("_group.groupEpoch"),
        "topology_epoch": F.col("_group.topology.epoch"),
        "member_count": F.when(F.col("_group.members").isNotNull(), F.size("_group.members")),
        "status": status,
        "status_name": F.get(names, status),
        "description": F.col("_group.topologyDescription"),
        "topology_hash": computed_once(descriptions.topology_hash(F.col("_topology"))),
        "node_count": descriptions.node_count(F.col("_topology")),
        "defects": computed_once(descriptions.defects(F.col("_topology"))),
    }
    return row(described, CONTRACT, values)
