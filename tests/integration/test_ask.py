"""`afterlog ask`: DuckDB's answers are Spark's, line by line, on the demo's records and on hostile text."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local.bundled import land as land_demo
from pipelines.catalog import stages
from pipelines.commands import arguments, ask, query, remarks
from pipelines.commands import rows as printed
from pipelines.commands.generate import generate
from pipelines.errors import UsageError
from pipelines.run import runner
from pipelines.settings import ROOT, Settings, load
from pipelines.stores import lock
from pipelines.warehouse.alert_log import FILE, outbox_store
from pipelines.warehouse.tables import Warehouse
from tests.testing import engines
from tests.testing.builders import BROKEN, kip_1191, kip_1317, land, line, run_chain, warehouse_of
from tests.testing.deliveries import store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOSTILE = (
    "o'brien\"; DROP TABLE silver.dlq_records; --",
    "\u202egpj.exe\u2066",
    'a,b\r\n"c"\t\x1b[31m\x7f',
    "e\u0301 \U0001f4a3 \\u0041 \\",
    "",
    "\u2028\ufeff\ue000",
    "NULL",
)
QUESTIONS = [
    pytest.param(name, marks=() if index % 6 == 0 else engines.THOROUGH) for index, name in enumerate(ask.questions())
]
"""Where the equality of engines is proven, some of the questions are enough to see that Spark knows their columns."""
CAPTURED = datetime(2026, 11, 21, 3, tzinfo=UTC)
MOMENTS = (
    CAPTURED,
    datetime(2026, 11, 21, 7, 29, 59, 999_999, tzinfo=timezone(timedelta(hours=5, minutes=30))),
)
OTHER_MOMENTS = (
    datetime(2026, 11, 21, 2, 30, tzinfo=UTC),
    datetime(1999, 12, 31, 23, tzinfo=UTC),  # an hour without rows
)
PLACES: tuple[dict[str, arguments.Parameter], ...] = (
    {"topic": "orders", "partition": 0, "offset": 0},
    {"topic": "hostile", "partition": 0, "offset": 1},
    {"topic": "host'ile", "partition": 0, "offset": 1},
    {"topic": "' OR true --", "partition": 0, "offset": 0},
    {"topic": "orders", "partition": -1, "offset": 2**63 - 1},
)
BY_SPARK: tuple[str, ...] = ()
"""Questions whose answers DuckDB does not give, or gives differently."""


def landed(settings: Settings) -> Settings:
    """Land generated records, those of the demo, and hostile text."""
    generate(3_000, 4, Path(settings.landing))
    land_demo(settings)
    letters = [
        line(index, topic="dlq.hostile", headers=kip_1191("hostile", index % 2, index // 4, text, 1, text))
        for index, text in enumerate(HOSTILE * 3)
    ]
    letters += [
        line(100 + index, topic="dlq.hostile", headers=kip_1317(disposition=None, original_topic=None))
        for index in range(3)
    ]
    held = [line(index, topic="dlq.held", headers=BROKEN) for index in range(12)]
    land(settings, {"hostile.jsonl": letters, "held.jsonl": held})
    return settings


@pytest.fixture(scope="module")
def few(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A warehouse with the tables of dead letters that most questions ask."""
    settings = landed(warehouse_of(empty_warehouse, tmp_path_factory.mktemp("few")))
    run_chain(spark, settings)
    return settings


@pytest.fixture(scope="module")
def rich(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A warehouse in which each question has an answer at some time."""
    settings = landed(warehouse_of(empty_warehouse, tmp_path_factory.mktemp("rich")))
    with lock.writer(settings, "test"):
        runner.run(Warehouse(settings, spark), stages())
    mistake = {"cluster": "default", "kind": "DLQ_MISSING", "group_id": HOSTILE[0], "dlq_topic": HOSTILE[1]}
    times = {"since": CAPTURED, "last_seen_at": CAPTURED}
    words = {"severity": "critical", "evidence": HOSTILE[2], "remedy": "kafka-topics.sh"}
    store(settings, "gold.dlq_misconfigurations", mistake | times | words)
    told = {
        "at": {"time": "2026-11-21T03:00:00+00:00"},
        "status": "sent",
        "route": "on-call",
        "id": "a",
        "kind": "storm",
    }
    told |= {"severity": "high", "title": HOSTILE[0], "answer": "HTTP 200", "opening_count": 1}
    news = {"kind": "opened", "severity": "low", "title": HOSTILE[2]}
    waits = {"id": "b", "route": "on-call", "news": [news], "made_at": told["at"], "answer": None}
    outbox_store(Warehouse(settings)).write(FILE, json.dumps({"log": [told], "pending": [waits]}).encode())
    return settings


def parameter_sets(question: ask.Question) -> list[dict[str, arguments.Parameter]]:
    """What to ask a question with."""
    if ":topic" in question.text:
        return [{"now": CAPTURED, **place} for place in PLACES]
    if ":now" in question.text:
        return [{"now": moment} for moment in MOMENTS]
    return [{"now": CAPTURED}]


def lines_of(rows: printed.Rows, form: str) -> list[str]:
    out = io.StringIO(newline="")
    printed.write(rows, form, out)
    return out.getvalue().split("\n")


@pytest.mark.parametrize("name", ["blast_radius", "dispositions_by_hour", "source_record_history"])
def test_answers_are_written_as_those_of_spark(name: str, few: Settings, spark: SparkSession) -> None:
    question = ask.questions()[name]
    assert compared(question, few, spark, parameter_sets(question))


@engines.thorough
@pytest.mark.parametrize("name", ask.questions())
def test_duckdb_answers_what_spark_answers(name: str, rich: Settings, spark: SparkSession) -> None:
    question = ask.questions()[name]
    assert question.by_duckdb == (name not in BY_SPARK)
    if question.by_duckdb:
        assert compared(question, rich, spark, parameter_sets(question))


@engines.thorough
@pytest.mark.parametrize("name", [name for name, question in ask.questions().items() if ":now" in question.text])
def test_duckdb_answers_what_spark_answers_at_other_times(name: str, rich: Settings, spark: SparkSession) -> None:
    compared(ask.questions()[name], rich, spark, [{"now": moment, **PLACES[0]} for moment in OTHER_MOMENTS])


def compared(
    question: ask.Question, settings: Settings, spark: SparkSession, asked: Sequence[dict[str, arguments.Parameter]]
) -> int:
    """Compare the answers to a question with some parameters, line by line; return how many rows they have."""
    warehouse = Warehouse(settings, spark)
    answered = 0
    for values in asked:
        by_spark = query.rows_of(warehouse, question.text, values).persist()
        by_duckdb = ask.rows_without_jvm(Warehouse(settings), question.text, values)
        try:
            for form in ("json", "csv", "table"):
                expected = io.StringIO(newline="")
                query.write(by_spark, form, expected)
                assert lines_of(by_duckdb, form) == expected.getvalue().split("\n"), values
        finally:
            by_spark.unpersist()
        answered += len(list(by_duckdb.texts()))
    return answered


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_answer_without_rows_has_the_columns_of_spark(name: str, spark: SparkSession, empty_warehouse: Path) -> None:
    question = ask.questions()[name]
    settings = load(warehouse=str(empty_warehouse), landing=str(empty_warehouse / "none"))
    values = {"now": CAPTURED, **PLACES[0]}
    by_spark = query.rows_of(Warehouse(settings, spark), question.text, values)
    by_duckdb = ask.rows_without_jvm(Warehouse(settings), question.text, values)
    assert by_duckdb.names == by_spark.columns
    assert list(by_duckdb.texts()) == []


def afterlog(*words: str, given: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pipelines.start", *words],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
        cwd=ROOT,
        input=given,
        stdin=subprocess.DEVNULL if given is None else None,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def places(few: Settings) -> dict[str, str]:
    return {"AFTERLOG_WAREHOUSE": few.warehouse, "AFTERLOG_LANDING": few.landing}


def test_the_command_answers_without_a_jvm(places: dict[str, str]) -> None:
    answered = afterlog(
        "ask", "top_groups", "--param", "now=2026-11-21T03:00:00Z", "--format", "json", JAVA_HOME="/none", **places
    )
    assert answered.returncode == 0, answered.stderr
    rows = [json.loads(line) for line in answered.stdout.splitlines()]
    assert len(rows) == 20
    assert rows[0]["record_count"] >= rows[-1]["record_count"]


def test_a_question_that_is_asked_wrongly(places: dict[str, str]) -> None:
    for words, said in (
        (["top_grups"], "Did you mean 'top_groups'"),
        (["source_record_history", "--param", "topic=a"], "needs values for :offset, :partition: give --param offset="),
        (
            ["source_record_history", *(f"--param={item}" for item in ("topic=a", "partition=x", "offset=1"))],
            ":partition takes a whole number, not 'x'.",
        ),
        (["top_groups", "--param", "now=x"], "is no time"),
        (["--param", "a=1"], "needs a question"),
    ):
        answered = afterlog("ask", *words, **places)
        assert (answered.returncode, answered.stdout) == (2, "")
        assert said in answered.stderr
        assert answered.stderr.count("\n") == 1


def test_questions_are_listed_in_words() -> None:
    listed = [json.loads(line) for line in afterlog("ask", "--format", "json").stdout.splitlines()]
    assert [row["question"] for row in listed] == list(ask.questions())
    assert all(row["asks"][-1] in "?." and row["asks"][0].isupper() and row["parameters"] for row in listed)
    table = afterlog("ask").stdout
    assert all(name in table for name in ask.questions())


def test_remarks_are_those_of_sql(few: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    question = ask.find("top_groups")
    values = arguments.parameters_of([])
    said = ask.answer_without_jvm(Warehouse(few), question, values, "table")
    assert said == remarks.remarks(Warehouse(few), question.text, values, 0)
    assert said
    assert capsys.readouterr().err == "0 rows\n"


def test_parameters_of_other_types_are_left_to_spark(few: Settings) -> None:
    question = ask.find("source_record_history")
    for other in ({"partition": Decimal("0.5")}, {"topic": 7}):
        assert ask.answer_without_jvm(Warehouse(few), question, {"now": CAPTURED, **PLACES[0], **other}, "csv") is None
    for wrong in ("0", True):
        with pytest.raises(UsageError, match=":partition takes a whole number"):
            ask.answer_without_jvm(Warehouse(few), question, {**PLACES[0], "partition": wrong}, "csv")


def test_statements_of_standard_input_share_a_session(places: dict[str, str]) -> None:
    told = afterlog(
        "sql",
        "--format",
        "json",
        given="select 1 as a; select ';' as b -- ;\n;\nselect nothing;\n"
        "select count(*) > 0 as c\nfrom gold.dlq_summary",
        **places,
    )
    assert [json.loads(line) for line in told.stdout.splitlines()] == [{"a": 1}, {"b": ";"}, {"c": True}]
    assert told.returncode == 2
    assert told.stderr.count("\n") == 1
    assert "nothing" in told.stderr


def test_nothing_on_standard_input_is_a_mistake(places: dict[str, str]) -> None:
    told = afterlog("sql", given="-- nothing\n ; \n", **places)
    assert (told.returncode, told.stdout) == (2, "")
    assert "Give one statement" in told.stderr
