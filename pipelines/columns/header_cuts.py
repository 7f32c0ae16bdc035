"""The headers of one profile -> its sets.

How a profile's headers are cut into sets:

- A set is a stretch of the profile's headers that has all mandatory ones. There are as many sets as there can be.
- Between two sets, the cut is where no name repeats within a set, then where another writer's headers stand between,
  then where the writer's order begins anew.
- If a name repeats within a set nevertheless, the headers count that stand closest together, the last ones of these.
  So what is left of another set gives no value to a set that is complete.
- A writer that writes all values of a name side by side has one value a hop: the k-th of each name is of the k-th hop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

from pipelines.columns.profiles import Profile

MOST_CUTS = 16  # indexes between two sets at which the cut may be


@dataclass(frozen=True)
class Shape:
    """What the sets of a record depend on.

    ``names`` are the headers that any profile knows, in order; a name that only a prefix matches is the longest such
    prefix with a ``*`` behind it. ``marks`` are the indexes, in ``Planner.marks``, of topic globs that match and of
    paths that lead to a value. The others are null unless several of at most MOST_WEIGHED names tell a topic:
    ``topics`` are their values, null for other names; ``topic`` is the DLQ topic; ``same`` has, for a name that tells
    topic, partition or offset, the first index with its name and value, and for other names their own index.
    """

    names: tuple[str, ...]
    marks: tuple[int, ...] = ()
    topics: tuple[str | None, ...] | None = None
    topic: str | None = None
    same: tuple[int, ...] | None = None


@dataclass(eq=False)
class HeaderSet:
    """A set of a profile within a shape: the indexes of its headers by key, in order, and the index that counts."""

    profile: Profile
    members: dict[str, list[int]] = field(default_factory=dict)
    is_last: bool = True  # of its profile: an envelope belongs to the last set

    @cached_property
    def counting(self) -> dict[str, int]:
        """By key: the index of the header whose value counts."""
        first, last = self._closest()
        is_first = self.profile.newest == "first"
        repeating = repeating_of(self.profile)
        counting = {}
        for key, indexes in self.members.items():
            near = min(max(first - index, index - last, 0) for index in indexes)
            nearest = [index for index in indexes if max(first - index, index - last, 0) == near]
            counting[key] = indexes[-1] if key in repeating else nearest[0] if is_first else nearest[-1]
        return counting

    def _closest(self) -> tuple[int, int]:
        """Return the first and the last index of the shortest stretch that has all mandatory headers of the set."""
        mandatory = [key for key in self.profile.mandatory if key in self.members]
        whole = [index for key in mandatory or self.members for index in self.members[key]] or [0]
        if len(whole) <= len(mandatory):
            return min(whole), max(whole)
        last_seen: dict[str, int] = {}
        stretches = []
        for index, name in sorted((index, key) for key in mandatory for index in self.members[key]):
            last_seen[name] = index
            if len(last_seen) == len(mandatory):
                stretches.append((min(last_seen.values()), index))
        sign = 1 if self.profile.newest == "first" else -1
        return min(stretches, key=lambda ends: (ends[1] - ends[0], sign * ends[1]), default=(min(whole), max(whole)))

    @cached_property
    def at(self) -> int:
        """The index of the set: that of its last mandatory header; an envelope stands before all headers."""
        return self.ends[1]

    @cached_property
    def indexes(self) -> set[int]:
        """The indexes of all headers of the set."""
        return {index for every in self.members.values() for index in every}

    @cached_property
    def mandatory_indexes(self) -> set[int]:
        """The indexes of the mandatory headers."""
        return {index for key in self.profile.mandatory for index in self.members.get(key, ())}

    @cached_property
    def ends(self) -> tuple[int, int]:
        """The first and the last index of the mandatory headers that count."""
        counting = [self.counting[key] for key in self.profile.mandatory if key in self.counting]
        return min(counting, default=-1), max(counting, default=-1)


@cache
def ranks(profile: Profile) -> dict[str, int]:
    """Return the index of each key in the order in which the writer writes."""
    return {header.key: at for at, header in reversed([*enumerate(profile.headers)])}


@cache
def repeating_of(profile: Profile) -> frozenset[str]:
    """Return the keys that one set can have several times."""
    return frozenset(header.key for header in profile.headers if header.repeats or header.is_prefix)


def gathered(profile: Profile, keyed: Iterable[tuple[int, str]]) -> HeaderSet:
    """Return one set of all of these headers, given by index and key."""
    header_set = HeaderSet(profile)
    for index, key in keyed:
        header_set.members.setdefault(key, []).append(index)
    return header_set


def completions(keys: Sequence[str], mandatory: frozenset[str]) -> list[int]:
    """Return the indexes at which sets are complete, if each begins as soon as the one before is complete."""
    ends = []
    lacking = set(mandatory)
    for at, key in enumerate(keys):
        lacking.discard(key)
        if not lacking:
            ends.append(at)
            lacking = set(mandatory)
    return ends


def cuts_of(
    profile: Profile, keyed: Sequence[tuple[int, str]], ends: Sequence[int], shape: Shape, others: frozenset[str]
) -> tuple[int, ...]:
    """Return the indexes at which sets after the first begin: see the head of the module."""
    keys = [key for _, key in keyed]
    mandatory = frozenset(profile.mandatory)
    last = len(keys) - 1
    latest = [last - at for at in reversed(completions(keys[::-1], mandatory))]
    rank = ranks(profile)
    repeating = repeating_of(profile)

    def strangeness(cut: int) -> tuple[bool, bool, int]:
        between = shape.names[keyed[cut - 1][0] + 1 : keyed[cut][0]]
        return not any(name in others for name in between), rank[keys[cut - 1]] < rank[keys[cut]], -cut

    def faults(begin: int, end: int) -> tuple[int, int]:
        counts = Counter(keys[begin:end])
        return len(mandatory - counts.keys()), sum(counts[key] - 1 for key in counts if key not in repeating)

    # The cheapest way to each cut: its cost and the cuts before it.
    ways: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {0: ((0, 0, 0, 0, 0), ())}
    for number in range(1, len(ends) + 1):
        cuts = range(ends[number - 1] + 1, latest[number] + 1) if number < len(ends) else [len(keys)]
        further = {}
        for cut in sorted(cuts, key=strangeness)[:MOST_CUTS] if number < len(ends) else cuts:
            more = strangeness(cut) if number < len(ends) else (0, 0, 0)
            costs = (
                (tuple(map(sum, zip(cost, (*faults(begin, cut), *more), strict=True))), (*before, cut))
                for begin, (cost, before) in ways.items()
            )
            further[cut] = min(costs)
        ways = further
    return ways[len(keys)][1][:-1]


def side_by_side(
    profile: Profile, keyed: Sequence[tuple[int, str]], counts: Counter[str], hops: int
) -> list[HeaderSet]:
    """Return the sets of a writer that writes all values of a name side by side, one value a hop."""
    sets = [HeaderSet(profile) for _ in range(hops)]
    seen: Counter[str] = Counter()
    for index, key in keyed:
        if counts[key] == hops:
            sets[seen[key]].members[key] = [index]
            seen[key] += 1
    return sets
