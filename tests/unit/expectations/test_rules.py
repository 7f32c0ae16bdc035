"""Number patterns on Java's engine and on Python's; the meaning of a null, a guard and a subject."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expectations.rules import (
    INT32,
    INT64,
    Rule,
    at_least,
    between,
    counted,
    decimal_up_to,
    is_true,
    matches,
    not_null,
    one_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    "said",
    ["0 rows", "1 row", "2 batches", "1,000 losses", "2 topologies", "1 topology", "3 keys", "2 boxes", "1 delivery"],
)
def test_a_number_of_things_is_said_in_one_word_or_many(said: str) -> None:
    item = {"batches": "batch", "losses": "loss", "topologies": "topology", "boxes": "box"}
    number, _, noun = said.partition(" ")
    assert counted(int(number.replace(",", "")), item.get(noun, noun.removesuffix("s"))) == said


GREATEST = {INT32: 2**31 - 1, INT64: 2**63 - 1}
NOT_DECIMALS = [
    "",
    " ",
    "-0",
    "-1",
    "+1",
    "01",
    "00",
    " 1",
    "1 ",
    "1\n",
    "\n1",
    "1\r\n",
    "1\u2028",
    "1\u0085",
    "1\0",
    "1e3",
    "1.0",
    "1,000",
    "1_000",
    "0x1",
    "1L",
    "NaN",
    "null",
    "\u0663",  # Arabic-Indic three
    "\uff11",  # full-width one
    "\u06f1\u06f2",
    "\u00b2",
    "1\u0301",
    "2147483648" * 4,
    "9223372036854775808",
    "18446744073709551615",
    "10000000000000000000",
]


def in_python(pattern: str) -> re.Pattern[str]:
    """The pattern with Python's name for the end of input."""
    return re.compile(pattern.replace(r"\z", r"\Z"))


@given(number=st.integers(-(2**70), 2**70), pattern=st.sampled_from([INT32, INT64]))
def test_decimals_in_range_match_and_no_others(number: int, pattern: str) -> None:
    assert bool(in_python(pattern).search(str(number))) == (0 <= number <= GREATEST[pattern])


@given(most=st.integers(0, 2**70), number=st.integers(0, 2**71), near=st.integers(-12, 12))
def test_any_bound_is_exact(most: int, number: int, near: int) -> None:
    pattern = in_python(decimal_up_to(most))
    for candidate in {number, max(0, most + near), most // 10, most * 10, most, most + 1}:
        assert bool(pattern.search(str(candidate))) == (candidate <= most), candidate


@given(text=st.text(max_size=20), pattern=st.sampled_from([INT32, INT64]))
def test_text_matches_only_as_kafka_prints_numbers(text: str, pattern: str) -> None:
    printed = text.isascii() and text.isdecimal() and str(int(text)) == text and int(text) <= GREATEST[pattern]
    assert bool(in_python(pattern).search(text)) == printed


@pytest.mark.parametrize("pattern", [INT32, INT64], ids=["int32", "int64"])
def test_java_and_python_read_the_patterns_alike(spark: SparkSession, pattern: str) -> None:
    from pyspark.sql import functions as F

    most = GREATEST[pattern]
    numbers = {max(0, edge + step) for power in range(20) for edge in (10**power, most) for step in (-1, 0, 1)}
    texts = [*NOT_DECIMALS, *map(str, sorted(numbers))]
    rows = spark.createDataFrame([(text,) for text in texts], "text string")
    held = [row[0] for row in rows.select(F.col("text").rlike(pattern)).collect()]
    assert held == [bool(in_python(pattern).search(text)) for text in texts]
    assert held == [text not in NOT_DECIMALS and int(text) <= most for text in texts]


RULES = {
    "not_null": not_null(),
    "one_of": one_of("a", "b"),
    "matches": matches("letters", r"\A[a-z]+\z"),
    "is_true": is_true("short", "length(text) < 3"),
    "at_least": at_least(0).of("number"),
    "between": between(1, 5).of("number"),
    "elsewhere": not_null().of("other"),
    "guarded": not_null().where("number > 3"),
    "guard is null": one_of("z").where("CAST(NULL AS BOOLEAN)"),
    "guard with or": matches("letters", r"\A[a-z]+\z").where("number = 0 OR number = 9"),
}
ROWS = [
    ("a", 0, None),
    ("abc", 5, "x"),
    ("A\n", 9, "x"),
    (None, 4, "x"),
    (None, None, "x"),
    ("", -1, "x"),
    ("a\n", None, "x"),
]
# One digit per row: 1 if the rule is broken.
BROKEN = {
    "not_null": "0001100",
    "one_of": "0110011",
    "matches": "0010011",
    "is_true": "0100000",
    "at_least": "0000010",
    "between": "1010010",
    "elsewhere": "1000000",
    "guarded": "0001000",
    "guard is null": "0000000",
    "guard with or": "0010000",
}


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, str]:
    rows = spark.createDataFrame(
        [(index, *row) for index, row in enumerate(ROWS)], "n int, text string, number int, other string"
    )
    columns = [rule.bound("text").broken().alias(name) for name, rule in RULES.items()]
    collected = rows.select("n", *columns).orderBy("n").collect()
    return {name: "".join({True: "1", False: "0", None: "null"}[row[name]] for row in collected) for name in RULES}


@pytest.mark.parametrize("name", RULES)
def test_broken_is_never_null_and_null_breaks_only_not_null(name: str, found: dict[str, str]) -> None:
    assert found[name] == BROKEN[name]


def test_text_of_a_rule_is_only_text(spark: SparkSession) -> None:
    texts = [
        "it's",
        "\\",
        "\\'",
        "a\\A",
        "${user.name}",
        "a\n",
        "a",
        "\0",
        "é\U0001f4a3",
        "%_",
        "-- a",
        "{a}",
        '"',
        "/*",
        "",
    ]
    rows = spark.createDataFrame([(index, text) for index, text in enumerate(texts)], "n int, text string")
    rules = [one_of(text) for text in texts]
    rules += [matches("quoted", r"\A" + re.sub(r"([^\w\s\0])", r"\\\1", text) + r"\z") for text in texts]
    columns = [rule.bound("text").broken().alias(f"_{place}") for place, rule in enumerate(rules)]
    for n, *broken in rows.select("n", *columns).orderBy("n").collect():
        assert [index % len(texts) for index, is_broken in enumerate(broken) if not is_broken] == [n, n]


@pytest.mark.parametrize("name", RULES)
def test_examined_shows_the_gate_a_value_that_fails_where_the_rule_is_broken(spark: SparkSession, name: str) -> None:
    """Great Expectations checks not_null for null, and all other rules only on values that are not null."""
    rule = RULES[name].bound("text")
    rows = spark.createDataFrame(
        [(index, *row) for index, row in enumerate(ROWS)], "n int, text string, number int, other string"
    )
    examined = rows.select("n", rule.examined()).withColumnRenamed(rule.code, "examined")
    subject = Rule(rule.name, rule.kind, rule.arguments).bound("examined")
    fails = examined.select("n", subject.broken().alias("fails")).orderBy("n").collect()
    assert "".join("1" if row["fails"] else "0" for row in fails) == BROKEN[name]


def test_codes_are_stable() -> None:
    assert not_null().bound("consumer_group").code == "consumer_group.not_null"
    assert at_least(0).bound("original_offset").code == "original_offset.at_least_0"
    assert at_least(-1).bound("offset").code == "offset.at_least_minus_1"
    assert between(0, 3).bound("status").code == "status.between_0_and_3"
    assert matches("decimal_int32", INT32).of("x").where("y").hinting("z").bound("p").code == "p.decimal_int32"


def test_bound_keeps_another_subject_and_quotes_its_own() -> None:
    assert not_null().bound("key").subject == "`key`"
    assert not_null().of("length(key)").bound("key").subject == "length(key)"
