"""The sets of a record -> the sets from the oldest to the newest.

How the sets of a record are put in order:

- A writer that appends has its newest set behind, one that writes first has it before all others.
- A writer that keeps headers in a map (``newest`` is ``anywhere``) replaces its own set and may shuffle all others, so
  indexes prove nothing. Nor do they for a set whose mandatory headers are scattered: somebody shuffled the record.
- There topics tell: a hop's DLQ topic is the next hop's source topic, and DLQ topics are named after their source or by
  the writer's default. Indexes count only where topics are silent.
- Two sets of a profile with the same topic, partition and offset are one hop, which somebody copied with its headers.
- If a map's set is newer than a set that stands behind some of its headers, it replaced an older one there. Optional
  headers before that index can be left from the older one, so they fill no field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache

from pipelines.columns import globs
from pipelines.columns.header_cuts import HeaderSet, Shape, repeating_of
from pipelines.columns.profiles import KIP_1191, KIP_1317, Header, Profile


@lru_cache(10_000)
def _plain(topic: str) -> str:
    """Return the letters and digits of a topic's name, which people write in other cases and with other separators."""
    return "".join(filter(str.isalnum, topic.casefold()))


def partner(profile: Profile) -> str | None:
    """Return the name of the other profile of a share group's two sets; None for any other profile."""
    return {KIP_1317.name: KIP_1191.name, KIP_1191.name: KIP_1317.name}.get(profile.name)


def newest_of(chain: list[HeaderSet]) -> tuple[list[HeaderSet], list[HeaderSet]]:
    """Return the record's own set, or both sets of a share group, and the older sets."""
    if len(chain) > 1 and chain[-2].profile.name == partner(chain[-1].profile):
        return chain[-2:], chain[:-2]
    return chain[-1:], chain[:-1]


def joined(older: Sequence[HeaderSet]) -> Iterator[list[HeaderSet]]:
    """Yield the older sets, oldest first; two adjacent sets of a share group are one hop."""
    waiting: list[HeaderSet] = []
    for header_set in older:
        if waiting and waiting[0].profile.name == partner(header_set.profile):
            yield [waiting.pop(), header_set]
            continue
        if waiting:
            yield [waiting.pop()]
        waiting = [header_set]
    if waiting:
        yield waiting


def scattered_of(sets: Sequence[HeaderSet]) -> set[HeaderSet]:
    """Return sets whose mandatory headers are out of their order, or have those of another writer between them.

    The writer did not leave them so. The order of a profile of the settings proves nothing: people may not know it.
    """
    writers: dict[int, set[str]] = {}
    for header_set in sets:
        for index in header_set.mandatory_indexes:
            writers.setdefault(index, set()).add(header_set.profile.name)
    return {
        header_set
        for header_set in sets
        if header_set.profile.newest != "anywhere"
        and header_set.profile.kind != "settings"
        and not (_is_in_order(header_set) and _is_alone(header_set, writers))
    }


def _is_in_order(header_set: HeaderSet) -> bool:
    repeating = repeating_of(header_set.profile)
    indexes = [
        header_set.counting[key]
        for key in header_set.profile.mandatory
        if key in header_set.counting and key not in repeating
    ]
    return indexes == sorted(indexes)


def _is_alone(header_set: HeaderSet, writers: Mapping[int, set[str]]) -> bool:
    """Tell whether no mandatory header of another writer stands between those of a set."""
    own = {header_set.profile.name, partner(header_set.profile)}
    between = range(header_set.ends[0] + 1, header_set.ends[1])
    return all(writers.get(index, own) <= own or index in header_set.indexes for index in between)


def age_by_index(header_set: HeaderSet, is_scattered: bool) -> tuple[int, int]:
    """Return how new a set is as far as indexes tell: what was shuffled is older than what still stands in order."""
    if is_scattered:
        return 0, header_set.at
    return (2, -header_set.at) if header_set.profile.newest == "first" else (1, header_set.at)


@cache
def of_coordinate(profile: Profile) -> list[Header]:
    """Return the headers of a profile that tell topic, partition and offset."""
    fields = ("original_topic", "original_partition", "original_offset")
    return [header for header in profile.headers if header.field in fields and not header.path]


def without_copies(sets: Sequence[HeaderSet], shape: Shape) -> list[HeaderSet]:
    """Return the sets without those that a copy of the record's headers repeats; the first copy stays."""
    if shape.topics is None or shape.same is None:
        return [*sets]
    once: dict[object, HeaderSet] = {}
    for header_set in sorted(sets, key=lambda header_set: header_set.at):
        counting = header_set.counting
        keys = {header.field: header.key for header in of_coordinate(header_set.profile) if header.key in counting}
        is_known = {"original_topic", "original_offset"} <= keys.keys() and _source(header_set, shape.topics)
        same = tuple(sorted((key, shape.same[counting[key]]) for key in keys.values()))
        first = once.setdefault((header_set.profile.name, same) if is_known else header_set, header_set)
        first.is_last |= header_set.is_last
    return [header_set for header_set in sets if header_set in once.values()]


def doubtful_of(chain: Sequence[HeaderSet]) -> set[int]:
    """Return the indexes of optional headers that can be left from a set which a newer one replaced."""
    doubtful: set[int] = set()
    scattered = scattered_of(chain)
    for at, header_set in enumerate(chain):
        if header_set.profile.newest == "anywhere":
            older = (other for other in chain[:at] if other.profile.newest == "last" and other not in scattered)
            begin = max((other.ends[0] for other in older), default=-1)
            doubtful |= {index for index in header_set.indexes - header_set.mandatory_indexes if index < begin}
    return doubtful


def by_topics(expected: Sequence[HeaderSet], lanes: Sequence[Sequence[HeaderSet]], shape: Shape) -> list[HeaderSet]:
    """Return the sets in the order that their topics tell; each lane has its order.

    A hop's DLQ topic is the source topic of the next hop, and DLQ topics are named after their source or by the
    writer's default. Of orders that topics support equally, that counts which is nearest to the expected one.
    """
    rank = {header_set: at for at, header_set in enumerate(expected)}
    sources = [_source(header_set, shape.topics or ()) for header_set in expected]

    @cache
    def link(index: int, target: str | None) -> int:
        source, default = sources[index], expected[index].profile.default_topic
        if not target:
            return 0
        named_after = 2 * bool(source and source != target and _plain(source) in _plain(target))
        is_default = bool(default) and globs.matches(default.casefold(), target.casefold())
        return named_after + is_default * (1 if default.startswith("*") else 3)

    @cache
    def best(taken: tuple[int, ...], last: int) -> tuple[tuple[int, int], tuple[int, ...]]:
        """Return the best order of the oldest sets of each lane, if the newest of them is of the lane ``last``."""
        newest = rank[lanes[last][taken[last] - 1]]
        left = (*taken[:last], taken[last] - 1, *taken[last + 1 :])
        swaps = sum(rank[other] > newest for lane, number in zip(lanes, left, strict=True) for other in lane[:number])
        choices = []
        for lane, number in enumerate(left):
            if number:
                (links, others), order = best(left, lane)
                choices.append(((links + link(order[-1], sources[newest]), others - swaps), order))
        score, order = max(choices, default=((0, 0), ()))
        return score, (*order, newest)

    whole = tuple(map(len, lanes))
    ends = [best(whole, lane) for lane in range(len(lanes))]
    _, order = max(ends, key=lambda end: (end[0][0] + link(end[1][-1], shape.topic), end[0][1]))
    return [expected[index] for index in order]


def _source(header_set: HeaderSet, topics: Sequence[str | None]) -> str | None:
    """Return the source topic of a set, by the values of the headers that tell a topic."""
    for header in header_set.profile.headers:
        index = header_set.counting.get(header.key) if header.field == "original_topic" else None
        if index is not None and (text := topics[index]):
            return text.rpartition("/")[-1] if header.encoding == "uri" else text
    return None
