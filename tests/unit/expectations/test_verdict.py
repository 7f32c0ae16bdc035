"""The verdict: when failing rows break a gate, and its message."""

from __future__ import annotations

import pytest

from expectations.verdict import Outcome, Scope, Tally, Verdict, breaks, sentence_of, share


def outcome(code: str = "a.not_null", failing: int = 0, candidates: int = 100, hint: str = "") -> Outcome:
    success = not breaks(failing, candidates, 0.05, 10)
    return Outcome(code, failing, candidates, 0.05, 10, success, hint=hint)


@pytest.mark.parametrize(
    ("failing", "candidates", "tolerance", "min_failures", "broken"),
    [
        pytest.param(50, 1000, 0.05, 10, False, id="exactly the tolerance"),
        pytest.param(51, 1000, 0.05, 10, True, id="above the tolerance"),
        pytest.param(9, 9, 0.05, 10, False, id="too few to tell"),
        pytest.param(10, 10, 0.05, 10, True, id="enough to tell"),
        pytest.param(0, 0, 0.0, 1, False, id="nothing"),
        pytest.param(1, 10**9, 0.0, 1, True, id="nothing tolerated"),
        pytest.param(10**9, 10**9, 1.0, 1, False, id="everything tolerated"),
        pytest.param(1, 1, 0.0, 10, True, id="nothing tolerated, however few"),
    ],
)
def test_failing_rows_break_a_gate_when_many_and_too_large_a_share(
    failing: int, candidates: int, tolerance: float, min_failures: int, broken: bool
) -> None:
    assert breaks(failing, candidates, tolerance, min_failures) is broken


def test_the_sentence_of_a_broken_gate_names_rules_counts_threshold_hint_and_the_way_on() -> None:
    verdict = Verdict(
        "silver.x",
        "run",
        1000,
        (
            outcome("a.not_null", 60, 1000, hint="Was it switched off?"),
            outcome("b.one_of", 1000, 1000, hint="Was it switched off?"),
            outcome("c.matches", 3, 1000),
        ),
    )
    assert not verdict.passed
    assert verdict.sentence().split("\n") == [
        "b.one_of fails in 1,000 of 1,000 rows (100.0%, tolerated 5.0%); "
        "a.not_null fails in 60 of 1,000 rows (6.0%, tolerated 5.0%).",
        "Was it switched off?",
        "The gate of silver.x broke: nothing of this batch was written, and later input waits behind it.",
        "Fix the settings or the contract and run again, or accept the rows once, which quarantines the failing rows: "
        "`afterlog run --accept silver.x`.",
    ]
    assert [failed["rule"] for failed in verdict.summary()["failed"]] == ["b.one_of", "a.not_null"]


def test_a_gates_message_says_each_reason_once_and_in_few_lines() -> None:
    codes = ["row.no_violations", "z.not_null", *(f"{letter}.not_null" for letter in "abcde")]
    failed = [outcome(code, 1000 - index, 1000, hint="Look.") for index, code in enumerate(codes)]
    said = sentence_of("silver.x", "dlq.a", failed)
    first, *others = said.split("\n")
    assert first.startswith("z.not_null fails in 999 of 1,000 rows")
    assert first.endswith("; and 3 more rules.")
    assert len(others) == 3
    assert (said.count("Look."), said.count("row.no_violations"), said.count("z.not_null")) == (1, 0, 1)
    assert max(map(len, others)) < 200
    (alone,) = [item for item in failed if item.code == "row.no_violations"]
    assert sentence_of("silver.x", "dlq.a", [alone]).startswith("row.no_violations fails")


def test_facts_of_a_table_have_no_rows_to_tolerate() -> None:
    fact = Outcome("grain.duplicates", 3, 0, 0.0, 1, False)
    assert Verdict("gold.x", "run", 0, (fact,)).sentence() == (
        "The gate of gold.x broke: grain.duplicates is 3 where 0 is due. "
        "No data may do that, so it is a defect of Afterlog: please report it. Nothing was written, and what is made "
        "from the table waits: `afterlog rebuild gold.x` computes it again from the whole of its inputs."
    )


def test_a_gate_that_passed_says_so() -> None:
    assert Verdict("silver.x", "run", 1000, (outcome(),)).sentence() == "The gate of silver.x passed: 1,000 candidates."
    assert Verdict("gold.x", "run", 0, ()).sentence() == "The gate of gold.x passed."


def test_coordinates_go_to_their_expectation() -> None:
    verdict = Verdict("silver.x", "run", 100, (outcome("a.b", 20), outcome("c.d", 20)))
    assert [o.coordinates for o in verdict.located({(None, "c.d"): ("offset=1",)}).outcomes] == [(), ("offset=1",)]


@pytest.mark.parametrize(
    ("tolerance", "min_failures", "said"),
    [
        pytest.param(
            0.05, 1000, "where at least 1,000 rows and more than 5.0% of the rows that it speaks about fail", id="both"
        ),
        pytest.param(0.0, 1, "where any row fails", id="none tolerated"),
        pytest.param(1.0, 10, "never", id="all tolerated"),
    ],
)
def test_the_threshold_in_words(tolerance: float, min_failures: int, said: str) -> None:
    assert Outcome("a.b", 0, 0, tolerance, min_failures, True).threshold == said


@pytest.mark.parametrize(
    ("part", "said"),
    [(0, "0.0%"), (1, "100.0%"), (0.1, "10.0%"), (0.99999, "99.999%"), (0.0004, "0.04%"), (2 / 3, "66.7%")],
)
def test_a_share_is_not_rounded_to_nothing_or_all(part: float, said: str) -> None:
    assert share(part) == said


def of_scope(scope: str | None, code: str = "a.not_null", failing: int = 20, refuses: bool = True) -> Outcome:
    return Outcome(code, failing, 20, 0.05, 10, False, scope=scope, refuses=refuses)


SCOPES = {
    name: Scope(20, {code: Tally(failing, 20, failing, 20) for code, failing in found.items()})
    for name, found in {"a": {"a.not_null": 20}, "b": {"a.not_null": 1, "c.d": 3}, "c": {}}.items()
}


@pytest.mark.parametrize(
    ("failed", "broken"),
    [
        pytest.param([], [], id="none"),
        pytest.param([of_scope("a"), of_scope(None)], ["a"], id="a scope and with it the batch"),
        pytest.param([of_scope(None)], ["a", "b"], id="the batch, but no scope"),
        pytest.param([of_scope("a"), of_scope(None, "c.d")], ["a", "b"], id="a scope, and another rule of the batch"),
        pytest.param([of_scope(None, "e.f")], ["a", "b", "c"], id="an expectation that no row fails"),
    ],
)
def test_scopes_are_broken_by_themselves_or_with_the_batch(failed: list[Outcome], broken: list[str]) -> None:
    assert list(Verdict("silver.x", "run", 60, tuple(failed)).broken(SCOPES)) == broken


def test_a_suite_that_failed_for_no_known_reason_breaks_every_scope() -> None:
    verdict = Verdict("silver.x", "run", 60, (outcome(),), success=False)
    assert not verdict.passed
    assert verdict.broken(SCOPES) == {"a": (), "b": (), "c": ()}


@pytest.mark.parametrize(
    ("failed", "accepting"),
    [
        ([of_scope("a")], "quarantines the failing rows"),
        ([of_scope("a", refuses=False)], "lets rows that break a.not_null into the table"),
        (
            [of_scope("a"), of_scope("a", "c.d", refuses=False)],
            "quarantines failing rows, but lets rows that break c.d into the table",
        ),
    ],
    ids=["refused", "tolerated", "both"],
)
def test_the_way_on_says_what_becomes_of_the_rows(failed: list[Outcome], accepting: str) -> None:
    said = sentence_of("silver.x", "dlq.a b\n", failed)
    assert said.startswith("a.not_null")
    assert "\nThe gate of silver.x broke for dlq.a b\\n: its rows are held" in said
    assert said.endswith(f", which {accepting}: `afterlog run --accept 'silver.x:dlq.a b\\n'`.")
