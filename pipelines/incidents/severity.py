"""An incident -> how urgent it is, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from expectations.rules import counted
from pipelines.incidents.verdict import FLOOD, PARTITION_LOCAL, POISON_PILL, SYSTEMIC, Judgement, percent, sources_of

LEVELS = ("critical", "high", "medium", "low")
MANY = 1_000  # records
MINUTE = 60 * 1_000_000
FAST = 60  # records a minute


def severity(episode: Mapping[str, Any], judged: Judgement) -> tuple[str, list[str]]:
    """Return one of ``LEVELS`` and the reasons for it, each a clause; the strongest reason comes first."""
    records = episode["record_count"]
    minutes = max((episode["last_at"] - episode["first_at"]) / MINUTE, 1)
    reasons: list[tuple[int, str]] = []
    if judged.verdict in (SYSTEMIC, FLOOD):
        is_wide = records >= MANY or (judged.evidence.offset_share or 0) >= 0.9
        why = "nothing is known that limits it to a few records, keys or partitions"
        if judged.verdict == FLOOD:
            why = "a circuit breaker or the coordinator archived the records"
        reasons.append((0 if is_wide and records >= 100 else 1, why))
    if judged.verdict == PARTITION_LOCAL:
        reasons.append((1, f"nearly all source records are of partition {judged.evidence.partition}"))
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
    if judged.verdict == POISON_PILL and episode["record_count"] >= 10 * max(episode["source_record_count"], 1):
        reasons.append((2, "the same record is dead-lettered again and again"))
    if episode["source_record_count"] > 5 and not reasons:
        reasons.append((2, f"{sources_of(episode)} failed"))
    if not reasons:
        reasons.append((3, "few source records failed"))
    reasons.sort(key=lambda one: one[0])
    return LEVELS[reasons[0][0]], [why for _, why in reasons]
