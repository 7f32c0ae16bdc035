"""The feed ``delivery`` on real Delta tables: the outcome of each message, and what does not add up."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.catalog import stages
from pipelines.commands import trace
from pipelines.engines import spark as engine_of_spark
from pipelines.settings import Settings
from pipelines.warehouse import tables as tables_of_warehouse
from pipelines.warehouse.tables import Warehouse
from tests.testing import segments
from tests.testing.builders import land, rows, warehouse_of
from tests.testing.deliveries import acknowledgement
from tests.testing.delivery_feed import (
    DATA,
    IN_TRANSACTION,
    LEDGER,
    OF_ACKNOWLEDGEMENTS,
    OF_LETTERS,
    OF_LOGS,
    PARTS,
    POLICIES,
    TABLES,
    dead,
    land_segment,
    ledger,
    of_parts,
    run,
)


@pytest.fixture(scope="module")
def new(empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Settings]:
    def made(name: str) -> Settings:
        return warehouse_of(empty_warehouse, tmp_path_factory.mktemp(name), segments={"cleanup_policy": POLICIES})

    return made


# --- the captures --------------------------------------------------------------------------------------------------


def test_a_story_is_told_of_what_spark_wrote(captured_deliveries: Settings) -> None:
    (hop, *_) = [json.loads(text) for text in (DATA / "dlq" / "dlq.second-hop.jsonl").read_text().splitlines()]
    named = {h["key"]: base64.b64decode(h["value"]).decode() for h in hop["headers"]}
    wanted = ":".join(named[f"__dlq.errors.{part}"] for part in ("topic", "partition", "offset"))

    story = json.loads(trace.answer(Warehouse(captured_deliveries), wanted, "json").result)
    root = json.loads(
        trace.answer(
            Warehouse(captured_deliveries),
            ":".join(str(story[f"root_{part}"]) for part in ("topic", "partition", "offset")),
            "json",
        ).result
    )

    assert [event["what"] for event in story["events"]][:2] == ["written", "dead-lettered"]
    whats = [event["what"] for event in root["events"]]
    assert whats[:2] == ["acknowledged", "dead-lettered"]
    assert "dead-lettered on" in whats
    moments = [event["at"] for event in root["events"] if event["at"]]
    assert moments == sorted(moments)


# --- one message of each kind, in every order of arrival -----------------------------------------------------------


@pytest.fixture(scope="module")
def whole(spark: SparkSession, new: Callable[[str], Settings]) -> Settings:
    """A warehouse into which all parts landed at once."""
    return of_parts(spark, new("whole"), *(stage.table for stage in (*stages("dlq"), *stages("delivery"))))


IN_ORDER = (PARTS[:3], PARTS[3:7], PARTS[7:])
IN_REVERSE = (PARTS[7:], PARTS[5:7], PARTS[2:5], PARTS[1:2], PARTS[:1])


@pytest.mark.parametrize(
    "arrivals",
    [
        pytest.param(IN_ORDER, id="in order", marks=pytest.mark.thorough),
        pytest.param(IN_REVERSE, id="in reverse", marks=pytest.mark.thorough),
    ],
)
def test_the_order_of_arrival_does_not_matter(
    arrivals: Sequence[Sequence[Callable[[Settings], None]]],
    spark: SparkSession,
    whole: Settings,
    new: Callable[[str], Settings],
) -> None:
    settings = new("arrivals")
    for parts in arrivals:
        for part in parts:
            part(settings)
        run(spark, settings)

    def found(of: Settings, table: str) -> list[dict[str, Any]]:
        """Return a table's rows; findings about late data depend on the order of arrival."""
        return [row for row in rows(spark, of, table) if row.get("kind") != "LATE_DATA"]

    for table in TABLES:
        assert found(settings, table) == found(whole, table), table


def changed_files(settings: Settings, table: str) -> Counter[str]:
    """Return how many files the last commit of a table added and removed."""
    version = Warehouse(settings).last_version(table)
    commit = Path(Warehouse(settings).location(table)) / "_delta_log" / f"{version:020}.json"
    return Counter(action for line in commit.read_text().splitlines() for action in json.loads(line))


@pytest.mark.thorough
def test_only_what_news_touches_is_refreshed(
    spark: SparkSession, new: Callable[[str], Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (tables_of_warehouse, engine_of_spark):
        monkeypatch.setattr(module, "ROWS_OF_A_FILE", 10)
    settings = new("news")
    tables = (*OF_ACKNOWLEDGEMENTS, *OF_LETTERS, *LEDGER)
    lines = [acknowledgement(offset=offset, seconds=offset % 7200) for offset in range(0, 60_000, 1_000)]
    land(settings, {"a.jsonl": lines}, "acknowledgements")
    run(spark, settings, *tables)
    assert changed_files(settings, "gold.message_ledger")["add"] == 6  # one for each slice
    land(settings, {"orders.jsonl": [dead(0, 31_000)]})

    done = run(spark, settings, *tables)

    assert done["gold.message_ledger"].message == "10 rows refreshed"  # one slice has a thousand offsets
    assert done["gold.message_ledger"].read == 1
    assert changed_files(settings, "gold.message_ledger")["remove"] == 1
    assert done["gold.message_counts"].read == 2  # the message before and after the change
    assert done["gold.reconciliation"].read == 2  # the counts of the group in the slice, and the dead letter
    assert {ran.status for ran in run(spark, settings, *tables).values()} == {"idle"}


# --- gaps that a DLQ's own log explains; hops without end ----------------------------------------------------------


@pytest.fixture(scope="module")
def odd(spark: SparkSession, new: Callable[[str], Settings]) -> Settings:
    settings = new("odd")
    # Offsets 0, 6, 20, 21 landed; 1-3 aborted, 4 a marker, 5 unexplained, 7-9 unexplained, 10-12 compacted, 13-19 not.
    land_segment(
        settings,
        "dlq.odd-0",
        0,
        segments.batch(0, 1),
        segments.batch(1, 3, flags=IN_TRANSACTION, producer=(40, 0, 0)),
        segments.marker(4, commits=False, producer=(40, 1)),
        segments.batch(5, 5),
        segments.batch(13, 9, record_count=5),
    )
    chain = [dead(offset, offset - 1, "loop", dlq="dlq.loop", topic="dlq.loop") for offset in range(1, 30)]
    first = dead(0, 3, "loop", dlq="dlq.loop")
    land(settings, {"odd.jsonl": [dead(o, o, dlq="dlq.odd") for o in (0, 6, 20, 21)], "loop.jsonl": [first, *chain]})
    run(spark, settings, *OF_LETTERS, *OF_LOGS, "silver.dlq_gaps", "gold.message_ledger")
    return settings


@pytest.mark.thorough
def test_what_explains_a_gap(spark: SparkSession, odd: Settings) -> None:
    gaps = {row["first_offset"]: row for row in rows(spark, odd, "silver.dlq_gaps") if row["dlq_topic"] == "dlq.odd"}
    counts = ("offset_count", "marker_count", "aborted_count", "compacted_count", "unexplained_count")

    assert {first: tuple(row[name] for name in counts) for first, row in gaps.items()} == {
        1: (5, 1, 3, 0, 1),
        7: (13, 0, 0, 3, 10),
    }


@pytest.mark.thorough
def test_a_loop_has_no_root(spark: SparkSession, odd: Settings) -> None:
    found = ledger(spark, odd)
    roots = {
        offset: (found["dlq.loop", 0, offset]["root_topic"], found["dlq.loop", 0, offset]["root_offset"])
        for offset in range(29)
    }

    assert {roots[offset] for offset in range(8)} == {("orders", 3)}
    assert {roots[offset] for offset in range(8, 29)} == {(None, None)}
    assert found["dlq.loop", 0, 7]["hop_count"] == 8
