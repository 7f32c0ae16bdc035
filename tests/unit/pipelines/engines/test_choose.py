"""What DuckDB leaves to Spark: rows that it cannot do are refusals, SQL that it cannot read is a defect of Afterlog."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from pipelines.engines import choose
from pipelines.engines.choose import SPARK, Choice, UnsupportedByDuckDB, left_to_spark
from pipelines.engines.duckdb import sessions
from pipelines.engines.duckdb.nodes import Untranslatable


@pytest.mark.parametrize(
    ("text", "is_defect"),
    [
        pytest.param("SELECT CAST('x' AS INT)", False, id="no number"),
        pytest.param("SELECT CAST(300 AS TINYINT)", False, id="a large number"),
        pytest.param("SELECT error('division by zero')", False, id="an error of a macro"),
        pytest.param("SELECT decode('\\xFF'::BLOB)", False, id="no UTF-8"),
        pytest.param("SELECT nothing FROM range(1)", True, id="no such column"),
        pytest.param("FROM nowhere", True, id="no such table"),
        pytest.param("SELECT no_function(1)", True, id="no such function"),
        pytest.param("SELECT FROM WHERE", True, id="no SQL"),
        pytest.param("SELECT 1 IN (SELECT 1, 2)", True, id="two columns instead of one"),
    ],
)
def test_sql_that_duckdb_cannot_read_is_a_defect_and_what_rows_do_is_none(
    text: str, is_defect: bool, tmp_path: Path
) -> None:
    with (
        sessions.connected(str(tmp_path)) as connection,
        pytest.raises(UnsupportedByDuckDB) as raised,
        sessions.refusals(),
    ):
        connection.sql(text).fetchall()
    assert (raised.value.is_refusal, raised.value.is_defect) == (True, is_defect)
    assert "nothing" not in str(raised.value)  # a message of DuckDB can quote a value


@pytest.mark.parametrize(
    ("left", "level"),
    [
        (UnsupportedByDuckDB("its rows are many"), None),
        (Untranslatable("an order"), logging.WARNING),
        (sessions.Mistaken("BinderException"), logging.ERROR),
    ],
)
def test_a_run_tells_refusals_and_louder_defects(
    left: UnsupportedByDuckDB, level: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    assert left_to_spark("gold.made", left) == Choice(SPARK, str(left))
    assert [record.levelno for record in caplog.records] == ([level] if level else [])
    assert all("gold.made" in record.getMessage() and str(left) in record.getMessage() for record in caplog.records)


def test_tests_fail_at_a_defect() -> None:
    with pytest.raises(AssertionError, match="cannot read the SQL for gold"):
        choose.left_to_spark("gold.made", sessions.Mistaken("BinderException"))
