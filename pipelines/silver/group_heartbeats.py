"""bronze.streams_requests -> silver.group_heartbeats: heartbeats that tell something; the steady ones are skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from expectations.silver.group_heartbeats import CONTRACT
from pipelines.exchanges import error_name, row
from pipelines.settings import Settings
from pipelines.sources import request_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REQUEST = "groupId: string, memberId: string, memberEpoch: int, topology: struct<epoch: int>"
RESPONSE = "errorCode: int, errorMessage: string, topologyDescriptionRequired: boolean"


def transform(bronze: DataFrame, settings: Settings) -> DataFrame:
    """Return one candidate for each bronze row, in the contract's columns; what cannot be typed is null."""
    heartbeats = request_log.exchanges(bronze, settings, (request_log.HEARTBEAT,), REQUEST, RESPONSE)
    required = F.coalesce(F.col("response.topologyDescriptionRequired"), F.lit(False))
    steady = (
        (F.col("request.memberEpoch") > 0)
        & F.col("request.topology").isNull()
        & (F.col("response.errorCode") == 0)
        & ~required
    )
    values = {
        "heartbeat_at": F.col("logged_at"),
        "group_id": F.col("request.groupId"),
        "member_id": F.col("request.memberId"),
        "member_epoch": F.col("request.memberEpoch"),
        "error_code": F.col("response.errorCode"),
        "error_name": error_name(F.col("response.errorCode")),
        "error_message": F.col("response.errorMessage"),
        "topology_epoch": F.col("request.topology.epoch"),
        "description_required": required,
    }
    told = heartbeats.withColumn("_skipped", F.col("_skipped") | F.coalesce(steady, F.lit(False)))
    return row(told, CONTRACT, values)
