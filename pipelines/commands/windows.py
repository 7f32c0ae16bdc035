"""gold.dlq_summary, and silver.dlq_records at the edges -> dead letters by owner between two moments, not whole hours.

Hours within the window are added up from the summary. Of an hour that the window cuts, the records are counted, unless
the summary tells that none of them is on the other side of the cut.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from expectations.owners import owner_sql
from pipelines.commands import arguments, query
from pipelines.commands.incidents.reading import HOUR, RECORDS, SUMMARY
from pipelines.engines.duckdb import sessions
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

MARKERS = "silver.dlq_control_markers"

_ROWS = f"SELECT {owner_sql('rows')} AS name, hour, record_count, first_routed_at, last_routed_at FROM rows"
_HOURS = f"SELECT name, sum(record_count) AS record_count FROM ({_ROWS}) AS told GROUP BY name"
_CUT = f"""
    SELECT {owner_sql("records")} AS name, count(*) AS record_count
    FROM {RECORDS} AS records
    LEFT ANTI JOIN {MARKERS} AS markers
      ON markers.is_control_marker AND markers.cluster = records.cluster AND markers._bronze_id = records._bronze_id
    WHERE records.cluster = :cluster AND records.routed_at > :after AND records.routed_at <= :until
      AND records.routed_at >= :hour AND records.routed_at < :hour_end
    GROUP BY {owner_sql("records")}
"""


def between(warehouse: Warehouse, after: datetime, until: datetime) -> Counter[str | None]:
    """Return how many dead letters each owner had after a moment, until another one."""
    found: Counter[str | None] = Counter()
    if not warehouse.exists(SUMMARY):
        return found
    first, last = _hour(after), _hour(until)
    if last - first > HOUR:
        for row in _summed(warehouse, _HOURS, first + HOUR, last - HOUR):
            found[row["name"]] += row["record_count"]
    for hour in dict.fromkeys((first, last)):
        rows = [
            row
            for row in _summed(warehouse, _ROWS, hour, hour)
            if row["last_routed_at"] > after and row["first_routed_at"] <= until
        ]
        if any(row["first_routed_at"] <= after or row["last_routed_at"] > until for row in rows):
            rows = _counted(warehouse, after, until, hour)
        for row in rows:
            found[row["name"]] += row["record_count"]
    return found


def _summed(warehouse: Warehouse, text: str, begin: datetime, end: datetime) -> list[dict[str, Any]]:
    return jvmless.query(warehouse, SUMMARY, text, {"cluster": warehouse.cluster}, jvmless.Span("hour", end, begin))


def _counted(warehouse: Warehouse, after: datetime, until: datetime, hour: datetime) -> list[dict[str, Any]]:
    values: dict[str, arguments.Parameter] = {
        "cluster": warehouse.cluster,
        "after": after,
        "until": until,
        "hour": hour,
        "hour_end": hour + HOUR,
    }
    if warehouse.opens_tables:
        return sessions.answer(warehouse, _CUT, values, (RECORDS, MARKERS), {}).objects()
    return [row.asDict() for row in query.rows_of(warehouse, _CUT, values).collect()]


def _hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)
