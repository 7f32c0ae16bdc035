"""gold.dlq_summary, silver.dlq_records -> which times of incidents are no record's: its records have none.

An incident counts a record without a time at the moment when it was read: a later moment than that of the dead letter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from expectations.owners import GROUP, OWNER, key_of
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

SUMMARY, RECORDS = "gold.dlq_summary", "silver.dlq_records"
ENDS = ("first_at", "last_at")

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
