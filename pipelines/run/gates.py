"""Batches of a Split stage -> its table, quarantine and held rows, by what the gate decides of each scope."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from expectations.contract import Contract, contract_of
from expectations.text import visible
from expectations.verdict import MOST_NAMED, WHOLE, Outcome, Verdict, sentence_of
from pipelines import moments
from pipelines.run.batches import engine_of, news_of, passed, progress_of
from pipelines.run.stopped import Stopped
from pipelines.settings import Settings
from pipelines.stage import Split, Stage
from pipelines.steps import held, scopes
from pipelines.steps.few_split import split_of
from pipelines.steps.held import Acceptance
from pipelines.steps.scopes import History
from pipelines.steps.split import SplitBatch
from pipelines.steps.unreadable import Unreadable
from pipelines.text import first_names
from pipelines.warehouse import progress, quality
from pipelines.warehouse.progress import Batch, Held, Progress
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse


def run_split(
    warehouse: Warehouse, stage: Split, run_id: str, stopping: Callable[[], bool], accepted: Acceptance
) -> list[StageRun]:
    """Judge new rows, and held rows if the verdict can differ now; write the rows that are not held."""
    known = progress_of(warehouse, stage)
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
        stage_runs.append(still_held(stage, own, run_id))
    return stage_runs


def still_held(stage: Split, known: Progress, run_id: str) -> StageRun:
    """Return the run of a stage that only holds rows, with what they wait for."""
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
    batch = known.pending if known.pending and not is_blocked else news_of(warehouse, known)
    if is_blocked and batch == known.pending and held.would_break_again(known, warehouse.settings, stage, accepted):
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
    others = replace(known, held={name: held for name, held in known.held.items() if name not in again})
    if rows is None:
        return passed(warehouse, stage, others), None
    files = held.files_of(warehouse, stage, versions, again)
    with split_of(warehouse, stage, rows, run_id, started_at, files=files, home=known.home) as split:
        if feed:
            feed.check(split.read)
        if not split.census.rows:  # all rows belong to other tables
            held.release(warehouse, stage, again)
            return passed(warehouse, stage, others), None
        verdict = None
        if known.decided is None:
            history = History.of_json(known.history) if known.contract == _mark(stage) else History()
            lines = {name: held.others for name, held in known.held.items() if held.others}
            counted = split.counted(history, lines)
            if unforeseen := (known.held.keys() & counted.scopes.keys()) - set(again):
                return replace(known, again=tuple(sorted({*again, *unforeseen}))), None
            unread = split.unreadable(counted)
            verdict = split.gate(run_id, counted, unread)
            found = (counted, history, verdict, unread)
            known = _decided(warehouse.settings, stage, known, split.contract, *found, started_at, accepted)
            progress.save(warehouse, stage.table, known)
        stage_run = _judged(stage, split, versions, known.decided, run_id, started_at, verdict)
        if known.decided is None:
            whole = replace(stage_run, skipped=split.census.skipped, held=split.census.rows, message=known.message)
            quality.note(warehouse, whole)
            return known, whole
        said = known.decided
        split = split.holding(frozenset(said["held"]))
        counts = split.write(held.hold(split, stage, _held_otherwise(known, said)) if split.held else 0)
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
    return passed(warehouse, stage, known), stage_run


def _judged(
    stage: Split,
    split: SplitBatch,
    versions: Batch,
    decided: dict[str, Any] | None,
    run_id: str,
    started_at: datetime,
    verdict: Verdict | None,
) -> StageRun:
    """Return the stage's run as the gate's decision leaves it, before anything is written."""
    return StageRun(
        run_id,
        stage.table,
        "broken" if decided is None or decided["held"] or decided.get("refused") else "passed",
        started_at,
        moments.now(),
        read=split.census.rows + split.census.skipped,
        input_from=versions.start,
        input_to=versions.end,
        verdict=verdict,
        **engine_of(split.engine),
    )


def _held_otherwise(known: Progress, said: dict[str, Any]) -> list[str]:
    """Return the scopes that a decision holds, and that were held before under another contract or other settings."""
    before = said["held_before"]
    return [name for name in said["held"] if name in before and before[name]["under"] != known.held[name].under]


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
    waiting = {name: held for name, held in known.held.items() if name not in (known.again or ()) or name in holds}
    for name, outcomes in holds.items():
        message = sentence_of(stage.table, name, outcomes)
        before = known.held.get(name)
        number = counted.scopes[name].rows
        waiting[name] = Held(before.since if before else since, message, number, under, before.others if before else 0)
    for name, lines in counted.others.items():
        if name in waiting:
            waiting[name] = replace(waiting[name], others=waiting[name].others + lines)
    # A held scope that passes under another contract or other settings counts as accepted, too.
    passes |= {
        name for name, held in known.held.items() if name in counted.scopes and held.under != under
    } - holds.keys()
    if contract.tolerance >= 1:
        passes |= {
            name for name, scope in counted.scopes.items() if any(found.failing for found in scope.tallies.values())
        }
    batch = {name: found for name, found in counted.batch(contract).items() if name not in passes | holds.keys()}
    said = {
        "verdict": asdict(verdict),
        "held": sorted(holds),
        "refused": refused,
        # The message about one held scope says all of it, about several only the first.
        "unreadable": unread.sentence(without=holds if len(holds) == 1 else ()) if unread and not refused else "",
        "held_before": {name: asdict(held) for name, held in known.held.items()},
        "accepted": sorted(passes & broken.keys()),
        "reading": held.reading(settings, stage),
        "history": history.after(batch, passes).as_json(),
        "contract": _mark(stage),
    }
    return replace(known, decided=said, held=waiting, blocked_since=None, message=None)


def _mark(stage: Stage) -> str:
    return held.mark_of(contract_of(stage.table))


def _verdict(values: dict[str, Any]) -> Verdict:
    """Return a verdict that progress has saved."""
    outcomes = (
        Outcome(**{**outcome, **{name: tuple(outcome.get(name, ())) for name in ("coordinates", "places")}})
        for outcome in values["outcomes"]
    )
    return Verdict(**{**values, "outcomes": tuple(outcomes)})


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
