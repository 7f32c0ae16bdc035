"""Incidents, findings, feeds -> whether anything is wrong, in a sentence and in full: `afterlog top`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from expectations.quality import INCIDENT_ACTIONS
from expectations.rules import counted
from expectations.text import visible
from pipelines.collect.state import asked_at
from pipelines.commands.describe import Answer
from pipelines.commands.findings import (
    FINDINGS,
    MISTAKES,
    amount_of,
    findings_of,
    is_mistake,
    mistakes_of,
    of_team,
    urgent,
)
from pipelines.commands.incidents.incident import Incident, in_json
from pipelines.commands.incidents.listing import as_known_now, lines_of
from pipelines.commands.incidents.reading import INCIDENTS, SUMMARY, Incidents, now_of
from pipelines.run import newest
from pipelines.run.newest import Newest, lasting, moment
from pipelines.teams import in_words, is_of
from pipelines.warehouse.tables import Warehouse

MOST_SHOWN = 20


def top(warehouse: Warehouse, form: str = "text", at: str | None = None, team: str | None = None) -> Answer:
    """Tell whether anything is wrong, the open incidents, the findings about trust, and how old each feed is.

    A ``team`` is told of its own incidents and findings; feeds are of all teams.
    """
    now = now_of(at)
    warehouse.open_ahead({INCIDENTS, INCIDENT_ACTIONS.table, SUMMARY, FINDINGS, MISTAKES, *newest.tables()})
    incidents = Incidents(warehouse, now)
    opened = [incident for incident in incidents.known if incident.state.is_open and is_of(team, incident.teams)]
    all_feeds = newest.of_feeds(warehouse, now)
    feeds = [feed for feed in all_feeds if feed.used]
    silences = [(feed, newest.silence(warehouse, feed)) for feed in feeds]
    findings = findings_of(warehouse, silences, now, opened, to_the_second=True)
    findings = of_team(warehouse, team, findings, now, opened)
    sentence = front(opened, findings, feeds, now)
    if form == "json":
        return Answer(
            in_json(
                {
                    "cluster": warehouse.cluster,
                    "sentence": sentence,
                    **({} if team is None else {"team": team}),
                    "now": now,
                    "incidents": [incident.as_json(warehouse.settings.report) for incident in opened],
                    "findings": findings,
                    "misconfigurations": mistakes_of(warehouse, now, team),
                    "feeds": [{"feed": feed.feed, "newest_at": feed.at, "sentence": feed.in_words} for feed in feeds],
                }
            )
        )
    lines = [sentence, *as_known_now(opened, now)]
    if team is not None:
        lines.append(f"Only what is of {in_words([team])}; how old feeds are concerns all teams.")
    if at is not None:
        timeless = sum(finding["since"] is None for finding in findings)
        but = f"; nothing tells when {timeless:,} of them began" if timeless else ""
        later = "findings and settings are as known now, but for those that began later"
        lines.append(f"As of {moment(now)}; {later}{but}.")
    lines += _of_incidents(warehouse, opened, now)
    others = [finding for finding in findings if not is_mistake(finding)]
    mistakes = [finding for finding in findings if is_mistake(finding)]
    if others:
        below = f"; {len(mistakes):,} of them, of settings, stand below" if mistakes else ""
        head = f"Findings: {len(findings):,}, of which {len(urgent(findings)):,} are urgent{below}"
        lines += ["", head, *_of_findings(others)]
    if mistakes:
        lines += ["", "Settings that lose dead letters or make them useless", *_of_findings(mistakes)]
        asked = asked_at(warehouse.settings) or max(finding["last_at"] for finding in mistakes)
        lines.append(f"  as the cluster said {lasting(now - asked)} ago; `afterlog collect` asks again")
    lines += ["", "Feeds", *(f"  {feed.feed}: {feed.in_words}" for feed in feeds)]
    if unused := [feed.feed for feed in all_feeds if not feed.used]:
        lines.append(f"  nothing is known of {', '.join(unused)}: `afterlog doctor` says how to set them up")
    if opened:
        lines += ["", f"Next: afterlog incident {opened[0].row['incident_id']}"]
    return Answer("\n".join(lines), exit_code=0)


def _of_incidents(warehouse: Warehouse, opened: Sequence[Incident], now: datetime) -> list[str]:
    """Return the open incidents below a heading for each kind."""
    lines: list[str] = []
    ahead = [incident for incident in opened if incident.is_ahead]
    quiet = [incident for incident in opened if incident.state.is_quiet]
    for words, shown in (
        ("Open incidents", [incident for incident in opened if not incident.state.is_quiet and not incident.is_ahead]),
        ("Quiet incidents, which are not known to be over", quiet),
        ("Incidents whose records are all stamped ahead of now", ahead),
    ):
        if shown:
            lines += ["", words, *lines_of(shown, now, MOST_SHOWN)]
            touched = _touched(shown)
            lines += [f"           topics {', '.join(touched)}"] if touched else []
    return lines


def _of_findings(findings: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for finding in findings[:MOST_SHOWN]:
        subject, evidence = visible(finding["subject"]), visible(finding["evidence"])
        of_teams = f" ({in_words(finding['teams'])})" if "teams" in finding else ""
        lines.append(f"  {finding['severity']:<8}  {finding['kind']:<22}  {subject}: {evidence}{of_teams}")
        lines.append(f"            `{visible(finding['remedy'])}`")
    if len(findings) > MOST_SHOWN:
        lines.append(f"  and {len(findings) - MOST_SHOWN:,} more: `afterlog top --format json`")
    return lines


def newest_at(feeds: Iterable[Newest]) -> datetime | None:
    """Return the time of the newest dead letter; None if none is known, as with one that is stamped ahead."""
    return next((feed.at for feed in feeds if feed.feed == "dlq" and feed.ahead is None), None)


def clock(at: datetime, now: datetime) -> str:
    """Return a time, without its date if that is today's (UTC)."""
    return f"{at:%H:%M} UTC" if at.astimezone(UTC).date() == now.astimezone(UTC).date() else f"{at:%Y-%m-%d %H:%M} UTC"


def front(
    opened: Sequence[Incident] | None,
    findings: Sequence[Mapping[str, Any]] | None,
    feeds: Sequence[Newest],
    now: datetime,
    is_calm: bool = True,
) -> str:
    """Return in one sentence whether anything is wrong; ``is_calm``: nothing else is, that the caller knows of.

    Open incidents and findings are None if their tables cannot be read.
    """
    at = newest_at(feeds)
    data = "no dead letter has landed"
    if any(feed.feed == "dlq" and not feed.is_readable for feed in feeds):
        data = "the tables of dead letters cannot be read: see `afterlog doctor`"
    elif ahead := [feed.in_words for feed in feeds if feed.feed == "dlq" and feed.ahead is not None]:
        data = ahead[0]
    elif later := [
        feed.in_words for feed in feeds if feed.feed == "dlq" and feed.at is None and feed.landed_at is not None
    ]:
        data = later[0]
    elif at:
        data = f"data {lasting(now - at)} old (newest dead letter {clock(at, now)})"
    loud = [incident for incident in opened or () if incident.state.is_loud]
    cannot_wait = urgent(findings or ())
    lost = amount_of(findings or (), "LOST_MESSAGES")
    quiet = sum(incident.state.is_quiet for incident in loud)
    parts = ["open incidents unknown"]
    if opened is not None:
        parts = [f"{counted(len(loud), 'incident')} open" + (f" ({quiet:,} quiet)" if quiet else "")]
    if muted := len(opened or ()) - len(loud):
        parts.append(f"{muted:,} muted")
    if lost:
        parts.append(f"{counted(lost, 'message')} lost")
    if cannot_wait:
        parts.append(f"{counted(len(cannot_wait), 'urgent finding')}")
    if findings is None:
        parts.append("findings unknown")
    if is_calm and not loud and not cannot_wait and None not in (opened, findings):
        return f"Nothing is wrong as far as the data tells: {', '.join(parts)}; {data}."
    return f"{', '.join(parts)}; {data}."


def _touched(opened: Sequence[Incident]) -> list[str]:
    return sorted({visible(incident.row["original_topic"]) for incident in opened if incident.row["original_topic"]})[
        :MOST_SHOWN
    ]
