"""Summarised tables that DuckDB makes of few rows: from whatever rows, they are those that Spark makes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as arrow  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable
from pyspark.errors import ArithmeticException

from expectations.contract import Contract, contract_of
from pipelines.catalog import stages_of_type
from pipelines.engines.choose import DUCKDB, Choice, UnsupportedByDuckDB, is_in_parts, suits_duckdb
from pipelines.engines.duckdb import engine, sessions
from pipelines.settings import Settings
from pipelines.stage import Derive, Summarise
from pipelines.steps.refresh import refresh_of
from pipelines.steps.summarise import Refreshing
from pipelines.warehouse import few_rows
from pipelines.warehouse.progress import Batch
from pipelines.warehouse.schemas import schema_of
from pipelines.warehouse.tables import PROPERTIES, Warehouse
from tests.testing.engines import (
    MOMENT,
    THOROUGH,
    Known,
    by_duckdb,
    by_spark,
    contract_of_input,
    drawn,
    fitted,
    in_order,
    in_parts,
    kept,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY_DUCKDB = [stage for stage in stages_of_type(Summarise) if suits_duckdb(stage.table)]
SEEDS = 1 if THOROUGH else 4
SEVERAL_GROUPS = "silver.dlq_hops"  # each of its input's rows is of two groups
PARTED = [
    pytest.param(
        stage,
        marks=() if is_in_parts(stage.table) or stage.table == SEVERAL_GROUPS else THOROUGH,
        id=stage.table,
    )
    for stage in BY_DUCKDB
    if not isinstance(stage, Derive)
]


def among(*values: object) -> Callable[[random.Random], object]:
    """Return what draws one of the values."""
    return lambda chance: chance.choice(values)


def seconds(*after: int) -> Callable[[random.Random], object]:
    """Return what draws a time so many seconds after the moment, seldom an extreme one."""
    extreme = (datetime(1, 1, 1, tzinfo=UTC), datetime(1500, 2, 3, 4, 5, 6, 7, UTC), datetime(9999, 12, 31, tzinfo=UTC))
    return lambda chance: (
        chance.choice(extreme)
        if chance.random() < 0.005
        else MOMENT + timedelta(seconds=chance.choice(after), microseconds=chance.choice((0, 0, 0, 1, 500_000)))
    )


OF_STREAMS = (
    *("-a-repartition", "-s-changelog", "-b-changelog", "-a-subscription-response-topic"),
    *("-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000004-topic", "a-repartition"),
)
TOPOLOGY = {
    "cluster": among("a", "a", "b"),
    "group_id": among(*"abcdefghijklmnopqrst", "it's \U0001f4a3", ""),
    "member_id": among("m", "n", None),
    "connection": among("1", "2", "3"),
    "correlation_id": among(*range(9)),
    "error_code": among(0, 0, 0, 0, 0, 0, 0, 14, 42, 69, 135),
    "error_name": among("INVALID_REQUEST", "", None),
    "error_message": among("No plugin..", "it's\n.", "", None),
    "status": among(1, 2, 3, 3, 3, 9, None),
    "topology_epoch": among(0, 1, 1, 1, 2, None),
    "topology_hash": among("one", "two", "three", None),
    "member_epoch": among(-2, -1, 0, 1, 5, 5, None),
    "statuses": among(None, [], ["STALE_TOPOLOGY"], ["SHUTDOWN_APPLICATION", None]),
    "revision": among(1, 2, 3),
    "defects": among(None, [], ["no_nodes"], ["no_nodes", "a"]),
    "description_required": among(True, False, None),
    **dict.fromkeys(
        ("pushed_at", "heartbeat_at", "described_at", "deleted_at", "solicited_at"),
        seconds(0, 1, 59, 60, 299, 300, 301, 600, 4319, 4320, 4321, 9000),
    ),
    "steady_since": lambda chance: (
        lambda row: (
            None
            if chance.random() < 0.5 or row["heartbeat_at"] < MOMENT
            else row["heartbeat_at"] - timedelta(seconds=chance.choice((0, 299, 300, 4319, 4320, 4321, 9000)))
        )
    ),
    "api_version": among(0, 1, 1),
    "source_topics": lambda chance: lambda row: [f"{row['group_id']}{chance.choice(OF_STREAMS)}", "t", None],
    "sink_topic": lambda chance: (
        lambda row: chance.choice((f"{row['group_id']}{chance.choice(OF_STREAMS)}", "t", None))
    ),
    "stores": among([], ["s"], [None, "s", "s"]),
    "followed": among(True, False, None),
}
DAY = seconds(-90_000, -86_401, -86_400, -7200, -3601, -3600, -61, -60, 0, 0, 1, 59, 60, 61, 3600, 82_800, 90_000)
HOURS = (datetime(2026, 11, 21, tzinfo=UTC) + timedelta(hours=hour) for hour in (-25, -24, -1, 0, 1, 2, 3, 23, 24, 25))
COUNT = among(None, 0, 0, 1, 1, 1, 2, 2, 3, 5, 9, 19, 20, 100)
CODES = ("header_profile.not_null", "routed_at.not_null", "key.a", "key.b", "key.c", "key.d", "é", "")
INCIDENTS = {
    "cluster": among("a", "b", "c", "d"),
    "incident_id": among(*"abcdefghijkl"),
    "dlq_topic": among("d", "e", "it's \U0001f4a3", None),
    "original_topic": among("t", "u", "v", None),
    "topic": among("t", "u", "v", None),
    "consumer_group": among("g", "h", "i", None),
    "group_id": among("g", "h", "i", ""),
    "client_id": among("c", "d"),
    "hour": among(*HOURS, None),
    **dict.fromkeys(
        (
            "anchor_at",
            "first_at",
            "accepted_at",
            "stated_at",
            "failed_at",
            "started_at",
            "since",
            "first_routed_at",
            "last_routed_at",
            "first_accepted_at",
            "last_accepted_at",
            "first_stated_at",
            "last_stated_at",
            "last_at",
        ),
        DAY,
    ),
    **dict.fromkeys(
        (
            "record_count",
            "late_count",
            "inferred_count",
            "refused_count",
            "push_count",
            "statement_count",
            "lost_count",
            "absent_count",
            "dlq_write_failure_count",
            "dlq_gap_unexplained_count",
            "aborted_dlq_write_count",
            "message_count",
            "named_count",
            "headed_count",
            "committed_without_headers_count",
            "dead_lettered_count",
            "acknowledged_dead_lettered_count",
        ),
        COUNT,
    ),
    "broken_rules": lambda chance: [
        {"code": code, "record_count": chance.choice((1, 2, 7)), "first_at": DAY(chance), "last_at": DAY(chance)}
        for code in chance.sample(CODES, chance.choice((0, 1, 1, 1, 2, 5)))
    ],
    "revision": among(1, 1, 2, 3),
    "direction": among("read", "written", None),
    "node_id": among(0, 1, 2),
    "attribute_kind": among("client", "header", "schema_id", "key_prefix", None),
    "attribute_share": among(1.0, 0.95, 1 / 3, 0.285, 0.1 + 0.2, 0.005, 0.0),
    "attribute_share_elsewhere": among(None, 0.0, 1e-9, 0.005, 1 / 3, 0.285, 1.0),
    "disposition": among("REJECTED", "RETRIED", None),
    ".dlq_topic": among("d", "e", "it's \U0001f4a3", None),
    ".half_hour": lambda chance: chance.choice((0, 1, 2, 3)) * 1_800_000_000,
    "half_hour": lambda chance: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(minutes=30 * chance.choice((0, 1, 2, 3))),
    "partition": among(0, 1),
    "slice": lambda chance: f"{chance.choice((0, 0, 1, 2, 3)):016}:{chance.choice('01')}:{chance.choice('tuvwxyz')}",
    ".original_partition": among(0, 1),
    ".first_offset": among(0, 1, 900, 998, 999, None),
    ".last_offset": among(999, 1500, 1501, 1999, 2500, 3999),
    ".source_record_count": among(0, 1, 2, 3),
    ".offset_count": among(1, 2, 100),
    ".negative": among(-1, -2, -2, -3, None),
    ".kind": among("header", "client", None),
    ".name": among("n", "o", "", None),
}
TRUTH = (*("true", "false") * 3, "Yes", "", "\U0001f4a3", None)
WHOLE = (*("1", "2", "+3", "-1", "1000") * 2, "1.5", "1e3", str(2**31), str(2**63 - 1), str(2**63), "", None)
VALUES = {
    "state": ("present",) * 9 + ("missing", "unknown"),
    "errors.deadletterqueue.topic.name": ("t", "t", "u", "it's", "dlq.t", "", None),
    "sources": ("t", "u,t", "it's", "u,u,", "", None),
    "errors.deadletterqueue.auto.create.topics.enable": TRUTH,
    "errors.deadletterqueue.topic.name.prefix": ("dlq.", "t", "it's", "", None),
    "errors.deadletterqueue.group.enable": TRUTH,
    "errors.deadletterqueue.copy.record.enable": TRUTH,
    "cleanup.policy": ("delete", "compact", "compact , delete", "compact,delete", "", None),
    "max.message.bytes": WHOLE,
    "retention.ms": WHOLE,
    "min.insync.replicas": WHOLE,
    "in_sync_replicas": WHOLE,
    "replicas": WHOLE,
    "partitions": WHOLE,
    "is_outrun": TRUTH,
    "share.version": WHOLE,
    "share.isolation.level": ("read_uncommitted", "read_committed", None),
    "group_type": ("SHARE", "SHARE", "STREAMS", "it's", None),
    "bootstrap_servers": ("host:9092,other:9092", "host\n", "it's", "", None),
}
OF_KIND = {
    "cluster": ("bootstrap_servers", "share.version", "state"),
    "broker": ("state", *(name for name in VALUES if ".create." in name or ".prefix" in name)),
    "group": ("state", *(name for name in VALUES if name.startswith(("err", "share.i", "group_", "sources")))),
    "topic": (
        "state",
        *(name for name in VALUES if name.startswith(("err", "cl", "max", "r", "min", "in_", "p", "is_"))),
    ),
}
NAME_OF_KIND = {"cluster": ("",), "broker": ("0", "1"), "group": ("t", "g", "it's"), "topic": ("t", "u", "it's")}
SETTINGS = {
    "cluster": among(*"ab"),
    "kind": among("topic", "topic", "topic", "group", "group", "group", "broker", "cluster"),
    "name": lambda chance: lambda row: chance.choice(NAME_OF_KIND[row["kind"]]),
    "setting": lambda chance: lambda row: chance.choice(OF_KIND[row["kind"]]),
    "value": lambda chance: lambda row: chance.choice(VALUES[row["setting"]]),
    "previous_value": among("present", "t", "1", None),
    **dict.fromkeys(("since", "until"), seconds(0, 1, 3600)),
    "observed_at": seconds(*range(0, 9000, 60)),
    "state": among("present", "present", "missing", "unknown"),
    "settings": lambda chance: [
        {"name": name, "value": chance.choice(("1", "2", "", None)), "source": chance.choice(("DEFAULT", "", None))}
        for name in chance.sample(("a", "b", "A", "state", "\U0001f4a3"), chance.randrange(4))
    ],
}
NODES = {
    "cluster": among("a", "b", "c"),
    "group_id": among(*"ghijk"),
    "revision": among(1, 2, 3, 4),
    "topology_hash": among(*"xyz"),
    "part": among("subtopology", "global_store"),
    "part_place": among(0, 1),
    "subtopology_id": among("0", "1", None),
    "node": among(*"nopq"),
    "occurrence": among(1, 1, 1, 2),
    "node_type": among(1, 2, 3, None),
    "sink_topic": among("t", "u", None, None),
    **dict.fromkeys(
        ("source_topics", "stores", "successors"), among(None, [], ["t"], ["u", "t"], ["t", "t", "\U0001f4a3"], [""])
    ),
}
KNOWN: dict[str, Known] = {
    "gold.topology_current": TOPOLOGY,
    "gold.push_health": TOPOLOGY,
    "gold.trust_findings": INCIDENTS,
    "gold.incident_suspects": INCIDENTS,
    "gold.dlq_incidents": INCIDENTS,
    "gold.dlq_misconfigurations": SETTINGS,
    "gold.topology_changes": NODES,
    "silver.dlq_settings": SETTINGS,
}
"""By table: what draws the values of columns that need more than their type."""


MOST = (200, 40, 5, 200, 0, 1, 40, 200)
"""By seed: the most rows of an input."""


def inputs(stage: Summarise, chance: random.Random, most: int, hostile: float) -> dict[str, arrow.Table]:
    """Return rows for each input of a table, at most so many."""
    known = KNOWN.get(stage.table, {})
    return {
        table: drawn(contract_of_input(table), chance.randint(0, most), chance, known, hostile)
        for table in stage.inputs
    }


MOST_REFUSED = 0.1
"""The share of drawn rows for which DuckDB may leave a SELECT to Spark: some values are drawn because it must."""


@pytest.fixture(scope="module")
def refused() -> Iterator[dict[bool, int]]:
    """Count drawn rows, by whether DuckDB refused them; check their share in the end."""
    rows = {True: 0, False: 0}
    yield rows
    assert rows[True] <= MOST_REFUSED * sum(rows.values()), rows


@pytest.mark.parametrize("stage", BY_DUCKDB, ids=lambda stage: stage.table)
@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(1), id="some"), pytest.param(range(1, len(MOST)), id="more", marks=THOROUGH)],
)
def test_both_engines_make_the_same_rows(
    spark: SparkSession, stage: Summarise, seeds: range, tmp_path: Path, refused: dict[bool, int]
) -> None:
    answered = 0
    for seed in seeds:
        chance, most = random.Random(f"{stage.table} {seed}"), MOST[seed]
        given = inputs(stage, chance, most, seed / 20)
        files = kept(tmp_path, given)
        found = None
        with leaving() as left:
            found = by_duckdb(stage, files)
        refused[found is None] += sum(rows.num_rows for rows in given.values())
        if found is None:
            print(seed, most, left)
            continue  # Spark makes the rows
        try:
            expected = by_spark(spark, stage, files)
        except ArithmeticException:  # so does DuckDB, or a sum of its does not fit the table
            with pytest.raises(arrow.ArrowInvalid):
                fitted(stage, found)
            continue
        assert in_order(found, expected.schema) == in_order(expected, expected.schema), f"seed {seed}, {most} rows"
        answered += 1
    assert answered


@contextmanager
def leaving() -> Iterator[list[str]]:
    """Leave a block where DuckDB refuses rows; yield a list that gets the reason. A defect of Afterlog is raised."""
    reasons: list[str] = []
    try:
        with sessions.refusals():
            yield reasons
    except UnsupportedByDuckDB as left:
        if left.is_defect:
            raise
        reasons.append(str(left))


@pytest.mark.parametrize(
    "stage", [stage for stage in BY_DUCKDB if not isinstance(stage, Derive)], ids=lambda stage: stage.table
)
def test_each_table_that_claims_duckdb_is_refreshed_by_it(stage: Summarise, settings: Settings) -> None:
    """It makes the table from all rows of the inputs, then again what news of each of them touches.

    Modules of derived tables take no drawn rows; `test_choice_of_engine.py` runs them.
    """
    made = 0
    for seed in range(SEEDS):
        warehouse = Warehouse(settings.model_copy(update={"warehouse": f"{settings.warehouse}-{seed}"}))
        chance = random.Random(f"{stage.table} {seed}")
        create(warehouse, contract_of(stage.table))
        for table in stage.inputs:
            create(warehouse, contract_of_input(table))
        with leaving():
            for start in (None, 1):
                for table, rows in inputs(stage, chance, 60, 0).items():
                    opened = warehouse.opened_table(table)
                    few_rows.append(opened, rows.cast(few_rows.schema_of(opened.schema())), few_rows.Turn(""))
                batch = {table: Batch(start, warehouse.last_version(table) or 0) for table in stage.inputs}
                with engine.opened(warehouse, stage.table) as item:
                    found = Refreshing(Choice(DUCKDB, ""), item, warehouse, stage, refresh_of(stage), batch).found()
                    if found is not None:
                        found.write()
                        made += found.count
    assert made


def create(warehouse: Warehouse, contract: Contract) -> None:
    """Create a table without a JVM."""
    DeltaTable.create(warehouse.location(contract.table), schema_of(contract), configuration=PROPERTIES)


def agreed(tables: dict[str, arrow.Table]) -> dict[str, arrow.Table]:
    """Let a marker that names a dead letter have the slice of the dead letter's source."""
    records, markers = (tables.get(f"silver.{item}") for item in ("dlq_records", "dlq_control_markers"))
    if records is None or markers is None:
        return tables
    slices = {}
    for row in records.to_pylist():
        place = [row[f"original_{part}"] for part in ("offset", "partition", "topic")]
        known = None not in place
        slices[row["cluster"], row["_bronze_id"]] = f"{place[0] // 1000:016}:{place[1]}:{place[2]}" if known else None
    rows = [
        {**row, "source_slice": slices.get((row["cluster"], row["_bronze_id"]), row["source_slice"])}
        for row in markers.to_pylist()
    ]
    return tables | {"silver.dlq_control_markers": arrow.Table.from_pylist(rows, markers.schema)}


@pytest.mark.usefixtures("spark")  # it reads types
@pytest.mark.parametrize("stage", PARTED)
def test_parts_of_the_groups_make_the_rows_of_all_groups(stage: Summarise, tmp_path: Path) -> None:
    made = 0
    for seed in range(SEEDS + 1):
        chance = random.Random(f"{stage.table} {seed}")
        files = kept(tmp_path, agreed(inputs(stage, chance, 200, seed / 20)))
        expected = None
        with leaving():
            expected = in_parts(stage, files, None)
        if expected is None:
            continue  # Spark makes the rows
        found = in_parts(stage, files, 60)
        assert in_order(found, expected.schema) == in_order(expected, expected.schema), f"seed {seed}"
        made += len(expected)
    assert made
