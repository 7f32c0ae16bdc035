"""A rule of a contract -> an expectation of Great Expectations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from expectations import before_gx  # noqa: F401

# isort: split
from great_expectations.compatibility import pydantic
from great_expectations.core.expectation_validation_result import ExpectationValidationResult
from great_expectations.expectations.core.expect_column_sum_to_be_between import ExpectColumnSumToBeBetween
from great_expectations.expectations.core.expect_column_values_to_be_between import ExpectColumnValuesToBeBetween
from great_expectations.expectations.core.expect_column_values_to_be_in_set import ExpectColumnValuesToBeInSet
from great_expectations.expectations.core.expect_column_values_to_match_regex import ExpectColumnValuesToMatchRegex
from great_expectations.expectations.core.expect_column_values_to_not_be_null import ExpectColumnValuesToNotBeNull
from great_expectations.expectations.expectation import ColumnMapExpectation, Expectation
from great_expectations.render.components import LegacyDiagnosticRendererType
from great_expectations.render.renderer.renderer import renderer

from expectations.contract import Contract
from expectations.rules import Rule, counted
from expectations.text import in_docs
from expectations.verdict import Outcome, breaks

if TYPE_CHECKING:
    from great_expectations.validator.validator import ValidationDependencies


class _KeepsConfiguration(Expectation):
    """An expectation that keeps its configuration, which Great Expectations asks for some fifty times."""

    _kept: tuple[dict[str, Any], Any] = pydantic.PrivateAttr(({}, None))

    @property
    def configuration(self) -> Any:
        """The configuration of the fields as they are now."""
        fields, configuration = self._kept
        if configuration is None or fields != self.__dict__:
            configuration = super().configuration
            self._kept = dict(self.__dict__), configuration
        return configuration


class ExpectZero(_KeepsConfiguration, ExpectColumnSumToBeBetween):
    """The sum of a column of counts of defects must be 0."""


class _Counted(_KeepsConfiguration, ColumnMapExpectation):
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


def expectation_of(rule: Rule, contract: Contract, examined: int) -> Expectation:
    """Return the expectation of a rule that applies to this number of rows."""
    tolerance, min_failures = contract.tolerance, contract.min_failures
    outcome = Outcome(rule.code, 0, 0, tolerance, min_failures, True)
    meta: dict[str, Any] = {
        "column": rule.code,
        "description": in_docs(f"{rule.meaning or f'{rule.code}.'} The gate breaks {outcome.threshold}."),
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
