"""An episode and the other episodes of its topic -> a verdict, the figures behind it, and a sentence.

Each rule looks at one figure; the first that holds decides. ``would_change`` names the figure that would give another
verdict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from expectations.owners import key_of, subject
from expectations.rules import counted

POISON_PILL = "POISON_PILL"
KEY_LOCAL = "KEY_LOCAL"
PARTITION_LOCAL = "PARTITION_LOCAL"
PRODUCER_LOCAL = "PRODUCER_LOCAL"
SYSTEMIC = "SYSTEMIC"
REJECTION = "REJECTION"
FLOOD = "FLOOD"
UNDETERMINED = "UNDETERMINED"
VERDICTS = (POISON_PILL, KEY_LOCAL, PARTITION_LOCAL, PRODUCER_LOCAL, SYSTEMIC, REJECTION, FLOOD, UNDETERMINED)

FLOODS = ("CIRCUIT_BREAKER_ARCHIVED", "COORDINATOR_INITIATED")
REJECTED = "CLIENT_REJECTED"
FEW = 5  # source records that can be poison pills
FEW_IF_REPEATED = 12  # if each of them came back at least twice
REPEATED = 3  # records of each, in the mean, that are many times
FEW_KEYS = 3
NEARLY_ALL = 0.9
MOST = 0.75
HIGH_SHARE = 0.3  # of the source's offsets
NEARLY_EVERY = 0.6  # of the source's offsets: records without a shared attribute died too
COMMON = 0.5  # an attribute that other records have as often tells nothing
LEAST_OTHERS = 5  # records of other errors that an attribute is compared with
LEAST_DELIVERED = 20  # messages that went through, if it is compared with these
DELIVERED, DEAD_LETTERS = "delivered messages", "other dead letters"
LANDED, ACKNOWLEDGED, OFFSETS = "records in landed segments", "acknowledged records", "offsets"
MOST_OFFSETS = 2**63 - 1  # the greatest bigint: headers can name any offset
MOST_PARTITIONS = 2**31 - 1  # the greatest int: headers can name any partition
LONGEST_GAP = 1.25  # offsets between acknowledged ones in the mean, if these are all records: markers lie between

Row = Mapping[str, Any]


Counts = dict[tuple[str, str], dict[str, int]]


def _counts() -> defaultdict[Any, dict[str, int]]:
    return defaultdict(lambda: defaultdict(int))


@dataclass(frozen=True)
class Messages:
    """Clients and headers of acknowledged messages: how many name them, and how common each is."""

    totals: Mapping[str, int]
    counts: Mapping[tuple[str, str, int], int]

    @classmethod
    def of(cls, row: Row | None) -> Messages | None:
        """Return what acknowledgements tell; None if nothing."""
        if row is None:
            return None
        counts = {(one["kind"], one["name"], one["value"]): -one["negative"] for one in row["attributes"] or ()}
        return cls({"client": row["named_count"], "header": row["headed_count"]}, counts)

    def share(self, attribute: tuple[str, str, int], least: int) -> float | None:
        """Return which share of the messages has an attribute; None if too few tell it.

        A header that none of them has may be the writer's of dead letters: they do not tell how common its value is.
        """
        total = self.totals.get(attribute[0], 0)
        if attribute[0] == "header" and all(known[:2] != attribute[:2] for known in self.counts):
            return None
        return min(1.0, self.counts.get(attribute, 0) / total) if total >= least else None

    def least_shares(self, number: int) -> dict[tuple[str, str, int], float]:
        """Return which share at least of ``number`` messages has each attribute, if these are among the messages."""
        found = {}
        for attribute, count in self.counts.items():
            total = self.totals.get(attribute[0], 0)
            if total >= NEARLY_ALL * number:
                found[attribute] = min(1.0, (count - max(0, total - number)) / max(min(total, number), 1))
        return found


@dataclass
class Topic:
    """What all episodes of a source topic tell: its partitions, and how common attributes are.

    ``delivered`` are its messages that went through, as far as acknowledgements tell.
    """

    partitions: set[int] = field(default_factory=set)
    records: Counts = field(default_factory=_counts)
    attributes: dict[tuple[str, str, int], dict[str, int]] = field(default_factory=_counts)
    delivered: Messages | None = None

    @classmethod
    def of(cls, episodes: Iterable[Row]) -> Topic:
        """Return what these episodes tell of their topic."""
        topic = cls()
        for episode in episodes:
            fingerprint, attributes = episode["fingerprint"], episode["attributes"] or ()
            topic.delivered = topic.delivered or Messages.of(episode.get("delivered"))
            topic.partitions.update(one["original_partition"] for one in episode["partitions"] or ())
            for kind in {_kind_of(one["kind"], one["name"]) for one in attributes}:
                topic.records[kind][fingerprint] += episode["record_count"]
            for one in attributes:
                topic.attributes[one["kind"], one["name"], one["value"]][fingerprint] += one["record_count"]
        return topic

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has at least: Kafka numbers them from 0."""
        return min(max(self.partitions, default=-1) + 1, MOST_PARTITIONS)

    def share_elsewhere(self, attribute: tuple[str, str, int], fingerprint: str) -> tuple[float | None, str | None]:
        """Return how common an attribute is among other records, and among which; None if too few are known.

        These are the messages that went through, if acknowledgements tell them, or else records of other errors.
        Only records that have attributes of its kind count: share groups drop headers, and a payload that was not
        copied has no schema id.
        """
        if self.delivered and (share := self.delivered.share(attribute, LEAST_DELIVERED)) is not None:
            return share, DELIVERED
        others = self.records[_kind_of(*attribute[:2])]
        number = sum(count for name, count in others.items() if name != fingerprint)
        if number < LEAST_OTHERS:
            return None, None
        having = sum(count for name, count in self.attributes[attribute].items() if name != fingerprint)
        return min(1.0, having / number), DEAD_LETTERS


def _kind_of(kind: str, name: str) -> tuple[str, str]:
    """Return what attributes are compared within: all headers, or the schema ids of a part."""
    return (kind, "" if kind == "header" else name)


@dataclass(frozen=True)
class Evidence:
    """The figures that decide; shares are between 0 and 1, and null where nothing tells them."""

    offset_share: float | None = None
    offset_share_of: str | None = None
    window_offset_count: int | None = None
    window_record_count: int | None = None
    partition: int | None = None
    partition_share: float | None = None
    partition_count: int = 0
    key_share: float | None = None
    attribute_kind: str | None = None
    attribute_name: str | None = None
    attribute_value: int | None = None
    attribute_share: float | None = None
    attribute_share_elsewhere: float | None = None
    attribute_compared_with: str | None = None
    is_rejection: bool | None = None


@dataclass(frozen=True)
class Judgement:
    """A verdict with its evidence, and sentences about both."""

    verdict: str
    evidence: Evidence
    sentence: str
    would_change: str


def evidence_of(episode: Row, topic: Topic) -> Evidence:
    """Return the figures of an episode."""
    records, sources = episode["record_count"], episode["source_record_count"]
    partitions = episode["partitions"] or []
    placed = sum(one["source_record_count"] for one in partitions)
    top = max(partitions, key=lambda one: (one["source_record_count"], -one["original_partition"]), default=None)
    keyed = episode["keyed_count"] or 0
    keys = episode["top_keys"] or []
    attribute, share, elsewhere, compared_with = _attribute(episode, topic, placed)
    windows = (one["last_offset"] - one["first_offset"] + 1 for one in partitions if one["source_record_count"] > 1)
    offsets = min(sum(windows), MOST_OFFSETS)
    told, is_of_pills = episode.get("windows"), is_few(sources, records)
    around = _neighbours(told, sources) if is_of_pills else None
    held, of = around or _held(None if is_of_pills else told, offsets)
    died = min(1.0, sources / around[0]) if around else _offset_share(episode, placed, offsets, held)
    return Evidence(
        offset_share=died,
        offset_share_of=of if died is not None else None,
        window_offset_count=None if around else offsets or None,
        window_record_count=held,
        partition=top["original_partition"] if top else None,
        partition_share=top["source_record_count"] / placed if top else None,
        partition_count=topic.partition_count,
        key_share=sum(one["record_count"] for one in keys[:FEW_KEYS]) / records
        if keyed >= NEARLY_ALL * records
        else None,
        attribute_kind=attribute[0] if attribute else None,
        attribute_name=attribute[1] if attribute else None,
        attribute_value=attribute[2] if attribute else None,
        attribute_share=share,
        attribute_share_elsewhere=elsewhere,
        attribute_compared_with=compared_with,
        is_rejection=_is_rejection(episode) if sources else None,
    )


def is_few(sources: int, records: int) -> bool:
    """Tell whether so few source records failed that they can be poison pills."""
    return sources <= FEW or (sources <= FEW_IF_REPEATED and records >= REPEATED * sources)


IS_FEW = (
    f"(source_record_count <= {FEW}"
    f" OR (source_record_count <= {FEW_IF_REPEATED} AND record_count >= {REPEATED} * source_record_count))"
)
"""`is_few` of an episode in SQL."""


def _neighbours(windows: Row | None, sources: int) -> tuple[int, str] | None:
    """Return how many records other feeds know around poison pills, themselves included, and who tells; None: nobody.

    Acknowledgements tell if the dead-lettered records of these slices have them: others are not among what they tell.
    """
    if windows is None:
        return None
    told = [(windows["landed_count"] - windows["without_record_count"], LANDED)]
    if _has_acknowledged_dead(windows):
        told.append((windows["acknowledged_count"], ACKNOWLEDGED))
    count, of = max(told, key=lambda one: one[0])
    return (count, of) if count >= max(sources, 2) else None


def _has_acknowledged_dead(windows: Row) -> bool:
    """Tell whether nearly every dead-lettered record of the slices has an acknowledgement."""
    dead = windows["dead_lettered_count"]
    return bool(windows["acknowledged_dead_lettered_count"] >= NEARLY_ALL * dead)


def _held(windows: Row | None, offsets: int) -> tuple[int | None, str]:
    """Return how many of an episode's offsets hold records, and who tells: None, and offsets, if nobody does.

    Segments tell if nearly all of the offsets landed. Acknowledgements tell if nearly every dead-lettered record of
    these slices has one, and if what lies between them is as short as the markers of transactions: otherwise not every
    producer tells. What has the greater number counts: compaction removes records that were there.
    """
    if windows is None or not offsets:
        return None, OFFSETS
    told = []
    if windows["landed_count"] >= NEARLY_ALL * offsets:
        told.append((offsets - windows["without_record_count"], LANDED))
    sent = windows["acknowledged_count"]
    if _has_acknowledged_dead(windows) and offsets - sent <= LONGEST_GAP * windows["acknowledged_range_count"]:
        told.append((sent, ACKNOWLEDGED))
    count, of = max(told, key=lambda one: one[0], default=(0, OFFSETS))
    return (count, of) if count > 0 else (None, OFFSETS)


def _offset_share(episode: Row, placed: int, offsets: int, held: int | None) -> float | None:
    """Return which share of the records around the source records was dead-lettered; None if nothing tells it.

    Two figures can tell it, and the greater one does: how near the neighbours within a half hour are, and how many of
    all ``offsets`` from a partition's first to its last record are of the incident. Other feeds can tell how many of
    these offsets ``held`` records. If not, a topic that is written in transactions has a marker behind each of them:
    where nearly all steps are equal, the offsets between hold no records.
    """
    if not placed:
        return None
    steps = max(episode[f"step_of_{step}_count"] or 0 for step in ("two", "three"))
    if held is None and placed >= FEW and steps >= 0.8 * placed:
        return 1.0
    of_partitions = sum(one["source_record_count"] for one in episode["partitions"] if one["source_record_count"] > 1)
    of_all: float = of_partitions / offsets if offsets else 0.0
    scattered = episode["scattered_count"] or 0
    near: float = 8 * scattered / max(episode["scattered_span"], 1) if scattered >= COMMON * placed else 0.0
    share = max(of_all, near) * (offsets / held if held else 1)
    return min(1.0, share)


def _attribute(
    episode: Row, topic: Topic, placed: int
) -> tuple[tuple[str, str, int] | None, float | None, float | None, str | None]:
    """Return the attribute that nearly all records of an episode share and other records do not, and its shares.

    Acknowledgements tell attributes of the source records, ``placed`` in number, that dead letters lack: share groups
    drop headers, and no dead letter names the client. A client counts only against messages that went through. Where
    all messages died, nothing tells how common these are: most topics have headers that are always the same.
    """
    records = episode["record_count"]
    if episode["source_record_count"] <= FEW:
        return None, None, None, None  # few records share much by chance
    is_of_few_keys = (episode["key_count"] or 0) <= FEW_KEYS
    told = Messages.of(episode.get("told"))
    shares = told.least_shares(placed) if told else {}
    shown = {(one["kind"], one["name"], one["value"]) for one in episode["attributes"] or ()}
    for one in episode["attributes"] or ():
        if (is_of_few_keys and one["name"] == "key") or (
            one["kind"] == "key_prefix" and (episode["key_count"] or 0) < 2
        ):
            continue  # it only says that the keys are few
        shares[one["kind"], one["name"], one["value"]] = one["record_count"] / records
    best: tuple[float, tuple[str, str, int], float, float | None, str | None] | None = None
    for attribute, share in shares.items():
        elsewhere, compared_with = topic.share_elsewhere(attribute, episode["fingerprint"])
        if share < NEARLY_ALL or (elsewhere is not None and elsewhere > COMMON):
            continue
        if attribute[0] == "client" and compared_with != DELIVERED:
            continue
        if attribute not in shown and elsewhere is None:
            continue
        rank = share - (elsewhere if elsewhere is not None else COMMON)
        if best is None or rank > best[0]:
            best = rank, attribute, share, elsewhere, compared_with
    return best[1:] if best else (None, None, None, None)


def _is_rejection(episode: Row) -> bool | None:
    """Tell whether the application refused the records; None if it threw an exception, or nothing tells."""
    disposition = episode["disposition"]
    return disposition == REJECTED if disposition else None


def judge(episode: Row, topic: Topic) -> Judgement:
    """Return the verdict on an episode."""
    found = evidence_of(episode, topic)
    records, sources = episode["record_count"], episode["source_record_count"]
    verdict = _verdict(episode, found)
    who = subject(*key_of(episode))
    of = f"{counted(records, 'record')} of {episode['original_topic'] or 'an unknown topic'}"
    why, change = _words(verdict, episode, found, sources)
    return Judgement(verdict, found, f"{who} could not process {of}: {why}", change)


def _verdict(episode: Row, found: Evidence) -> str:
    records, sources = episode["record_count"], episode["source_record_count"]
    keys, share = episode["key_count"] or 0, found.offset_share or 0.0
    if episode["disposition"] in FLOODS:
        return FLOOD
    is_of_few_keys = found.key_share is not None and found.key_share >= MOST and sources >= 2 * min(keys, FEW_KEYS)
    if is_of_few_keys and sources > 2:
        return KEY_LOCAL
    if is_few(sources, records):
        return POISON_PILL
    one_partition = (found.partition_share or 0.0) >= NEARLY_ALL and found.partition_count > 1
    has_attribute = found.attribute_kind in ("header", "schema_id", "client")
    if has_attribute and found.attribute_share_elsewhere is not None and share < NEARLY_EVERY:
        return PRODUCER_LOCAL
    if one_partition:
        return PARTITION_LOCAL
    if share >= HIGH_SHARE:
        return SYSTEMIC
    return REJECTION if found.is_rejection else UNDETERMINED


def percent(share: float) -> str:
    """Return a share in words, such as `93 %`; never 100 % or 0 % if it is not exactly that."""
    if 0 < share < 0.005:
        return "less than 1 %"
    if 0.995 <= share < 1:
        return "more than 99 %"
    return f"{share:.0%}".replace("%", " %")


def among(episode: Row, found: Evidence | Row) -> str:
    """Say how many of the records around a few source records are these."""
    told = found if isinstance(found, Mapping) else vars(found)
    placed = sum(one["source_record_count"] for one in episode["partitions"] or ())
    died = min(placed, episode["source_record_count"])
    of = f"{told['window_record_count']:,} {told['offset_share_of']}"
    return f"{died:,} of the {of} around {'it' if died == 1 else 'them'} died of it"


def _words(verdict: str, episode: Row, found: Evidence, sources: int) -> tuple[str, str]:
    """Return why the verdict holds, and what would change it, as a clause and a sentence."""
    records, keys = episode["record_count"], episode["key_count"] or 0
    share = found.offset_share
    top: Sequence[Row] = episode["top_records"] or []
    died = (
        f"{percent(share)} of the {found.offset_share_of} around them died"
        if share is not None
        else "nothing tells which share died"
    )
    if verdict == POISON_PILL:
        if sources == 1 and top:
            place = f"{episode['original_topic']}-{top[0]['original_partition']}@{top[0]['original_offset']}"
            alone = f"; {among(episode, found)}" if found.window_record_count is not None else ""
            return (
                f"one source record, {place}, was dead-lettered {counted(records, 'time')}{alone}.",
                f"More than {FEW} source records would make it KEY_LOCAL, PARTITION_LOCAL or SYSTEMIC.",
            )
        has_neighbours = found.window_record_count is not None
        died = among(episode, found) if has_neighbours else died
        around = ", while their neighbours went through" if share is not None and share < HIGH_SHARE else ""
        around += f"; {died}" if has_neighbours or not around else ""
        return (
            f"{counted(sources, 'source record')}{around}.",
            f"More than {FEW} source records would make it KEY_LOCAL, PARTITION_LOCAL or SYSTEMIC.",
        )
    if verdict == KEY_LOCAL:
        few = "one key has" if keys == 1 else f"{min(keys, FEW_KEYS)} of {keys:,} keys have"
        return (
            f"{few} {percent(found.key_share or 0)} of them.",
            f"A share of these keys below {percent(MOST)} would make it PARTITION_LOCAL or SYSTEMIC.",
        )
    if verdict == PARTITION_LOCAL:
        return (
            f"{percent(found.partition_share or 0)} are of partition {found.partition}, and the topic has "
            f"{found.partition_count} or more; {died}.",
            f"A share of partition {found.partition} below {percent(NEARLY_ALL)} would make it SYSTEMIC.",
        )
    if verdict == PRODUCER_LOCAL:
        what = {
            "schema_id": "share one schema id",
            "client": f"were produced by client {found.attribute_name}",
        }.get(found.attribute_kind or "", f"share one value of header {found.attribute_name}")
        others = f"{percent(found.attribute_share_elsewhere or 0)} of {found.attribute_compared_with}"
        return (
            f"{percent(found.attribute_share or 0)} {what}, and {others}.",
            f"It would be no evidence if more than {percent(COMMON)} of {found.attribute_compared_with} had it.",
        )
    if verdict == SYSTEMIC:
        return (
            f"{died}, in {counted(len(episode['partitions'] or ()), 'partition')}"
            + (f" and {'' if episode['is_key_count_exact'] else 'about '}{counted(keys, 'key')}." if keys else "."),
            f"A share below {percent(HIGH_SHARE)} would leave it undetermined.",
        )
    if verdict == FLOOD:
        return (
            "a circuit breaker or the coordinator archived them, the application did not fail on each.",
            "Another disposition than those of a circuit breaker or the coordinator would change it.",
        )
    reason = "the application rejected them" if verdict == REJECTION else "no partition, key or header stands out"
    return (
        f"{reason}; {died}.",
        f"A share of at least {percent(HIGH_SHARE)} would make it SYSTEMIC; {percent(NEARLY_ALL)} in one partition "
        "would make it PARTITION_LOCAL.",
    )
