"""Feeds, tables, findings, open incidents -> Light; dead letters by hour, and what happened beside them -> Timeline."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime

from expectations.rules import counted
from expectations.text import visible
from pipelines.commands.findings import urgent
from pipelines.commands.incidents.reading import DAY, HOUR, WEEK
from pipelines.commands.incidents.story import DEPLOYED, REVISIONS
from pipelines.run.newest import moment
from pipelines.site.content import SHOWN_HOURS, Case, Light, Marker, Row, Series, Timeline
from pipelines.site.findings import sentence
from pipelines.site.quality import Pipeline
from pipelines.site.subjects import DeadLetters
from pipelines.site.tables import Tables
from pipelines.text import first_names

MOST_TOLD_APART = 6  # that the timeline tells apart


def light_of(
    front: Callable[[bool], str],
    cases: Sequence[Case],
    findings: Sequence[Row],
    pipeline: Pipeline,
    unreadable: Collection[str],
) -> Light:
    """Return red if data is stale, held or lost, or an incident is critical; never green if nothing is known.

    A feed whose silence calls nobody is amber.
    """
    red = [
        f"{table} cannot be read, so that this page may lack what it tells: afterlog doctor"
        for table in sorted(unreadable)
    ]
    amber: list[str] = []
    for feed in pipeline.feeds:
        if feed.silence:
            messages = red if feed.silence.is_urgent else amber
            messages.append(f"Nothing landed in {feed.name} for longer than usual: {feed.newest.in_words}.")
    for table in pipeline.tables:
        if table.state == "blocked":
            scopes = table.freshness.held_scopes
            of_scopes = f" of {first_names([*map(visible, scopes)], 3)}" if scopes else ""
            red.append(
                f"{table.name} holds rows{of_scopes} since {moment(table.blocked_since)}."
                if table.blocked_since
                else ""
            )
        elif table.state == "failed":
            red.append(f"The last run of {table.name} failed.")
    red += [sentence(finding) for finding in findings if finding["severity"] == "critical"]
    loud = [case for case in cases if case.is_loud]
    if critical := sum(case.severity == "critical" for case in loud):
        red.append(f"{counted(critical, 'critical incident')} {'is' if critical == 1 else 'are'} open.")
    if others := sum(case.severity != "critical" for case in loud):
        amber.append(
            f"{counted(others, 'other incident' if critical else 'incident')} {'is' if others == 1 else 'are'} open."
        )
    if cannot_wait := len(urgent(findings)):
        amber.append(f"{counted(cannot_wait, 'finding')} {'is' if cannot_wait == 1 else 'are'} urgent.")
    if late := sum(table.state == "behind" and table.name not in pipeline.unused for table in pipeline.tables):
        amber.append(f"{counted(late, 'table')} {'has' if late == 1 else 'have'} unread input: afterlog run")
    red = [reason for reason in red if reason]
    if red:
        return Light("red", front(False), (*red, *amber))
    known = any(feed.name == "dlq" and feed.newest.at is not None for feed in pipeline.feeds)
    if not known and not loud:
        how = [feed.newest.in_words for feed in pipeline.feeds if feed.name == "dlq"]
        return Light(
            "grey", "Nothing is known yet: no dead letter has landed.", (*(f"dlq: {words}." for words in how), *amber)
        )
    return Light("amber" if amber else "green", front(True), tuple(amber))


def timeline_of(
    letters: DeadLetters,
    between: Callable[[datetime, datetime], Counter[str | None]],
    markers: Iterable[Marker],
    now: datetime,
) -> Timeline:
    """Count the dead letters of the last 7 days, or of the 7 days until the newest if that is older."""
    this_hour = _hour(now)
    newest, first = letters.last_hour, letters.first_hour
    is_past = newest is not None and newest <= this_hour - WEEK
    end = (newest if newest is not None and is_past else this_hour) + HOUR
    begin = end - SHOWN_HOURS * HOUR
    until = letters.last_at if is_past and letters.last_at is not None else now
    week, day, hour = (between(until - span, until) for span in (WEEK, DAY, HOUR))
    is_known = first is not None and first <= until - WEEK - HOUR
    before = between(until - WEEK - HOUR, until - WEEK).total() if is_known else None
    counts: dict[str | None, Counter[int]] = defaultdict(Counter)
    for row in letters.hours:
        if begin <= row["hour"] < end:
            counts[row["name"]][(row["hour"] - begin) // HOUR] += row["record_count"]
    ranked = sorted(counts, key=lambda name: (-counts[name].total(), name or ""))

    def series(owner: str | None, names: Sequence[str | None], is_rest: bool = False) -> Series:
        summed: Counter[int] = sum((counts[name] for name in names), Counter())
        windows = (sum(window[name] for name in names) for window in (week, day, hour))
        return Series(owner, is_rest, _spread(summed), *windows)

    shown = [series(name, [name]) for name in ranked[:MOST_TOLD_APART]]
    if rest := ranked[MOST_TOLD_APART:]:
        shown.append(series(f"{len(rest):,} other owners" if len(rest) > 1 else rest[0], rest, len(rest) > 1))
    within = tuple(marker for marker in markers if begin <= marker.at < end)
    return Timeline(begin, end, is_past, tuple(shown), within, until, hour.total(), before)


def _hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def _spread(counts: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(counts.get(hour, 0) for hour in range(SHOWN_HOURS))


def markers_of(tables: Tables, pipeline: Pipeline) -> list[Marker]:
    """Return what happened beside the dead letters, in order of time."""
    markers = [
        Marker(row["accepted_at"], "revision", f"revision {row['revision']}", row["group_id"])
        for row in tables[REVISIONS]
        if row["accepted_at"] is not None
    ]
    markers += [
        Marker(
            row["changed_at"], "deployment", f"{visible(row['what'] or row['commit'])} was deployed", row["application"]
        )
        for row in tables[DEPLOYED]
    ]
    markers += [
        Marker(run.started_at, "gate", f"The gate of {table.name} broke")
        for table in pipeline.tables
        for run in table.runs
        if run.status == "broken"
    ]
    markers += [
        Marker(
            gap.found_at, "gap", f"{counted(gap.offsets, 'offset')} of {visible(gap.topic)} were gone before reading"
        )
        for gap in pipeline.gaps
    ]
    return sorted(markers, key=lambda marker: (marker.at, marker.kind, marker.application or "", marker.words))
