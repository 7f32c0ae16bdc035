"""Incidents -> the list of `afterlog incidents`, two lines each or an object each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from expectations.owners import owner_of
from expectations.rules import counted
from pipelines.commands.describe import Answer
from pipelines.commands.incidents.incident import Incident, ago, in_json
from pipelines.commands.incidents.reading import Incidents, now_of
from pipelines.incidents.state import sparkline
from pipelines.moments import moment_of
from pipelines.run.newest import moment
from pipelines.teams import in_words, is_of
from pipelines.text import hint
from pipelines.warehouse.tables import Warehouse


def listed(
    warehouse: Warehouse,
    form: str = "table",
    *,
    only_open: bool = False,
    since: str | None = None,
    group: str | None = None,
    topic: str | None = None,
    team: str | None = None,
    at: str | None = None,
    width: int | None = None,
) -> Answer:
    """List incidents, the most urgent first; JSON is one object per line.

    Raises UsageError: a time cannot be read, or the table does not exist.
    """
    incidents = Incidents(warehouse, now_of(at))
    begin = None if since is None else moment_of(since, "--since", incidents.now)
    chosen = [
        incident
        for incident in incidents.known
        if (not only_open or incident.state.is_open)
        and (begin is None or incident.row["last_at"] >= begin)
        and group in (None, owner_of(incident.row))
        and is_of(team, incident.teams)
        and (topic is None or topic in incident.topics)
    ]
    if form == "json":
        return Answer("\n".join(in_json(incident.as_json(warehouse.settings.report)) for incident in chosen))
    if not chosen:
        near = _meant(incidents.known, group, topic)
        return Answer("", (f"No incident matches; {counted(len(incidents.known), 'incident')} in all.{near}",))
    muted = sum(incident.state.muted_until is not None for incident in chosen) if only_open else 0
    said = (f"{counted(len(chosen) - muted, 'incident')} open, {muted:,} muted.",) if muted else ()
    return Answer("\n".join(lines_of(chosen, incidents.now)), (*said, *as_known_now(chosen, incidents.now)))


def _meant(known: Sequence[Incident], group: str | None, topic: str | None) -> str:
    """Return the names of owners and topics near those that no incident has, as the end of a message."""
    owners = {owner for incident in known if (owner := owner_of(incident.row)) is not None}
    topics = {name for incident in known for name in incident.topics if name is not None}
    wanted = ((group, owners), (topic, topics))
    return "".join(hint(name, sorted(there)) for name, there in wanted if name is not None and name not in there)


def as_known_now(shown: Iterable[Incident], now: datetime) -> tuple[str, ...]:
    """Say of incidents that had dead letters after the moment of the answer what is not told as of that moment."""
    went_on = [incident for incident in shown if incident.known]
    if not went_on:
        return ()
    untold = sum(not incident.is_told_until_now for incident in went_on)
    also = f"; so are times and counts of {untold:,}, which no table tells by minute" if untold else ""
    had = f"{counted(len(went_on), 'incident')} had dead letters after {moment(now)}"
    return (f"{had}: verdicts and severities are as known now{also}.",)


def lines_of(incidents: Sequence[Incident], now: datetime, most: int | None = None) -> list[str]:
    """Return two lines for each incident."""
    lines = []
    for incident in incidents[:most]:
        row = incident.row
        muted = f", muted until {moment(incident.state.muted_until)}" if incident.state.muted_until else ""
        of_teams = f", {in_words(incident.teams)}" if incident.teams else ""
        lines.append(
            f"{row['incident_id']}  {row['severity']:<8}  {incident.state.name:<9}  {row['verdict']:<15}  "
            f"{incident.owner_on_topic}  {counted(row['record_count'], 'record')}{incident.how_often}{muted}{of_teams}"
        )
        since = f"{incident.began()}, {incident.ended(ago(row['last_at'], now))}"
        lines.append(f"           {since}  {sparkline(row['timeline'])}".rstrip())
    if most is not None and len(incidents) > most:
        lines.append(f"           and {len(incidents) - most:,} more: `afterlog incidents --open`")
    return lines
