"""A warehouse at a URI, where inserts are merges and Delta's own readers answer."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from expectations.contract import Column, Contract
from pipelines.columns import slices
from pipelines.commands import show, trace
from pipelines.commands.incidents import listing
from pipelines.commands.message_events import ACKNOWLEDGEMENTS, HELD_ACKNOWLEDGEMENTS, HELD_BATCHES
from pipelines.run import contracts
from pipelines.settings import ROOT, Settings
from pipelines.warehouse.tables import Warehouse
from tests.testing import bulkheads
from tests.testing.builders import land, line, rows, run
from tests.testing.deliveries import at, store
from tests.testing.sites import incident, letter

BRONZE, SILVER = "bronze.dlq_records", "silver.dlq_records"


def absent(settings: Settings) -> set[str]:
    """Remove the tables of a batch, and tables that have each type of a column; Spark takes long to create all."""
    types: set[str] = set()
    removed = set()
    for contract in contracts.contracts():
        more = {column.type for column in contract.stored} - types
        if more or contract.table in (BRONZE, SILVER, "quarantine.dlq_records", "held.dlq_records"):
            shutil.rmtree(Warehouse(settings).location(contract.table))
            types |= more
            removed.add(contract.table)
    return removed


@pytest.mark.parametrize("lacks_all", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_batch_in_which_no_line_names_an_offset_is_held(
    spark: SparkSession, settings: Settings, tmp_path: Path, lacks_all: bool
) -> None:
    """The run creates the tables that the warehouse lacks."""
    place = tmp_path / "uri" if lacks_all else Path(settings.warehouse)
    by_uri = settings.model_copy(update={"warehouse": place.as_uri()})
    lacking = {contract.table for contract in contracts.contracts()} if lacks_all else absent(settings)
    land(by_uri, {"a.jsonl": ["no JSON", "no JSON either"]})
    assert run(spark, by_uri, BRONZE, SILVER)[SILVER].held == 2
    land(by_uri, {"b.jsonl": [line(1)]})
    run(spark, by_uri, BRONZE, SILVER)
    assert [row["dlq_offset"] for row in rows(spark, by_uri, SILVER)] == [1]
    land(by_uri, {"c.jsonl": [line(4), line(1, value=b"other"), line(1)]})
    silver, waiting = bulkheads.run(spark, by_uri)[SILVER]
    assert waiting.status == "held"
    assert (silver.accepted, silver.quarantined, silver.duplicates) == (1, 1, 1)
    assert [row["value"] for row in rows(spark, by_uri, SILVER)] == [b"v"] * 2
    assert {ran.status for ran in run(spark, by_uri, BRONZE, SILVER).values()} <= {"idle", "held"}
    of_place = Warehouse(settings.model_copy(update={"warehouse": str(place)}))
    assert {table for table in lacking if of_place.last_version(table) is None} == set()


def test_a_log_that_a_crash_left_without_commits_is_no_table(spark: SparkSession, tmp_path: Path) -> None:
    contract = Contract("silver.letters", "Letters.", (Column("n", "bigint", "A number."),), grain=("n",))
    warehouse = Warehouse(Settings(warehouse=tmp_path.as_uri()), spark)
    assert not warehouse.exists("silver.letters")
    (tmp_path / "silver" / "letters" / "_delta_log" / "_staged_commits").mkdir(parents=True)
    assert warehouse.ensure(contract)
    assert warehouse.exists("silver.letters")
    assert warehouse.state("silver.letters")[1] == 0
    assert not warehouse.ensure(contract)


def fill(settings: Settings) -> None:
    """Store a message in the ledger, its acknowledgement, and dead letters."""
    source = {"topic": "orders", "partition": 0, "offset": 7}
    store(settings, trace.LEDGER, {"cluster": "default", "slice": slices.name("orders", 0, 7), **source})
    store(settings, ACKNOWLEDGEMENTS, {"cluster": "default", **source, "acknowledged_at": at(1)})
    store(settings, SILVER, *(letter(offset) for offset in range(3)))


def test_letters_and_messages_are_told_as_those_of_a_local_warehouse(spark: SparkSession, settings: Settings) -> None:
    fill(settings)
    for table in ("held.dlq_records", HELD_ACKNOWLEDGEMENTS, HELD_BATCHES):
        shutil.rmtree(Warehouse(settings).location(table))  # an older version held no rows
    by_uri = settings.model_copy(update={"warehouse": Path(settings.warehouse).as_uri()})
    warehouses = [Warehouse(item, spark) for item in (settings, by_uri)]
    for wanted in ("dlq.orders:0:1", "dlq.orders:0:9", "dlq.order:0:1"):
        here, there = (show.answer(comparison, wanted) for comparison in warehouses)
        assert there == here, wanted
    for wanted in ("orders:0:7", "order:0:7"):
        here, there = (trace.answer(comparison, wanted) for comparison in warehouses)
        assert there == here, wanted


def test_commands_tell_what_they_tell_of_a_local_warehouse_in_a_session_each(settings: Settings) -> None:
    fill(settings)
    store(settings, "gold.dlq_incidents", incident(1))
    at, ends = datetime.now(UTC).isoformat(), "that is all"
    program = f"""
import contextlib, shlex, sys
from pipelines.jvm import session
begin = session.spark_session
@contextlib.contextmanager
def counted(*given, **named):
    print("a session", file=sys.stderr)
    with begin(*given, **named) as spark:
        yield spark
session.spark_session = counted
from pipelines.cli import main
for command in sys.argv[1:]:
    sys.argv = ["afterlog", *shlex.split(command), "--warehouse", {Path(settings.warehouse).as_uri()!r}]
    with contextlib.suppress(SystemExit):
        main()
    for stream in (sys.stdout, sys.stderr):
        print("{ends}", file=stream, flush=True)
"""
    commands = ["trace orders:0:7", f"incidents --format json --at {at}"]
    told = subprocess.run(
        [sys.executable, "-c", program, *commands], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    traced, listed, rest = told.stdout.split(f"{ends}\n")
    assert traced.splitlines() == trace.answer(Warehouse(settings), "orders:0:7").result.splitlines()
    assert listed.splitlines() == listing.listed(Warehouse(settings), "json", at=at).result.splitlines()
    assert (len(listed.splitlines()), rest) == (1, "")
    sessions = [said.splitlines().count("a session") for said in told.stderr.split(f"{ends}\n")]
    assert sessions == [1, 1, 0]


@pytest.mark.parametrize("is_local", [True, False], ids=["directory", "URI"])
def test_an_insert_adds_the_columns_that_an_older_table_lacks(
    spark: SparkSession, tmp_path: Path, settings: Settings, is_local: bool
) -> None:
    place = str(tmp_path / "older") if is_local else (tmp_path / "older").as_uri()
    warehouse = Warehouse(settings.model_copy(update={"warehouse": place}), spark)
    key = Column("cluster", "string", "The cluster."), Column("offset", "bigint", "The offset.")
    of_run = "timestamp '2026-11-21' AS _ingested_at, 'run' AS _run_id"

    def contract(*columns: Column) -> Contract:
        return Contract("silver.letters", "Letters.", (*key, *columns), grain=("cluster", "offset"))

    older = contract(Column("input", "struct<a: bigint>", "The input."))
    newer = contract(Column("input", "struct<a: bigint, b: string>", "The input."), Column("more", "string", "More."))
    warehouse.ensure(older)
    first = f"SELECT 'c' AS cluster, 1L AS offset, named_struct('a', 1L) AS input, {of_run}"
    second = f"SELECT 'c' AS cluster, 2L AS offset, named_struct('a', 2L, 'b', 'x') AS input, 'y' AS more, {of_run}"
    assert warehouse.insert(spark.sql(first), older) == 1
    assert warehouse.insert(spark.sql(second), newer) == 1
    assert [(row["input"], row["more"]) for row in rows(spark, warehouse.settings, "silver.letters")] == [
        ({"a": 1, "b": None}, None),
        ({"a": 2, "b": "x"}, "y"),
    ]
    version = warehouse.state("silver.letters")[1]
    third = spark.sql(second.replace("2L AS offset", "3L AS offset"))
    assert warehouse.insert(third, newer) == 1
    assert warehouse.state("silver.letters")[1] == version + 1  # nothing is added again
