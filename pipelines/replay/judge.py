"""A chosen dead letter, and what is known of it and its target -> the reasons why it is not to be replayed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from expectations.text import visible
from pipelines.errors import UsageError
from pipelines.replay.candidate import Candidate
from pipelines.replay.rules import Action
from pipelines.text import elided

if TYPE_CHECKING:
    from pipelines.replay.client import Topic

REASONS = {
    "quarantined": "its contract refused it: see quarantine.dlq_records",
    "held": "its topic is held: see held.dlq_records",
    "ambiguous_place": "several records are known at its place, of topics with one name",
    "erased": "its content was erased: see quality.erased_records",
    "control_marker": "it is a transaction's control marker, not data",
    "control_marker_suspected": "it has the bytes of a transaction's control marker",
    "aborted_transaction": "the record that failed is of an aborted transaction",
    "open_transaction": "the record that failed is of a transaction that is still open",
    "rolled_back": "the transaction that wrote the dead letter was aborted",
    "replayed_before": "it, or its source record, was replayed before; --again replays it once more",
    "claimed": "another plan has taken it, or its source record: cancel that plan, or see `afterlog replay plans`",
    "died_after_replay": "it died after more replays than --max-replays allows",
    "same_source_record": "a later dead letter of the same source record is in the plan",
    "discarded": "it was discarded; --again replays it",
    "hold": "a rule holds it; --ignore-rules replays it",
    "discard": "a rule discards it; --ignore-rules replays it",
    "no_source": "its headers name no source topic to go back to; --to TOPIC names another one",
    "topic_is_id": "its headers name only the id of its source topic; --to TOPIC names another one",
    "masked": "a mask hid parts of it before it was written, so nobody knows what it was",
    "no_payload": "key and value were never copied, and the original topic does not give them",
    "other_record": "another record stands at its place in the original topic now",
    "other_record_possible": "another record may stand at its place in the original topic now, as neither topic id nor "
    "timestamp tells; --allow other_record_possible replays that one",
    "commit_unknown": "nobody can tell whether the transaction that wrote the dead letter was committed; "
    "--allow commit_unknown replays it",
    "replay_unknown": "it is older than the journal, and its target cannot be read so far back, so nobody can tell "
    "whether it was replayed; --allow replay_unknown replays it",
    "lossy_encoding": "the file that it came from cannot keep all bytes",
    "loop": "its target is a dead-letter topic",
    "target_gone": "its target does not exist, or must not be described",
    "target_recreated": "its target was created anew: the offset of the record that failed is behind its end",
    "partition_gone": "its target has no such partition",
    "needs_key": "it has no key, and its target is compacted, so it takes no record without one",
    "too_large": "it is larger than its target takes",
    "left_out": "the transform left it out",
    "team_never": "its team never lets it go to its target",
    "team_most": "its team lets one plan replay only so many records: make another plan of the rest",
    "not_allowed": "Afterlog is not allowed to write to its target: grant Read and Write on it",
}
"""Reasons of ineligibility, the words for each."""

OUTCOMES = {"DELIVERED": "delivered", "DIED_AGAIN": "died again", "UNKNOWN": "of unknown outcome"}
"""What became of a replayed record, in words."""

DOUBTS = ("other_record_possible", "commit_unknown", "replay_unknown")
"""Reasons in spite of which a person can let records be replayed."""

OVERHEAD = 150  # bytes of a batch and a record, beside key, value and headers


@dataclass(frozen=True)
class Options:
    """What a plan allows. ``to`` is the target topic; None: each record goes back to its original topic.

    ``allowed`` are the `DOUBTS` in spite of which records are replayed.
    """

    to: str | None = None
    again: bool = False
    max_replays: int = 1
    ignore_rules: bool = False
    allowed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise UsageError: what is allowed is no doubt."""
        for name in self.allowed:
            if name not in DOUBTS:
                raise UsageError(
                    f"--allow takes {', '.join(DOUBTS[:-1])} or {DOUBTS[-1]}, not '{elided(visible(name), 40)}'."
                )

    def target_of(self, candidate: Candidate) -> str | None:
        """Return the topic that a dead letter goes to; None if its headers name none."""
        if self.to is not None:
            return self.to
        return None if candidate.row["original_topic_id"] else candidate.row["original_topic"]


def of_record(candidate: Candidate, action: Action, options: Options) -> list[str]:
    """Return the reasons that tables and rules give, without a cluster."""
    row = candidate.row
    reasons = []
    if candidate.state != "accepted":
        return [candidate.state]
    if candidate.copies > 1 and row["dlq_topic_id"] is None:
        reasons.append("ambiguous_place")
    if candidate.is_marker:
        reasons.append("control_marker")
    elif row["control_marker_suspected"] and candidate.is_marker is None:
        reasons.append("control_marker_suspected")
    if candidate.is_aborted:
        reasons.append("aborted_transaction")
    if candidate.write_state == "ABORTED":
        reasons.append("rolled_back")
    if candidate.replayed is not None and not options.again:
        reasons.append("replayed_before")
    reasons += of_attempts(candidate, options)
    is_ruled = candidate.is_discarded_by_rule and (action == "DISCARD" or options.ignore_rules)
    if candidate.is_discarded and not options.again and not is_ruled:
        reasons.append("discarded")
    if action in ("HOLD", "DISCARD") and not options.ignore_rules:
        reasons.append(action.lower())
    if row["masked"]:
        reasons.append("masked")
    elif row["lossy_encoding"]:
        reasons.append("lossy_encoding")
    target = options.target_of(candidate)
    if target is None:
        reasons.append("topic_is_id" if row["original_topic_id"] else "no_source")
    elif candidate.limits.forbid(target):
        reasons.append("team_never")
    return reasons


def of_attempts(candidate: Candidate, options: Options) -> list[str]:
    """Return the reason that a record gives that died after more replays than the plan, or its team, allows."""
    own = candidate.limits.max_replays
    most = options.max_replays if own is None else min(own, options.max_replays)
    is_over = candidate.attempt - 1 > most and candidate.replayed is None
    return ["died_after_replay"] if is_over else []


def of_target(candidate: Candidate, options: Options, targets: Mapping[str, Topic]) -> list[str]:
    """Return the reasons that the target topic gives; ``targets`` lacks topics that do not exist."""
    topic = options.target_of(candidate)
    if topic is None:
        return []
    reasons = []
    target = targets.get(topic)
    if target is not None and target.is_dead_letter_topic:
        reasons.append("loop")
    if target is None:
        return [*reasons, "target_gone"]
    if target.may_write is False:
        reasons.append("not_allowed")
    if options.to is None:
        ends = target.ends or ()
        partition, offset = candidate.row["original_partition"], candidate.row["original_offset"]
        if partition is not None and not 0 <= partition < len(ends):
            reasons.append("partition_gone")
        elif partition is not None and offset is not None and offset >= ends[partition]:
            reasons.append("target_recreated")
    return reasons


def is_too_large(key: bytes | None, value: bytes | None, headers: Collection[Any], target: Topic) -> bool:
    """Tell whether a record is larger than a topic's max.message.bytes lets a batch of one record be."""
    if target.max_message_bytes is None:
        return False
    size = OVERHEAD + len(key or b"") + len(value or b"")
    size += sum(len(name.encode("utf-8", "surrogatepass")) + len(content or b"") + 10 for name, content in headers)
    return size + ADDED > target.max_message_bytes


ADDED = 400
"""Bytes of the headers that a replay adds, at most for names of usual length."""
