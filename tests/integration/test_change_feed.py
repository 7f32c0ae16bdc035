"""A read of a change feed must reach the last version that changed rows, or progress does not advance."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from pipelines.columns.cached import cached
from pipelines.errors import FeedIncomplete
from pipelines.settings import Settings
from pipelines.warehouse import change_feed, progress
from pipelines.warehouse.change_feed import Changes
from pipelines.warehouse.progress import Batch
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import land, line, rows, run_chain

BRONZE, SILVER, GOLD = "bronze.dlq_records", "silver.dlq_records", "gold.dlq_summary"
Feed = Callable[[Warehouse, str, Batch], DataFrame]


def without_the_last_commit(of: str, feed: Feed) -> Feed:
    """Return a reader of change feeds that misses the last commit of a table's batch."""

    def ending_early(warehouse: Warehouse, table: str, batch: Batch) -> DataFrame:
        changes = feed(warehouse, table, batch)
        return changes.where(f"_commit_version < {batch.end}") if table == of else changes

    return ending_early


@pytest.mark.usefixtures("through_delta")
@pytest.mark.parametrize(
    ("of", "into"), [(BRONZE, SILVER), pytest.param(SILVER, "gold.dlq_counts", marks=pytest.mark.thorough)]
)
def test_a_commit_that_the_feed_misses_is_not_skipped(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch, of: str, into: str
) -> None:
    land(settings, {"a.jsonl": [line(1)]})
    run_chain(spark, settings)
    before = progress.load(Warehouse(settings), into)
    land(settings, {"b.jsonl": [line(2)]})
    with monkeypatch.context() as patched:
        patched.setattr(change_feed, "_feed", without_the_last_commit(of, change_feed._feed))
        with pytest.raises(FeedIncomplete, match=f"feed of {of} ends at version"):
            run_chain(spark, settings)
    after = progress.load(Warehouse(settings), into)
    assert before is not None
    assert after is not None
    assert after.inputs == before.inputs
    run_chain(spark, settings)
    assert [row["dlq_offset"] for row in rows(spark, settings, SILVER)] == [1, 2]
    assert [row["record_count"] for row in rows(spark, settings, GOLD)] == [2]


@pytest.fixture
def through_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read changes as those of a table that is not local: through Delta's own change feed."""
    monkeypatch.setattr(change_feed, "_named_files", lambda warehouse, table, batch: None)


def append(spark: SparkSession, place: str, number: int) -> None:
    spark.range(number, number + 1).coalesce(1).write.format("delta").mode("append").save(place)


def merge_nothing(spark: SparkSession, place: str) -> None:
    merge = DeltaTable.forPath(spark, place).alias("old").merge(spark.range(90, 91).alias("new"), "old.id = new.id")
    merge.whenMatchedUpdateAll().execute()


def replace_by_the_same(spark: SparkSession, place: str) -> None:
    spark.range(1).coalesce(1).write.format("delta").mode("overwrite").option("replaceWhere", "id = 0").save(place)


def replace_nothing_by_nothing(spark: SparkSession, place: str) -> None:
    spark.range(0).write.format("delta").mode("overwrite").option("replaceWhere", "id = 70").save(place)


def compact(spark: SparkSession, place: str) -> None:
    DeltaTable.forPath(spark, place).optimize().executeCompaction()


def set_a_property(spark: SparkSession, place: str) -> None:
    spark.sql(f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('a.b' = 'c')")


def delete(spark: SparkSession, place: str) -> None:
    DeltaTable.forPath(spark, place).delete("id = 0")


def delete_nothing(spark: SparkSession, place: str) -> None:
    DeltaTable.forPath(spark, place).delete("id = 70")


def delete_all(spark: SparkSession, place: str) -> None:
    DeltaTable.forPath(spark, place).delete()


CHANGING = [replace_by_the_same, delete, delete_all]
UNCHANGING = [merge_nothing, replace_nothing_by_nothing, compact, set_a_property, delete_nothing]


@pytest.fixture(scope="module")
def four_versions(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of four versions, for tests to copy."""
    place = tmp_path_factory.mktemp("versions") / "made"
    spark.range(2).coalesce(1).write.format("delta").option("delta.enableChangeDataFeed", "true").save(f"{place}")
    for number in (10, 20, 30):
        append(spark, f"{place}", number)
    return place


@pytest.fixture
def made(spark: SparkSession, settings: Settings, four_versions: Path) -> Callable[[Any], tuple[str, Batch]]:
    """Return a function that copies the table of four versions and applies a step to it."""

    def make(step: Any) -> tuple[str, Batch]:
        place = Warehouse(settings).location("silver.made")
        shutil.copytree(four_versions, place)
        step(spark, place)
        return place, Batch(0, Warehouse(settings).last_version("silver.made") or 0)

    return make


def checked(spark: SparkSession, settings: Settings, batch: Batch) -> Changes:
    feed = change_feed.changes(Warehouse(settings, spark), "silver.made", batch)
    counts = feed.rows.groupBy("id").count()
    counts.collect()
    feed.check(counts)
    with cached(feed.rows) as kept:
        kept.collect()
        feed.check(kept)
    return feed


@pytest.mark.parametrize("step", [*CHANGING, *UNCHANGING], ids=lambda step: step.__name__)
def test_files_tell_the_same_changes_as_deltas_feed(
    spark: SparkSession, settings: Settings, made: Callable[[Any], tuple[str, Batch]], step: Any
) -> None:
    place, batch = made(step)
    append(spark, place, 0)
    step(spark, place)
    warehouse = Warehouse(settings, spark)
    last = Warehouse(settings).last_version("silver.made") or 0
    for versions in (batch, Batch(batch.end, last), Batch(0, last), Batch(last - 1, last)):
        named = change_feed._named_files(warehouse, "silver.made", versions)
        assert (named is None) == (step is set_a_property)
        if named is not None:
            by_feed = change_feed._feed(warehouse, "silver.made", versions).select("id", "_change_type")
            by_files = change_feed.changes(warehouse, "silver.made", versions).rows.select("id", "_change_type")
            assert sorted(by_files.collect()) == sorted(by_feed.collect())


@pytest.mark.usefixtures("through_delta")
@pytest.mark.parametrize("step", [*CHANGING, *UNCHANGING], ids=lambda step: step.__name__)
def test_commits_that_change_no_row_are_not_waited_for(
    spark: SparkSession,
    settings: Settings,
    made: Callable[[Any], tuple[str, Batch]],
    monkeypatch: pytest.MonkeyPatch,
    step: Any,
) -> None:
    place, batch = made(step)
    checked(spark, settings, batch)
    checked(spark, settings, Batch(batch.end - 1, batch.end))
    append(spark, place, 40)
    append(spark, place, 50)
    step(spark, place)
    after = Batch(batch.end, Warehouse(settings).last_version("silver.made") or 0)
    checked(spark, settings, after)
    monkeypatch.setattr(change_feed, "_feed", without_the_last_commit("silver.made", change_feed._feed))
    with pytest.raises(FeedIncomplete):
        checked(spark, settings, Batch(batch.end, batch.end + 2))


@pytest.mark.usefixtures("through_delta")
def test_a_plan_that_does_not_tell_is_no_proof(
    spark: SparkSession,
    settings: Settings,
    made: Callable[[Any], tuple[str, Batch]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, batch = made(delete)
    warehouse = Warehouse(settings, spark)
    change_feed.changes(warehouse, "silver.made", batch).check()
    change_feed.changes(warehouse, "silver.made", batch).check(spark.range(1))
    monkeypatch.setattr(change_feed, "_feed", without_the_last_commit("silver.made", change_feed._feed))
    for read in (None, spark.range(1)):
        with pytest.raises(FeedIncomplete):
            change_feed.changes(warehouse, "silver.made", batch).check(read)


@pytest.mark.usefixtures("through_delta")
@pytest.mark.parametrize("is_adaptive", [False, True])
def test_what_was_read_is_known_without_another_query(
    is_adaptive: bool,
    spark: SparkSession,
    settings: Settings,
    made: Callable[[Any], tuple[str, Batch]],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    _, batch = made(delete)
    feed = change_feed.changes(Warehouse(settings, spark), "silver.made", batch)
    monkeypatch.setattr(change_feed, "_feed", None)
    name = "spark.sql.adaptive.enabled"
    request.addfinalizer(partial(spark.conf.set, name, spark.conf.get(name)))
    spark.conf.set(name, is_adaptive)
    ids = feed.rows.select("id").distinct()
    ids.collect()
    feed.check(ids)
    with cached(feed.rows.distinct()) as kept:
        kept.groupBy().count().collect()
        feed.check(kept.select("id"))


@pytest.mark.usefixtures("through_delta")
def test_columns_that_nobody_asks_for_are_not_read(spark: SparkSession, settings: Settings) -> None:
    place = Warehouse(settings).location("silver.made")
    for number in range(2):
        rows = spark.range(number, number + 1).selectExpr("id", "CAST(CAST(id AS STRING) AS BINARY) AS payload")
        rows.write.format("delta").mode("append").option("delta.enableChangeDataFeed", "true").save(place)
    feed = change_feed.changes(Warehouse(settings, spark), "silver.made", Batch(0, 1))
    counts = feed.rows.where("_change_type = 'insert'").groupBy("id").count()
    plan = counts._jdf.queryExecution().executedPlan().toString()
    (schema,) = re.findall(r"ReadSchema: struct<(.*)>", plan)
    assert {name.partition(":")[0] for name in schema.split(",")} == {"id", "_change_type", "_commit_version"}
