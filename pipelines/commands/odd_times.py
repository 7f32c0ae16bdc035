"""Dead letters without a time, and those that are stamped ahead of now -> how they count.

An incident counts a record without a time at the moment when it was read: a later moment than that of the dead letter.
If all that landed had landed by now, what is stamped later was stamped by a clock that is ahead, and counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from expectations.owners import GROUP, OWNER, key_of
from pipelines.run.newest import EVER
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

LANDED, RECORDS, SUMMARY = "bronze.dlq_records", "silver.dlq_records", "gold.dlq_summary"
ENDS = ("first_at", "last_at")
COUNT = "sum(record_count) AS record_count"
MOST_WITHOUT = timedelta(weeks=8)
"""The longest time without dead letters within what is known: a record of 1970 tells nothing of the time after it."""
When = Literal["past", "untimed", "ahead"]

_READ = "SELECT min(first_accepted_at) AS first, max(last_accepted_at) AS last FROM rows WHERE hour IS NULL"
_RECORDS = (
    f"SELECT DISTINCT original_topic, {GROUP}, {OWNER}, _ingested_at FROM rows "
    "WHERE routed_at IS NULL AND dlq_timestamp IS NULL"
)


class Untimed:
    """Knows when the records of the settings' cluster were read that have no time."""

    def __init__(self, warehouse: Warehouse) -> None:
        """Read it; nothing is read of a warehouse whose summary knows no such record."""
        self._read: dict[tuple[Any, ...], set[datetime]] = defaultdict(set)
        equal: dict[str, str | int] = {"cluster": warehouse.cluster}
        (span,) = jvmless.query(warehouse, SUMMARY, _READ, equal) if warehouse.exists(SUMMARY) else ({"last": None},)
        if span["last"] is None or not warehouse.exists(RECORDS):
            return
        within = jvmless.Span("_ingested_at", span["last"], span["first"])
        for row in jvmless.query(warehouse, RECORDS, _RECORDS, equal, within):
            self._read[_whose(row)].add(row["_ingested_at"])

    def ends(self, incident: Mapping[str, Any]) -> frozenset[str]:
        """Return the columns of an incident, of first_at and last_at, that say when a record was read."""
        read = self._read.get(_whose(incident), ())
        return frozenset(name for name in ENDS if incident[name] in read)


def _whose(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["original_topic"], key_of(row)


def all_landed(warehouse: Warehouse, now: datetime) -> bool:
    """Tell whether all that landed had landed by ``now``."""
    landed_at = jvmless.greatest(warehouse, LANDED, "_ingested_at", EVER)
    return landed_at is not None and landed_at <= now


def letters(
    warehouse: Warehouse, columns: str, now: datetime, sums: str = COUNT
) -> Iterator[tuple[When, dict[str, Any]]]:
    """Yield how many dead letters have the same values in columns of gold.dlq_summary.

    All are those until now, those without a time and, if all had landed by now, those that are stamped ahead.
    """
    equal: dict[str, str | int] = {"cluster": warehouse.cluster}

    def counted(condition: str, span: jvmless.Span | None) -> list[dict[str, Any]]:
        text = f"SELECT {columns}, {sums} FROM rows WHERE {condition} GROUP BY {columns}"
        return jvmless.query(warehouse, SUMMARY, text, equal, span)

    if warehouse.exists(SUMMARY):
        yield from (("past", row) for row in counted("true", jvmless.Span("hour", now)))
        yield from (("untimed", row) for row in counted("hour IS NULL", None))
        if all_landed(warehouse, now):
            after = jvmless.Span("hour", EVER, now + datetime.resolution)
            yield from (("ahead", row) for row in counted("true", after))


_FIRST_HOUR = f"""
    SELECT max(hour) AS first_hour
    FROM (
      SELECT hour, lag(hour) OVER (ORDER BY hour) AS hour_before FROM (SELECT DISTINCT hour FROM rows) AS hours
    ) AS told
    WHERE hour_before IS NULL OR hour_before < hour - INTERVAL '{MOST_WITHOUT.days}' DAY
"""


def first_hour(warehouse: Warehouse, now: datetime) -> datetime | None:
    """Return the hour from which on dead letters are known until now; of a time before it 0 would be a guess."""
    if not warehouse.exists(SUMMARY):
        return None
    equal: dict[str, str | int] = {"cluster": warehouse.cluster}
    (row,) = jvmless.query(warehouse, SUMMARY, _FIRST_HOUR, equal, jvmless.Span("hour", now))
    first: datetime | None = row["first_hour"]
    return first
