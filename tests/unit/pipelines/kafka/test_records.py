"""The size of records and lines, by which small batches are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pipelines.kafka import records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORD = "key binary, value binary, headers array<struct<key: string, value: binary>>"


@pytest.mark.parametrize(
    ("schema", "row", "size"),
    [
        (RECORD, (b"key", b"value", [("name", b"12345"), ("é", None)]), 3 + 5 + 4 + 5 + 2),
        (RECORD, (None, b"", []), 0),
        (RECORD, (None, None, None), 0),
        ("line binary, damage string", (b'{"a": 1}', None), 8),
        ("line binary, damage string", (None, "the record has no value"), 0),
    ],
)
def test_the_size_of_a_record(schema: str, row: tuple[Any, ...], size: int, spark: SparkSession) -> None:
    rows = spark.createDataFrame([row], schema)
    assert rows.select(records.size_of(rows)).first() == (size,)
