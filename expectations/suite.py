"""candidates -> verdict: a contract as a Great Expectations suite, its results kept for Data Docs.

The only module that imports Great Expectations, which takes seconds: import it where a gate is run, not before.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read once, when the package is imported

import great_expectations as gx
from great_expectations.core.expectation_validation_result import (
    ExpectationSuiteValidationResult,
    expectationSuiteValidationResultSchema,
)
from great_expectations.core.run_identifier import RunIdentifier
from great_expectations.data_context.types.base import (
    DataContextConfig,
    InMemoryStoreBackendDefaults,
    ProgressBarsConfig,
)
from great_expectations.data_context.types.resource_identifiers import (
    ExpectationSuiteIdentifier,
    ValidationResultIdentifier,
)
from great_expectations.expectations.core.expect_column_sum_to_be_between import ExpectColumnSumToBeBetween
from great_expectations.expectations.core.expect_column_values_to_be_between import ExpectColumnValuesToBeBetween
from great_expectations.expectations.core.expect_column_values_to_be_in_set import ExpectColumnValuesToBeInSet
from great_expectations.expectations.core.expect_column_values_to_match_regex import ExpectColumnValuesToMatchRegex
from great_expectations.expectations.core.expect_column_values_to_not_be_null import ExpectColumnValuesToNotBeNull
from great_expectations.expectations.expectation import ColumnMapExpectation
from great_expectations.render.view.view import DefaultJinjaPageView
from jinja2 import ChoiceLoader, FileSystemLoader

from expectations.contract import Contract
from expectations.rules import Rule
from expectations.verdict import Outcome, Verdict, breaks

if TYPE_CHECKING:
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext
    from great_expectations.datasource.fluent.interfaces import Batch
    from great_expectations.expectations.expectation import Expectation
    from great_expectations.validator.validator import ValidationDependencies
    from pyspark.sql import DataFrame

MASK = "_broken_rules"
NO_VIOLATIONS = Rule(
    "no_violations", "is_true", code="row.no_violations", meaning="A row breaks no rule that keeps it out of the table."
)
ROW_COUNT = "table.row_count"
COUNTS_ONLY = {"result_format": "BASIC", "partial_unexpected_count": 0}  # no value of a row, few Spark jobs


class GateUnusable(Exception):
    """The expectations could not be evaluated, mostly because a rule does not suit the columns; quotes no value."""


class _Counted(ColumnMapExpectation):
    """An expectation that looks at two counts, and whose success is the verdict's, so that all who show it agree.

    Great Expectations' own ``mostly`` divides by the rows that are not null and knows no least number of failures; it
    also asks for null counts and samples, which would double the price.
    """

    def get_validation_dependencies(self, *args: Any, **kwargs: Any) -> ValidationDependencies:
        """Ask for the number of rows and of unexpected ones only."""
        dependencies = super().get_validation_dependencies(*args, **kwargs)
        wanted = {ROW_COUNT, f"{self.map_metric}.unexpected_count"}
        for name in set(dependencies.metric_configurations) - wanted:
            dependencies.remove_metric_configuration(name)
        return dependencies

    def _validate(self, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        failing, candidates = metrics[f"{self.map_metric}.unexpected_count"] or 0, metrics[ROW_COUNT]
        counts = {"element_count": candidates, "unexpected_count": failing}
        counts["unexpected_percent"] = 100 * failing / candidates if candidates else 0.0
        return {"success": _outcome(self.meta or {}, counts).success, "result": counts}


class ExpectNotNull(_Counted, ExpectColumnValuesToNotBeNull):
    """``not_null`` under a contract's tolerance."""


class ExpectOneOf(_Counted, ExpectColumnValuesToBeInSet):
    """``one_of`` and ``is_true`` under a contract's tolerance."""


class ExpectBetween(_Counted, ExpectColumnValuesToBeBetween):
    """``between`` under a contract's tolerance, with whole bounds: a float would blur those above 2**53."""

    min_value: int | None = None
    max_value: int | None = None


class ExpectMatch(_Counted, ExpectColumnValuesToMatchRegex):
    """``matches`` under a contract's tolerance."""


def gate(candidates: DataFrame, contract: Contract, *, run_id: str, store: Path | None) -> Verdict:
    """Examine candidates: the contract's columns, or, by the rules' codes, what the rules examine in them.

    The bits of broken rules are taken from ``_broken_rules`` if they are there. One native column expectation for each
    rule and one for the row as a whole; the result goes to ``store``.

    Raises GateUnusable: a rule cannot be evaluated on these columns.
    """
    from pyspark.sql import functions as F

    mask = F.col(MASK) if MASK in candidates.columns else contract.broken_rules()
    fit = (~contract.refused(mask)).alias(NO_VIOLATIONS.code)
    there = set(candidates.columns)
    subjects = (F.col(f"`{rule.code}`") if rule.code in there else rule.examined() for rule in contract.rules)
    examined = candidates.select(*subjects, fit)
    context = _context()
    source = context.data_sources.add_spark("candidates", persist=False)
    batch = (
        source.add_dataframe_asset(contract.table)
        .add_batch_definition_whole_dataframe(run_id)
        .get_batch({"dataframe": examined})
    )
    rules = (*contract.rules, NO_VIOLATIONS)
    expectations = [_expectation(rule, contract.tolerance, contract.min_failures) for rule in rules]
    return _examine(batch, expectations, contract.table, run_id, store)


def gate_facts(
    facts: Mapping[str, int], contract_or_table: Contract | str, *, run_id: str, store: Path | None
) -> Verdict:
    """Examine facts of a table, counts of what is wrong such as ``grain.duplicates``: each must be 0."""
    import pandas as pd  # type: ignore[import-untyped]

    table = contract_or_table if isinstance(contract_or_table, str) else contract_or_table.table
    batch = (
        _context()
        .data_sources.add_pandas("facts")
        .add_dataframe_asset(table)
        .add_batch_definition_whole_dataframe(run_id)
        .get_batch({"dataframe": pd.DataFrame([facts])})
    )
    expectations = [
        ExpectColumnSumToBeBetween(
            column=fact, min_value=0, max_value=0, description=_said(f"{fact} must be 0."), meta={"code": fact}
        )
        for fact in facts
    ]
    return _examine(batch, expectations, table, run_id, store)


def build_docs(store: Path, site: Path, keep_runs: int) -> Path:
    """Render the last runs of each table as Data Docs and forget older ones; return the page to open.

    Pages that are there already are kept as they are: the work follows new results.
    """
    forget(store, keep_runs)
    context = _context()
    backend = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(site.absolute())}
    view = {"class_name": OfflinePage.__name__, "module_name": __name__}
    section = {"class_name": "DefaultSiteSectionBuilder", "view": view}
    configuration: Any = {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": backend,
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder", "view": view},
        "site_section_builders": {
            "validations": section | {"source_store_name": context.validation_results_store_name},
            "expectations": section | {"source_store_name": context.expectations_store_name},
            "profiling": "None",
        },
    }
    context.add_data_docs_site("afterlog", configuration)
    kept: list[Any] = []  # keys of results and of suites
    for table in sorted(path for path in store.glob("*") if path.is_dir()):
        runs = sorted(table.glob("*.json"))
        for run in runs:
            result = expectationSuiteValidationResultSchema.loads(run.read_text(encoding="utf-8"))
            suite = ExpectationSuiteIdentifier(name=result.suite_name)
            key = ValidationResultIdentifier(suite, RunIdentifier(**result.meta["run_id"]), batch_identifier="gate")
            context.validation_results_store.add(key, result)
            kept.append(key)
        if runs:  # the contract as the last run knew it
            expectations = [found.expectation_config for found in result.results]
            context.suites.add_or_update(gx.ExpectationSuite(name=result.suite_name, expectations=expectations))
            kept.append(suite)
    unrendered = [key for key in kept if not _page(site, key).exists() or isinstance(key, ExpectationSuiteIdentifier)]
    context.build_data_docs(resource_identifiers=unrendered)
    if missing := [key for key in unrendered if not _page(site, key).exists()]:
        raise RuntimeError(f"Great Expectations logged why it could not render {len(missing)} pages of Data Docs")
    return site / "index.html"


def forget(store: Path, keep_runs: int) -> None:
    """Remove what gates found, but for the last runs of each table."""
    for table in store.glob("*"):
        for run in sorted(table.glob("*.json"))[:-keep_runs]:
            run.unlink(missing_ok=True)


class OfflinePage(DefaultJinjaPageView):
    """A page of Data Docs whose style is part of it: Great Expectations' own pages are bare without the network."""

    _template = "page.j2"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Look for templates in ``expectations/data_docs`` before Great Expectations' own."""
        super().__init__(*args, **kwargs)
        own = FileSystemLoader(Path(__file__).with_name("data_docs"))
        self.env.loader = ChoiceLoader([own, *filter(None, [self.env.loader])])
        self.env.globals["ge_version"] = gx.__version__


def _keep(result: ExpectationSuiteValidationResult, table: str, run_id: str, store: Path) -> None:
    examined_at = datetime.now(UTC)
    result.meta = {
        "great_expectations_version": gx.__version__,
        "run_id": RunIdentifier(run_name=_plain(run_id), run_time=examined_at).to_json_dict(),
        "batch_kwargs": {"data_asset_name": _plain(table)},
        "validation_time": str(examined_at),
    }
    target = store / _plain(table) / f"{examined_at:%Y%m%dT%H%M%S.%fZ}-{_plain(run_id)}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_suffix(".tmp")
    scratch.write_text(expectationSuiteValidationResultSchema.dumps(result), encoding="utf-8")
    scratch.replace(target)


def _page(site: Path, key: Any) -> Path:
    section = "expectations" if isinstance(key, ExpectationSuiteIdentifier) else "validations"
    *directories, name = key.to_tuple()
    return site.joinpath(section, *directories, f"{name}.html")


def _plain(name: str) -> str:
    """Return a name as one that is safe in a path, a URL and a page."""
    return quote(name, safe="").replace("%", "_")


def _context() -> EphemeralDataContext:
    """Return a context that keeps all in memory: no site in a temporary directory, no progress bars, no analytics."""
    configuration = DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        progress_bars=ProgressBarsConfig(globally=False),
        analytics_enabled=False,
    )
    return gx.get_context(mode="ephemeral", project_config=configuration)


def _expectation(rule: Rule, tolerance: float, min_failures: int) -> Expectation:
    outcome = Outcome(rule.code, 0, 0, tolerance, min_failures, True, rule.meaning, rule.hint)
    said: dict[str, Any] = {
        "column": rule.code,
        "description": _said(f"{rule.meaning or f'{rule.code}.'} The gate breaks {outcome.threshold}."),
        "meta": {
            "code": rule.code,
            "tolerance": tolerance,
            "min_failures": min_failures,
            "meaning": rule.meaning,
            "hint": rule.hint,
        },
    }
    if rule.kind == "not_null":
        return ExpectNotNull(**said)
    if rule.kind == "one_of":
        return ExpectOneOf(value_set=list(rule.arguments), **said)
    if rule.kind == "is_true":
        return ExpectOneOf(value_set=[True], **said)
    if rule.kind == "between":
        least, most = rule.arguments
        return ExpectBetween(min_value=least, max_value=most, **said)
    return ExpectMatch(regex=rule.arguments[0], **said)


def _said(text: str) -> str:
    """Return text for Data Docs, which take a description as HTML."""
    return html.escape(text)


def _outcome(meta: Mapping[str, Any], counts: Mapping[str, Any]) -> Outcome:
    if "tolerance" not in meta:
        failing = abs(int(counts["observed_value"]))
        return Outcome(meta["code"], failing, 0, 0.0, 1, failing == 0)
    failing, candidates = counts["unexpected_count"], counts["element_count"]
    tolerance, min_failures = meta["tolerance"], meta["min_failures"]
    success = not breaks(failing, candidates, tolerance, min_failures)
    return Outcome(meta["code"], failing, candidates, tolerance, min_failures, success, meta["meaning"], meta["hint"])


def _examine(batch: Batch, expectations: Iterable[Expectation], table: str, run_id: str, store: Path | None) -> Verdict:
    suite = gx.ExpectationSuite(name=_plain(table), expectations=list(expectations))
    result = batch.validate(suite, result_format=COUNTS_ONLY)
    by_code = {}
    for found in result.results:
        if found.exception_info.get("raised_exception", True):
            raise GateUnusable(
                f"The gate of {table} cannot be evaluated ({_error_class(found.exception_info)}): unless the machine "
                f"is at fault, mend the rule of its contract that does not suit the candidates' columns."
            )
        said: Any = found.expectation_config
        outcome = _outcome(said.meta, found.result)
        by_code[outcome.code] = outcome
    outcomes = tuple(by_code[(expectation.meta or {})["code"]] for expectation in suite.expectations)
    if store is not None:
        _keep(result, table, run_id, store)
    return Verdict(table, run_id, max((outcome.candidates for outcome in outcomes), default=0), outcomes)


def _error_class(exception_info: Mapping[str, Any]) -> str:
    """Return the name of an error; its text may quote a value of a row."""
    told = json.dumps(exception_info, default=str)
    for name in (r"\[([A-Z][A-Z_.]+)\]", r"(No space left on device)", r"\b([A-Z][A-Za-z]+(?:Error|Exception))\b"):
        if named := re.search(name, told):
            return named[1]
    return "unknown error"
