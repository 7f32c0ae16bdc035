"""Two reports -> what changed between them: incidents that opened, came back, got worse, calmed or ended; findings."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from expectations.text import visible
from pipelines.commands.findings import FINDINGS, URGENT, key_of
from pipelines.commands.incidents.reading import INCIDENTS
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
    """Return what changed since the report in a directory; if nothing did, what that report showed as new.

    None: there is no report to compare with, or nothing changed since the first one. While incidents or findings are in
    tables that are ``unreadable`` nothing is compared.
    """
    last_report = _last_report(directory)
    if last_report is None:
        return None
    changes = () if TABLES & {*unreadable} else tuple(_changes(last_report["known"], cases, findings))
    if changes:
        return News(datetime.fromisoformat(last_report["at"]), changes)
    earlier = last_report["news"]
    return earlier and News(
        datetime.fromisoformat(earlier["since"]), tuple(Change(**fields) for fields in earlier["changes"])
    )


def keep(directory: Path, content: Content) -> None:
    """Note in the directory what its report tells, for the next one; not while incidents or findings are unreadable."""
    if TABLES & {*content.unreadable}:
        return
    news = content.news
    kept = news and {
        "since": news.since.isoformat(),
        "changes": [
            {"words": change.words, "is_bad": change.is_bad, "incident_id": change.incident_id}
            for change in news.changes
        ],
    }
    known = _known(content.incidents, content.findings)
    noted = {"version": VERSION, "at": content.made_at.isoformat(), "known": known, "news": kept}
    replace_text(directory / FILE, json.dumps(noted), durable=False)


def _last_report(directory: Path) -> dict[str, Any] | None:
    try:
        report = json.loads((directory / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return report if isinstance(report, dict) and report.get("version") == VERSION else None


def _known(cases: Iterable[Case], findings: Iterable[Row]) -> dict[str, Any]:
    """Return what decides whether something is new."""
    return {
        "incidents": {case.incident_id: [case.is_open, case.severity, case.verdict] for case in cases},
        "findings": {key_of(finding): finding["severity"] for finding in findings},
    }


def _changes(before: Mapping[str, Any], cases: Iterable[Case], findings: Sequence[Row]) -> Iterable[Change]:
    """Yield what changed, in the order of the incidents, then of the findings."""
    incidents: Mapping[str, Sequence[Any]] = before["incidents"]
    for case in cases:
        was_open, severity, verdict = incidents.get(case.incident_id) or (None, None, None)
        if was_open is None or severity is None:
            if case.is_open:
                opened = "came back" if case.state == REGRESSED else "opened"
                yield Change(f"{opened}: {case.chip}, {case.where}", True, case.incident_id)
        elif was_open != case.is_open:
            turned = "is open again" if case.is_open else "ended"
            yield Change(f"{turned}: {case.chip}, {case.where}", case.is_open, case.incident_id)
        elif severity != case.severity and case.is_open:
            is_worse = LEVELS.index(case.severity) < LEVELS.index(severity)
            words = f"is {'worse' if is_worse else 'less severe'}: {case.severity}, it was {severity}; {case.where}"
            yield Change(words, is_worse, case.incident_id)
        elif verdict != case.verdict and case.is_open:
            yield Change(f"looks different: {case.chip}, {case.where}", True, case.incident_id)
    known: Mapping[str, str] = before["findings"]
    for finding in findings:
        if key_of(finding) not in known:
            yield Change(sentence(finding), finding["severity"] in URGENT)
    for key in sorted(known.keys() - {key_of(finding) for finding in findings}):
        kind, topic, name = json.loads(key)
        about, what = " ".join(word for word in (topic, name) if word), kind.replace("_", " ").lower()
        yield Change(f"{visible(about)}: {what} is over" if about else f"the finding {what} is over", False)
