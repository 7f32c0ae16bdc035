"""Records that were erased: copies of them do not land again, and commands say so instead of their content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from expectations.quality import ERASED_RECORDS
from pipelines.warehouse import append, jvmless
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Coordinate = tuple[str | None, int | None, int | None]
"""DLQ topic, partition and offset."""
SHOWN = ".shown.json"
"""What a site notes of the state that it shows."""
DEAD_LETTERS = "bronze.dlq_records"


def add(warehouse: Warehouse, rows: Sequence[Mapping[str, Any]]) -> None:
    """Note rows of bronze that an erasure changes, those that it has not noted yet; the caller holds the lock."""
    if not rows:
        return
    (erasure_id,) = {row["erasure_id"] for row in rows}
    noted = {(row["cluster"], row["table"], row["bronze_id"]) for row in of_erasure(warehouse, erasure_id)}
    new = [row for row in rows if (row["cluster"], row["table"], row["bronze_id"]) not in noted]
    append.append(warehouse, ERASED_RECORDS, new)


def of_erasure(warehouse: Warehouse, erasure_id: str) -> list[dict[str, Any]]:
    """Return what an erasure has noted."""
    if not warehouse.exists(ERASED_RECORDS.table):
        return []
    return jvmless.rows(warehouse, ERASED_RECORDS.table, {"erasure_id": erasure_id})


def none_of(rows: DataFrame, warehouse: Warehouse, table: str) -> DataFrame:
    """Return the rows that are about to land in a table of bronze without copies of erased ones.

    A copy is the same line in whichever file. Of a dead letter it is the same record, too, which another file can have
    in another form: then the topic, its id if both know it, partition, offset and, if both know it, timestamp are
    equal.
    """
    from pyspark.sql import functions as F

    if not warehouse.exists(ERASED_RECORDS.table) or not warehouse.opens_tables:
        return rows
    if warehouse.was_never_written(ERASED_RECORDS.table):
        return rows
    noted = warehouse.read(ERASED_RECORDS.table).where(F.col("table") == table).alias("erased")
    given = rows.alias("given")
    of_cluster = F.col("given.cluster") == F.col("erased.cluster")
    is_copy = F.col("given._bronze_id") == F.col("erased.bronze_id")
    landed = given.join(F.broadcast(noted), of_cluster & is_copy, how="left_anti")
    if table != DEAD_LETTERS:
        return landed

    def equal_if_known(name: str) -> Any:
        given, of_erased = F.col(f"given.{name}"), F.col(f"erased.dlq_{name}")
        return given.isNull() | of_erased.isNull() | (given == of_erased)

    is_record = of_cluster
    for name in ("topic", "partition", "offset"):
        is_record = is_record & (F.col(f"given.{name}") == F.col(f"erased.dlq_{name}"))
    is_record = is_record & equal_if_known("topic_id") & equal_if_known("timestamp")
    return landed.alias("given").join(F.broadcast(noted), is_record, how="left_anti")


def by_coordinate(warehouse: Warehouse) -> dict[Coordinate, datetime]:
    """Return the dead letters of the settings' cluster that were erased, with the time, by coordinate."""
    table = ERASED_RECORDS.table
    if not warehouse.opens_tables or not warehouse.exists(table) or warehouse.was_never_written(table):
        return {}
    columns = ["dlq_topic", "dlq_partition", "dlq_offset", "erased_at", "is_whole"]
    rows = jvmless.rows(warehouse, table, {"cluster": warehouse.cluster}, columns)
    return {
        (row["dlq_topic"], row["dlq_partition"], row["dlq_offset"]): row["erased_at"] for row in rows if row["is_whole"]
    }
