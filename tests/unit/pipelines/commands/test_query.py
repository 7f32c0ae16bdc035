from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from expectations.gold.dlq_summary import CONTRACT as SUMMARY
from pipelines.catalog import CATALOG
from pipelines.commands import arguments, query, statements, stored
from pipelines.errors import UsageError
from pipelines.settings import ROOT, Settings, load
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = {"now": datetime(2026, 11, 21, 2, tzinfo=UTC)}


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        pytest.param("select 1", set(), id="none"),
        pytest.param("SELECT * FROM Silver.DLQ_Records", {"silver.dlq_records"}, id="any case"),
        pytest.param("select * from `silver`.`dlq_records`", {"silver.dlq_records"}, id="backticks"),
        pytest.param("from spark_catalog.gold.a join gold . b", {"gold.a", "gold.b"}, id="catalog and spaces"),
        pytest.param("select * from silver/* why */.a -- and gold.b\nwhere 1", {"silver.a"}, id="comments"),
        pytest.param("select /* /* gold.a */ gold.b */ * from gold.c", {"gold.c"}, id="comments nest"),
        pytest.param("select 'gold.a', \"gold.b\", 'it\\'s gold.c', r'\\' from gold.d", {"gold.d"}, id="literals"),
        pytest.param("select t.gold.a, quality.b from bronze.c t", {"quality.b", "bronze.c"}, id="a field of a column"),
        pytest.param("select 'open gold.a", {"gold.a"}, id="an open literal is Spark's to refuse"),
        pytest.param("select 1 /* gold.a", set(), id="an open comment too"),
    ],
)
def test_a_statement_names_its_tables(text: str, tables: set[str]) -> None:
    assert statements.statement_tables(text) == tables


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        pytest.param("p=orders", "orders", id="text"),
        pytest.param("p=a=b", "a=b", id="text with ="),
        pytest.param("p=", "", id="nothing"),
        pytest.param("p=-7", -7, id="whole number"),
        pytest.param("p=9223372036854775808", Decimal("9223372036854775808"), id="larger than a bigint"),
        pytest.param("p=0.10", Decimal("0.10"), id="decimal"),
        pytest.param("p=٣", "٣", id="digits of another script are text"),
        pytest.param("p='7'", "7", id="quoted number"),
        pytest.param("p=true", True, id="boolean"),
        pytest.param("p=2026-11-21", date(2026, 11, 21), id="date"),
        pytest.param("p=2026-11-21T02:00:00", datetime(2026, 11, 21, 2, tzinfo=UTC), id="timestamp without zone"),
        pytest.param("p=2026-13-41", "2026-13-41", id="no date"),
    ],
)
def test_a_parameter_is_typed_by_its_form(argument: str, value: arguments.Parameter) -> None:
    typed = arguments.parameters_of([argument])["p"]

    assert (typed, type(typed)) == (value, type(value))


def test_now_is_the_present_unless_it_is_given() -> None:
    assert abs((datetime.now(UTC) - arguments.parameters_of([])["now"]).total_seconds()) < 60  # type: ignore[operator]
    assert arguments.parameters_of(["now=2026-11-21"])["now"] == datetime(2026, 11, 21, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param("topic", "--param NAME=VALUE", id="no ="),
        pytest.param("a b=1", "--param NAME=VALUE", id="no name"),
        pytest.param("now=someday", "no time", id="now is text"),
        pytest.param("now=5", "no time", id="now is a number"),
    ],
)
def test_a_parameter_that_cannot_be_used(given: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        arguments.parameters_of([given])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param(["grup=a"], ":grup in it; it takes :group. Did you mean 'group'?", id="near"),
        pytest.param(["group=a", "topic=b"], "There is no parameter :topic in it; it takes :group.", id="more"),
        pytest.param(["nwo=2026-11-21"], "There is no parameter :nwo in it; it takes :group.", id="near to now"),
        pytest.param(["group=a", "now=2h"], ":now in it; it takes :group. It tells what is known now.", id="now"),
    ],
)
def test_a_parameter_that_the_statement_does_not_take_is_refused(given: list[str], said: str) -> None:
    text = "SELECT ':no', 1 -- :none\nFROM t WHERE g = :group"
    assert arguments.parameters_of(["group=a"], text)["group"] == "a"
    assert arguments.parameters_of(["now=2026-11-21"], "SELECT :now")["now"] == datetime(2026, 11, 21, tzinfo=UTC)
    with pytest.raises(UsageError, match="it takes none"):
        arguments.parameters_of(["now=2026-11-21"], "SELECT 1")
    with pytest.raises(UsageError, match=re.escape(said)):
        arguments.parameters_of(given, text)
    assert arguments.parameters_of(given, "what only Spark can parse (:group")


def test_a_statement_comes_from_an_argument_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "a.sql"
    file.write_text("select 'ö'", encoding="utf-8")

    assert arguments.text_of(None, file) == "select 'ö'"
    assert arguments.text_of("select 1", None) == "select 1"
    for statement, path in ((None, None), ("select 1", file), (None, tmp_path / "none.sql"), (None, tmp_path)):
        with pytest.raises(UsageError):
            arguments.text_of(statement, path)
    file.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="not UTF-8"):
        arguments.text_of(None, file)


def test_a_question_that_is_not_there_is_told_what_may_be_meant(tmp_path: Path) -> None:
    for file, said in (
        (tmp_path / "top_group.sql", "Did you mean 'top_groups'"),
        (Path("top_groups"), f"That question is {ROOT}/sql/questions/top_groups.sql"),
        (tmp_path / "a\x1b.sql", r"a\\u001b.sql cannot be read: No such file or directory\.$"),
    ):
        with pytest.raises(UsageError, match=said):
            arguments.text_of(None, file)


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A warehouse with only a gold table, which has one row."""
    directory = tmp_path_factory.mktemp("query")
    settings = load(warehouse=str(directory / "warehouse"), landing=str(directory / "landing"))
    at = datetime(2026, 11, 21, 1, 30, tzinfo=UTC)
    Warehouse(settings, spark).ensure(SUMMARY)
    known = {
        **{"cluster": "default", "hour": at.replace(minute=0), "dlq_topic": "dlq.orders", "original_topic": "orders"},
        **{"consumer_group": "orders-workers", "record_count": 3, "source_record_count": 2, "without_payload_count": 0},
        **{"most_deliveries": 5, "first_routed_at": at, "last_routed_at": at},
    }
    row = [known.get(column.name) for column in SUMMARY.stored]
    schema = ", ".join(f"{column.name} {column.type}" for column in SUMMARY.stored)
    place = Warehouse(settings).location(SUMMARY.table)
    spark.createDataFrame([row], schema).write.format("delta").mode("append").save(place)
    return settings


@pytest.fixture
def ask(spark: SparkSession, warehouse: Settings) -> Callable[..., str]:
    def asked(text: str, form: str = "json", width: int | None = None, **values: arguments.Parameter) -> str:
        out = io.StringIO()
        query.write(query.rows_of(Warehouse(warehouse, spark), text, NOW | values), form, out, width=width)
        return out.getvalue()

    return asked


def test_tables_of_the_warehouse_answer_by_name(ask: Callable[..., str]) -> None:
    text = (
        "select record_count, disposition, first_routed_at from gold.dlq_summary where hour < :now and dlq_topic = :t"
    )

    assert json.loads(ask(text, t="dlq.orders")) == {
        "record_count": 3,
        "disposition": None,
        "first_routed_at": "2026-11-21T01:30:00.000000Z",
    }
    assert ask(text, t="' or true or dlq_topic = '") == ""
    assert "dlq_summary" in {json.loads(line)["tableName"] for line in ask("show tables in gold").splitlines()}
    assert json.loads(ask("describe gold.dlq_summary").splitlines()[0])["col_name"] == "cluster"
    assert [json.loads(line)["version"] for line in ask("describe history gold.dlq_summary").splitlines()] == [1, 0]
    assert "Scan" in ask("explain select * from gold.dlq_summary")
    assert json.loads(ask("from gold.dlq_summary |> select hour"))["hour"] == "2026-11-21T01:00:00.000000Z"


def test_explain_names_columns(spark: SparkSession, ask: Callable[..., str]) -> None:
    spark.conf.set("spark.sql.debug.maxToStringFields", "0")  # as in conf/spark-defaults.conf
    assert "dlq_topic" in ask("EXPLAIN SELECT hour, dlq_topic FROM gold.dlq_summary", form="json")


def test_freshness_is_made_when_a_statement_names_it(ask: Callable[..., str]) -> None:
    rows = [json.loads(line) for line in ask("select * from quality.freshness order by `table`").splitlines()]

    assert [row["table"] for row in rows] == sorted(stage.table for stage in CATALOG)
    assert rows[0]["unread_files"] == 0
    assert rows[0]["blocked_since"] is None


@pytest.mark.parametrize(
    "text",
    [
        "delete from gold.dlq_summary",
        "update gold.dlq_summary set record_count = 0",
        "insert into gold.dlq_summary select * from gold.dlq_summary",
        "with a as (select * from gold.dlq_summary) insert into gold.dlq_summary select * from a",
        "from gold.dlq_summary insert into gold.dlq_summary select * insert into gold.dlq_summary select *",
        "insert overwrite directory '/tmp/no' select 1",
        "merge into gold.dlq_summary a using gold.dlq_summary b on a.hour = b.hour when matched then delete",
        "drop table gold.dlq_summary",
        "create table gold.other as select 1",
        "create or replace table gold.dlq_summary shallow clone gold.dlq_summary",
        "restore table gold.dlq_summary to version as of 0",
        "alter table gold.dlq_summary add column x int",
        "truncate table gold.dlq_summary",
        "vacuum gold.dlq_summary",
        "optimize gold.dlq_summary",
        "execute immediate 'drop table gold.dlq_summary'",
        "begin drop table gold.dlq_summary; end",
        "set spark.sql.shuffle.partitions = 1",
        "call system.rollback()",
    ],
)
def test_what_writes_is_refused(text: str, ask: Callable[..., str], warehouse: Settings) -> None:
    with pytest.raises(UsageError, match="only reads"):
        ask(text)
    assert Warehouse(warehouse).last_version("gold.dlq_summary") == 1  # which has the one row


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("selec 1", "Syntax error at or near 'selec'", id="syntax"),
        pytest.param("select 1; select 2", "Syntax error", id="two statements"),
        pytest.param(" -- nothing", "Syntax error", id="nothing"),
        pytest.param(
            "select * from silver.nope",
            "no table silver.nope. There are bronze.dlq_records, .* more",
            id="unknown table",
        ),
        pytest.param("select * from orders", "no table orders. There are .* more", id="no layer"),
        pytest.param(
            "select * from silver.dlq_recrods",
            "no table silver.dlq_recrods. Did you mean .*'silver.dlq_records'.*SHOW TABLES",
            id="mistyped table",
        ),
        pytest.param("select * from silver.dlq_records", "`afterlog run` creates it", id="not there yet"),
        pytest.param("select recordcount from gold.dlq_summary", "Did you mean .*record_count", id="unknown column"),
        pytest.param("select * from gold.dlq_summary where dlq_topic = :t", "give --param t=VALUE", id="parameter"),
        pytest.param("select 1 as a, 2 as a", "Two columns are called a", id="two columns of one name"),
        pytest.param("select cast(dlq_topic as int) from gold.dlq_summary", "CAST_INVALID_INPUT", id="fails on a row"),
    ],
)
def test_what_cannot_be_answered_is_one_sentence(text: str, said: str, ask: Callable[..., str]) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        ask(text)
    sentence = str(refused.value)
    assert "\n" not in sentence
    assert "SQLSTATE" not in sentence
    if said == "CAST_INVALID_INPUT":
        assert "dlq.orders" not in sentence


TYPES = """
  select
    9223372036854775807L as big, 1.50BD as dec, double('NaN') as nan, X'00ff' as bin,
    timestamp'2026-11-21 02:00:00.123Z' as at,
    timestamp_ntz'2026-11-21 02:00:00' as local, date'2026-11-21' as day, array(1, null) as list,
    named_struct('a', cast(null as int), 'b', X'ff') as thing, cast(null as string) as nothing, 'a"b,c\\nd' as text
"""


def test_json_keeps_every_type(ask: Callable[..., str]) -> None:
    line = ask(TYPES)

    assert json.loads(line, parse_float=Decimal) == {
        "big": 9223372036854775807,
        "dec": Decimal("1.50"),
        "nan": "NaN",
        "bin": "AP8=",
        "at": "2026-11-21T02:00:00.123000Z",
        "local": "2026-11-21T02:00:00.000000",
        "day": "2026-11-21",
        "list": [1, None],
        "thing": {"a": None, "b": "/w=="},
        "nothing": None,
        "text": 'a"b,c\nd',
    }
    assert line.count("\n") == 1


@pytest.mark.parametrize("form", ["csv", "json", "table"])
def test_base64_is_one_line_that_reads_back(ask: Callable[..., str], form: str) -> None:
    content = bytes(range(256)) * 3
    statement = f"SELECT unhex('{content.hex()}') AS shown, base64(unhex('{content.hex()}')) AS encoded"

    text = ask(statement, form)

    fields: list[str] = {
        "csv": lambda: list(csv.reader(io.StringIO(text)))[1],
        "json": lambda: list(json.loads(text).values()),
        "table": lambda: text.splitlines()[-1].split(),
    }[form]()
    assert [b64decode(field, validate=True) for field in fields] == [content, content]


def test_csv_is_rfc_4180_and_tells_null_from_empty(ask: Callable[..., str]) -> None:
    text = ask(f"select * except (thing), '' as empty from ({TYPES})", "csv")

    header, row = csv.reader(io.StringIO(text, newline=""))
    assert dict(zip(header, row, strict=True)) == {
        "big": "9223372036854775807",
        "dec": "1.50",
        "nan": "NaN",
        "bin": "AP8=",
        "at": "2026-11-21T02:00:00.123000Z",
        "local": "2026-11-21T02:00:00.000000",
        "day": "2026-11-21",
        "list": "[1,null]",
        "nothing": "",
        "text": 'a"b,c\nd',
        "empty": "",
    }
    assert text.endswith('[1,null]",,"a""b,c\nd",""\r\n') or ',,"a""b,c\nd",""\r\n' in text


def test_a_table_is_aligned_and_hides_nothing(ask: Callable[..., str]) -> None:
    text = ask(
        "select * from values ('a', 7, null), ('日本\u202e', 12345, 'two\\nlines'), ('\\u001b[31mred', -1, '') "
        "as t(name, n, note)",
        "table",
    )

    assert text.splitlines() == [
        "name               n  note",
        "─────────────  ─────  ──────────",
        "a                  7  NULL",
        "日本\\u202e     12345  two\\nlines",
        "\\u001b[31mred     -1",
    ]


def test_a_terminal_gets_lines_that_fit(ask: Callable[..., str]) -> None:
    text = ask("select repeat('x', 500) as long, 1 as n", "table", width=40)
    many = ask("select " + ", ".join(f"repeat('x', 50) as column_{i}" for i in range(9)), "table", width=40)

    assert [len(line) for line in text.splitlines()] == [40, 40, 40]
    assert text.splitlines()[2].endswith("…  1")
    assert many.splitlines()[:2] == ["── row 1 ──", "column_0  " + "x" * 29 + "…"]
    assert ask("select repeat('x', 500) as long", "table").splitlines()[2] == "x" * 500


def test_json_shows_no_control_characters(ask: Callable[..., str]) -> None:
    line = ask("select '\u202e\u009b\U000e0041ö' as a")

    assert line == '{"a":"\\u202e\\u009b\\udb40\\udc41ö"}\n'
    assert json.loads(line) == {"a": "\u202e\u009b\U000e0041ö"}


def test_a_name_follows_the_warehouse(spark: SparkSession, ask: Callable[..., str], tmp_path: Path) -> None:
    other = load(warehouse=str(tmp_path))
    Warehouse(other, spark).ensure(SUMMARY)

    assert query.rows_of(Warehouse(other, spark), "select * from gold.dlq_summary", NOW).collect() == []
    assert ask("select record_count from gold.dlq_summary") == '{"record_count":3}\n'


def test_rows_arrive_one_partition_after_the_other(spark: SparkSession) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            if self.tell() > 10_000:
                raise BrokenPipeError
            return super().write(text)

    out = Closed()
    rows = spark.range(0, 10_000_000, numPartitions=50).selectExpr(
        "id", "if(id > 5000000, raise_error('read'), 1) as one"
    )

    assert query.write(rows, "csv", out) < 10_000


def test_a_closed_pipe_ends_quietly(
    spark: SparkSession, warehouse: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    piped = os.fdopen(writing, "w")
    monkeypatch.setattr(sys, "stdout", piped)

    query.answer(Warehouse(warehouse, spark), "select * from range(20)", {}, "csv")

    piped.close()  # as Python does at exit
    assert capsys.readouterr().err == ""


def test_people_are_told_how_many_rows(
    spark: SparkSession, warehouse: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    for count in (0, 1, 2000):
        query.answer(Warehouse(warehouse, spark), f"select * from range({count})", {}, "table")
        assert capsys.readouterr().err == f"{count:,} row{'' if count == 1 else 's'}\n"
    query.answer(Warehouse(warehouse, spark), "select 1 as one", {}, "json")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ('{"one":1}\n', "")


def test_show_tables_shows_those_of_all_layers(spark: SparkSession, warehouse: Settings) -> None:
    for layer in filter(spark.catalog.databaseExists, stored.LAYERS):  # tables of other tests' warehouses
        for table in spark.sql(f"SHOW TABLES IN {layer}").where("not isTemporary").collect():
            spark.sql(f"DROP TABLE {layer}.{table.tableName}")

    def shown(statement: str) -> set[tuple[str, str]]:
        return {(row[0], row[1]) for row in query.rows_of(Warehouse(warehouse, spark), statement, NOW).collect()}

    assert shown("SHOW TABLES") >= {("gold", "dlq_summary"), ("quality", "freshness")}
    assert shown("show tables like 'dlq*'") == {("gold", "dlq_summary")}
    assert shown("SHOW TABLES LIKE 'it''s \\\\'") == set()
    assert shown("SHOW TABLES IN gold") == {("gold", "dlq_summary")}


def test_a_table_that_is_not_there_is_told_what_may_be_meant(spark: SparkSession, warehouse: Settings) -> None:
    with pytest.raises(UsageError, match=r"Did you mean 'gold\.dlq_summary'"):
        query.rows_of(Warehouse(warehouse, spark), "SELECT * FROM gold.dlq_sumary", NOW)
