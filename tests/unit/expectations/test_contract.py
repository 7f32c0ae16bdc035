"""Contracts: the bitmask of broken rules, its codes, and the contracts that are refused."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import expectations
from expectations.contract import MOST_RULES, Column, Contract, contract_of
from expectations.rules import at_least, is_true, matches, not_null, one_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXPECTATIONS = Path(expectations.__file__).parent
FEW = Contract(
    table="silver.few",
    description="Few rules.",
    columns=(
        Column("topic", "string", "A topic.", (not_null(), matches("letters", r"\A[a-z]+\z"))),
        Column("offset", "bigint", "An offset.", (at_least(0).where("topic = 'a'"),)),
        Column("text", "string", "What was said.", (one_of("x"),), evidence=True),
    ),
    grain=("topic", "offset"),
)


def judged(contract: Contract, rows: DataFrame) -> list[tuple[int, list[str]]]:
    from pyspark.sql import functions as F

    masked = rows.withColumn("mask", contract.broken_rules())
    return [tuple(row) for row in masked.select("mask", contract.violations(F.col("mask"))).collect()]


def test_a_bit_for_each_rule_in_the_order_of_the_columns(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [(0, "a", 1, "x"), (1, None, -1, "x"), (2, "A", -1, "y"), (3, "a", -1, None), (4, "a\n", None, "z")],
        "n int, topic string, offset bigint, text string",
    )
    assert judged(FEW, rows.orderBy("n")) == [
        (0b0000, []),
        (0b0001, ["topic.not_null"]),
        (0b1010, ["topic.letters", "text.one_of"]),
        (0b0100, ["offset.at_least_0"]),
        (0b1010, ["topic.letters", "text.one_of"]),
    ]


def test_as_many_rules_as_a_bigint_has_bits(spark: SparkSession) -> None:
    rules = tuple(is_true(f"bit_{bit}", f"n != {bit} AND n != -1") for bit in range(MOST_RULES))
    most = Contract("silver.most", "As many as fit.", (Column("n", "int", "A number.", rules),), grain=("n",))
    rows = spark.createDataFrame([(number,) for number in (0, MOST_RULES - 1, MOST_RULES, -1)], "n int")
    codes = [rule.code for rule in most.rules]
    assert judged(most, rows) == [
        (1, codes[:1]),
        (1 << (MOST_RULES - 1), codes[-1:]),
        (0, []),
        ((1 << MOST_RULES) - 1, codes),
    ]


def test_no_rules_break_nothing(spark: SparkSession) -> None:
    none = Contract("silver.none", "No rule.", (Column("n", "int", "A number."),), grain=("n",))
    assert judged(none, spark.range(1).toDF("n")) == [(0, [])]


def test_evidence_is_in_quarantine_only() -> None:
    assert [column.name for column in FEW.stored] == ["topic", "offset"]
    assert [column.name for column in FEW.quarantine] == ["topic", "offset", "text", "violations"]


N = Column("n", "int", "A number.")


@pytest.mark.parametrize(
    ("columns", "named", "sentence"),
    [
        ((N, N), {"grain": ("n",)}, "declared twice"),
        ((N,), {"grain": ("m",)}, "no column m"),
        ((N,), {"grain": ("n",), "content": "hash"}, "no column hash"),
        ((N,), {"grain": ("n",), "lossy": "lossy"}, "no column lossy"),
        ((Column("n", "int", "", (not_null(), not_null())),), {"grain": ("n",)}, "distinct"),
        (
            (Column("n", "int", "", tuple(at_least(bit) for bit in range(MOST_RULES + 1))),),
            {"grain": ("n",)},
            f"at most {MOST_RULES}",
        ),
    ],
    ids=["column twice", "grain", "content", "lossy", "code twice", "too many rules"],
)
def test_a_contract_that_contradicts_itself_is_refused(
    columns: tuple[Column, ...], named: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        Contract("silver.n", "Numbers.", columns, **named)  # type: ignore[arg-type]


def test_thresholds_of_the_settings_override_the_contracts_own() -> None:
    assert FEW.with_gate(None, None) == FEW
    assert (FEW.with_gate(0.0, None).tolerance, FEW.with_gate(0.0, None).min_failures) == (0.0, 10)
    assert (FEW.with_gate(None, 1).tolerance, FEW.with_gate(None, 1).min_failures) == (0.05, 1)


@pytest.mark.parametrize("table", ["bronze.dlq_records", "silver.dlq_records"])
def test_a_contract_is_found_by_its_path_and_says_what_each_column_means(table: str) -> None:
    contract = contract_of(table)
    assert contract is import_module(f"expectations.{table}").CONTRACT
    assert contract.table == table
    for column in contract.columns:
        assert column.comment.endswith("."), column.name
        assert column.name == column.name.lower()


def test_all_patterns_speak_about_the_whole_text() -> None:
    patterns = {
        rule.arguments[0]
        for path in EXPECTATIONS.glob("*/[a-z]*.py")
        for rule in contract_of(f"{path.parent.name}.{path.stem}").rules
        if rule.kind == "matches"
    }
    branches = [branch for pattern in patterns for branch in re.findall(r"\(\?:(\\A.+?\\z)\)", pattern) or [pattern]]
    assert len(branches) > 6
    assert [branche for branche in branches if not (branche.startswith(r"\A") and branche.endswith(r"\z"))] == []


CODES_OF_DLQ_RECORDS = {
    "dlq_topic.not_null",
    "dlq_partition.not_null",
    "dlq_partition.at_least_0",
    "dlq_offset.not_null",
    "dlq_offset.at_least_0",
    "header_profile.not_null",
    "header_profile.required",
    "header_profile.mandatory",
    "header_profile.decodes",
    "disposition.not_null",
    "disposition.utf8",
    "disposition.one_of",
    "original_topic.not_null",
    "original_topic.utf8",
    "original_topic.legal_topic_name",
    "original_partition.not_null",
    "original_partition.utf8",
    "original_partition.decimal_int32",
    "original_offset.not_null",
    "original_offset.utf8",
    "original_offset.decimal_int64",
    "original_timestamp_type.utf8",
    "consumer_group.not_null",
    "consumer_group.utf8",
    "delivery_count.utf8",
    "error_message.utf8",
    "exception_class.utf8",
    "exception_cause_class.utf8",
    "exception_stacktrace.utf8",
    "application.utf8",
    "connector_name.utf8",
    "task_id.utf8",
    "stage.utf8",
    "stage_class.utf8",
    "routed_at.not_null",
    "routed_at.utf8",
    "routed_at.iso_8601_utc",
    "error.readable",
}


def test_codes_of_dlq_records_are_a_public_interface() -> None:
    assert {rule.code for rule in contract_of("silver.dlq_records").rules} == CODES_OF_DLQ_RECORDS
