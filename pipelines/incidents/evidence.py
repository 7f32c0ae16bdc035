"""An episode and the other episodes of its topic -> the figures that decide about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

REJECTED = "CLIENT_REJECTED"
FEW = 5  # source records that can be poison pills
FEW_IF_REPEATED = 12  # if each of them came back at least twice
REPEATED = 3  # records of each, in the mean, that are many times
LEAST_KEYS = 64  # whose hashes are kept, so that so many are known
FEW_KEYS = 3
MOST_KEYS = 8  # whose records are counted in each slice and half hour: if there are more, counts are the least
NEARLY_ALL = 0.9
COMMON = 0.5  # an attribute that other records have as often tells nothing
LEAST_OTHERS = 5  # records of other errors that an attribute is compared with
LEAST_DELIVERED = 20  # messages that went through, if it is compared with these
DELIVERED, DEAD_LETTERS = "delivered messages", "other dead letters"
LANDED, ACKNOWLEDGED, OFFSETS = "records in landed segments", "acknowledged records", "offsets"
NO_MARKERS = "offsets that do not look like markers"
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
        counts = {
            (attribute["kind"], attribute["name"], attribute["value"]): -attribute["negative"]
            for attribute in row["attributes"] or ()
        }
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
        shares = {}
        for attribute, count in self.counts.items():
            total = self.totals.get(attribute[0], 0)
            if total >= NEARLY_ALL * number:
                shares[attribute] = min(1.0, (count - max(0, total - number)) / max(number, 1))
        return shares


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
            topic.partitions.update(partition["original_partition"] for partition in episode["partitions"] or ())
            for kind in {_kind_of(attribute["kind"], attribute["name"]) for attribute in attributes}:
                topic.records[kind][fingerprint] += episode["record_count"]
            for attribute in attributes:
                topic.attributes[attribute["kind"], attribute["name"], attribute["value"]][fingerprint] += attribute[
                    "record_count"
                ]
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


def evidence_of(episode: Row, topic: Topic) -> Evidence:
    """Return the figures of an episode."""
    records, sources = episode["record_count"], episode["source_record_count"]
    partitions = episode["partitions"] or []
    located = located_count(episode)
    top = max(
        partitions,
        key=lambda partition: (partition["source_record_count"], -partition["original_partition"]),
        default=None,
    )
    keyed = episode["keyed_count"] or 0
    keys = episode["top_keys"] or []
    attribute, share, elsewhere, compared_with = _attribute(episode, topic, located)
    windows = (
        partition["last_offset"] - partition["first_offset"] + 1
        for partition in partitions
        if partition["source_record_count"] > 1
    )
    offsets = 0 if is_few(sources, records) else min(sum(windows), MOST_OFFSETS)
    held, share_of = (_held(episode.get("windows"), offsets) if offsets else _neighbours(episode, located)) or (
        None,
        None,
    )
    share_died, share_of = _share_of_records(episode, located, offsets, held, share_of)
    return Evidence(
        offset_share=share_died,
        offset_share_of=share_of,
        window_offset_count=offsets or None,
        window_record_count=held,
        partition=top["original_partition"] if top else None,
        partition_share=min(1.0, top["source_record_count"] / sources)
        if top and located >= NEARLY_ALL * sources
        else None,
        partition_count=topic.partition_count,
        key_share=sum(key["record_count"] for key in keys[:FEW_KEYS]) / records
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


def most_pills(records: int) -> int:
    """Return of how many source records at most these dead letters can be those of poison pills."""
    return max(FEW, min(FEW_IF_REPEATED, records // REPEATED))


def is_few(sources: int, records: int) -> bool:
    """Tell whether so few source records failed that they can be poison pills."""
    return sources <= most_pills(records)


IS_FEW = (
    f"(source_record_count <= {FEW}"
    f" OR (source_record_count <= {FEW_IF_REPEATED} AND record_count >= {REPEATED} * source_record_count))"
)
"""`is_few` of an episode in SQL."""


def _neighbours(episode: Row, located: int) -> tuple[int, str] | None:
    """Return how many records other feeds know around poison pills, themselves included, and who tells; None: nobody.

    A feed tells if it knows each of the pills.
    """
    windows = episode.get("windows")
    if windows is None or not is_few(episode["source_record_count"], episode["record_count"]):
        return None
    counts = []
    if episode.get("landed_pill_count") == located:
        counts.append((windows["landed_count"] - windows["without_record_count"], LANDED))
    if episode.get("acknowledged_pill_count") == located:
        counts.append((windows["acknowledged_count"], ACKNOWLEDGED))
    count, source = max(counts, key=lambda pair: pair[0], default=(0, OFFSETS))
    return (count, source) if count >= max(located, 2) else None


def _held(windows: Row | None, offsets: int) -> tuple[int, str] | None:
    """Return how many of an episode's offsets hold records, and who tells; None: nobody.

    Segments tell if all of the offsets landed. Acknowledgements tell if nearly every dead-lettered record of these
    slices has one, and if what lies between them is as short as the markers of transactions: otherwise not every
    producer tells. What has the greater number counts: compaction removes records that were there.
    """
    if windows is None:
        return None
    counts = []
    if windows["landed_count"] >= offsets:
        counts.append((offsets - windows["without_record_count"], LANDED))
    sent, dead = windows["acknowledged_count"], windows["dead_lettered_count"]
    are_dead_told = windows["acknowledged_dead_lettered_count"] >= NEARLY_ALL * dead
    if are_dead_told and offsets - sent <= LONGEST_GAP * windows["acknowledged_range_count"]:
        counts.append((sent, ACKNOWLEDGED))
    count, source = max(counts, key=lambda pair: pair[0], default=(0, OFFSETS))
    return (count, source) if count > 0 else None


def _share_of_records(
    episode: Row, located: int, offsets: int, held: int | None, share_of: str | None
) -> tuple[float | None, str | None]:
    """Return which share of the records around the source records was dead-lettered, and of what; None: nothing tells.

    Around poison pills only other feeds tell it. Else two figures can, and the greater one does: how near the
    neighbours within a half hour are, and how many of all ``offsets`` from a partition's first to its last record are
    of the incident. Other feeds can tell how many of these offsets ``held`` records. If not, a topic that is written
    in transactions has a marker behind each of them: where nearly all steps are of two, the offsets between hold no
    records. Steps of three are no sign: there may be a record between that went through.
    """
    if is_few(episode["source_record_count"], episode["record_count"]):
        return (located / held, share_of) if held else (None, None)
    times = located + (episode.get("repeat_count") or 0)
    steps = episode["step_of_two_count"] or 0
    if held is None and times >= FEW and steps >= 0.8 * times:
        return steps / times, NO_MARKERS
    of_partitions = sum(
        partition["source_record_count"] for partition in episode["partitions"] if partition["source_record_count"] > 1
    )
    scattered = episode["scattered_count"] or 0
    near = 8 * scattered / max(episode["scattered_span"], 1) if scattered and scattered >= COMMON * times else 0.0
    share = max(of_partitions / offsets if offsets else 0.0, near) * (offsets / held if held else 1)
    return (min(1.0, share), share_of or OFFSETS) if share else (None, None)


def _attribute(
    episode: Row, topic: Topic, located: int
) -> tuple[tuple[str, str, int] | None, float | None, float | None, str | None]:
    """Return the attribute that nearly all records of an episode share and other records do not, and its shares.

    Acknowledgements tell attributes of the source records, ``located`` in number, that dead letters lack: share groups
    drop headers, and no dead letter names the client. A client counts only against messages that went through. Where
    all messages died, nothing tells how common these are: most topics have headers that are always the same.
    """
    records = episode["record_count"]
    if episode["source_record_count"] <= FEW:
        return None, None, None, None  # few records share much by chance
    is_of_few_keys = (episode["key_count"] or 0) <= FEW_KEYS
    messages = Messages.of(episode.get("told"))
    shares = messages.least_shares(located) if messages else {}
    shown = {(attribute["kind"], attribute["name"], attribute["value"]) for attribute in episode["attributes"] or ()}
    for row in episode["attributes"] or ():
        if (is_of_few_keys and row["name"] == "key") or (
            row["kind"] == "key_prefix" and (episode["key_count"] or 0) < 2
        ):
            continue  # it only says that the keys are few
        shares[row["kind"], row["name"], row["value"]] = row["record_count"] / records
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


def located_count(episode: Row) -> int:
    """Return how many source records are known by their coordinates."""
    sources: int = episode["source_record_count"]
    located: int = sum(partition["source_record_count"] for partition in episode["partitions"] or ())
    return min(located, sources)  # rows of earlier versions count some of them again
