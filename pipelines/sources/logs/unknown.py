"""Lines in no known layout -> a finding about their file, and why a line has no time; neither says a value."""

from __future__ import annotations

from pipelines.sources.logs import layouts
from pipelines.sources.logs.layouts import Parts, Pattern

LINES = "lines of no known layout"
FINDING = "Most lines are in no known layout, "


class Census:
    """Counts lines, and those in no known layout."""

    def __init__(self) -> None:
        """Begin with none."""
        self.lines = self.unknown = 0
        self.example: str | None = None

    def count(self, unknown: str | None = None, lines: int = 1) -> None:
        """Count lines; ``unknown`` begins with the first of them if they are in no known layout."""
        self.lines += lines
        if unknown is not None:
            self.unknown += lines
            self.example = self.example or unknown.partition("\n")[0]

    def finding(self, section: str, pattern: Pattern | None) -> str | None:
        """Return a sentence if most lines are in no known layout: how many, why, and how one looks."""
        if self.example is None or 2 * self.unknown <= self.lines:
            return None
        why = layouts.why_unread(self.example, pattern)
        remedy = "Correct" if pattern is not None else "Name it as"
        return (
            f"{FINDING}{self.unknown:,} of {self.lines:,}: {why}. The first looks like "
            f"{layouts.shape(self.example)!r}. {remedy} layout under [{section}] in the settings, then land the file "
            "again."
        )


def why_no_time(text: str, said: Parts | None, pattern: Pattern | None = None) -> str:
    """Return why an event has no time."""
    if said is None:
        return layouts.why_unread(text, pattern)
    if said.is_clock:
        return "the line begins with a time without a date"
    if said.at is None:
        return "the line begins with a date or a time that does not exist"
    return "the time of the line is in no year in which a broker can have logged"
