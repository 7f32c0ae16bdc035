"""Which engine makes a table, and why: the setting decides, every table is the same, and the run says it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.equal_tables import Comparer, Renames
from local import bundled
from pipelines.catalog import CATALOG
from pipelines.commands import display
from pipelines.engines.choose import DUCKDB, SPARK, suits_duckdb
from pipelines.engines.duckdb import engine
from pipelines.engines.duckdb.nodes import Untranslatable
from pipelines.run.runner import run
from pipelines.settings import Settings
from pipelines.stage import Derive, Split, Summarise
from pipelines.warehouse import jvmless
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse
from tests.testing import engines
from tests.testing.builders import BROKEN, kip_1191, land, line, run_chain, warehouse_of
from tests.testing.deliveries import acknowledgement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

Engines = dict[str, dict[str, StageRun]]


def ran(spark: SparkSession, settings: Settings, engine: str) -> dict[str, StageRun]:
    """Run all feeds by an engine; return the stages that had input, by table."""
    done = run(Warehouse(settings.model_copy(update={"engine": engine}), spark), CATALOG)
    assert not [stage_run for stage_run in done if stage_run.status not in ("passed", "idle", "broken")], done
    return {stage_run.table: stage_run for stage_run in done if stage_run.status != "idle"}


def by_both(spark: SparkSession, empty: Path, scratch: Path, fill: object) -> tuple[Engines, list[Settings]]:
    found: Engines = {}
    made = []
    for setting in ("auto", SPARK):
        settings = warehouse_of(empty, scratch / setting)
        if made:  # tables tell when files were written
            shutil.copytree(made[0].landing, settings.landing, dirs_exist_ok=True)
        else:
            fill(settings)  # type: ignore[operator]
        found[setting] = ran(spark, settings, setting)
        made.append(settings)
    return found, made


def check(found: Engines, made: Iterable[Settings]) -> None:
    """Check who made what, and that all tables are the same."""
    kinds = {stage.table: stage for stage in CATALOG if isinstance(stage, Split | Summarise)}
    for table, stage_run in found[SPARK].items():
        if table in kinds:
            assert (stage_run.engine, stage_run.engine_reason) == (SPARK, "the setting engine asks for it")
    of_auto = {table: stage_run.engine for table, stage_run in found["auto"].items() if table in kinds}
    claimed = {table for table in of_auto if isinstance(kinds[table], Split) or suits_duckdb(table)}
    assert of_auto == {table: DUCKDB if table in claimed else SPARK for table in of_auto}
    both = Comparer(Renames()).warehouses(*(Path(settings.warehouse) for settings in made))
    different = {comparison.table: comparison.findings for comparison in both if not comparison.is_equal}
    assert {table for table in different if not table.startswith("quality.")} == set(), different  # they tell engines


def few(settings: Settings) -> None:
    land(settings, {"a.jsonl": [line(0), *(line(at, headers=kip_1191("orders", 0, at)) for at in range(1, 9))]})
    land(settings, {"b.jsonl": [line(200, topic="dlq.other", headers=BROKEN)]})
    directory = settings.landing_of("acknowledgements")
    directory.mkdir(parents=True, exist_ok=True)
    lines = [acknowledgement("orders", 0, offset, offset) for offset in range(12)]
    (directory / "a.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.mark.thorough
def test_every_table_is_the_same_by_either_engine(spark: SparkSession, empty_warehouse: Path, tmp_path: Path) -> None:
    found, made = by_both(spark, empty_warehouse, tmp_path, few)
    check(found, made)
    assert {stage.table for stage in CATALOG if isinstance(stage, Derive)} <= found["auto"].keys()


@engines.thorough
def test_every_table_of_the_demo_is_the_same_by_either_engine(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    check(*by_both(spark, empty_warehouse, tmp_path, bundled.land))


def test_a_run_says_which_engine_did_what(
    spark: SparkSession, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    land(settings, {"a.jsonl": [line(at) for at in range(3)]})
    by_default = run_chain(spark, settings)
    told = jvmless.rows(Warehouse(settings), "quality.stage_runs", {"table": "gold.dlq_summary"})
    reason = "the groups that changed fit one machine"
    assert {(row["engine"], row["engine_reason"]) for row in told} == {(DUCKDB, reason)}
    assert json.loads(json.dumps(by_default["gold.dlq_summary"].as_json()))["engine"] == DUCKDB
    display.stage_runs([*by_default.values()])
    said = capsys.readouterr().out
    assert "DuckDB computed or decided " in said
    assert reason in said
    land(settings, {"b.jsonl": [line(3)]})
    by_spark = run_chain(spark, settings.model_copy(update={"engine": SPARK}))
    assert {stage_run.engine for table, stage_run in by_spark.items() if table != "bronze.dlq_records"} == {SPARK}
    display.stage_runs([*by_spark.values()])
    assert "as the setting engine asks for it." in capsys.readouterr().out


def test_a_refusal_is_told_once_and_left_to_spark(
    spark: SparkSession,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refused(text: str) -> str:
        if "hour" in text:
            raise Untranslatable("a function that it does not have")
        return translated(text)

    translated = engine.translated
    monkeypatch.setattr(engine, "translated", refused)
    land(settings, {"a.jsonl": [line(at, headers=kip_1191("orders", 0, at)) for at in range(3)]})
    done = run_chain(spark, settings)
    assert done["gold.dlq_summary"].engine == SPARK
    assert done["gold.dlq_summary"].engine_reason == "a function that it does not have"
    told = [record.getMessage() for record in caplog.records if "gold.dlq_summary" in record.getMessage()]
    assert told == ["DuckDB cannot do gold.dlq_summary (a function that it does not have), so Spark does it."]
