"""Settings file, then AFTERLOG_* variables -> one nested dictionary, not yet validated.

docs/decisions/0050-layer-settings-ourselves.md says why this is not left to pydantic-settings.
"""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pipelines.errors import UsageError
from pipelines.settings.files import text_of
from pipelines.settings.section import Section

_PREFIX = "AFTERLOG_"
_ONLY_IN_THE_FILE = {"gates", "spark"}


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the settings of a model by the names that files and variables give them."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def read_layers(file: Path, model: type[BaseModel]) -> dict[str, Any]:
    """Return the values of the settings file, overridden by the variables that name a setting of the model.

    The file does not have to exist.

    Raises UsageError: a file that cannot be read, or a variable that cannot be used.
    """
    try:
        values = tomllib.loads(text_of(file, "The settings file") if file.exists() else "")
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"The settings file {file} cannot be read: {error}") from None
    _apply_variables(values, model)
    return values


def _apply_variables(values: dict[str, Any], model: type[BaseModel]) -> None:
    """Apply the variables to the values of the file; variables that name no setting have no effect.

    ``AFTERLOG_KAFKA={...}`` replaces the whole section with a JSON object, so that no key of the file remains in it.
    ``AFTERLOG_KAFKA__USERNAME=x`` then sets one key of what is there. ``AFTERLOG_PRIVACY=[...]`` replaces all masks,
    ``AFTERLOG_DLQ__REQUIRE=[...]`` one array of a section.
    """
    fields = fields_of(model)
    for variable, text in sorted(os.environ.items(), key=lambda item: "__" in item[0]):  # whole sections first
        if not variable.startswith(_PREFIX):
            continue
        *sections, key = variable.removeprefix(_PREFIX).lower().split("__")
        top = sections[0] if sections else key
        if top not in fields or top in _ONLY_IN_THE_FILE:
            continue
        target = values
        for section in sections:
            target = target.setdefault(section, {})
            if not isinstance(target, dict):
                raise UsageError(f"{variable} cannot be used: {section} is not a section.")
        target[key] = _parse_json(text) if _takes_json(fields, sections, key) else text


def _takes_json(fields: dict[str, FieldInfo], sections: list[str], key: str) -> bool:
    """Tell whether a variable's text is JSON: that of a section, of an array, or of a table of names and values."""
    if not sections:
        return isinstance(fields[key].default, Section | tuple)
    section = fields[sections[0]].default
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
