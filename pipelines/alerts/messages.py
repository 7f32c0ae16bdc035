"""News -> an alert, and the words in which all channels tell it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from pipelines.alerts.news import News
from pipelines.incidents.severity import LEVELS
from pipelines.text import iso
from pipelines.warehouse.alert_log import severity_of, title_of

MOST_LISTED = 20  # news in a message for people


@dataclass
class Alert:
    """One message for a route; several news in a storm, or after quiet hours."""

    id: str
    route: str
    news: list[News]
    made_at: datetime
    not_before: datetime
    attempts: int = 0
    was_quiet: bool = False
    is_held: bool = False  # by a storm
    answer: str | None = None

    @property
    def severity(self) -> str:
        """The worst severity of its news."""
        return severity_of(change.severity for change in self.news)

    @property
    def dedup_key(self) -> str:
        """The key of this alert at a receiver that keeps alerts open."""
        return self.news[0].dedup_key if len(self.news) == 1 else f"afterlog-storm-{self.id}"

    @property
    def is_resolve(self) -> bool:
        """Whether it ends what has its key at such a receiver; a storm that is over began there, too."""
        return len(self.news) == 1 and self.news[0].is_over

    @property
    def title(self) -> str:
        """What it is about, in a line."""
        return title_of([change.title for change in self.news])


def headline(alert: Alert) -> str:
    """Return an alert in a line: its severity and what it is about."""
    if len(alert.news) == 1:
        return line(alert.news[0])
    counts = Counter("over" if change.is_over else change.severity for change in alert.news)
    parts = [f"{counts[level]} {level}" for level in (*LEVELS, "over") if counts[level]]
    worst = next((level for level in LEVELS if counts[level]), "over")
    return f"[{worst}] {len(alert.news)} alerts at once: {', '.join(parts)}"


def line(change: News) -> str:
    """Return a change in a line, which begins with words if the incident came back or got worse."""
    words = {"worse": "got worse: ", "regressed": "came back: "}.get(change.kind, "")
    return f"[{'over' if change.is_over else change.severity}] {words}{change.title}"


def more(alert: Alert, listed: int = MOST_LISTED) -> list[str]:
    """Return in words how many news a message leaves out, which lists the first ones; nothing if it has all."""
    left_out = len(alert.news) - listed
    return [f"and {left_out} more"] if left_out > 0 else []


def news_of_a_test(now: datetime) -> News:
    """Return the news of a test."""
    at = iso(now)
    text = "This is a test: nothing is wrong, and nothing is to be done."
    return News("test", "test", "low", "a test of this route", text, f"afterlog-test-{at}", at)
