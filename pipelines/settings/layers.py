"""Settings file, then AFTERLOG_* variables -> one nested dictionary, not yet validated.

docs/decisions/0050-layer-settings-ourselves.md says why this is not left to pydantic-settings.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pipelines.errors import UsageError
from pipelines.settings.clusters import folded
from pipelines.settings.files import text_of
from pipelines.settings.section import Section

_PREFIX = "AFTERLOG_"
_ONLY_IN_THE_FILE = {"gates", "spark"}
_BOTH = re.compile(r"^\s*cluster\s*=.*^\s*\[\[\s*cluster\s*\]\]", re.MULTILINE | re.DOTALL)


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the settings of a model by the names that files and variables give them."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def read_layers(file: Path, model: type[BaseModel]) -> dict[str, Any]:
    """Return the values of the settings file, overridden by the variables that name a setting of the model.

    The file does not have to exist.

    Raises UsageError: a file that cannot be read, or a variable that cannot be used.
    """
    text = text_of(file, "The settings file") if file.exists() else ""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        if _BOTH.search(text):
            raise UsageError(
                f"The settings file {file} has cluster = ... and [[cluster]]: remove the first, as each [[cluster]] "
                "has a name."
            ) from None
        raise UsageError(f"The settings file {file} cannot be read: {error}") from None
    _apply_variables(values, model)
    return values


def _apply_variables(values: dict[str, Any], model: type[BaseModel]) -> None:
    """Apply the variables to the values of the file; variables that name no setting have no effect.

    ``AFTERLOG_KAFKA={...}`` replaces the whole section with a JSON object, so that no key of the file remains in it.
    ``AFTERLOG_KAFKA__USERNAME=x`` then sets one key of what is there. ``AFTERLOG_PRIVACY=[...]`` replaces all masks,
    ``AFTERLOG_DLQ__REQUIRE=[...]`` one array of a section. Of ``[[cluster]]`` entries ``AFTERLOG_CLUSTER`` chooses one,
    or replaces all if it is an array, and ``AFTERLOG_CLUSTER__<NAME>__KAFKA__PASSWORD=x`` sets a key of one.
    """
    fields = fields_of(model)
    for variable, text in sorted(os.environ.items(), key=lambda item: item[0].count("__")):  # whole sections first
        if not variable.startswith(_PREFIX):
            continue
        *sections, key = variable.removeprefix(_PREFIX).lower().split("__")
        top = sections[0] if sections else key
        if top not in fields or top in _ONLY_IN_THE_FILE:
            continue
        target = values
        if top == "cluster":
            if not sections:
                _choose(values, text)
                continue
            entry = entry_of(values, sections[1] if len(sections) > 1 else key)
            if entry is None or len(sections) < 2:
                continue
            target, sections = entry, sections[2:]
        for section in sections:
            target = target.setdefault(section, {})
            if not isinstance(target, dict):
                raise UsageError(f"{variable} cannot be used: {section} is not a section.")
        target[key] = _parse_json(text) if _takes_json(fields, sections, key) else text


def _choose(values: dict[str, Any], text: str) -> None:
    """Apply ``AFTERLOG_CLUSTER``: JSON replaces all entries; a name is that of the cluster, or chooses an entry."""
    parsed = _entries(text)
    if parsed is not None:
        values["cluster"] = parsed
    elif not isinstance(values.get("cluster"), list):
        values["cluster"] = text


def chosen_cluster() -> str | None:
    """Return the only cluster of several that ``AFTERLOG_CLUSTER`` names; None if it names none."""
    text = os.environ.get(f"{_PREFIX}CLUSTER")
    return None if text is None or _entries(text) is not None else text


def _entries(text: str) -> list[Any] | str | None:
    """Return what JSON gives in place of all entries: an array of them, or in quotes the name of the only cluster."""
    parsed = _parse_json(text) if text.startswith(("[", '"')) else None
    return parsed if parsed != text and isinstance(parsed, list | str) else None


def entry_of(values: dict[str, Any], part: str) -> dict[str, Any] | None:
    """Return the ``[[cluster]]`` entry that a part of a variable's name names: its name with ``_`` for each sign."""
    entries = values.get("cluster")
    named = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return next((entry for entry in named if folded(str(entry.get("name"))) == part), None)


def _takes_json(fields: dict[str, FieldInfo], sections: list[str], key: str) -> bool:
    """Tell whether a variable's text is JSON: that of a section, of an array, or of a table of names and values."""
    if not sections:
        return key in fields and isinstance(fields[key].default, Section | tuple)
    section = fields[sections[0]].default if sections[0] in fields else None
    if len(sections) > 1 or not isinstance(section, Section):
        return False
    field = fields_of(type(section)).get(key)
    return field is not None and (isinstance(field.default, tuple) or field.default_factory is dict)


def _parse_json(text: str) -> Any:
    """Return what the JSON says; other text stays text, which validation refuses."""
    try:
        return json.loads(text)
    except ValueError:
        return text
