"""silver.dead_letters: each dead-letter record once, and whether it counts."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from pipelines.columns.slices import name
from pipelines.settings import Settings
from tests.testing.builders import rows, run
from tests.testing.deliveries import at, store

TABLE = "silver.dead_letters"
DLQ = {"cluster": "default", "dlq_topic": "dlq.orders", "dlq_partition": 0}


def letter(offset: int, **more: Any) -> dict[str, Any]:
    source = {"original_topic": "orders", "original_partition": 0, "original_offset": offset}
    known = {"_bronze_id": f"{offset}", "_content_hash": offset, "routed_at": at(), "header_profile": "kip-1317"}
    return {**DLQ, "dlq_offset": offset, **source, **known, **more}


def test_what_counts(spark: SparkSession, settings: Settings) -> None:
    store(settings, "silver.dlq_records", *(letter(offset, owner="workers") for offset in range(4)))
    store(settings, "silver.dlq_records", letter(4, control_marker_suspected=True))
    refused = {"violations": ["routed_at.not_null"]}
    store(settings, "quarantine.dlq_records", letter(5, **refused), letter(0, **refused), letter(-1, **refused))
    store(settings, "held.dlq_records", letter(6, violations=["disposition.one_of"]), letter(0))
    marker = {"original_topic": "orders", "original_partition": 0, "is_control_marker": True}
    places = {"slice": name("dlq.orders", 0, 1), "source_slice": name("orders", 0, 1), "_bronze_id": "1"}
    store(settings, "silver.dlq_control_markers", {**DLQ, "dlq_offset": 1, "original_offset": 1, **marker, **places})
    for first, state in ((2, "ABORTED"), (3, "COMMITTED")):
        log = {"cluster": "default", "topic": "dlq.orders", "partition": 0, "producer_id": first, "state": state}
        span = {"first_offset": first, "last_offset": first, "ranges": [{"first_offset": first, "last_offset": first}]}
        store(settings, "silver.transactions", {**log, **span, "slices": [name("dlq.orders", 0, first)]})

    assert run(spark, settings, TABLE, feed="delivery")[TABLE].status == "passed"

    found = {row["dlq_offset"]: row for row in rows(spark, settings, TABLE)}
    assert len(found) == len(rows(spark, settings, TABLE)) == 7  # a refused copy of a record gives no row beside it
    assert {offset for offset, row in found.items() if row["is_counted"]} == {0, 3, 4}
    assert {offset for offset, row in found.items() if not row["is_accepted"]} == {5, 6}
    assert {offset for offset, row in found.items() if row["is_held"]} == {6}
    assert {offset for offset, row in found.items() if row["is_control_marker"]} == {1}
    assert {offset for offset, row in found.items() if row["control_marker_suspected"]} == {4}
    assert {offset for offset, row in found.items() if row["lacks_mandatory_headers"]} == {5}
    assert [found[offset]["write_state"] for offset in (0, 2, 3)] == [None, "ABORTED", "COMMITTED"]
    assert (found[0]["slice"], found[0]["source_slice"]) == (name("dlq.orders", 0, 0), name("orders", 0, 0))
