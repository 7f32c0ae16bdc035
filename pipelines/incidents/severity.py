"""An incident -> how urgent it is, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from expectations.rules import counted
from pipelines.incidents.evidence import FEW, NEARLY_ALL
from pipelines.incidents.verdict import (
    FLOOD,
    FLOODS,
    KEY_LOCAL,
    PARTITION_LOCAL,
    POISON_PILL,
    PRODUCER_LOCAL,
    SYSTEMIC,
    Judgement,
    reach_of,
)
from pipelines.incidents.words import died_around, percent, sources_of

LEVELS = ("critical", "high", "medium", "low")
LIMITED = (POISON_PILL, KEY_LOCAL, PRODUCER_LOCAL)
"""What hits a few records, keys or one producer's records only, whoever archived them."""
MANY = 1_000  # records
SEVERAL = 100  # records, that nearly all died of
MINUTE = 60 * 1_000_000
FAST = 60  # records a minute


def severity(episode: Mapping[str, Any], judged: Judgement) -> tuple[str, list[str]]:
    """Return one of ``LEVELS`` and the reasons for it, each a clause; the strongest reason comes first."""
    records, sources = episode["record_count"], episode["source_record_count"]
    evidence, reach = judged.evidence, reach_of(episode, judged.evidence)
    minutes = max((episode["last_at"] - episode["first_at"]) / MINUTE, 1)
    reasons: list[tuple[int, str]] = []
    if judged.verdict == SYSTEMIC or (judged.verdict == FLOOD and reach not in LIMITED):
        is_wide = records >= MANY or (records >= SEVERAL and (evidence.offset_share or 0.0) >= NEARLY_ALL)
        why = died_around(episode, evidence) or f"{sources_of(episode)} failed"
        if judged.verdict == FLOOD:
            why = f"{FLOODS[episode['disposition']]} archived {sources_of(episode)}"
        reasons.append((0 if is_wide else 1, why))
    if reach == PARTITION_LOCAL:
        share = percent(evidence.partition_share or 0.0)
        reasons.append((1, f"{share} of the source records are of partition {evidence.partition}"))
    if records >= MANY:
        reasons.append((1, f"{counted(records, 'record')} were dead-lettered"))
    if records / minutes >= FAST:
        reasons.append((1, f"{records / minutes:,.0f} records a minute were dead-lettered"))
    if lost := episode["without_payload_count"]:
        share = percent(lost / records)
        level = 1 if lost >= MANY else 2
        reasons.append(
            (level, f"{share} of the records have no payload, so that they can only be fetched from their source")
        )
    if reach == POISON_PILL and records >= 10 * max(sources, 1):
        same = "the same record is" if sources == 1 else "the same records are"
        reasons.append((2, f"{same} dead-lettered again and again"))
    if sources > FEW and not reasons:
        reasons.append((2, f"{sources_of(episode)} failed"))
    if not reasons:
        reasons.append((3, "few source records failed"))
    reasons.sort(key=lambda reason: reason[0])
    return LEVELS[reasons[0][0]], [why for _, why in reasons]
