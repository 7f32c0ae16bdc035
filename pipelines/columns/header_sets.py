"""The names of a record's headers -> a plan: which sets of which writers they are, and where each field's value is.

Writers keep the headers of a record that they dead-letter, so one record can carry the sets of several writers. A set
is complete if it has all mandatory headers of a profile (`header_cuts`). The newest complete set is the record's own;
older ones are earlier hops (`header_order`).

The plan depends on names and their order alone (and on which paths of an envelope have a value). Few records have a
shape of their own, so a shape is planned once, in Python, however many records have it.

Profiles can share names. A mandatory header belongs to one set alone: profiles of the settings come first, then the set
that explains more headers. If all mandatory headers of a set are optional ones of another profile's set, both are the
same dead-lettering, and the set that explains more headers stands. An optional header belongs to the set at whose index
it stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise, permutations
from math import prod

from pipelines.columns import globs
from pipelines.columns.header_cuts import (
    HeaderSet,
    Shape,
    completions,
    cuts_of,
    gathered,
    ranks,
    repeating_of,
    side_by_side,
)
from pipelines.columns.header_order import (
    age_by_index,
    by_topics,
    doubtful_of,
    joined,
    newest_of,
    of_coordinate,
    partner,
    scattered_of,
    without_copies,
)
from pipelines.columns.profiles import KIP_1317, Profile

MOST_STATES = 400  # beginnings of chains that are weighed, where topics decide the order
MOST_WEIGHED = 1_000  # known headers of a record of which topics and copies tell the order


@dataclass(frozen=True)
class Hop:
    """A set of headers: its profile, and by field the indexes of its values, the first that is not empty counts.

    An index counts in ``Shape.names``; the paths of the planner follow behind them.
    """

    profile: Profile
    indexes: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Plan:
    """What a shape says: the record's own set, the earlier hops (oldest first), and which headers are nobody's.

    ``own`` is None if no profile knows the record. ``profiles`` are the names of the profiles whose sets the own set
    is. ``lacking`` are the keys of mandatory headers that it lacks, if no set is complete. ``taken`` are the names
    (of ``Shape.names``) that belong to writers. ``has_strays`` tells that a known header belongs to no complete set.
    """

    own: Hop | None = None
    profiles: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    hops: tuple[Hop, ...] = ()
    taken: tuple[str, ...] = ()
    has_strays: bool = False


class Planner:
    """Plans shapes for given profiles, in their order."""

    def __init__(self, profiles: Sequence[Profile]) -> None:
        """Plan by these profiles; of equal claims the first profile's counts."""
        self.profiles = tuple(profiles)
        self.names = frozenset(name for profile in profiles for name in profile.names)
        prefixes = {prefix for profile in profiles for prefix in profile.prefixes}
        self.prefixes = tuple(sorted(prefixes, key=lambda prefix: (-len(prefix), prefix)))
        self.globs = tuple(dict.fromkeys(profile.topic for profile in profiles if profile.topic))
        self.paths = tuple(dict.fromkeys(path for profile in profiles for path in profile.paths))
        self.topic_names = frozenset(
            header.key for profile in profiles for header in profile.headers if header.field == "original_topic"
        )
        self.coordinate_names = frozenset(header.key for profile in profiles for header in of_coordinate(profile))
        self._plans: dict[Shape, Plan] = {}
        self._keys_of: dict[str, list[tuple[Profile, str]]] = {}
        self._order = {profile: index for index, profile in enumerate(self.profiles)}
        self._enveloped = [profile for profile in profiles if profile.paths]

    def known(self, name: str | None) -> str | None:
        """Return a header's name as a shape has it; None if no profile knows it."""
        if name is None or name in self.names:
            return name
        return next((f"{prefix}*" for prefix in self.prefixes if name.startswith(prefix)), None)

    def shape(self, headers: Sequence[tuple[str, bytes | None]], topic: str | None = None) -> Shape:
        """Return the shape of a record without an envelope by its known headers, each with its name in a shape."""
        names = tuple(name for name, _ in headers)
        marks = tuple(at for at, glob in enumerate(self.globs) if topic is not None and globs.matches(glob, topic))
        if sum(name in self.topic_names for name in names) < 2 or len(names) > MOST_WEIGHED:
            return Shape(names, marks)
        topics = (
            value.decode("utf-8", "replace") if name in self.topic_names and value is not None else None
            for name, value in headers
        )
        first: dict[tuple[str, bytes | None], int] = {}
        same = (
            first.setdefault(header, at) if header[0] in self.coordinate_names else at
            for at, header in enumerate(headers)
        )
        return Shape(names, marks, tuple(topics), topic, tuple(same))

    def plan(self, shape: Shape) -> Plan:
        """Return the plan of a shape."""
        if shape not in self._plans:
            self._plans[shape] = self._planned(shape)
        return self._plans[shape]

    def _planned(self, shape: Shape) -> Plan:
        headers_of = self._headers_of(shape)
        complete = [
            header_set for profile, keyed in headers_of.items() for header_set in self._sets(profile, keyed, shape)
        ]
        winning = without_copies(self._winning(complete), shape)
        draft = _draft(headers_of, winning)
        chain = self._chain([*winning, *([draft] if draft else [])], shape)
        if not chain:
            return self._nearest(headers_of, shape)
        own, older = newest_of(chain)
        doubtful = doubtful_of(chain)
        is_draft = any(header_set is draft for header_set in own)
        profiles = sorted((header_set.profile.name for header_set in own), key=lambda name: name != KIP_1317.name)
        shown = {header_set.profile for header_set in (*complete, *own)}
        strays = draft is not None and (not is_draft or len(own) == 2)
        return Plan(
            self._hop(own, shape, doubtful, is_own=True),
            (KIP_1317.name,) if is_draft else tuple(profiles),
            tuple(key for key in KIP_1317.mandatory if key not in draft.members) if draft and is_draft else (),
            tuple(self._hop(pair, shape, doubtful) for pair in joined(older)),
            _taken(shape, shown, headers_of),
            strays or self._has_strays(shape, headers_of, complete, chain),
        )

    def _headers_of(self, shape: Shape) -> dict[Profile, list[tuple[int, str]]]:
        """Return the indexes of the headers of each profile that may have a part, each with its key in the profile."""
        headers_of: dict[Profile, list[tuple[int, str]]] = {}
        for index, name in enumerate(shape.names):
            for profile, key in self._keys(name):
                headers_of.setdefault(profile, []).append((index, key))
        for profile in self._enveloped:
            headers_of.setdefault(profile, [])
        order = sorted(headers_of, key=self._order.__getitem__)
        return self._parted({profile: headers_of[profile] for profile in order if self._applies(profile, shape)})

    def _parted(self, headers_of: dict[Profile, list[tuple[int, str]]]) -> dict[Profile, list[tuple[int, str]]]:
        """Leave shared headers to the nearest writer, mandatory ones only if there are enough for all writers."""
        keys_of = {profile: {key for _, key in keyed} for profile, keyed in headers_of.items()}
        there = [profile for profile, keys in keys_of.items() if keys and keys.issuperset(profile.mandatory)]
        owners = Counter(key for profile in there for key in {header.key for header in profile.headers})
        claims: dict[str, list[Profile]] = {}
        for profile in there:
            if any(owners[key] == 1 for key in profile.mandatory):
                for key in keys_of[profile]:
                    if owners[key] > 1:
                        claims.setdefault(key, []).append(profile)
        indexes: dict[int, tuple[str, list[Profile]]] = {}
        for key, claimants in claims.items():
            at = [index for index, name in headers_of[claimants[0]] if name == key]
            if len(claimants) > 1 and len(at) >= sum(key in profile.mandatory for profile in claimants):
                indexes |= dict.fromkeys(at, (key, claimants))
        left: dict[Profile, set[int]] = {}
        for index, (key, claimants) in indexes.items():
            nearest = min(claimants, key=lambda claimant: _distance(claimant, headers_of[claimant], owners, index, key))
            for profile in claimants:
                if profile is not nearest:
                    left.setdefault(profile, set()).add(index)
        for profile, others in left.items():
            headers_of[profile] = [(index, key) for index, key in headers_of[profile] if index not in others]
        return headers_of

    def _keys(self, name: str) -> list[tuple[Profile, str]]:
        """Return the profiles that know a name of a shape, and the key of their header."""
        if name not in self._keys_of:
            keys = ((profile, _key(profile, name)) for profile in self.profiles)
            self._keys_of[name] = [(profile, key) for profile, key in keys if key is not None]
        return self._keys_of[name]

    def _applies(self, profile: Profile, shape: Shape) -> bool:
        return not profile.topic or self.globs.index(profile.topic) in shape.marks

    def _has_path(self, path: str, shape: Shape) -> bool:
        return len(self.globs) + self.paths.index(path) in shape.marks

    def _sets(self, profile: Profile, keyed: list[tuple[int, str]], shape: Shape) -> list[HeaderSet]:
        """Return the complete sets of a profile, in their order among the headers."""
        if not all(self._has_path(path, shape) for path in profile.mandatory_paths):
            return []
        if not profile.mandatory:
            return [gathered(profile, keyed)] if profile.mandatory_paths else []
        mandatory = frozenset(profile.mandatory)
        keys = [key for _, key in keyed]
        ends = completions(keys, mandatory)
        if not ends:
            return []
        counts = Counter(keys)
        several = {counts[key] for key in mandatory}
        if len(several) == 1 and (hops := several.pop()) > len(ends):
            sets = side_by_side(profile, keyed, counts, hops)
        else:
            cuts = cuts_of(profile, keyed, ends, shape, self._others[profile])
            bounds = pairwise([0, *cuts, len(keyed)])
            sets = [gathered(profile, keyed[begin:end]) for begin, end in bounds]
        newest = 0 if profile.newest == "first" else len(sets) - 1
        for at, header_set in enumerate(sets):
            header_set.is_last = at == newest
        return sets

    @cached_property
    def _others(self) -> dict[Profile, frozenset[str]]:
        """By profile: the names that are of other writers alone."""
        others = {}
        for profile in self.profiles:
            foreign = (other.names for other in self.profiles if other.name not in (profile.name, partner(profile)))
            others[profile] = frozenset(name for names in foreign for name in names) - {*profile.names}
        return others

    def _winning(self, complete: Sequence[HeaderSet]) -> list[HeaderSet]:
        """Return the sets that win where several claim a mandatory header: see the head of the module."""

        def precedence(header_set: HeaderSet) -> tuple[int, int, int]:
            if header_set.profile.kind == "settings":
                return 0, 0, self._order[header_set.profile]
            return 1, -len(header_set.indexes), self._order[header_set.profile]

        owner: dict[int, str] = {}
        winning = []
        for header_set in sorted(_explaining_most(complete), key=precedence):
            claimed = header_set.mandatory_indexes
            if all(owner.get(index, header_set.profile.name) == header_set.profile.name for index in claimed):
                owner |= dict.fromkeys(claimed, header_set.profile.name)
                winning.append(header_set)
        return winning

    def _chain(self, sets: Sequence[HeaderSet], shape: Shape) -> list[HeaderSet]:
        """Return the sets, oldest first: see `header_order`."""
        if len(sets) < 2:
            return [*sets]
        scattered = scattered_of(sets)
        expected = sorted(sets, key=lambda header_set: age_by_index(header_set, header_set in scattered))
        if shape.topics is None:
            return expected
        free = [[header_set] for header_set in expected]
        fixed: dict[str, list[HeaderSet]] = {"last": [], "first": []}
        for header_set in expected:
            if header_set not in scattered and header_set.profile.newest in fixed:
                fixed[header_set.profile.newest].append(header_set)
        held = {header_set for lane in fixed.values() for header_set in lane}
        lanes = [lane for lane in (*fixed.values(), *(lane for lane in free if lane[0] not in held)) if lane]
        if any(header_set.profile.newest == "anywhere" for header_set in sets) and 2 ** len(free) <= MOST_STATES:
            lanes = free
        if len(lanes) == 1 or prod(len(lane) + 1 for lane in lanes) > MOST_STATES:
            return expected
        return by_topics(expected, lanes, shape)

    def _hop(
        self, sets: Sequence[HeaderSet], shape: Shape, doubtful: Collection[int] = (), is_own: bool = False
    ) -> Hop:
        """Return a set as a hop, or the two sets of a share group as one.

        Of the two sets the draft's counts first. Of a record's own two sets only the draft's tells the fields that it
        makes mandatory.
        """
        first, *others = sorted(sets, key=lambda header_set: header_set.profile is not KIP_1317)
        indexes = self._indexes(first, shape, doubtful)
        for other in others:
            for name, known in self._indexes(other, shape, doubtful).items():
                if not (is_own and name in KIP_1317.encodings):
                    indexes.setdefault(name, known)
        return Hop(first.profile, indexes)

    def _indexes(self, header_set: HeaderSet, shape: Shape, doubtful: Collection[int]) -> dict[str, tuple[int, ...]]:
        indexes: dict[str, list[int]] = {}
        for header in header_set.profile.headers:
            if header.field and header.path and header_set.is_last:
                indexes.setdefault(header.field, []).append(len(shape.names) + self.paths.index(header.path))
            elif header.field and header.key in header_set.members and header_set.counting[header.key] not in doubtful:
                indexes.setdefault(header.field, []).append(header_set.counting[header.key])
        return {name: tuple(known) for name, known in indexes.items()}

    def _nearest(self, headers_of: Mapping[Profile, list[tuple[int, str]]], shape: Shape) -> Plan:
        """Return the plan of a shape without a complete set: that of the profile which lacks least, if any is near."""
        near = [profile for profile, keyed in headers_of.items() if self._is_near(profile, keyed, shape)]
        if not near:
            return Plan()
        settings = {name for profile in self.profiles if profile.kind == "settings" for name in profile.names}

        def distance(profile: Profile) -> tuple[float, int, int]:
            lacking = self._lacking(profile, headers_of[profile], shape)
            kind = ("specified", "settings", "shipped").index(profile.kind)
            if profile.kind == "specified" and not settings.isdisjoint(profile.names):
                kind = 2
            return len(lacking) / len(_all_mandatory(profile)), kind, self._order[profile]

        nearest = min(near, key=distance)
        own = gathered(nearest, headers_of[nearest])
        return Plan(
            self._hop([own], shape, is_own=True),
            (nearest.name,),
            tuple(self._lacking(nearest, headers_of[nearest], shape)),
            (),
            _taken(shape, {nearest}, headers_of),
            self._has_strays(shape, headers_of, [], [own]),
        )

    def _lacking(self, profile: Profile, keyed: Sequence[tuple[int, str]], shape: Shape) -> list[str]:
        keys = {key for _, key in keyed}
        paths = [path for path in profile.mandatory_paths if not self._has_path(path, shape)]
        return [*(key for key in profile.mandatory if key not in keys), *paths]

    def _is_near(self, profile: Profile, keyed: Sequence[tuple[int, str]], shape: Shape) -> bool:
        """Tell whether some of a profile's headers make it plausible that its writer wrote them.

        Of a shipped profile more than half of the mandatory headers are there, and one that only this writer writes:
        anybody can have an ``x-original-topic``.
        """
        if profile.kind != "shipped":
            shared = profile.kind == "specified" and all(self._owners[key] > 1 for _, key in keyed)
            return bool(keyed and not shared) or any(self._has_path(path, shape) for path in profile.paths)
        lacking = self._lacking(profile, keyed, shape)
        its_own = {key for _, key in keyed if self._owners[key] == 1}.intersection(profile.mandatory)
        is_enveloped = len(lacking) < len(profile.mandatory_paths)
        return 2 * len(lacking) < len(_all_mandatory(profile)) and bool(its_own or is_enveloped)

    @cached_property
    def _owners(self) -> Counter[str]:
        return Counter(key for profile in self.profiles for key in {header.key for header in profile.headers})

    def _has_strays(
        self,
        shape: Shape,
        headers_of: Mapping[Profile, list[tuple[int, str]]],
        complete: Sequence[HeaderSet],
        chain: Sequence[HeaderSet],
    ) -> bool:
        """Tell whether a known header belongs to no complete set, or a name repeats within one."""
        fine: set[int] = set()
        for header_set in chain:
            repeating = repeating_of(header_set.profile)
            for key, indexes in header_set.members.items():
                fine |= set(indexes) if key in repeating else {header_set.counting[key]}
        for header_set in complete:
            if header_set not in chain:  # it gave way to another profile
                fine |= header_set.indexes
        of_chain = {header_set.profile for header_set in chain}
        near = [
            keyed
            for profile, keyed in headers_of.items()
            if profile in of_chain or (profile.kind != "shipped" and self._is_near(profile, keyed, shape))
        ]
        return any(index not in fine for keyed in near for index, _ in keyed)


@cache
def planner_of(profiles: tuple[Profile, ...]) -> Planner:
    """Return the planner for these profiles; it keeps the plans that it has made."""
    return Planner(profiles)


def _key(profile: Profile, name: str) -> str | None:
    """Return the key of the header of a profile to which a name of a shape belongs; None if to none."""
    if name in profile.names:
        return name
    text = name.removesuffix("*")
    fitting = [prefix for prefix in profile.prefixes if text.startswith(prefix)]
    return f"{max(fitting, key=len)}*" if fitting else None


def _distance(
    profile: Profile, keyed: Sequence[tuple[int, str]], owners: Counter[str], index: int, key: str
) -> tuple[bool, int]:
    """Return how far a shared header is from one that only this writer writes, first whether it is out of its order.

    If the writer's headers are in no order, somebody shuffled them, and their order tells nothing.
    """
    rank = ranks(profile)
    own = [(at, other) for at, other in keyed if owners[other] == 1]
    beginnings = 1 + sum(rank[first] > rank[second] for (_, first), (_, second) in pairwise(own))
    has_order = beginnings <= max(Counter(other for _, other in own).values())
    return min((has_order and (at < index) != (rank[other] < rank[key]), abs(at - index)) for at, other in own)


def _all_mandatory(profile: Profile) -> tuple[str, ...]:
    return (*profile.mandatory, *profile.mandatory_paths)


def _taken(
    shape: Shape, shown: Iterable[Profile], headers_of: Mapping[Profile, list[tuple[int, str]]]
) -> tuple[str, ...]:
    """Return the names of a shape that belong to these profiles, sorted."""
    return tuple(sorted({shape.names[index] for profile in shown for index, _ in headers_of[profile]}))


def _draft(headers_of: Mapping[Profile, list[tuple[int, str]]], winning: Sequence[HeaderSet]) -> HeaderSet | None:
    """Return the incomplete set of KIP-1317, a draft of which any one header claims the record; None if none."""
    keyed = headers_of.get(KIP_1317) or []
    return (
        gathered(KIP_1317, keyed)
        if keyed and all(header_set.profile is not KIP_1317 for header_set in winning)
        else None
    )


def _explaining_most(complete: Sequence[HeaderSet]) -> list[HeaderSet]:
    """Leave out sets whose mandatory headers are optional ones of another set, or the other way round.

    Of the two the set stands that explains more headers; of equals that of the settings, then the first.
    """

    def is_same(header_set: HeaderSet, other: HeaderSet) -> bool:
        return _may_be_same(header_set.profile, other.profile) and header_set.mandatory_indexes <= other.indexes

    profiles = {header_set.profile for header_set in complete}
    if not any(_may_be_same(profile, other) for profile, other in permutations(profiles, 2)):
        return [*complete]
    winning: list[HeaderSet] = []
    for header_set in sorted(
        complete, key=lambda header_set: (-len(header_set.indexes), header_set.profile.kind != "settings")
    ):
        rivals = (other for other in winning if other.profile is not header_set.profile)
        if not any(is_same(header_set, other) or is_same(other, header_set) for other in rivals):
            winning.append(header_set)
    return [header_set for header_set in complete if header_set in winning]


@cache
def _may_be_same(profile: Profile, other: Profile) -> bool:
    """Tell whether all mandatory headers of a profile are headers of another one, and some of them optional ones."""
    mandatory = {*profile.mandatory}
    return (
        bool(mandatory)
        and mandatory <= {header.key for header in other.headers}
        and not mandatory <= {*other.mandatory}
    )
