"""Run the stages once on new input, in the order data flows: land, transform, gate, split, collapse, summarise."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Any

from expectations.contract import Contract, contract_of
from expectations.quality import QUALITY
from expectations.rules import counted
from expectations.text import visible
from expectations.verdict import MOST_NAMED, WHOLE, Outcome, Verdict, sentence_of
from pipelines import moments
from pipelines.catalog import CATALOG
from pipelines.engines.choose import Choice
from pipelines.errors import AfterlogError, ClustersLeft, EnvironmentLacking, UsageError
from pipelines.settings import Settings
from pipelines.stage import Ask, Land, Split, Stage, Summarise
from pipelines.steps import held, migrate, scopes
from pipelines.steps.few_split import split_of
from pipelines.steps.held import NOTHING_ACCEPTED, Acceptance
from pipelines.steps.land import Landed, land, unread, waiting
from pipelines.steps.modules import ask_module
from pipelines.steps.scopes import History
from pipelines.steps.summarise import refreshed
from pipelines.steps.unreadable import Unreadable
from pipelines.steps.watch import NOBODY, Watch
from pipelines.text import first_names
from pipelines.warehouse import actions, change_feed, progress, quality
from pipelines.warehouse.progress import Batch, Held, Progress, Reading
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse, quarantine_contract

log = logging.getLogger("afterlog")

Reporter = Callable[[StageRun], None]
LETTERS = "bcdfghjkmnpqrstvwxz"


@dataclass
class _Left:
    """What a run left unread: the first error of each cluster, and the errors of clusters that do not answer.

    Those of ``silent`` clusters are not noted.
    """

    silent: frozenset[str]
    errors: dict[str, AfterlogError] = field(default_factory=dict)
    away: dict[str, AfterlogError] = field(default_factory=dict)


class Stopped(Exception):
    """A run was asked to stop and did; the next run continues from there."""


def new_run_id() -> str:
    """Return an id that sorts by time and is unique.

    It ends with letters, as Great Expectations tries to parse a run's name as a time, with digits there as its zone.
    """
    return f"{moments.now():%Y%m%dT%H%M%S.%fZ}-{''.join(secrets.choice(LETTERS) for _ in range(6))}"


def idle(warehouse: Warehouse, stages: Sequence[Stage], accepted: Acceptance = NOTHING_ACCEPTED) -> bool:
    """Tell, without a session, whether a run would have nothing to do; False if only a session can tell.

    Held rows are not work as long as the gate would find the same.

    Raises AfterlogError: only topics can have new input, and the cluster cannot be asked. ClustersLeft: this is so of
    some of several clusters, and the others have nothing new.
    """
    with warehouse.store.pinned():
        return _is_idle(warehouse, stages, accepted)


def _is_idle(warehouse: Warehouse, stages: Sequence[Stage], accepted: Acceptance) -> bool:
    if (
        not warehouse.opens_tables
        or quality.waiting(warehouse)
        or actions.waiting(warehouse)
        or blocked_upstream(warehouse, stages)
    ):
        return False
    if any(warehouse.last_version(contract.table) is None for contract in contracts()):
        return False
    migrate.lags(warehouse)  # refuses what a later version has changed
    owns = warehouse.of_clusters()
    landing: list[tuple[Land, Progress | None]] = []
    asking: list[Ask] = []
    for stage in stages:
        known = progress.load(warehouse, stage.table)
        if known and isinstance(stage, Split) and held.again(known, warehouse.settings, stage, accepted):
            return False
        if (
            known
            and any(known.within_a_batch(own.cluster, reads_topics(own.settings, stage)) for own in owns)
            and not held.rests(known, warehouse.settings, stage, accepted)
        ):
            return False
        if isinstance(stage, Land):
            older = known is not None and known.is_ahead_of(warehouse.last_version(stage.table))
            if older or any(unread(own.settings, stage, known) for own in owns):
                return False
            landing.append((stage, known))
        elif any(
            warehouse.last_version(table) != ((known.reached(table) if known else None) or 0) for table in stage.inputs
        ):
            return False
        elif isinstance(stage, Ask):
            asking.append(stage)
        beside = _beside(stage, known) if known else {}
        if any((version or 0) > (warehouse.last_version(table) or 0) for table, (_, version) in beside.items()):
            return False
    # Ask Kafka last: it takes longer than everything else.
    left: dict[str, AfterlogError] = {}
    for own in owns:
        try:
            if any(waiting(own.settings, landing, noting=own).values()):
                return False
        except AfterlogError as error:
            if len(owns) == 1:
                raise
            left[own.cluster] = error
    if any(ask_module(stage).is_stale(warehouse) for stage in asking):
        return False
    if left:
        raise ClustersLeft(left)
    return True


def reads_topics(settings: Settings, stage: Stage) -> bool:
    """Tell whether a stage reads topics."""
    return isinstance(stage, Land) and settings.topics_of(stage.directory) is not None


def blocked_upstream(warehouse: Warehouse, stages: Sequence[Stage]) -> set[str]:
    """Return the blocked summarised tables upstream of the stages, without the tables of the stages themselves.

    A summarised table is blocked if its facts are broken, or if a table upstream of it is blocked. In a run of all
    stages those after it would wait; a run of one layer must do the same.
    """
    known = {stage.table: stage for stage in CATALOG}

    @cache
    def waits(table: str) -> bool:
        stage = known.get(table)
        if stage is None:
            return False
        reached = progress.load(warehouse, table) if isinstance(stage, Summarise) else None
        return (reached is not None and reached.blocked_since is not None) or any(map(waits, stage.inputs))

    own = {stage.table for stage in stages}
    upstream: set[str] = set()
    look_at = [table for stage in stages for table in stage.inputs]
    while look_at:
        table = look_at.pop()
        if table in known and table not in upstream | own:
            upstream.add(table)
            look_at += known[table].inputs
    return {table for table in upstream if isinstance(known[table], Summarise) and waits(table)}


def at_rest(warehouse: Warehouse, stages: Sequence[Stage], run_id: str) -> list[StageRun]:
    """Return the stage runs of a run with nothing to do: idle, or held if a stage still holds rows."""
    at = moments.now()
    done = []
    for stage in stages:
        if isinstance(stage, Split) and (known := held.of_table(warehouse, stage)):
            done.append(_still_held(stage, known, run_id))
        else:
            done.append(StageRun(run_id, stage.table, "idle", at, at))
    return done


def contracts() -> tuple[Contract, ...]:
    """Return the contracts of all tables that the first run creates: catalog, quarantine, held and quality."""
    tables = [contract_of(stage.table) for stage in CATALOG]
    quarantines = [quarantine_contract(contract_of(stage.table)) for stage in CATALOG if stage.quarantine]
    return (*tables, *quarantines, *filter(None, map(held.contract_of_held, CATALOG)), *QUALITY)


def run(
    warehouse: Warehouse,
    stages: Sequence[Stage],
    reporter: Reporter = lambda stage_run: None,
    *,
    stopping: Callable[[], bool] = lambda: False,
    note_failures: bool = True,
    known_away: Collection[str] = (),
    accepted: Acceptance = NOTHING_ACCEPTED,
    watch: Watch = NOBODY,
) -> list[StageRun]:
    """Run stages once; return what each did, in order. The caller holds the writer's lock.

    Rows that break a contract are held, unless they are ``accepted``, and later stages continue with the other rows. If
    the facts of a summary are broken, its batch stays uncommitted, and stages that depend on it wait. Any other error
    is raised after the counts so far are reported; an error that leaves topics unread is raised after all stages.
    Without ``note_failures`` such errors are not reported, nor are those of the clusters ``known_away``. When
    ``stopping`` returns true no further stage begins. Whoever makes it true may also cancel Spark's jobs. The next run
    then reports what was done.

    Raises Stopped: ``stopping`` returned true.
    """
    with warehouse.store.remembering():
        warehouse.ensure_all(contracts())
        if migrate.lags(warehouse):
            for contract, migration in migrate.needed(warehouse, contracts()):
                migrate.apply(warehouse, contract, migration)
        quality.report(warehouse)
        actions.report(warehouse)
        run_id = new_run_id()
        stage_runs: list[StageRun] = []
        held_up = blocked_upstream(warehouse, stages)
        left = _Left(frozenset(known_away if note_failures else warehouse.settings.names))
        try:
            for number, stage in enumerate(stages, 1):
                if stopping():
                    raise Stopped
                watch.begins(stage.table, number, len(stages))
                if held_up.intersection(stage.inputs):
                    held_up.add(stage.table)
                    at = moments.now()
                    done = [StageRun(run_id, stage.table, "waiting", at, at, message="An input's gate broke.")]
                else:
                    done = _run_stage(warehouse, stage, run_id, left, stopping, note_failures, accepted, watch)
                if done[-1].status == "broken" and isinstance(stage, Summarise):
                    held_up.add(stage.table)
                for stage_run in done:
                    stage_runs.append(stage_run)
                    reporter(stage_run)
        finally:
            if not stopping():
                quality.report(warehouse)
        if left.errors:
            raise next(iter(left.errors.values())) if warehouse.settings.sole_cluster else ClustersLeft(left.errors)
        return stage_runs


def _run_stage(
    warehouse: Warehouse,
    stage: Stage,
    run_id: str,
    left: _Left,
    stopping: Callable[[], bool],
    note_failures: bool,
    accepted: Acceptance,
    watch: Watch,
) -> list[StageRun]:
    """Run one stage on its pending batch, if any, then on later input; ``left`` takes errors that left topics unread.

    Raises Stopped: an error came while ``stopping`` was true.
    """
    started_at = moments.now()
    stage_runs: list[StageRun] = []
    try:
        if isinstance(stage, Land):
            for number, own in enumerate(warehouse.of_clusters()):
                if number and stopping():
                    break
                stage_runs += _land(own, stage, run_id, left, stopping, warehouse.settings.sole_cluster is None, watch)
        elif isinstance(stage, Split):
            stage_runs += _run_split(warehouse, stage, run_id, stopping, accepted)
        elif isinstance(stage, Summarise):
            stage_runs += _run_summary(warehouse, stage, run_id, stopping)
        elif isinstance(stage, Ask):
            asked = _ask(warehouse, stage, run_id)
            stage_runs += [asked] if asked else []
    except Exception as error:
        if stopping():
            raise Stopped from None
        failed = StageRun(run_id, stage.table, "failed", started_at, moments.now(), message=type(error).__name__)
        if note_failures:
            quality.note(warehouse, failed)
        raise
    at = moments.now()
    return stage_runs or [StageRun(run_id, stage.table, "idle", started_at, at)]


def _land(
    warehouse: Warehouse,
    stage: Land,
    run_id: str,
    left: _Left,
    stopping: Callable[[], bool],
    is_one_of_several: bool,
    watch: Watch,
) -> list[StageRun]:
    """Land what is new of a feed in one cluster.

    An error of one of several keeps no other one from landing, and one that does not answer is asked once in a run.
    """
    cluster = warehouse.cluster if is_one_of_several else None
    away = left.away.get(warehouse.cluster) if reads_topics(warehouse.settings, stage) else None
    if away is not None:
        warehouse = replace(warehouse, settings=warehouse.settings.files_only())
    try:
        landed = land(warehouse, stage, run_id, moments.now(), watch)
    except (EnvironmentLacking, UsageError) as error:
        if not is_one_of_several or stopping():
            raise
        landed = Landed(None, error)
    done = [replace(landed.stage_run, cluster=cluster)] if landed.stage_run else []
    reason = landed.left or away
    if reason is None or stopping():
        return done
    if landed.is_away and is_one_of_several:
        left.away[warehouse.cluster] = reason
    at = moments.now()
    failed = StageRun(run_id, stage.table, "failed", at, at, message=str(reason), cluster=cluster)
    if warehouse.cluster not in left.silent:
        quality.note(warehouse, failed)
    left.errors.setdefault(warehouse.cluster, reason)
    return [*done, failed]


def _run_summary(warehouse: Warehouse, stage: Summarise, run_id: str, stopping: Callable[[], bool]) -> list[StageRun]:
    """Compute the groups that new input touches, batch by batch, until no input is new or a fact breaks."""
    known = _known(warehouse, stage)
    stage_runs: list[StageRun] = []
    while batch := known.pending or _news(warehouse, known):
        if stopping():  # a cancelled job may have looked as if versions were gone
            raise Stopped
        known = replace(known, pending=batch)
        progress.save(warehouse, stage.table, known)
        known, stage_run = _summarise(warehouse, stage, batch, known, run_id)
        stage_runs += [stage_run] if stage_run else []
        if stage_run and stage_run.status == "broken":
            break
    return stage_runs


def _ask(warehouse: Warehouse, stage: Ask, run_id: str) -> StageRun | None:
    """Update a table with what settings and cluster say, and with new rows of its input."""
    started_at = moments.now()
    known = _known(warehouse, stage)
    (table,) = stage.inputs
    batch = known.pending or _news(warehouse, known)
    if batch:
        known = replace(known, pending=batch)
        progress.save(warehouse, stage.table, known)
    news = change_feed.changes(warehouse, table, batch[table]) if batch else None
    refreshed = ask_module(stage).refresh(warehouse, news.rows if news else None)
    if news:
        news.check()
    stage_run = None
    if refreshed:
        stage_run = StageRun(
            run_id,
            stage.table,
            "passed",
            started_at,
            moments.now(),
            read=refreshed,
            accepted=refreshed,
            refreshed=refreshed,
            input_from=batch[table].start if batch else None,
            input_to=batch[table].end if batch else None,
            message=f"{counted(refreshed, 'row')} refreshed",
        )
        quality.note(warehouse, stage_run)
    if batch or refreshed:
        _passed(warehouse, stage, known)
    return stage_run


def _run_split(
    warehouse: Warehouse, stage: Split, run_id: str, stopping: Callable[[], bool], accepted: Acceptance
) -> list[StageRun]:
    """Judge new rows, and held rows if the verdict can differ now; write the rows that are not held."""
    known = _known(warehouse, stage)
    if held.contract_of_held(stage):
        known = replace(known, home=known.home or warehouse.cluster)
    stage_runs: list[StageRun] = []
    while fixed := _next_batch(warehouse, stage, known, accepted):
        if stopping():  # a cancelled job may have looked as if versions were gone
            raise Stopped
        progress.save(warehouse, stage.table, fixed)
        known, stage_run = _split(warehouse, stage, fixed, run_id, accepted)
        stage_runs += [stage_run] if stage_run else []
    own = held.of_clusters(known, warehouse.settings.names)
    if (own.held or own.blocked_since) and not (stage_runs and stage_runs[-1].status == "broken"):
        stage_runs.append(_still_held(stage, own, run_id))
    return stage_runs


def _still_held(stage: Split, known: Progress, run_id: str) -> StageRun:
    at = moments.now()
    return StageRun(run_id, stage.table, "held", at, at, message=held.message(stage.table, known))


def _next_batch(warehouse: Warehouse, stage: Split, known: Progress, accepted: Acceptance) -> Progress | None:
    """Return the progress with the next batch fixed: versions of the input, and held scopes to judge again.

    These are scopes with new rows, scopes that were judged under another contract or other settings, and accepted
    scopes. A batch that is held as a whole grows by later input. Return None if there is nothing to judge. If rows
    would now be read in another way, a saved decision of the gate is dropped and the batch is judged again.
    """
    if known.decided is not None and known.decided.get("reading") == held.reading(warehouse.settings, stage):
        return known
    if known.decided is not None:
        before = known.before_the_decision()
        begun = {*(known.again or ()), *known.decided["held"], *held.again(before, warehouse.settings, stage, accepted)}
        return replace(before, again=tuple(sorted(begun)))
    is_blocked = known.blocked_since is not None
    if known.pending and known.again is not None and not is_blocked:
        return known
    batch = known.pending if known.pending and not is_blocked else _news(warehouse, known)
    if is_blocked and batch == known.pending and held.rests(known, warehouse.settings, stage, accepted):
        return None
    scopes_again = set(held.again(known, warehouse.settings, stage, accepted))
    kept = held.contract_of_held(stage)
    if kept and known.held_id and warehouse.state(kept.table)[1] != known.held_version:  # an earlier progress is back
        scopes_again |= set(held.names_in(warehouse, kept))
    if not batch and not scopes_again:
        return None
    (table,) = stage.inputs
    if not batch:
        read = known.inputs[table].version
        batch = {table: Batch(read, read or 0)}
    if kept and batch[table].start is None:  # the input is read from its beginning: so are the held rows
        scopes_again |= set(held.names_in(warehouse, kept))
    elif kept and known.held:
        scopes_again |= held.with_news(warehouse, stage, batch[table], set(known.held) - scopes_again, known.home)
    # Only a batch that was judged can rest; `under` is None until this one is judged.
    return replace(known, pending=batch, again=tuple(sorted(scopes_again)), under=None)


def _known(warehouse: Warehouse, stage: Stage) -> Progress:
    """Return a stage's progress; empty progress, with a warning, if it names other tables or versions that are gone."""
    target_id, target_version = warehouse.state(stage.table)
    states = {table: warehouse.state(table) for table in stage.inputs}
    inputs = {table: Reading(table_id) for table, (table_id, _) in states.items()}
    fresh = Progress(target_id=target_id, inputs=inputs)
    known = progress.load(warehouse, stage.table)
    if known is None:
        if target_version > 0:
            log.warning("%s has no progress that can be read: reading all of its input again.", stage.table)
        return fresh
    if (
        known.target_id != target_id
        or known.is_ahead_of(target_version)
        or {table: reading.table_id for table, reading in known.inputs.items()}
        != {table: reading.table_id for table, reading in inputs.items()}
        or not _keeps(warehouse, stage, known)
        or not all(_is_there(warehouse, known, table, latest) for table, (_, latest) in states.items())
    ):
        log.warning("The progress of %s speaks of a table or versions that are gone: reading all again.", stage.table)
        return fresh
    return known


def _keeps(warehouse: Warehouse, stage: Stage, known: Progress) -> bool:
    """Tell whether quarantine and held rows are the tables in the progress, at the same versions or later ones."""
    for table, (known_id, known_version) in _beside(stage, known).items():
        table_id, version = warehouse.state(table)
        if known_id is not None and (table_id != known_id or version < (known_version or 0)):
            return False
    return True


def _beside(stage: Stage, known: Progress) -> dict[str, tuple[str | None, int | None]]:
    """Return the id and the version that the progress has of the tables beside a stage's own: quarantine, held rows."""
    beside = {stage.quarantine: (known.quarantine_id, known.quarantine_version)} if isinstance(stage, Split) else {}
    if kept := held.contract_of_held(stage):
        beside[kept.table] = (known.held_id, known.held_version)
    return beside


def _is_there(warehouse: Warehouse, known: Progress, table: str, latest: int) -> bool:
    """Tell whether an input has reached the version in the progress, and its log has the versions to read next."""
    batch = known.pending.get(table) or Batch(known.inputs[table].version, latest)
    if (known.reached(table) or 0) > latest:
        return False
    return (batch.start or 0) >= batch.end or change_feed.can_read(warehouse, table, batch)


def _news(warehouse: Warehouse, known: Progress) -> dict[str, Batch]:
    """Return, for every input, the versions after the last one read; an empty dict if no input has new versions.

    Version 0 creates a table and has no rows.
    """
    latest = {table: warehouse.state(table)[1] for table in known.inputs}
    if all(latest[table] == (reading.version or 0) for table, reading in known.inputs.items()):
        return {}
    return {table: Batch(reading.version, latest[table]) for table, reading in known.inputs.items()}


def _split(
    warehouse: Warehouse, stage: Split, known: Progress, run_id: str, accepted: Acceptance
) -> tuple[Progress, StageRun | None]:
    """Judge a batch, hold the scopes that break the contract, write the other rows to the table and its quarantine.

    Progress saves the gate's decision before anything is written, so that a rerun writes the same rows.
    """
    started_at = moments.now()
    (table,) = stage.inputs
    versions, again = known.pending[table], known.again or ()
    feed = held.feed_of(warehouse, stage, versions)
    rows = held.rows_of(warehouse, stage, feed, again)
    others = replace(known, held={name: one for name, one in known.held.items() if name not in again})
    if rows is None:
        return _passed(warehouse, stage, others), None
    files = held.files_of(warehouse, stage, versions, again)
    with split_of(warehouse, stage, rows, run_id, started_at, files=files, home=known.home) as split:
        if feed:
            feed.check(split.read)
        if not split.census.rows:  # all rows belong to other tables
            held.release(warehouse, stage, again)
            return _passed(warehouse, stage, others), None
        verdict = None
        if known.decided is None:
            history = History.of_json(known.history) if known.contract == _mark(stage) else History()
            lines = {name: one.others for name, one in known.held.items() if one.others}
            counted = split.counted(history, lines)
            if unforeseen := (known.held.keys() & counted.scopes.keys()) - set(again):
                return replace(known, again=tuple(sorted({*again, *unforeseen}))), None
            unread = split.unreadable(counted)
            verdict = split.gate(run_id, counted, unread)
            found = (counted, history, verdict, unread)
            known = _decided(warehouse.settings, stage, known, split.contract, *found, started_at, accepted)
            progress.save(warehouse, stage.table, known)
        stage_run = StageRun(
            run_id,
            stage.table,
            "broken" if known.decided is None or known.decided["held"] or known.decided.get("refused") else "passed",
            started_at,
            moments.now(),
            read=split.census.rows + split.census.skipped,
            input_from=versions.start,
            input_to=versions.end,
            verdict=verdict,
            **_engine(split.engine),
        )
        if known.decided is None:
            whole = replace(stage_run, skipped=split.census.skipped, held=split.census.rows, message=known.message)
            quality.note(warehouse, whole)
            return known, whole
        said = known.decided
        split = split.holding(frozenset(said["held"]))
        before = said["held_before"]
        otherwise = [
            name for name in said["held"] if name in before and before[name]["under"] != known.held[name].under
        ]
        counts = split.write(held.hold(split, stage, otherwise) if split.held else 0)
    held.release(warehouse, stage, [name for name in again if name not in split.held])
    stage_run = replace(
        stage_run,
        finished_at=moments.now(),
        accepted=counts.accepted,
        quarantined=counts.quarantined,
        duplicates=counts.duplicates,
        skipped=counts.skipped,
        held=counts.held,
        message=_told(stage, known, said),
        warns=bool(said.get("unreadable")) and stage_run.status == "passed",
        verdict=stage_run.verdict or _verdict(said["verdict"]),
    )
    quality.note(warehouse, stage_run)
    return _passed(warehouse, stage, known), stage_run


def rebuild(
    warehouse: Warehouse,
    stage: Summarise,
    *,
    accept: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
) -> StageRun:
    """Compute a summarised table again from all of its inputs, whatever its progress says; return the stage's run.

    The batch is fixed first, so that the next run completes it after a crash. If the facts do not hold for all of the
    inputs either, nothing is written, unless ``accept`` is true. The caller holds the writer's lock.
    """
    warehouse.ensure_all(contracts())
    quality.report(warehouse)
    run_id, started_at = new_run_id(), moments.now()
    before = progress.load(warehouse, stage.table) or Progress()
    target_id, _ = warehouse.state(stage.table)
    states = {table: warehouse.state(table) for table in stage.inputs}
    batch = {table: Batch(None, version) for table, (_, version) in states.items()}
    known = Progress(
        target_id=target_id,
        inputs={table: Reading(table_id) for table, (table_id, _) in states.items()},
        pending=batch,
        blocked_since=before.blocked_since,
        message=before.message,
    )
    size = sum(warehouse.size(table) for table in stage.inputs)
    say(f"{stage.table} is computed again from all of {', '.join(stage.inputs)}: {size / 1e6:,.1f} MB to read.")
    progress.save(warehouse, stage.table, known)
    try:
        known, stage_run = _summarise(warehouse, stage, batch, known, run_id, accept=accept)
    except Exception as error:
        failed = StageRun(run_id, stage.table, "failed", started_at, moments.now(), message=type(error).__name__)
        quality.note(warehouse, failed)
        raise
    finally:
        quality.report(warehouse)
    if stage_run is None:
        return StageRun(run_id, stage.table, "idle", started_at, moments.now())
    if stage_run.status == "broken":
        last_way_out = f"As this was all of them: `afterlog rebuild {stage.table} --accept` writes it as it is."
        return replace(stage_run, message=f"{stage_run.message} {last_way_out}")
    return stage_run


def _decided(
    settings: Settings,
    stage: Split,
    known: Progress,
    contract: Contract,
    counted: scopes.Counted,
    history: History,
    verdict: Verdict,
    unread: Unreadable | None,
    at: datetime,
    accepted: Acceptance,
) -> Progress:
    """Return the progress with the decision for each scope of a batch that follows from the gate's verdict.

    A batch of a table without scopes is held as a whole: it stays pending, and nothing of it is written. If only files
    of which no row could be read break the gate of such a table, they go to quarantine.
    """
    broken = verdict.broken(counted.scopes)
    passes = {
        name for name in broken if accepted.has(stage.table, name, scopes.is_of_any(settings.names, name, known.home))
    }
    holds = {name: outcomes for name, outcomes in broken.items() if name not in passes}
    since, under = at.isoformat(timespec="seconds"), held.circumstances(settings, stage)
    if contract.scope is None and WHOLE in holds:
        message = sentence_of(stage.table, WHOLE, holds[WHOLE])
        return replace(known, blocked_since=known.blocked_since or since, message=message, under=under)
    refused = unread.broke(stage.table) if contract.scope is None and holds and unread else None
    if contract.scope is None:
        holds = {}
    waiting = {name: one for name, one in known.held.items() if name not in (known.again or ()) or name in holds}
    for name, outcomes in holds.items():
        message = sentence_of(stage.table, name, outcomes)
        before = known.held.get(name)
        number = counted.scopes[name].rows
        waiting[name] = Held(before.since if before else since, message, number, under, before.others if before else 0)
    for name, lines in counted.others.items():
        if name in waiting:
            waiting[name] = replace(waiting[name], others=waiting[name].others + lines)
    # A held scope that passes under another contract or other settings counts as accepted, too.
    passes |= {name for name, one in known.held.items() if name in counted.scopes and one.under != under} - holds.keys()
    if contract.tolerance >= 1:
        passes |= {name for name, one in counted.scopes.items() if any(found.failing for found in one.tallies.values())}
    batch = {name: found for name, found in counted.batch(contract).items() if name not in passes | holds.keys()}
    said = {
        "verdict": asdict(verdict),
        "held": sorted(holds),
        "refused": refused,
        # The message about one held scope says all of it, about several only the first.
        "unreadable": unread.sentence(without=holds if len(holds) == 1 else ()) if unread and not refused else "",
        "held_before": {name: asdict(one) for name, one in known.held.items()},
        "accepted": sorted(passes & broken.keys()),
        "reading": held.reading(settings, stage),
        "history": history.after(batch, passes).as_json(),
        "contract": _mark(stage),
    }
    return replace(
        known,
        decided=said,
        held=waiting,
        blocked_since=None,
        message=None,
    )


def _mark(stage: Stage) -> str:
    return held.mark_of(contract_of(stage.table))


def _verdict(told: dict[str, Any]) -> Verdict:
    """Return a verdict that progress has saved."""
    outcomes = (
        Outcome(**{**one, **{name: tuple(one.get(name, ())) for name in ("coordinates", "places")}})
        for one in told["outcomes"]
    )
    return Verdict(**{**told, "outcomes": tuple(outcomes)})


def _told(stage: Split, known: Progress, said: dict[str, Any]) -> str | None:
    """Say what a batch holds or refuses, which scopes were accepted, and what could not be read; None if nothing."""
    sentence, lines = said.get("refused"), ""
    if said["held"]:
        now = {name: known.held[name] for name in said["held"]}
        sentence, end, lines = (held.message(stage.table, replace(known, held=now)) or "").partition("\n")
        lines = f"{end}{lines}"
    elif said["accepted"]:
        sentence = f"accepted once: {first_names([*map(visible, said['accepted'])], MOST_NAMED)}"
    unread = said.get("unreadable")
    if sentence and unread:
        sentence = f"{sentence.rstrip('.')}. {unread}"
    return f"{sentence or unread}{lines}" if sentence or unread else None


def _summarise(
    warehouse: Warehouse, stage: Summarise, batch: dict[str, Batch], known: Progress, run_id: str, accept: bool = False
) -> tuple[Progress, StageRun | None]:
    """Refresh the groups that a batch touches, if the facts hold or the caller accepts broken facts."""
    started_at = moments.now()
    with refreshed(warehouse, stage, batch) as fresh:
        if fresh is None:
            return _passed(warehouse, stage, known), None
        verdict = fresh.gate(run_id)
        stage_run = StageRun(
            run_id,
            stage.table,
            "passed" if verdict.passed else "broken",
            started_at,
            moments.now(),
            read=fresh.read,
            input_from=batch[stage.inputs[0]].start,
            input_to=batch[stage.inputs[0]].end,
            message=None if verdict.passed else verdict.sentence(),
            verdict=verdict,
            **_engine(fresh.engine),
        )
        if not verdict.passed and not accept:
            return _blocked(warehouse, stage, known, stage_run), stage_run
        written = fresh.write()
    accepted = "" if verdict.passed else f", though {verdict.findings()}"
    stage_run = replace(
        stage_run,
        status="passed",
        finished_at=moments.now(),
        accepted=stage_run.read,
        refreshed=written,
        message=f"{counted(written, 'row')} refreshed{accepted}",
    )
    quality.note(warehouse, stage_run)
    return _passed(warehouse, stage, known), stage_run


def _engine(found: Choice | None) -> dict[str, Any]:
    return {"engine": found.name, "engine_reason": found.reason} if found is not None else {}


def _passed(warehouse: Warehouse, stage: Stage, known: Progress) -> Progress:
    _, target_version = warehouse.state(stage.table)
    known = known.done(target_version=target_version)
    if kept := held.contract_of_held(stage):
        held_id, held_version = warehouse.state(kept.table)
        known = replace(known, held_id=held_id, held_version=held_version)
    if isinstance(stage, Split):
        quarantine_id, quarantine_version = warehouse.state(stage.quarantine)
        known = replace(known, quarantine_id=quarantine_id, quarantine_version=quarantine_version)
    progress.save(warehouse, stage.table, known)
    return known


def _blocked(warehouse: Warehouse, stage: Summarise, known: Progress, stage_run: StageRun) -> Progress:
    since = known.blocked_since or stage_run.started_at.isoformat(timespec="seconds")
    known = replace(known, blocked_since=since, message=stage_run.message)
    quality.note(warehouse, stage_run)
    progress.save(warehouse, stage.table, known)
    return known
