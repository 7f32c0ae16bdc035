"""The log of a source topic: its records, with their keys, headers and producers."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from zlib import crc32

from bench.scenarios.errors import WORDS, Consumer, uuid
from bench.scenarios.labels import Undecidable
from bench.scenarios.times import ORIGIN


@dataclass
class Source:
    """A source record: what its producer wrote, and when."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, str], ...]
    client: str
    written_at: int


@dataclass(frozen=True)
class Trait:
    """What the records of an incident have in common, and no other record of the topic has."""

    header: tuple[str, str] | None = None
    schema_id: int | None = None
    keys: tuple[bytes, ...] = ()
    client: str = ""

    def __bool__(self) -> bool:
        """Tell whether they have anything in common."""
        return bool(self.header or self.schema_id is not None or self.keys or self.client)


DIMENSIONS: tuple[tuple[str, Callable[[random.Random], list[str]]], ...] = (
    ("x-app-version", lambda r: [f"{r.randrange(1, 5)}.{minor}.{r.randrange(9)}" for minor in r.sample(range(20), 5)]),
    ("source-system", lambda r: r.sample(["web", "mobile", "pos", "partner-api", "batch-import", "call-centre"], 5)),
    ("x-tenant", lambda r: [f"tenant-{number}" for number in r.sample(range(10, 99), 5)]),
    ("region", lambda r: r.sample(["eu-west-1", "eu-north-1", "us-east-1", "ap-south-1", "sa-east-1"], 5)),
    ("event-type", lambda r: r.sample(["Created", "Changed", "Cancelled", "Refunded", "Archived", "Split"], 5)),
)
TENANTS = ("globex", "initech", "umbrella", "hooli", "acme-eu", "acme-us", "stark", "wayne", "tyrell", "soylent")
KEY_STYLES = ("number", "uuid", "named", "binary", "tenant")
KEYS_PER_PARTITION = 300


class Topic:
    """The log of a source topic: a steady flow, so that each time has its place in each partition.

    ``rate`` is in data records per ms of the whole topic. ``step`` data records make a transaction, which ends with a
    marker; 0 means none. Records are placed by their number among the data records of a partition.
    """

    def __init__(self, name: str, r: random.Random, partitions: int, key_style: str | None, has_schemas: bool) -> None:
        """Draw partitions' first offsets, producers, headers and keys."""
        self.name, self.random, self.partitions, self.key_style = name, r, partitions, key_style
        self.rate = 0.0
        self.step = 0
        self.base = [r.choice((0, r.randrange(10**6), r.randrange(10**10))) for _ in range(partitions)]
        self.clients = [f"{name}-writer-{number}" for number in range(1, 5)]
        self.client_header = r.random() < 0.5
        dimensions = r.sample(DIMENSIONS, r.randrange(2, 4))
        self.dimensions = {dimension: values(r) for dimension, values in dimensions}
        self.unused = {dimension: values.pop() for dimension, values in self.dimensions.items()}
        first = r.randrange(1, 400)
        self.schemas = [first, first + r.randrange(1, 9)] if has_schemas else []
        self.tenants = r.sample(TENANTS, 6)
        self.failing_tenant = self.tenants.pop()
        self.made: dict[tuple[int, int], Source] = {}
        self.marked: set[tuple[int, int]] = set()
        self.taken: dict[Consumer, set[tuple[int, int]]] = {}
        self.keys = self._keys()
        self.scattered = {partition: iter(r.sample(keys, len(keys))) for partition, keys in enumerate(self.keys)}

    def partition_of(self, key: bytes) -> int:
        """Return the partition that producers write a key to."""
        return crc32(key) % self.partitions

    def _key(self) -> bytes:
        r, number = self.random, self.random.randrange(10**8, 10**9)
        if self.key_style == "number":
            return b"%d" % number
        if self.key_style == "uuid":
            return uuid(r).encode()
        if self.key_style == "named":
            return b"customer-%d" % number
        if self.key_style == "binary":
            return struct.pack(">q", number)
        return f"{r.choice(self.tenants)}:{number}".encode()

    def _keys(self) -> list[list[bytes]]:
        keys: list[list[bytes]] = [[] for _ in range(self.partitions)]
        while self.key_style and min(map(len, keys)) < KEYS_PER_PARTITION:
            key = self._key()
            keys[self.partition_of(key)].append(key)
        return keys

    def scattered_key(self, partition: int) -> bytes | None:
        """Return a key of the partition that no scatter has used; None if the topic has no keys."""
        if not self.key_style:
            return None
        key = next(self.scattered[partition], None)
        if key is None:
            raise Undecidable
        return key

    def failing_keys(self, count: int, of_tenant: bool) -> tuple[bytes, ...]:
        """Return keys that begin alike only if they are of the failing tenant."""
        if of_tenant:
            numbers = self.random.sample(range(10**8, 10**9), count)
            return tuple(f"{self.failing_tenant}:{number}".encode() for number in numbers)
        keys: list[bytes] = []
        while len(keys) < count:
            key = self._key()
            if self.key_style in ("number", "uuid") and key[:1] in {known[:1] for known in keys}:
                continue
            keys.append(key)
        return tuple(keys)

    def number_at(self, partition: int, at: int) -> int:
        """Return the number of the record that the flow writes to the partition at that time."""
        return self.base[partition] + int((at - ORIGIN) * self.rate / self.partitions)

    def offset(self, number: int) -> int:
        """Return the offset of a record by its number: markers of transactions take offsets, too."""
        return number + number // self.step if self.step else number

    def is_free(self, consumer: Consumer, source: tuple[int, int], trait: Trait) -> bool:
        """Tell whether the consumer can still fail on a record, and the record can have the trait."""
        taken = self.taken.setdefault(consumer, set())
        return source not in taken and source not in self.marked and not (trait and source in self.made)

    def record(
        self, consumer: Consumer, source: tuple[int, int], at: int, trait: Trait, key: bytes | None = None
    ) -> Source:
        """Return the source record of a place; the first dead letter of it decides what it holds."""
        self.taken.setdefault(consumer, set()).add(source)
        if trait:
            self.marked.add(source)
        if source not in self.made:
            partition, number = source
            self.made[source] = self._written(partition, number, at, trait, key)
        return self.made[source]

    def headers(self, client: str, trait: Trait = Trait()) -> list[tuple[str, str]]:
        """Return headers as producers of the topic write them."""
        r = self.random
        headers = [("content-type", "application/avro" if self.schemas else "application/json")]
        headers.append(("traceparent", f"00-{r.getrandbits(128):032x}-{r.getrandbits(64):016x}-01"))
        if self.client_header:
            headers.append(("client-id", client))
        for dimension, values in self.dimensions.items():
            value = r.choice(values)
            headers.append(trait.header if trait.header and trait.header[0] == dimension else (dimension, value))
        return headers

    def _written(self, partition: int, number: int, at: int, trait: Trait, key: bytes | None) -> Source:
        r = self.random
        if key is None and self.key_style:
            pool = self.keys[partition]
            key = pool[int(r.random() ** 1.5 * len(pool))]
        client = trait.client or r.choice(self.clients)
        headers = self.headers(client, trait)
        if self.schemas:
            schema_id = r.choice(self.schemas) if trait.schema_id is None else trait.schema_id
            value_bytes = b"\0" + struct.pack(">i", schema_id) + r.randbytes(r.randrange(12, 40))
        else:
            body = {"id": r.randrange(10**9), "amount": r.randrange(10**6) / 100, "note": r.choice(WORDS)}
            value_bytes = json.dumps(body, ensure_ascii=False).encode()
        written_at = at - r.randrange(20, 3_000)
        return Source(partition, self.offset(number), key, value_bytes, tuple(headers), client, written_at)
