"""Statements on a cluster's settings -> silver.cluster_settings: those that cannot be judged are quarantined."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from expectations.rules import GREATEST_MILLIS
from pipelines.settings import Settings
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import land, rows, run, warehouse_of
from tests.testing.statements import at, topic

TABLES = ("bronze.cluster_settings", "silver.cluster_settings")


@pytest.fixture
def settings(empty_warehouse: Path, tmp_path: Path) -> Settings:
    return warehouse_of(empty_warehouse, tmp_path, tolerance=1.0)


def changed(**values: Any) -> str:
    """A line about a topic with other values; Ellipsis leaves one out."""
    line = json.loads(topic("bad", 0)) | values
    return json.dumps({name: value for name, value in line.items() if value is not ...})


def test_statements_that_cannot_be_judged_are_quarantined(spark: SparkSession, settings: Settings) -> None:
    item, other = {"name": "a", "value": "1", "source": None}, {"name": "a", "value": "2", "source": None}
    bad = {
        changed(kind="client"): "kind.one_of",
        changed(kind=...): "kind.not_null",
        changed(name=""): "name.named",
        changed(name=None): "name.not_null",
        changed(state="gone"): "state.one_of",
        changed(state=...): "state.not_null",
        changed(observed_at=-1): f"observed_at.between_0_and_{GREATEST_MILLIS}",
        changed(observed_at=...): "observed_at.not_null",
        changed(settings=...): "settings.not_null",
        changed(settings=[{"value": "1"}]): "settings.each_named",
        changed(settings=[item, other]): "settings.each_named",
        changed(settings=[{"name": "a", "value": {"b": 1}}], observed_at="soon"): "line_error.readable",
        "no JSON": "line_error.readable",
    }
    land(settings, {"a.jsonl": [*bad, topic("good", 1), topic("good", 1)]}, "cluster-settings")

    done = run(spark, settings, *TABLES, feed="collect")

    assert done["bronze.cluster_settings"].duplicates == 1
    (good,) = rows(spark, settings, "silver.cluster_settings")
    assert (good["kind"], good["name"], good["state"]) == ("topic", "good", "present")
    assert good["observed_at"] == at(1).replace(tzinfo=None)
    assert {"name": "cleanup.policy", "value": "delete", "source": None} in good["settings"]
    found = rows(spark, settings, "quarantine.cluster_settings")
    why = {bytes(row["line"]).decode(): row["violations"] for row in found}
    assert why.keys() == bad.keys()
    assert [(line, codes) for line, codes in why.items() if bad[line] not in codes] == []


@pytest.mark.parametrize("at_once", [True, False], ids=["one batch", "two batches"])
def test_a_statement_that_contradicts_one_of_its_moment_is_quarantined(
    spark: SparkSession, settings: Settings, at_once: bool
) -> None:
    said = json.loads(topic("t", 0))
    again = json.dumps(said | {"settings": said["settings"][::-1]})
    other = topic("t", 0, {"cleanup.policy": "compact"})
    if at_once:
        land(settings, {"a.jsonl": [topic("t", 0), again, other]}, "cluster-settings")
    else:
        land(settings, {"a.jsonl": [topic("t", 0)]}, "cluster-settings")
        run(spark, settings, *TABLES, feed="collect")
        land(settings, {"b.jsonl": [again, other]}, "cluster-settings")
    run(spark, settings, *TABLES, feed="collect")
    kept = rows(spark, settings, TABLES[1])
    refused = rows(spark, settings, "quarantine.cluster_settings")
    policies = {
        values["value"] for row in (*kept, *refused) for values in row["settings"] if values["name"] == "cleanup.policy"
    }
    assert (len(kept), policies) == (1, {"delete", "compact"})  # the lowest _bronze_id of a batch stands
    assert {tuple(row["violations"]) for row in refused} == {("grain.conflict",)}


def test_a_table_of_an_earlier_version_takes_statements(spark: SparkSession, settings: Settings) -> None:
    land(settings, {"a.jsonl": [topic("t", 0), topic("u", 0)]}, "cluster-settings")
    run(spark, settings, *TABLES, feed="collect")
    before = Warehouse(settings, spark).read(TABLES[1]).drop("_content_hash")
    place = Warehouse(settings).location(TABLES[1])
    before.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(place)
    land(settings, {"b.jsonl": [topic("t", 0), topic("t", 1), topic("v", 0)]}, "cluster-settings")
    done = run(spark, settings, feed="collect")
    assert {stage_run.status for stage_run in done.values()} == {"passed"}
    found = {(row["name"], row["_content_hash"] is None) for row in rows(spark, settings, TABLES[1])}
    assert found == {("t", True), ("u", True), ("t", False), ("v", False)}
