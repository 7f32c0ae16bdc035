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


@dataclass
class Story:
    """A record's headers, the DLQ topic that holds it, and the texts of the fields of each hop, oldest first."""

    topic: str
    headers: Headers = field(default_factory=list)
    hops: list[tuple[Profile, dict[str, str]]] = field(default_factory=list)

    @property
    def user_headers(self) -> Headers:
        """The headers that no writer wrote."""
        return [header for header in self.headers if header is not None and header[0] in USER]


def stories(seeded: random.Random, profiles: Sequence[Profile], most_hops: int = 4) -> Story:
    """Return a record that random writers dead-lettered one after another, with and without optional headers.

    Each DLQ topic has its source's name in its own, as people name them. Where writers that write first and others that
    append meet, only topics tell their order, so all of them name the topic.
    """
    chosen = [profile for profile in profiles if profile.mandatory and not profile.mandatory_paths]
    chosen = [profile for profile in chosen if profile.newest == "last"] if seeded.random() < 0.5 else _naming(chosen)
    topic = f"{seeded.choice(('orders', 'payments', 'stock'))}{seeded.randrange(100)}"
    story = Story(topic, [(name, b"u") for name in seeded.sample(USER, seeded.randrange(3))])
    for _ in range(seeded.randint(1, most_hops)):
        before = story.hops[-1][0] if story.hops else None
        profile = seeded.choice(chosen)
        while before and before is not profile and {before.name, profile.name} <= set(SHARE_GROUP):
            profile = seeded.choice(chosen)  # the two sets of a share group are one hop
        written, texts = _written(seeded, profile, story.topic)
        if profile.newest == "first":
            story.headers = [*written, *story.headers]
        else:
            more: Headers = [(seeded.choice(USER), b"u")] if seeded.random() < 0.2 else []
            story.headers = [*story.headers, *more, *written]
        story.hops.append((profile, texts))
        story.topic = f"{story.topic}.{seeded.choice(('dlq', 'DLT', 'dead'))}{len(story.hops)}"
    return story


def _naming(profiles: Sequence[Profile]) -> list[Profile]:
    """Return the profiles that always name the source topic."""
    named = ((profile, header) for profile in profiles for header in profile.headers)
    return [profile for profile, header in named if header.field == "original_topic" and header.mandatory]


def _written(seeded: random.Random, profile: Profile, source: str) -> tuple[Headers, dict[str, str]]:
    """Return a set of a writer in its order, and the texts of the fields that it fills."""
    written: Headers = []
    texts: dict[str, str] = {}
    keep = seeded.choice((0.0, 0.5, 1.0))
    for header in profile.headers:
        if not header.mandatory and (header.path or seeded.random() >= keep):
            continue
        for _ in range(seeded.randint(1, 3) if header.repeats else 1):
            name = f"{header.name}{seeded.choice('abc')}" if header.is_prefix else header.name
            value, text = _value(seeded, header, source)
            written.append((name, value))
            if header.field and (header.field not in texts or _is_same(header, profile, written)):
                texts[header.field] = text
    return written, texts


def _is_same(header: Header, profile: Profile, written: Headers) -> bool:
    """Tell whether a header is the one that counts for its field: of several that fill it the first."""
    first = next(one for one in profile.headers if one.field == header.field and _stands(one, written))
    return first is header


def _stands(header: Header, written: Headers) -> bool:
    return any(
        one is not None and (one[0] or "").startswith(header.name)
        if header.is_prefix
        else one and one[0] == header.name
        for one in written
    )


def _value(seeded: random.Random, header: Header, source: str) -> tuple[bytes, str]:
    number = seeded.randrange(2**31)
    if header.encoding == "int32":
        return struct.pack(">i", number), str(number)
    if header.encoding == "int64":
        return struct.pack(">q", number), str(number)
    if header.encoding == "integer":
        return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True), str(number)
    if header.field == "original_topic":
        return source.encode(), source
    if header.field in ("original_partition", "original_offset", "delivery_count"):
        return str(number).encode(), str(number)
    text = f"{header.field}{number}"
    return (f"{text}: why".encode(), text) if header.encoding == "throwable" else (text.encode(), text)
