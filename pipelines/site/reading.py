"""Tables -> Content: each table is read once, and no column with a payload, key or header value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from pipelines import moments
from pipelines.commands import windows
from pipelines.commands.findings import FINDINGS, findings_of
from pipelines.commands.incidents.front import front, newest_at
from pipelines.commands.incidents.incident import Incident
from pipelines.commands.incidents.reading import INCIDENTS, SUMMARY, Incidents
from pipelines.commands.incidents.story import Replays
from pipelines.incidents import ids
from pipelines.run.freshness import Freshness
from pipelines.run.newest import Newest
from pipelines.site import examples, fronts, news, quality, subjects
from pipelines.site.applications import applications_of
from pipelines.site.cases import cases_of
from pipelines.site.content import Case, Content, Light, Row, Timeline
from pipelines.site.delivery import delivery_of
from pipelines.site.light import light_of, markers_of, timeline_of
from pipelines.site.past import parted
from pipelines.site.quality import Feed, Pipeline
from pipelines.site.replays import replayable_of, replays_of
from pipelines.site.subjects import DeadLetters, dead_letters
from pipelines.site.tables import Tables
from pipelines.warehouse.tables import Warehouse


def gather(
    warehouse: Warehouse,
    behind: Sequence[Freshness] | None = None,
    feeds: Sequence[Feed] | None = None,
    now: datetime | None = None,
    replays: Callable[[str], Replays] | None = None,
) -> Content:
    """Collect what the site says, as of ``now``; ``replays`` tells of a plan of an incident, always as of now."""
    now = now or moments.now()
    feeds = quality.feeds_of(warehouse, now) if feeds is None else feeds
    pipeline = quality.gather(warehouse, behind, feeds, now)
    tables = Tables(warehouse)
    tables.unreadable |= pipeline.unreadable
    nothing: list[dict[str, Any]] = []
    known = tables.guarded(INCIDENTS, lambda: Incidents(warehouse, now), None)
    pairs = [(feed.newest, feed.silence) for feed in feeds if feed.newest.used]
    opened = [incident for incident in known.known if incident.state.is_open] if known else []
    findings = tables.guarded(
        FINDINGS, lambda: findings_of(warehouse, pairs, now, opened, to_the_second=True), nothing, must_exist=False
    )
    wanted, past = parted(known.known if known else (), warehouse.settings.retention, now)
    cases = cases_of(warehouse, known, wanted, tables, replays) if known else ()
    applications = applications_of(tables, cases)
    delivery = delivery_of(warehouse, tables)
    letters = tables.guarded(SUMMARY, lambda: dead_letters(warehouse, now), DeadLetters())
    timeline = _timeline(warehouse, tables, letters, pipeline, now)
    groups, topics = subjects.gather(letters, cases, findings, delivery, applications)
    refused = tables.guarded(
        "quarantine", lambda: examples.quarantined(warehouse, pipeline), examples.Quarantined(0, ()), must_exist=False
    )
    used = [feed.newest for feed in feeds if feed.newest.used]
    light = partial(_light, tables, used, now)
    content = Content(
        warehouse.cluster,
        warehouse.shown,
        now,
        light(opened, cases, findings, pipeline),
        timeline,
        cases,
        tuple(findings),
        delivery,
        applications,
        replayable_of(cases),
        refused,
        groups,
        topics,
        pipeline,
        news.of_report(warehouse.settings.reports(), cases, findings, tables.unreadable),
        replays_of(tables),
        {name: ids.survivor(name, known.merged) for name in sorted(known.merged)} if known else {},
        past,
        unreadable=tables.unreadable,
    )
    without_tables = replace(pipeline, tables=())  # their state is of all teams
    of_known = known.known if known else ()
    light_of_team = partial(light, pipeline=without_tables)
    return replace(content, fronts=fronts.of_teams(warehouse, content, of_known, light_of_team, replayable_of))


def _timeline(
    warehouse: Warehouse, tables: Tables, letters: DeadLetters, pipeline: Pipeline, now: datetime
) -> Timeline:
    markers = markers_of(tables, pipeline)
    nobody: Counter[str | None] = Counter()

    def between(after: datetime, until: datetime) -> Counter[str | None]:
        return tables.guarded(SUMMARY, lambda: windows.between(warehouse, after, until), nobody)

    timeline = timeline_of(letters, between, markers, now)
    if SUMMARY in tables.unreadable:
        return replace(timeline, series=(), last_hour=None, hour_before=None)
    return timeline


def _light(
    tables: Tables,
    used: Sequence[Newest],
    now: datetime,
    opened: Sequence[Incident],
    cases: Sequence[Case],
    findings: Sequence[Row],
    pipeline: Pipeline,
) -> Light:
    def words(is_calm: bool) -> str:
        known_incidents = None if INCIDENTS in tables.unreadable else opened
        known_findings = None if FINDINGS in tables.unreadable else findings
        return front(known_incidents, known_findings, used, now, is_calm)

    judged = light_of(words, cases, findings, pipeline, {*tables.unreadable.values()})
    return replace(judged, newest_at=newest_at(used))
