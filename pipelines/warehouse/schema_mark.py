"""The properties of a table -> the version of the schema that it agrees with; a newer one is refused."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.catalog import SCHEMA
from pipelines.errors import UsageError

PROPERTY = "afterlog.schema"
PRESENT = {PROPERTY: str(SCHEMA)}


def of(properties: Mapping[str, str | None]) -> int:
    """Return the version in a table's properties; 0 if a version of Afterlog made it that did not say."""
    said = properties.get(PROPERTY) or ""
    return int(said) if said.isascii() and said.isdigit() else 0


def refuse_newer(table: str, properties: Mapping[str, str | None]) -> None:
    """Raise UsageError if a later version of Afterlog changed a table, so that this one could read it wrongly."""
    if (found := of(properties)) > SCHEMA:
        raise UsageError(
            f"A later version of Afterlog has changed {table} (schema {found}; this version knows {SCHEMA}): upgrade "
            "Afterlog, or name another warehouse."
        )
