"""Statements about producers -> bronze.producers: each line as it came, once."""

from __future__ import annotations

import hashlib

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from tests.testing.builders import landed_lines
from tests.testing.deliveries import producer


def test_a_statement_that_is_repeated_lands_once(spark: SparkSession, settings: Settings) -> None:
    lines = (producer("checkout-1"), producer("checkout-2"), "enable.idempotence=true")
    done, landed = landed_lines(spark, settings, "bronze.producers", *lines, lines[0])
    assert (done.read, done.accepted, done.duplicates) == (4, 3, 1)
    assert {line: row["_bronze_id"] for line, row in landed.items()} == {
        line: hashlib.sha256(line.encode()).hexdigest() for line in lines
    }
    assert [landed[line]["error"] for line in lines] == [None, None, "the line is not a JSON object"]
