"""Which dead letters a person, or the rules, choose for a plan."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.errors import UsageError
from pipelines.teams import in_words
from pipelines.text import elided

BY_RULES = "the rules"
MOST_NAMED = 1_000


@dataclass(frozen=True)
class Choice:
    """Which dead letters are wanted: of an incident, at coordinates, of a condition, or those that the rules replay.

    With a ``team`` only its own are.
    """

    incident: str | None = None
    where: str | None = None
    records: tuple[str, ...] = ()
    by_rules: bool = False
    limit: int | None = None
    team: str | None = None

    def __post_init__(self) -> None:
        """Raise UsageError: nothing is chosen, or in two ways."""
        ways = [self.incident is not None, self.where is not None, bool(self.records), self.by_rules]
        if sum(ways) != 1:
            raise UsageError("Choose records in one way: --incident, --where, --record or --by-rules.")
        if len(self.records) > MOST_NAMED:
            raise UsageError(f"--record can name at most {MOST_NAMED:,} records: choose more with --where.")

    def __str__(self) -> str:
        """Return it in words, for the table of plans; a condition is cut."""
        if self.incident is not None:
            said = f"incident {self.incident}"
        elif self.where is not None:
            said = f"where {elided(self.where, 500)}"
        elif self.records:
            shown = ", ".join(self.records[:20]) + (" and more" if len(self.records) > 20 else "")
            said = f"record {shown}"
        else:
            said = BY_RULES
        said += f", of {in_words([self.team])}" if self.team is not None else ""
        return said + (f", at most {self.limit:,}" if self.limit is not None else "")
