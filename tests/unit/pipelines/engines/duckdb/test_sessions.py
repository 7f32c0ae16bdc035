"""The traps between Spark's SQL and DuckDB's: each statement has the same rows in both, or is left to Spark."""

from __future__ import annotations

import io
import threading
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from expectations import literals
from pipelines import scratch
from pipelines.commands import query
from pipelines.commands import rows as printed
from pipelines.engines.duckdb import nodes, sessions
from pipelines.errors import UsageError
from pipelines.settings import Settings
from pipelines.warehouse.tables import Warehouse
from tests.testing import engines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime(2026, 11, 21, 8, 30, 0, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))
VALUES = "(VALUES (1, 'b', 2.5D), (2, NULL, 0.285D), (NULL, 'a', NULL), (4, 'É', -2.5D), (5, '', 1e20D)) AS t(n, s, d)"
NOTHING = f"(SELECT * FROM {VALUES} WHERE n > 99)"


def answered(settings: Settings, text: str, tables: tuple[str, ...] = (), **values: Any) -> printed.FetchedRows:
    fetched = sessions.answer(Warehouse(settings), text, {"now": NOW, **values}, tables, {})
    return printed.FetchedRows(fetched.names, fetched.types, fetched.rows)


@engines.thorough
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"SELECT s FROM {VALUES} ORDER BY s", id="nulls are first"),
        pytest.param(f"SELECT s FROM {VALUES} ORDER BY s DESC", id="nulls are last, descending"),
        pytest.param(f"SELECT s FROM {VALUES} ORDER BY s NULLS LAST, n", id="nulls as they are asked for"),
        pytest.param(f"SELECT n, lag(s) OVER (ORDER BY s) AS l FROM {VALUES} ORDER BY n", id="nulls of a window"),
        pytest.param("SELECT 7 / 2 AS a, -7 DIV 2 AS b, 7 DIV -2 AS c, 7 % -2 AS d", id="division of whole numbers"),
        pytest.param("SELECT unix_micros(:now) DIV 1000000 AS s", id="micros"),
        pytest.param("SELECT :now AS t, :now - INTERVAL 25 HOURS AS h, :now - INTERVAL 7 DAYS AS d", id="intervals"),
        pytest.param(f"SELECT max_by(s, n) AS m FROM {VALUES} WHERE n < 3 OR n IS NULL", id="max_by of null"),
        pytest.param(f"SELECT max_by(s, n) AS m FROM {VALUES} WHERE n IS NULL", id="max_by without order"),
        pytest.param(
            f"SELECT any_value(s) AS a FROM (SELECT s FROM {VALUES} WHERE n < 3 ORDER BY n DESC LIMIT 2)",
            id="any_value of null",
        ),
        pytest.param(f"SELECT array_sort(collect_list(s)) AS l FROM {VALUES}", id="collect_list"),
        pytest.param(
            f"SELECT array_sort(collect_set(s)) AS l, size(collect_set(s)) AS c FROM {VALUES}", id="collect_set"
        ),
        pytest.param(f"SELECT collect_list(s) AS a, collect_set(s) AS b FROM {NOTHING}", id="collect nothing"),
        pytest.param(
            f"SELECT count(*) AS c, sum(n) AS s, max(s) AS m, count_if(n > 1) AS i FROM {NOTHING}", id="no rows"
        ),
        pytest.param(f"SELECT collect_list(n) FILTER (WHERE n > 99) AS l FROM {VALUES}", id="collect some"),
        pytest.param("SELECT array_sort(array('b', NULL, 'a')) AS l", id="nulls of array_sort"),
        pytest.param("SELECT slice(array(1, 2, 3), 1, 2) AS a, slice(array(1), 1, 20) AS b", id="slice"),
        pytest.param(
            "SELECT round(2.5D) AS a, round(-2.5D) AS b, round(0.285D, 2) AS c, round(1.005D, 2) AS d", id="round"
        ),
        pytest.param("SELECT CAST(2.7D AS INT) AS a, CAST(-2.7D AS INT) AS b", id="casts"),
        pytest.param("SELECT 1e-5D AS a, 1e7D AS b, 123456789.125D AS c, 0D AS d, -0.5D AS e", id="doubles"),
        pytest.param("SELECT double('NaN') AS a, double('Infinity') AS b", id="not a number"),
        pytest.param("SELECT concat('a', NULL, 'b') AS a, concat(1, ':', 2) AS b", id="concat"),
        pytest.param(f"SELECT count(DISTINCT n, s) AS c FROM {VALUES}", id="distinct pairs"),
        pytest.param(f"SELECT greatest(n, 3) AS g, least(NULL, n) AS l FROM {VALUES} ORDER BY g, l", id="greatest"),
        pytest.param(
            "SELECT array_position(array('a', 'b'), 'c') AS a, array_position(array('a'), NULL) AS b", id="position"
        ),
        pytest.param("SELECT IF(NULL, 1, 2) AS a, NULL <=> NULL AS b, coalesce(NULL, 1) AS c", id="null"),
        pytest.param("SELECT 'it\\'s' AS a, \"q\" AS b, 'a\\\\b' AS c", id="literals"),
        pytest.param("SELECT explode(array(1, 2)) AS e", id="explode"),
        pytest.param("SELECT median(n) AS m, count(*) AS c FROM (VALUES (1), (2), (NULL)) AS t(n)", id="median"),
        pytest.param("SELECT array(named_struct('a', 1, 'b', CAST(NULL AS STRING))) AS l", id="nested"),
        pytest.param("SELECT true AS b, CAST('x' AS BINARY) AS x, DATE '2026-11-21' AS d, 1.50BD AS n", id="types"),
        pytest.param(
            "SELECT sum(n) OVER () AS s, n / sum(n) OVER () AS p FROM (VALUES (1), (2)) AS t(n) ORDER BY n", id="shares"
        ),
        pytest.param("SELECT substring(hex(X'00000001'), 5, 4) AS h, hex(CAST(NULL AS BINARY)) AS n", id="hex"),
        pytest.param(
            f"SELECT max(struct(s, n)) AS a, min(struct(s, n)) AS b, max(IF(n > 1, struct(s, n), NULL)).n AS c,"
            f" max(struct(s, n)) FILTER (WHERE n > 99) AS d FROM {VALUES}",
            id="the greatest struct with null",
        ),
        pytest.param(
            f"SELECT sort_array(collect_list(struct(s, n))) AS a, array_sort(collect_set(struct(n AS m, s))).m AS b,"
            f" array_sort(collect_list(IF(n > 1, struct(s, n), NULL)) FILTER (WHERE n < 5)) AS c FROM {VALUES}",
            id="sorted structs with null",
        ),
        pytest.param(
            f"SELECT n, place > max(place) OVER (ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS b"
            f" FROM (SELECT n, struct(d, n) AS place FROM {VALUES} WHERE d IS NOT NULL) ORDER BY n",
            id="compared structs",
        ),
        pytest.param(f"SELECT array_sort(collect_set(s) FILTER (WHERE n > 1)) AS l FROM {VALUES}", id="collect a set"),
        pytest.param(
            "SELECT array_distinct(l) AS d, array_sort(array_distinct(l)) AS s, sort_array(array_distinct(l)) AS t,"
            " array_join(l, ',') AS j, get(l, 1) AS g, get(l, 9) AS n, get(l, -1) AS m,"
            " arrays_overlap(l, array('z')) AS o, arrays_overlap(l, array('a')) AS p FROM (VALUES (array('b', NULL,"
            " 'a', 'b', NULL)), (array('b', 'a')), (array(CAST(NULL AS STRING))), (CAST(array() AS ARRAY<STRING>)),"
            " (CAST(NULL AS ARRAY<STRING>))) AS t(l)",
            id="arrays",
        ),
        pytest.param(
            "SELECT timestampdiff(SECOND, a, b) AS f, timestampdiff(SECOND, b, a) AS r, date_format(a, 'yyyy-MM-dd"
            " HH:mm:ss') AS t, concat(:now, ' ', DATE '2026-11-21') AS c FROM (VALUES"
            " (TIMESTAMP '0001-11-21T02:00:00.9Z', TIMESTAMP"
            " '2026-11-21T02:00:01.8Z')) AS t(a, b)",
            id="times",
        ),
        pytest.param(
            "SELECT try_cast(s AS INT) AS i, try_cast(s AS BIGINT) AS l, try_cast(s AS BOOLEAN) AS b FROM (VALUES"
            " ('1'), ('+7'), ('-7'), ('1.5'), ('1e3'), ('0x10'), ('1_000'), ('2147483648'), ('9223372036854775808'),"
            " (''), ('-'), ('Yes'), ('N'), ('tRuE'), ('on'), (NULL)) AS t(s)",
            id="casts that are tried",
        ),
        pytest.param(
            f"SELECT percentile(d, 0.95) AS p, percentile(n, 0.3) AS q, median(d) AS m FROM {VALUES} WHERE d < 9",
            id="percentiles",
        ),
        pytest.param(
            "SELECT s RLIKE '^[a-z]+$' AS r FROM (VALUES ('a'), ('a\\n'), ('a\\n\\n'), ('a\\r\\n'), ('a\\nb')) AS t(s)",
            id="the end of a line",
        ),
        pytest.param("SELECT CAST(d AS BIGINT) AS l FROM (VALUES (2.7D), (-2.7D), (NULL)) AS t(d)", id="cut off"),
        pytest.param(
            f"SELECT concat(n, '-', d, '-', n > 1) AS c, CAST(d AS STRING) AS s FROM {VALUES} WHERE d < 9", id="texts"
        ),
        pytest.param(f"SELECT min_by(s, n) AS m FROM {VALUES} WHERE n > 1", id="min_by of null"),
        pytest.param(
            f"SELECT max(struct(s, n)) AS a, min(struct(s, n)) AS b, max(struct(n, s)).s AS c FROM {VALUES}",
            id="greatest structs",
        ),
        pytest.param(
            f"SELECT n, max(IF(n < 3, struct(s, n), NULL)) OVER (ORDER BY n) AS m FROM {VALUES}", id="structs so far"
        ),
        pytest.param(
            f"SELECT array_sort(collect_list(struct(s, n))) AS a, sort_array(collect_set(struct(s, n)), false) AS b "
            f"FROM {VALUES}",
            id="structs in order",
        ),
        pytest.param(
            "SELECT array_sort(flatten(transform(array(2, NULL, 1), n -> array(struct(n AS n, 'a' AS s))))) AS l",
            id="made structs in order",
        ),
        pytest.param(
            "SELECT sort_array(array(2, NULL, 1)) AS a, sort_array(array(2, NULL, 1), false) AS b",
            id="nulls of sort_array",
        ),
        pytest.param(
            "SELECT array_contains(array(1, NULL), 1) AS a, array_contains(array(1, NULL), 2) AS b, "
            "array_contains(array(1), 2) AS c, array_contains(array(1), CAST(NULL AS INT)) AS d",
            id="array_contains",
        ),
        pytest.param("SELECT array_distinct(array(3, NULL, 1, NULL, 3)) AS l", id="array_distinct"),
        pytest.param(
            "SELECT flatten(array(array(1), array(NULL, 2))) AS a, flatten(array(array(1), NULL)) AS b", id="flatten"
        ),
        pytest.param("SELECT sequence(1, 3) AS a, sequence(3, 1) AS b, sequence(2, 2) AS c", id="sequence"),
        pytest.param("SELECT get(array(1), 0) AS a, get(array(1), 1) AS b, get(array(1, 2), -1) AS c", id="get"),
        pytest.param("SELECT length(X'00FF') AS a, length('\U0001f4a3') AS b, length('') AS c", id="length"),
        pytest.param("SELECT 1 AS a, inline(array(struct(2 AS b, 'c' AS c), struct(3 AS b, NULL AS c)))", id="inline"),
        pytest.param("SELECT try_cast(s AS BIGINT) AS n FROM (VALUES ('a'), ('7'), ('')) AS t(s)", id="try_cast"),
        pytest.param(
            "SELECT xxhash64(s) AS t, xxhash64(CAST(s AS BINARY)) AS b, transform(array(s), one -> xxhash64(one)) AS l,"
            f" CAST('\\\\x41' AS BINARY) AS x, left(sha2(s, 256), 16) AS h FROM {VALUES}",
            id="hashes",
        ),
        pytest.param(
            r"SELECT regexp_replace(s, r'(?<!\w)[0-9]++(?:-\w+)*(?!\w)|\s+|\x27[^\x27]*\x27', '<*>') AS r,"
            r" regexp_extract(s, r'(?:^|\n)\s*+at ((?!java\.)[^\s(]+)', 1) AS a, regexp_extract(s, '(1)|b', 1) AS g,"
            r" regexp_replace(s, '[0-9]', '-') AS d, regexp_extract(s, '([a-z]+)$', 1) AS e,"
            r" regexp_replace(s, r'(\w+)-|(b)|[0-9]', '<$2$1>') AS f"
            r" FROM (VALUES ('a-1 1-b_2 3é 4\t5\u00a06 \u0661'), ('\n at java.x(\r\n  at b.c('), ('it\'s \'q\' b'),"
            r" ('a\n'), (''), (NULL)) AS t(s)",
            id="what Java's patterns find",
        ),
        pytest.param(
            "SELECT regexp_extract(try_validate_utf8(CAST(b AS STRING)), '([a-z]+)', 1) AS u,"
            " CAST(conv(hex(substring(b, 2, 4)), 16, 10) AS BIGINT) AS n,"
            " substring(b, 1, 1) = X'00' AS z FROM (VALUES (X'00FFFFFFFF01'),"
            " (X'0000000007'), (X'61626364C3A9'), (X'FF61626364'), (NULL)) AS t(b)",
            id="bytes",
        ),
        pytest.param(
            "SELECT to_json(array(s, 'q\"\\\\/', '\\u0001\\u001f\\u007f\\n\\u2028'), map('ignoreNullFields', 'false'))"
            f" AS j FROM {VALUES}",
            id="JSON of texts",
        ),
        pytest.param(
            "SELECT ltrim(s) AS l, rtrim(s) AS r, trim(s) AS t, trim(LEADING 'a' FROM s) AS a FROM (VALUES (' a '),"
            " ('\u00a0a\u00a0'), (' \u3000a\u2003'), ('\ta\n'), (''), (NULL)) AS t(s)",
            id="only spaces are trimmed",
        ),
        pytest.param(
            "SELECT pmod(n, -3) AS p, pmod(n, 3) AS q FROM (VALUES (-7), (-6), (0), (6), (7), (NULL)) AS t(n)",
            id="remainders of negative divisors",
        ),
        pytest.param(
            "SELECT pmod(n, 7) AS p, timestamp_micros(n - pmod(n, 1800000000)) AS t, timestamp_micros(n) AS u FROM"
            " (VALUES (-1L), (0L), (1763692877000001L), (NULL)) AS t(n)",
            id="half hours",
        ),
    ],
)
def test_both_engines_answer_the_same(text: str, spark: SparkSession, settings: Settings) -> None:
    by_spark = query.rows_of(Warehouse(settings, spark), text, {"now": NOW})
    by_duckdb = answered(settings, text)
    for form in ("json", "csv"):
        expected, found = io.StringIO(newline=""), io.StringIO(newline="")
        query.write(by_spark, form, expected)
        printed.write(by_duckdb, form, found)
        assert found.getvalue() == expected.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("SELECT 1 / n AS q FROM (VALUES (0)) AS t(n)", id="division by zero"),
        pytest.param("SELECT 1 DIV n AS q FROM (VALUES (0)) AS t(n)", id="whole division by zero"),
        pytest.param("SELECT CAST('a' AS INT) AS n", id="a cast that fails"),
        pytest.param("SELECT CAST(' 12 ' AS INT) AS n", id="a cast of text"),
        pytest.param("SELECT concat(d, 'a') AS c FROM (VALUES (1e7D)) AS t(d)", id="text of a large double"),
        pytest.param("SELECT concat(d, 'a') AS c FROM (VALUES (1e-4D)) AS t(d)", id="text of a small double"),
        pytest.param("SELECT try_cast(s AS INT) AS n FROM (VALUES (' 1')) AS t(s)", id="a cast of spaced text"),
        pytest.param("SELECT sum(n) AS s FROM (VALUES (9223372036854775807), (1)) AS t(n)", id="a sum of 65 bits"),
        pytest.param(
            "SELECT max(p) AS m FROM (SELECT struct(n, s) AS p FROM (VALUES (1, 'a'), (1, NULL)) AS t(n, s))",
            id="the order of null in structs",
        ),
        pytest.param("SELECT sequence(0, 2000000) AS l", id="a long sequence"),
        pytest.param("SELECT xxhash64(n) AS h FROM (VALUES (1)) AS t(n)", id="a hash of a number"),
        pytest.param("SELECT xxhash64('a', 'b') AS h", id="a hash of two values"),
        pytest.param("SELECT regexp_replace('a', '(?i)A', 'b') AS r", id="a pattern with flags"),
        pytest.param("SELECT regexp_replace('aa', '(?<=a)a', '$0') AS r", id="a replacement with all that was found"),
        pytest.param("SELECT regexp_replace('aa', '(?<=a)(a)', '$2') AS r", id="a replacement with a group too many"),
        pytest.param(
            "SELECT regexp_replace('aa', '(?<=a)(a)', '$11') AS r", id="a replacement with a group and a digit"
        ),
        pytest.param("SELECT regexp_extract('a', '(a)(?=b&&c|$)', 1) AS r", id="a pattern with a line's end within"),
        pytest.param("SELECT regexp_replace('aXb', 'x*', '-') AS r", id="a match of nothing in RE2"),
        pytest.param("SELECT regexp_replace('\U0001f4a3', '(?<!a)', '-') AS r", id="a match of nothing in Python"),
        pytest.param("SELECT regexp_replace('a\n', 'a$', '-') AS r", id="what stands before a line break"),
        pytest.param("SELECT regexp_extract('a\n', 'a$', 0) AS r", id="what is found before a line break"),
        pytest.param("SELECT regexp_extract('b', '(a)|(b)', 3) AS r", id="a group that a pattern lacks"),
        pytest.param("SELECT conv('ff', 16, 2) AS c", id="another base"),
        pytest.param("SELECT conv(hex(X'ff'), 16, 10) < '3' AS c", id="a number as text"),
        pytest.param("SELECT hex(substring(b, -1, 2)) AS h FROM (VALUES (X'0102')) AS t(b)", id="bytes from the end"),
        pytest.param("SELECT hex(substring(b, 2)) AS h FROM (VALUES (X'0102')) AS t(b)", id="bytes to the end"),
        pytest.param("SELECT sha2('a', 512) AS h", id="a longer hash"),
        pytest.param("SELECT to_json(array(1.5), map('ignoreNullFields', 'false')) AS j", id="JSON of numbers"),
        pytest.param("SELECT to_json(array(1), map('pretty', 'true')) AS j", id="other options of JSON"),
        pytest.param("SELECT try_validate_utf8('a') AS v", id="UTF-8 of a text"),
        pytest.param(
            "SELECT array_sort(l) AS l FROM (SELECT array(struct(NULL AS a), struct(1 AS a)) AS l)",
            id="nulls of a sort",
        ),
        pytest.param("SELECT max(s) AS m FROM (SELECT struct(NULL AS a) AS s)", id="nulls of a maximum"),
        pytest.param("SELECT nothing", id="an unknown name"),
        pytest.param("SELECT FROM WHERE", id="no SQL"),
        pytest.param("SELECT no_function_of_duckdb(1) AS n", id="an unknown function"),
    ],
)
def test_what_duckdb_would_answer_differently_is_left_to_spark(text: str, settings: Settings) -> None:
    with pytest.raises(nodes.Untranslatable):
        answered(settings, text)


TEXTS = (
    "",
    "a",
    "a\n",
    "\na",
    "b\u2028",
    "é1",
    "\u0661",
    "k",
    "\u212a",
    "a\x0b",
    "\ra\t",
    "aa",
    "a-",
    "^",
    "\\",
    "\U0001f4a3",
    "[a]",
)
ALIKE = (
    *(
        r"\Aa+\z",
        r"^a|\d",
        "[^a-z]{1,2}",
        r"(?:a|é)[0-9]?\z",
        r"[\]\\^-]",
        r"\A[\d]*?\z",
        "(a)(-)",
        r"\-",
        "\U0001f4a3",
    ),
    *(r"\[a\]", "", "a{2,}", r"\D", r"\A(?:0|[1-9][0-9]{0,8})\z", "\n", "a\n| ", r"\A[^a]\z"),
    *(r"^[^\r\n]*\z", r"\n|\t", r"[\na]a", r"\ra?"),
)


def test_both_engines_find_the_same_matches(spark: SparkSession, settings: Settings) -> None:
    values = ", ".join(f"({literals.spark(text)})" for text in TEXTS)
    found = ", ".join(f"s RLIKE {literals.spark(pattern)} AS _{place}" for place, pattern in enumerate(ALIKE))
    text = f"SELECT s, {found} FROM (VALUES {values}) AS t(s)"
    expected = [[row[0], *(str(item).lower() for item in row[1:])] for row in spark.sql(text).collect()]
    assert [row[0] for row in expected] == list(TEXTS)
    assert list(answered(settings, text).texts()) == expected


@pytest.mark.parametrize(
    "pattern",
    [
        *("a.", "a$b", r"\s", r"\w\b", "(?i)k", "(?!a)b", "a++", "a{1}+", "a**", "[a&&b]", "[[a]]", r"\p{L}", r"\Z"),
        *(r"\Qa\E", r"\h", r"[\w]", r"\1", "a{"),
    ],
)
def test_a_pattern_that_the_engines_may_read_differently_is_left_to_spark(pattern: str, settings: Settings) -> None:
    with pytest.raises(nodes.Untranslatable):
        answered(settings, f"SELECT 'a' RLIKE {literals.spark(pattern)} AS m")


def test_a_pattern_in_a_column_is_left_to_spark(settings: Settings) -> None:
    with pytest.raises(nodes.Untranslatable):
        answered(settings, f"SELECT s RLIKE s AS m FROM {VALUES}")


def test_values_are_bound_and_never_part_of_the_text(settings: Settings) -> None:
    hostile = "'; DROP TABLE t; -- $now :now"
    rows = answered(settings, "SELECT :a AS a, :b AS b", a=hostile, b=7)
    assert list(rows.texts()) == [[hostile, "7"]]


def test_no_file_is_within_reach_of_a_statement(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    with pytest.raises(nodes.Untranslatable):
        answered(settings, f"SELECT * FROM read_csv('{tmp_path}/a.csv')")
    with pytest.raises(nodes.Untranslatable):
        answered(settings, f"SELECT * FROM `{tmp_path}/a.csv`")


def test_a_table_that_does_not_exist(settings: Settings) -> None:
    with pytest.raises(UsageError, match="There is no table"):
        answered(settings, "SELECT * FROM gold.a", ("gold.a",))


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param("'delta.columnMapping.mode' = 'name'", id="column mapping"),
        pytest.param("'delta.enableDeletionVectors' = 'true'", id="deletion vectors"),
    ],
)
def test_tables_whose_rows_are_not_those_of_their_files_are_left_to_spark(
    properties: str, spark: SparkSession, settings: Settings
) -> None:
    place = Warehouse(settings).location("gold.a")
    spark.sql(f"CREATE TABLE delta.`{place}` (n INT) USING delta TBLPROPERTIES ({properties})")
    with pytest.raises(nodes.Untranslatable):
        answered(settings, "SELECT * FROM gold.a", ("gold.a",))


def test_a_column_that_older_files_lack_is_null(spark: SparkSession, settings: Settings) -> None:
    place = Warehouse(settings).location("gold.a")
    made = "SELECT 1 AS n, array(named_struct('a', 1)) AS l, TIMESTAMP '2026-11-21T02:00:00Z' AS t"
    spark.sql(made).write.format("delta").save(place)
    spark.sql(f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false')")
    rows = answered(settings, "SELECT * FROM gold.a", ("gold.a",))
    assert list(rows.texts()) == [["1", '[{"a":1}]', "2026-11-21T02:00:00.000000Z"]]
    spark.sql(f"ALTER TABLE delta.`{place}` ADD COLUMN (s STRING)")
    rows = answered(settings, "SELECT n, s, t <= :now - INTERVAL 1 HOUR AS b FROM gold.a", ("gold.a",))
    assert list(rows.texts()) == [["1", None, "true"]]


def test_a_directory_named_like_a_partition_is_no_column(
    spark: SparkSession, settings: Settings, tmp_path: Path
) -> None:
    warehouse = Warehouse(settings.model_copy(update={"warehouse": str(tmp_path / "s=other" / "n=7")}), spark)
    place = warehouse.location("gold.a")
    made = spark.sql("SELECT 1 AS n, 'own' AS s").write.format("delta")
    made.option("delta.enableDeletionVectors", "false").save(place)
    assert [tuple(row) for row in warehouse.read("gold.a").collect()] == [(1, "own")]
    rows = answered(warehouse.settings, "SELECT n, s FROM gold.a", ("gold.a",))
    assert list(rows.texts()) == [["1", "own"]]


def test_a_time_that_python_cannot_hold_is_left_to_spark(settings: Settings) -> None:
    rows = answered(settings, "SELECT TIMESTAMP '294246-01-01T00:00:00' AS t")
    for form in ("json", "csv", "table"):
        out = io.StringIO()
        with pytest.raises(printed.Unprintable):
            printed.write(rows, form, out)
        assert out.getvalue() == ""


def test_now_is_utc_whatever_its_zone(settings: Settings) -> None:
    assert list(answered(settings, "SELECT :now AS t").texts()) == [["2026-11-21T03:00:00.000001Z"]]
    assert NOW.astimezone(UTC).hour == 3


MANY = "SELECT i, repeat(md5(i::VARCHAR), 8) AS text FROM range(1500000) AS made(i)"


def test_what_does_not_fit_into_memory_goes_to_files_that_only_this_user_can_reach_and_that_end_with_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MEMORY", "200MB")
    sessions._shared.cache_clear()
    with sessions.session(str(tmp_path)) as connection:
        connection.execute(f"CREATE TEMP TABLE kept AS {MANY} ORDER BY text")
        spilled = Path(scratch.directory("duckdb"))
        assert sum(file.stat().st_size for file in spilled.rglob("*")) > 10_000_000
        assert spilled.parent.stat().st_mode & 0o077 == 0
        assert connection.sql("SELECT count(*) FROM kept").fetchall() == [(1_500_000,)]
    sessions._shared.cache_clear()
    assert not [file for file in spilled.rglob("*") if file.is_file()]


def test_a_session_is_cancelled_from_another_thread(tmp_path: Path) -> None:
    threading.Timer(1, sessions.cancel).start()
    with sessions.session(str(tmp_path)) as connection, pytest.raises(duckdb.InterruptException):
        connection.execute("SELECT count(*) FROM range(1000000000000) AS made(i) WHERE hash(i) = 3").fetchall()
    with sessions.session(str(tmp_path)) as connection:
        assert connection.sql("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize("is_cause", [False, True])
def test_a_lost_database_is_let_go_of(is_cause: bool, tmp_path: Path) -> None:
    first = sessions._shared(str(tmp_path))
    error: Exception = duckdb.InternalException("the database is lost")
    if is_cause:
        error = RuntimeError("the database is lost")
        error.__cause__ = duckdb.InternalException("the database is lost")
    with pytest.raises(type(error), match="lost"), sessions.session(str(tmp_path)):
        raise error
    assert sessions._shared(str(tmp_path)) is not first
