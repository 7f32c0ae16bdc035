"""An episode and the other episodes of its topic -> a verdict, the figures behind it, and a sentence.

Each rule looks at one figure; the first that holds decides. ``would_change`` names the figure that would give another
verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from expectations.owners import key_of, subject
from expectations.rules import counted
from pipelines.incidents.evidence import (
    COMMON,
    FEW_KEYS,
    NEARLY_ALL,
    Evidence,
    Row,
    Topic,
    evidence_of,
    is_few,
    most_pills,
)
from pipelines.incidents.words import (
    at_least,
    at_offset,
    died_around,
    few_keys,
    key_percent,
    keys_of,
    percent,
    shared,
    shared_by,
    sources_of,
)

POISON_PILL = "POISON_PILL"
KEY_LOCAL = "KEY_LOCAL"
PARTITION_LOCAL = "PARTITION_LOCAL"
PRODUCER_LOCAL = "PRODUCER_LOCAL"
SYSTEMIC = "SYSTEMIC"
REJECTION = "REJECTION"
FLOOD = "FLOOD"
UNDETERMINED = "UNDETERMINED"
VERDICTS = (POISON_PILL, KEY_LOCAL, PARTITION_LOCAL, PRODUCER_LOCAL, SYSTEMIC, REJECTION, FLOOD, UNDETERMINED)

FLOODS = {"CIRCUIT_BREAKER_ARCHIVED": "a circuit breaker", "COORDINATOR_INITIATED": "the coordinator"}
"""Dispositions of records that were archived without a failure of each, and who did it."""
MOST = 0.75
HIGH_SHARE = 0.3  # of the source's offsets
NEARLY_EVERY = 0.6  # of the source's offsets: records without a shared attribute died too


@dataclass(frozen=True)
class Judgement:
    """A verdict with its evidence, and sentences about both."""

    verdict: str
    evidence: Evidence
    sentence: str
    would_change: str


def judge(episode: Row, topic: Topic) -> Judgement:
    """Return the verdict on an episode."""
    evidence = evidence_of(episode, topic)
    records = episode["record_count"]
    verdict = _verdict(episode, evidence)
    who = subject(*key_of(episode))
    records_of = f"{counted(records, 'record')} of {episode['original_topic'] or 'an unknown topic'}"
    why, change = _WORDS[verdict](episode, evidence)
    return Judgement(verdict, evidence, f"{who} could not process {records_of}: {why}", change)


def _verdict(episode: Row, evidence: Evidence) -> str:
    return FLOOD if episode["disposition"] in FLOODS else reach_of(episode, evidence)


def reach_of(episode: Row, evidence: Evidence) -> str:
    """Return what is hit, as the verdict that the figures give whoever archived the records."""
    records, sources = episode["record_count"], episode["source_record_count"]
    keys, share = episode["key_count"] or 0, evidence.offset_share or 0.0
    is_of_few_keys = (
        evidence.key_share is not None and evidence.key_share >= MOST and sources >= 2 * min(keys, FEW_KEYS)
    )
    if is_of_few_keys and sources > 2:
        return KEY_LOCAL
    if is_few(sources, records):
        return POISON_PILL
    one_partition = (evidence.partition_share or 0.0) >= NEARLY_ALL and evidence.partition_count > 1
    has_attribute = evidence.attribute_kind in ("header", "schema_id", "client")
    if has_attribute and evidence.attribute_share_elsewhere is not None and share < NEARLY_EVERY:
        return PRODUCER_LOCAL
    if one_partition:
        return PARTITION_LOCAL
    if share >= HIGH_SHARE:
        return SYSTEMIC
    return REJECTION if evidence.is_rejection else UNDETERMINED


def _pills(episode: Row, evidence: Evidence) -> tuple[str, str]:
    records, died = episode["record_count"], died_around(episode, evidence)
    top: Sequence[Row] = episode["top_records"] or []
    if episode["source_record_count"] == 1 and top:
        coordinate = at_offset(episode["original_topic"], top[0]["original_partition"], top[0]["original_offset"])
        times = counted(records, "time") if records > 1 else "once"
        why = f"one source record, {coordinate}, was dead-lettered {times}" + (f"; {died}" if died else "")
    else:
        why = f"{sources_of(episode)}; {_died(episode, evidence)}"
    return f"{why}.", f"With more than {most_pills(records)} source records it would be no {POISON_PILL}."


def _keys(episode: Row, evidence: Evidence) -> tuple[str, str]:
    keys = few_keys(episode)
    few = f"{keys} has" if keys == "one key" else f"{keys.partition(' ')[0]} of {keys_of(episode)} have"
    return (
        f"{few} {key_percent(episode, evidence.key_share or 0)} of them.",
        f"A share of these keys below {percent(MOST)} {_otherwise(episode, replace(evidence, key_share=0.0))}.",
    )


def _partition(episode: Row, evidence: Evidence) -> tuple[str, str]:
    return (
        f"{percent(evidence.partition_share or 0)} of the source records are of partition {evidence.partition}, "
        f"and the topic has {evidence.partition_count} or more; {_died(episode, evidence)}.",
        f"A share of partition {evidence.partition} below {percent(NEARLY_ALL)} "
        f"{_otherwise(episode, replace(evidence, partition_share=0.0))}.",
    )


def _producer(episode: Row, evidence: Evidence) -> tuple[str, str]:
    share = evidence.attribute_share or 0.0
    shown = {(attribute["kind"], attribute["name"], attribute["value"]) for attribute in episode["attributes"] or ()}
    is_shown = (evidence.attribute_kind, evidence.attribute_name, evidence.attribute_value) in shown
    many = percent(share) if is_shown else f"{at_least(share)} of the source records"
    return (
        f"{many} {shared(evidence.attribute_kind, evidence.attribute_name)}, and {shared_by(evidence)}.",
        f"It would be no evidence if more than {percent(COMMON)} of {evidence.attribute_compared_with} had it.",
    )


def _everything(episode: Row, evidence: Evidence) -> tuple[str, str]:
    keys = f" and {keys_of(episode)}" if episode["key_count"] else ""
    return (
        f"{_died(episode, evidence)}, in {counted(len(episode['partitions'] or ()), 'partition')}{keys}.",
        f"A share below {percent(HIGH_SHARE)} {_otherwise(episode, replace(evidence, offset_share=0.0))}.",
    )


def _flood(episode: Row, evidence: Evidence) -> tuple[str, str]:
    archived = "it" if episode["record_count"] == 1 else f"them, {sources_of(episode)}"
    return (
        f"{FLOODS[episode['disposition']]} archived {archived}; {_died(episode, evidence)}.",
        f"If the application had failed on each, it would be {reach_of(episode, evidence)}.",
    )


def _nothing_known(episode: Row, evidence: Evidence) -> tuple[str, str]:
    reason = "no partition, key or header is known to stand out"
    if evidence.is_rejection:
        reason = "the application rejected them"
    elif evidence.attribute_kind is not None and evidence.attribute_share_elsewhere is not None:
        attribute = shared(evidence.attribute_kind, evidence.attribute_name)
        reason = f"{percent(evidence.attribute_share or 0.0)} {attribute}, and {shared_by(evidence)}"
    partition = f"{percent(NEARLY_ALL)} in one of several partitions"
    if evidence.partition_count > 1:
        partition = f"{percent(NEARLY_ALL)} in one partition"
    elif (evidence.partition_share or 0.0) >= NEARLY_ALL:
        partition = "another partition of the topic"
    return (
        f"{reason}; {_died(episode, evidence)}.",
        f"A share of at least {percent(HIGH_SHARE)} would make it {SYSTEMIC}; {partition} would make it "
        f"{PARTITION_LOCAL}.",
    )


_WORDS = {
    POISON_PILL: _pills,
    KEY_LOCAL: _keys,
    PARTITION_LOCAL: _partition,
    PRODUCER_LOCAL: _producer,
    SYSTEMIC: _everything,
    FLOOD: _flood,
    REJECTION: _nothing_known,
    UNDETERMINED: _nothing_known,
}
"""Each says why a verdict holds, as a clause, and what would change it, as a sentence."""


def _died(episode: Row, evidence: Evidence) -> str:
    return died_around(episode, evidence) or "nothing tells which share died"


def _otherwise(episode: Row, changed: Evidence) -> str:
    return f"would make it {_verdict(episode, changed)}"
