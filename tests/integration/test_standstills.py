"""No landed data can bring a table to a standstill: only a defect of Afterlog may break facts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.catalog import CATALOG, stages_of_type
from pipelines.commands import trace
from pipelines.run import runner, summaries
from pipelines.settings import Settings
from pipelines.stage import Summarise
from pipelines.stores import lock
from pipelines.warehouse import progress, quality
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import kip_1191, kip_1317, land, line, rows, tables, warehouse_of
from tests.testing.deliveries import acknowledgement, unproduced

WRITE_FAILURES = "silver.dlq_write_failures"
FOREIGN = [("trace", b"1")]
HOSTILE = (
    "dlq.orders",
    "dlq.\x00",
    "dlq.a'b",
    "dlq.\\U0001f4a5",
    "dlq.:0:\u202e",
    "dlq.`x` OR 1=1 --",
    "dlq. ",
    "dlq.\u2028\x85\u2029",
    "dlq." + "x" * 240,
)
GREATEST_MILLIS = 253402300799999
MILLIS = (-1, 0, 1, 3_599_999, 3_600_000, 1_790_000_000_000, GREATEST_MILLIS - 3_600_000, GREATEST_MILLIS)
ROUTED = (
    "0001-01-01T00:00:00Z",
    "0004-02-29T23:59:59.999999Z",
    "0999-12-31T23:00Z",
    "1582-10-10T12:00:00Z",
    "1883-11-18T12:03:58Z",
    "2026-03-29T02:30:00+00:00",
    "9999-12-31T23:59:59.9999999Z",
)
GREATEST = 2**63 - 1
OF_HOURS = "dlq.hours"
GARBAGE = ("", "   ", "{", "[]", "null", '{"topic":', "\x00\x01", '{"topic": "x", "partition": -1}', "\ufeff{}", "💥")


class Killed(BaseException):
    """Stands for a process that is killed; no handler of `Exception` catches it."""


def record(chance: random.Random, offset: int) -> str:
    topic = chance.choice(HOSTILE)
    source = chance.choice([offset, 0, 2**63 - 1])
    headers: list[tuple[str, bytes | None]]
    kind = chance.randrange(6)
    if kind == 0:
        headers = [*FOREIGN]
    elif kind < 3:
        headers = list(kip_1191(offset=source))
    else:
        headers = kip_1317(timestamp=chance.choice(ROUTED), original_offset=str(source))
    if chance.random() < 0.1:
        headers = [(name, b"\xff\xfe" if chance.random() < 0.3 else value) for name, value in headers]
    if chance.random() < 0.1:
        chance.shuffle(headers)
        headers += headers[:1]
    marker = chance.random() < 0.1
    return line(
        offset,
        topic=topic,
        partition=chance.choice([0, 1, 2**31 - 1]),
        timestamp=chance.choice(MILLIS),
        key=b"\0\0\0\1" if marker else chance.choice([None, b"", b"k"]),
        value=b"\0\0\0\0\0\0" if marker else chance.choice([None, b"", b"v"]),
        headers=headers,
    )


class History:
    """Random files that land, land again as copies, grow or are rewritten; the seed decides."""

    def __init__(self, seed: int, settings: Settings) -> None:
        self.chance = random.Random(seed)
        self.settings = settings
        self.files: dict[str, list[str]] = {}

    def step(self) -> None:
        chance = self.chance
        names = list(self.files)
        for _ in range(chance.randint(1, 3)):
            lines = [record(chance, chance.choice([*range(12), 999, 1_000, 2**63 - 1])) for _ in range(8)]
            lines += chance.sample(GARBAGE, 2)
            kind = chance.choice(["new", "grown", "rewritten", "copied"]) if names else "new"
            name = f"{len(self.files)}.jsonl" if kind in ("new", "copied") else chance.choice(names)
            if kind == "copied":
                lines = self.files[chance.choice(names)]
            elif kind == "grown":
                lines = [*self.files[name], *lines]
            self.files[name] = lines
            land(self.settings, {name: lines})


@contextmanager
def killed_at(patched: pytest.MonkeyPatch, countdown: int) -> Any:
    """Die at one call of the functions that write, before it or after it; ``countdown`` says at which."""
    left = [countdown]

    def dying(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            result = function(*arguments, **named)
            if left[0] == 1:
                left[0] = 0
                raise Killed
            return result

        return call

    with patched.context() as patch:
        for module, name in (
            (progress, "save"),
            (quality, "note"),
            (Warehouse, "insert"),
            (Warehouse, "replace_groups"),
            (Warehouse, "remove_matching"),
        ):
            patch.setattr(module, name, dying(getattr(module, name)))
        yield


def go(spark: SparkSession, settings: Settings, feeds: tuple[str, ...]) -> list[quality.StageRun]:
    chosen = [stage for stage in CATALOG if stage.feed in feeds]
    with lock.writer(settings, "test"):
        return runner.run(Warehouse(settings, spark), chosen)


def at_a_standstill(settings: Settings) -> dict[str, str | None]:
    """Return the summarised tables that wait or whose facts broke, with their messages."""
    found = {}
    for stage in CATALOG:
        known = progress.load(Warehouse(settings), stage.table)
        if isinstance(stage, Summarise) and known and (known.pending or known.blocked_since):
            found[stage.table] = known.message
    return found


def tells(
    spark: SparkSession, empty: Path, place: Path, patched: pytest.MonkeyPatch, seed: int, runs: int, *feeds: str
) -> None:
    """Land a random history with kills: no table waits, and a rebuild of each table changes nothing."""
    settings = warehouse_of(empty, place, tolerance=1.0)
    history = History(seed, settings)
    for number in range(runs):
        history.step()
        if history.chance.random() < 0.7:
            try:
                with killed_at(patched, history.chance.randint(1, 14)):
                    go(spark, settings, feeds)
            except Killed:
                pass
        done = go(spark, settings, feeds)
        assert {stage_run.status for stage_run in done} <= {"passed", "idle"}, (
            seed,
            number,
            [stage_run.message for stage_run in done],
        )
        assert at_a_standstill(settings) == {}
    before = tables(settings)
    for stage in (stage for stage in stages_of_type(Summarise) if stage.feed in feeds):
        done = [summaries.rebuild(Warehouse(settings, spark), stage)]
        assert done[0].status in ("passed", "idle"), (seed, done[0].message)
    assert tables(settings) == before


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_no_dead_letters_bring_a_table_to_a_standstill(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    tells(spark, empty_warehouse, tmp_path, monkeypatch, seed, 2, "dlq")


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(100, 112))
def test_no_longer_history_does_either(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    tells(spark, empty_warehouse, tmp_path, monkeypatch, seed, 6, "dlq", "delivery")


def test_no_hour_of_any_calendar_and_no_place_stops_a_table(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path, tolerance=1.0)
    land_far_places(settings)
    land_hours(settings, 0)

    assert {stage_run.status for stage_run in go(spark, settings, ("dlq", "delivery"))} <= {"passed", "idle"}

    (gaps, *_) = Warehouse(settings, spark).read("gold.reconciliation").agg({"dlq_gap_count": "max"}).collect()[0]
    assert gaps == GREATEST
    counts = [row["offset_count"] for row in rows(spark, settings, WRITE_FAILURES)]
    assert sorted(counts, key=str) == [GREATEST - 1, GREATEST, None]
    assert [row["offset"] for row in rows(spark, settings, "silver.acknowledgements")] == [GREATEST]
    assert [row["violations"] for row in rows(spark, settings, "quarantine.acknowledgements")] == [
        ["offset.at_least_minus_1"]
    ]

    land_hours(settings, 1)  # the hours are refreshed
    done = {stage_run.table: stage_run.status for stage_run in go(spark, settings, ("dlq",))}
    without_news = ("silver.dlq_refusals", "gold.blast_radius")
    assert {status for table, status in done.items() if table not in without_news} == {"passed"}
    of_hours = Warehouse(settings, spark).read("gold.dlq_summary").where(f"dlq_topic = '{OF_HOURS}'")
    found = of_hours.selectExpr("string(hour) AS hour", "record_count").collect()
    assert {row["hour"][:13]: row["record_count"] for row in found} == {at[:13].replace("T", " "): 2 for at in ROUTED}


def test_line_breaks_of_unicode_stop_nothing(spark: SparkSession, settings: Settings) -> None:
    """They stand as they are in the statistics of a commit, if they are in the least or the greatest text."""
    wanted = ("bronze.dlq_records", "silver.dlq_records", "gold.dlq_counts", "silver.dlq_errors")
    chosen = [stage for stage in CATALOG if stage.table in wanted]
    for number, texts in enumerate((("no order:\x85 17", "\u2029"), ("\u2028",), ("plain",))):
        lines = [
            line(
                10 * number + index,
                topic=f"dlq.{text}",
                headers=kip_1191(offset=10 * number + index, group=f"group {text}", message=text),
            )
            for index, text in enumerate(texts)
        ]
        land(settings, {f"{number}.jsonl": lines})
        with lock.writer(settings, "test"):
            done = runner.run(Warehouse(settings, spark), chosen)
        assert {stage_run.status for stage_run in done} == {"passed"}
    assert len(rows(spark, settings, "silver.dlq_records")) == 4
    logs = Path(Warehouse(settings).location("silver.dlq_records")) / "_delta_log"
    told = "".join(file.read_text(encoding="utf-8") for file in logs.glob("*.json"))
    assert all(character in told for character in "\x85\u2028\u2029")


def test_an_origin_whose_headers_name_no_source_stops_nothing(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    """A profile of the settings need not map a place; a group reads such dead letters and dead-letters them again."""
    mapped = [
        {"name": "x-why", "field": "error_message", "mandatory": True},
        {"name": "x-from", "field": "original_topic"},
    ]
    settings = warehouse_of(empty_warehouse, tmp_path, dlq={"profile": [{"name": "own", "headers": mapped}]})
    unplaced = [[("x-why", b"no")], [("x-why", b"no"), ("x-from", b"orders")]]
    first = [line(offset, headers=headers) for offset, headers in enumerate(unplaced)]
    second = [
        line(offset, topic="dlq.second", headers=kip_1191(topic="dlq.orders", offset=offset)) for offset in range(2)
    ]
    land(settings, {"a.jsonl": [*first, *second]})

    assert {stage_run.status for stage_run in go(spark, settings, ("dlq", "delivery"))} <= {"passed", "idle"}

    assert at_a_standstill(settings) == {}
    ledger = rows(spark, settings, "gold.message_ledger")
    found = [(row["topic"], row["offset"], row["root_topic"], row["root_offset"], row["hop_count"]) for row in ledger]
    assert sorted(found) == [("dlq.orders", offset, "dlq.orders", offset, 0) for offset in range(2)]
    told = trace.answer(Warehouse(settings), "dlq.orders:0:1")
    assert "as the dead letter of a record of orders" in told.result
    assert "None" not in told.result


def land_far_places(settings: Settings) -> None:
    """Land dead letters, an acknowledgement and failed writes of partitions and offsets that no log reaches."""
    for partition in range(2):
        lines = [line(offset, partition=partition) for offset in (0, GREATEST)]
        lines += [line(1, partition=partition, headers=kip_1191(partition=2**31 - 1, offset=GREATEST))]
        land(settings, {f"{partition}.jsonl": lines})
    told = {"topic": "orders", "partition": 0, "baseOffset": GREATEST, "relativeOffset": 1}
    land(settings, {"a.jsonl": [json.dumps(told), acknowledgement("orders", 0, GREATEST)]}, "acknowledgements")
    failed = [unproduced(second, first=0, last=GREATEST - second) for second in range(3)]
    land(settings, {"a.log": [text for event in failed for text in event]}, "broker-logs")


def land_hours(settings: Settings, number: int) -> None:
    """Land a dead letter of each hour in ROUTED."""
    offsets = range(number * len(ROUTED), (number + 1) * len(ROUTED))
    lines = [
        line(offset, topic=OF_HOURS, headers=kip_1317(timestamp=at)) for offset, at in zip(offsets, ROUTED, strict=True)
    ]
    land(settings, {f"hours-{number}.jsonl": lines})
