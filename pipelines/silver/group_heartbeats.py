"""bronze.streams_requests -> silver.group_heartbeats: heartbeats with news, and the last of each steady sequence."""

from __future__ import annotations

from functools import reduce
from itertools import chain
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from expectations.silver.group_heartbeats import CONTRACT
from pipelines.columns.exchanges import error_name, row
from pipelines.settings import Settings
from pipelines.sources import request_log

REQUEST = "groupId: string, memberId: string, memberEpoch: int, topology: struct<epoch: int>"
RESPONSE = (
    "throttleTimeMs: int, errorCode: int, errorMessage: string, topologyDescriptionRequired: boolean,"
    " status: array<struct<statusCode: int, statusDetail: string>>"
)
LOOKS_AT_OTHERS = True
STATUS_NAMES = {
    0: "STALE_TOPOLOGY",
    1: "MISSING_SOURCE_TOPICS",
    2: "INCORRECTLY_PARTITIONED_TOPICS",
    3: "MISSING_INTERNAL_TOPICS",
    4: "SHUTDOWN_APPLICATION",
    5: "ASSIGNMENT_DELAYED",
}


def transform(bronze: DataFrame, settings: Settings) -> DataFrame:
    """Return one candidate for each bronze row, in the contract's columns; values that cannot be typed are null.

    Members send heartbeats every few seconds. Of an unbroken sequence of a member's steady heartbeats, which have no
    news, only the last is kept and the others are skipped.
    """
    heartbeats = request_log.exchanges(bronze, settings, (request_log.HEARTBEAT,), REQUEST, RESPONSE)
    required = F.coalesce(F.col("response.topologyDescriptionRequired"), F.lit(False))
    names = ("logged_at", "request.groupId", "request.memberId", "connection", "correlation_id")
    steady = (
        ~F.col("_skipped")
        & reduce(and_, (F.col(name).isNotNull() for name in names))
        & (F.col("request.memberEpoch") > 0)
        & F.col("request.topology").isNull()
        & (F.col("response.errorCode") == 0)
        & ~required
    )
    flagged = heartbeats.withColumns({"_steady": F.coalesce(steady, F.lit(False)), "_statuses": _statuses()})
    flagged = _with_runs(flagged, settings.streams_requests.silent_after_seconds)
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
        "statuses": F.col("_statuses"),
        "status_details": F.array_compact(F.col("response.status.statusDetail")),
        "steady_since": F.when(F.col("_steady"), F.col("_since")),
        "throttle_time_ms": F.col("response.throttleTimeMs"),
    }
    return row(
        flagged.withColumn("_skipped", F.col("_skipped") | (F.col("_steady") & ~F.col("_is_last"))), CONTRACT, values
    )


def _statuses() -> Column:
    names = F.create_map(*chain.from_iterable((F.lit(number), F.lit(name)) for number, name in STATUS_NAMES.items()))
    codes = F.col("response.status.statusCode")
    named = F.transform(codes, lambda code: F.coalesce(F.try_element_at(names, code), code.cast("string")))
    return F.array_sort(F.array_distinct(F.array_compact(named)))


def _with_runs(heartbeats: DataFrame, most_seconds: float) -> DataFrame:
    """Add ``_since``, when a member's sequence of steady heartbeats began, and ``_is_last``, whether a row ends it."""
    alone = F.when(
        ~F.col("_steady"), F.concat_ws(":", "_source", "_bronze_id")
    )  # a row that is not steady has a window of its own
    of_member = Window.partitionBy(
        "cluster", "request.groupId", "request.memberId", "api_version", "_statuses", alone
    ).orderBy("logged_at", "connection", "correlation_id", "_source", "_bronze_id")

    def is_apart(earlier: Column, later: Column) -> Column:
        micros = F.unix_micros(later) - F.unix_micros(earlier)
        return F.coalesce(micros > F.lit(int(most_seconds * 1_000_000)), F.lit(True))

    at = F.col("logged_at")
    begins = is_apart(F.lag(at).over(of_member), at)
    so_far = of_member.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return heartbeats.withColumns({"_begins": begins, "_is_last": is_apart(at, F.lead(at).over(of_member))}).withColumn(
        "_since", F.max(F.when(F.col("_begins"), at)).over(so_far)
    )
