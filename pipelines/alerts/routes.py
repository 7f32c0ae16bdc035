"""A route of the settings -> which news it wants, and when it is silent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from pipelines.alerts.news import News
from pipelines.columns import globs
from pipelines.incidents.severity import LEVELS
from pipelines.settings.alerts import Route
from pipelines.teams import is_of


def wants(route: Route, change: News, teams: Sequence[str] = ()) -> bool:
    """Tell whether a route gets news of this kind, which is of these teams."""
    whose = change.group or change.owner  # news that an earlier version kept has no owner
    return (
        change.rank <= LEVELS.index(route.severity)
        and is_of(route.team, teams)
        and (route.group == "*" or (whose is not None and globs.matches(route.group, whose)))
        and (route.topic == "*" or any(globs.matches(route.topic, topic) for topic in change.topics))
        and (not route.verdicts or change.verdict in route.verdicts)
        and (not route.news or change.kind in route.news)
    )


def quiet(route: Route, severity: str, now: datetime) -> bool:
    """Tell whether a route is silent at a time about news of a severity."""
    hours = route.quiet_hours
    if hours is None or hours.begin == hours.end:
        return False
    if hours.except_severity is not None and LEVELS.index(severity) <= LEVELS.index(hours.except_severity):
        return False
    at = now.astimezone(ZoneInfo(hours.timezone)).time()
    if hours.begin < hours.end:
        return hours.begin <= at < hours.end
    return at >= hours.begin or at < hours.end
