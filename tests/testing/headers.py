"""A model of writers that dead-letter a record one after another: what they write, and so what its headers mean.

It shares the profiles with the decoder, and no code that reads headers.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipelines.columns.profiles import SHARE_GROUP, Header, Profile

Headers = list[tuple[str | None, bytes | None] | None]

USER = ("traceparent", "content-type", "b3", "x-tenant", "")


@dataclass(frozen=True)
class Item:
    """A header of a story: the hop that wrote it, its header in the profile, and the text of its value."""

    name: str
    value: bytes
    hop: int = -1
    header: Header | None = None
    text: str = ""


@dataclass
class Story:
    """A record's headers, the DLQ topic that holds it, and its hops, oldest first, with the texts that they wrote.

    ``is_plain``: no writer and no relay kept the headers in a map, and nobody copied them.
    """

    topic: str
    items: list[Item] = field(default_factory=list)
    written: list[tuple[Profile, dict[str, str]]] = field(default_factory=list)
    is_plain: bool = True

    @property
    def headers(self) -> Headers:
        """The headers as the record has them."""
        return [(item.name, item.value) for item in self.items]

    @property
    def hops(self) -> list[tuple[Profile, dict[str, str]]]:
        """The profile and the texts of the hops whose mandatory headers the record still has, oldest first."""
        there = {(item.hop, item.name) for item in self.items}
        return [
            (profile, texts)
            for hop, (profile, texts) in enumerate(self.written)
            if all((hop, name) in there for name in profile.mandatory)
        ]

    @property
    def user_headers(self) -> Headers:
        """The headers that no writer wrote."""
        return [(item.name, item.value) for item in self.items if item.name in USER]

    def texts_of(self, name: str) -> set[str]:
        """Return the texts of a field in all headers that the record still has."""
        return {item.text for item in self.items if item.header and item.header.field == name}


def stories(seeded: random.Random, profiles: Sequence[Profile], most_hops: int = 4) -> Story:
    """Return a record that random writers dead-lettered one after another, with and without optional headers.

    Each DLQ topic has its source's name in its own, as people name them. Where not all writers append, or where headers
    are shuffled or copied, only topics tell the order, so all writers name the topic.
    """
    chosen = [profile for profile in profiles if profile.mandatory and not profile.mandatory_paths]
    is_plain = seeded.random() < 0.3
    chosen = [profile for profile in chosen if profile.newest == "last"] if is_plain else _naming(chosen)
    if (
        not is_plain
    ):  # a map keeps one value of Helidon's shared names, or drops the hop between a share group's two sets
        absent = {seeded.choice(("helidon", "helidon-declarative")), seeded.choice(SHARE_GROUP)}
        chosen = [profile for profile in chosen if profile.name not in absent]
    topic = f"{seeded.choice(('orders', 'payments', 'stock'))}{seeded.randrange(100)}"
    story = Story(topic, [Item(name, b"u") for name in seeded.sample(USER, seeded.randrange(3))])
    for hop in range(seeded.randint(1, most_hops)):
        before = story.written[-1][0] if story.written else None
        profile = seeded.choice(chosen)
        while before and before is not profile and {before.name, profile.name} <= set(SHARE_GROUP):
            profile = seeded.choice(chosen)  # the two sets of a share group are one hop
        items, texts = _written(seeded, profile, story.topic, hop, names_topic=not is_plain)
        _write(seeded, story, profile, items)
        story.written.append((profile, texts))
        story.topic = f"{story.topic}.{seeded.choice(('dlq', 'DLT', 'dead'))}{len(story.written)}"
        if not is_plain and seeded.random() < 0.2:
            _relay(seeded, story)
    return story


def _write(seeded: random.Random, story: Story, profile: Profile, items: list[Item]) -> None:
    """Put a writer's set into the headers of a record, as the writer does."""
    if profile.newest == "first":
        story.items = [*items, *story.items]
        return
    more = [Item(seeded.choice(USER), b"u")] if seeded.random() < 0.2 else []
    if profile.newest == "last":
        story.items = [*story.items, *more, *items]
        return
    story.is_plain = False
    is_random = seeded.random() < 0.5
    kept = _map([*story.items, *more])
    fresh = {item.name for item in items}
    replaced = {item.name: item for item in items if item.name in kept}
    story.items = [replaced.get(name, item) for name, item in kept.items()]
    story.items += [item for item in items if item.name in fresh - kept.keys()]
    if is_random:
        seeded.shuffle(story.items)
    elif more:  # an application's header may stand between those of a writer
        story.items.insert(seeded.randrange(len(story.items) + 1), Item("b3", b"u"))


def _relay(seeded: random.Random, story: Story) -> None:
    """Copy a record as a relay does: one with all headers twice, another with its headers in a random order."""
    story.is_plain = False
    if seeded.random() < 0.5:
        if all({"original_partition", "original_offset"} <= texts.keys() for _, texts in story.hops):
            story.items = [*story.items, *story.items]
        return
    story.items = [*_map(story.items).values()]
    for _ in range(1_000):
        seeded.shuffle(story.items)
        if all(_shows(profile, story.items) for profile, _ in story.hops):
            return
    raise AssertionError("no shuffle shows")


def _map(items: Sequence[Item]) -> dict[str, Item]:
    """Return headers as a map keeps them: the last value of a name, at the place of the first."""
    return {item.name: item for item in items}


def _shows(profile: Profile, items: Sequence[Item]) -> bool:
    """Tell whether a shuffle shows: the mandatory headers of a writer are not in its order."""
    once = [header.name for header in profile.headers if header.mandatory and not header.repeats]
    names = [item.name for item in items]
    places = [names.index(name) for name in once]
    return profile.newest == "anywhere" or len(places) < 2 or places != sorted(places)


def _naming(profiles: Sequence[Profile]) -> list[Profile]:
    """Return the profiles that can name the source topic."""
    return [profile for profile in profiles if any(header.field == "original_topic" for header in profile.headers)]


def _written(
    seeded: random.Random, profile: Profile, source: str, hop: int, names_topic: bool
) -> tuple[list[Item], dict[str, str]]:
    """Return a set of a writer in its order, and the texts of the fields that it fills."""
    written: list[Item] = []
    texts: dict[str, str] = {}
    keep = seeded.choice((0.0, 0.5, 1.0))
    for header in profile.headers:
        is_kept = header.mandatory or (names_topic and header.field == "original_topic") or seeded.random() < keep
        if header.path or not is_kept:
            continue
        for _ in range(seeded.randint(1, 3) if header.repeats else 1):
            name = f"{header.name}{seeded.choice('abc')}" if header.is_prefix else header.name
            value, text = _value(seeded, header, source)
            written.append(Item(name, value, hop, header, text))
            if header.field and (header.field not in texts or _is_same(header, profile, written)):
                texts[header.field] = text
    return written, texts


def _is_same(header: Header, profile: Profile, written: Sequence[Item]) -> bool:
    """Tell whether a header is the one that counts for its field: of several that fill it the first."""
    first = next(
        header_of_these
        for header_of_these in profile.headers
        if header_of_these.field == header.field and _stands(header_of_these, written)
    )
    return first is header


def _stands(header: Header, written: Sequence[Item]) -> bool:
    return any(item.name.startswith(header.name) if header.is_prefix else item.name == header.name for item in written)


def _value(seeded: random.Random, header: Header, source: str) -> tuple[bytes, str]:
    number = seeded.randrange(2**31)
    if header.encoding == "int32":
        return struct.pack(">i", number), str(number)
    if header.encoding == "int64":
        return struct.pack(">q", number), str(number)
    if header.encoding == "integer":
        return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True), str(number)
    if header.field == "original_topic":
        return (f"kafka://topic/{source}" if header.encoding == "uri" else source).encode(), source
    if header.field in ("original_partition", "original_offset", "delivery_count"):
        return str(number).encode(), str(number)
    text = f"{header.field}{number}"
    return (f"{text}: why".encode(), text) if header.encoding == "throwable" else (text.encode(), text)
