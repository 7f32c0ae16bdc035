"""Scopes: their names, their counts, and the history of earlier small batches."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest

from expectations import rules
from expectations.contract import Column, Contract
from expectations.suite import gate
from expectations.verdict import WHOLE, Tally
from pipelines.steps.batch_rows import SparkRows
from pipelines.steps.scopes import MOST_SCOPES, History, count, file_scope, is_of, is_of_other_cluster, scope_of, within
from pipelines.steps.split import judged_by, marked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OF_TOPICS = Contract(
    table="silver.samples",
    description="One plain and one guarded rule on rows of topics.",
    columns=(
        Column("_source", "string", "-"),
        Column("_bronze_id", "string", "-"),
        Column("topic", "string", "-"),
        Column(
            "number",
            "bigint",
            "-",
            (rules.not_null().where("topic <> 'c'"), rules.at_least(0).where("topic = 'a'").tolerated()),
        ),
    ),
    grain=("topic", "number"),
    scope="topic",
)


ROW = "_source string, _bronze_id string, topic string, number bigint"


def test_small_batches_count_newest_first_as_long_as_all_are_few() -> None:
    history = History()
    for failing, rows in ((5, 600), (9, 300), (0, 90)):
        history = history.after({"a": {0: (failing, rows)}}, ())
    assert history.recent("a", 0, 10) == (14, 990)
    assert history.recent("a", 0, 11) == (9, 390)  # 600 more rows would be too many
    assert history.recent("a", 0, 611) == (0, 90)
    assert history.recent("a", 0, 911) == (0, 0)
    assert history.recent("a", 1, 1) == history.recent("b", 0, 1) == (0, 0)
    assert history.after({}, ["a"]).recent("a", 0, 1) == (0, 0)
    assert history.after({"a": {0: (1, 1000)}}, ()).recent("a", 0, 1) == (0, 0)


def test_what_is_remembered_is_as_if_each_batch_was_kept_give_or_take_a_tiny_one() -> None:
    choose = random.Random(1)
    history, kept = History(), list[tuple[int, int]]()
    for _ in range(400):
        rows = choose.choice([1, 2, 7, 30, 200])
        batch = (choose.randrange(rows + 1), rows)
        history = History.of_json(json.loads(json.dumps(history.after({"a": {0: batch, 3: batch}}, ()).as_json())))
        kept.insert(0, batch)
        failing = read = 0
        for more_failing, more in kept:
            if read + more > 990:
                break
            failing, read = failing + more_failing, read + more
        found = history.recent("a", 3, 10)
        assert abs(found[1] - read) <= 20
        assert abs(found[0] - failing) <= 20
        assert len(json.dumps(history.as_json())) < 1_500  # however many batches there were


def test_what_is_remembered_is_bounded_in_scopes_the_last_seen_stay() -> None:
    history = History().after({"old": {0: (1, 30)}, "kept": {0: (1, 30)}}, ())
    history = history.after({f"file:{number}": {0: (1, 30)} for number in range(MOST_SCOPES - 1)}, ())
    history = history.after({"kept": {0: (1, 30)}}, ())
    assert len(history.scopes) == MOST_SCOPES
    assert history.recent("kept", 0, 1) == (2, 60)
    assert history.recent("old", 0, 1) == (0, 0)


@pytest.mark.parametrize(
    ("topic", "scope"),
    [
        ("dlq.a_B-9", "dlq.a_B-9"),
        (None, "file:dir/a.jsonl"),
        ("", "file:dir/a.jsonl"),
        ("file:dir/a.jsonl", "topic:file:dir/a.jsonl"),
        ("*", "topic:*"),
        ("..", "topic:.."),
        ("a\n", "topic:a\n"),
        ("x" * 250, "topic:" + "x" * 250),
    ],
)
def test_no_topic_is_taken_for_a_file_or_another_topic(spark: SparkSession, topic: str | None, scope: str) -> None:
    row = spark.createDataFrame([("dir/a.jsonl", topic)], "_source string, topic string")
    assert row.select(scope_of(OF_TOPICS)).collect()[0][0] == scope


CLUSTERS = ("home", "a", "a/b", "a%2Fb", "a%", "a%2", "%", "/", "file:", "cluster:a", "ÄÖ \u202e")


def test_each_scope_is_of_one_cluster_whatever_the_names(spark: SparkSession) -> None:
    topics = ("b", "dlq.orders", "b/c", "file:x", "cluster:a/b", "")
    made = [(cluster, "x/y.jsonl", topic) for cluster in CLUSTERS for topic in topics]
    rows = spark.createDataFrame(made, "cluster string, _source string, topic string")
    scoped = rows.withColumn("scope", scope_of(OF_TOPICS, "home")).withColumn(
        "of_other_cluster", is_of_other_cluster("home")
    )
    found = scoped.collect()
    assert len({row["scope"] for row in found}) == len(made)
    for row in found:
        assert [name for name in CLUSTERS if is_of(name, row["scope"], "home")] == [row["cluster"]]
        assert not row["of_other_cluster"]
    names = {
        cluster: {within(cluster, row["scope"]) for row in found if row["cluster"] == cluster} for cluster in CLUSTERS
    }
    assert all(each == names["home"] for each in names.values())


def test_counts_by_scope_are_those_of_the_expectations_and_shares_of_the_rows_in_question(spark: SparkSession) -> None:
    found = [("f", "1", "a", -1), ("f", "2", "a", None), ("f", "3", "b", -1), ("g", "4", "b", None)]
    found += [("g", "5", "c", None), ("h", "6", None, None), ("h", "7", None, 1), ("h", "8", "b", 1)]
    rows = spark.createDataFrame(found, ROW).coalesce(1)
    judged = judged_by(OF_TOPICS, marked(OF_TOPICS, rows)).cache()

    counted = count(SparkRows(judged), OF_TOPICS)

    known = {
        name: {code: (item.failing, item.examined) for code, item in scope.tallies.items()}
        for name, scope in counted.scopes.items()
    }
    assert known == {
        "a": {"number.not_null": (1, 2), "number.at_least_0": (1, 2), "row.no_violations": (1, 2)},
        "b": {"number.not_null": (1, 3), "row.no_violations": (1, 3)},
        "c": {"row.no_violations": (0, 1)},
        "file:h": dict.fromkeys(("number.not_null", "number.at_least_0", "row.no_violations"), (0, 3)),  # of all lines
    }
    assert counted.others == {"file:h": 1}
    verdict = gate(rows, OF_TOPICS, run_id="r", store=None)
    assert {outcome.code: outcome.candidates for outcome in verdict.outcomes} == counted.examined_rows
    assert {outcome.code: outcome.failing for outcome in verdict.outcomes} == {
        "number.not_null": 2,
        "number.at_least_0": 1,
        "row.no_violations": 2,
    }
    judged.unpersist()


OF_LINES = "_source string, _bronze_id string, topic string, error string, _skipped boolean"


Line = tuple[str, str | None, str | None, bool]


def unreadable_files(spark: SparkSession, *lines: Line, scope: str | None) -> set[str]:
    """The scopes of unreadable files among lines, each given by file, topic and error, and whether it is skipped."""
    contract = Contract(
        table="silver.samples",
        description="Lines that can be read, or not.",
        columns=(
            Column("_source", "string", "-"),
            Column("_bronze_id", "string", "-"),
            Column("topic", "string", "-"),
            Column("error", "string", "-", (rules.readable("error", "A line can be read."),)),
        ),
        grain=("topic",),
        scope=scope,
    )
    rows = spark.createDataFrame([(item[0], str(at), *item[1:]) for at, item in enumerate(lines)], OF_LINES).coalesce(1)
    counted = count(SparkRows(judged_by(contract, marked(contract, rows))), contract)
    assert counted.batch(contract).keys() == {name for name in counted.scopes if scope or name == WHOLE}
    return {name for name, item in counted.scopes.items() if item.is_unreadable}


def test_a_file_is_unreadable_if_no_line_of_it_can_be_read(spark: SparkSession) -> None:
    some = [("some", None, "no", False), ("some", "a", None, False), ("good", "a", None, False)]
    none = [("none", None, "no", False), ("none", None, "worse", False)]
    assert unreadable_files(spark, *some, *none, scope="topic") == {"file:none"}
    # Lines of other tables tell that a file can be read, too; a file with other tables' lines only is none of ours.
    others = [("mixed", None, "no", False), ("mixed", None, None, True), ("theirs", None, "no", True)]
    long = "x" * 1_000
    found = unreadable_files(spark, *some, *none, *others, (long, None, "no", False), scope=None)
    rows = spark.createDataFrame([(long,)], "_source string")
    assert found == {"file:none", rows.select(file_scope(None)).collect()[0][0]}


def test_recent_batches_are_in_the_counts(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("f", "1", "a", -1)], ROW)
    history = History().after({"a": {0: (4, 9), 1: (9, 9)}}, ())
    counted = count(SparkRows(judged_by(OF_TOPICS, marked(OF_TOPICS, rows))), OF_TOPICS, history)
    assert counted.scopes["a"].tallies["number.at_least_0"] == Tally(1, 1, 10, 10)
    assert counted.scopes["a"].tallies["number.not_null"] == Tally(0, 1, 4, 10)
