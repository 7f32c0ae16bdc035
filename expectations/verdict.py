"""A gate's verdict: the same words and numbers in the log, in quality tables, in Airflow and in reports."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


def breaks(failing: int, candidates: int, tolerance: float, min_failures: int) -> bool:
    """Tell whether failing rows break a gate: at least ``min_failures``, and more than ``tolerance`` of candidates."""
    return failing >= min_failures and failing > tolerance * candidates


def share(part: float) -> str:
    """Return a share as a percentage that is never rounded to nothing, or to all, where it is not."""
    for digits in range(1, 6):
        text = f"{part:.{digits}%}"
        if part in (0, 1) or float(text.rstrip("%")) not in (0, 100):
            break
    return text


@dataclass(frozen=True)
class Outcome:
    """What one expectation found: counts of rows, never a value of one.

    A fact of a table, such as a count of duplicates, has no candidates: it must be 0.
    """

    code: str
    failing: int
    candidates: int
    tolerance: float
    min_failures: int
    success: bool
    meaning: str = ""
    hint: str = ""
    coordinates: tuple[str, ...] = ()

    @property
    def threshold(self) -> str:
        """When the expectation fails, in words."""
        if self.tolerance >= 1:
            return "never"
        if self.min_failures == 1 and self.tolerance == 0:
            return "where any row fails"
        return f"where at least {self.min_failures:,} rows and more than {share(self.tolerance)} of all candidates fail"

    @property
    def finding(self) -> str:
        """How far the expectation was missed, in words."""
        if not self.candidates:
            return f"{self.code} is {self.failing:,} where 0 is due"
        return (
            f"{self.code} fails in {self.failing:,} of {self.candidates:,} rows "
            f"({share(self.failing / self.candidates)}, tolerated {share(self.tolerance)})"
        )


@dataclass(frozen=True)
class Verdict:
    """What a gate decided about one batch of candidates of one table."""

    table: str
    run_id: str
    candidates: int
    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> bool:
        """True where no expectation failed."""
        return all(outcome.success for outcome in self.outcomes)

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The expectations that failed, worst first."""
        return tuple(sorted((o for o in self.outcomes if not o.success), key=lambda o: (-o.failing, o.code)))

    def located(self, coordinates: dict[str, tuple[str, ...]]) -> Verdict:
        """Return the verdict with the coordinates of failing rows, by code."""
        outcomes = (replace(outcome, coordinates=coordinates.get(outcome.code, ())) for outcome in self.outcomes)
        return replace(self, outcomes=tuple(outcomes))

    def sentence(self) -> str:
        """Say which rules broke the gate, by how much, and the way on; one sentence where it passed."""
        if self.passed:
            return f"The gate of {self.table} passed{f': {self.candidates:,} candidates' if self.candidates else ''}."
        findings = "; ".join(outcome.finding for outcome in self.failed)
        hints = "".join(f" {hint}" for hint in dict.fromkeys(o.hint for o in self.failed if o.hint))
        broke = f"The gate of {self.table} broke: {findings}.{hints}"
        if not self.candidates:
            return f"{broke} Nothing was written to it: mend this and run again."
        return (
            f"{broke} Nothing of this batch was written and later "
            f"input waits behind it: mend the producer or the contract and run again, or accept it once with "
            f"AFTERLOG_TOLERANCE=1.0 afterlog run, which quarantines the failing rows."
        )

    def summary(self) -> dict[str, Any]:
        """Return the verdict as JSON-ready counts, for logs, XCom and asset events."""
        return {
            "table": self.table,
            "passed": self.passed,
            "candidates": self.candidates,
            "failed": [
                {"rule": o.code, "failing": o.failing, "tolerance": o.tolerance, "min_failures": o.min_failures}
                for o in self.failed
            ],
        }
