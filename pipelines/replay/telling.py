"""Plans and their runs -> what the command line prints: text for people, JSON for machines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from expectations.rules import counted
from expectations.text import visible
from pipelines.columns.profiles import SHARE_GROUP
from pipelines.payloads import as_json
from pipelines.privacy import DROPPED, Masks
from pipelines.replay.before import Before
from pipelines.replay.draft import Draft, Entry
from pipelines.replay.judge import OUTCOMES, REASONS
from pipelines.replay.model import PREFIX
from pipelines.replay.rules import Action, Rule
from pipelines.replay.states import State
from pipelines.run.newest import lasting
from pipelines.text import first_names, iso

MOST_FLOWS = 10
MOST_OTHERS = 3
MOST_SAMPLES = 10
MOST_OF_VALUE = 120  # characters


def of_draft(draft: Draft, masks: Masks, known: Before, *, kept: bool | None, revived: State | None = None) -> str:
    """Return a plan as text, with what is known before it is run.

    ``kept`` tells whether it was written (None: it is only looked at). ``revived`` is how it had ended, if it can be
    run again.
    """
    plan, eligible = draft.plan, draft.eligible
    chosen = counted(len(draft.entries), "record")
    lines = [
        f"Plan {plan.plan_id}" if kept is not None else "Not kept: a dry run",
        f"  {visible(draft.choice)}: {chosen}, of which {len(eligible):,} would be replayed.",
    ]
    if kept is None:
        lines.append("  The cluster was not asked: whether targets and originals are there is not known.")
    if kept is False:
        how = "still stands"
        if revived:
            how = "was cancelled, and can be run now" if revived is State.CANCELLED else "can be run again"
        lines.append(f"  The same plan was made before; it {how}.")
    if eligible:
        lines += ["", "Goes to", *(f"  {line}" for line in _flows(eligible))]
        lines.append(f"  {_keys(eligible)}, {_span([entry.candidate.row['routed_at'] for entry in eligible])}")
        originals = sum(entry.payload_from == "original" for entry in eligible)
        if originals:
            lines.append(f"  {counted(originals, 'payload')} taken from the original topic: never copied to the DLQ")
        lost = sum(entry.headers_lost for entry in eligible)
        if lost:
            lines.append(f"  {counted(lost, 'record')} without user headers: a share group dropped them for good")
        if reserved := sum(bool(entry.reserved) for entry in eligible):
            lines.append(
                f"  {counted(reserved, 'record')} without own headers whose names begin with {PREFIX}, which Afterlog "
                "reserves"
            )
        if kept is None:
            lines += _to_fetch(eligible)
        lines += ["", "Order", *(f"  {sentence}." for sentence in draft.order.removesuffix(".").split(". "))]
    if draft.reasons:
        lines += ["", "Not eligible"]
        lines += [f"  {count:>7,}  {reason}: {REASONS[reason]}" for reason, count in draft.reasons.most_common()]
    decided = Counter((entry.action, entry.rule) for entry in draft.entries if entry.rule)
    if decided:
        lines += ["", "Rules"]
        for (action, rule), count in sorted(decided.items(), key=lambda item: -item[1]):
            lines.append(f"  {count:>7,}  {action}  {visible(rule or '')}")
    if draft.transform:
        changed = [entry for entry in eligible if entry.is_transformed]
        lines += ["", f"Transform {visible(draft.transform.file.name)} changes {counted(len(changed), 'record')}"]
        if untried := sum(entry.is_to_fetch for entry in eligible):
            lines.append(f"  It was not tried on {counted(untried, 'record')} whose payload is to be taken first.")
        for entry in changed[:MOST_SAMPLES]:
            lines.append(f"  {visible(entry.candidate.coordinate)}")
            lines += [f"    {line}" for line in _change(entry, masks)]
    if eligible:
        lines += ["", "Before you run it", *(f"  {sentence}" for sentence in known.said())]
    if kept is not None and eligible:
        lines += ["", "Next", f"  afterlog replay run {plan.plan_id}"]
    return "\n".join(lines)


def draft_as_json(draft: Draft, known: Before, *, kept: bool | None) -> str:
    """Return a plan as one JSON object in one line, without payloads."""
    plan = draft.plan
    return json.dumps(
        {
            "plan": plan.plan_id if kept is not None else None,
            "hash": plan.plan_hash,
            "is_new": kept,
            "choice": draft.choice,
            "records": len(draft.entries),
            "eligible": len(plan.records),
            "targets": {entry.topic: None for entry in draft.eligible}
            | {target.topic: target.topic_id for target in plan.targets},
            "reasons": dict(draft.reasons),
            "order": draft.order,
            "payloads_from_original": sum(entry.payload_from == "original" for entry in draft.eligible),
            "payloads_to_fetch": sum(entry.is_to_fetch for entry in draft.eligible),
            "headers_lost": sum(entry.headers_lost for entry in draft.eligible),
            "headers_reserved": sum(bool(entry.reserved) for entry in draft.eligible),
            "transformed": sum(entry.is_transformed for entry in draft.eligible),
            **known.as_json(),
        }
    )


def _to_fetch(entries: Sequence[Entry]) -> list[str]:
    """Return what a plan that asks the cluster would take from the original topics."""
    payloads = sum(entry.is_to_fetch for entry in entries)
    headers = sum(entry.candidate.row["header_profile"] in SHARE_GROUP and not entry.headers_lost for entry in entries)
    said = []
    if payloads:
        said.append(f"  {counted(payloads, 'payload')} to take from the original topic, if it still has them")
    if headers:
        said.append(f"  user headers of {counted(headers, 'record')} to take from the original topic, if it has them")
    return said


def _flows(entries: Iterable[Entry]) -> list[str]:
    flows = Counter((entry.source.topic, entry.topic) for entry in entries)
    said = [
        f"{visible(target or '')}  {counted(count, 'record')}"
        + (f" of {visible(source or 'an unknown topic')}" if source != target else "")
        for (source, target), count in flows.most_common(MOST_FLOWS)
    ]
    if len(flows) > MOST_FLOWS:
        said.append(f"and {counted(len(flows) - MOST_FLOWS, 'other topic')}")
    return said


def _span(times: Sequence[datetime | None]) -> str:
    known = sorted(at for at in times if at is not None)
    if not known:
        return "dead-lettered at unknown times"
    if len(known) == 1:
        return f"dead-lettered at {_minute(known[0])}"
    lasted = lasting(known[-1] - known[0])
    return f"dead-lettered within {lasted}, between {_minute(known[0])} and {_minute(known[-1])}"


def _keys(entries: Sequence[Entry]) -> str:
    """Return how many keys records have; those whose payload is not known yet have any."""
    keys = {entry.content.key for entry in entries if entry.content.key is not None}
    unknown = sum(entry.is_to_fetch for entry in entries)
    if not unknown:
        return counted(len(keys), "key")
    known = f"{counted(len(keys), 'key')} and " if keys else ""
    return f"{known}the keys of {counted(unknown, 'record')}, which are not known yet"


def _change(entry: Entry, masks: Masks) -> list[str]:
    """Return what a transform changed, in lines; what masks hide stays hidden where the transform moved it."""
    lines = []
    old_headers = [{"key": name, "value": content} for name, content in entry.before.headers]
    row = {**entry.candidate.row, "key": entry.before.key, "value": entry.before.value, "user_headers": old_headers}
    hidden = masks.hidden(row)
    for part in ("key", "value"):
        old, new = getattr(entry.before, part), getattr(entry.content, part)
        if old != new:
            lines.append(f"{part}  - {_cut(_shown(row, part, old, masks))}")
            shown = _shown(row, part, new, masks)
            spelled = {spelling.casefold() for text in hidden for spelling in (visible(text), as_json(text)[1:-1])}
            is_moved = any(spelling in shown.casefold() for spelling in spelled)
            lines.append(f"{' ' * len(part)}  + {DROPPED if is_moved else _cut(shown)}")
    if entry.before.headers != entry.content.headers:
        names = [[name for name, _ in content.headers] for content in (entry.before, entry.content)]
        if names[0] != names[1]:
            lines.append(f"headers  - {visible(', '.join(names[0]) or 'none')}")
            lines.append(f"         + {visible(', '.join(names[1]) or 'none')}")
        else:
            lines.append("headers  other values")
    return lines


def _shown(row: Mapping[str, Any], part: Any, content: bytes | None, masks: Masks) -> str:
    """Return a key or value in one line, masked as ``afterlog show`` masks it."""
    payload = masks.payload({**row, part: content}, part)
    if payload.masked is not None:
        return visible(payload.masked)
    if payload.content is None:
        return "null"
    if payload.form is not None:
        return visible(as_json(payload.data))
    try:
        return visible(payload.content.decode("utf-8"))
    except UnicodeDecodeError:
        return f"0x{payload.content.hex()}"


def _cut(text: str) -> str:
    return text if len(text) <= MOST_OF_VALUE else f"{text[:MOST_OF_VALUE]}…"


def explained(
    entry: Entry,
    rule: Rule | None,
    action: Action,
    tried: Sequence[Rule],
    others: Sequence[str],
    is_repeated: bool,
    form: str,
) -> str:
    """Return which rule decided about a dead letter, and what else speaks for or against its replay.

    ``others`` are the coordinates of other dead letters of its source record, in order; ``is_repeated`` tells whether a
    plan replays one of them instead.
    """
    candidate = entry.candidate
    if form == "json":
        facts = {
            "record": candidate.coordinate,
            "action": action,
            "rule": rule.name if rule else None,
            "reasons": entry.reasons,
            "incident": candidate.incident_id,
            "verdict": candidate.verdict,
            "target": entry.topic,
            "attempt": candidate.attempt,
            "replayed_by": candidate.replayed.plan_id if candidate.replayed else None,
            "replayed_letter": candidate.replayed.letter.coordinate if candidate.replayed else None,
            "of_same_source_record": list(others),
            "is_repeated": is_repeated,
        }
        return json.dumps(facts)
    lines = [visible(candidate.coordinate), f"  {action}: {_deciding(rule, len(tried), candidate.verdict)}."]
    if candidate.incident_id:
        lines.append(f"  It is of incident {candidate.incident_id}, {candidate.verdict}.")
    if candidate.replayed:
        lines.append(f"  {candidate.replayed.in_words}")
    if candidate.row["payload_copied"] is False:
        lines.append("  Its payload was never copied: a plan takes it from the original topic, if that still has it.")
    if others:
        shown = first_names([*map(visible, others)], MOST_OTHERS)
        lines.append(f"  Of its source record {counted(len(others), 'other dead letter')} landed: {shown}.")
    if entry.reasons:
        lines += [f"  Not eligible, {reason}: {REASONS[reason]}." for reason in entry.reasons]
    elif is_repeated:
        lines.append(
            f"  Eligible alone, to {visible(entry.topic or 'its target')}. A plan that has a later one of these too "
            "replays that one instead (same_source_record)."
        )
    else:
        lines.append(f"  The tables know nothing against a replay to {visible(entry.topic or 'its target')}.")
    return "\n".join(lines)


def _deciding(rule: Rule | None, tried: int, verdict: str | None) -> str:
    """Say which rule decides about a dead letter, or why a person does; ``verdict`` is that of its incident."""
    if rule is None:
        none_matches = f"none of {counted(tried, 'rule')} matches" if tried else "there are no rules"
        return f"{none_matches}, so a person decides"
    named = f"rule {tried}, {visible(rule.name)!r}"
    if rule.verdict is not None and verdict is None:
        return f"{named}, looks at the verdict of an incident, and the record is of none yet, so a person decides"
    return f"{named}, is the first that matches"


def listed(rows: Sequence[Mapping[str, Any]], states: Mapping[str, str], replayed: Mapping[str, int], form: str) -> str:
    """Return all plans, a line each."""
    if form == "json":
        return "\n".join(
            json.dumps(
                {
                    "plan": row["plan_id"],
                    "created_at": iso(row["created_at"]),
                    "created_by": row["created_by"],
                    "choice": row["choice"],
                    "target": row["target"],
                    "records": row["record_count"],
                    "eligible": row["eligible_count"],
                    "replayed": replayed.get(row["plan_id"], 0),
                    "status": states[row["plan_id"]],
                }
            )
            for row in rows
        )
    if not rows:
        return "There is no plan yet: `afterlog replay plan --incident ID` makes one."
    return "\n".join(
        f"{row['plan_id']}  {states[row['plan_id']]:<9}  {_minute(row['created_at'])}  "
        f"{replayed.get(row['plan_id'], 0):>7,} of {row['eligible_count']:>7,}  {visible(row['choice'])[:60]}"
        for row in rows
    )


def status(
    row: Mapping[str, Any],
    state: str,
    sentence: str | None,
    replayed: int,
    skipped: int,
    outcomes: Mapping[str, int],
    form: str,
) -> str:
    """Return where the run of a plan stands, and what became of its records; others took the skipped ones."""
    if form == "json":
        facts = {
            "plan": row["plan_id"],
            "status": state,
            "why": sentence,
            "eligible": row["eligible_count"],
            "replayed": replayed,
            "skipped": skipped,
            "outcomes": dict(outcomes),
        }
        return json.dumps(facts)
    lines = [f"Plan {row['plan_id']}  {state}" + (f": {visible(sentence)}" if sentence else "")]
    lines.append(f"  {replayed:,} of {counted(row['eligible_count'], 'record')} replayed to {visible(row['target'])}")
    if skipped:
        lines.append(f"  {skipped:,} not replayed, as another plan has taken them, or their source records")
    if outcomes:
        known = [f"{outcomes[name]:,} {words}" for name, words in OUTCOMES.items() if outcomes.get(name)]
        lines.append(f"  {', '.join(known)}")
    return "\n".join(lines)


def expired(row: Mapping[str, Any], why: str) -> str:
    """Return that a plan must not be run any more, and why."""
    return f"Plan {row['plan_id']} has expired: {why} Make a new one with `afterlog replay plan`."


def left(row: Mapping[str, Any], replayed: int, why_expired: str | None, form: str) -> str:
    """Return what a run of a plan would do."""
    count = row["eligible_count"] - replayed
    if form == "json":
        return json.dumps({"plan": row["plan_id"], "left": count, "replayed": replayed, "expired": why_expired})
    if why_expired is not None:
        return expired(row, why_expired)
    return f"Plan {row['plan_id']} would replay {counted(count, 'record')} to {visible(row['target'])}."


def record_rows(rows: Sequence[Mapping[str, Any]], form: str) -> str:
    """Return the records of a plan without their payloads, a line each."""
    if form == "json":
        names: tuple[str, ...] = (
            "original_topic",
            "original_partition",
            "original_offset",
            "incident_id",
            "attempt",
            "position",
        )
        names += ("reasons", "rule", "action", "target_topic", "target_partition", "payload_from", "headers_lost")
        return "\n".join(
            json.dumps({"record": _coordinate(row)} | {name: row[name] for name in (*names, "is_transformed")})
            for row in rows
        )
    return "\n".join(
        f"{visible(_coordinate(row))}  "
        + (
            f"to {visible(row['target_topic'])}"
            + (f":{row['target_partition']}" if row["target_partition"] is not None else ", by key")
            if not row["reasons"]
            else f"not eligible: {'; '.join(_worded(reason) for reason in row['reasons'])}"
        )
        for row in rows
    )


def _worded(reason: str) -> str:
    return f"{reason}, {REASONS[reason]}" if reason in REASONS else visible(reason)


def _coordinate(row: Mapping[str, Any]) -> str:
    return f"{row['dlq_topic']}:{row['dlq_partition']}:{row['dlq_offset']}"


def _minute(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}Z"
