"""A warehouse -> families of metrics; their labels are bounded, and none of them holds data of records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from importlib.metadata import version
from itertools import chain
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from expectations.owners import owner_of
from pipelines import moments
from pipelines.commands import odd_times
from pipelines.commands.findings import findings_of, logged_topics
from pipelines.commands.incidents.incident import Incident
from pipelines.commands.incidents.reading import INCIDENTS, Incidents
from pipelines.incidents.severity import LEVELS
from pipelines.site import quality
from pipelines.teams import Teams
from pipelines.text import utf8
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

MOST_SERIES = 100  # of a family whose labels come from data; the rest is in one series
OTHER = "other"
OUTCOMES = ("accepted", "quarantined", "duplicates", "skipped")
STAGE_RUNS, RECONCILIATION = "quality.stage_runs", "gold.reconciliation"

Values = Iterable[tuple[tuple[str, ...], float]]


def families(warehouse: Warehouse, now: datetime | None = None) -> list[Metric]:
    """Return all families; ``afterlog_collected`` is 0 for a part that could not be read.

    Numbers are those of the tables as of ``now``. A warehouse that only Spark opens cannot be read.
    """
    now = now or moments.now()
    parts: dict[str, Callable[[Warehouse, datetime], Iterator[Metric]]] = {
        "pipeline": _pipeline,
        "rows": lambda warehouse, now: _rows(warehouse, now, warehouse.cluster),
        "incidents": _incidents,
        "delivery": _delivery,
    }
    metrics = [_gauge("build_info", "1; the version is a label.", ("version",), [((version("afterlog"),), 1)])]
    collected = []
    for name, part in parts.items():
        try:
            metrics += list(part(warehouse, now))
            collected.append(((name,), 1.0))
        except Exception:  # a damaged table must not hide the other metrics; `afterlog doctor` names it
            collected.append(((name,), 0.0))
    metrics.append(_gauge("collected", "1 if this part of the metrics could be read.", ("part",), collected))
    return [of_cluster(family, warehouse.cluster) for family in metrics]


def of_several(warehouse: Warehouse) -> list[Metric]:
    """Return the families of each cluster, and the rows of stages that work on all at once, which name no cluster."""
    now = moments.now()
    by_name: dict[str, Metric] = {}
    of_all = _rows(warehouse, now, None) if warehouse.settings.sole_cluster is None else ()
    for family in chain(*(families(own, now) for own in warehouse.of_clusters()), of_all):
        if family.name in by_name:
            by_name[family.name].samples += family.samples
        else:
            by_name[family.name] = family
    return [*by_name.values()]


def of_cluster(family: Metric, cluster: str | None) -> Metric:
    """Return a family whose series name their cluster: files of several clusters can be on one node exporter."""
    if cluster is None:
        return family
    family.samples = [sample._replace(labels={"cluster": utf8(cluster), **sample.labels}) for sample in family.samples]
    return family


def bounded(counts: Counter[tuple[str, ...]]) -> Values:
    """Return the largest series, and one with the sum of the rest."""
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    shown: Counter[tuple[str, ...]] = Counter()
    for index, (labels, count) in enumerate(ranked):
        shown[tuple(utf8(label) if index < MOST_SERIES else OTHER for label in labels)] += count
    yield from ((labels, float(count)) for labels, count in shown.items())


def _pipeline(warehouse: Warehouse, now: datetime) -> Iterator[Metric]:
    state = quality.gather(warehouse, now=now)
    newest = [((feed.name,), feed.newest.at.timestamp()) for feed in state.feeds if feed.newest.at is not None]
    yield _gauge("newest_record_timestamp_seconds", "Time of the newest record of a feed.", ("feed",), newest)
    silent = [((feed.name,), float(feed.silence is not None)) for feed in state.feeds if feed.newest.used]
    yield _gauge("feed_silent", "1 if nothing came for longer than usual.", ("feed",), silent)
    held = [((table.name,), float(len(table.freshness.held_scopes))) for table in state.tables]
    yield _gauge("held_scopes", "Scopes, such as topics, whose rows wait as they broke the contract.", ("table",), held)
    behind = [((table.name,), float(table.state == "behind")) for table in state.tables]
    yield _gauge("table_behind", "1 if a table has unread input.", ("table",), behind)
    last = [(table.name, table.runs[-1]) for table in state.tables if table.runs]
    yield _gauge(
        "stage_seconds", "Time that the last run of a stage took.", ("table",), [((n,), r.seconds) for n, r in last]
    )
    ended = [((name,), run.started_at.timestamp() + run.seconds) for name, run in last]
    yield _gauge("stage_ended_timestamp_seconds", "When the last run of a stage ended.", ("table",), ended)
    failed = [((name,), float(run.status != "passed")) for name, run in last]
    yield _gauge("stage_failed", "1 if the last run of a stage failed or broke its gate.", ("table",), failed)
    rules: Counter[tuple[str, ...]] = Counter(
        {
            (table.name, violation.code): violation.rows
            for table in state.tables
            if table.quarantine
            for violation in table.quarantine.violations
        }
    )
    yield _gauge(
        "quarantined_rows", "Rows in quarantine by rule; a row can break several.", ("table", "rule"), bounded(rules)
    )
    gaps: Counter[tuple[str, ...]] = Counter()
    for gap in state.gaps:
        gaps[gap.topic,] += gap.offsets
    yield _gauge("gap_offsets", "Offsets of topics that were gone before they were read.", ("topic",), bounded(gaps))


def _rows(warehouse: Warehouse, now: datetime, cluster: str | None) -> Iterator[Metric]:
    rows: list[tuple[tuple[str, str], float]] = []
    runs: list[tuple[tuple[str, str], float]] = []
    if warehouse.exists(STAGE_RUNS):
        sums = ", ".join(f"sum({name}) AS {name}" for name in OUTCOMES)
        groups = '"table", status, "cluster"'
        text = f'SELECT "table" AS name, status, "cluster", count(*) AS runs, {sums} FROM rows GROUP BY {groups}'
        totals: Counter[tuple[str, str]] = Counter()
        for row in jvmless.query(warehouse, STAGE_RUNS, text, {"cluster": warehouse.cluster}, or_null=True):
            if row["cluster"] != cluster:
                continue
            runs.append(((row["name"], row["status"]), float(row["runs"])))
            for outcome in OUTCOMES:
                totals[row["name"], outcome] += row[outcome] or 0
        rows = [(labels, float(count)) for labels, count in sorted(totals.items())]
    yield _counter("rows", "Rows that stages took, by what became of them.", ("table", "outcome"), rows)
    yield _counter("stage_runs", "Runs of stages that did something.", ("table", "status"), sorted(runs))


def _incidents(warehouse: Warehouse, now: datetime) -> Iterator[Metric]:
    opened: Counter[str] = Counter()
    muted = 0
    letters: Counter[tuple[str, ...]] = Counter()
    open_ones: list[Incident] = []
    teams, of_teams = Teams.of_settings(warehouse.settings), Counter[tuple[str, ...]]()
    if warehouse.exists(INCIDENTS):
        incidents = Incidents(warehouse, now)
        open_ones = [incident for incident in incidents.known if incident.state.is_open]
        for incident in open_ones:
            opened[incident.row["severity"]] += incident.state.is_loud
            muted += not incident.state.is_loud
        topic_columns = ", original_topic, dlq_topic" if teams.known else ""
        for _, row in odd_times.letters(warehouse, f"consumer_group, owner, disposition{topic_columns}", now):
            names = (row["consumer_group"], owner_of(row), row["disposition"])
            letters[tuple(name or "" for name in names)] += row["record_count"]
            of_teams.update(dict.fromkeys(((name,) for name in teams.of_row(row)), row["record_count"]))
    severities = [((level,), float(opened[level])) for level in LEVELS]
    yield _gauge("open_incidents", "Open incidents that nobody muted.", ("severity",), severities)
    yield _gauge("muted_incidents", "Open incidents that are muted.", (), [((), float(muted))])
    names = ("consumer_group", "owner", "disposition")
    yield _gauge("dead_letters", "Dead letters that are known, of all time.", names, bounded(letters))
    feeds = [(feed.newest, feed.silence) for feed in quality.feeds_of(warehouse, now) if feed.newest.used]
    findings = findings_of(warehouse, feeds, now, open_ones)
    kinds = Counter((finding["kind"], finding["severity"]) for finding in findings)
    values = [(labels, float(count)) for labels, count in sorted(kinds.items())]
    yield _gauge("findings", "Findings that `afterlog top` tells.", ("kind", "severity"), values)
    if teams.known:
        yield from _of_teams(teams.names, open_ones, findings, of_teams)


def _of_teams(
    teams: Iterable[str],
    opened: Iterable[Incident],
    findings: Iterable[Mapping[str, Any]],
    letters: Counter[tuple[str, ...]],
) -> Iterator[Metric]:
    """Yield what is each team's; what is of several teams counts for each, so that sums over teams tell nothing."""
    words = "of each team; those of several count for each."
    loud = Counter(
        (name, incident.row["severity"]) for incident in opened if incident.state.is_loud for name in incident.teams
    )
    values = [((name, level), float(loud[name, level])) for name in teams for level in LEVELS]
    yield _gauge("team_open_incidents", f"Open incidents that nobody muted, {words}", ("team", "severity"), values)
    own = Counter((name, finding["severity"]) for finding in findings for name in finding["teams"])
    values = [((name, level), float(own[name, level])) for name in teams for level in LEVELS]
    yield _gauge("team_findings", f"Findings {words}", ("team", "severity"), values)
    counts = [((name,), float(letters[name,])) for name in teams]
    yield _gauge("team_dead_letters", f"Dead letters, of all time, {words}", ("team",), counts)


def _delivery(warehouse: Warehouse, now: datetime) -> Iterator[Metric]:
    lost = None
    if warehouse.exists(RECONCILIATION):
        (row,) = jvmless.query(
            warehouse, RECONCILIATION, "SELECT sum(lost_count) AS lost FROM rows", {"cluster": warehouse.cluster}
        )
        lost = row["lost"] if row["lost"] or logged_topics(warehouse) else None
    known = [] if lost is None else [((), float(lost))]
    yield _gauge("lost_messages", "Messages that were acknowledged and are not in the log.", (), known)


def _gauge(name: str, words: str, labels: tuple[str, ...], values: Values) -> Metric:
    return _filled(GaugeMetricFamily(f"afterlog_{name}", words, labels=labels), values)


def _counter(name: str, words: str, labels: tuple[str, ...], values: Values) -> Metric:
    return _filled(CounterMetricFamily(f"afterlog_{name}", words, labels=labels), values)


def _filled(family: Any, values: Values) -> Metric:
    for labels, value in values:
        family.add_metric([utf8(label) for label in labels], value)
    filled: Metric = family
    return filled
