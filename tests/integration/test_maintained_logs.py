"""`afterlog maintain` cuts logs, and what needs older commits goes on: a stage within a batch, a plan, backups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines import restore
from pipelines.backup import backup
from pipelines.replay import actions as replays
from pipelines.replay import store
from pipelines.replay.choice import Choice
from pipelines.replay.judge import Options
from pipelines.settings import Replay, Settings
from pipelines.warehouse import progress
from pipelines.warehouse.progress import Batch
from pipelines.warehouse.tables import Warehouse
from tests.testing.backups import INPUT, change, filled, read_on, readable
from tests.testing.builders import land, line, rows, run_chain
from tests.testing.replays import no_rules
from tests.testing.upkeep import commits, maintained

BRONZE, SILVER, REPLAYS = "bronze.dlq_records", "silver.dlq_records", "gold.replays"


def test_a_batch_and_a_plan_that_wait_for_weeks_are_done(
    spark: SparkSession, settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    replay = Replay(rules=no_rules(tmp_path))
    settings = settings.model_copy(update={"engine": "spark", "replay": replay})  # whose readers know the old log
    warehouse = Warehouse(settings)
    land(settings, {"0.jsonl": [line(0)]})
    run_chain(spark, settings)
    draft = replays.drawn(warehouse, Choice(where="true"), Options(), dry_run=True)
    assert store.keep(warehouse, draft)
    maintained(settings, [BRONZE], 2)
    run_chain(spark, settings)
    known = progress.load(warehouse, SILVER)
    assert known is not None
    read = known.version_of(BRONZE)
    assert read is not None
    land(settings, {"1.jsonl": [line(1)]})
    run_chain(spark, settings, BRONZE)
    fixed = Batch(read, warehouse.last_version(BRONZE) or 0)  # by a run that was killed then
    progress.save(warehouse, SILVER, replace(known, pending={BRONZE: fixed}, again=()))
    maintained(settings, [BRONZE, REPLAYS], 2)
    land(settings, {"2.jsonl": [line(2)]})
    run_chain(spark, settings, BRONZE)

    maintained(settings, [BRONZE, REPLAYS], 1)

    assert 0 < commits(settings, BRONZE)[0] <= read + 1
    assert commits(settings, REPLAYS)[0] > 0
    caplog.clear()
    done = [run_chain(spark, settings)[SILVER] for _ in range(2)]
    assert [(ran.status, ran.read, ran.accepted) for ran in done] == [("passed", 1, 1), ("idle", 0, 0)]
    assert not [record for record in caplog.records if "reading all" in record.message]
    assert [row["dlq_offset"] for row in rows(spark, settings, SILVER)] == [0, 1, 2]
    (plan,) = store.plans(warehouse)
    assert replays.expiries(warehouse, [plan]) == {draft.plan.plan_id: None}
    assert [letter.offset for letter in store.letters(warehouse, [draft.plan.plan_id])[draft.plan.plan_id]] == [0]


def test_backups_from_before_and_after_a_cut_come_back(settings: Settings, tmp_path: Path) -> None:
    settings = settings.model_copy(update={"warehouse": str(tmp_path / "small")})
    warehouse, place = filled(settings), str(tmp_path / "backups")
    known = {}
    for _ in range(4):
        made = backup(settings, place, None, False, print)
        known[str(made.backup)] = (readable(warehouse), commits(settings, INPUT))
        change(warehouse, INPUT, "append", [made.files])
        for _ in range(3):  # the stage reads all, and is within a batch again
            read_on(warehouse)
        maintained(settings, [INPUT], 2)
    firsts = [of_log[0] for _, of_log in known.values()]
    assert firsts[0] == 0 < firsts[-2] < firsts[-1]
    for name, (content, of_log) in known.items():
        back = settings.model_copy(update={"warehouse": str(tmp_path / name)})
        restore.restore(back, place, name)
        assert (readable(Warehouse(back)), commits(back, INPUT)) == (content, of_log)
