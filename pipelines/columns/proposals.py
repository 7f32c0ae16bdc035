"""Records that no profile reads -> a profile for each of their writers, as TOML for the settings, tried on the records.

Names, encodings and counts come into a proposal, never a value: it may be personal data.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations

from expectations.rules import counted
from pipelines.columns import globs, header_values, header_words
from pipelines.columns.header_values import Values
from pipelines.columns.header_words import ORIGIN
from pipelines.columns.profiles import Encoding, Profile, profiles_of
from pipelines.columns.unknown_headers import MOST_NAMES, MOST_OF_A_PROFILE, quoted
from pipelines.columns.writers import Letter, Meaning, Writer, meanings, values_of, writers_of
from pipelines.settings.feeds import Dlq
from pipelines.settings.profiles import MAX_PROFILES, Newest, OwnProfile
from pipelines.text import first_names

ERRORS = ("error_message", "exception_class", "exception_cause_class", "exception_stacktrace", "delivery_count")
LEAST_DISTINCT = 3  # values, before one header that says nothing can be an offset


@dataclass(frozen=True)
class Proposal:
    """A profile for one writer: its lines for the settings, and what they would do.

    ``letters`` are those that the writer wrote last, as far as was tried. Of all letters ``read`` would come in by the
    profile, ``whole`` of them with topic, partition and offset, and ``part`` with one or two of these; ``older`` would
    have it as an earlier hop.
    """

    name: str
    toml: str
    letters: tuple[Letter, ...]
    read: int = 0
    whole: int = 0
    part: int = 0
    older: int = 0

    @property
    def counts(self) -> Counter[str]:
        """How many of the writer's letters have a header of each name."""
        return Counter(name for letter in self.letters for name in letter.names)

    @property
    def has_origin(self) -> bool:
        """Whether the profile tells where some records come from."""
        return bool(self.whole or self.part or (self.older and not self.read))

    @property
    def said(self) -> str:
        """What the profile would do, in words; that it tells no origin comes first."""
        lead = "" if self.has_origin else "No header shows where the records come from. "
        return f"{lead}{self.tried}"

    @property
    def tried(self) -> str:
        """What the profile did when it was tried, in words."""
        parts = [f"{self.whole:,} with topic, partition and offset"] if self.read else []
        parts += [f"{self.part:,} with only a part of them"] if self.part else []
        left = self.read - self.whole - self.part
        parts += [f"{left:,} without an origin"] if left else []
        parts += [f"{self.older:,} more have it as an earlier hop"] if self.older else []
        on = f"Tried on {counted(len(self.letters), 'record')} of its writer"
        return f"{on}, the profile {self.name} lets {self.read:,} come in: {', '.join(parts)}."


def proposals(letters: Sequence[Letter], dlq: Dlq, known_topics: Collection[str] = ()) -> list[Proposal]:
    """Return a profile for each writer of letters that no profile reads; together they can be put into the settings.

    ``known_topics`` are names of topics, by which values show themselves. A profile that would read no letter is left
    out, and one for letters that are accepted already if little speaks for a writer. None is for
    headers that a profile of the settings knows already.
    """
    topics = {*known_topics, *(letter.topic for letter in letters)}
    profiles = profiles_of(dlq)
    own = [profile for profile in profiles if profile.kind == "settings"]
    drafts = [_Draft(writer, topics) for writer in writers_of(letters, topics)]
    drafts = [draft for draft in drafts if draft.is_likely and not any(map(draft.is_known_to, own))]
    drafts = drafts[: MAX_PROFILES - len(dlq.profile)]
    names = {profile.name for profile in profiles}
    for draft in drafts:
        draft.tell_apart([other for other in drafts if other is not draft], profiles)
        draft.name = _unique(draft.name, names)
        names.add(draft.name)
    return _tried([draft for draft in drafts if draft.entries], letters, dlq)


@dataclass(frozen=True)
class _Entry:
    """A header of a proposed profile."""

    name: str
    field: str | None
    encoding: str = "text"
    is_mandatory: bool = False
    repeats: bool = False

    @property
    def toml(self) -> str:
        """The entry as an inline table."""
        parts = [f"name = {quoted(self.name)}"]
        parts += [f"field = {quoted(self.field)}"] if self.field else []
        parts += [f"encoding = {quoted(self.encoding)}"] if self.encoding != "text" else []
        parts += ["mandatory = true"] if self.is_mandatory else []
        parts += ["repeats = true"] if self.repeats else []
        return f"  {{ {', '.join(parts)} }},"


@dataclass
class _Draft:
    """The profile of a writer as far as its letters show it."""

    writer: Writer
    topics: Collection[str]
    topic: str | None = None
    name: str = ""
    entries: list[_Entry] = field(init=False)

    def __post_init__(self) -> None:
        self.letters = [letter for letter, _ in (*self.writer.letters, *self.writer.lacking)]
        self.values = values_of((*self.writer.letters, *self.writer.lacking))
        self.counts = Counter(name for _, names in self.writer.letters for name in names)
        by_field = self._by_field()
        always = {name for name in self.counts if self.counts[name] == len(self.writer.letters)}
        origin = {name for known, (name, _) in by_field.items() if known in ORIGIN} & always
        mandatory = origin or {name for name, _ in by_field.values()} & always
        if by_field and not mandatory:
            mandatory = {max((name for name, _ in by_field.values()), key=lambda name: (self.counts[name], name))}
        entries = [
            _Entry(name, known, meaning.encoding, name in mandatory, self._repeats(name, by_field))
            for known, (name, meaning) in by_field.items()
        ]
        for entry in [entry for entry in entries if entry.encoding == "throwable"]:
            if entry.field == "exception_class" and "error_message" not in by_field:
                entries.append(replace(entry, field="error_message", encoding="text"))
        self.entries = sorted(entries, key=lambda entry: (self._mean_indexes[entry.name], entry.encoding))
        self.name = _name_of([entry.name for entry in self.entries], self.family)

    @property
    def is_likely(self) -> bool:
        """Whether enough speaks for a writer: of accepted letters only an origin, or what two headers say of errors."""
        fields = {entry.field for entry in self.entries}
        if not fields:
            return False
        waits = any(not letter.is_accepted for letter in self.letters)
        return waits or len(fields.intersection(ORIGIN)) > 1 or len(fields.intersection(ERRORS)) > 1

    def is_known_to(self, profile: Profile) -> bool:
        """Tell whether a profile knows all headers of the draft."""
        return all(_knows(profile, entry.name) for entry in self.entries)

    @property
    def mandatory(self) -> set[str]:
        """The names of the mandatory headers."""
        return {entry.name for entry in self.entries if entry.is_mandatory}

    @cached_property
    def family(self) -> frozenset[str]:
        """Words that say nothing of fields, which the headers of the origin, or else most headers, have in common."""
        strong = {
            name: strong_meanings[0]
            for name in self.values
            if (
                strong_meanings := [
                    meaning for meaning in self._meanings[name] if not meaning.weak and meaning.doubt < 3
                ]
            )
        }
        of_origin = [header_words.strange(name) for name, meaning in strong.items() if meaning.field in ORIGIN]
        if len(of_origin) > 1:
            return frozenset.intersection(*of_origin)
        words = Counter(word for name in strong for word in header_words.strange(name))
        return frozenset(word for word, number in words.items() if 2 * number >= len(strong) > 1)

    @cached_property
    def _meanings(self) -> dict[str, list[Meaning]]:
        return {name: meanings(name, values, self.topics) for name, values in self.values.items()}

    @cached_property
    def _mean_indexes(self) -> dict[str, float]:
        """The mean index of each header among the headers of the letters."""
        indexes: dict[str, list[int]] = {}
        for letter, names in self.writer.letters:
            for at, name in enumerate(letter.names):
                if name in names:
                    indexes.setdefault(name, []).append(at)
        return {name: sum(at) / len(at) for name, at in indexes.items()}

    def _by_field(self) -> dict[str, tuple[str, Meaning]]:
        """Return the header that fills each field."""
        rows = len(self.writer.letters)
        ranked = []
        for name in self.counts:
            for meaning in self._meanings[name]:
                if self._is_own(name, meaning):
                    is_topic = meaning.field == "original_topic"
                    rank = (
                        meaning.doubt > 2,
                        meaning.weak,
                        2 * self.counts[name] < rows,
                        meaning.doubt,
                        is_topic and not self.values[name].names_topics(self.topics),
                        -self.counts[name],
                        name,
                    )
                    ranked.append((rank, name, meaning))
        by_field: dict[str, tuple[str, Meaning]] = {}
        taken: set[str] = set()
        for _, name, meaning in sorted(ranked, key=lambda candidate: candidate[0]):
            if meaning.field not in by_field and name not in taken:
                by_field[meaning.field] = name, meaning
                taken.add(name)
        self._find_by_value(by_field, taken)
        return by_field

    def _is_own(self, name: str, meaning: Meaning) -> bool:
        """Tell whether a header that may have a meaning is the writer's, not one of an application."""
        strange = header_words.strange(name)
        is_of_family = not strange.isdisjoint(self.family)
        if meaning.weak:
            is_mute = not strange and not self.family and meaning.field != "original_timestamp"
            return is_mute or (is_of_family and strange <= self.family)
        return is_of_family or not (self.family and strange)

    def _find_by_value(self, by_field: dict[str, tuple[str, Meaning]], taken: set[str]) -> None:
        """Give the partition and the offset the one header that can hold them, if no name tells."""
        self._find_topic_by_value(by_field, taken)
        if "original_topic" not in by_field:
            return
        mute = [
            name
            for name in self.counts
            if name not in taken
            and header_words.says_nothing(name)
            and (not self.family or not header_words.strange(name).isdisjoint(self.family))
        ]
        for known, bytes_of_it in (("original_offset", "int64"), ("original_partition", "int32")):
            if known in by_field:
                continue
            fitting = {
                name: encoding
                for name in mute
                if name not in taken and (encoding := self._fits_by_value(known, self.values[name]))
            }
            binary = {name: encoding for name, encoding in fitting.items() if encoding == bytes_of_it}
            fitting = binary or (fitting if self.family else {})
            if len(fitting) == 1:
                ((name, encoding),) = fitting.items()
                by_field[known] = name, Meaning(known, encoding, 3, weak=True)
                taken.add(name)

    def _find_topic_by_value(self, by_field: dict[str, tuple[str, Meaning]], taken: set[str]) -> None:
        if "original_topic" in by_field:
            return
        showing = [
            (name, meaning)
            for name in self.counts
            if name not in taken
            for meaning in self._meanings[name]
            if meaning.field == "original_topic" and meaning.doubt > 2
        ]
        if len(showing) == 1:
            by_field["original_topic"] = showing[0]
            taken.add(showing[0][0])

    def _fits_by_value(self, known: str, values: Values) -> Encoding | None:
        encoding = values.encoding_of(known)
        if encoding is None:
            return None
        distinct = len(set(values.contents))
        if known == "original_offset":
            is_offset = encoding == "int64" or (
                distinct >= LEAST_DISTINCT and 10 * distinct >= 9 * len(values.contents)
            )
            return encoding if is_offset else None
        return encoding if max(number or 0 for number in values.numbers) < 10_000 else None

    def _repeats(self, name: str, by_field: dict[str, tuple[str, Meaning]]) -> bool:
        """Tell whether letters have a header more often than another one of the writer."""
        names = {header for header, _ in by_field.values()}
        for letter, _ in self.writer.letters:
            counts = Counter(header for header, _ in letter.headers if header in names)
            if counts[name] > min(counts.values(), default=0) >= 1:
                return True
        return False

    def tell_apart(self, others: Sequence[_Draft], profiles: Sequence[Profile]) -> None:
        """Make more headers mandatory, or limit the DLQ topics, where the headers are other writers', too."""
        rivals = [(self.counts.keys() & other.writer.names, other.writer.topics) for other in others]
        for profile in profiles:
            rivals.append(({name for name in self.counts if _knows(profile, name)}, frozenset()))
        always = [entry for entry in self.entries if self.counts[entry.name] == len(self.writer.letters)]
        for names, topics in rivals:
            if not self.mandatory <= names:
                continue
            own = next((entry.name for entry in always if entry.name not in names), None)
            if own is not None:
                self.entries = [
                    replace(entry, is_mandatory=entry.is_mandatory or entry.name == own) for entry in self.entries
                ]
            elif self.topic is None:
                self.topic = _glob(self.writer.topics, topics - self.writer.topics)

    @property
    def newest(self) -> Newest:
        """Where the writer puts its headers, as far as the letters show it."""
        return "first" if self._is_newest_first else "anywhere" if self._is_in_a_map else "last"

    @property
    def _is_in_a_map(self) -> bool:
        """Whether the writer keeps its headers in a map: never one twice, and not always in one order."""
        kept = {entry.name for entry in self.entries}
        orders: set[tuple[str, str]] = set()
        for letter, _ in self.writer.letters:
            names = [name for name, _ in letter.headers if name in kept]
            if len(set(names)) < len(names):
                return False
            orders.update(combinations(names, 2))
        return any((second, first) in orders for first, second in orders)

    @property
    def _is_newest_first(self) -> bool:
        """Whether the writer puts its headers before those that it copies: older sets name topics behind newer ones."""
        name = next((entry.name for entry in self.entries if entry.field == "original_topic"), None)
        votes = 0
        for letter, _ in self.writer.letters:
            topics = [value.decode("utf-8", "replace") for header, value in letter.headers if header == name and value]
            if len(topics) > 1 and topics[0] != topics[-1]:
                votes += _comes_before(topics[-1], topics[0], self.topics) - _comes_before(
                    topics[0], topics[-1], self.topics
                )
        return votes > 0

    @property
    def toml(self) -> str:
        """The profile as lines for the settings, with the headers that have no field in a comment."""
        fields = {entry.field for entry in self.entries}
        lines = (
            [] if fields.intersection(ORIGIN) else ["# Without an origin: no header shows where a record comes from."]
        )
        lines += ["[[dlq.profile]]", f"name = {quoted(self.name)}"]
        lines += [f"topic = {quoted(self.topic)}"] if self.topic else []
        lines += [f"newest = {quoted(self.newest)}"] if self.newest != "last" else []
        lines += ["headers = [", *(entry.toml for entry in self.entries), "]"]
        taken = {entry.name for entry in self.entries}
        left = [name for name in self.values if name not in taken and not header_words.is_nobodys(name)]
        left.sort(key=lambda name: (header_words.strange(name).isdisjoint(self.family), -self.counts[name], name))
        if left:
            shown = [f"{quoted(name)} ({self.values[name].kind})" for name in left]
            lines.append(f"# Not placed: {first_names(shown, MOST_NAMES)}.")
        if lacking := [known for known in ORIGIN if known not in fields]:
            lines.append(f"# No header shows {', '.join(lacking)}.")
        return "\n".join(lines)


def _tried(drafts: Sequence[_Draft], letters: Sequence[Letter], dlq: Dlq) -> list[Proposal]:
    """Try profiles together on all letters, as the settings would have them, and leave out those that read none."""
    made = {draft.name: Proposal(draft.name, draft.toml, tuple(draft.letters)) for draft in drafts}
    if not made:
        return []
    pasted = [pasted_profile(proposal.toml) for proposal in made.values()]
    profiles = profiles_of(dlq.model_copy(update={"profile": (*dlq.profile, *pasted)}))
    results = {id(letter): read_by(letter, profiles) for letter in letters}
    counts = Counter((result.profile, result.origin_count) for result in results.values() if result.comes_in)
    older = Counter(name for result in results.values() if result.comes_in for name in {*result.older})
    kept = []
    for name, proposal in made.items():
        read = sum(counts[name, number] for number in range(len(ORIGIN) + 1))
        if read or older[name]:
            whole, part = counts[name, len(ORIGIN)], counts[name, 1] + counts[name, 2]
            own = tuple(letter for letter in proposal.letters if results[id(letter)].profile in (name, None))
            kept.append(
                replace(proposal, letters=own or proposal.letters, read=read, whole=whole, part=part, older=older[name])
            )
    names = {proposal.name for proposal in kept}
    return kept if len(kept) == len(made) else _tried([draft for draft in drafts if draft.name in names], letters, dlq)


def pasted_profile(toml: str) -> OwnProfile:
    """Return the profile of lines for the settings."""
    (profile,) = tomllib.loads(toml)["dlq"]["profile"]
    return OwnProfile.model_validate(profile)


@dataclass(frozen=True)
class Reading:
    """How profiles read a letter: its own profile, or the nearest and what it lacks, and those of earlier hops.

    ``origin_count`` says how many of topic, partition and offset it tells. ``is_lawful``: no value breaks a rule.
    """

    profile: str | None = None
    lacking: tuple[str, ...] = ()
    origin_count: int = 0
    is_lawful: bool = True
    older: tuple[str, ...] = ()

    @property
    def comes_in(self) -> bool:
        """Whether the letter would come in by a profile."""
        return self.profile is not None and not self.lacking and self.is_lawful


def read_by(letter: Letter, profiles: tuple[Profile, ...]) -> Reading:
    """Read a letter by profiles as a run would."""
    from pipelines.columns.headers import read

    plan, texts = read(letter.headers, profiles, letter.topic)
    if plan.own is None:
        return Reading()
    return Reading(
        plan.own.profile.name,
        plan.lacking,
        sum(name in texts for name in ORIGIN),
        all(header_values.is_lawful(name, text) for name, text in texts.items()),
        tuple(hop.profile.name for hop in plan.hops),
    )


def _knows(profile: Profile, name: str) -> bool:
    return name in profile.names or name.startswith(profile.prefixes)


def _name_of(headers: Sequence[str], family: Iterable[str]) -> str:
    """Return a name for a profile: the words that all headers begin with, or those that its origin has in common."""
    beginnings = [header_words.words(header)[:-1] for header in headers]
    shared = beginnings[0][: header_words.beginning(beginnings)] if len(headers) > 1 else ()
    if not header_words.tells_a_writer(shared):
        shared = tuple(word for word in header_words.words(headers[0]) if word in set(family)) if headers else ()
    name = "-".join(shared)
    return name if header_words.tells_a_writer(shared) and len(name) <= MOST_OF_A_PROFILE else "my-profile"


def _unique(name: str, taken: Collection[str]) -> str:
    """Return a profile's name that no other has."""
    number, unique = 2, name
    while unique in taken:
        unique = f"{name[: MOST_OF_A_PROFILE - 4]}-{number}"
        number += 1
    return unique


def _glob(topics: Collection[str], others: Collection[str]) -> str | None:
    """Return a glob that matches all of some topics and none of the others; None if there is none."""
    if len(topics) == 1:
        return next(iter(topics))
    topic = min(topics)
    begin, end = (header_words.beginning(names) for names in (topics, [name[::-1] for name in topics]))
    for glob in (f"{topic[:begin]}*", f"*{topic[len(topic) - end :]}"):
        if len(glob) > 1 and not any(globs.matches(glob, other) for other in others):
            return glob
    return None


def _comes_before(first: str, second: str, dlq_topics: Collection[str]) -> bool:
    """Tell whether a record was in one topic before another: only the second is a DLQ topic, or has its name."""
    if first in dlq_topics or second in dlq_topics:
        return second in dlq_topics and first not in dlq_topics
    return first in second
