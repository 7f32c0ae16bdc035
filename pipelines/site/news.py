"""Two reports -> what changed between them: incidents that opened, came back, got worse, calmed or ended; findings."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from expectations.text import visible
from pipelines.commands.findings import FINDINGS, URGENT, key_of
from pipelines.commands.incidents import INCIDENTS
from pipelines.incidents.severity import LEVELS
from pipelines.incidents.state import REGRESSED
from pipelines.site.content import Case, Change, Content, News, Row
from pipelines.site.findings import sentence
from pipelines.stores.directory import replace_text

FILE = ".told.json"
VERSION = 1
TABLES = {INCIDENTS, FINDINGS}


def of_report(
    directory: Path, cases: Sequence[Case], findings: Sequence[Row], unreadable: Collection[str] = ()
) -> News | None:
    """Return what is new against the report that a directory holds, or else what was new in it.

    None: there is no report to compare with, or nothing changed since the first one. While incidents or findings are in
    tables that are ``unreadable`` nothing is compared.
    """
    told = _told(directory)
    if told is None:
        return None
    changes = () if TABLES & {*unreadable} else tuple(_changes(told["known"], cases, findings))
    if changes:
        return News(datetime.fromisoformat(told["at"]), changes)
    earlier = told["news"]
    return earlier and News(
        datetime.fromisoformat(earlier["since"]), tuple(Change(**one) for one in earlier["changes"])
    )


def keep(directory: Path, told: Content) -> None:
    """Note in the directory what its report tells, for the next one; not while incidents or findings are unreadable."""
    if TABLES & {*told.unreadable}:
        return
    news = told.news
    kept = news and {
        "since": news.since.isoformat(),
        "changes": [{"words": one.words, "is_bad": one.is_bad, "incident_id": one.incident_id} for one in news.changes],
    }
    known = _known(told.incidents, told.findings)
    noted = {"version": VERSION, "at": told.made_at.isoformat(), "known": known, "news": kept}
    replace_text(directory / FILE, json.dumps(noted), durable=False)


def _told(directory: Path) -> dict[str, Any] | None:
    try:
        told = json.loads((directory / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return told if isinstance(told, dict) and told.get("version") == VERSION else None


def _known(cases: Iterable[Case], findings: Iterable[Row]) -> dict[str, Any]:
    """Return what decides whether something is new."""
    return {
        "incidents": {one.incident_id: [one.is_open, one.severity, one.verdict] for one in cases},
        "findings": {key_of(one): one["severity"] for one in findings},
    }


def _changes(before: Mapping[str, Any], cases: Iterable[Case], findings: Sequence[Row]) -> Iterable[Change]:
    """Yield what changed, in the order of the incidents, then of the findings."""
    incidents: Mapping[str, Sequence[Any]] = before["incidents"]
    for one in cases:
        was_open, severity, verdict = incidents.get(one.incident_id) or (None, None, None)
        if was_open is None or severity is None:
            if one.is_open:
                opened = "came back" if one.state == REGRESSED else "opened"
                yield Change(f"{opened}: {one.chip}, {one.place}", True, one.incident_id)
        elif was_open != one.is_open:
            turned = "is open again" if one.is_open else "ended"
            yield Change(f"{turned}: {one.chip}, {one.place}", one.is_open, one.incident_id)
        elif severity != one.severity and one.is_open:
            is_worse = LEVELS.index(one.severity) < LEVELS.index(severity)
            words = f"is {'worse' if is_worse else 'less severe'}: {one.severity}, it was {severity}; {one.place}"
            yield Change(words, is_worse, one.incident_id)
        elif verdict != one.verdict and one.is_open:
            yield Change(f"looks different: {one.chip}, {one.place}", True, one.incident_id)
    known: Mapping[str, str] = before["findings"]
    for finding in findings:
        if key_of(finding) not in known:
            yield Change(sentence(finding), finding["severity"] in URGENT)
    for key in sorted(known.keys() - {key_of(one) for one in findings}):
        kind, topic, name = json.loads(key)
        about, what = " ".join(one for one in (topic, name) if one), kind.replace("_", " ").lower()
        yield Change(f"{visible(about)}: {what} is over" if about else f"the finding {what} is over", False)
