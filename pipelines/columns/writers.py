"""Records that no profile reads -> their writers: which of their headers one writer writes together.

Writers are told apart by the names that occur together, and by what they call the topic, the partition and the offset
of the record that failed. A record that several writers dead-lettered is one of each of them. Headers of applications
and tracers are nobody's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from expectations import owners
from pipelines.columns import header_words
from pipelines.columns.header_values import Values
from pipelines.columns.header_words import ORIGIN
from pipelines.columns.profiles import PROFILES, Encoding, own_profiles
from pipelines.settings.profiles import shipped_profiles

MOST_EXAMINED = 1_000  # of the headers of a DLQ topic that are examined, the most frequent ones
LONGEST_NAME = 120  # of a name that a profile can have


@dataclass(frozen=True)
class Letter:
    """A dead letter: its DLQ topic, its headers in order, and Kafka's timestamp of it in milliseconds.

    ``is_accepted`` tells that it is in the table already, without a writer.
    """

    topic: str
    headers: tuple[tuple[str, bytes | None], ...]
    time: int | None = None
    is_accepted: bool = False

    @classmethod
    def of(cls, topic: str | None, headers: Iterable[Any], time: int | None, is_accepted: bool = False) -> Letter:
        """Return the letter of a row, whose headers are pairs of key and value, or null."""
        pairs = [header.values() if isinstance(header, dict) else header for header in headers or () if header]
        keyed = tuple((name, None if value is None else bytes(value)) for name, value in pairs if name is not None)
        return cls(topic or "", keyed, time, is_accepted)

    @property
    def all_names(self) -> frozenset[str]:
        """The names of all headers, legible or not."""
        return frozenset(name for name, _ in self.headers if name)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the headers that a profile can have, in order, each once."""
        return tuple(name for name in dict.fromkeys(name for name, _ in self.headers) if _is_legible(name))


@dataclass(frozen=True)
class Meaning:
    """A field that a header may fill, by its name or by its values; see ``header_words.Sense``."""

    field: str
    encoding: Encoding
    doubt: int
    weak: bool


@dataclass
class Writer:
    """A writer's letters, each with the names in it that may be its own.

    ``lacking`` are letters that have only headers which do not tell where they come from, although the writer does.
    """

    letters: list[tuple[Letter, frozenset[str]]] = field(default_factory=list)
    lacking: list[tuple[Letter, frozenset[str]]] = field(default_factory=list)

    @property
    def topics(self) -> frozenset[str]:
        """The DLQ topics of the letters."""
        return frozenset(letter.topic for letter, _ in (*self.letters, *self.lacking))

    @property
    def names(self) -> frozenset[str]:
        """The names of all headers that may be the writer's."""
        return frozenset(name for _, names in (*self.letters, *self.lacking) for name in names)


Token = tuple[str, str]  # a name, and how its numbers are encoded if that differs between topics
Shape = frozenset[Token]


@dataclass
class _Group:
    """Letters whose headers belong together, while writers are told apart."""

    tokens: set[Token]
    anchors: dict[Token, str]  # the headers that tell the origin, with their fields
    writer: Writer = field(default_factory=Writer)


def writers_of(letters: Sequence[Letter], known_topics: Collection[str] = ()) -> list[Writer]:
    """Return the writers that letters show, the one with the most letters first."""
    signs = _Signs(letters, known_topics)
    shapes: dict[Shape, list[Letter]] = defaultdict(list)
    for letter in letters:
        if shape := signs.shape(letter):
            shapes[shape].append(letter)
    groups: list[_Group] = []
    without_origin = []
    for shape in sorted(shapes, key=lambda shape: (len(shape), sorted(shape))):
        if signs.anchors(shape):
            _join(groups, shape, shapes[shape], signs)
        else:
            without_origin.append(shape)
    _join_without_origin(groups, without_origin, shapes)
    for group in groups:
        writer = group.writer
        if len(writer.lacking) >= len(writer.letters):
            writer.letters += writer.lacking
            writer.lacking = []
    return sorted((group.writer for group in groups), key=lambda writer: (-len(writer.letters), sorted(writer.names)))


def values_of(letters: Iterable[tuple[Letter, Collection[str]]]) -> dict[str, Values]:
    """Return the values of each name in letters, of which the given names count."""
    values: dict[str, Values] = defaultdict(Values)
    for letter, names in letters:
        for name in names:
            values[name]  # also if no record has a value
        for name, content in letter.headers:
            if content and name in names:
                values[name].add(content, letter.topic, letter.time)
    return values


def meanings(name: str, values: Values, known_topics: Collection[str]) -> list[Meaning]:
    """Return the fields that a header may fill, the likeliest first; the values fit each of them."""
    if header_words.is_nobodys(name):
        return []
    senses = header_words.senses(name)
    if not senses and (known := _known_fields().get(name)):
        senses = [header_words.Sense(known)]
    fitting = []
    for sense in senses:
        if sense.field == "original_topic" and values.names_own_topic:
            continue
        if sense.field == "routed_at" and sense.weak and not values.is_near:
            continue
        if sense.field == "exception_stacktrace" and sense.doubt > 2 and values.kind != "stack traces":
            continue
        if sense.field in owners.NAMES and values.differ:
            continue
        if encoding := values.encoding_of(sense.field, known_topics):
            fitting.append(Meaning(sense.field, encoding, sense.doubt, sense.weak))
    shown = values.shows(known_topics) if not fitting else None
    if shown == "original_topic" and values.names_own_topic:
        shown = None
    if shown and (encoding := values.encoding_of(shown, known_topics)):
        fitting.append(Meaning(shown, encoding, 3, weak=shown == "original_topic"))
    return fitting


def nearness(name: str, other: str) -> tuple[int, int, int]:
    """Return how much two names look like those of one writer."""
    shared = header_words.strange(name) & header_words.strange(other)
    words = header_words.beginning([header_words.words(name), header_words.words(other)])
    return len(shared), words, header_words.beginning([name, other])


class _Signs:
    """What letters show by name and DLQ topic: which headers dead-letter writers write, and which tell the origin."""

    def __init__(self, letters: Sequence[Letter], known_topics: Collection[str]) -> None:
        by_topic: dict[str, list[Letter]] = defaultdict(list)
        for letter in letters:
            by_topic[letter.topic].append(letter)
        self._anchors: dict[tuple[str, str], str] = {}
        self._shown: set[tuple[str, str]] = set()
        self._kinds: dict[tuple[str, str], str] = {}
        kinds: dict[str, set[str]] = defaultdict(set)
        for topic, those in by_topic.items():
            counts = Counter(name for letter in those for name in letter.names)
            frequent = {name for name, _ in counts.most_common(MOST_EXAMINED)}
            for name, values in values_of((letter, frequent.intersection(letter.names)) for letter in those).items():
                strong = [meaning for meaning in meanings(name, values, known_topics) if not meaning.weak]
                encoding = values.number_encoding
                if strong and strong[0].field in ORIGIN:
                    self._anchors[topic, name] = strong[0].field
                is_binary = encoding in ("int32", "int64") and not header_words.is_nobodys(name)
                if strong or is_binary:
                    self._shown.add((topic, name))
                if encoding and strong:
                    self._kinds[topic, name] = "digits" if encoding == "text" else "bytes"
                    kinds[name].add(self._kinds[topic, name])
        self._mixed = {name for name, seen in kinds.items() if len(seen) > 1}

    def shape(self, letter: Letter) -> Shape:
        """Return the headers of a letter that dead-letter writers write."""
        return frozenset(
            (name, self._kinds.get((letter.topic, name), "") if name in self._mixed else "")
            for name in letter.names
            if (letter.topic, name) in self._shown
        )

    @cached_property
    def _fields(self) -> dict[Token, str]:
        return {
            (name, self._kinds.get((topic, name), "") if name in self._mixed else ""): known
            for (topic, name), known in self._anchors.items()
        }

    def anchors(self, shape: Iterable[Token]) -> dict[Token, str]:
        """Return the headers that tell the origin, with the fields that they fill."""
        return {token: self._fields[token] for token in shape if token in self._fields}


def _join(groups: list[_Group], shape: Shape, letters: Sequence[Letter], signs: _Signs) -> None:
    """Add letters of a shape with an origin to the writers that wrote them, or to new ones."""
    inside = []
    rest = dict(signs.anchors(shape))
    for group in sorted(groups, key=lambda group: -len(group.anchors)):
        if len(set(group.anchors.values())) > 1 and group.anchors.keys() <= rest.keys():
            inside.append(group)
            rest = {token: known for token, known in rest.items() if token not in group.anchors}
    fields = {known for group in inside for known in group.anchors.values()}
    is_chain = len(inside) > 1 or (bool(inside) and len(fields.intersection(rest.values())) > 1)
    if is_chain:
        for group in inside:
            own = frozenset(name for name, _ in group.tokens)
            group.writer.letters += [(letter, own.intersection(letter.names)) for letter in letters]
        taken = {token for group in inside for token in group.tokens}
        shape = frozenset((shape - taken) | rest.keys()) if len(set(rest.values())) > 1 else frozenset()
    for part in _parted(shape, signs, letters[0]):
        anchors = signs.anchors(part)
        matching = max(
            (group for group in groups if _is_same(group, part, anchors)),
            key=lambda group: len(group.tokens & part),
            default=None,
        )
        if matching is None:
            matching = _Group(set(), {})
            groups.append(matching)
        matching.tokens |= part
        matching.anchors |= anchors
        names = frozenset(name for name, _ in part)
        is_whole = not is_chain and part == shape  # so any other header of the letters can be the writer's
        matching.writer.letters += [
            (letter, frozenset(letter.names) if is_whole else names.intersection(letter.names)) for letter in letters
        ]


def _is_same(group: _Group, tokens: Shape, anchors: Mapping[Token, str]) -> bool:
    """Tell whether a shape is of a group's writer: they share headers, and no two origins stand in their union."""
    shared = group.anchors.keys() & anchors.keys()
    if not shared or 2 * len(shared) < min(len(group.anchors), len(anchors)):
        return False
    doubled = _doubled({**group.anchors, **anchors})
    return len(doubled) < 2 and 2 * len(group.tokens & tokens) >= min(len(group.tokens), len(tokens))


def _doubled(anchors: Mapping[Token, str]) -> dict[str, list[Token]]:
    by_field: dict[str, list[Token]] = defaultdict(list)
    for token, known in anchors.items():
        by_field[known].append(token)
    return {known: tokens for known, tokens in by_field.items() if len(tokens) > 1}


def _parted(shape: Shape, signs: _Signs, letter: Letter) -> list[Shape]:
    """Return the headers of each writer in a shape: a writer tells the topic, the partition and the offset once."""
    doubled = _doubled(signs.anchors(shape))
    if len(doubled) < 2:
        return [shape] if shape else []
    position = {name: at for at, name in enumerate(letter.names)}
    most = max(doubled.values(), key=len)
    seeds = sorted(most, key=lambda token: position[token[0]])
    parts: dict[Token, set[Token]] = {seed: {seed} for seed in seeds}
    for token in shape - set(seeds):

        def closeness(seed: Token, token: Token = token) -> tuple[tuple[int, int, int], int]:
            return nearness(seed[0], token[0]), -abs(position[seed[0]] - position[token[0]])

        parts[max(seeds, key=closeness)].add(token)
    return [frozenset(part) for part in parts.values()]


def _join_without_origin(
    groups: list[_Group], without_origin: Sequence[Shape], shapes: Mapping[Shape, list[Letter]]
) -> None:
    """Add letters without an origin to the writer whose headers they have in part, or else to new ones."""
    with_origin = list(groups)
    for shape in sorted(without_origin, key=lambda shape: (-len(shape), sorted(shape))):
        letters = shapes[shape]
        topics = {letter.topic for letter in letters}
        near = [group for group in with_origin if 2 * len(group.tokens & shape) >= len(shape)]
        near = [group for group in near if not topics.isdisjoint(group.writer.topics)]
        entries = [(letter, frozenset(letter.names)) for letter in letters]
        if near:
            max(near, key=lambda group: len(group.tokens & shape)).writer.lacking += entries
            continue
        same = [
            group
            for group in groups
            if not group.anchors and 2 * len(group.tokens & shape) >= min(len(group.tokens), len(shape))
        ]
        matching = max(same, key=lambda group: len(group.tokens & shape), default=None)
        if matching is None:
            matching = _Group(set(), {})
            groups.append(matching)
        matching.tokens |= shape
        matching.writer.letters += entries


@cache
def _known_fields() -> dict[str, str]:
    """Return the field that each header of a specified or shipped profile fills."""
    profiles = (*PROFILES, *own_profiles(shipped_profiles(), "shipped"))
    headers = [header for profile in profiles for header in profile.headers if header.name and not header.is_prefix]
    return {header.name: header.field for header in reversed(headers) if header.field}


def _is_legible(name: str) -> bool:
    """Tell whether a profile can have a name: the settings read others differently."""
    return 0 < len(name) <= LONGEST_NAME and not name.endswith("*") and not any("\ud800" <= c < "\ue000" for c in name)
