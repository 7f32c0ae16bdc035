"""Rows that could not be read in words: reasons, numbers and first places, alike from every engine."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as arrow  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from expectations.contract import contract_of
from expectations.silver.dlq_records import CONTRACT
from pipelines.catalog import stages_of_type
from pipelines.engines.duckdb import sessions
from pipelines.engines.duckdb.translate import translated
from pipelines.settings import LANDING_DIRECTORIES, Settings
from pipelines.sources import what_lands
from pipelines.stage import Split
from pipelines.steps import unreadable
from pipelines.steps.unreadable import Unreadable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_JSON, NO_OBJECT = "the line is not valid JSON", "the line is not a JSON object"


def told(settings: Settings, *groups: tuple[str, str, int, list[str]], all_rows: int = 0) -> Unreadable:
    """What is told of groups, each given by its source, its reason, the number of its rows, and lines of it."""
    rows = all_rows or sum(number for _, _, number, _ in groups)
    found = [
        ("*", source, reason, number, [hashlib.sha256(line.encode()).hexdigest()[:16] for line in lines], rows)
        for source, reason, number, lines in groups
    ]
    assert CONTRACT.readable is not None
    known = unreadable._told_of(found, CONTRACT, CONTRACT.readable, settings)
    assert known is not None
    return known


@pytest.fixture
def landed(settings: Settings) -> Path:
    directory = settings.landing_of("dlq")
    directory.mkdir(parents=True)
    return directory


def test_reasons_come_with_numbers_and_ranges_of_lines(settings: Settings, landed: Path) -> None:
    orders = [f"order {number}" for number in range(40)]
    (landed / "orders.txt").write_text("\n".join(orders) + "\n")
    (landed / "audit.txt").write_text("{}\n{}\n{\n")
    known = told(settings, ("orders.txt", NO_OBJECT, 40, orders), ("audit.txt", NO_JSON, 1, ["{"]))
    assert known.sentence() == (
        f"41 lines cannot be read: orders.txt lines 1-40 (40 lines): {NO_OBJECT}; "
        f"audit.txt line 3 (1 line): {NO_JSON}. {what_lands.sentence('dlq')}"
    )


def test_a_few_reasons_are_told_and_how_many_rows_have_others(settings: Settings) -> None:
    groups = [(f"{name}.txt", NO_JSON, 10 - at, [f"{name}{at}"]) for at, name in enumerate("abcdefg")]
    *words, last = told(settings, *groups, all_rows=1_049).words
    assert words == [f"{name}.txt ({10 - at} lines): {NO_JSON}" for at, name in enumerate("abcd")]
    assert last == "and 1,015 more"


def test_hostile_names_are_made_visible_and_short(settings: Settings) -> None:
    (words,) = told(settings, ("a\n\x1b[31m\u202e" + "x" * 2_000, NO_JSON, 1, ["x"])).words
    assert words.isprintable()
    assert len(words) < 400


def test_each_feed_has_a_sentence_on_its_forms() -> None:
    assert what_lands.FORMS.keys() == set(LANDING_DIRECTORIES)


def test_each_split_table_knows_the_rows_that_could_not_be_read() -> None:
    for stage in stages_of_type(Split):
        contract = contract_of(stage.table)
        if stage.table == "silver.log_files":  # silver.record_batches tells of the same rows of bronze
            continue
        assert contract.readable is not None, stage.table
        assert contract.readable.reason in {column.name for column in contract.columns}


def test_engines_answer_alike(spark: SparkSession, tmp_path: Path) -> None:
    choose = random.Random(1)
    reasons = (NO_JSON, NO_OBJECT, None)
    rows = [(f"{choose.randrange(30)}.txt", f"{at:064x}", choose.choice(reasons)) for at in range(400)]
    columns = [list(column) for column in zip(*rows, strict=True)]
    table = arrow.table(dict(zip(("_source", "_bronze_id", "error"), columns, strict=True)))
    text = unreadable.question("error", "'*'", "true")

    def plain(answer: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
        return [(*row[:4], sorted(row[4]), row[5]) for row in answer]

    by_spark = plain(spark.sql(text, rows=spark.createDataFrame(table)).collect())
    with sessions.session(str(tmp_path)) as connection:
        connection.register("kept", table)
        by_duckdb = plain(connection.sql(translated(text.format(rows="kept"))).fetchall())
    write_deltalake(str(tmp_path / "kept"), table)
    kept = QueryBuilder().register("kept", DeltaTable(str(tmp_path / "kept")))
    answer = arrow.table(kept.execute(text.format(rows="kept")))
    by_deltalake = plain([tuple(row.values()) for row in answer.to_pylist()])
    assert by_spark == by_duckdb == by_deltalake
    assert len(by_spark) == unreadable.MOST_LOCATED
    assert {reason for *_, reason, _, _, _ in by_spark[:2]} == {NO_JSON, NO_OBJECT}  # each one before a second file
    assert by_spark[0][5] == sum(reason is not None for *_, reason in rows)
