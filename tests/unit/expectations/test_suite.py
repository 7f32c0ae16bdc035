"""The gate: the same verdict everywhere, equal to the row split's, at a constant cost, without a record's values."""

from __future__ import annotations

import itertools
import json
import logging
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from great_expectations.expectations.core import ExpectColumnSumToBeBetween

from expectations import native, rules
from expectations.bronze.dlq_records import HEADERS
from expectations.contract import Column, Contract, contract_of
from expectations.docs import build_docs
from expectations.silver import dlq_records
from expectations.suite import GateUnusable, gate, gate_facts
from expectations.verdict import Scope, Tally, Verdict
from pipelines.settings import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVERY_KIND = Contract(
    table="silver.samples",
    description="One column for each kind of rule, plain and guarded.",
    columns=(
        Column("text", "string", "-", (rules.not_null("There is text."), rules.matches("decimal", rules.INT64))),
        Column("word", "string", "-", (rules.one_of("a", "b"), rules.not_null().where("flag"))),
        Column("number", "bigint", "-", (rules.at_least(0), rules.between(-5, 2**62 + 1), rules.one_of(1, 2, 2**62))),
        Column("ratio", "double", "-", (rules.between(0, 1),)),
        Column("flag", "boolean", "-", (rules.is_true("set", "flag"), rules.is_true("apart", "flag OR number > 0"))),
        Column("note", "string", "-", (rules.matches("word", r"\A\w+\z").where("flag"),), evidence=True),
    ),
    grain=("text",),
)

EVERY_KIND_SCHEMA = ", ".join(f"{column.name} {column.type}" for column in EVERY_KIND.columns)


def counted_by_split(candidates: DataFrame, contract: Contract) -> dict[str, int]:
    """Count for each rule the rows whose mask has the rule's bit set."""
    from pyspark.sql import functions as F

    masks = candidates.select(contract.broken_rules().alias("mask"))
    bits = [F.count_if(F.col("mask").bitwiseAND(1 << bit) != 0) for bit in range(len(contract.rules))]
    *counts, any_broken = masks.select(*bits, F.count_if(F.col("mask") != 0)).collect()[0]
    return dict(zip([rule.code for rule in contract.rules], counts, strict=True)) | {"row.no_violations": any_broken}


def jobs_of(spark: SparkSession, group: str, work: Callable[[], Any]) -> int:
    spark.sparkContext.setJobGroup(group, group)
    try:
        work()
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def numbers(spark: SparkSession, failing: int, passing: int, null: int = 0) -> DataFrame:
    values = [(-1,)] * failing + [(1,)] * passing + [(None,)] * null
    return spark.createDataFrame(values, "n bigint").coalesce(1)


def numbers_contract(tolerance: float = 0.05, min_failures: int = 10, table: str = "silver.numbers") -> Contract:
    column = Column("n", "bigint", "-", (rules.at_least(0, "n is at least 0."),))
    return Contract(table, "-", (column,), ("n",), tolerance=tolerance, min_failures=min_failures)


def test_both_enforcers_agree_rule_by_rule_on_every_kind(spark: SparkSession) -> None:
    texts = [
        None,
        "",
        "0",
        "7",
        "7\n",
        "\n7",
        "07",
        "+7",
        "-1",
        "7.0",
        " 7",
        "\u0667",
        "\u096f",
        "7\u2028",
        "7\x00",
        "9" * 19,
        "9" * 18,
    ]
    words = [None, "a", "A", "b\n", "é", "a b", ""]
    whole = [None, 0, 1, -1, -6, 2**62, 2**62 + 1, 2**62 + 2, 2**63 - 1, -(2**63)]
    ratios = [None, 0.0, -0.0, 1.0, 1.0000001, float("nan"), float("inf"), float("-inf"), -5e-324]
    flags = [None, True, False]
    pools = (texts, words, whole, ratios, flags, words)
    choose = random.Random(1)
    rows = [tuple(choose.choice(pool) for pool in pools) for _ in range(500)]
    rows += [tuple(pool[index % len(pool)] for pool in pools) for index in range(max(map(len, pools)))]
    candidates = spark.createDataFrame(rows, EVERY_KIND_SCHEMA).coalesce(1)

    verdict = gate(candidates, EVERY_KIND, run_id="r", store=None)

    split = counted_by_split(candidates, EVERY_KIND)
    assert {outcome.code: outcome.failing for outcome in verdict.outcomes} == split
    assert all(0 < failing < len(rows) for failing in split.values())


def test_both_enforcers_agree_rule_by_rule_on_dead_letters(spark: SparkSession) -> None:
    contract = contract_of("silver.dlq_records")
    topics = [None, "orders", "..", "a b", "orders\n", "ördérs", "x" * 250]
    numerals = [
        None,
        "0",
        "5\n",
        "05",
        "+5",
        "\u0665",
        "5e0",
        "2147483647",
        "2147483648",
        "9223372036854775807",
        "9" * 19,
    ]
    moments = [
        None,
        "2026-02-28T10:00:00Z",
        "2026-02-30T10:00:00Z",
        "2026-02-28T10:00:00Z\n",
        "2026-02-28T10:00:00+01:00",
    ]
    profiles = [None, "kip-1317", "kip-1191", "kafka-streams", "kafka-connect", "spring-kafka", "own"]
    fields = [rule.subject.split("'")[1] for rule in contract.rules if rule.name == "utf8"]
    special = {
        "header_profile": profiles,
        "required_profile": [None, None, "kip-1317"],
        "disposition": [None, *dlq_records.DISPOSITIONS, "client_rejected", "CLIENT_REJECTED\n", ""],
        "original_topic": topics,
        "original_partition_text": numerals,
        "original_offset_text": numerals,
        "routed_at_text": moments,
        "undecodable_headers": [None, [], *([field] for field in fields), fields],
        "missing_fields": [None, None, [], ["original_topic"], ["original_offset", "routed_at"]],
        "undecoded_fields": [None, None, [], ["delivery_count"]],
        "error": [None, None, None, "not JSON"],
    }
    by_type: dict[str, list[Any]] = {
        "string": [None, "text", "text\n"],
        "int": [None, 0, -1, 2**31 - 1],
        "bigint": [None, 0, -1, 2**63 - 1],
        "boolean": [None, True, False],
        "binary": [None, b"\xff"],
        "timestamp": [None],
        HEADERS: [None, []],
    }
    pools = [special.get(column.name, by_type.get(column.type)) for column in contract.columns]
    choose = random.Random(2)
    rows = [tuple(choose.choice(pool or [None]) for pool in pools) for _ in range(3000)]
    schema = ", ".join(f"`{column.name}` {column.type}" for column in contract.columns)
    candidates = spark.createDataFrame(rows, schema).coalesce(1)

    verdict = gate(candidates, contract, run_id="r", store=None)

    split = counted_by_split(candidates, contract)
    assert {outcome.code: outcome.failing for outcome in verdict.outcomes} == split
    assert not [code for code, failing in split.items() if not failing]


def test_a_mask_that_is_there_already_decides_which_rows_have_no_violation(spark: SparkSession) -> None:
    candidates = numbers(spark, 0, 30).selectExpr("n", "IF(n = 1, 1L, 0L) AS _broken_rules")
    failing = {o.code: o.failing for o in gate(candidates, numbers_contract(), run_id="r", store=None).outcomes}
    assert failing == {"n.at_least_0": 0, "row.no_violations": 30}


# By name: how many rows fail, pass and are null; tolerance and min_failures; whether the gate lets them pass.
JUDGED = {
    "exactly the tolerance": (10, 190, 0, 0.05, 10, True),
    "just above the tolerance": (11, 190, 0, 0.05, 10, False),
    "all rows, fewer than min_failures": (9, 0, 0, 0.05, 10, True),
    "all rows, min_failures of them": (10, 0, 0, 0.05, 10, False),
    "all rows that are not null, few of all candidates": (10, 0, 990, 0.05, 10, True),
    "tolerance 1.0 never breaks": (50, 0, 0, 1.0, 1, True),
    "no tolerance at all": (1, 999, 0, 0.0, 1, False),
    "no candidates": (0, 0, 0, 0.0, 1, True),
}


@pytest.fixture(scope="module")
def judged(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Verdict, dict[str, Any], str]]:
    """The verdict, what is stored of it, and its page in Data Docs, by name."""
    place = tmp_path_factory.mktemp("judged")
    verdicts = {}
    for number, (name, (failing, passing, null, tolerance, min_failures, _)) in enumerate(JUDGED.items()):
        contract = numbers_contract(tolerance, min_failures, f"silver.numbers_{number}")
        verdicts[name] = gate(numbers(spark, failing, passing, null), contract, run_id="r", store=place / "gx")
    build_docs(place / "gx", place / "site", keep_runs=1)
    found = {}
    for number, (name, verdict) in enumerate(verdicts.items()):
        stored = next((place / "gx" / f"silver.numbers_{number}").glob("*.json"))
        page = next((place / "site" / "validations" / "silver" / f"numbers_{number}").rglob("*.html"))
        found[name] = (verdict, json.loads(stored.read_text()), page.read_text())
    return found


@pytest.mark.parametrize("name", JUDGED)
def test_the_verdict_counts_failing_rows_among_all_candidates(
    name: str, judged: dict[str, tuple[Verdict, dict[str, Any], str]]
) -> None:
    failing, passing, null, _, _, passed = JUDGED[name]
    verdict, stored, page = judged[name]
    assert verdict.passed is passed
    assert [outcome.failing for outcome in verdict.outcomes] == [failing, failing]
    assert verdict.candidates == failing + passing + null
    assert (stored["success"], {found["success"] for found in stored["results"]}) == (passed, {passed})
    icons = (0, 3) if passed else (3, 0)  # for the batch and for two expectations
    assert ("Failed" in page) is not passed
    assert f"{failing} of {rules.counted(failing + passing + null, 'row')} failed" in page
    assert not re.search("% (unexpected|not null)", page)
    assert (page.count('class="fas fa-times'), page.count('class="fas fa-check-circle')) == icons


@pytest.mark.parametrize(
    ("is_unreadable", "tolerance", "broken"), [(True, 0.05, True), (True, 1.0, False), (False, 0.05, False)]
)
def test_of_an_unreadable_file_no_row_may_fail_to_be_read(
    spark: SparkSession, is_unreadable: bool, tolerance: float, broken: bool
) -> None:
    error = Column("error", "string", "-", (rules.readable("error", "A line can be read."),))
    contract = Contract("silver.lines", "-", (Column("id", "int", "-"), error), ("id",), tolerance=tolerance)
    rows = spark.createDataFrame([(1, "no"), (2, None)], "id int, error string").coalesce(1)
    item, both = Tally(1, 1, 1, 1), Tally(1, 2, 1, 2)
    scopes = {"*": Scope(2, {"error.readable": both}), "file:a": Scope(1, {"error.readable": item}, is_unreadable)}

    verdict = gate(rows, contract, run_id="r", store=None, scopes=scopes)

    assert verdict.success is not broken
    assert list(verdict.broken(scopes)) == (["file:a"] if broken else [])


@pytest.mark.parametrize("expectation", [native.ExpectMatch, native.ExpectNotNull, native.ExpectBetween])
def test_an_expectation_that_answers_no_breaks_every_scope(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, expectation: type[Any]
) -> None:
    rows = spark.createDataFrame([("7", "a", 1, 0.5, True, "b")], EVERY_KIND_SCHEMA).coalesce(1)
    monkeypatch.setattr(expectation, "_validate", lambda *_, **named: {"success": False, "result": {}})

    verdict = gate(rows, EVERY_KIND, run_id="r", store=None, scopes={"a": Scope(1, {}), "b": Scope(0, {})})

    assert not verdict.passed
    assert verdict.broken({"a": Scope(1, {}), "b": Scope(0, {})}).keys() == {"a", "b"}


def test_spark_jobs_do_not_grow_with_the_rules(spark: SparkSession) -> None:
    def contract(of_rules: int) -> Contract:
        columns = (Column(f"c{i}", "bigint", "-", (rules.at_least(i),)) for i in range(of_rules))
        return Contract("silver.wide", "-", tuple(columns), ("c0",))

    candidates = spark.range(100).selectExpr(*(f"id AS c{i}" for i in range(24)))
    cached = set(spark.sparkContext._jsc.getPersistentRDDs())  # type: ignore[attr-defined]  # Delta's, of other tests
    few, many = (
        jobs_of(spark, f"gate of {of_rules}", lambda n=of_rules: gate(candidates, contract(n), run_id="r", store=None))
        for of_rules in (3, 24)
    )
    assert few == many <= 4
    assert set(spark.sparkContext._jsc.getPersistentRDDs()) <= cached  # type: ignore[attr-defined]


def test_no_value_of_a_record_is_kept_shown_or_logged(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, logger="great_expectations")
    canary = "canary-7f3a"
    row = (canary, canary, -77003377, 77003377.5, False, f"{canary} ")
    candidates = spark.createDataFrame([row] * 20, EVERY_KIND_SCHEMA)

    verdict = gate(candidates, EVERY_KIND, run_id="r", store=tmp_path / "gx")
    build_docs(tmp_path / "gx", tmp_path / "site", keep_runs=1)

    assert len(verdict.failed) > 6
    files = [file.read_bytes().decode("utf-8", "replace") for file in tmp_path.rglob("*") if file.is_file()]
    shown = "\n".join(
        [*files, repr(verdict), verdict.sentence(), str(verdict.summary()), caplog.text, *capfd.readouterr()]
    )
    assert "row.no_violations" in shown
    assert canary not in shown
    assert "77003377" not in shown


def test_a_rule_that_cannot_be_evaluated_is_an_error_without_a_value(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    column = Column("text", "string", "-", (rules.at_least(0).of("CAST(text AS INT)"),))
    contract = Contract("silver.samples", "-", (column,), ("text",))
    candidates = spark.createDataFrame([("canary-7f3a",)] * 20, "text string")

    with pytest.raises(GateUnusable, match=r"silver\.samples.*CAST_INVALID_INPUT") as raised:
        gate(
            candidates.withColumn("_broken_rules", candidates.text.isNull().cast("bigint")),
            contract,
            run_id="r",
            store=tmp_path,
        )

    assert "canary-7f3a" not in "\n".join(
        [str(raised.value), repr(raised.value.__context__), caplog.text, *capfd.readouterr()]
    )
    assert not list(tmp_path.rglob("*"))


def test_each_gate_sees_its_own_facts_also_in_several_threads() -> None:
    counts = [number % 3 for number in range(90)]

    def failing(count: int) -> list[int]:
        facts = {"grain.duplicates": count, f"fact_{count}.difference": 0}
        verdict = gate_facts(facts, "gold.dlq_summary", run_id="r", store=None)
        assert verdict.passed is (count == 0)
        return [outcome.failing for outcome in verdict.outcomes]

    with ThreadPoolExecutor(3) as pool:
        assert [*pool.map(failing, counts)] == [[count, 0] for count in counts]


def test_facts_must_be_zero(tmp_path: Path) -> None:
    facts = {"grain.duplicates": 0, "counts.difference": -3}

    verdict = gate_facts(facts, "gold.dlq_summary", run_id="r", store=tmp_path / "gx")

    assert {outcome.code: (outcome.failing, outcome.success) for outcome in verdict.outcomes} == {
        "grain.duplicates": (0, True),
        "counts.difference": (3, False),
    }
    assert "counts.difference is 3 where 0 is due" in verdict.sentence()
    build_docs(tmp_path / "gx", tmp_path / "site", keep_runs=1)
    page = next((tmp_path / "site" / "validations").rglob("*.html")).read_text()
    assert "Failed" in page
    assert "counts.difference must be 0." in page
    assert gate_facts({"grain.duplicates": 0}, numbers_contract(), run_id="r", store=None).passed


def test_the_configuration_of_an_expectation_follows_its_fields() -> None:
    fields: dict[str, Any] = {"min_value": 0, "max_value": 0, "meta": {"code": "a"}}
    item = native.ExpectZero(column="a", **fields)
    told = item.configuration
    assert item.configuration is told
    assert told.kwargs == ExpectColumnSumToBeBetween(column="a", **fields).configuration.kwargs
    item.column = "b"
    assert (item.configuration.kwargs["column"], told.kwargs["column"]) == ("b", "a")
    assert item.copy(update={"column": "c"}).configuration.kwargs["column"] == "c"


def test_data_docs_keep_the_last_runs_of_each_table(tmp_path: Path) -> None:
    store, site = tmp_path / "gx", tmp_path / "site"
    for table, run in itertools.product(("gold.a", "gold.b"), range(4)):
        gate_facts({"grain.duplicates": run}, table, run_id=f"run-{run}", store=store)
        if run == 1:
            build_docs(store, site, keep_runs=9)
    untouched = next((site / "validations" / "gold" / "b" / "run-1").rglob("*.html"))
    rendered = untouched.stat().st_mtime_ns

    index = build_docs(store, site, keep_runs=3)

    pages = sorted(file.relative_to(site / "validations").parts[1:3] for file in (site / "validations").rglob("*.html"))
    assert pages == sorted(itertools.product("ab", ("run-1", "run-2", "run-3")))
    assert not [path for path in site.rglob("*") if path.is_dir() and not any(path.iterdir())]
    assert len(list(store.rglob("*.json"))) == 6
    assert untouched.stat().st_mtime_ns == rendered
    links = [f"validations/gold/{table}/{run}/" in index.read_text() for table, run in pages]
    assert all(links)
    assert index == site / "index.html"


def test_data_docs_are_built_by_a_process_that_judged_nothing(tmp_path: Path) -> None:
    gate_facts({"grain.duplicates": 1}, "gold.a", run_id="r", store=tmp_path / "gx")
    gate_facts({"grain.duplicates": 1}, "gold.a", run_id="s", store=tmp_path / "gx")
    built = "from pathlib import Path; from expectations import docs; docs.build_docs(*map(Path, ('gx', 'site')), 2)"
    subprocess.run([sys.executable, "-c", built], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    assert len(list((tmp_path / "site" / "validations").rglob("*.html"))) == 2


def test_data_docs_need_neither_network_nor_scripts(tmp_path: Path) -> None:
    gate_facts({"grain.duplicates": 1}, "gold.a", run_id="r", store=tmp_path / "gx")
    build_docs(tmp_path / "gx", tmp_path / "site", keep_runs=1)
    pages = [page.read_text() for page in (tmp_path / "site").rglob("*.html")]
    assert len(pages) == 3
    assert not [page for page in pages if "<script" in page or "//" in page.replace("</", "")]


def test_names_cannot_leave_the_store_or_become_markup(tmp_path: Path) -> None:
    gate_facts({"grain.duplicates": 1}, "gold.<i>", run_id="../../<u>", store=tmp_path / "gx")
    build_docs(tmp_path / "gx", tmp_path / "site", keep_runs=1)
    assert {file.relative_to(tmp_path).parts[0] for file in tmp_path.rglob("*.*")} == {"gx", "site"}
    for page in (tmp_path / "site").rglob("*.html"):
        assert not [tag for tag in ("<i>", "<u>") if tag in page.read_text()]
