"""Content -> the content of each team's front, and of one for what belongs to no team."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pipelines.commands.findings import of_team
from pipelines.commands.incidents.incident import Incident
from pipelines.site.content import Application, Case, Content, Light, News, Replayable, Row
from pipelines.teams import Teams, is_of
from pipelines.warehouse.tables import Warehouse


def of_teams(
    warehouse: Warehouse,
    content: Content,
    known: Sequence[Incident],
    light: Callable[[Sequence[Incident], Sequence[Case], Sequence[Row]], Light],
    replayable: Callable[[Sequence[Case]], tuple[Replayable, ...]],
) -> Mapping[str, Content]:
    """Return the content of each team's front; none if the settings have no teams.

    ``known`` are the incidents of the content. ``light`` and ``replayable`` make these parts of it of some incidents.
    """
    teams = Teams.of_settings(warehouse.settings)
    return {name: _of_team(warehouse, teams, name, content, known, light, replayable) for name in teams.names}


def _of_team(
    warehouse: Warehouse,
    teams: Teams,
    name: str,
    content: Content,
    known: Sequence[Incident],
    light: Callable[[Sequence[Incident], Sequence[Case], Sequence[Row]], Light],
    replayable: Callable[[Sequence[Case]], tuple[Replayable, ...]],
) -> Content:
    own = {incident.row["incident_id"] for incident in known if is_of(name, incident.teams)}
    opened = [incident for incident in known if incident.state.is_open and incident.row["incident_id"] in own]
    cases = tuple(case for case in content.incidents if case.incident_id in own)
    findings = of_team(warehouse, name, map(dict, content.findings), content.made_at, opened)
    return replace(
        content,
        light=light(opened, cases, findings),
        incidents=cases,
        findings=tuple(findings),
        applications=tuple(
            _within(application, own)
            for application in content.applications
            if is_of(name, teams.of([], [application.name]))
        ),
        replay=replayable(cases),
        groups=tuple(group for group in content.groups if is_of(name, teams.of([], [group.name]))),
        topics=tuple(topic for topic in content.topics if is_of(name, teams.of([topic.name]))),
        news=_news(content.news, own),
        replays=(),
    )


def _within(application: Application, own: set[str]) -> Application:
    """Return an application that changed before a team's own incidents only."""
    return replace(
        application, before_incidents=tuple(incident for incident in application.before_incidents if incident[0] in own)
    )


def _news(news: News | None, own: set[str]) -> News | None:
    """Return the changes of a team's incidents; changes of findings are left out, as they name no team."""
    changes = tuple(change for change in news.changes if change.incident_id in own) if news else ()
    return News(news.since, changes) if news and changes else None
