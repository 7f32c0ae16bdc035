"""The feed ``topology`` on real Delta tables: request log to pushes, revisions, health, changes, edges."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.catalog import stages_of_type
from pipelines.commands import describe as describe_command
from pipelines.settings import Settings
from pipelines.stage import Split
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing import engines
from tests.testing.builders import rows, warehouse_of
from tests.testing.requests import push
from tests.testing.topology_feed import DATA, HISTORICAL, SECOND, Ran, current, landed, run

SPLIT = tuple(stage.table for stage in stages_of_type(Split) if stage.feed == "topology")

# --- the captures --------------------------------------------------------------------------------------------------


def test_describe_answers_what_spark_sql_would(
    spark: SparkSession, captured_requests: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = sorted(current(spark, captured_requests))
    asked = [
        (group, form, revision)
        for group in groups
        for form, revision in (("text", None), ("json", None), ("text", 1), ("mermaid", 1))
    ]

    now = datetime.now(UTC).isoformat()

    def answers() -> list[describe_command.Answer]:
        return [
            *(
                describe_command.answer(Warehouse(captured_requests), group, form=form, revision=revision)
                for group, form, revision in asked
            ),
            *(describe_command.answer(Warehouse(captured_requests), group, at=now) for group in groups),
        ]

    without_a_jvm = answers()
    by_spark: dict[str, list[dict[str, Any]]] = {}

    def through_spark(
        warehouse: Warehouse, table: str, equal: dict[str, Any], columns: list[str] | None = None
    ) -> list[dict[str, Any]]:
        if table not in by_spark:
            by_spark[table] = jvmless.rows_by_spark(Warehouse(warehouse.settings, spark), table, {})
        found = [row for row in by_spark[table] if all(row[name] == value for name, value in equal.items())]
        return [{name: row[name] for name in columns or row} for row in found]

    monkeypatch.setattr(describe_command, "rows", through_spark)

    assert answers() == without_a_jvm
    assert by_spark.keys() == {
        *("gold.topology_current", "gold.topology_revisions"),
        *("silver.topology_pushes", "silver.topology_statuses", "silver.group_deletions"),
    }
    assert {answer.exit_code for answer in without_a_jvm} == {0, 1}


def test_pushed_topologies_have_roles_and_the_text_of_kafkas_tool(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    printed = sorted((DATA / "topology" / "printed").glob("*.json"))
    settings = warehouse_of(empty_warehouse, tmp_path)
    pushes = [
        push(number, file.stem, topology=json.loads(file.read_text(encoding="utf-8")))
        for number, file in enumerate(printed)
    ]
    landed(settings, requests=pushes)

    run(spark, settings)

    answers = {file.stem: describe_command.answer(Warehouse(settings), file.stem) for file in printed}
    expected = {file.stem: file.with_suffix(".txt").read_text(encoding="utf-8") for file in printed}
    assert {name: answer.result for name, answer in answers.items()} == expected
    edges = rows(spark, settings, "gold.topology_edges")
    roles = {(row["group_id"], row["topic"]): row["topic_role"] for row in edges if row["kind"] == "topic"}
    external = (("external-suffix-app", "crm.customers-changelog"), ("audit-reader", "audit-repartition"))
    assert {roles[place] for place in external} == {"external"}
    assert {group for (group, _), role in roles.items() if role == "internal"} == {"fk-join-app"}


# --- landing, silver, gold: many scenarios, each with groups of its own, in one run ---------------------------------


def test_each_row_of_bronze_is_counted_once(mixed_requests: Ran) -> None:
    done = {table: mixed_requests[1][table] for table in SPLIT}
    assert all(ran.read == ran.accepted + ran.quarantined + ran.duplicates + ran.skipped for ran in done.values())


def test_the_same_exchange_in_two_files_is_one(spark: SparkSession, mixed_requests: Ran) -> None:
    settings, done = mixed_requests
    assert [row["group_id"] for row in rows(spark, settings, "silver.topology_pushes")].count("twice") == 1
    described_ = [row["group_id"] for row in rows(spark, settings, "silver.topology_statuses")]
    assert (described_.count("twice"), described_.count("too")) == (1, 1)
    assert done["silver.topology_pushes"].duplicates == 1
    assert done["silver.topology_statuses"].duplicates == 2
    assert done["silver.group_heartbeats"].duplicates == 1


# --- only new input causes work -----------------------------------------------------------------------------------


@engines.compared
def test_only_groups_with_news_are_refreshed(spark: SparkSession, settings: Settings) -> None:
    landed(settings, a=[push(second, f"app-{second}") for second in range(5)])
    run(spark, settings, *HISTORICAL)
    before = Warehouse(settings).last_version("gold.topology_current")
    landed(settings, b=[push(60, "app-3", topology=SECOND)])
    done = run(spark, settings, *HISTORICAL)
    assert done["gold.topology_revisions"].message == "2 rows refreshed"
    assert done["gold.topology_current"].message == "1 row refreshed"
    changes = (
        spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", (before or 0) + 1)
        .load(Warehouse(settings).location("gold.topology_current"))
    )
    assert {row["group_id"] for row in changes.select("group_id").collect()} == {"app-3"}
