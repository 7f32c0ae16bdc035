"""Small and large batches take different ways through a stage and give the same tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import ArrowInvalid  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from pipelines.catalog import stages_of_type
from pipelines.engines import choose
from pipelines.engines.duckdb import sessions
from pipelines.jvm import session
from pipelines.run.readmit import readmit, stage_with_quarantine
from pipelines.stage import Split
from pipelines.steps import few_split, held, split
from pipelines.stores import lock
from pipelines.warehouse import change_feed
from pipelines.warehouse.progress import Batch
from pipelines.warehouse.tables import Warehouse
from tests.testing import requests, ways
from tests.testing.builders import BROKEN, land, line, run, tables, warehouse_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyarrow import Table

    from pipelines.steps.few_split import FewSplit

SILVER = "silver.dlq_records"


def landings() -> list[dict[str, list[str]]]:
    bad = [line(offset, topic="dlq.bad", headers=BROKEN) for offset in range(30)]
    refused = line(900, headers=BROKEN)
    first = [*(line(offset) for offset in range(60)), refused, line(3), line(4, value=b"other"), "no JSON", *bad]
    second = [*(line(offset) for offset in range(50, 90)), refused, line(7, value=b"other"), bad[0]]
    return [{"a.jsonl": first}, {"b.jsonl": second}]


@pytest.mark.parametrize(("bound", "uncalled"), [("MOST_UNPACKED", "collected"), ("MOST_OF_CANDIDATES", "insert")])
def test_few_bytes_that_unpack_to_many_take_the_way_of_large_batches(
    bound: str,
    uncalled: str,
    spark: SparkSession,
    empty_warehouse: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    land(settings, {"a.jsonl": [line(offset, value=bytes(100_000)) for offset in range(20)]})
    with monkeypatch.context() as patched:
        patched.setattr(few_split, bound, 1 << 20)
        patched.setattr(few_split.FewSplit, uncalled, None)  # would be called for a small batch
        stage_run = run(spark, settings, "bronze.dlq_records", SILVER)[SILVER]
    assert (stage_run.read, stage_run.accepted) == (20, 20)


@pytest.mark.parametrize(("many", "times"), [(20, 1), (21, 0)])
def test_java_gives_memory_back_after_a_batch_of_many_rows(
    many: int, times: int, spark: SparkSession, empty_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    land(settings, {"a.jsonl": [line(offset) for offset in range(20)]})
    given: list[SparkSession] = []
    monkeypatch.setattr(choose, "SMALL", -1)
    monkeypatch.setattr(split, "MANY_ROWS", many)
    monkeypatch.setattr(session, "give_back", given.append)
    assert run(spark, settings, "bronze.dlq_records", SILVER)[SILVER].accepted == 20
    assert given == [spark] * times


def test_a_batch_of_many_commits_takes_the_way_of_large_batches(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    land(settings, {"a.jsonl": [line(1)]})
    run(spark, settings, "bronze.dlq_records")
    stage = next(stage for stage in stages_of_type(Split) if stage.table == SILVER)
    warehouse = Warehouse(settings)
    last = warehouse.state("bronze.dlq_records")[1]
    for start, batch in ((None, last), (0, last), (last - 1, 1)):
        for most in (batch, batch - 1):
            monkeypatch.setattr(change_feed, "MOST_COMMITS", most)
            files = held.files_of(warehouse, stage, Batch(start, last), ())
            assert (files is None) == (start is not None and most < batch)


def _no_session(patched: pytest.MonkeyPatch) -> None:
    def opened(directory: str) -> DuckDBPyConnection:
        raise duckdb.IOException("no session")

    patched.setattr(sessions, "session", opened)


def _not_taken(patched: pytest.MonkeyPatch) -> None:
    def taken(table: Table) -> Table:
        raise ArrowInvalid("a value")

    patched.setattr(few_split, "without_zones", taken)


def _dead_before(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Let the database end with a fatal error when a batch comes to a method."""

    def end(patched: pytest.MonkeyPatch) -> None:
        went_on = getattr(few_split.FewSplit, name)

        def ended(split: FewSplit, *given: Any) -> Any:
            split.connection.close()
            return went_on(split, *given)

        patched.setattr(few_split.FewSplit, name, ended)

    return end


FAULTS = {
    "no session": _no_session,
    "the rows are not taken": _not_taken,
    "a fatal error after the census": _dead_before("counted"),
    "a fatal error before the decisions": _dead_before("_decided"),
    "a fatal error before rows are written": _dead_before("quarantine"),
}
LEAST = ("no session", "the rows are not taken", "a fatal error before rows are written")


@pytest.mark.parametrize(
    "fault", [fault if fault in LEAST else pytest.param(fault, marks=pytest.mark.thorough) for fault in FAULTS]
)
def test_spark_does_what_duckdb_cannot(
    fault: str, spark: SparkSession, empty_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = [line(offset, headers=BROKEN) for offset in range(100, 103)]
    landed = [*(line(offset) for offset in range(200)), *bad, line(3, value=b"other"), line(4)]
    settings = warehouse_of(empty_warehouse, tmp_path)
    land(settings, {"a.jsonl": landed})
    with monkeypatch.context() as patched:
        FAULTS[fault](patched)
        stage_run = run(spark, settings, "bronze.dlq_records", SILVER)[SILVER]
    assert (stage_run.read, stage_run.accepted, stage_run.quarantined, stage_run.duplicates, stage_run.held) == (
        204,
        200,
        4,
        0,
        0,
    )
    land(settings, {"b.jsonl": [line(300), line(5)]})
    stage_run = run(spark, settings, "bronze.dlq_records", SILVER)[SILVER]
    assert (stage_run.read, stage_run.accepted, stage_run.duplicates) == (2, 1, 1)


def test_what_a_candidate_says_of_others_is_the_same_in_quarantine(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    steady = [requests.steady(second, member=member) for member in ("m1", "m2") for second in (1, 11)]
    for last in (1, 3):  # two last heartbeats of a sequence, with the same grain
        steady[last] = re.sub(r'"correlationId":\d+', '"correlationId":777', steady[last])
    found = []
    for way in ways.tried():
        settings = warehouse_of(empty_warehouse, tmp_path / way, tolerance=1.0)
        land(settings, {"a.log": steady}, feed="streams-requests")
        with pytest.MonkeyPatch.context() as patched:
            ways.take(way, patched)
            run(spark, settings, "bronze.streams_requests", "silver.group_heartbeats", feed="topology")
        found.append(tables(settings))
    (conflict,) = found[0]["quarantine.group_heartbeats"]
    assert conflict["steady_since"] < conflict["heartbeat_at"]
    assert all(of_way == found[0] for of_way in found)

    with lock.writer(settings, "test"):
        readmit(Warehouse(settings, spark), stage_with_quarantine("silver.group_heartbeats"))
    assert tables(settings)["quarantine.group_heartbeats"] == [conflict]


@pytest.mark.parametrize(
    "gone",
    [
        ["_content_hash", "control_marker_suspected", "payload_copied"],
        pytest.param(["_content_hash"], marks=pytest.mark.thorough),
        pytest.param(["control_marker_suspected", "payload_copied"], marks=pytest.mark.thorough),
    ],
    ids=",".join,
)
def test_tables_without_columns_of_the_contract_take_them(
    gone: list[str], spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    refused = line(900, headers=BROKEN)
    more = [refused, line(901, headers=BROKEN), line(7, value=b"other")]
    landed = (
        {"a.jsonl": [*(line(offset) for offset in range(40)), refused]},
        {"b.jsonl": [*(line(offset) for offset in range(30, 80)), *more]},
    )
    found, counts = [], []
    for way in (ways.FEW, ways.MANY):
        settings = warehouse_of(empty_warehouse, tmp_path / way)
        with pytest.MonkeyPatch.context() as patched:
            ways.take(way, patched)
            for files in landed:
                land(settings, files)
                stage_run = run(spark, settings, "bronze.dlq_records", SILVER)[SILVER]
                for table in (SILVER, "quarantine.dlq_records") if files is landed[0] else ():  # as a version before
                    location = Warehouse(settings).location(table)
                    kept = DeltaTable(location).to_pyarrow_table().drop_columns(gone)
                    write_deltalake(location, kept, mode="overwrite", schema_mode="overwrite")
        counts.append((stage_run.read, stage_run.accepted, stage_run.quarantined, stage_run.duplicates))
        found.append(tables(settings))
        assert {field.name for field in DeltaTable(Warehouse(settings).location(SILVER)).schema().fields} >= {*gone}
    assert counts[0] == counts[1] == (53, 40, 2, 11)
    assert found[0] == found[1]


def test_small_and_large_batches_give_the_same_tables(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    found, counts = [], []
    for way in ways.tried():
        settings = warehouse_of(empty_warehouse, tmp_path / way)
        with pytest.MonkeyPatch.context() as patched:
            ways.take(way, patched)
            for files in landings():
                land(settings, files)
                stage_run = run(spark, settings, "bronze.dlq_records", SILVER)[SILVER]
                counts.append(
                    (stage_run.read, stage_run.accepted, stage_run.quarantined, stage_run.duplicates, stage_run.held)
                )
        found.append(tables(settings))
    assert counts == counts[:2] * len(found)
    assert all(of_way == found[0] for of_way in found)
    assert all(found[0][table] for table in (SILVER, "quarantine.dlq_records", "held.dlq_records"))
