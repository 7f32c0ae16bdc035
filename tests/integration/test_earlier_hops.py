"""A message that was dead-lettered twice, of which only the last DLQ landed: ledger, roots and trace know both hops."""

from __future__ import annotations

import base64
import json
import struct
from typing import TYPE_CHECKING, Any

from pipelines.commands import trace
from pipelines.settings import Settings
from pipelines.warehouse.tables import Warehouse
from tests.testing import engines
from tests.testing.builders import run_needed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LEDGER = "gold.message_ledger"


def spring(topic: str, partition: int, offset: int, group: str) -> list[dict[str, str]]:
    values = {
        "kafka_dlt-original-topic": topic.encode(),
        "kafka_dlt-original-partition": struct.pack(">i", partition),
        "kafka_dlt-original-offset": struct.pack(">q", offset),
        "kafka_dlt-original-consumer-group": group.encode(),
    }
    return [{"key": name, "value": base64.b64encode(value).decode()} for name, value in values.items()]


@engines.compared
def test_a_message_is_found_by_each_hop_that_headers_tell(spark: SparkSession, settings: Settings) -> None:
    headers = [*spring("payments", 1, 9001, "ledger"), *spring("payments.DLT", 1, 44, "parker")]
    _land(settings, "last", topic="payments.DLT.DLT", offset=3, headers=headers)
    run_needed(spark, settings, LEDGER)
    warehouse = Warehouse(settings, spark)
    assert _ledger(warehouse) == {
        ("payments", 9001): ("DEAD_LETTERED", 1, "payments", 0),
        ("payments.DLT", 44): ("DEAD_LETTERED", 1, "payments", 1),
    }
    first, last = trace.answer(warehouse, "payments:1:9001").result.splitlines()[-2:]
    assert first.endswith("to payments.DLT:1:44 by ledger, as headers of payments.DLT.DLT:1:3 say")
    assert last.endswith("to payments.DLT.DLT:1:3 from payments.DLT:1:44 by parker")
    first, last = trace.answer(warehouse, "payments.DLT:1:44").result.splitlines()[-2:]
    assert "as the dead letter of payments:1:9001 by ledger" in first
    assert last.endswith("to payments.DLT.DLT:1:3 by parker")

    # The first dead letter lands later: it is the same dead letter, and now its own row tells it.
    _land(settings, "first", topic="payments.DLT", offset=44, headers=headers[:4])
    run_needed(spark, settings, LEDGER)
    assert _ledger(warehouse) == {
        ("payments", 9001): ("DEAD_LETTERED", 1, "payments", 0),
        ("payments.DLT", 44): ("DEAD_LETTERED", 1, "payments", 1),
    }
    assert "headers of" not in trace.answer(warehouse, "payments:1:9001").result


def _ledger(warehouse: Warehouse) -> dict[tuple[str, int], tuple[Any, ...]]:
    return {
        (row["topic"], row["offset"]): (row["outcome"], row["dead_lettered_count"], row["root_topic"], row["hop_count"])
        for row in warehouse.read(LEDGER).collect()
    }


def _land(settings: Settings, name: str, **record: Any) -> None:
    given = {"partition": 1, "timestamp": 1795100009000, "timestampType": 0, "key": None, "value": "e30="}
    directory = settings.landing_of("dlq")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.jsonl").write_text(json.dumps(given | record) + "\n")
