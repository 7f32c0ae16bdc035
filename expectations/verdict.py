"""A gate's verdict: the same words and numbers in the log, in quality tables, in Airflow and in reports."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from expectations.rules import counted
from expectations.text import visible

WHOLE = "*"  # the only scope of a table whose contract names none
SCOPE = "_scope"  # the column of candidates that names their scope, such as a topic
OF_THE_ROW = "row.no_violations"
FIX = "Fix the settings or the contract and run again,"
"""How the line of a broken gate's message begins that says what to do."""
MOST_NAMED = 5
MOST_FINDINGS = 3
MOST_LISTED = 50


def most_failing(examined: int, tolerance: float, min_failures: int) -> int:
    """Return how many of the examined rows can fail before a rule breaks the gate.

    With a tolerance of 0 no row can fail. Otherwise the result is the greater of ``min_failures - 1`` and the share
    ``tolerance`` of the examined rows, rounded down.
    """
    if tolerance == 0:
        return 0
    return max(math.floor(tolerance * examined), min_failures - 1)


def breaks(failing: int, examined: int, tolerance: float, min_failures: int) -> bool:
    """Tell whether failing rows break a gate."""
    return failing > most_failing(examined, tolerance, min_failures)


def share(part: float) -> str:
    """Return a share as a percentage, with up to 5 decimals so that it does not round to 0 % or 100 %."""
    for digits in range(1, 6):
        text = f"{part:.{digits}%}"
        if part in (0, 1) or float(text.rstrip("%")) not in (0, 100):
            break
    return text


@dataclass(frozen=True)
class Tally:
    """What one rule finds in one scope: failing and examined rows, alone and with those of small batches before."""

    failing: int
    examined: int
    recently_failing: int
    recently_examined: int


@dataclass(frozen=True)
class Scope:
    """What the rules find in one scope of a batch, by code; ``rows`` is how many the scope's verdict decides.

    ``is_unreadable`` tells that it is of a file of which the batch has no row that could be read.
    """

    rows: int
    tallies: Mapping[str, Tally] = field(default_factory=dict)
    is_unreadable: bool = False


@dataclass(frozen=True)
class Outcome:
    """What one expectation found: counts of rows, never a value of one.

    ``candidates`` is the number of rows that the rule applies to. A fact of a table, such as a count of duplicates, has
    0 of them, and ``failing`` must be 0. ``scope`` is the part of the batch that was examined; None is all of it.
    ``refuses`` is False for a tolerated rule, whose failing rows enter the table. ``proposal`` has lines for the
    settings that may fix the failure. ``noun`` and ``failure`` say what fails, such as "line" and "cannot be read".
    ``places`` say in words which files and topics hold failing rows, and where.
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
    scope: str | None = None
    refuses: bool = True
    proposal: str = ""
    failure: str = ""
    noun: str = "row"
    places: tuple[str, ...] = ()

    @property
    def threshold(self) -> str:
        """When the expectation fails, in words."""
        if self.tolerance >= 1:
            return "never"
        if self.tolerance == 0:
            return "where any row fails"
        return (
            f"where at least {counted(self.min_failures, 'row')} and more than {share(self.tolerance)} "
            f"of the rows that it speaks about fail"
        )

    @property
    def finding(self) -> str:
        """How far the expectation was missed, in words."""
        if not self.candidates:
            return f"{self.code} is {self.failing:,} where 0 is due"
        kept = "" if self.refuses else ", which keeps no row out of the table,"
        return (
            f"{self.code}{kept} fails in {self.failing:,} of {counted(self.candidates, 'row')} "
            f"({share(self.failing / self.candidates)}, tolerated {share(self.tolerance)})"
        )

    @property
    def fault(self) -> str:
        """What failed, in words such as "64 lines cannot be read"; empty if there are no words for it."""
        return f"{counted(self.failing, self.noun)} {self.failure}" if self.failure and self.candidates else ""

    @property
    def where(self) -> str:
        """Which files hold failing rows, and where in them, in words; empty if nothing is known."""
        return "; ".join(self.places)

    def phrase(self, located: bool = True) -> str:
        """Say how far the expectation was missed, what failed and, if ``located``, where the failing rows are."""
        where = self.where if located else ""
        reason = f"{self.fault} ({where})" if self.fault and where else self.fault or where
        return f"{self.finding}: {reason}" if reason else self.finding


@dataclass(frozen=True)
class Verdict:
    """What a gate decided about one batch of candidates of one table; ``success`` is Great Expectations' own answer."""

    table: str
    run_id: str
    candidates: int
    outcomes: tuple[Outcome, ...]
    success: bool = True

    @property
    def passed(self) -> bool:
        """True if no expectation failed."""
        return self.success and all(outcome.success for outcome in self.outcomes)

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The expectations that failed, worst first."""
        failed = (outcome for outcome in self.outcomes if not outcome.success)
        return tuple(sorted(failed, key=lambda failure: (-failure.failing, failure.code, failure.scope or "")))

    def broken(self, scopes: Mapping[str, Scope]) -> dict[str, tuple[Outcome, ...]]:
        """Return the scopes that do not pass, each with what it broke, worst first.

        If the batch breaks a rule that no scope breaks, the scopes with rows that fail the rule do not pass. If an
        expectation failed without a failing row in any scope, no scope passes.
        """
        if self.passed:
            return {}
        broken: dict[str, list[Outcome]] = {}
        of_scopes = [outcome for outcome in self.failed if outcome.scope is not None]
        for outcome in of_scopes:
            broken.setdefault(outcome.scope or WHOLE, []).append(outcome)
        known = {outcome.code for outcome in of_scopes}
        for outcome in self.failed:
            if outcome.scope is None and outcome.code not in known:
                guilty = [name for name, scope in scopes.items() if _fails(scope, outcome.code)]
                for name in guilty or scopes:
                    broken.setdefault(name, []).append(outcome)
        if not broken:
            broken = {name: [] for name in scopes}
        return {name: tuple(broken[name]) for name in scopes if name in broken}

    def located(
        self,
        coordinates: Mapping[tuple[str | None, str], tuple[str, ...]],
        places: Mapping[tuple[str | None, str], Callable[[int], tuple[str, ...]]] | None = None,
    ) -> Verdict:
        """Return the verdict with the coordinates of failing rows and with words for their files.

        Both arguments are by scope and code. A function of ``places`` makes the words from the number of failing rows,
        some of which may be of earlier batches.
        """
        outcomes = []
        for outcome in self.outcomes:
            key = (outcome.scope, outcome.code)
            words = (places or {}).get(key)
            located = words(outcome.failing) if words else ()
            outcomes.append(replace(outcome, coordinates=coordinates.get(key, ()), places=located))
        return replace(self, outcomes=tuple(outcomes))

    def explained(self, code: str, of: Mapping[str | None, tuple[str, str]]) -> Verdict:
        """Return the verdict with another hint and a proposal, by scope, for a rule that failed."""
        outcomes = (
            replace(outcome, hint=f"{outcome.hint} {of[outcome.scope][0]}".strip(), proposal=of[outcome.scope][1])
            if outcome.code == code and not outcome.success and outcome.scope in of
            else outcome
            for outcome in self.outcomes
        )
        return replace(self, outcomes=tuple(outcomes))

    def findings(self) -> str:
        """Say what failed, worst first, and by how much."""
        return "; ".join(outcome.finding for outcome in self.failed)

    def sentence(self) -> str:
        """Say which rules broke the gate, by how much, and what to do; one sentence if the gate passed."""
        if self.passed:
            judged = f": {counted(self.candidates, 'candidate')}" if self.candidates else ""
            return f"The gate of {self.table} passed{judged}."
        if not self.candidates:
            return (
                f"The gate of {self.table} broke: {_reasons(self.failed)} No data may do that, so it is a defect of "
                f"Afterlog: please report it. Nothing was written, and what is made from the table waits: "
                f"`afterlog rebuild {self.table}` computes it again from the whole of its inputs."
            )
        return sentence_of(self.table, WHOLE, self.failed)

    def summary(self) -> dict[str, Any]:
        """Return the verdict as JSON-ready counts, for logs, XCom and asset events."""
        return {
            "table": self.table,
            "passed": self.passed,
            "candidates": self.candidates,
            "failed": [
                {
                    "rule": o.code,
                    "scope": o.scope,
                    "failing": o.failing,
                    "candidates": o.candidates,
                    "tolerance": o.tolerance,
                    "min_failures": o.min_failures,
                }
                for o in self.failed[:MOST_LISTED]
            ],
        }


def sentence_of(table: str, scope: str, failed: Sequence[Outcome]) -> str:
    """Say in at most five lines which rules a scope broke and by how much, what becomes of its rows, and what to do.

    The lines of a proposal follow.
    """
    whole = scope == WHOLE
    of = "" if whole else f" for {visible(scope)}"
    waits = (
        "nothing of this batch was written, and later input waits behind it"
        if whole
        else "its rows are held, later ones wait behind them, and everything else flows on"
    )
    lines = [_reasons(failed), *_hints(failed), f"The gate of {table} broke{of}: {waits}."]
    lines.append(f"{FIX} or accept the rows once, which {_accepting(failed)}: `{way_on(table, scope)}`.")
    proposals = dict.fromkeys(outcome.proposal for outcome in failed if outcome.proposal)
    if proposals:
        lines += ["Look at this guess before you put it into the settings:", *proposals]
    return "\n".join(lines)


def way_on(table: str, scope: str) -> str:
    """Return the command that accepts a scope once."""
    named = table if scope == WHOLE else f"{table}:{visible(scope)}"
    return f"afterlog run --accept {shlex.quote(named)}"


def _fails(scope: Scope, code: str) -> bool:
    return code in scope.tallies and scope.tallies[code].failing > 0


def _reasons(failed: Sequence[Outcome]) -> str:
    """Say what failed, worst first, each once: rows that break a rule also break that of the whole row."""
    listed = [outcome for outcome in failed if outcome.code != OF_THE_ROW] or failed
    if not listed:
        return "An expectation answered no."
    more = f"; and {counted(len(listed) - MOST_FINDINGS, 'more rule')}" if len(listed) > MOST_FINDINGS else ""
    return f"{'; '.join(outcome.phrase() for outcome in listed[:MOST_FINDINGS])}{more}."


def _hints(failed: Sequence[Outcome]) -> list[str]:
    hints = " ".join(dict.fromkeys(outcome.hint for outcome in failed if outcome.hint))
    return [hints] if hints else []


def _accepting(failed: Sequence[Outcome]) -> str:
    """Say what happens to failing rows once they are accepted."""
    kept = list(dict.fromkeys(outcome.code for outcome in failed if not outcome.refuses))
    if not kept:
        return "quarantines the failing rows"
    stays = f"lets rows that break {', '.join(kept)} into the table"
    return stays if len(kept) == len({outcome.code for outcome in failed}) else f"quarantines failing rows, but {stays}"
