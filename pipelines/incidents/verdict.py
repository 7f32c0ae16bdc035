"""An episode and the other episodes of its topic -> a verdict, the figures behind it, and a sentence.

Each rule looks at one figure; the first that holds decides. ``would_change`` names the figure that would give another
verdict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor
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

FLOODS = {"CIRCUIT_BREAKER_ARCHIVED": "a circuit breaker", "COORDINATOR_INITIATED": "the coordinator"}
"""Dispositions of records that were archived without a failure of each, and who did it."""
REJECTED = "CLIENT_REJECTED"
FEW = 5  # source records that can be poison pills
FEW_IF_REPEATED = 12  # if each of them came back at least twice
REPEATED = 3  # records of each, in the mean, that are many times
LEAST_KEYS = 64  # whose hashes are kept, so that so many are known
ERROR_OF_KEYS = 0.25  # two standard errors of an estimate from them
FEW_KEYS = 3
MOST_KEYS = 8  # whose records are counted in each slice and half hour: if there are more, counts are the least
NEARLY_ALL = 0.9
MOST = 0.75
HIGH_SHARE = 0.3  # of the source's offsets
NEARLY_EVERY = 0.6  # of the source's offsets: records without a shared attribute died too
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
    placed = _placed(episode)
    top = max(
        partitions,
        key=lambda partition: (partition["source_record_count"], -partition["original_partition"]),
        default=None,
    )
    keyed = episode["keyed_count"] or 0
    keys = episode["top_keys"] or []
    attribute, share, elsewhere, compared_with = _attribute(episode, topic, placed)
    windows = (
        partition["last_offset"] - partition["first_offset"] + 1
        for partition in partitions
        if partition["source_record_count"] > 1
    )
    offsets = 0 if is_few(sources, records) else min(sum(windows), MOST_OFFSETS)
    held, share_of = (_held(episode.get("windows"), offsets) if offsets else _neighbours(episode, placed)) or (
        None,
        None,
    )
    share_died, share_of = _share_of_records(episode, placed, offsets, held, share_of)
    return Evidence(
        offset_share=share_died,
        offset_share_of=share_of,
        window_offset_count=offsets or None,
        window_record_count=held,
        partition=top["original_partition"] if top else None,
        partition_share=min(1.0, top["source_record_count"] / sources)
        if top and placed >= NEARLY_ALL * sources
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


def _neighbours(episode: Row, placed: int) -> tuple[int, str] | None:
    """Return how many records other feeds know around poison pills, themselves included, and who tells; None: nobody.

    A feed tells if it knows each of the pills.
    """
    windows = episode.get("windows")
    if windows is None or not is_few(episode["source_record_count"], episode["record_count"]):
        return None
    counts = []
    if episode.get("landed_pill_count") == placed:
        counts.append((windows["landed_count"] - windows["without_record_count"], LANDED))
    if episode.get("acknowledged_pill_count") == placed:
        counts.append((windows["acknowledged_count"], ACKNOWLEDGED))
    count, source = max(counts, key=lambda pair: pair[0], default=(0, OFFSETS))
    return (count, source) if count >= max(placed, 2) else None


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
    episode: Row, placed: int, offsets: int, held: int | None, share_of: str | None
) -> tuple[float | None, str | None]:
    """Return which share of the records around the source records was dead-lettered, and of what; None: nothing tells.

    Around poison pills only other feeds tell it. Else two figures can, and the greater one does: how near the
    neighbours within a half hour are, and how many of all ``offsets`` from a partition's first to its last record are
    of the incident. Other feeds can tell how many of these offsets ``held`` records. If not, a topic that is written
    in transactions has a marker behind each of them: where nearly all steps are of two, the offsets between hold no
    records. Steps of three are no sign: there may be a record between that went through.
    """
    if is_few(episode["source_record_count"], episode["record_count"]):
        return (placed / held, share_of) if held else (None, None)
    times = placed + (episode.get("repeat_count") or 0)
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
    messages = Messages.of(episode.get("told"))
    shares = messages.least_shares(placed) if messages else {}
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


def in_words(verdict: str) -> str:
    """Return a verdict as people write it."""
    return verdict.replace("_", " ").lower()


def percent(share: float) -> str:
    """Return a share in words, such as `93 %`; never 100 % or 0 % if it is not exactly that."""
    if 0 < share < 0.005:
        return "less than 1 %"
    if 0.995 <= share < 1:
        return "more than 99 %"
    return f"{share:.0%}".replace("%", " %")


def at_least(share: float) -> str:
    """Return in words a share of which more may be true."""
    return percent(share) if share == 1 else f"at least {floor(100 * share)} %"


def among(episode: Row, evidence: Evidence | Row) -> str:
    """Say how many of the records around a few source records are these."""
    figures = evidence if isinstance(evidence, Mapping) else vars(evidence)
    died = _placed(episode)
    whole = f"{figures['window_record_count']:,} {figures['offset_share_of']}"
    return f"{died:,} of the {whole} around {'it' if died == 1 else 'them'} died of it"


def _placed(episode: Row) -> int:
    """Return how many source records are known by their places."""
    sources: int = episode["source_record_count"]
    placed: int = sum(partition["source_record_count"] for partition in episode["partitions"] or ())
    return min(placed, sources)  # rows of earlier versions count some of them again


def sources_of(episode: Row) -> str:
    """Say how many source records an episode has; records that name none can be of one or of several."""
    placed = _placed(episode)
    if not placed:
        return f"at most {counted(episode['source_record_count'], 'unnamed source record')}"
    unknown = episode["source_record_count"] - placed
    return counted(placed, "source record") + (f" and at most {counted(unknown, 'unknown one')}" if unknown else "")


def are_all_counted(episode: Row) -> bool:
    """Tell whether all dead letters of the top records are counted: of many, each slice and half hour counts some."""
    one_each = bool(episode["record_count"] == episode["source_record_count"])
    return one_each or _placed(episode) <= len(episode["top_records"] or ())


def keys_of(episode: Row) -> str:
    """Say how many keys an episode has; if there are many, between which numbers the estimate lies."""
    keys = episode["key_count"] or 0
    if episode["is_key_count_exact"]:
        return counted(keys, "key")
    most = episode["keyed_count"] or keys
    least = min(_rounded(max(LEAST_KEYS, (1 - ERROR_OF_KEYS) * keys)), most)
    most = min(_rounded((1 + ERROR_OF_KEYS) * keys), most)
    return f"{least:,} to {most:,} keys" if least < most else counted(most, "key")


def _rounded(number: float) -> int:
    """Return a number with two digits that are not 0."""
    return int(round(number, min(0, 2 - len(str(round(number))))))


def few_keys(episode: Row) -> str:
    """Say how many keys the share of the most frequent ones is of."""
    keys = min(episode["key_count"] or 0, FEW_KEYS)
    return "one key" if keys == 1 else f"{keys} keys"


def key_percent(episode: Row, share: float) -> str | None:
    """Return the share of the most frequent keys in words; None if all that is known is that some records have them."""
    if (episode["key_count"] or 0) <= MOST_KEYS:
        return percent(share)
    return at_least(share) if share >= 0.01 else None


def at_offset(topic: str | None, partition: int | None, offset: int | None) -> str:
    """Return the place of a source record as commands write it; ``?`` for a topic that is not known."""
    return f"{topic or '?'}:{partition}:{offset}"


def died_around(episode: Row, evidence: Evidence | Row) -> str | None:
    """Say how many, or which share, of the records around those of an incident died of it; None: nothing tells."""
    figures = evidence if isinstance(evidence, Mapping) else vars(evidence)
    if figures["window_record_count"] is not None and figures["window_offset_count"] is None:
        return among(episode, evidence)
    share = figures["offset_share"]  # rows of earlier versions have 0 where nothing is known
    return f"{percent(share)} of the {figures['offset_share_of'] or OFFSETS} around them died" if share else None


def of_all(row: Row) -> str | None:
    """Say which share of all between an incident's first and last source records died, if another one is told.

    Neighbours within a half hour can tell a greater share (`_share_of_records`). None: nothing else is known.
    """
    known, share = row["window_record_count"] or row["window_offset_count"], row["offset_share"]
    if not known or not share or row["window_offset_count"] is None or row["offset_share_of"] == NO_MARKERS:
        return None
    of_partitions = (partition["source_record_count"] for partition in row["partitions"] or ())
    whole = percent(min(1.0, sum(count for count in of_partitions if count > 1) / known))
    return f"{whole} of all {known:,} from the first to the last" if whole != percent(share) else None


def shared(kind: str | None, name: str | None) -> str:
    """Say what records with one attribute share; it names no value, but for the client that produced them."""
    return {
        "client": f"were produced by client {name}",
        "schema_id": f"share one schema id of the {name}",
        "key_prefix": "share one prefix of the key",
    }.get(kind or "", f"share one value of header {name}")


def shared_by(evidence: Evidence) -> str:
    """Say what others have of the attribute that the records share, and how many of these."""
    assert evidence.attribute_share_elsewhere is not None
    return f"{percent(evidence.attribute_share_elsewhere)} of {evidence.attribute_compared_with}"


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
