"""Rows of an answer to a question -> those of a team, or of one of several clusters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from pipelines.commands.rows import Rows
from pipelines.errors import UsageError
from pipelines.settings import Settings
from pipelines.teams import Teams, can_narrow

_ARRAYS = re.compile(r"(?:.*_)?(?:topics|groups|owners|applications|client_ids)")
_LIMIT = re.compile(r"\nLIMIT (\d+)\s*\Z")


def unlimited(text: str) -> tuple[str, int | None]:
    """Return a question without the limit at its end, and the limit: a team's first rows may be behind it."""
    found = _LIMIT.search(text)
    return (text[: found.start()], int(found[1])) if found else (text, None)


def narrowed(rows: Rows, settings: Settings, team: str | None, question: str, most: int | None) -> Rows:
    """Return the first ``most`` rows that are of a team (None: of any) and of the cluster that the settings choose.

    Raises UsageError: no column names a topic, a group or an application, or none names the cluster.
    """
    if settings.chosen_cluster is not None and "cluster" not in rows.names:
        raise UsageError(f"The answer to {question} names no cluster: ask it without --cluster.")
    if team is not None and not can_narrow(rows.names):
        raise UsageError(
            f"The answer to {question} names no topic, group or application, so nothing of it is of a team: "
            "ask it without --team."
        )
    return _Narrowed(rows, Teams.of_settings(settings), team, settings.chosen_cluster, most)


class _Narrowed:
    def __init__(self, rows: Rows, teams: Teams, team: str | None, cluster: str | None, most: int | None) -> None:
        self.names, self.are_numbers = rows.names, rows.are_numbers
        self._rows, self._teams, self._team, self._cluster, self._most = rows, teams, team, cluster, most

    def texts(self) -> Iterator[Sequence[str | None]]:
        return islice((row for row in self._rows.texts() if self._is_own(self._values(row))), self._most)

    def objects(self) -> Iterator[str]:
        return islice((line for line in self._rows.objects() if self._is_own(json.loads(line))), self._most)

    def _values(self, row: Sequence[str | None]) -> dict[str, Any]:
        """Return the values of a row by column, arrays of names as such: they are JSON in text."""
        return {
            name: json.loads(text) if text is not None and _ARRAYS.fullmatch(name) else text
            for name, text in zip(self.names, row, strict=True)
        }

    def _is_own(self, row: Mapping[str, Any]) -> bool:
        if self._cluster is not None and row["cluster"] != self._cluster:
            return False
        return self._team is None or self._team in self._teams.of_row(row)
