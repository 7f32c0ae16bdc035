"""candidates -> verdict: run a contract as a Great Expectations suite and keep the results for Data Docs.

Only this module imports Great Expectations, which takes seconds: import it where a gate runs, not before.
"""

from __future__ import annotations

import html
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from expectations import before_gx  # noqa: F401

# isort: split
import great_expectations as gx
from great_expectations.compatibility import pydantic
from great_expectations.core.expectation_validation_result import (
    ExpectationSuiteValidationResult,
    ExpectationValidationResult,
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
from great_expectations.expectations.core.expect_column_pair_values_a_to_be_greater_than_b import (
    ExpectColumnPairValuesAToBeGreaterThanB,
)
from great_expectations.expectations.core.expect_column_sum_to_be_between import ExpectColumnSumToBeBetween
from great_expectations.expectations.core.expect_column_values_to_be_between import ExpectColumnValuesToBeBetween
from great_expectations.expectations.core.expect_column_values_to_be_in_set import ExpectColumnValuesToBeInSet
from great_expectations.expectations.core.expect_column_values_to_match_regex import ExpectColumnValuesToMatchRegex
from great_expectations.expectations.core.expect_column_values_to_not_be_null import ExpectColumnValuesToNotBeNull
from great_expectations.expectations.expectation import ColumnMapExpectation, Expectation
from great_expectations.render.components import LegacyDiagnosticRendererType
from great_expectations.render.renderer.renderer import renderer
from great_expectations.render.view.view import DefaultJinjaPageView
from jinja2 import ChoiceLoader, FileSystemLoader

from expectations.contract import Contract
from expectations.rules import Rule, counted
from expectations.text import visible
from expectations.verdict import MOST_FINDINGS, OF_THE_ROW, Outcome, Scope, Verdict, breaks, most_failing

if TYPE_CHECKING:
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext
    from great_expectations.datasource.fluent.interfaces import Batch
    from great_expectations.validator.validator import ValidationDependencies
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
SCOPES_NAMED: dict[str, Any] = {"result_format": "COMPLETE", "unexpected_index_column_names": ["scope", "place"]}


class GateUnusable(Exception):
    """The expectations could not be evaluated, usually because a rule does not fit the columns; quotes no value."""


class _ToldOnce(Expectation):
    """An expectation that keeps its configuration, which Great Expectations asks for some fifty times."""

    _told: tuple[dict[str, Any], Any] = pydantic.PrivateAttr(({}, None))

    @property
    def configuration(self) -> Any:
        """The configuration of the fields as they are now."""
        fields, configuration = self._told
        if configuration is None or fields != self.__dict__:
            configuration = super().configuration
            self._told = dict(self.__dict__), configuration
        return configuration


class ExpectZero(_ToldOnce, ExpectColumnSumToBeBetween):
    """The sum of a column of counts of defects must be 0."""


class _Counted(_ToldOnce, ColumnMapExpectation):
    """An expectation that counts failing rows among those that its rule applies to (``examined`` in its ``meta``).

    Great Expectations' own ``mostly`` divides by the rows that are not null and has no minimum number of failures. It
    also asks for null counts and samples, which would double the cost.
    """

    def get_validation_dependencies(self, *args: Any, **kwargs: Any) -> ValidationDependencies:
        """Ask for the number of unexpected rows only."""
        dependencies = super().get_validation_dependencies(*args, **kwargs)
        for name in set(dependencies.metric_configurations) - {f"{self.map_metric}.unexpected_count"}:
            dependencies.remove_metric_configuration(name)
        return dependencies

    def _validate(self, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        facts: Any = self.meta
        failing, examined = metrics[f"{self.map_metric}.unexpected_count"] or 0, facts["examined"]
        counts = {"element_count": examined, "unexpected_count": failing}
        counts["unexpected_percent"] = 100 * failing / examined if examined else 0.0
        success = not breaks(failing, examined, facts["tolerance"], facts["min_failures"])
        return {"success": success, "result": counts}

    @classmethod
    @renderer(renderer_type=LegacyDiagnosticRendererType.OBSERVED_VALUE)
    def _diagnostic_observed_value_renderer(
        cls, configuration: Any = None, result: ExpectationValidationResult | None = None, *_: Any, **__: Any
    ) -> str:
        """Say in Data Docs how many rows fail; Great Expectations itself gives a percentage of unexpected values."""
        counts: Any = result.result if result else {}
        if "unexpected_count" not in counts:
            return "--"
        return f"{counts['unexpected_count']:,} of {counted(counts['element_count'], 'row')} failed"


class ExpectNotNull(_Counted, ExpectColumnValuesToNotBeNull):
    """``not_null`` under a contract's tolerance."""


class ExpectOneOf(_Counted, ExpectColumnValuesToBeInSet):
    """``one_of`` and ``is_true`` under a contract's tolerance."""


class ExpectBetween(_Counted, ExpectColumnValuesToBeBetween):
    """``between`` under a contract's tolerance, with integer bounds: a float is not exact above 2**53."""

    min_value: int | None = None
    max_value: int | None = None


class ExpectMatch(_Counted, ExpectColumnValuesToMatchRegex):
    """``matches`` under a contract's tolerance."""


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
    context = _context()
    source = context.data_sources.add_spark("candidates", persist=False)
    batch = (
        source.add_dataframe_asset(contract.table)
        .add_batch_definition_whole_dataframe(run_id)
        .get_batch({"dataframe": examined})
    )
    rules = (*contract.rules, NO_VIOLATIONS)
    expectations = [_expectation(rule, contract, examined_rows[rule.code]) for rule in rules]
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
        _keep(result, contract.table, run_id, store)
    return verdict


def _say_where(result: ExpectationSuiteValidationResult, verdict: Verdict) -> None:
    """Add to failed expectations in Data Docs which files hold failing rows, and where in these files."""
    places_of: dict[str, list[str]] = {}
    for outcome in verdict.failed:
        if outcome.where:
            code = outcome.code if outcome.scope is None else OF_SCOPES
            scope = "" if outcome.scope is None else f"{visible(outcome.scope)}: {outcome.code}: "
            fault = f"{outcome.fault}: " if outcome.fault else ""
            places_of.setdefault(code, []).append(f"{scope}{fault}{outcome.where}")
    for result_of_one in result.results:
        config: Any = result_of_one.expectation_config
        if lines := places_of.get(config.meta["code"]):
            more = [f"And {len(lines) - MOST_FINDINGS:,} more."] if len(lines) > MOST_FINDINGS else []
            config.meta["description"] = config.description
            config.description = "<br>".join([config.description, *map(_said, [*lines[:MOST_FINDINGS], *more])])


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

    Great Expectations gets one table of counts as one batch, for any number of scopes and rules. The table has two rows
    for each scope and rule that fails in it, or one if they are equal: the counts of the batch, and those of the batch
    together with the small batches before it. Of an unreadable file no row can fail to have been read.
    """
    import pandas as pd

    rules = {rule.code: rule for rule in (*contract.rules, NO_VIOLATIONS)}
    counted = [
        (name, code, failing, examined, scope.is_unreadable and bool(rules[code].reason))
        for name, scope in scopes.items()
        for code, tally in scope.tallies.items()
        if tally.failing
        for failing, examined in dict.fromkeys(
            ((tally.failing, tally.examined), (tally.recently_failing, tally.recently_examined))
        )
    ]
    if not counted:
        return None
    tolerance, min_failures = contract.tolerance, contract.min_failures
    table = pd.DataFrame(
        {
            "scope": [name for name, *_ in counted],
            "place": range(len(counted)),
            "failing": [failing for _, _, failing, *_ in counted],
            "most": [
                most_failing(examined, 0 if is_unread and tolerance < 1 else tolerance, min_failures)
                for *_, examined, is_unread in counted
            ],
        }
    )
    each = ExpectColumnPairValuesAToBeGreaterThanB(
        column_A="most",
        column_B="failing",
        or_equal=True,
        description=_said(
            "In no scope, such as a topic, more rows fail a rule than it tolerates. Of each file some row can be read."
        ),
        meta={"code": OF_SCOPES, "tolerance": tolerance, "min_failures": min_failures},
    )
    result = _validated_rows("scopes", table, [each], contract.table, SCOPES_NAMED)
    (judged,) = result.results
    places = {named["place"] for named in judged.result.get("unexpected_index_list") or ()}
    if not judged.success and not places:  # the result does not say which rows failed
        places = set(range(len(counted)))
    broken: dict[tuple[str, str], Outcome] = {}
    for place in sorted(places):
        name, code, failing, examined, _ = counted[place]
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
        ExpectZero(column=fact, min_value=0, max_value=0, description=_said(f"{fact} must be 0."), meta={"code": fact})
        for fact in facts
    ]
    result = _validated_rows("facts", pd.DataFrame([facts]), expectations, table)
    if store is not None:
        _keep(result, table, run_id, store)
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
    asset = _context().data_sources.add_pandas(what).add_dataframe_asset(table)
    return asset.add_batch_definition_whole_dataframe(what)


def build_docs(store: Path, site: Path, keep_runs: int) -> Path:
    """Render the last ``keep_runs`` runs of each table as Data Docs and delete older results; return the page to open.

    A result whose page exists is not rendered again, so that the work follows new results.
    Raises RuntimeError: Great Expectations could not render a page.
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
        if runs:  # the suite as of the last run
            expectations = [_plain_expectation(outcome) for outcome in result.results]
            context.suites.add_or_update(gx.ExpectationSuite(name=result.suite_name, expectations=expectations))
            kept.append(suite)
    unrendered = [key for key in kept if not _page(site, key).exists() or isinstance(key, ExpectationSuiteIdentifier)]
    context.build_data_docs(resource_identifiers=unrendered)
    if missing := [key for key in unrendered if not _page(site, key).exists()]:
        raise RuntimeError(f"Great Expectations logged why it could not render {len(missing)} pages of Data Docs")
    return site / "index.html"


def _plain_expectation(result: ExpectationValidationResult) -> Any:
    """Return an expectation as its contract states it, without the findings of a run."""
    config: Any = result.expectation_config
    config.description = config.meta.pop("description", config.description)
    return config


def forget(store: Path, keep_runs: int) -> None:
    """Delete the results of gates, except those of the last ``keep_runs`` runs of each table."""
    for table in store.glob("*"):
        for run in sorted(table.glob("*.json"))[:-keep_runs]:
            run.unlink(missing_ok=True)


class OfflinePage(DefaultJinjaPageView):
    """A page of Data Docs that contains its styles: Great Expectations' own pages load them from the network."""

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
    """Return a name in a form that is safe in a path, a URL and a page."""
    return quote(name, safe="").replace("%", "_")


def _context() -> EphemeralDataContext:
    """Return a context that keeps all in memory: no site in a temporary directory, no progress bars, no analytics."""
    configuration = DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        progress_bars=ProgressBarsConfig(globally=False),
        analytics_enabled=False,
    )
    return gx.get_context(mode="ephemeral", project_config=configuration)


def _expectation(rule: Rule, contract: Contract, examined: int) -> Expectation:
    tolerance, min_failures = contract.tolerance, contract.min_failures
    outcome = Outcome(rule.code, 0, 0, tolerance, min_failures, True)
    meta: dict[str, Any] = {
        "column": rule.code,
        "description": _said(f"{rule.meaning or f'{rule.code}.'} The gate breaks {outcome.threshold}."),
        "meta": {
            "code": rule.code,
            "tolerance": tolerance,
            "min_failures": min_failures,
            "examined": examined,
            "meaning": rule.meaning,
            "hint": rule.hint,
            "refuses": rule.refuses,
            "failure": rule.failure,
            "noun": rule.noun,
        },
    }
    if rule.kind == "not_null":
        return ExpectNotNull(**meta)
    if rule.kind == "one_of":
        return ExpectOneOf(value_set=list(rule.arguments), **meta)
    if rule.kind == "is_true":
        return ExpectOneOf(value_set=[True], **meta)
    if rule.kind == "between":
        least, most = rule.arguments
        return ExpectBetween(min_value=least, max_value=most, **meta)
    return ExpectMatch(regex=rule.arguments[0], **meta)


def _said(text: str) -> str:
    """Escape text for Data Docs, which read a description as HTML and ``$name`` in it as a parameter."""
    return html.escape(text).replace("$", "&#36;")


def _validated(
    batch: Batch, expectations: Iterable[Expectation], table: str, result_format: dict[str, Any] = COUNTS_ONLY
) -> ExpectationSuiteValidationResult:
    """Return Great Expectations' result, in the order of the expectations.

    Raises GateUnusable: an expectation cannot be evaluated.
    """
    suite = gx.ExpectationSuite(name=_plain(table), expectations=list(expectations))
    result = batch.validate(suite, result_format=result_format)
    for checked in result.results:
        if checked.exception_info.get("raised_exception", True):
            raise GateUnusable(
                f"The gate of {table} cannot be evaluated ({_error_class(checked.exception_info)}): unless the machine "
                f"is at fault, fix the rule of its contract that does not suit the candidates' columns."
            )
    places = {(expectation.meta or {})["code"]: place for place, expectation in enumerate(suite.expectations)}
    result.results.sort(key=lambda checked: places[_meta(checked)["code"]])
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
