"""Settings of retention: how old rows become before `afterlog maintain` removes them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from pipelines.settings.payloads import Glob
from pipelines.settings.section import Section

_AGE = re.compile(r"(?P<count>[1-9]\d{0,4}) (?P<unit>day|week|month|year)s?")
_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}

Age = Annotated[str, StringConstraints(pattern=r"^(forever|[1-9]\d{0,4} (day|week|month|year)s?)$")]
"""An age like ``90 days``, ``2 years`` or ``forever``; a month is 30 days, a year 365."""


class Retention(Section):
    """How old rows become before they go. Without an entry no row goes.

    ``bronze``, ``quarantine``, ``gold`` and ``quality`` are for those tables of a layer whose rows can go, ``tables``
    for one such table. ``topics`` are for the rows of a topic in bronze and in quarantine: of its glob patterns, the
    first that matches counts. ``pages`` is how long the page of an incident that ended tells of it.
    """

    bronze: Age = "forever"
    quarantine: Age = "forever"
    gold: Age = "forever"
    quality: Age = "forever"
    pages: Age = "90 days"
    tables: dict[str, Age] = Field(default_factory=dict)
    topics: dict[Glob, Age] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_ages(self) -> Retention:
        layers = [self.bronze, self.quarantine, self.gold, self.quality, self.pages]
        given = [*layers, *self.tables.values(), *self.topics.values()]
        if any((age := age_of(age_text)) is not None and age > timedelta(days=36_500) for age_text in given):
            raise ValueError("write at most 100 years, or forever")
        return self

    def of(self, table: str) -> timedelta | None:
        """Return how old the rows of a table become; None: they stay."""
        of_layers = {"bronze": self.bronze, "quarantine": self.quarantine, "gold": self.gold, "quality": self.quality}
        return age_of(self.tables.get(table) or of_layers.get(table.partition(".")[0], "forever"))

    def of_topics(self) -> tuple[tuple[str, timedelta | None], ...]:
        """Return how old the rows of topics become, by glob pattern."""
        return tuple((pattern, age_of(age)) for pattern, age in self.topics.items())


def age_of(text: str) -> timedelta | None:
    """Return an age; None for ``forever``."""
    found = _AGE.fullmatch(text)
    return timedelta(days=int(found["count"]) * _DAYS[found["unit"]]) if found else None


def midnight(now: datetime) -> datetime:
    """Return the midnight, UTC, at which ages of that day end."""
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
