"""silver.dlq_errors -> silver.dlq_episodes: the episodes of each error, with ids that stay."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest
from operator import itemgetter
from typing import Any

from expectations.owners import OWNER, owner_of
from pipelines.incidents import ids
from pipelines.incidents.episodes import Episode, Minute, episodes, merged
from pipelines.incidents.evidence import FEW_IF_REPEATED, LEAST_KEYS, MOST_KEYS

MOST_ATTRIBUTES = 24
HASHES = 2**64
SIGNATURE = (
    "cluster",
    "fingerprint",
    "consumer_group",
    "original_topic",
    "disposition",
    "exception_class",
    "exception_cause_class",
    "error_pattern",
    "error_frame",
    "algorithm_version",
)
SUMS = (
    "record_count",
    "dense_count",
    "scattered_count",
    "scattered_span",
    "step_of_two_count",
    "step_of_three_count",
    "keyed_count",
    "without_payload_count",
    "inferred_count",
    "suspected_count",
)
Row = Mapping[str, Any]


def derive(rows: Sequence[Row], existing_rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Return the episodes of one fingerprint, and a row for each id that another one replaced.

    ``rows`` are all rows of silver.dlq_errors of the fingerprint, in any order.
    """
    minutes = merged(
        (minute["minute"], Minute(*(minute[name] for name in Minute._fields)))
        for row in rows
        for minute in row["minutes"]
    )
    signature = {name: (rows or existing_rows)[0][name] for name in SIGNATURE}
    found = episodes(minutes, signature["algorithm_version"])
    written = sorted((row["anchor_at"], row["incident_id"]) for row in existing_rows)
    signature[OWNER] = owner_of((rows or existing_rows)[0])
    before: str | None = None
    named: set[str] = set()
    in_order = sorted(rows, key=itemgetter("first_at"))
    begins = [row["first_at"] for row in in_order]
    anchors = [anchor for anchor, _ in written]
    for episode in found:
        own = in_order[bisect_left(begins, episode.first_at) : bisect_right(begins, episode.last_at)]
        known = written[bisect_left(anchors, episode.first_at) : bisect_right(anchors, episode.last_at)]
        anchor, name = (
            known[0] if known else (episode.first_at, ids.incident_id(signature["fingerprint"], episode.first_at))
        )
        yield {
            **signature,
            "incident_id": name,
            "anchor_at": anchor,
            "predecessor_id": before,
            **_evidence(episode, own),
        }
        before = name
        named.add(name)
        for other_anchor, other in known[1:]:
            named.add(other)
            yield {**_replaced(signature, other, other_anchor), "merged_into": name}
    for anchor, name in written:
        if name not in named:  # its records do not count any more
            yield _replaced(signature, name, anchor)


def _replaced(signature: Row, name: str, anchor: int) -> dict[str, Any]:
    return {
        **signature,
        "incident_id": name,
        "anchor_at": anchor,
        "record_count": 0,
        "source_record_count": 0,
    }


def _evidence(episode: Episode, rows: Sequence[Row]) -> dict[str, Any]:
    """Return what the rows of an episode say of it."""
    half_hours = {row["half_hour"] for row in rows}
    repeats = [sum(before in half_hours for before in row["seen_before"] or ()) for row in rows]
    sums = {name: sum(row[name] or 0 for row in rows) for name in SUMS}
    keys, are_all = _number_of_keys(rows)
    keys = min(keys, sums["keyed_count"])
    last_in: dict[str, int] = {}
    for row in rows:
        for topic in row["dlq_topics"]:
            last_in[topic["dlq_topic"]] = max(topic["last_at"], last_in.get(topic["dlq_topic"], topic["last_at"]))
    deliveries = [row["most_deliveries"] for row in rows if row["most_deliveries"] is not None]
    timeline: Counter[int] = Counter()
    for row in rows:
        timeline[row["half_hour"]] += row["record_count"]
    return {
        "first_at": episode.first_at,
        "last_at": episode.last_at,
        "pause_seconds": episode.pause // 1_000_000,
        **sums,
        "source_record_count": sum(row["source_record_count"] for row in rows) - sum(repeats),
        "repeat_count": sum(repeats),
        "partitions": _partitions(rows, repeats),
        "top_records": _top_records(rows),
        "key_count": keys,
        "is_key_count_exact": are_all,
        "top_keys": [
            {"value": value, "record_count": count}
            for (value,), count in _top(
                (
                    ((counts_of_value["value"],), counts_of_value)
                    for row in rows
                    for counts_of_value in row["top_keys"] or ()
                ),
                MOST_KEYS,
            )
        ],
        "attributes": [
            {"kind": kind, "name": name, "value": value, "record_count": count}
            for (kind, name, value), count in _top(
                (
                    ((counts_of_value["kind"], counts_of_value["name"], counts_of_value["value"]), counts_of_value)
                    for row in rows
                    for counts_of_value in row["attributes"] or ()
                ),
                MOST_ATTRIBUTES,
            )
        ],
        "dlq_topics": [{"dlq_topic": topic, "last_at": last_in[topic]} for topic in sorted(last_in)],
        "most_deliveries": max(deliveries, default=None),
        "timeline": [{"half_hour": at, "record_count": timeline[at]} for at in sorted(timeline)],
        "escalations": [escalation._asdict() for escalation in episode.escalations],
    }


def _top(counted: Iterator[tuple[tuple[Any, ...], Row]] | Any, most: int) -> list[tuple[tuple[Any, ...], int]]:
    """Return the values with most records; equal counts are in the order of the values."""
    counts: dict[tuple[Any, ...], int] = {}
    for value, counts_of_value in counted:
        counts[value] = counts.get(value, 0) - counts_of_value["negative"]
    return nsmallest(most, counts.items(), key=lambda item: (-item[1], item[0]))


def _top_records(rows: Sequence[Row]) -> list[dict[str, Any]]:
    located = (
        ((row["original_partition"], counts_of_value["value"]), counts_of_value)
        for row in rows
        if row["original_partition"] is not None
        for counts_of_value in row["top_offsets"] or ()
    )
    return [
        {"original_partition": partition, "original_offset": offset, "record_count": count}
        for (partition, offset), count in _top(located, FEW_IF_REPEATED)
    ]


def _number_of_keys(rows: Sequence[Row]) -> tuple[int, bool]:
    """Return how many keys there are, and whether that is exact.

    The least hashes of all keys tell it: if there are fewer than ``LEAST_KEYS``, these are all. Otherwise the greatest
    of the least hashes tells how dense the hashes are.
    """
    least: list[int] = []
    for row in rows:
        hashes = row["least_keys"]  # in order
        if hashes and (len(least) < LEAST_KEYS or hashes[0] < least[-1]):
            least = sorted({*least, *hashes})[:LEAST_KEYS]
    if len(least) < LEAST_KEYS:
        return len(least), True
    span = least[-1] + HASHES // 2
    return max(LEAST_KEYS, (LEAST_KEYS - 1) * HASHES // max(span, 1)), False


def _partitions(rows: Sequence[Row], repeats: Sequence[int]) -> list[dict[str, Any]]:
    """Return the partitions; ``repeats`` are the source records of each row that an earlier one has, too."""
    found: dict[int, dict[str, Any]] = {}
    for row, repeated in zip(rows, repeats, strict=True):
        number = row["original_partition"]
        if number is None or row["first_offset"] is None:
            continue
        new = {name: row[name] for name in ("record_count", "first_offset", "last_offset")}
        new["source_record_count"] = row["source_record_count"] - repeated
        known = found.get(number)
        if known is None:
            found[number] = {"original_partition": number, **new}
            continue
        known["record_count"] += new["record_count"]
        known["source_record_count"] += new["source_record_count"]
        known["first_offset"] = min(known["first_offset"], new["first_offset"])
        known["last_offset"] = max(known["last_offset"], new["last_offset"])
    return [found[number] for number in sorted(found)]
