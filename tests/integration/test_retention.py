"""`[retention]`: rows go by their age, and nothing that was counted from them changes."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pipelines import moments
from pipelines.catalog import CATALOG, readers, stages
from pipelines.commands.maintain import Maintained, maintain
from pipelines.commands.stats import stats
from pipelines.errors import EnvironmentLacking, UsageError
from pipelines.run import idleness, readmit, summaries
from pipelines.settings import Settings
from pipelines.settings.retention import Retention
from pipelines.stage import Summarise
from pipelines.steps import retention
from pipelines.steps.refresh import kept_of, select_of, speaks_of_what_is_kept
from pipelines.stores import lock
from pipelines.warehouse import removed, rewriting
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import BROKEN, kip_1191, land, line, needed_by, rows, run, run_chain, warehouse_of
from tests.testing.deliveries import acknowledgement
from tests.testing.examples import at_most

BRONZE, SILVER, COUNTS, SUMMARY = "bronze.dlq_records", "silver.dlq_records", "gold.dlq_counts", "gold.dlq_summary"
LEDGER, MESSAGES, RECONCILED = "gold.message_ledger", "gold.message_counts", "gold.reconciliation"
QUARANTINE = "quarantine.dlq_records"
ALL = tuple(stage.table for stage in needed_by(SUMMARY, RECONCILED))
MIDNIGHT = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
NOW = MIDNIGHT + timedelta(hours=12)


def keeping(settings: Settings, **ages: Any) -> Settings:
    return settings.model_copy(update={"retention": Retention.model_validate(ages)})


def maintained(settings: Settings, now: datetime = NOW, is_dry_run: bool = False) -> dict[str, Maintained]:
    return {
        maintained_table.table: maintained_table
        for maintained_table in maintain(settings, 7, is_dry_run, lambda sentence: None, now)
    }


def is_idle(settings: Settings, *tables: str) -> bool:
    with lock.writer(settings, "test"):
        return idleness.idle(Warehouse(settings), [stage for stage in stages() if stage.table in tables])


def millis(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def test_bronze_goes_and_comes_back_uncounted(spark: SparkSession, settings: Settings) -> None:
    land(settings, {f"{number}.jsonl": [line(10 * number + offset) for offset in range(4)] for number in range(3)})
    run_chain(spark, settings)
    before, short = rows(spark, settings, SILVER), keeping(settings, bronze="30 days")

    assert maintained(short)[BRONZE].rows == 0
    later = NOW + timedelta(days=40)
    would = maintained(short, later, is_dry_run=True)[BRONZE]
    assert (would.rows, len(rows(spark, settings, BRONZE))) == (12, 12)
    assert maintained(short, later)[BRONZE] == would
    assert rows(spark, settings, BRONZE) == []
    assert maintained(short, later)[BRONZE].rows == 0
    assert is_idle(settings, BRONZE, SILVER)

    land(settings, {"0.jsonl": [line(offset) for offset in range(5)]})  # one more line
    assert run_chain(spark, settings)[SILVER].duplicates == 4
    assert len(rows(spark, settings, BRONZE)) == 5
    assert len(rows(spark, settings, SILVER)) == 13
    assert all(row in rows(spark, settings, SILVER) for row in before)
    assert sum(row["record_count"] for row in rows(spark, settings, SUMMARY)) == 13


def test_rows_of_a_clock_that_went_back_go_when_they_are_old(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = moments.now()
    for number, days in enumerate((0, -365, -364, 1)):
        monkeypatch.setattr(moments, "now", lambda days=days: at + timedelta(days=days))
        land(settings, {f"{number}.jsonl": [line(10 * number + offset) for offset in range(4)]})
        run_chain(spark, settings, BRONZE, SILVER)
        assert maintained(keeping(settings, bronze="30 days"), at + timedelta(days=days))[BRONZE].rows == 0
    short = keeping(settings, bronze="30 days")
    assert maintained(short, at + timedelta(days=30))[BRONZE].rows == 0
    assert maintained(short, at + timedelta(days=33))[BRONZE].rows == 16


def test_quarantined_rows_can_be_readmitted_until_they_are_old(spark: SparkSession, settings: Settings) -> None:
    lines = [line(offset) for offset in range(20)] + [line(offset, headers=BROKEN) for offset in (20, 21)]
    land(settings, {"a.jsonl": lines})
    tolerant = settings.model_copy(update={"tolerance": 1.0})
    run(spark, tolerant, BRONZE, SILVER)
    assert len(rows(spark, settings, QUARANTINE)) == 2
    short = keeping(settings, bronze="10 days", quarantine="30 days")

    done = maintained(short, NOW + timedelta(days=20))
    assert (done[BRONZE].rows, done[QUARANTINE].rows) == (20, 0)
    left = rows(spark, settings, BRONZE)
    assert [row["offset"] for row in left] == [20, 21]
    with lock.writer(settings, "test"):
        assert readmit.readmit(Warehouse(settings, spark), readmit.stage_with_quarantine(SILVER)).found == 2

    run(spark, settings, "silver.dlq_refusals", "silver.dead_letters", feed=None)
    done = maintained(short, NOW + timedelta(days=40))
    assert done[QUARANTINE].rows == 2
    assert done[BRONZE].rows == 2
    for row in rows(spark, settings, QUARANTINE):
        assert row["violations"]
        assert {repr(row[name]) for name in retention.EMPTIED[QUARANTINE]} == {"None"}
    assert maintained(short, NOW + timedelta(days=40))[QUARANTINE].rows == 0


def test_topics_have_ages_of_their_own(spark: SparkSession, settings: Settings) -> None:
    topics = ("dlq.orders", "dlq.payments", "dlq.payments.eu")
    land(settings, {"a.jsonl": [line(offset, topic=topic) for topic in topics for offset in range(3)]})
    run_chain(spark, settings, BRONZE, SILVER)
    short = keeping(settings, bronze="30 days", topics={"dlq.payments": "forever", "dlq.payments*": "3 days"})
    for days, left in ((2, {*topics}), (4, {*topics[:2]}), (40, {topics[1]})):
        maintained(short, NOW + timedelta(days=days))
        assert {row["topic"] for row in rows(spark, settings, BRONZE)} == left
    assert is_idle(settings, BRONZE, SILVER)


def test_rows_that_a_stage_has_still_to_read_stay(spark: SparkSession, settings: Settings) -> None:
    land(settings, {"a.jsonl": [line(offset) for offset in range(3)]})
    run_chain(spark, settings, BRONZE)
    short, later = keeping(settings, bronze="1 day"), NOW + timedelta(days=9)
    done = maintained(short, later)[BRONZE]
    assert (done.rows, done.unread_by) == (0, SILVER)
    run_chain(spark, settings, BRONZE, SILVER)
    assert maintained(short, later)[BRONZE].rows == 3
    assert len(rows(spark, settings, SILVER)) == 3


def test_stats_say_what_is_too_old(spark: SparkSession, settings: Settings) -> None:
    land(settings, {"a.jsonl": [line(offset) for offset in range(3)]})
    run_chain(spark, settings)
    short = keeping(settings, tables={COUNTS: "1 day"})
    found = {stat.table: stat.aged_bytes for stat in stats(Warehouse(short))}
    assert found[COUNTS] > 0
    assert {table for table, size in found.items() if size} == {COUNTS}
    assert {stat.aged_bytes for stat in stats(Warehouse(settings))} == {0}


@pytest.mark.parametrize("table", ["silver.dlq_records", "bronze.record_batches", "gold.dlq_incidents", "gold.none"])
def test_a_table_whose_rows_stay_is_refused(table: str, settings: Settings) -> None:
    with pytest.raises(UsageError, match=table):
        maintained(keeping(settings, tables={table: "1 day"}))


def test_rows_go_only_where_each_reader_knows_what_to_do() -> None:
    for stage in CATALOG:
        if not retention.goes(stage.table) or stage.layer != "gold":
            continue
        for reader in CATALOG:
            if isinstance(reader, Summarise) and stage.table in reader.inputs:
                kept = kept_of(reader.table)
                assert stage.table in (*(kept.inputs if kept else ()), *speaks_of_what_is_kept(reader.table))


def test_what_is_emptied_is_no_input_of_a_summary() -> None:
    for table, columns in retention.EMPTIED.items():
        for stage in readers(table):
            text = re.sub(r"(?m)^\s*--.*$", "", select_of(stage.table))
            assert not [name for name in columns if re.search(rf"\b{name}\b", text)], stage.table


def test_a_lost_note_is_not_taken_for_none(spark: SparkSession, settings: Settings) -> None:
    Warehouse(settings).store.write(removed.NAME, b"[1]")
    with pytest.raises(EnvironmentLacking, match="backup"):
        removed.before(Warehouse(settings))


# --- crashes ---------------------------------------------------------------------------------------------------------

STEPS = {
    "note": (removed, "note"),
    "rewrite": (rewriting, "written"),
    "commit": (rewriting, "replace_files"),
    "progress": (rewriting, "follow"),
}


def until_now(summary: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in summary if row["last_routed_at"].replace(tzinfo=UTC) < NOW]


@pytest.fixture(scope="module")
def counted(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Old and new hours in one slice, so that a file of gold.dlq_counts has both."""
    settings = warehouse_of(empty_warehouse, tmp_path_factory.mktemp("counted"))
    times = [MIDNIGHT - timedelta(days=days) for days in (9, 9, 8, 1)]
    land(settings, {"a.jsonl": [line(number, timestamp=millis(at)) for number, at in enumerate(times)]})
    run_chain(spark, settings)
    return settings


# Each state between two steps is met at least once. That before a step is that after the step before it.
@pytest.mark.parametrize(
    ("step", "is_done"),
    [
        pytest.param("note", False, marks=pytest.mark.thorough),
        ("note", True),
        pytest.param("rewrite", False, marks=pytest.mark.thorough),
        pytest.param("rewrite", True, marks=pytest.mark.thorough),
        ("commit", False),
        ("commit", True),
        ("progress", False),
        pytest.param("progress", True, marks=pytest.mark.thorough),
    ],
    ids=lambda value: {False: "before", True: "after"}.get(value, value),
)
def test_a_killed_removal_is_gone_on_with(
    step: str, is_done: bool, counted: Settings, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(counted.warehouse, tmp_path / "warehouse")
    shutil.copytree(counted.landing, tmp_path / "landing", copy_function=shutil.copy2)
    places = {"warehouse": str(tmp_path / "warehouse"), "landing": str(tmp_path / "landing")}
    settings = keeping(counted.model_copy(update=places), tables={COUNTS: "5 days"})
    summary = rows(spark, settings, SUMMARY)
    module, name = STEPS[step]
    real = getattr(module, name)

    def killed(*arguments: Any) -> None:
        if is_done:
            real(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, name, killed)
        with pytest.raises(KeyboardInterrupt):
            maintained(settings)
    later = MIDNIGHT - timedelta(days=9)
    if is_done:  # what a run finds between the kill and the next maintenance
        land(settings, {"late.jsonl": [line(5, timestamp=millis(later)), line(6, timestamp=millis(NOW))]})
        run_chain(spark, settings)
        assert [
            row for row in rows(spark, settings, SUMMARY) if row["last_routed_at"] < NOW.replace(tzinfo=None)
        ] == summary
    maintained(settings)
    assert {row["hour"].replace(tzinfo=UTC).date() for row in rows(spark, settings, COUNTS)} <= {
        (MIDNIGHT - timedelta(days=1)).date(),
        MIDNIGHT.date(),
    }
    land(settings, {"later.jsonl": [line(7, timestamp=millis(later))]})
    run_chain(spark, settings)
    assert [
        row for row in rows(spark, settings, SUMMARY) if row["last_routed_at"] < NOW.replace(tzinfo=None)
    ] == summary
    assert maintained(settings)[COUNTS].rows == 0
    assert is_idle(settings, BRONZE, SILVER, COUNTS, SUMMARY)


# --- histories -------------------------------------------------------------------------------------------------------

INPUT = {SUMMARY: COUNTS, MESSAGES: LEDGER, RECONCILED: MESSAGES}
"""The input of a table with which its rows stay as they are."""
GONE = ((COUNTS, LEDGER), (COUNTS, LEDGER, MESSAGES), (COUNTS, SUMMARY, MESSAGES, RECONCILED))
"""Tables whose rows go, others' stay."""


def time_of(table: str, row: dict[str, Any]) -> datetime | None:
    if table != LEDGER:
        at = row["hour"]
    else:
        letters = [letter["routed_at"] for letter in row["dead_letters"] or []]
        acknowledged = row["acknowledged_at"] or row["produced_at"]
        times = [*letters, *([acknowledged] if row["acknowledgement_count"] else [])]
        at = None if None in times else max(times)
    return None if at is None else at.replace(tzinfo=UTC)


LATE = st.integers(0, 11)
STEP = st.one_of(
    st.tuples(st.just("land"), st.lists(st.tuples(LATE, st.integers(0, 2500), st.booleans()), min_size=1, max_size=6)),
    st.tuples(st.just("maintain"), st.integers(0, 12)),
    st.tuples(st.just("rebuild"), st.sampled_from([COUNTS, LEDGER, *INPUT])),
    st.tuples(st.just("readmit"), st.just(None)),
    st.tuples(st.just("again"), st.just(None)),
)


class History:
    """A warehouse with retention beside one without, in which the same happens."""

    def __init__(self, spark: SparkSession, settings: Settings, undisturbed: Settings, gone: tuple[str, ...]) -> None:
        ages = {"bronze": "20 days", "quarantine": "9 days", "tables": dict.fromkeys(gone, "12 days")}
        self.spark, self.settings, self.undisturbed = spark, keeping(settings, **ages), undisturbed
        self.known = {table for table in (COUNTS, LEDGER, *INPUT) if table in gone or INPUT.get(table) in gone}
        self.number, self.days = 0, 0
        self.before: datetime | None = None
        self.was: dict[str, list[dict[str, Any]]] = {}

    def do(self, kind: str, what: Any) -> None:
        getattr(self, kind)(what)
        self.check()

    def land(self, letters: list[tuple[int, int, bool]]) -> None:
        self.number += 1
        dead, sent = [], []
        for place, (days, offset, is_broken) in enumerate(letters):
            at = MIDNIGHT + timedelta(days=self.days - 18 + days, minutes=7 * place)
            headers = BROKEN if is_broken else kip_1191(offset=offset)
            dead.append(line(100 * self.number + place, timestamp=millis(at), headers=headers))
            moment = millis(at - timedelta(minutes=30))
            sent.append(acknowledgement(offset=offset, timestamp=moment, acknowledged_at=moment + 1))
        for item in (self.settings, self.undisturbed):
            land(item, {f"{self.number}.jsonl": dead})
            land(item, {f"{self.number}.jsonl": sent}, "acknowledgements")
        self.run()

    def again(self, _: None) -> None:
        """Land all files again, with other times of modification."""
        for path in Path(self.settings.landing).rglob("*.jsonl"):
            text = path.read_bytes()
            path.unlink()
            path.write_bytes(text)
        self.run()

    def run(self) -> None:
        for item in (self.settings, self.undisturbed):
            done = run(self.spark, item.model_copy(update={"tolerance": 1.0}), *ALL, feed=None)
            assert {stage_run.status for stage_run in done.values()} <= {"passed", "idle"}, done

    def maintain(self, days: int) -> None:
        self.days += days
        self.before = MIDNIGHT + timedelta(days=self.days - 12)
        maintained(self.settings, NOW + timedelta(days=self.days))
        assert is_idle(self.settings.model_copy(update={"tolerance": 1.0}), *ALL)
        self.was = {table: rows(self.spark, self.settings, table) for table in self.known}

    def rebuild(self, table: str) -> None:
        (stage,) = stages(only=table)
        assert isinstance(stage, Summarise)
        with lock.writer(self.settings, "test"):
            assert summaries.rebuild(Warehouse(self.settings, self.spark), stage).status in ("passed", "idle")
        self.run()

    def readmit(self, _: None) -> None:
        for item in (self.settings, self.undisturbed):
            with lock.writer(item, "test"):
                readmit.readmit(Warehouse(item, self.spark), readmit.stage_with_quarantine(SILVER))
        self.run()

    def check(self) -> None:
        went = removed.before(Warehouse(self.settings))
        for table in self.known:
            before = went.get(table) or went.get(INPUT.get(table, table))
            now = rows(self.spark, self.settings, table)
            whole = rows(self.spark, self.undisturbed, table)
            if before is None:
                assert now == whole, table
                continue

            def is_old(row: dict[str, Any], table: str = table, before: datetime = before) -> bool:
                at = time_of(table, row)
                return at is not None and at < before

            assert [row for row in now if not is_old(row)] == [row for row in whole if not is_old(row)], table
            old, was = ([row for row in some if is_old(row)] for some in (now, self.was[table]))
            assert old == was, table
        assert len(rows(self.spark, self.settings, SILVER)) == len(rows(self.spark, self.undisturbed, SILVER))


def history_in(place: Path, spark: SparkSession, empty: Path, gone: tuple[str, ...]) -> History:
    history = History(spark, *(warehouse_of(empty, place / name) for name in ("short", "whole")), gone=gone)
    history.do("land", [(0, 1, False), (5, 2, True), (11, 3, False)])
    return history


def test_late_rows_of_what_went_count_nowhere(spark: SparkSession, empty_warehouse: Path, tmp_path: Path) -> None:
    history = history_in(tmp_path, spark, empty_warehouse, GONE[1])
    history.do("maintain", 10)
    history.do("land", [(0, 1, False), (1, 4, False), (11, 3, False)])
    history.do("again", None)
    history.do("rebuild", SUMMARY)
    history.do("rebuild", LEDGER)
    history.do("readmit", None)


@pytest.mark.thorough
@at_most(5)
@given(steps=st.lists(STEP, min_size=3, max_size=6), gone=st.sampled_from(GONE))
def test_what_was_counted_stays_counted(
    steps: list[tuple[str, Any]],
    gone: tuple[str, ...],
    spark: SparkSession,
    empty_warehouse: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    place = tmp_path_factory.mktemp("history")
    history = history_in(place, spark, empty_warehouse, gone)
    for kind, what in steps:
        history.do(kind, what)
    shutil.rmtree(place)
