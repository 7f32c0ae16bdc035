"""A record of each shipped profile, as its framework writes it, gives the row that it means."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from pipelines.settings import Dlq
from tests.tables.silver.test_dlq_records import candidates
from tests.testing.writers import RECORDS, headers_of

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[str, Row]:
    """The rows of all records, from one Spark job."""
    given = [
        {
            "_bronze_id": name,
            "topic": record["topic"],
            "headers": headers_of(record),
            "value": (record["value"] or "").encode(),
        }
        for name, record in RECORDS.items()
    ]
    return candidates(spark, given, Dlq())


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_a_record_gives_the_row_that_it_means(name: str, rows: dict[str, Row]) -> None:
    row, expected = rows[name], dict(RECORDS[name]["expected"])
    hops = [tuple(hop) for hop in RECORDS[name].get("earlier_hops", [])]
    assert row["violations"] == []
    assert row["header_profile"] == name.removesuffix(".twice")
    assert [tuple(hop) for hop in row["earlier_hops"]] == hops
    assert not row["reserved_header_collision"]
    assert [header["key"] for header in row["user_headers"]] == expected.pop("user_headers")
    for field in ("original_timestamp", "routed_at"):
        if field in expected:
            expected[field] = f"{datetime.fromisoformat(expected[field]):%Y-%m-%d %H:%M:%S.%f}".rstrip("0").rstrip(".")
    assert {field: row[field] for field in expected} == expected
