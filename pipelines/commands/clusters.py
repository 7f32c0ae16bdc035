"""Answers about one of several clusters: find the one that a name is of, or answer for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from expectations.text import visible
from pipelines.errors import UsageError
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pipelines.commands.describe import Answer


def sole(warehouse: Warehouse, what: str) -> Warehouse:
    """Return the warehouse of the only cluster; raises UsageError: there are several, and ``what`` is of one."""
    if warehouse.settings.sole_cluster is None:
        names = ", ".join(warehouse.settings.names)
        raise UsageError(f"{what} is of one cluster: name it with --cluster; clusters: {names}.")
    return warehouse.of_clusters()[0]


def that_knows(warehouse: Warehouse, what: str, look: Callable[[Warehouse], object]) -> Warehouse:
    """Return the warehouse of the only cluster for which ``look`` raises no UsageError.

    Raises UsageError: that of the first cluster if none knows ``what``; or several know it.
    """
    owns = warehouse.of_clusters()
    if len(owns) == 1:
        return owns[0]
    found, wrong = [], []
    for own in owns:
        try:
            look(own)
        except UsageError as error:
            wrong.append(error)
        else:
            found.append(own)
    if not found:
        raise wrong[0]
    return _one(found, what)


def answers(warehouse: Warehouse, what: str, answer: Callable[[Warehouse], Answer]) -> Sequence[Answer]:
    """Return the answer of the only cluster that has one, whose exit code is 0; if none has one those of all.

    Raises UsageError: that of the first cluster if all raise one; or several clusters have an answer.
    """
    owns = warehouse.of_clusters()
    if len(owns) == 1:
        return [answer(owns[0])]
    answers, wrong = [], []
    for own in owns:
        try:
            answers.append((own, answer(own)))
        except UsageError as error:
            wrong.append(error)
    if not answers:
        raise wrong[0]
    positive = [(own, answered) for own, answered in answers if answered.exit_code == 0]
    if not positive:
        return [answered for _, answered in answers]
    own = _one([own for own, _ in positive], what)
    return [answered for asked, answered in positive if asked is own]


def of_each(warehouse: Warehouse, form: str, answer: Callable[[Warehouse], Answer]) -> Sequence[Answer]:
    """Return the answer of each cluster; with several, text says whose it is."""
    owns = warehouse.of_clusters()
    if len(owns) == 1:
        return [answer(owns[0])]
    answers = []
    for number, own in enumerate(owns):
        answered = answer(own)
        gap = "\n" if number else ""
        head = f"{gap}Cluster {own.cluster}\n" if form == "text" else ""
        remarks = tuple(f"cluster {own.cluster}: {remark}" for remark in answered.remarks)
        answers.append(replace(answered, result=f"{head}{answered.result}", remarks=remarks))
    return answers


def _one(found: Sequence[Warehouse], what: str) -> Warehouse:
    if len(found) > 1:
        names = " and ".join(own.cluster for own in found)
        raise UsageError(f"{visible(what)} is in the clusters {names}: name one with --cluster.")
    return found[0]
