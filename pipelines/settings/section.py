"""What all sections of the settings have in common: strict keys, no changes, one sentence for a mistake."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from expectations.text import visible

# In place of reasons of pydantic that speak of Python's types.
_REASONS = {
    "extra_forbidden": "there is no such key",
    "model_type": "write it as a section, or in a variable as a JSON object",
    "tuple_type": "write it as an array, in a variable as JSON",
    "string_too_short": "it must not be empty",
}

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    """A table of the settings file: it refuses unknown keys and never shows the values that it refuses."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def first_mistake(error: ValidationError) -> str:
    """Return a sentence that names the key of the first mistake and the reason, but not the value."""
    mistake = error.errors(include_url=False, include_input=False)[0]
    key = visible(".".join(str(part) for part in mistake["loc"]))
    reason = _REASONS.get(mistake["type"]) or mistake["msg"].removeprefix("Value error, ")
    return f"{key} cannot be used: {reason}."
