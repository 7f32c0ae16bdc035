"""candidates -> verdict: run a contract as a Great Expectations suite and keep the results for Data Docs.

Only this module, `docs` and `native` import Great Expectations, which takes seconds: import them where a gate runs, not
before.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expectations import before_gx  # noqa: F401

# isort: split
import great_expectations as gx
from great_expectations.core.expectation_validation_result import (
    ExpectationSuiteValidationResult,
    ExpectationValidationResult,
)
from great_expectations.expectations.core.expect_column_pair_values_a_to_be_greater_than_b import (
    ExpectColumnPairValuesAToBeGreaterThanB,
)
from great_expectations.expectations.expectation import Expectation

from expectations.contract import Contract
from expectations.docs import keep, memory_context, plain
from expectations.native import ExpectZero, expectation_of
from expectations.rules import Rule
from expectations.text import in_docs, visible
from expectations.verdict import MOST_FINDINGS, OF_THE_ROW, Outcome, Scope, Verdict, most_failing

if TYPE_CHECKING:
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.datasource.fluent.interfaces import Batch
    from pandas import DataFrame as PandasDataFrame  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame

MASK = "_broken_rules"
NO_VIOLATIONS = Rule(
    "no_violations", "is_true", code=OF_THE_ROW, meaning="A row breaks no rule that keeps it out of the table."
).failing("cannot enter the table")
OF_SCOPES = "scopes.within_tolerance"
_one_at_a_time = threading.Lock()
COUNTS_ONLY: dict[str, Any] = {
    "result_format": "BASIC",
    "partial_unexpected_count": 0,
}  # never a value of a row, and fewer Spark jobs
SCOPES_NAMED: dict[str, Any] = {"result_format": "COMPLETE", "unexpected_index_column_names": ["scope", "number"]}


class GateUnusable(Exception):
    """The expectations could not be evaluated, usually because a rule does not fit the columns; quotes no value."""


def gate(
    candidates: DataFrame,
    contract: Contract,
    *,
    run_id: str,
    store: Path | None,
    scopes: Mapping[str, Scope] | None = None,
    examined_rows: Mapping[str, int] | None = None,
    locate: Callable[[Verdict], Verdict] = lambda verdict: verdict,
) -> Verdict:
    """Validate candidates against their contract with Great Expectations and return the verdict.

    The candidates have the contract's columns, or columns that are named by the rules' codes and hold what the rules
    examine. The bits of broken rules come from the column ``_broken_rules`` if it exists. ``examined_rows`` gives the
    number of rows that each rule applies to; None counts them. One native column expectation for each rule and one for
    the row as a whole examine all candidates. One more expectation examines the counts of the batch's ``scopes``. Great
    Expectations' own result decides the verdict and goes to ``store``, unless that is None. If the gate broke,
    ``locate`` adds where failing rows are, and Data Docs show it too.

    Raises GateUnusable: a rule cannot be evaluated on these columns.
    """
    from pyspark.sql import functions as F

    mask = F.col(MASK) if MASK in candidates.columns else contract.broken_rules()
    if examined_rows is None:
        examined_rows = _examined_rows(candidates, contract)
    fit = (~contract.refused(mask)).alias(NO_VIOLATIONS.code)
    present = set(candidates.columns)
    subjects = (F.col(f"`{rule.code}`") if rule.code in present else rule.examined() for rule in contract.rules)
    examined = candidates.select(*subjects, fit)
    context = memory_context()
    source = context.data_sources.add_spark("candidates", persist=False)
    batch = (
        source.add_dataframe_asset(contract.table)
        .add_batch_definition_whole_dataframe(run_id)
        .get_batch({"dataframe": examined})
    )
    _order_metrics(batch)
    rules = (*contract.rules, NO_VIOLATIONS)
    expectations = [expectation_of(rule, contract, examined_rows[rule.code]) for rule in rules]
    result = _validated(batch, expectations, contract.table)
    outcomes = _outcomes(result)
    success = bool(result.success)
    if judged := _judged_scopes(contract, scopes or {}):
        of_scopes, broken = judged
        success = success and bool(of_scopes.success)
        result = _joined(result, of_scopes)
        outcomes += broken
    verdict = Verdict(contract.table, run_id, examined_rows[NO_VIOLATIONS.code], outcomes, success)
    if not verdict.passed:
        verdict = locate(verdict)
        _say_where(result, verdict)
    if store is not None:
        keep(result, contract.table, run_id, store)
    return verdict


def _order_metrics(batch: Batch) -> None:
    """Let the batch's engine compute metrics in the order of their ids.

    Great Expectations keeps them in sets, so Spark would get another aggregate, and compile its code, at each gate.
    """
    engine = batch.data.execution_engine
    compute = engine.resolve_metric_bundle

    def in_order(metric_fn_bundle: Iterable[Any]) -> Any:
        return compute(sorted(metric_fn_bundle, key=lambda computed: computed.metric_configuration.id))

    engine.resolve_metric_bundle = in_order


def _say_where(result: ExpectationSuiteValidationResult, verdict: Verdict) -> None:
    """Add to failed expectations in Data Docs which files hold failing rows, and where in these files."""
    lines_of: dict[str, list[str]] = {}
    for outcome in verdict.failed:
        if outcome.where:
            code = outcome.code if outcome.scope is None else OF_SCOPES
            scope = "" if outcome.scope is None else f"{visible(outcome.scope)}: {outcome.code}: "
            fault = f"{outcome.fault}: " if outcome.fault else ""
            lines_of.setdefault(code, []).append(f"{scope}{fault}{outcome.where}")
    for result_of_one in result.results:
        config: Any = result_of_one.expectation_config
        if lines := lines_of.get(config.meta["code"]):
            more = [f"And {len(lines) - MOST_FINDINGS:,} more."] if len(lines) > MOST_FINDINGS else []
            config.meta["description"] = config.description
            config.description = "<br>".join([config.description, *map(in_docs, [*lines[:MOST_FINDINGS], *more])])


def _examined_rows(candidates: DataFrame, contract: Contract) -> dict[str, int]:
    """Return how many candidates each rule applies to."""
    from pyspark.sql import functions as F

    counts = [F.count_if(rule.applies()).alias(str(bit)) for bit, rule in enumerate(contract.rules)]
    counted_rows = candidates.agg(*counts, F.count("*").alias("all")).collect()[0]
    return {rule.code: counted_rows[str(bit)] for bit, rule in enumerate(contract.rules)} | {
        NO_VIOLATIONS.code: counted_rows["all"]
    }


def _judged_scopes(
    contract: Contract, scopes: Mapping[str, Scope]
) -> tuple[ExpectationSuiteValidationResult, tuple[Outcome, ...]] | None:
    """Compare the failing rows of each scope with what it tolerates; return None if no row fails in any scope.

    Great Expectations gets one table of counts as one batch, for any number of scopes and rules. Of an unreadable file
    no row can fail to have been read.
    """
    import pandas as pd

    rules = {rule.code: rule for rule in (*contract.rules, NO_VIOLATIONS)}
    tallies = list(_failing_tallies(scopes, rules))
    if not tallies:
        return None
    tolerance, min_failures = contract.tolerance, contract.min_failures
    table = pd.DataFrame(
        {
            "scope": [name for name, *_ in tallies],
            "number": range(len(tallies)),
            "failing": [failing for _, _, failing, *_ in tallies],
            "most": [
                most_failing(examined, 0 if is_unread and tolerance < 1 else tolerance, min_failures)
                for *_, examined, is_unread in tallies
            ],
        }
    )
    each = ExpectColumnPairValuesAToBeGreaterThanB(
        column_A="most",
        column_B="failing",
        or_equal=True,
        description=in_docs(
            "In no scope, such as a topic, more rows fail a rule than it tolerates. Of each file some row can be read."
        ),
        meta={"code": OF_SCOPES, "tolerance": tolerance, "min_failures": min_failures},
    )
    result = _validated_rows("scopes", table, [each], contract.table, SCOPES_NAMED)
    (judged,) = result.results
    indexes = {named["number"] for named in judged.result.get("unexpected_index_list") or ()}
    if not judged.success and not indexes:  # the result does not say which rows failed
        indexes = set(range(len(tallies)))
    broken: dict[tuple[str, str], Outcome] = {}
    for index in sorted(indexes):
        name, code, failing, examined, _ = tallies[index]
        rule = rules[code]
        outcome = Outcome(
            *(code, failing, examined, tolerance, min_failures, False, rule.meaning, rule.hint),
            scope=name,
            refuses=rule.refuses,
            failure=rule.failure,
            noun=rule.noun,
        )
        broken.setdefault((name, code), outcome)  # prefer the counts of the batch alone
    kept = ("element_count", "unexpected_count", "unexpected_percent")
    judged.result = {name: judged.result[name] for name in kept if name in judged.result}  # drop what names topics
    return result, tuple(broken.values())


def _failing_tallies(
    scopes: Mapping[str, Scope], rules: Mapping[str, Rule]
) -> Iterator[tuple[str, str, int, int, bool]]:
    """Yield each scope and rule that fails in it, with failing and examined rows, and whether no row of it was read.

    There are two for each, or one if they are equal: the counts of the batch, and those of the batch together with the
    small batches before it.
    """
    for name, scope in scopes.items():
        for code, tally in scope.tallies.items():
            is_unread = scope.is_unreadable and bool(rules[code].reason)
            alone, recently = (tally.failing, tally.examined), (tally.recently_failing, tally.recently_examined)
            for failing, examined in dict.fromkeys((alone, recently)) if tally.failing else ():
                yield name, code, failing, examined, is_unread


def _joined(
    result: ExpectationSuiteValidationResult, more: ExpectationSuiteValidationResult
) -> ExpectationSuiteValidationResult:
    """Merge two results of one table into one, for Data Docs."""
    results = [*result.results, *more.results]
    held = sum(bool(part.success) for part in results)
    result.results = results
    result.success = bool(result.success and more.success)
    result.statistics = {
        "evaluated_expectations": len(results),
        "successful_expectations": held,
        "unsuccessful_expectations": len(results) - held,
        "success_percent": 100 * held / len(results),
    }
    return result


def gate_facts(
    facts: Mapping[str, int], contract_or_table: Contract | str, *, run_id: str, store: Path | None
) -> Verdict:
    """Validate facts of a table, which are counts of defects such as ``grain.duplicates``: each must be 0."""
    import pandas as pd

    table = contract_or_table if isinstance(contract_or_table, str) else contract_or_table.table
    expectations = [
        ExpectZero(
            column=fact, min_value=0, max_value=0, description=in_docs(f"{fact} must be 0."), meta={"code": fact}
        )
        for fact in facts
    ]
    result = _validated_rows("facts", pd.DataFrame([facts]), expectations, table)
    if store is not None:
        keep(result, table, run_id, store)
    return Verdict(table, run_id, 0, _outcomes(result), bool(result.success))


def _validated_rows(
    what: str,
    rows: PandasDataFrame,
    expectations: Iterable[Expectation],
    table: str,
    result_format: dict[str, Any] = COUNTS_ONLY,
) -> ExpectationSuiteValidationResult:
    """Return the result for a few rows that tell about a table; two threads would get each other's rows."""
    with _one_at_a_time:
        batch = _few_rows_of(what, table).get_batch({"dataframe": rows})
        return _validated(batch, expectations, table, result_format)


@cache
def _few_rows_of(what: str, table: str) -> BatchDefinition[Any]:
    """Return what makes batches of these rows; to make it takes as long as to validate a batch."""
    asset = memory_context().data_sources.add_pandas(what).add_dataframe_asset(table)
    return asset.add_batch_definition_whole_dataframe(what)


def _validated(
    batch: Batch, expectations: Iterable[Expectation], table: str, result_format: dict[str, Any] = COUNTS_ONLY
) -> ExpectationSuiteValidationResult:
    """Return Great Expectations' result, in the order of the expectations.

    Raises GateUnusable: an expectation cannot be evaluated.
    """
    suite = gx.ExpectationSuite(name=plain(table), expectations=list(expectations))
    result = batch.validate(suite, result_format=result_format)
    for checked in result.results:
        if checked.exception_info.get("raised_exception", True):
            raise GateUnusable(
                f"The gate of {table} cannot be evaluated ({_error_class(checked.exception_info)}): unless the machine "
                f"is at fault, fix the rule of its contract that does not suit the candidates' columns."
            )
    indexes = {(expectation.meta or {})["code"]: index for index, expectation in enumerate(suite.expectations)}
    result.results.sort(key=lambda checked: indexes[_meta(checked)["code"]])
    return result


def _outcomes(result: ExpectationSuiteValidationResult) -> tuple[Outcome, ...]:
    """Return results as outcomes; Great Expectations itself decides whether an expectation holds."""
    outcomes = []
    for checked in result.results:
        meta, counts, success = _meta(checked), checked.result, bool(checked.success)
        if "tolerance" in meta:
            failing, examined = counts.get("unexpected_count", 0), meta["examined"]
            thresholds = (meta["tolerance"], meta["min_failures"])
            words = {name: meta[name] for name in ("meaning", "hint", "refuses", "failure", "noun")}
            outcomes.append(Outcome(meta["code"], failing, examined, *thresholds, success, **words))
        else:
            failing = abs(int(counts.get("observed_value", 0)))
            outcomes.append(Outcome(meta["code"], failing, 0, 0.0, 1, success))
    return tuple(outcomes)


def _meta(result: ExpectationValidationResult) -> dict[str, Any]:
    configuration: Any = result.expectation_config
    meta: dict[str, Any] = configuration.meta
    return meta


def _error_class(exception_info: Mapping[str, Any]) -> str:
    """Return only the name of an error, because its text may quote a value of a row."""
    text = json.dumps(exception_info, default=str)
    for name in (r"\[([A-Z][A-Z_.]+)\]", r"(No space left on device)", r"\b([A-Z][A-Za-z]+(?:Error|Exception))\b"):
        if named := re.search(name, text):
            return named[1]
    return "unknown error"
