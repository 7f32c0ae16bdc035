"""Rows of a SELECT -> rows of a ``Derive`` table: its module makes them, group by group, in the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from expectations.contract import contract_of
from pipelines.stage import Derive, Summarise
from pipelines.steps.modules import Rows, derive_module


def made(stage: Derive, groups: Iterable[tuple[Rows, Rows]], common: Rows) -> list[Mapping[str, Any]]:
    """Return the rows that the table's module makes: of each group, its selected rows and the table's own rows.

    ``common`` are the selected rows without a group, if the module has a ``deriver``.

    Raises ValueError: a row has a column that the table does not have.
    """
    module = derive_module(stage)
    derive: Callable[..., Iterable[Mapping[str, Any]]] = module.deriver(common) if module.deriver else module.derive
    names = {column.name for column in contract_of(stage.table).stored}
    rows = [row for selected, existing_rows in groups for row in derive(selected, existing_rows)]
    if unknown := {name for row in rows for name in row} - names:
        raise ValueError(f"{stage.table} has no column {', '.join(sorted(unknown))}")
    return rows


def shares(stage: Summarise) -> bool:
    """Tell whether rows of the stage's SELECT without a group are for all groups."""
    return isinstance(stage, Derive) and derive_module(stage).deriver is not None
