"""`afterlog replay ...`: make a plan, explain a decision, run a plan, tell how it stands."""

from __future__ import annotations

import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expectations.rules import counted
from expectations.text import visible
from pipelines.commands.describe import Answer
from pipelines.errors import AfterlogError, UsageError
from pipelines.privacy import Masks
from pipelines.replay import eligibility, judge, outcomes, planning, rules, store, telling, transform
from pipelines.replay.before import Before
from pipelines.replay.candidate import Candidate
from pipelines.replay.candidates import Candidates
from pipelines.replay.choice import BY_RULES, Choice
from pipelines.replay.journal import Journal, journal_store
from pipelines.replay.judge import Options
from pipelines.replay.model import Letter, Plan, Replayed
from pipelines.replay.states import Request, State, Status
from pipelines.teams import Teams
from pipelines.warehouse import erased
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pipelines.replay.client import Topic
    from pipelines.replay.draft import Draft, Entry
    from pipelines.replay.run import Progress
    from pipelines.run.stop import Stop

FLUSH_RECORDS = 5_000  # of what stands on the target, until they are written to the table


def plan(
    warehouse: Warehouse,
    choice: Choice,
    options: Options,
    *,
    file: Path | None = None,
    fetches: bool = True,
    dry_run: bool = False,
    form: str = "text",
) -> Answer:
    """Make a plan and say what is in it; a dry run neither asks the cluster nor writes anything.

    The exit code is 1 if nothing is eligible.

    Raises UsageError: the choice, the rules, the transform or the settings cannot be used.
    """
    draft = drawn(warehouse, choice, options, file=file, fetches=fetches, dry_run=dry_run)
    if not draft.entries:
        return _nothing(form)
    kept = None if dry_run else store.keep(warehouse, draft)
    revived = None
    if kept is False:
        with Journal.of(warehouse.settings) as journal:
            revived = journal.revive(draft.plan.plan_id)
    known = Before.of(warehouse, draft)
    if form == "json":
        said = telling.draft_as_json(draft, known, kept=kept)
    else:
        said = telling.of_draft(draft, Masks.of(warehouse.settings), known, kept=kept, revived=revived)
    unknown = planning.not_known(draft.entries, warehouse)
    return Answer(said, (unknown,) if unknown else (), 0 if draft.eligible else 1)


def _nothing(form: str) -> Answer:
    message = "No dead letter was chosen, so there is nothing to plan."
    return Answer(
        json.dumps({"plan": None, "records": 0, "eligible": 0, "message": message}) if form == "json" else message,
        (),
        1,
    )


def drawn(
    warehouse: Warehouse,
    choice: Choice,
    options: Options,
    *,
    file: Path | None = None,
    fetches: bool = True,
    dry_run: bool = False,
) -> Draft:
    """Return the plan of a choice, not yet kept."""
    journal_store(warehouse.settings)
    settings = warehouse.settings
    repair = transform.read(file) if file is not None else None
    known = rules.of(settings)
    if not dry_run:
        planning.refuse_without_cluster(settings)
    candidates = Candidates(warehouse, known)
    choice = replace(choice, records=tuple(sorted({*choice.records})))
    if choice.incident is not None:  # however it was written, and also if another incident took it in
        choice = replace(choice, incident=candidates.incident(choice.incident)["incident_id"])
    letters = candidates.chosen(choice, settings.replay.most_records)
    entries = planning.judged(letters, known, options)
    planning.judge_loops(entries, eligibility.letter_topics(warehouse))
    planning.judge_erased(entries, erased.by_coordinate(warehouse))
    cluster_id, targets = ("", {}) if dry_run else _asked(entries, options, warehouse, fetches)
    planning.judge_claims(entries, options, eligibility.claims(settings, entries))
    if not fetches:
        for entry in entries:
            planning.without_original(entry)
    if repair is not None:
        planning.repair(entries, repair)
    planning.measure(entries, targets)
    planning.leave_out_repeated(entries)
    if not dry_run:
        with Journal.of(warehouse.settings) as journal:
            planning.judge_earlier(entries, options, warehouse, journal)
    planning.leave_out_beyond_limits(entries, Teams.of_settings(settings))
    planning.date_firsts(entries, warehouse)
    said = planning.order(entries, options, targets)
    return planning.drawn(
        entries,
        cluster=warehouse.cluster,
        kafka_cluster_id=cluster_id,
        targets=targets,
        choice=str(choice),
        options=options,
        rules=known,
        transform=repair,
        said=said,
    )


def _asked(
    entries: Sequence[Entry], options: Options, warehouse: Warehouse, fetches: bool
) -> tuple[str, dict[str, Topic]]:
    """Judge dead letters by what their cluster says; return its id and the targets that it has, by name."""
    from pipelines.replay import client

    admin = client.admin(warehouse.settings)
    cluster_id = client.cluster_id(admin)
    wanted = sorted({entry.topic for entry in entries if entry.topic is not None})
    targets = {name: topic for name, topic in client.describe(admin, wanted).items() if topic.ends is not None}
    planning.judge_targets(entries, options, targets)
    planning.judge_letters(entries, options, warehouse)
    if fetches:
        planning.fetch_originals(entries, options, warehouse)
    return cluster_id, targets


def explain(warehouse: Warehouse, wanted: str, form: str = "text") -> Answer:
    """Say which rule decides about the dead letter at TOPIC:PARTITION:OFFSET, and what speaks against its replay."""
    known = rules.of(warehouse.settings)
    options = Options(max_replays=warehouse.settings.replay.max_replays)
    candidates = Candidates(warehouse)
    entries = eligibility.judged(warehouse, candidates.chosen(Choice(records=(wanted,)), 1), known, options)
    said = []
    for entry in entries:
        action, rule = known.decide(entry.candidate.facts)
        tried = known.rules[: known.rules.index(rule) + 1] if rule else known.rules
        others = _of_same_record(warehouse, candidates, entry, known, options)
        is_repeated = planning.is_repeated(entry, others)
        coordinates = [other.candidate.coordinate for other in sorted(others, key=lambda other: other.letter)]
        said.append(telling.explained(entry, rule, action, tried, coordinates, is_repeated, form))
    return Answer("\n".join(said))


def _of_same_record(
    warehouse: Warehouse, candidates: Candidates, entry: Entry, known: rules.Rules, options: Options
) -> list[Entry]:
    """Return the other dead letters of a dead letter's record, as far as headers name the coordinates of that."""
    coordinates = {coordinate for coordinate in (entry.candidate.source, entry.written_first) if coordinate is not None}
    by_coordinate = {
        candidate.coordinate: candidate for coordinate in coordinates for candidate in candidates.of_source(*coordinate)
    }
    others = [candidate for coordinate, candidate in by_coordinate.items() if coordinate != entry.candidate.coordinate]
    return [
        other
        for other in eligibility.judged(warehouse, others, known, options)
        if other.written_first == entry.written_first
    ]


def discard(warehouse: Warehouse, choice: Choice, note: str | None) -> Answer:
    """Write down that dead letters are given up; nothing is deleted."""
    if choice.by_rules:
        raise UsageError('Rules discard by then = "DISCARD": a plan writes it down.')
    letters = Candidates(warehouse).chosen(choice, warehouse.settings.replay.most_records)
    done = store.discard(warehouse, letters, note)
    return Answer(f"{counted(done, 'record')} of {len(letters):,} discarded now; nothing is deleted.")


def run(
    warehouse: Warehouse,
    wanted: str,
    *,
    rate: float | None = None,
    batch: int | None = None,
    most_deaths: float | None = None,
    stop: Stop | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
    resumes: bool = False,
    form: str = "text",
) -> Answer:
    """Run a plan, or go on with it; ``resumes`` lifts a pause.

    Raises UsageError: the plan does not exist or has expired. WriterBusy: another process runs it.
    """
    from pipelines.replay import run as runner

    settings = warehouse.settings
    planning.refuse_without_cluster(settings)
    row = store.plan_row(warehouse, wanted)
    planned = store.load(warehouse, row)
    if resumes:
        with Journal.of(warehouse.settings) as journal:
            journal.resume(planned.plan_id)
    kept = store.Replays(warehouse, planned)
    if not recover(warehouse, planned, kept) and (expired := why_expired(warehouse, row)):
        with contextlib.suppress(AfterlogError):
            recover(warehouse, planned, kept, has_ended=True)
        raise UsageError(telling.expired(row, expired))

    def confirmed(replayed: Sequence[Replayed]) -> None:
        kept.add(replayed)
        if len(kept.waiting) >= FLUSH_RECORDS:
            kept.flush()

    try:
        ended = runner.run(
            planned,
            journal_store(warehouse.settings),
            settings,
            rate=settings.replay.rate if rate is None else rate,
            batch=settings.replay.batch if batch is None else batch,
            most_deaths=settings.replay.most_deaths if most_deaths is None else most_deaths,
            stop=stop,
            progress=progress,
            confirmed=confirmed,
            elsewhere=lambda: store.elsewhere(warehouse, planned.records, planned.plan_id),
        )
    finally:
        kept.flush()
    outcomes.refresh(warehouse, asks=False)
    counts = Counter(outcome["outcome"] for outcome in store.outcomes(warehouse, planned.plan_id))
    said = telling.status(row, ended.status.value, ended.sentence or None, len(kept.known), ended.skipped, counts, form)
    return Answer(said, (), ended.exit_code)


def recover(warehouse: Warehouse, plan: Plan, kept: store.Replays, *, has_ended: bool = False) -> bool:
    """Write down what a plan that has ended replayed, if its run was killed before it did so itself.

    Return whether the plan has ended; ``has_ended`` says so of one that has expired.

    Raises AfterlogError: the cluster does not tell.
    """
    from pipelines.replay import run as runner

    with Journal.of(warehouse.settings) as journal:
        known = journal.status(plan.plan_id)
    if known is None or not (has_ended or known.state in (State.FINISHED, State.CANCELLED)):
        return False
    if known.replayed > len(kept.known) or (has_ended and known.attempted > len(kept.known)):
        kept.add(runner.read_back(plan, journal_store(warehouse.settings), warehouse.settings))
        kept.flush()
    return True


def left(warehouse: Warehouse, wanted: str, form: str = "text") -> Answer:
    """Say how many records of a plan are left to replay and whether it still holds, without a cluster."""
    row = store.plan_row(warehouse, wanted)
    done = len(store.replayed(warehouse, row["plan_id"]))
    expired = why_expired(warehouse, row)
    said = telling.left(row, done, expired, form)
    if expired is None:
        return Answer(said)
    remarks = (telling.expired(row, expired),) if form == "json" else ()
    return Answer(said, remarks, UsageError.exit_code)


def why_expired(warehouse: Warehouse, row: Mapping[str, Any]) -> str | None:
    """Return why a plan must not be run any more, as a sentence; None if it still holds."""
    return expiries(warehouse, [row])[row["plan_id"]]


def expiries(warehouse: Warehouse, rows: Sequence[Mapping[str, Any]]) -> dict[str, str | None]:
    """Return why plans must not be run any more, as sentences by plan; None of those that still hold.

    What a plan itself replayed does not count, nor do new dead letters.
    """
    known = rules.of(warehouse.settings)
    sentences: dict[str, str | None] = {row["plan_id"]: None for row in rows}
    changed = {row["plan_id"] for row in rows if known.digest != row["rules_hash"]}
    sentences |= dict.fromkeys(changed, "the remediation rules changed.")
    left = {row["plan_id"]: row for row in rows if row["plan_id"] not in changed}
    if not left:
        return sentences
    planned = store.letters(warehouse, left)
    candidates = Candidates(warehouse).of_plans(planned)
    replayed: dict[str, set[Letter]] = defaultdict(set)
    for replay in store.replayed(warehouse, next(iter(left)) if len(left) == 1 else None):
        replayed[replay["plan_id"]].add(Letter.of(replay))
    gone = erased.by_coordinate(warehouse)
    most_of_teams = Teams.of_settings(warehouse.settings).most_records()
    for plan_id, row in left.items():
        sentences[plan_id] = _why_expired(row, known, planned[plan_id], candidates[plan_id], replayed[plan_id])
        if lost := [
            gone[at] for letter in planned[plan_id] if (at := (letter.topic, letter.partition, letter.offset)) in gone
        ]:
            sentences[plan_id] = f"{counted(len(lost), 'record')} of it {'was' if len(lost) == 1 else 'were'} erased."
        for name, most in most_of_teams.items() if sentences[plan_id] is None else ():
            if (count := sum(name in candidate.teams for candidate in candidates[plan_id])) > most:
                sentences[plan_id] = (
                    f"it has {count:,} records of team {visible(name)}, which allows {most:,} in one plan."
                )
    return sentences


def _why_expired(
    row: Mapping[str, Any],
    known: rules.Rules,
    planned: Collection[Letter],
    candidates: Sequence[Candidate],
    replayed: Collection[Letter],
) -> str | None:
    to = None if row["target"] == "original" else row["target"]
    options = Options(to, row["again"], row["max_replays"], row["ignores_rules"])
    by_rules = row["choice"].startswith(BY_RULES)
    missing = set(planned)
    letters_at: dict[str, list[Letter]] = defaultdict(list)
    for letter in planned:
        letters_at[letter.coordinate].append(letter)
    for candidate in candidates:
        letter = Letter.of(candidate.row)
        same = {other for other in letters_at[candidate.coordinate] if other.may_be(letter)}
        missing -= same
        action = known.decide(candidate.facts)[0]
        reasons = judge.of_record(candidate, action, options)
        if same.isdisjoint(replayed) and (reasons or (by_rules and action != "REPLAY")):
            why = judge.REASONS[reasons[0]].partition(";")[0].partition(":")[0] if reasons else "no rule replays it"
            return f"{visible(candidate.coordinate)} is not eligible any more, as {why}."
    if missing:
        return f"{visible(min(missing).coordinate)} is not in silver.dlq_records any more."
    return None


def ask_pause(warehouse: Warehouse, wanted: str) -> Answer:
    """Ask the run of a plan to pause after its batch; the exit code is 1 if the plan has ended."""
    row = store.plan_row(warehouse, wanted)
    plan_id = row["plan_id"]
    with Journal.of(warehouse.settings) as journal:
        journal.ask_pause(plan_id)
        known = journal.status(plan_id)
    state = known.state if known else State.READY
    if state in (State.FINISHED, State.CANCELLED):
        return Answer(f"Plan {plan_id} is {state.lower()} already, so there is nothing to pause.", (), 1)
    if known is not None and known.request is Request.CANCEL:
        return Answer(f"Plan {plan_id} is being cancelled, so it is not paused.", (), 1)
    how = "pauses after its batch" if state is State.RUNNING else "is paused"
    return Answer(f"Plan {plan_id} {how}; `afterlog replay resume {plan_id}` goes on.")


def ask_cancel(warehouse: Warehouse, wanted: str) -> Answer:
    """Cancel a plan: what was replayed stays, and the rest is free for other plans."""
    from pipelines.replay import run as runner

    row = store.plan_row(warehouse, wanted)
    planned = store.load(warehouse, row)
    ended = runner.cancel(planned, journal_store(warehouse.settings), warehouse.settings)
    if ended is None:
        return Answer(f"Plan {planned.plan_id} ends after its batch, and is cancelled then.")
    _, remarks = _recovered(warehouse, planned)
    return Answer(f"Plan {planned.plan_id} is {ended.status}: {ended.sentence}", remarks, ended.exit_code)


def _recovered(warehouse: Warehouse, plan: Plan) -> tuple[int, tuple[str, ...]]:
    """Do what `recover` does, and return how many records are written down, and a remark if it could not be done."""
    kept = store.Replays(warehouse, plan)
    remarks: tuple[str, ...] = ()
    try:
        recover(warehouse, plan, kept)
    except AfterlogError as error:
        remarks = (f"What plan {plan.plan_id} replayed is not all written down yet. {error}",)
    return len(kept.known), remarks


def status(warehouse: Warehouse, wanted: str, form: str = "text", *, asks: bool = True) -> Answer:
    """Say how a plan stands and what became of its records; ``asks`` the cluster for committed offsets."""
    row = store.plan_row(warehouse, wanted)
    with Journal.of(warehouse.settings) as journal:
        state = journal.status(row["plan_id"])
    done = len(store.replayed(warehouse, row["plan_id"]))
    remarks: tuple[str, ...] = ()
    if asks and warehouse.settings.kafka.bootstrap_servers and state is not None and state.replayed > done:
        done, remarks = _recovered(warehouse, store.load(warehouse, row))  # the plan holds all payloads
    done = max(done, state.replayed if state is not None else 0)  # a run writes to the table now and then
    outcomes.refresh(warehouse, asks=asks)
    counts = Counter(outcome["outcome"] for outcome in store.outcomes(warehouse, row["plan_id"]))
    stands, sentence, exit_code = _stands(row, state, done, lambda: why_expired(warehouse, row))
    skipped = state.skipped if state is not None else 0
    return Answer(telling.status(row, stands.value, sentence, done, skipped, counts, form), remarks, exit_code)


def _stands(
    row: Mapping[str, Any], known: Status | None, done: int, expired: Callable[[], str | None]
) -> tuple[State, str | None, int]:
    """Return how a plan stands, why, and the exit code that says so; ``done`` is how many records were replayed."""
    state = known.state if known is not None else State.READY
    if known is not None and _is_over(known):
        return state, known.sentence, 0
    if not row["eligible_count"] and state is State.READY:
        return State.FINISHED, "it has no eligible record", 0
    is_lost = known is None or not (known.since_planned or known.attempted)
    if is_lost and row["eligible_count"] and done >= row["eligible_count"]:
        return State.FINISHED, None, 0
    if why := expired():
        return State.EXPIRED, why, UsageError.exit_code
    if known is not None and state in (State.FAILED, State.PAUSED):
        default = UsageError.exit_code if state is State.FAILED else 0  # an older journal does not say it
        return state, known.sentence, default if known.exit_code is None else known.exit_code
    if is_lost:
        return state, "the journal of its runs is lost, so a run learns from the target what was replayed", 0
    return state, known.sentence if known is not None else None, 0


def _is_over(known: Status | None) -> bool:
    """Tell whether the journal alone tells how a plan stands."""
    return known is not None and known.state in (State.FINISHED, State.CANCELLED, State.RUNNING)


def plans(warehouse: Warehouse, form: str = "text") -> Answer:
    """List all plans, the newest first."""
    rows = store.plans(warehouse)
    done = Counter(row["plan_id"] for row in store.replayed(warehouse))
    states = {}
    if rows:
        with Journal.of(warehouse.settings) as journal:
            known = {row["plan_id"]: journal.status(row["plan_id"]) for row in rows}
        for name, status in known.items():
            done[name] = max(done[name], status.replayed if status is not None else 0)
        expired = expiries(warehouse, [row for row in rows if not _is_over(known[row["plan_id"]])])
        for row in rows:
            name = row["plan_id"]
            states[name] = _stands(row, known[name], done[name], partial(expired.get, name))[0].value
    return Answer(telling.listed(rows, states, done, form))


def show(warehouse: Warehouse, wanted: str, form: str = "text") -> Answer:
    """List the records of a plan, without their payloads."""
    row = store.plan_row(warehouse, wanted)
    return Answer(telling.record_rows(store.records(warehouse, row["plan_id"]), form))
