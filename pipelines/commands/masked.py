"""Rows of an answer to a question -> the same rows, with errors of dead letters masked as ``[[privacy]]`` says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from expectations.silver.dlq_records import DISPOSITIONS
from pipelines.commands.rows import Rows, quoted
from pipelines.settings import Settings

if TYPE_CHECKING:
    from pipelines.privacy import Masks

COLUMNS = {"error_message": "error_message", "exception_class": "exception_class", "error": "error_message"}
COLUMNS |= {"error_pattern": "error_message", "error_frame": "exception_stacktrace"}
"""Columns of answers with a text of an error, and the column of silver.dlq_records whose masks they get."""


def masked(rows: Rows, settings: Settings) -> Rows:
    """Return rows whose errors are masked; a row tells of many records, so that in doubt the masks of all topics apply.

    As where incidents are shown, a hash without a key is a drop.
    """
    if not settings.privacy or not COLUMNS.keys() & set(rows.names):
        return rows
    from pipelines.privacy import Masks  # imports libraries that read payloads

    return _MaskedRows(rows, Masks.hiding(settings))


class _MaskedRows:
    def __init__(self, rows: Rows, masks: Masks) -> None:
        self.names, self.are_numbers = rows.names, rows.are_numbers
        self._rows, self._masks = rows, masks

    def texts(self) -> Iterator[Sequence[str | None]]:
        for row in self._rows.texts():
            named = dict(zip(self.names, row, strict=True))
            changed = self._changed(named)
            yield [changed.get(name, value) for name, value in named.items()] if changed else row

    def objects(self) -> Iterator[str]:
        for line in self._rows.objects():
            row = json.loads(line)
            for name, text in self._changed(row).items():
                field = f"{quoted(name)}:"
                if field + quoted(row[name]) not in line:  # it is spelled in another way
                    line = json.dumps(row | {name: text}, separators=(",", ":"), ensure_ascii=False)
                line = line.replace(field + quoted(row[name]), field + quoted(text), 1)
                row[name] = text
            yield line

    def _changed(self, row: Mapping[str, Any]) -> dict[str, str]:
        """Return the masked texts of a row, by column."""
        changed = {}
        for name, column in COLUMNS.items():
            text = row.get(name)
            if text is not None and text not in DISPOSITIONS:
                seen = self._masks.error(row.get("original_topic"), True, {column: text})[column]
                if seen != text:
                    changed[name] = seen
        return changed
