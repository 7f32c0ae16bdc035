"""quality.*, quarantine, progress -> the state of the pipeline: tables, their runs and gates, feeds, gaps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import partial
from typing import Any

from expectations.contract import contract_of
from expectations.quality import EXPECTATION_RESULTS, GAPS, STAGE_RUNS
from expectations.rules import counted
from expectations.verdict import OF_THE_ROW, Outcome
from pipelines import moments
from pipelines.catalog import CATALOG, stages_of_type
from pipelines.run.freshness import Freshness, freshness
from pipelines.run.newest import Newest, Silence, lasting, moment, of_feeds, silence, source_of
from pipelines.settings import Settings
from pipelines.site.tables import guarded
from pipelines.stage import Land, Stage
from pipelines.steps import unreadable
from pipelines.steps.collapse import CONFLICT
from pipelines.steps.held import contract_of_held
from pipelines.text import files_of
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

MOST_RUNS_SHOWN = 60
Answer = Callable[..., "list[dict[str, Any]] | None"]
NOT_A_RULE = {CONFLICT: "The table holds a row of the same grain with other content, which stands."}


@dataclass(frozen=True)
class Run:
    """A row of quality.stage_runs: what one run did to a table."""

    run_id: str
    started_at: datetime
    seconds: float
    status: str
    read: int
    accepted: int
    quarantined: int
    duplicates: int
    skipped: int
    message: str | None = None
    written: int | None = None
    held: int = 0
    engine: str | None = None
    engine_reason: str | None = None


@dataclass(frozen=True)
class Violation:
    """A rule that rows in quarantine, or held rows, break; a row can break several. ``meaning`` says how."""

    code: str
    rows: int
    meaning: str


@dataclass(frozen=True)
class Quarantine:
    """The rows that are now in a table's quarantine, or held, by rule; the rule with the most rows is first.

    ``unreadable`` says where rows are that could not be read, and why, and ``forms`` what could be.
    """

    rows: int
    violations: tuple[Violation, ...]
    unreadable: tuple[str, ...] = ()
    forms: str = ""


@dataclass(frozen=True)
class Table:
    """What the page says of one table: runs in order of time, results of the last gate, codes and meanings of rules."""

    name: str
    description: str
    runs: tuple[Run, ...]
    gate: tuple[Outcome, ...]
    quarantine: Quarantine | None
    freshness: Freshness
    held: Quarantine | None = None
    rules: tuple[tuple[str, str], ...] = ()
    is_readable: bool = True
    are_runs_known: bool = True

    @property
    def blocked_since(self) -> datetime | None:
        """Since when a broken gate blocks a batch; None if none does."""
        since = self.freshness.blocked_since
        return datetime.fromisoformat(since).astimezone(UTC) if since else None

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """The expectations of the last gate that failed, each once: of what a part of the batch failed, only that.

        Rows that break a rule also break that of the whole row.
        """
        every = [outcome for outcome in self.gate if not outcome.success]
        failed = [outcome for outcome in every if outcome.code != OF_THE_ROW] or every
        of_parts = {outcome.code for outcome in failed if outcome.scope is not None}
        return tuple(outcome for outcome in failed if outcome.scope is not None or outcome.code not in of_parts)

    @property
    def last_gate(self) -> str:
        """What the last gate found, in words."""
        codes = {outcome.code for outcome in self.failed}
        if not codes:
            return "no rule was broken more often than the contract tolerates"
        accepted = ", and the rows were accepted once" if self.runs and self.runs[-1].status == "passed" else ""
        return (
            f"{counted(len(codes), 'expectation')} of {len({outcome.code for outcome in self.gate}):,} failed{accepted}"
        )

    @property
    def is_green(self) -> bool:
        """True if nothing of it needs a look: it is current, and no row waits or is in quarantine."""
        waits = (self.quarantine and self.quarantine.rows) or (self.held and self.held.rows)
        return self.state in ("current", "new") and not waits

    @property
    def rank(self) -> int:
        """How early the page tells of it."""
        return ("unreadable", "blocked", "failed", "behind", "unknown", "current", "new").index(self.state)

    @property
    def state(self) -> str:
        """One word for the table: unreadable, blocked, failed, behind, unknown (as its runs are), current or new."""
        if not self.is_readable:
            return "unreadable"
        if self.freshness.blocked_since:
            return "blocked"
        if self.runs and self.runs[-1].status != "passed":
            return "failed"
        if self.freshness.behind:
            return "behind"
        if not self.are_runs_known:
            return "unknown"
        return "current" if self.runs else "new"


@dataclass(frozen=True)
class LogGap:
    """A row of quality.gaps: offsets of a topic that were gone before they were read."""

    table: str
    topic: str
    topic_id: str
    partition: int
    from_offset: int
    to_offset: int
    found_at: datetime

    @property
    def offsets(self) -> int:
        """How many offsets the gap has."""
        return self.to_offset - self.from_offset


@dataclass(frozen=True)
class Feed:
    """How old a feed's newest record is, whether the feed is set up, and whether it fell silent."""

    newest: Newest
    silence: Silence | None = None

    @property
    def name(self) -> str:
        """The feed's landing directory."""
        return self.newest.feed

    @property
    def state(self) -> str:
        """One word for the feed: silent, current or new."""
        return "silent" if self.silence else "new" if self.newest.at is None else "current"

    @property
    def in_words(self) -> str:
        """One sentence on the feed."""
        silent = ""
        if self.silence:
            silent = f"; it fell silent: {lasting(self.silence.limit)} are more than it should take"
        return f"{self.name}: {self.newest.in_words}{silent}."


@dataclass(frozen=True)
class Pipeline:
    """The state of the pipeline; ``unreadable`` as in ``Content``."""

    cluster: str
    warehouse: str
    made_at: datetime
    tables: tuple[Table, ...]
    gaps: tuple[LogGap, ...] = ()
    uncommitted: tuple[str, ...] = ()
    feeds: tuple[Feed, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)

    @property
    def unused(self) -> frozenset[str]:
        """The tables that no run ever filled, because the feed that they are made from was never set up."""
        feeds = {feed.name for feed in self.feeds if not feed.newest.used}
        stages = {stage.table: stage for stage in CATALOG}
        landing = {stage.feed: set[str]() for stage in CATALOG}
        for stage in stages_of_type(Land):
            landing[stage.feed].add(stage.directory)
        unused = set()
        for table in self.tables:
            source, made_by = source_of(table.name), stages.get(table.name)
            if source and made_by and table.state in ("new", "behind") and not table.runs:
                unused |= {table.name} if source.directory in feeds or landing[made_by.feed] <= feeds else set()
        return frozenset(unused)


@dataclass(frozen=True)
class Bar:
    """One run in the chart: parts stacked from the bottom, each (class, y, height) of 100, and a title in words."""

    x: float
    width: float
    parts: tuple[tuple[str, float, float], ...]
    title: str


def feeds_of(warehouse: Warehouse, now: datetime | None = None) -> tuple[Feed, ...]:
    """Return the state of each feed as of ``now``; what only Spark opens needs a session."""
    return tuple(Feed(newest, silence(warehouse, newest)) for newest in of_feeds(warehouse, now))


def gather(
    warehouse: Warehouse,
    behind: Sequence[Freshness] | None = None,
    feeds: Sequence[Feed] | None = None,
    now: datetime | None = None,
) -> Pipeline:
    """Collect the state of the pipeline; the number of queries does not depend on the number of runs and rules."""
    damaged: dict[str, str] = {}
    answer = partial(_answer, warehouse, damaged)
    names = [stage.table for stage in CATALOG]
    warehouse.open_ahead(names)
    for name in names:
        if warehouse.opens_tables and warehouse.exists(name) and not warehouse.was_never_written(name):
            guarded(damaged, name, partial(warehouse.opened_table, name), None)
    runs = _runs(answer)
    gates = _gates(answer)
    fresh = {entry.table: entry for entry in (freshness(warehouse) if behind is None else behind)}
    tables = tuple(
        Table(
            name=stage.table,
            description=contract_of(stage.table).description,
            runs=tuple(runs[stage.table]),
            gate=tuple(gates[stage.table]),
            quarantine=_broken(warehouse, answer, stage, stage.quarantine),
            held=_broken(warehouse, answer, stage, held.table if (held := contract_of_held(stage)) else None),
            freshness=fresh[stage.table],
            rules=tuple((rule.code, rule.meaning) for rule in contract_of(stage.table).rules),
            is_readable=stage.table not in damaged,
            are_runs_known=STAGE_RUNS.table not in damaged,
        )
        for stage in CATALOG
    )
    gaps = _log_gaps(answer)
    feeds = feeds_of(warehouse, now) if feeds is None else feeds
    made_at = now or moments.now()
    if quarantines := [table for name, table in damaged.items() if name.startswith("quarantine.")]:
        damaged["quarantine"] = quarantines[0]
    return Pipeline(
        warehouse.cluster,
        warehouse.shown,
        made_at,
        tables,
        gaps,
        uncommitted(warehouse.settings),
        tuple(feeds),
        damaged,
    )


def uncommitted(settings: Settings) -> tuple[str, ...]:
    """Return the tables that also take records of aborted transactions: a setting that must not go unnoticed."""
    read = ((stage.table, settings.topics_of(stage.directory)) for stage in stages_of_type(Land))
    return tuple(table for table, topics in read if topics and topics.isolation_level == "read_uncommitted")


def bars(runs: tuple[Run, ...]) -> list[Bar]:
    """Return the chart of acceptance over time: for each run the shares of the rows read, in a box 100 high."""
    width = 100 / max(len(runs), 12)
    chart = []
    for number, run in enumerate(runs):
        shares = {
            "accepted": run.accepted,
            "other": run.duplicates + run.skipped,
            "quarantined": run.quarantined,
            "broken": run.held,
        }
        parts, top = [], 100.0
        if run.status != "passed" and not (run.held and run.accepted + run.quarantined):
            parts.append((run.status, 0.0, 100.0))
        elif run.read:
            for part, rows in shares.items():
                height = 100 * rows / run.read
                top -= height
                if rows:
                    parts.append((part, round(top, 2), round(max(height, 1.5), 2)))
        chart.append(Bar(round(number * width, 3), round(width * 0.8, 3), tuple(parts), _in_words(run)))
    return chart


def _in_words(run: Run) -> str:
    sentence = f"{moment(run.started_at)}: {run.status}, read {run.read:,}"
    if run.status != "passed" and not run.held:
        return sentence
    sentence = f"{sentence}, accepted {run.accepted:,}, quarantined {run.quarantined:,}, duplicates {run.duplicates:,}"
    sentence += f", held {run.held:,}" if run.held else ""
    return sentence if run.written is None else f"{sentence}, written {run.written:,}"


def _runs(answer: Answer) -> dict[str, list[Run]]:
    """Return each table's last runs, in order of time."""
    runs: dict[str, list[Run]] = defaultdict(list)
    last = f"""
        SELECT *
        FROM (SELECT *, row_number() OVER (PARTITION BY rows.table ORDER BY started_at DESC) AS number FROM rows)
        WHERE number <= {MOST_RUNS_SHOWN}
        ORDER BY started_at
    """
    names = [column.name for column in fields(Run)]
    for row in answer(STAGE_RUNS.table, last, or_null=True) or ():
        # A warehouse of an earlier version lacks columns until the next run reports.
        known: dict[str, Any] = {name: row.get(name) for name in names}
        runs[row["table"]].append(Run(**known | {"held": known["held"] or 0}))
    return runs


def _gates(answer: Answer) -> dict[str, list[Outcome]]:
    """Return the results of each table's last gate, with the meanings of today's contract."""
    gates: dict[str, list[Outcome]] = defaultdict(list)
    last = """
        SELECT *
        FROM (SELECT *, max(examined_at) OVER (PARTITION BY rows.table) AS last_examined_at FROM rows)
        WHERE examined_at = last_examined_at
        ORDER BY expectation
    """
    for row in answer(EXPECTATION_RESULTS.table, last, or_null=True) or ():
        rules = {rule.code: rule for rule in contract_of(row["table"]).rules}
        rule = rules.get(row["expectation"])
        gates[row["table"]].append(
            Outcome(
                code=row["expectation"],
                failing=row["failing"],
                candidates=row["candidates"],
                tolerance=row["tolerance"],
                min_failures=row["min_failures"],
                success=row["success"],
                meaning=rule.meaning if rule else "",
                hint=rule.hint if rule else "",
                coordinates=tuple(row["coordinates"] or ()),
                scope=row.get("scope"),
                refuses=rule.refuses if rule else True,
                failure=rule.failure if rule else "",
                noun=rule.noun if rule else "row",
                places=tuple(row.get("places") or ()),
            )
        )
    for gate in gates.values():
        gate.sort(key=lambda outcome: (outcome.code, outcome.scope or ""))
    return gates


def _log_gaps(answer: Answer) -> tuple[LogGap, ...]:
    """Return the offsets of topics that were gone before they were read, the last found first."""
    ordered = "SELECT * FROM rows ORDER BY found_at DESC, topic, partition, from_offset"
    names = [column.name for column in fields(LogGap)]
    gaps = answer(GAPS.table, ordered) or ()
    return tuple(LogGap(**{name: row[name] for name in names}) for row in gaps)


def _broken(warehouse: Warehouse, answer: Answer, stage: Stage, table: str | None) -> Quarantine | None:
    """Return how many rows a table of quarantined or held rows has, by rule; None if it does not exist."""
    if not table:
        return None
    counted = "SELECT violations, count(*) AS row_count FROM rows GROUP BY violations"
    groups = answer(table, counted)
    if groups is None:
        return None
    counts: Counter[str] = Counter()
    for row in groups:
        counts.update(dict.fromkeys(row["violations"], row["row_count"]))
    rules = {rule.code: rule for rule in contract_of(stage.table).rules}
    worst = sorted(counts.items(), key=lambda counted: (-counted[1], counted[0]))
    violations = tuple(
        Violation(code, count, rules[code].phrase(count) if code in rules else NOT_A_RULE.get(code, ""))
        for code, count in worst
    )
    readable = contract_of(stage.table).readable
    known = unreadable.kept(warehouse, stage, table) if readable and counts[readable.code] else None
    reasons = (known.words, known.forms) if known else ((), "")
    return Quarantine(sum(row["row_count"] for row in groups), violations, *reasons)


def _answer(
    warehouse: Warehouse, damaged: dict[str, str], table: str, text: str, or_null: bool = False
) -> list[dict[str, Any]] | None:
    """Return what a query answers on the cluster's rows of a table; None if the table is not there, or is damaged.

    With ``or_null`` it also sees rows about several clusters at once.
    """
    if not warehouse.exists(table):
        return None
    equal = {"cluster": warehouse.cluster}
    return guarded(damaged, table, lambda: jvmless.query(warehouse, table, text, equal, or_null=or_null), None)


def unread_of(fresh: Freshness) -> str:
    """Return in words what a table has not read yet."""
    waiting = []
    if fresh.unread_files:
        waiting.append(files_of(fresh.unread_files, fresh.unread_bytes or 0))
    if fresh.unread_offsets:
        waiting.append(f"{counted(fresh.unread_offsets, 'offset')} of topics")
    if waiting:
        return " and ".join(waiting)
    if fresh.unread_versions:
        return f"{counted(fresh.unread_versions, 'version')} of {fresh.input}"
    return "nothing"
