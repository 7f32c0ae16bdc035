"""Checks of the settings: variables, gates and patterns without effect, files that are not there."""

from __future__ import annotations

import os
from collections.abc import Iterator

from pipelines.catalog import stages_of_type
from pipelines.commands import known, settings_checks
from pipelines.commands.check import Check
from pipelines.errors import UsageError
from pipelines.payloads import check_schemas
from pipelines.settings import Settings, settings_file
from pipelines.settings.layers import fields_of
from pipelines.stage import Split
from pipelines.warehouse.tables import Warehouse


def check_settings(warehouse: Warehouse) -> Iterator[Check]:
    """Say where the settings come from, and which variables, gates and schema files have no effect."""
    without_effect = dict(settings_checks.unknown_variables())
    for name, sentence in without_effect.items():
        yield Check("settings", "warning", sentence, f"Unset {name}.")
    unknown = bool(without_effect)
    used = [name for name in sorted(os.environ) if _is_used(name) and name not in without_effect]
    for sentence in settings_checks.gates_without_effect(warehouse.settings):
        unknown = True
        gated = ", ".join(stage.table for stage in stages_of_type(Split))
        yield Check("settings", "warning", sentence, f"Tables whose gate has a tolerance: {gated}.")
    try:
        check_schemas(warehouse.settings)
    except UsageError as error:
        unknown = True
        yield Check("settings", "error", str(error), "Correct the name, or put the file there.")
    if not unknown:
        file = settings_file()
        overridden = f", {', '.join(used)} from the environment" if used else ""
        source = str(file) if file.exists() else "defaults, no settings file"
        yield Check("settings", "ok", f"{source}{overridden}; warehouse {warehouse.shown}.")


def _is_used(variable: str) -> bool:
    top = variable.removeprefix(settings_checks.PREFIX).partition("__")[0].lower()
    return variable.startswith(settings_checks.PREFIX) and top in fields_of(Settings)


def check_patterns(warehouse: Warehouse) -> Iterator[Check]:
    """Name patterns of the settings that match nothing that landed."""
    for finding, remedy in (*known.unmatched(warehouse), *known.unmatched_of_teams(warehouse)):
        yield Check("settings", "warning", finding, remedy, of_pattern=True)
