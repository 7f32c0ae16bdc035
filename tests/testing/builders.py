"""Builders of landed lines in the capture form, and runs over them."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pipelines.catalog import stages, stages_of_type
from pipelines.commands.generated_letters import REJECTED, SHARE, headers_of
from pipelines.run import contracts, runner
from pipelines.settings import Settings, load
from pipelines.stage import Land, Stage
from pipelines.stores import lock
from pipelines.warehouse import jvmless
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse

Headers = Iterable[tuple[str, bytes | None]]

HOUR = 3_600_000
AT = 1_795_226_400_000  # 2026-11-21T02:00:00Z


def kip_1191(
    topic: str = "orders",
    partition: int | str = 0,
    offset: int | str = 7,
    group: str = "orders-workers",
    count: int | str = 1,
    message: str = "Offset rejected by client.",
) -> list[tuple[str, bytes | None]]:
    """The six headers that a 4.4 broker writes, in its order."""
    facts = {"original_topic": topic, "original_partition": partition, "original_offset": offset}
    facts |= {"consumer_group": group, "delivery_count": count, "error_message": message}
    return headers_of(SHARE, REJECTED, facts)


BROKEN = kip_1191()[1:]
"""A share group's headers without the topic: they break a contract, whatever else a topic has."""


def kip_1317(**changes: bytes | str | None) -> list[tuple[str, bytes | None]]:
    """The draft's six headers; a keyword (underscores for dots) replaces a value, None removes the header."""
    values: dict[str, bytes | str | None] = {
        "disposition": "CLIENT_REJECTED",
        "original.topic": "orders",
        "original.partition": "0",
        "original.offset": "7",
        "original.consumer.group": "orders-workers",
        "timestamp": "2026-11-21T02:30:00Z",
    }
    values |= {name.replace("_", "."): value for name, value in changes.items()}
    return [
        (f"_dlq.errors.{name}", value.encode() if isinstance(value, str) else value)
        for name, value in values.items()
        if value is not None
    ]


def line(
    offset: int,
    *,
    topic: str = "dlq.orders",
    partition: int = 0,
    timestamp: int | None = AT,
    timestamp_type: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: Headers | None = None,
) -> str:
    """One record in the capture form, by default with a broker's headers and the same offset in the source topic."""
    headers = kip_1191(offset=offset) if headers is None else headers
    record: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp,
        "timestampType": timestamp_type,
        "key": text(key),
        "value": text(value),
        "headers": [{"key": name, "value": text(content)} for name, content in headers],
    }
    return json.dumps(record, separators=(",", ":"))


def text(content: bytes | None) -> str | None:
    """Base64, or null."""
    return None if content is None else base64.b64encode(content).decode()


def land(settings: Settings, files: Mapping[str, Iterable[str]], feed: str = "dlq") -> Path:
    """Write files of lines into a feed's landing directory, renamed into place."""
    directory = settings.landing_of(feed)
    for name, lines in files.items():
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = target.with_name(f".{target.name}")
        scratch.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        scratch.rename(target)
    return directory


def warehouse_of(empty: Path, place: Path, **values: Any) -> Settings:
    """Return settings with a copy of an empty warehouse, whose tables exist, and a landing directory beside it."""
    shutil.copytree(empty, place / "warehouse")
    return load(warehouse=str(place / "warehouse"), landing=str(place / "landing"), **values)


def run(spark: SparkSession, settings: Settings, *only: str, feed: str | None = "dlq") -> dict[str, StageRun]:
    """Run a feed's stages, or only those of some tables, once; return the result of each table's last batch."""
    chosen = [stage for stage in stages(feed) if not only or stage.table in only]
    assert {*only} <= {stage.table for stage in chosen}
    with lock.writer(settings, "test"):
        return {ran.table: ran for ran in runner.run(Warehouse(settings, spark), chosen)}


def landed_lines(spark: SparkSession, settings: Settings, table: str, *lines: str) -> tuple[StageRun, dict[str, Any]]:
    """Land lines in a file and run their bronze table; return its run, and its rows by their lines."""
    (stage,) = (stage for stage in stages_of_type(Land) if stage.table == table)
    land(settings, {"a.jsonl": lines}, stage.directory)
    done = run(spark, settings, table, feed=stage.feed)[table]
    return done, {bytes(row["line"]).decode(): row for row in rows(spark, settings, table)}


def needed_by(*tables: str, within: str | None = None) -> tuple[Stage, ...]:
    """Return the stages that some tables are made by, of one feed or of all, in the order data flows."""
    inputs = {stage.table: stage.inputs for stage in stages()}
    wanted: set[str] = set()
    look_at = [*tables]
    while look_at:
        if (table := look_at.pop()) not in wanted and table in inputs:
            wanted.add(table)
            look_at += inputs[table]
    return tuple(stage for stage in stages(within) if stage.table in wanted)


def run_needed(spark: SparkSession, settings: Settings, *tables: str, within: str | None = None) -> dict[str, StageRun]:
    """Run the stages that some tables are made by, of one feed or of all, once."""
    return run(spark, settings, *(stage.table for stage in needed_by(*tables, within=within)), feed=within)


CHAIN = ("bronze.dlq_records", "silver.dlq_records", "gold.dlq_counts", "gold.dlq_summary")


def run_chain(spark: SparkSession, settings: Settings, *only: str) -> dict[str, StageRun]:
    """Run one chain from landing to gold, or some of its tables, where the other tables would only cost time."""
    return run(spark, settings, *(only or CHAIN))


def rows(spark: SparkSession, settings: Settings, table: str) -> list[dict[str, Any]]:
    """All rows of a table, sorted, without the columns that differ from run to run; times are UTC without a zone.

    Tables of a local warehouse are read without Spark, which saves half a second.
    """
    warehouse = Warehouse(settings, spark)
    if warehouse.opens_tables:
        batches = warehouse.opened_table(table).scan()
        found = [unzoned(row) for batch in batches for row in batch.to_struct_array().to_pylist()]
    else:
        found = [row.asDict(recursive=True) for row in warehouse.read(table).collect()]
    return sorted(map(without_the_run, found), key=repr)


def unzoned(value: Any) -> Any:
    """Return a value in which times have no zone, as Spark gives them to Python."""
    if isinstance(value, dict):
        return {name: unzoned(part) for name, part in value.items()}
    if isinstance(value, list):
        return [unzoned(part) for part in value]
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


OF_THE_RUN = ("_ingested_at", "_run_id", "first_accepted_at", "last_accepted_at")


def without_the_run(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in OF_THE_RUN}


IDENTITY = ("incident_id", "anchor_at", "merged_into", "predecessor_id")


def tables(settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """All rows of all tables except those of quality, to compare two warehouses; read without Spark to save seconds.

    Ids of incidents, rows of merged incidents and findings about late data are left out: they depend on what landed
    first.
    """
    return {
        contract.table: sorted(
            (
                {name: value for name, value in without_the_run(row).items() if name not in IDENTITY}
                for row in jvmless.rows(Warehouse(settings), contract.table, {"cluster": settings.cluster})
                if (row.get("anchor_at") is None or row["record_count"]) and row.get("kind") != "LATE_DATA"
            ),
            key=repr,
        )
        for contract in contracts.contracts()
        if not contract.table.startswith("quality.")
    }
