"""Files of changes -> bronze.changes: each line as it came, once, with the reason why it cannot be read."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pyspark.sql import SparkSession

from tests.testing.builders import land, rows, run, warehouse_of

GOOD = '{"time": "2026-11-21T12:34:00Z", "what": "1.14"}'


def test_each_line_lands_once_with_its_bytes_or_its_error(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    land(settings, {"a.jsonl": [GOOD, "deployed 1.14", '{"time":', GOOD]}, "changes")
    done = run(spark, settings, "bronze.changes", feed="delivery")["bronze.changes"]
    assert (done.read, done.accepted, done.duplicates) == (4, 3, 1)
    landed = {
        bytes(row["line"]).decode(): (row["_bronze_id"], row["error"])
        for row in rows(spark, settings, "bronze.changes")
    }
    assert landed == {
        GOOD: (hashlib.sha256(GOOD.encode()).hexdigest(), None),
        "deployed 1.14": (hashlib.sha256(b"deployed 1.14").hexdigest(), "the line is not a JSON object"),
        '{"time":': (hashlib.sha256(b'{"time":').hexdigest(), "the line is not valid JSON"),
    }
