"""gold.dlq_incidents: what a new version of the algorithm does to incidents that it did not make."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.incidents.episodes import VERSION
from pipelines.settings import Settings
from pipelines.silver import dlq_records
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import kip_1191, land, line, run_needed, without_the_run

TABLE = "gold.dlq_incidents"
DAY = int(datetime(2026, 11, 18, tzinfo=UTC).timestamp() * 1000)
MINUTE = 60_000


def test_a_new_version_of_the_algorithm_regroups_no_old_incident(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def letter(offset: int, minutes: int) -> str:
        headers = kip_1191("orders", 0, offset)
        return line(offset, timestamp=DAY + minutes * MINUTE, headers=headers)

    def incidents() -> dict[int, list[dict[str, Any]]]:
        rows = map(without_the_run, jvmless.rows(Warehouse(settings), TABLE, {"cluster": "default"}))
        by_version: dict[int, list[dict[str, Any]]] = {}
        for row in sorted(rows, key=lambda row: str(row["first_at"])):
            by_version.setdefault(row["algorithm_version"], []).append(row)
        return by_version

    land(settings, {"1.jsonl": [letter(offset, offset) for offset in range(20)]})
    run_needed(spark, settings, TABLE, within="dlq")
    (old,) = incidents().pop(VERSION)
    monkeypatch.setattr(dlq_records, "VERSION", VERSION + 1)
    dlq_records._columns.cache_clear()
    try:  # the same error in the same minutes and slice
        land(settings, {"2.jsonl": [letter(offset, offset - 100) for offset in range(100, 107)]})
        run_needed(spark, settings, TABLE, within="dlq")
    finally:
        dlq_records._columns.cache_clear()
    found = incidents()
    assert [found[VERSION], [len(found[VERSION + 1]), found[VERSION + 1][0]["record_count"]]] == [[old], [1, 7]]
    assert old["record_count"] == 20
    assert found[VERSION + 1][0]["fingerprint"] != old["fingerprint"]
