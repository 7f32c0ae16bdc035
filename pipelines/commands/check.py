"""What a check of `afterlog doctor` finds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from pipelines.text import first_names

State = Literal["ok", "warning", "error"]

MOST_NAMED = 3


@dataclass(frozen=True)
class Check:
    """One finding.

    An ``error`` makes the doctor fail: an environment that lacks something (``lacks``), a broken contract or table, or
    data that is damaged, in quarantine, or does not arrive. A ``warning`` does not. A feed that nobody set up is
    ``ok``. ``snippet`` has lines for the settings, which are printed unchanged. What is said ``of_pattern`` is true if
    it is so in all clusters.
    """

    name: str
    state: State
    finding: str
    remedy: str | None = None
    snippet: str | None = None
    lacks: bool = False
    of_pattern: bool = False


def environment_error(name: str, finding: str, remedy: str | None = None) -> Check:
    """Return an error of the environment, for which the doctor exits with 3."""
    return Check(name, "error", finding, remedy, lacks=True)


def greatest(counts: Counter[str]) -> str:
    """Return the greatest counts in words."""
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], str(entry[0])))
    return first_names([f"{name} {count:,}" for name, count in ordered], MOST_NAMED)
