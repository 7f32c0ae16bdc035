"""Random histories of dead letters: incidents of all kinds, and what other feeds tell of their source records."""

from __future__ import annotations

import base64
import random
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from pipelines.settings import Settings
from tests.testing import segments
from tests.testing.builders import kip_1191, kip_1317, land, line
from tests.testing.deliveries import acknowledgement

DAY = int(datetime(2026, 11, 18, tzinfo=UTC).timestamp() * 1000)
MINUTE, HOUR, WEEK = 60_000, 3_600_000, 7 * 24 * 3_600_000
GREATEST = 2**63 - 1
OWN = {
    "name": "own",
    "headers": [
        {"name": "x-why", "field": "error_message", "mandatory": True},
        {"name": "x-group", "field": "consumer_group"},
        {"name": "x-topic", "field": "original_topic"},
        {"name": "x-partition", "field": "original_partition"},
        {"name": "x-offset", "field": "original_offset"},
    ],
}
"""A profile that need not name the source record."""


Place = tuple[int, int]
"""Partition and offset of a source record."""
Headers = list[tuple[str, bytes | None]]


@dataclass
class History:
    """Lines to land: incidents of all kinds, some beside each other, and what producers and segments tell of them."""

    chance: random.Random
    letters: list[str] = field(default_factory=list)
    told: dict[tuple[str, int, int], str] = field(default_factory=dict)
    groups: int = 0
    bases: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def draw(self) -> None:
        """Draw some incidents of each kind, in any order."""
        kinds = (
            [self.pills] * 13
            + [partial(self.pills, 1, 12), self.apart, partial(self.pills, 5, told="lacking")]
            + [self.repeated_pills] * 4
            + [self.keys] * 6
            + [partial(self.keys, 1, 1.0), partial(self.keys, 2, 0.9)]
            + [self.partition] * 4
            + [self.retried] * 3
            + [self.header] * 4
            + [self.schema] * 2
            + [self.strange]
            + [self.client] * 2
            + [self.dense] * 6
            + [self.in_transactions] * 3
            + [self.thin] * 6
            + [self.flood] * 3
            + [
                self.unplaced,
                partial(self.unplaced, 0, 4),
                partial(self.unplaced, 30, 20),
                partial(self.unplaced, 40, 3),
            ]
            + [self.nameless, self.timeless]
            + [self.alone] * 2
            + [self.hostile] * 3
            + [self.one_in_each_partition, partial(self.one_in_each_partition, "Offset rejected by client.")]
            + [self.escalated] * 2
            + [self.slow, self.daily]
            + [self.usual] * 2
            + [self.in_segments] * 5
            + [self.returning] * 2
            + [self.storm, partial(self.storm, (0, 0, 0))]
            + [partial(self.second, 1), partial(self.second, 5)]
        )
        self.chance.shuffle(kinds)
        for kind in [*kinds, partial(self.flood, 4, "all"), partial(self.flood, 200, "none")]:
            kind()

    def pills(self, number: int = 0, times: int = 0, told: str = "") -> None:
        number = number or self.chance.choice((1, 1, 2, 3, 5))
        topic, base = self.somewhere()
        far = self.chance.choice((5, 300, 4000))
        places = self.places(number, base, far, partitions=self.chance.choice((1, 2)))
        self.fail(
            self.writer(),
            topic,
            [coordinate for coordinate in places for _ in range(times or self.chance.choice((1, 2, 12)))],
        )
        self.tell(topic, places, told or self.chance.choice(("all", "all", "some", "dead", "others", "none")))

    def apart(self) -> None:
        """Fail on two records; others fail on one between them."""
        topic, base = self.somewhere()
        for offsets in ((0, 4000), (2000,)):
            places = [(0, base + offset) for offset in offsets]
            self.fail(self.writer(), topic, places)
            self.tell(topic, places, "all")

    def repeated_pills(self) -> None:
        topic, base = self.somewhere()
        places = self.places(self.chance.randrange(6, 13), base, 3000, partitions=2)
        self.fail(
            self.writer(), topic, [coordinate for coordinate in places for _ in range(self.chance.choice((3, 4)))]
        )
        self.tell(topic, places, self.chance.choice(("all", "some", "none")))

    def keys(self, number: int = 0, share: float = 0.0) -> None:
        topic, base = self.somewhere()
        places = self.places(30 if number else self.chance.choice((3, 20, 60)), base, self.chance.choice((100, 2500)))
        hot = [b"hot-%d" % number for number in range(number or self.chance.choice((1, 2, 3, 5)))]
        cold = [b"cold-%d" % number for number in range(self.chance.choice((1, 10, 90)))]
        share = share or self.chance.choice((1.0, 0.9, 0.6))
        self.fail(
            self.writer(),
            topic,
            places,
            key=lambda: self.chance.choice(hot if self.chance.random() < share else cold),
        )
        self.tell(topic, places, self.chance.choice(("all", "some", "none")))

    def partition(self) -> None:
        topic, base = self.somewhere()
        item = self.chance.randrange(4)
        places = [(item, offset) for _, offset in self.places(self.chance.randrange(10, 40), base, 400)]
        places += self.places(self.chance.choice((0, 1)), base, 400)
        self.fail(self.writer(), topic, places)
        self.tell(topic, places, self.chance.choice(("all", "some", "dead", "none")))

    def retried(self) -> None:
        """Fail on one record again and again, and once on some of other partitions."""
        topic, base = self.somewhere()
        pill = (0, base + 7)
        others = [(number % 3 + 1, base + 30 * number) for number in range(self.chance.randrange(13, 20))]
        self.fail(self.writer(), topic, [*others, *[pill] * 30], step=10 * MINUTE)
        self.tell(topic, [pill, *others], self.chance.choice(("all", "none")))

    def header(self) -> None:
        """Fail on records that share a header; some other records of the topic have it, too."""
        topic, base = self.somewhere()
        places = self.places(self.chance.randrange(8, 40), base, 900)
        mine, rare = self.word(), self.chance.choice((0.0, 0.05))
        self.fail(
            "spring",
            topic,
            places,
            user=lambda: [("source", self.word() if self.chance.random() < rare else mine), ("trace", self.word())],
        )
        others = self.places(self.chance.randrange(6, 9), base, 900)
        self.fail(
            "spring",
            topic,
            others,
            user=lambda: [("source", mine if self.chance.random() < 0.2 else "shop"), ("trace", self.word())],
        )
        if self.chance.random() < 0.5:
            self.tell(topic, places, "all", lambda: [("source", self.chance.choice((mine, "a", "b", "c")))])

    def strange(self) -> None:
        """Fail on records that share a header, on a topic that nothing else is known of."""
        self.fail("spring", f"strange-{self.groups}", self.places(20, 0, 900), user=lambda: [("source", "shop")])

    def schema(self) -> None:
        topic, base = self.somewhere()
        for number, count in ((self.chance.randrange(100, 200), 20), (7, 9)):
            value = b"\0" + struct.pack(">i", number) + b"x"
            self.fail("spring", topic, self.places(count, base, 900), value=value)

    def client(self) -> None:
        """Fail on what one client wrote; the broker copies no headers."""
        topic, base = self.somewhere()
        places = list(dict.fromkeys(self.places(30, base, 900)))
        self.fail("share", topic, places)
        for place in places[: self.chance.choice((30, 28))]:
            self.told[topic, *place] = acknowledgement(topic, *place, client_id="batch")
        for place in self.places(60, base, 900):
            client = self.chance.choice(("batch", "shop", "shop", "app"))
            self.told.setdefault((topic, *place), acknowledgement(topic, *place, client_id=client))

    def dense(self) -> None:
        topic, base = self.somewhere()
        share = self.chance.choice((1.0, 0.7, 0.4))
        places = [(p, base + o) for p in range(3) for o in range(120) if self.chance.random() < share]
        self.fail(self.writer(), topic, places, step=20_000)
        self.tell(topic, places, self.chance.choice(("all", "window", "some", "dead", "none")))

    def in_transactions(self) -> None:
        """Fail on each message of a topic that is written in transactions: markers stand between."""
        topic, base = self.somewhere()
        step = self.chance.choice((2, 3))
        places = [(p, base + o) for p in range(2) for o in range(0, 200, step) if self.chance.random() < 0.98]
        self.fail(self.writer(), topic, places, step=10_000)
        self.tell(topic, places, self.chance.choice(("none", "none", "dead")))

    def thin(self) -> None:
        topic, base = self.somewhere()
        places = self.places(self.chance.randrange(15, 60), base, self.chance.choice((900, 2900)))
        self.fail(self.writer(), topic, places, message="Offset rejected by client.")
        self.tell(topic, places, self.chance.choice(("all", "window", "some", "none")))

    def flood(self, count: int | None = None, told: str | None = None) -> None:
        topic, base = self.somewhere()
        places = self.places(count or self.chance.choice((1, 4, 200)), base, 500)
        disposition = self.chance.choice(("CIRCUIT_BREAKER_ARCHIVED", "COORDINATOR_INITIATED"))
        self.fail("draft", topic, places, message=disposition, step=2000)
        self.tell(topic, places, told or self.chance.choice(("all", "none")))

    def unplaced(self, known: int = 2, unknown: int = 1) -> None:
        """Fail on records whose headers name no source record, or only some do."""
        topic, base = self.somewhere()
        places = self.places(known, base, 200)
        self.fail("own", topic, [*places, *[None] * unknown])
        self.tell(topic, places, "all")

    def nameless(self) -> None:
        """Land records of a writer that nothing is known of."""
        places = [(0, 0)] * self.chance.choice((1, 3, 40))
        self.fail("plain", "", places, key=lambda: self.chance.choice((None, b"a")))

    def timeless(self) -> None:
        self.fail("plain", "", [(0, 0)] * self.chance.choice((1, 3)), at=-1)

    def alone(self) -> None:
        """Fail on some records of a topic of which one partition is known."""
        base = self.somewhere("single")[1]
        self.fail(self.writer(), "single", self.places(20, base, 900, partitions=1))

    def hostile(self) -> None:
        """Name the greatest offsets and partitions that fit their types."""
        topic = f"hostile-{self.groups}"
        offsets = [GREATEST - self.chance.randrange(2000) for _ in range(self.chance.choice((1, 3, 30)))]
        least = self.chance.choice((0, GREATEST - 3000))
        partition = self.chance.choice((0, 2**31 - 1))
        places = [(partition, offset) for offset in [*offsets, least]]
        self.fail(self.chance.choice(("share", "spring")), topic, places)
        self.tell(
            topic, [coordinate for coordinate in places if coordinate[1] > 1000], self.chance.choice(("some", "none"))
        )

    def returning(self) -> None:
        """Fail on many records several times, over some half hours."""
        topic, base = self.somewhere()
        places = self.places(50, base, 900, partitions=2)
        self.fail(self.writer(), topic, self.chance.choices(places, k=150), step=MINUTE)
        self.tell(topic, places, self.chance.choice(("window", "none")))

    def second(self, hours: int) -> None:
        """Fail on two errors of one group, hours apart."""
        topic, base = self.somewhere()
        start, group = self.start(), f"twice-{self.groups}"
        for begin in (start, start + hours * HOUR):
            places = self.places(4, base, 900)
            times = [begin + number * MINUTE for number in range(4)]
            self.fail("share", topic, places, times=times, group=group)

    def storm(self, partitions: tuple[int, ...] = (0, 1, 2)) -> None:
        topic, base = self.somewhere()
        places = [(partitions[offset % 3], base + offset) for offset in range(1200)]
        self.fail(self.writer(), topic, [*places, (1, base)], step=300)

    def one_in_each_partition(self, message: str = "") -> None:
        base = self.somewhere("wide")[1]
        places = [(partition, base + self.chance.randrange(900)) for partition in range(8)]
        self.fail("share", "wide", places, message=message)
        self.tell("wide", places, self.chance.choice(("all", "none")))

    def escalated(self) -> None:
        topic, base = self.somewhere()
        places = self.places(60, base, 900)
        drip = self.chance.choice((20 * MINUTE, 3 * HOUR))
        start = self.start()
        times = [start + number * drip for number in range(8)]
        times += [times[-1] + drip + number * 5000 for number in range(52)]
        self.fail(self.writer(), topic, places, times=times)

    def slow(self) -> None:
        """Fail every few hours."""
        topic, base = self.somewhere()
        places = self.places(self.chance.randrange(4, 9), base, 900)
        self.fail(self.writer(), topic, places, step=self.chance.choice((5, 9)) * HOUR)

    def daily(self) -> None:
        """Fail nearly once a day."""
        topic, base = self.somewhere()
        self.fail(self.writer(), topic, self.places(15, base, 900), step=24 * HOUR - 2 * MINUTE)

    def usual(self) -> None:
        """Fail as in the weeks before, at the same hour of the week."""
        topic, base = self.somewhere()
        start = self.start()
        for weeks in range(self.chance.choice((2, 3)) + 1):
            places = self.places(self.chance.randrange(1, 7), base + 100 * weeks, 90)
            times = [start - weeks * WEEK + self.chance.randrange(20 * MINUTE) for _ in places]
            self.fail("share", topic, places, times=times, group="weekly", message=f"week {topic}")

    def in_segments(self) -> None:
        """Fail on records of a log that landed."""
        records = [
            (partition, offset)
            for partition in range(2)
            for offset in range(2400)
            if offset % 12 < 11 and not 700 <= offset < 720
        ]
        begin = self.chance.choice((0, 650, 1500))
        near = [place for place in records if begin <= place[1] < begin + 200]
        count = self.chance.choice((1, 3, 60, 300))
        self.fail(self.writer(), "logged", self.chance.sample(near, count))

    # --- their parts

    def somewhere(self, topic: str | None = None) -> tuple[str, int]:
        """Return a topic and an offset from which on an incident fails, sometimes beside another one."""
        topic = topic or self.chance.choice(("orders", "paid", "shipped"))
        if self.chance.random() < 0.7 or not self.bases[topic]:
            self.bases[topic] += 10_000
        return topic, self.bases[topic] - 5000 + self.chance.choice((0, 0, 1000))

    def places(self, number: int, base: int, span: int, partitions: int = 4) -> list[Place]:
        return [(self.chance.randrange(partitions), base + self.chance.randrange(span)) for _ in range(number)]

    def start(self) -> int:
        return DAY + self.chance.randrange(48 * 60) * MINUTE + self.chance.randrange(MINUTE)

    def word(self) -> str:
        return "".join(self.chance.choices("abcdefghijklmnop", k=8))

    def writer(self) -> str:
        return self.chance.choice(("share", "draft", "spring", "spring", "own"))

    def fail(
        self,
        writer: str,
        topic: str,
        places: Sequence[Place | None],
        *,
        message: str = "",
        step: int = 3 * MINUTE,
        times: Sequence[int] | None = None,
        at: int | None = None,
        group: str | None = None,
        key: Callable[[], bytes | None] | None = None,
        value: bytes | None = b"v",
        user: Callable[[], list[tuple[str, str]]] | None = None,
    ) -> None:
        """Dead-letter the records at some places, one after another."""
        self.groups += 1
        group = group or f"group-{self.groups}"
        message = message or f"Failed {self.word()}."
        start = self.start()
        has_keys = self.chance.random() < 0.7
        if writer in ("share", "draft") and self.chance.random() < 0.3:
            value = None  # the broker copies no payload
        for number, place in enumerate(places):
            own = times[number] if times else at or start + number * step + self.chance.randrange(1000)
            partition, offset = place or (None, None)
            headers: Headers = []
            if writer == "share":
                headers = kip_1191(topic, str(partition), str(offset), group, 1, message)
            elif writer == "draft":
                dispositions = ("CIRCUIT_BREAKER_ARCHIVED", "COORDINATOR_INITIATED")
                said = message if message in dispositions else "CLIENT_REJECTED"
                routed = datetime.fromtimestamp(own / 1000, UTC)
                headers = kip_1317(
                    disposition=said,
                    original_topic=topic,
                    original_partition=str(partition),
                    original_offset=str(offset),
                    original_consumer_group=group,
                    timestamp=f"{routed:%Y-%m-%dT%H:%M:%S}.{own % 1000:03}Z",
                )
            elif writer == "spring":
                headers = [(name, text.encode()) for name, text in (user or list)()]
                headers += [
                    ("kafka_dlt-original-topic", topic.encode()),
                    ("kafka_dlt-original-partition", struct.pack(">i", partition)),
                    ("kafka_dlt-original-offset", struct.pack(">q", offset)),
                    ("kafka_dlt-original-consumer-group", group.encode()),
                    ("kafka_dlt-exception-fqcn", b"java.lang.IllegalStateException"),
                    ("kafka_dlt-exception-message", message.encode()),
                ]
            elif writer == "own":
                headers = [("x-why", message.encode()), ("x-group", group.encode()), ("x-topic", topic.encode())]
                if place:
                    headers += [("x-partition", b"%d" % partition), ("x-offset", b"%d" % offset)]
            own_key = key() if key else b"key-%d" % self.chance.randrange(200) if has_keys else None
            copied = value is not None or writer not in ("share", "draft")
            self.letters.append(
                line(
                    len(self.letters),
                    topic=f"dlq.{writer}",
                    timestamp=own,
                    key=own_key if copied else None,
                    value=value,
                    headers=headers,
                )
            )

    def tell(
        self,
        topic: str,
        places: Iterable[Place],
        what: str,
        headers: Callable[[], list[tuple[str, str]]] | None = None,
    ) -> None:
        """Let producers tell of dead records, of their neighbours, of both, of some or of none.

        ``window``: of all from the first to the last one of each partition; ``lacking``: of all but a dead one.
        """
        dead = {*places}
        around: set[Place] = set()
        if what in ("all", "some", "others", "lacking"):
            around = {(p, o) for p, offset in dead for o in range(max(offset - 9, 0), min(offset + 10, GREATEST))}
        if what in ("all", "window"):
            for partition in {p for p, _ in dead}:
                offsets = [o for p, o in dead if p == partition]
                if max(offsets) - min(offsets) < 1500:
                    around |= {(partition, offset) for offset in range(min(offsets), max(offsets) + 1)}
        if what == "some":
            around = {place for place in around if self.chance.random() < 0.3}
        chosen = around - dead if what == "others" else around | (dead if what != "none" else set())
        if what == "lacking":
            chosen.discard(self.chance.choice(sorted(dead)))
        for place in sorted(chosen):
            more = {} if headers is None else {"headers": [_header(*header) for header in headers()]}
            client = self.chance.choice(("shop", "app", None))
            self.told.setdefault((topic, *place), acknowledgement(topic, *place, client_id=client, **more))

    def land(self, settings: Settings) -> None:
        """Write the files; two partitions of a topic have landed segments with markers, and a hole."""
        land(settings, {"letters.jsonl": self.letters})
        land(settings, {"told.jsonl": self.told.values()}, "acknowledgements")
        for partition in range(2):
            directory = settings.landing_of("segments") / f"logged-{partition}"
            directory.mkdir(parents=True)
            parts = []
            for base in range(0, 2400, 12):
                if not 696 <= base < 720:
                    parts += [segments.batch(base, 11, flags=0x10, producer=(7, 0, base))]
                    parts += [segments.marker(base + 11, True)]
                elif base == 696:
                    parts += [segments.batch(base, 4, flags=0x10, producer=(7, 0, base))]
            (directory / f"{0:020}.log").write_bytes(b"".join(parts))


def _header(name: str, text: str) -> dict[str, str]:
    return {"key": name, "value": base64.b64encode(text.encode()).decode()}
