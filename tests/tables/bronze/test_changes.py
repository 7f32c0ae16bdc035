"""Files of changes -> bronze.changes: each line as it came, once, with the reason why it cannot be read."""

from __future__ import annotations

import hashlib

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from tests.testing.builders import landed_lines

GOOD = '{"time": "2026-11-21T12:34:00Z", "what": "1.14"}'


def test_each_line_lands_once_with_its_bytes_or_its_error(spark: SparkSession, settings: Settings) -> None:
    done, landed = landed_lines(spark, settings, "bronze.changes", GOOD, "deployed 1.14", '{"time":', GOOD)
    assert (done.read, done.accepted, done.duplicates) == (4, 3, 1)
    assert {line: (row["_bronze_id"], row["error"]) for line, row in landed.items()} == {
        GOOD: (hashlib.sha256(GOOD.encode()).hexdigest(), None),
        "deployed 1.14": (hashlib.sha256(b"deployed 1.14").hexdigest(), "the line is not a JSON object"),
        '{"time":': (hashlib.sha256(b'{"time":').hexdigest(), "the line is not valid JSON"),
    }
