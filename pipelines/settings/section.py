"""What all sections of the settings have in common: strict keys, no changes, one sentence for a mistake."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from expectations.text import visible

# In place of reasons of pydantic that speak of Python's types.
_REASONS = {
    "extra_forbidden": "there is no such key",
    "model_type": "write it as a section, or in a variable as a JSON object",
    "tuple_type": "write it as an array, in a variable as JSON",
    "dict_type": "write it as a section of names and values",
    "string_type": "write it as text in quotes",
    "string_too_short": "it must not be empty",
    "missing": "it must be there",
    "bool_parsing": "write true or false",
    "int_type": "write it as a whole number",
    "int_parsing": "write it as a whole number",
    "int_from_float": "write it as a whole number",
    "float_type": "write it as a number",
    "float_parsing": "write it as a number",
}

_WORDS = {
    "Input should be True": "it must be true",
    "Input should be ": "it must be ",
    "String should match pattern": "it must match",
}

Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    """A table of the settings file: it refuses unknown keys and never shows the values that it refuses."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _check_number(cls, value: Any, info: ValidationInfo) -> Any:
        given = value.values() if isinstance(value, dict) else (value,)
        if any(isinstance(member, bool) for member in given) and _is_number(
            cls.model_fields[str(info.field_name)].annotation
        ):
            raise ValueError("write it as a number, not true or false")
        return value


def _is_number(annotation: Any) -> bool:
    """Tell whether a field is a number, or a number or nothing: pydantic would take true as 1 there."""
    if annotation in (int, float):
        return True
    return any(_is_number(part) for part in get_args(annotation) if get_origin(annotation) is not Literal)


def first_mistake(error: ValidationError) -> str:
    """Return a sentence that names the key of the first mistake and the reason, but not the value."""
    mistake = error.errors(include_url=False, include_input=False)[0]
    key = visible(".".join(str(part) for part in mistake["loc"]))
    reason = _REASONS.get(mistake["type"]) or mistake["msg"].removeprefix("Value error, ")
    for theirs, ours in _WORDS.items():
        reason = reason.replace(theirs, ours)
    return f"{key} cannot be used: {reason}."
