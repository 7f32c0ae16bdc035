"""bronze.streams_requests -> silver.topology_pushes: pushes of topology descriptions, with hash and defects."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from expectations.silver.topology_pushes import CONTRACT
from pipelines.columns import descriptions
from pipelines.columns.exchanges import error_name, row
from pipelines.columns.once import computed_once
from pipelines.settings import Settings
from pipelines.sources import request_log

REQUEST = "groupId: string, memberId: string, topologyEpoch: int, topologyDescription: string"
RESPONSE = "throttleTimeMs: int, errorCode: int, errorMessage: string"


def transform(bronze: DataFrame, settings: Settings) -> DataFrame:
    """Return one candidate for each bronze row, in the contract's columns; values that cannot be typed are null."""
    pushes = request_log.exchanges(bronze, settings, (request_log.PUSH,), REQUEST, RESPONSE)
    described = descriptions.described(pushes, F.col("request.topologyDescription"))
    values = {
        "pushed_at": F.col("logged_at"),
        "group_id": F.col("request.groupId"),
        "member_id": F.col("request.memberId"),
        "topology_epoch": F.col("request.topologyEpoch"),
        "error_code": F.col("response.errorCode"),
        "error_name": error_name(F.col("response.errorCode")),
        "error_message": F.col("response.errorMessage"),
        "description": F.col("request.topologyDescription"),
        "topology_hash": computed_once(descriptions.topology_hash(F.col("_topology"))),
        "node_count": descriptions.node_count(F.col("_topology")),
        "defects": computed_once(descriptions.defects(F.col("_topology"))),
        "throttle_time_ms": F.col("response.throttleTimeMs"),
    }
    return row(described, CONTRACT, values)
