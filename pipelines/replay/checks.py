"""Remediation rules and what landed -> what `afterlog doctor` says of rules that match no dead letter."""

from __future__ import annotations

from collections.abc import Iterator

from expectations.text import visible
from pipelines.commands import known
from pipelines.commands.check import Check
from pipelines.replay import rules
from pipelines.settings import Settings
from pipelines.warehouse.tables import Warehouse


def checks(settings: Settings) -> Iterator[Check]:
    """Yield what `afterlog doctor` says of rules that match no dead letter; a verdict is not looked at.

    Raises UsageError: the file cannot be used.
    """
    known_rules = rules.of(settings).rules
    there = known.letters(Warehouse(settings)) if known_rules else []
    for rule in known_rules if there else ():
        if not any(rule.may_match(row) for row in there):
            finding = f"Rule '{visible(rule.name)}' of [replay] rules matches no dead letter that landed."
            remedy = "Correct its patterns, unless such ones are still to come."
            yield Check("replay rules", "warning", finding, remedy, of_pattern=True)
