"""``[[team]]`` -> whose a topic, a group or an application is; nothing else asks the patterns of teams."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from expectations.text import visible
from pipelines.columns import globs
from pipelines.errors import UsageError
from pipelines.settings import Settings
from pipelines.settings.teams import NO_TEAM, Team
from pipelines.text import elided, first_names, hint

MOST_KEPT = 20_000  # names whose teams are remembered
WIDEST = 80

_KINDS = {
    "topics": re.compile(r"(?:(?!source).*_)?topics?"),
    "groups": re.compile(r"(?:.*_)?(?:groups?|group_id|owners?)"),
    "applications": re.compile(r"(?:.*_)?(?:applications?|client_ids?)"),
}
"""Names of columns that hold names of a kind. The source topic of a mistake in settings is not what it is about."""
OF_APPLICATION = "application "
_NESTED = ("dlq_topics", "dead_letters")  # arrays of structures that hold names


@dataclass(frozen=True)
class Limits:
    """What the teams of a dead letter allow at most of its replay."""

    max_replays: int | None = None
    never_to: tuple[str, ...] = ()

    def forbid(self, topic: str) -> bool:
        """Tell whether it must not go to a topic."""
        return any(globs.matches(pattern, topic) for pattern in self.never_to)


class Teams:
    """The teams of the settings; something is of each team that has a pattern for one of its names.

    Without teams nothing is of any, not even of ``NO_TEAM``, so that no answer tells of teams.
    """

    def __init__(self, known: Sequence[Team]) -> None:
        """Take teams in the order of the settings."""
        self.known = tuple(known)
        self._fitting = lru_cache(MOST_KEPT)(self._that_fit)

    @classmethod
    def of_settings(cls, settings: Settings) -> Teams:
        """Return the teams of settings."""
        return cls(settings.teams)

    @property
    def names(self) -> tuple[str, ...]:
        """What ``--team`` takes: the names of the teams, and of none; nothing if there are no teams."""
        return (*(team.name for team in self.known), NO_TEAM) if self.known else ()

    def check(self, wanted: str | None) -> None:
        """Check the name that a person gave for a team.

        Raises UsageError: there is no such team.
        """
        if wanted is None or wanted in self.names:
            return
        shown = elided(wanted, WIDEST)
        if not self.known:
            raise UsageError(f"--team '{shown}' names no team, as the settings have no [[team]].")
        there = first_names([f"'{visible(name)}'" for name in self.names])
        raise UsageError(f"--team '{shown}' names no team; there are {there}.{hint(wanted, self.names)}")

    def of(
        self,
        topics: Iterable[str | None] = (),
        owners: Iterable[str | None] = (),
        applications: Iterable[str | None] = (),
    ) -> tuple[str, ...]:
        """Return the teams of what has these names, in the order of the settings; ``NO_TEAM`` if no pattern fits.

        An owner is also an application: the id of a Kafka Streams application is that of its group.
        """
        if not self.known:
            return ()
        pairs = [("topics", name) for name in topics if name is not None]
        for owner in owners:
            if owner is not None:
                pairs += [("groups", owner), ("applications", owner.removeprefix(OF_APPLICATION))]
        pairs += [("applications", name) for name in applications if name is not None]
        indexes = {index for kind, name in pairs for index in self._fitting(kind, name)}
        return tuple(self.known[index].name for index in sorted(indexes)) or (NO_TEAM,)

    def of_row(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the teams of a row of a table or of an answer, by the names of its columns."""
        if not self.known:
            return ()
        pairs = [*_names(row)]
        return self.of(*([name for of_kind, name in pairs if of_kind == kind] for kind in _KINDS))

    def limits(self, names: Iterable[str]) -> Limits:
        """Return what teams together allow at most of replays."""
        limits = [team.replay for team in self.known if team.name in names]
        replays = [limit.max_replays for limit in limits if limit.max_replays is not None]
        return Limits(min(replays, default=None), tuple(pattern for limit in limits for pattern in limit.never_to))

    def most_records(self) -> dict[str, int]:
        """Return how many records teams allow in one plan, by name; teams that do not say it are left out."""
        limits = {team.name: team.replay.most_records for team in self.known}
        return {name: most for name, most in limits.items() if most is not None}

    def _that_fit(self, kind: str, name: str) -> tuple[int, ...]:
        return tuple(
            index
            for index, team in enumerate(self.known)
            if any(globs.matches(pattern, name) for pattern in getattr(team, kind))
        )


def can_narrow(columns: Iterable[str]) -> bool:
    """Tell whether rows with these columns name what can be a team's."""
    return any(_kind_of(column) for column in columns)


def is_of(team: str | None, teams: Sequence[str]) -> bool:
    """Tell whether what is of these teams belongs into an answer that a team asks for; None: all belong.

    >>> is_of('shop', ['shop', 'billing']), is_of('shop', [])
    (True, False)
    """
    return team is None or team in teams


def refuse_others(team: str | None, teams: Sequence[str], what: str) -> None:
    """Raise UsageError if a team asks for something that is not its own."""
    if not is_of(team, teams):
        raise UsageError(f"{what} is of {in_words(teams)}, not of {in_words([team or NO_TEAM])}.")


def in_words(teams: Sequence[str]) -> str:
    """Return the teams of something for people; empty if the settings have none."""
    if not teams or tuple(teams) == (NO_TEAM,):
        return NO_TEAM if teams else ""
    return f"team{'' if len(teams) == 1 else 's'} {', '.join(map(visible, teams))}"


def _names(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the names of a row with their kinds."""
    for column, value in row.items():
        values = value if isinstance(value, list) else [value]
        if column in _NESTED:
            for member in values:
                yield from _names(member) if isinstance(member, Mapping) else ()
        if kind := _kind_of(column):
            yield from ((kind, text) for text in values if isinstance(text, str))


@cache
def _kind_of(column: str) -> str | None:
    """Return of which kind the names in a column are; None if it has none."""
    return next((kind for kind, pattern in _KINDS.items() if pattern.fullmatch(column)), None)
