"""silver.message_attributes: clients and headers of acknowledged messages, dead-lettered ones apart."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pipelines.columns.slices import name
from pipelines.settings import Settings
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import run, warehouse_of
from tests.testing.deliveries import store
from tests.testing.requests import BEGIN

TABLE = "silver.message_attributes"
OURS = {"cluster": "default"}


def told(offset: int, client: str | None = "shop", source: str | None = None, **more: Any) -> dict[str, Any]:
    headers = [] if source is None else [{"key": "source", "value": source.encode()}]
    place = {"topic": "orders", "partition": 0, "offset": offset, "slice": name("orders", 0, offset)}
    sent = {"_bronze_id": str(offset), "client_id": client, "headers": headers, "outcome": "ACKNOWLEDGED"}
    return {**OURS, **place, **sent, **more}


def letter(offset: int, number: int, is_counted: bool = True) -> dict[str, Any]:
    place = {"original_topic": "orders", "original_partition": 0, "original_offset": offset}
    dlq = {"dlq_topic": "dlq.orders", "dlq_partition": 0, "dlq_offset": number, "slice": name("dlq.orders", 0, number)}
    of = {"consumer_group": "workers", "disposition": "CLIENT_REJECTED", "routed_at": BEGIN + timedelta(minutes=40)}
    return {**OURS, **place, **dlq, **of, "source_slice": name("orders", 0, offset), "is_counted": is_counted}


def found(spark: SparkSession, settings: Settings) -> list[tuple[Any, ...]]:
    assert run(spark, settings, TABLE, feed="delivery")[TABLE].status == "passed"
    rows = (
        (
            row["is_dead_lettered"],
            row["consumer_group"] or "",
            row["half_hour"],
            row["message_count"],
            row["named_count"],
            row["headed_count"],
            [(values["kind"], values["name"], -values["negative"]) for values in row["attributes"]],
        )
        for row in jvmless.rows(Warehouse(settings), TABLE, OURS)
    )
    return sorted(rows, key=repr)


def test_dead_lettered_messages_are_counted_apart(spark: SparkSession, empty_warehouse: Path, tmp_path: Path) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    store(
        settings,
        "silver.acknowledgements",
        *(told(offset, source="web") for offset in range(4)),
        told(4, "other", "pos"),
        told(5, None),
        told(6, outcome="FAILED"),
        told(7, None, "web"),
    )
    store(settings, "silver.dead_letters", letter(0, 0), letter(4, 1), letter(1, 2, is_counted=False), letter(99, 3))
    dead = (True, "workers", BEGIN + timedelta(minutes=30))
    assert found(spark, settings) == [
        (False, "", None, 4, 3, 4, [("header", "source", 4), ("client", "shop", 3)]),
        (*dead, 2, 2, 2, [("client", "other", 1), ("client", "shop", 1), *[("header", "source", 1)] * 2]),
    ]
    store(settings, "silver.dead_letters", letter(1, 4), letter(0, 5))
    assert found(spark, settings) == [
        (False, "", None, 3, 2, 3, [("header", "source", 3), ("client", "shop", 2)]),
        (
            *dead,
            3,
            3,
            3,
            [("client", "shop", 2), ("header", "source", 2), ("client", "other", 1), ("header", "source", 1)],
        ),
    ]


def test_messages_whose_dead_letters_tell_no_time_did_not_go_through(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    store(settings, "silver.acknowledgements", *(told(offset) for offset in range(3)))
    store(settings, "silver.dead_letters", *({**letter(offset, offset), "routed_at": None} for offset in range(2)))
    store(settings, "silver.dead_letters", letter(1, 2))
    dead = (True, "workers")
    assert [row[:4] for row in found(spark, settings)] == [
        (False, "", None, 1),
        (*dead, None, 2),
        (*dead, BEGIN + timedelta(minutes=30), 1),
    ]
