"""bronze.streams_requests -> silver.group_deletions: a row for each group of a request to delete groups."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from expectations.silver.group_deletions import CONTRACT
from pipelines.columns.exchanges import error_name, items, row
from pipelines.settings import Settings
from pipelines.sources import request_log

REQUEST = "groupsNames: array<string>"
RESPONSE = "results: array<struct<groupId: string, errorCode: int, errorMessage: string>>"


def transform(bronze: DataFrame, settings: Settings) -> DataFrame:
    """Return, in the contract's columns, one candidate per group of a response, or one if the row names no group."""
    deletions = request_log.exchanges(bronze, settings, (request_log.DELETION,), REQUEST, RESPONSE)
    values = {
        "deleted_at": F.col("logged_at"),
        "group_id": F.col("_group.groupId"),
        "error_code": F.col("_group.errorCode"),
        "error_name": error_name(F.col("_group.errorCode")),
        "error_message": F.col("_group.errorMessage"),
    }
    return row(items(deletions, "response.results"), CONTRACT, values)
