"""seed -> labelled incident scenarios: landing files of dead letters and of what changed, with the truth about each.

The labels follow the public definition of an incident only: one error of one group on one topic, until it pauses. A
scenario simulates the log of a topic, so that offsets, times, keys and headers of all its dead letters agree.

A verdict must be decidable from what lands. Keys and headers decide it only where they land, a thin scatter stays far
below a full log, and pauses stay clear of the limit that ends an episode. A first suspect is unique: at most one thing
changed in the day before the incident, or the dead records share one value that earlier dead letters lack.
"""

from __future__ import annotations

import json
import math
import random
import re
import struct
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from statistics import median_low
from typing import Any
from zlib import crc32

from tests.testing.requests import description, node

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
FIRST_START = int(datetime(2026, 11, 6, tzinfo=UTC).timestamp()) * 1000
LAST_START = int(datetime(2026, 11, 15, tzinfo=UTC).timestamp()) * 1000
ORIGIN = int(datetime(2026, 10, 25, tzinfo=UTC).timestamp()) * 1000
"""When all source logs begin."""

VERDICTS = (
    "POISON_PILL",
    "KEY_LOCAL",
    "PARTITION_LOCAL",
    "PRODUCER_LOCAL",
    "SYSTEMIC",
    "FLOOD",
    "UNDETERMINED",
)
CHANGES = (
    "topology",
    "writer_topology",
    "new_group",
    "new_client",
    "producer",
    "broker_restart",
    "missing_headers",
)
SUSPECTS = (*CHANGES, "header", "schema_id", "key_prefix", "client")
"""Suspects that are an event in time; the others are a value that the dead records share."""
TOPIC_WIDE = ("writer_topology", "new_client", "producer", "broker_restart")

MOST_TOLD = 6_000
"""Messages that producers tell of around an incident."""

HEADLESS = "-headless.jsonl"
"""How the names of files end whose dead letters lack a mandatory header; they belong to no incident."""

# How many of the scenarios in a deck have a verdict with a first suspect.
DECK: tuple[tuple[str, str | None, int], ...] = (
    ("POISON_PILL", None, 3),
    ("POISON_PILL", "topology", 1),
    ("POISON_PILL", "writer_topology", 1),
    ("POISON_PILL", "new_group", 1),
    ("POISON_PILL", "missing_headers", 1),
    ("KEY_LOCAL", None, 2),
    ("KEY_LOCAL", "key_prefix", 3),
    ("KEY_LOCAL", "topology", 1),
    ("KEY_LOCAL", "producer", 1),
    ("PARTITION_LOCAL", None, 3),
    ("PARTITION_LOCAL", "topology", 1),
    ("PARTITION_LOCAL", "writer_topology", 1),
    ("PARTITION_LOCAL", "producer", 1),
    ("PARTITION_LOCAL", "new_client", 1),
    ("PRODUCER_LOCAL", "header", 4),
    ("PRODUCER_LOCAL", "schema_id", 3),
    ("PRODUCER_LOCAL", "client", 3),
    ("SYSTEMIC", None, 3),
    ("SYSTEMIC", "topology", 2),
    ("SYSTEMIC", "writer_topology", 2),
    ("SYSTEMIC", "new_group", 2),
    ("SYSTEMIC", "producer", 1),
    ("SYSTEMIC", "new_client", 1),
    ("SYSTEMIC", "broker_restart", 2),
    ("SYSTEMIC", "missing_headers", 1),
    ("SYSTEMIC", "schema_id", 1),
    ("SYSTEMIC", "header", 1),
    ("FLOOD", None, 2),
    ("FLOOD", "new_group", 1),
    ("FLOOD", "writer_topology", 1),
    ("FLOOD", "broker_restart", 1),
    ("UNDETERMINED", None, 2),
    ("UNDETERMINED", "topology", 1),
    ("UNDETERMINED", "broker_restart", 1),
)


@dataclass(frozen=True)
class Shape:
    """How the topics and incidents of scenarios look; shares are probabilities.

    ``tells_all`` is the share of scenarios where every message around the main incident is acknowledged, ``paces`` that
    of poison pills that come back by the hour and in a storm.
    """

    partitions: tuple[int, ...] = (3, 4, 6, 8, 12, 16, 24)
    gap: tuple[float, float] = (3, 20 * MINUTE)
    most_records: int = 3_000
    noise: tuple[float, float, float] = (0.6, 0.6, 0.4)
    overlap: float = 0.4
    overlaps: tuple[int, ...] = (1, 1, 2)
    late: float = 0.35
    regression: float = 0.3
    in_transactions: float = 0.3
    tells_all: float = 0.0
    paces: float = 0.0


SHAPES = {
    "usual": Shape(),
    "narrow": Shape(partitions=(2, 3, 5), gap=(20 * SECOND, 25 * MINUTE), most_records=800, late=0.6, tells_all=0.3),
    "wide": Shape(partitions=(32, 48, 64), gap=(2, 20 * SECOND), most_records=4_000, in_transactions=0.1),
    "crowded": Shape(noise=(0.9, 0.9, 0.8), overlap=0.85, overlaps=(1, 2, 3), late=0.5, regression=0.5),
    "transactions": Shape(in_transactions=1.0, tells_all=0.7),
    "paces": Shape(paces=1.0, tells_all=0.3),
}

SHARE, DRAFT, STREAMS, CONNECT, SPRING = "kip-1191", "kip-1317", "kafka-streams", "kafka-connect", "spring-kafka"
PROFILES = (SHARE, DRAFT, STREAMS, CONNECT, SPRING)
WITH_HEADERS = (STREAMS, CONNECT, SPRING)
"""Profiles that keep the user's headers. Share groups drop them, and only share groups can leave out the payload."""
WITHOUT_GROUP = (STREAMS, CONNECT)
READ_BY_TOPOLOGY = (STREAMS, SPRING)
"""Profiles of Streams applications: its own handler, or Spring's recoverer, which names the application's group."""


# --- what a caller gets ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Suspect:
    """What changed shortly before an incident, or what its dead records share.

    The name of a topology or a new group is the group, that of missing headers the DLQ topic, that of a restart the
    broker's node id. A producer's, a client's or a new client's is its client id, a header's ``<name>=<value>``, a
    schema's its id in decimal, a key prefix's the prefix with its separator.
    """

    kind: str
    name: str


@dataclass(frozen=True)
class TrueIncident:
    """The truth about one incident, after all batches of its scenario have landed.

    ``predecessor`` is the place in ``Scenario.truth`` of the earlier incident with the same fingerprint. ``places`` are
    the dead letters: DLQ topic, partition and offset. ``first_suspect`` is a label only if ``noise`` is False, because
    a noise incident is often the first that is known of its group. ``profile`` and ``error`` say what failed.
    """

    consumer_group: str | None
    original_topic: str
    verdict: str
    rejection: bool
    first_at: datetime
    last_at: datetime
    records: int
    source_records: int
    first_suspect: Suspect | None
    predecessor: int | None
    noise: bool
    profile: str
    error: str
    places: frozenset[tuple[str, int, int]] = field(repr=False)


@dataclass(frozen=True)
class Scenario:
    """Landing files by batch, and the truth about them. ``duplicates`` counts lines that land a second time."""

    name: str
    truth: tuple[TrueIncident, ...]
    duplicates: int
    files: tuple[Mapping[str, tuple[str, ...]], ...] = field(repr=False)

    @property
    def batches(self) -> int:
        """How many batches land: two if some lines are late."""
        return len(self.files)

    def land(self, directory: Path, batch: int = 0) -> None:
        """Write the files of a batch into the feeds' directories below a landing directory."""
        for name, lines in self.files[batch].items():
            target = directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            scratch = target.with_name(f".{target.name}")
            scratch.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            scratch.rename(target)


def scenarios(seed: int, count: int, shape: Shape = SHAPES["usual"]) -> Iterator[Scenario]:
    """Yield scenarios with unique topics and groups; seed and shape decide about each, whatever the count."""
    size = sum(weight for *_, weight in DECK)
    deck: list[tuple[str, str | None]] = []
    for number in range(count):
        if number % size == 0:
            deck = [(verdict, suspect) for verdict, suspect, weight in DECK for _ in range(weight)]
            random.Random(f"{seed}/deck/{number // size}").shuffle(deck)
        yield _scenario(seed, number, *deck[number % size], shape)


def _scenario(seed: int, number: int, verdict: str, suspect: str | None, shape: Shape) -> Scenario:
    """Return the first attempt whose incidents obey the public definition; most first attempts do."""
    for attempt in range(200):
        try:
            return Plan(f"s{seed}-{number:04}", f"{seed}/{number}/{attempt}", verdict, suspect, shape).scenario()
        except Undecidable:
            continue
    raise AssertionError(f"no scenario {number} of seed {seed} is decidable")


class Undecidable(Exception):
    """What was drawn does not allow an honest label."""


# --- episodes by the public definition ---------------------------------------------------------------------------


def _gaps(times: Sequence[int]) -> list[int]:
    """Return the gaps in ms between minutes with records."""
    minutes = [[*of_minute] for _, of_minute in groupby(times, key=lambda at: at // MINUTE)]
    return [after[0] - before[-1] for before, after in pairwise(minutes)]


def _limit(gaps: Sequence[int]) -> float:
    usual = median_low(gaps[-10:]) if gaps else 0
    return min(max(10 * usual, 2 * max(gaps, default=0), 30 * MINUTE), DAY)


def pause_limit(times: Sequence[int]) -> float:
    """Return the silence in ms that ends an episode with these sorted times, whatever comes after it."""
    return _limit(_gaps(times))


def _is_one_episode(times: Sequence[int]) -> bool:
    """Tell whether no silence comes near the limit."""
    safe, gaps = 0.7, _gaps(times)
    return all(
        silence <= safe * min(max(_limit(gaps[:index]), 10 * next_gap), DAY)
        for index, (silence, next_gap) in enumerate(zip(gaps, [*gaps[1:], 0], strict=False))
        if silence > safe * 30 * MINUTE
    )


def _is_over(times: Sequence[int], after: Sequence[int]) -> bool:
    """Tell whether the silence between two episodes ends the first one, and does not come near the limit."""
    next_gap = (_gaps(after) or [0])[0]
    return after[0] - times[-1] > 1.4 * min(max(pause_limit(times), 10 * next_gap), DAY)


# --- errors ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Error:
    """Why records fail. Each record fills the places of the message anew; all else of an error stays the same."""

    message: str
    exception: str = ""
    disposition: str = ""
    above: tuple[str, ...] = ()
    frame: str = ""

    @property
    def is_rejection(self) -> bool:
        """True if the application refused the record."""
        return self.disposition == "CLIENT_REJECTED"

    def __str__(self) -> str:
        """Return class or disposition, message and place, as labels show them."""
        where = f" at {self.frame}" if self.frame else ""
        return f"{self.exception or self.disposition}: {self.message}{where}"


REJECTED = Error("Offset rejected by client.", disposition="CLIENT_REJECTED")
EXHAUSTED = Error("Offset delivery count exceeded the threshold.", disposition="MAX_DELIVERY_ATTEMPTS_REACHED")
FLOODS = (Error("", disposition="CIRCUIT_BREAKER_ARCHIVED"), Error("", disposition="COORDINATOR_INITIATED"))

_NUMBER = (
    "java.base/java.lang.NumberFormatException.forInputString(NumberFormatException.java:67)",
    "java.base/java.lang.Integer.parseInt(Integer.java:668)",
)
_SOCKET = (
    "java.base/sun.nio.ch.NioSocketImpl.timedRead(NioSocketImpl.java:288)",
    "java.base/java.net.Socket$SocketInputStream.read(Socket.java:1099)",
    "org.apache.http.impl.io.SessionInputBufferImpl.fillBuffer(SessionInputBufferImpl.java:153)",
)
_JACKSON = (
    "com.fasterxml.jackson.databind.exc.InvalidFormatException.from(InvalidFormatException.java:67)",
    "com.fasterxml.jackson.databind.DeserializationContext.weirdStringException(DeserializationContext.java:1996)",
    "com.fasterxml.jackson.databind.ObjectMapper.readValue(ObjectMapper.java:3860)",
)
_SQL = (
    "org.postgresql.core.v3.QueryExecutorImpl.receiveErrorResponse(QueryExecutorImpl.java:2733)",
    "org.postgresql.jdbc.PgPreparedStatement.executeUpdate(PgPreparedStatement.java:152)",
)
# Exception, message and the frames above the application's own. ``@`` stands for the application's package.
APPLICATION_ERRORS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("java.lang.NumberFormatException", "For input string: {quoted2}", _NUMBER),
    ("@.UnknownCustomerException", "Customer {number} <{email}> is not known in region {quoted}", ()),
    ("java.net.SocketTimeoutException", "Read timed out after {number} ms calling https://{host}/v2/{uuid}", _SOCKET),
    (
        "org.springframework.dao.DataIntegrityViolationException",
        'duplicate key value violates unique constraint "orders_pkey" Detail: Key (id)=({number}) already exists.',
        _SQL,
    ),
    (
        "com.fasterxml.jackson.databind.exc.InvalidFormatException",
        "Cannot deserialize value of type `int` from String {quoted2}: not a valid `int` value\n"
        ' at [Source: (byte[])"{{"id":"{id}","qty":"{number}"}}"; line: 1, column: {number}]',
        _JACKSON,
    ),
    ("java.time.format.DateTimeParseException", "Text {quoted} could not be parsed at index {number}", ()),
    ("java.lang.IllegalStateException", "Order {id} was already shipped at {time} by {email}", ()),
    ("java.lang.IllegalStateException", "Session {uuid} expired at {millis}, owner {host}", ()),
    ("java.lang.IllegalStateException", "Ledger {id} is closed", ()),
    (
        "java.lang.NullPointerException",
        'Cannot invoke "String.length()" because the return value of "Order.note()" is null',
        (),
    ),
    ("java.util.concurrent.TimeoutException", "Lock {hex} held by {host} since {time}, gave up ({number} ms)", ()),
    ("java.lang.IllegalArgumentException", "Can't parse amount {quoted} of invoice {id}", ()),
    ("java.lang.IllegalArgumentException", "Amount {amount} of {id} is above the limit of {amount}", ()),
    ("org.postgresql.util.PSQLException", "Connection to {host} refused. Check the host name and the port.", _SQL),
    ("@.PaymentDeclinedException", "Payment {uuid} over {amount} declined by {host}: {quoted}", ()),
    ("java.lang.IndexOutOfBoundsException", "Index {number} out of bounds for length {number}", ()),
    ("java.lang.ClassCastException", "class java.lang.Long cannot be cast to class java.lang.String", ()),
    ("@.StaleEntityException", "Entity Order@{hex} is stale: read at {time}, written at {time}", ()),
)
CONVERTER = "org.apache.kafka.connect.json.JsonConverter.toConnectData(JsonConverter.java:356)"
CONNECT_ERRORS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("org.apache.kafka.connect.errors.DataException", "Field {quoted} of record {id} has no value", ()),
    ("org.apache.kafka.connect.errors.DataException", "Converting byte[] to Kafka Connect data failed", (CONVERTER,)),
    ("org.apache.kafka.connect.errors.ConnectException", "Connection to the warehouse {host} was refused", _SQL),
    ("org.apache.kafka.connect.errors.RetriableException", "Request {uuid} timed out after {number} ms", _SOCKET),
    ("java.lang.IllegalArgumentException", "Cannot mask {email} in field {quoted}", ()),
    ("org.apache.kafka.connect.errors.DataException", "Amount {amount} of {id} at {time} does not fit", ()),
)
BELOW = {
    SPRING: (
        "org.springframework.kafka.listener.KafkaMessageListenerContainer.doInvokeOnMessage(Container.java:2800)",
        "java.base/java.lang.Thread.run(Thread.java:1583)",
    ),
    STREAMS: (
        "org.apache.kafka.streams.processor.internals.ProcessorNode.process(ProcessorNode.java:154)",
        "org.apache.kafka.streams.processor.internals.StreamThread.runLoop(StreamThread.java:770)",
    ),
    CONNECT: (
        "org.apache.kafka.connect.runtime.errors.RetryWithToleranceOperator.execAndHandleError(Retry.java:186)",
        "java.base/java.util.concurrent.FutureTask.run(FutureTask.java:317)",
    ),
}
CALLS = (
    "PriceParser.parse",
    "OrderMapper.toDomain",
    "Validator.check",
    "Ledger.book",
    "StockKeeper.take",
    "Router.send",
)
WORDS = ("n/a", "blue shirt", "Müller GmbH", "12,5", "--", "EMEA north", "tbd", "zwei", "1O", "R&D", "x", "null")
DOMAINS = ("example.com", "acme.io", "mail.shop.de", "payflow.co.uk")


def _uuid(r: random.Random) -> str:
    digits = f"{r.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def _host(r: random.Random) -> str:
    name = r.choice(
        (
            f"db-{r.randrange(1, 40)}.eu-west-1.internal",
            f"10.{r.randrange(256)}.{r.randrange(256)}.{r.randrange(1, 255)}",
            f"ledger{r.randrange(9)}.svc.cluster.local",
        )
    )
    return f"{name}:{r.choice((5432, 8080, 9092, 8443))}"


def _time(r: random.Random) -> str:
    moment = datetime.fromtimestamp(FIRST_START // 1000 + r.randrange(10 * DAY // 1000), UTC)
    return r.choice((f"{moment:%Y-%m-%dT%H:%M:%S}.{r.randrange(1000):03}Z", f"{moment:%Y-%m-%d %H:%M:%S}"))


FILLERS: dict[str, Callable[[random.Random], str]] = {
    "number": lambda r: str(r.randrange(10 ** r.randrange(1, 8))),
    "quoted": lambda r: f"'{r.choice(WORDS)}'",
    "quoted2": lambda r: f'"{r.choice(WORDS)}"',
    "email": lambda r: f"{r.choice(('ana', 'li.wei', 'j-doe', 'ops+eu'))}{r.randrange(100)}@{r.choice(DOMAINS)}",
    "host": _host,
    "time": _time,
    "millis": lambda r: str(FIRST_START + r.randrange(10 * DAY)),
    "uuid": _uuid,
    "hex": lambda r: f"{r.getrandbits(28):07x}{r.randrange(10)}",
    "amount": lambda r: f"{r.randrange(1, 10**6) / 100:.2f}",
}
_PLACE = re.compile(r"\{(\w+)\}")


def _filled(template: str, r: random.Random, prefix: str) -> str:
    """Return a message with new values; ids begin with the prefix, as they do alike within one error."""

    def value(match: re.Match[str]) -> str:
        if match[1] == "id":
            return f"{prefix}-{r.randrange(1000, 10**6)}"
        return FILLERS[match[1]](r)

    return _PLACE.sub(value, template).replace("{{", "{").replace("}}", "}")


@dataclass(eq=False)
class Consumer:
    """A group, connector or Streams application that dead-letters records of the topic; ``errors`` are its unused ones.

    Consumers of which the dead letters name no group have none.
    """

    name: str
    profile: str
    dlq_topic: str
    dlq_partitions: int
    copied: bool
    timestamp_type: int
    limit: int
    errors: list[Error]
    has_header_of_cause: bool = False

    @property
    def group(self) -> str | None:
        """The group that its dead letters name."""
        return None if self.profile in WITHOUT_GROUP else self.name


def _errors(profile: str, package: str, r: random.Random) -> list[Error]:
    """Return different errors in random order; the first two are often alike but for their frame or message."""
    if profile == SHARE:
        return r.sample((REJECTED, EXHAUSTED), 2)
    if profile == DRAFT:
        return [replace(error, message="") for error in r.sample((REJECTED, EXHAUSTED), 2)]
    known = CONNECT_ERRORS if profile == CONNECT else APPLICATION_ERRORS
    made = []
    for exception, message, above in r.sample(known, min(len(known), 7)):
        call = r.choice(CALLS)
        frame = f"{package}.{call}({call.partition('.')[0]}.java:{r.randrange(20, 400)})"
        frame = "" if CONVERTER in above else frame
        made.append(Error(message, exception.replace("@", package), above=above, frame=frame))
    first, draw = made[0], r.random()
    if first.frame and draw < 0.25:  # the same exception and message at another place
        call = r.choice([other for other in CALLS if other not in first.frame])
        frame = f"{package}.{call}({call.partition('.')[0]}.java:{r.randrange(20, 400)})"
        made.insert(1, replace(first, frame=frame))
    elif draw < 0.5:  # the same exception at the same place, with another message
        made.insert(1, replace(first, message=f"Cannot go on after a failure of {{id}}: {first.message}"))
    return made


# --- the source topic --------------------------------------------------------------------------------------------


@dataclass
class _Source:
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
        self.made: dict[tuple[int, int], _Source] = {}
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
            return _uuid(r).encode()
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
    ) -> _Source:
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

    def _written(self, partition: int, number: int, at: int, trait: Trait, key: bytes | None) -> _Source:
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
        return _Source(partition, self.offset(number), key, value_bytes, tuple(headers), client, written_at)


# --- dead letters ------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Incident:
    """An incident under construction; ``keys``, ``partition`` and ``trait`` say where a regression strikes again."""

    consumer: Consumer
    error: Error
    verdict: str
    noise: bool
    trait: Trait = Trait()
    partition: int = 0
    keys: tuple[bytes, ...] = ()
    suspect: Suspect | None = None
    predecessor: Incident | None = None
    dead: list[tuple[int, _Source]] = field(default_factory=list)

    @property
    def times(self) -> list[int]:
        """The times of its dead letters."""
        return [at for at, _ in self.dead]


@dataclass(eq=False)
class _DeadLetter:
    incident: Incident
    at: int
    source: _Source
    partition: int = 0
    offset: int = 0
    line: str = ""


def times_of(r: random.Random, start: int, count: int, gap: float) -> list[int]:
    """Return sorted times with this mean gap in ms: regular, random or in bursts, if fast with some longer breaks."""
    shape = "regular" if gap > 3 * MINUTE else r.choice(("regular", "random", "bursts"))
    longest = max(18 * MINUTE, 1.25 * gap)
    at, times = float(start), [start]
    breaks = {r.randrange(1, count) for _ in range(r.randrange(4))} if gap < 30 * SECOND and count > 1 else set()
    left = 0
    for number in range(1, count):
        if shape == "regular":
            wait = gap * r.uniform(0.75, 1.25)
        elif shape == "random":
            wait = min(r.expovariate(1 / gap), 5 * gap)
        elif left:
            left, wait = left - 1, gap * r.uniform(0.02, 0.2)
        else:
            left = r.randrange(4, 30)
            wait = gap * left * r.uniform(0.6, 1.2)
        if number in breaks and r.random() < 0.5:
            wait = r.uniform(2, 17) * MINUTE
        limit = 18 * MINUTE if number == 1 else longest
        at += min(wait, limit)
        times.append(int(at))
    return times


def _paced(r: random.Random, start: int) -> list[int]:
    """Return times of a drip by the hour and a storm of ten minutes, in any order."""
    drip, storm = ([1 * HOUR] * r.randrange(6, 24), [r.randrange(2, 12) * SECOND] * r.randrange(40, 120))
    parts = r.choice(((drip, storm), (storm, drip), (drip, storm, drip)))
    waits = [wait * r.uniform(0.8, 1.2) for part in parts for wait in part]
    return [int(at) for at in accumulate(waits, initial=start)]


def _skip(r: random.Random, share: float) -> int:
    """Return how many records of the log go through before the next one dies."""
    return 0 if share >= 1 else int(math.log(1 - r.random()) / math.log(1 - share))


class Plan:
    """One attempt at a scenario: its topic, consumers, incidents, changes and files."""

    def __init__(self, name: str, seed: str, verdict: str, suspect: str | None, shape: Shape) -> None:
        """Draw the topic and its first consumer."""
        self.begin(name, seed, shape, suspect)
        r, self.verdict = self.random, verdict
        self.node = r.randrange(1, 30)
        noun = r.choice(("orders", "payments", "shipments", "invoices", "clicks", "stock", "prices", "claims"))
        profile = self._profile()
        self.package = r.choice(("com.acme", "io.payflow", "de.waren", "nl.kern")) + f".{noun}"
        with_traits = suspect in ("header", "schema_id", "key_prefix")
        needs_keys = verdict in ("KEY_LOCAL", "PRODUCER_LOCAL") or with_traits
        self.copied = profile in WITH_HEADERS or needs_keys or r.random() < 0.6
        self.start = r.randrange(FIRST_START, LAST_START)
        partitions = r.choice(shape.partitions)
        if suspect == "key_prefix":
            key_style: str | None = "tenant"
        elif verdict == "KEY_LOCAL":
            key_style = r.choice(("number", "uuid", "named", "binary"))
        else:
            key_style = r.choice(KEY_STYLES)
            if verdict in ("SYSTEMIC", "FLOOD", "POISON_PILL") and not with_traits and r.random() < 0.15:
                key_style = None
        has_schemas = suspect == "schema_id" or r.random() < 0.3
        self.topic = Topic(f"{noun}.{name}", r, partitions, key_style, has_schemas)
        if r.random() < shape.in_transactions:
            self.topic.step = r.choice((1, 2, 5, 20))
        self.main_consumer = self._consumer(profile, self.copied, "a")
        self.other_consumer: Consumer | None = None

    def begin(self, name: str, seed: str, shape: Shape, suspect: str | None = None) -> None:
        """Begin with nothing that happened."""
        self.name, self.suspect_kind, self.shape = name, suspect, shape
        self.tells_all = random.Random(f"{seed}/tells").random() < shape.tells_all
        self.random = random.Random(seed)
        self.incidents: list[Incident] = []
        self.requests: list[tuple[int, str]] = []
        self.producers: list[tuple[int, str]] = []
        self.starts: list[tuple[int, str]] = []
        self.headless: list[str] = []

    # --- who reads the topic

    def _profile(self) -> str:
        r = self.random
        if self.verdict == "FLOOD":
            return DRAFT
        if self.suspect_kind == "header":
            return r.choice(WITH_HEADERS)
        if self.suspect_kind == "topology":
            return r.choice(READ_BY_TOPOLOGY)
        if self.suspect_kind == "new_group":
            return r.choice((SHARE, DRAFT, SPRING))
        return r.choices(PROFILES, (4, 2, 2, 2, 3))[0]

    def _consumer(self, profile: str, copied: bool, letter: str) -> Consumer:
        r, noun = self.random, self.topic.name.partition(".")[0]
        role = {SHARE: "workers", DRAFT: "payers", STREAMS: "enrichment", CONNECT: "sink", SPRING: "service"}[profile]
        errors = _errors(profile, f"{self.package}.{role}", r)
        if profile == DRAFT:
            errors += FLOODS  # taken only by name
        return Consumer(
            name=f"{noun}-{role}-{letter}.{self.name}",
            profile=profile,
            dlq_topic=f"dlq.{noun}-{letter}.{self.name}",
            dlq_partitions=r.choice((1, 2, 3, self.topic.partitions)),
            copied=copied or profile in WITH_HEADERS,
            timestamp_type=int(r.random() < 0.2),
            limit=r.randrange(2, 10),
            errors=errors,
            has_header_of_cause=r.random() < 0.3,
        )

    def _other(self) -> Consumer:
        """Return the second consumer; at most one of the two leaves out its group.

        A consumer without a group would be taken for the application whose topology changed.
        """
        if self.other_consumer is None:
            alone = self.main_consumer.profile in WITHOUT_GROUP or self.suspect_kind == "topology"
            profiles = (SHARE, DRAFT, SPRING) if alone else PROFILES
            copied = self.random.random() < 0.7
            if self.suspect_kind == "new_group":  # what is usual on the topic shows in the other group alone
                profiles = WITH_HEADERS if self.main_consumer.profile in WITH_HEADERS else profiles
                copied = copied or self.main_consumer.copied
            self.other_consumer = self._consumer(self.random.choice(profiles), copied, "b")
        return self.other_consumer

    def _error(self, consumer: Consumer) -> Error | None:
        """Take an unused error of a consumer, None if it has none left; a flood's are taken for floods only."""
        for error in consumer.errors:
            if error not in FLOODS:
                consumer.errors.remove(error)
                return error
        return None

    # --- the scenario as a whole

    def scenario(self) -> Scenario:
        """Return the scenario, or raise Undecidable."""
        r = self.random
        count, gap, share = self._size()
        main_error = r.choice(FLOODS) if self.verdict == "FLOOD" else self._error(self.main_consumer)
        assert main_error
        self.main = main = Incident(self.main_consumer, main_error, self.verdict, noise=False)
        main.suspect = self._suspect(main)
        times = times_of(r, self.start, count, gap)
        if self.shape.paces and self.verdict == "POISON_PILL" and r.random() < self.shape.paces:
            times = _paced(r, self.start)
        has_regression = r.random() < self.shape.regression
        self._noise(times[-1])
        if r.random() < self.shape.overlap:
            self._overlap(main, times)
        self.strike(main, times, share)
        if has_regression:
            self._regress(main, count, gap, share)
        self._applications(main)
        if self.suspect_kind == "new_group":  # the first dead letter of a group is no suspect of itself
            of_group = [incident for incident in self.incidents if incident.consumer is main.consumer]
            min(of_group, key=lambda incident: incident.times[0]).suspect = None
        return self.landed()

    def _size(self) -> tuple[int, float, float]:
        """Draw how many records die, the mean gap in ms and the share of the log that dies; set the log's rate."""
        r, verdict, partitions = self.random, self.verdict, self.topic.partitions

        def log_uniform(least: float, most: float) -> float:
            return math.exp(r.uniform(math.log(least), math.log(max(least, most))))

        if verdict == "POISON_PILL":
            count = round(log_uniform(20, 200))
        elif verdict == "UNDETERMINED":
            count = r.randrange(max(36, 3 * partitions), max(37, 3 * partitions) + 40)
        else:
            count = round(log_uniform(max(50, 10 * partitions), self.shape.most_records))
        fastest, slowest = self.shape.gap
        slowest = max(fastest, min(slowest, 30 * HOUR / count))
        if self.suspect_kind in ("header", "schema_id", "key_prefix"):
            slowest = min(slowest, 10 * SECOND)  # leaves room for other dead letters that lack the value
        gap = log_uniform(min(fastest, slowest), slowest)
        of_log = {
            "POISON_PILL": 1.0,
            "KEY_LOCAL": log_uniform(0.005, 0.4),
            "PARTITION_LOCAL": r.choice((1.0, r.uniform(0.95, 1), r.uniform(0.25, 1) if self.copied else 0.97)),
            "PRODUCER_LOCAL": log_uniform(0.03, 0.35),
            "SYSTEMIC": r.choice((1.0, r.uniform(0.92, 1), r.uniform(0.65, 1))),
            "FLOOD": r.uniform(0.4, 1),
            "UNDETERMINED": log_uniform(0.0005, 0.012),
        }
        share = of_log[verdict]
        has_markers = self.topic.step in (1, 2) and not self.tells_all  # a third or half of the offsets
        if verdict == "SYSTEMIC" and (has_markers or self.suspect_kind in ("header", "schema_id")):
            share = max(share, 0.95)
        self.topic.rate = 1 / (gap * share)
        if verdict == "POISON_PILL":
            self.topic.rate = log_uniform(0.1, 200) / 1000
        elif verdict == "KEY_LOCAL":
            self.topic.rate *= partitions / 2
        elif verdict == "PARTITION_LOCAL":
            self.topic.rate *= partitions
        return count, gap, share

    # --- incidents

    def strike(self, incident: Incident, times: list[int], share: float = 0.0) -> None:
        """Let records die at these times as the verdict says, and keep the incident."""
        if not _is_one_episode(times):
            raise Undecidable
        by_verdict = {
            "POISON_PILL": self._pills,
            "KEY_LOCAL": self._keys_die,
            "PARTITION_LOCAL": self._partition_dies,
            "UNDETERMINED": self._scatter,
        }
        sources = by_verdict.get(incident.verdict, self._spread)(incident, times, share)
        incident.dead = list(zip(times, sources, strict=True))
        self.incidents.append(incident)

    def _pills(self, incident: Incident, times: list[int], share: float) -> Iterator[_Source]:
        """Yield few records, mostly dead-lettered again and again, that are no neighbours of each other."""
        r, topic = self.random, self.topic
        pills: list[tuple[tuple[int, int], bytes | None]] = []
        for _ in range(len(times) if len(times) <= 3 else r.randrange(1, 5)):
            partition = r.randrange(topic.partitions)
            number = topic.number_at(partition, times[0]) - r.randrange(3, 30)
            while any(pill[0][0] == partition and abs(pill[0][1] - number) < 6 for pill in pills) or not topic.is_free(
                incident.consumer, (partition, number), incident.trait
            ):
                number -= r.randrange(6, 20)
            if number < 0:
                raise Undecidable
            pills.append(((partition, number), topic.scattered_key(partition)))
        for turn in range(len(times)):
            source, key = pills[turn] if turn < len(pills) else r.choice(pills)
            yield topic.record(incident.consumer, source, times[0], incident.trait, key)

    def _scatter(self, incident: Incident, times: list[int], share: float) -> Iterator[_Source]:
        """Yield records far apart, with distinct keys, over all partitions."""
        r, topic = self.random, self.topic
        order: list[int] = []
        for at in times:
            order = order or r.sample(range(topic.partitions), topic.partitions)
            partition = order.pop() if r.random() < 0.7 else r.randrange(topic.partitions)
            number = max(0, topic.number_at(partition, at) - r.randrange(4))
            while not topic.is_free(incident.consumer, (partition, number), incident.trait):
                number += 1
            key = topic.scattered_key(partition)
            yield topic.record(incident.consumer, (partition, number), at, incident.trait, key)

    def _next(
        self, incident: Incident, cursors: dict[int, int], partition: int, start: int, share: float
    ) -> tuple[int, int]:
        """Return the next record of a partition that dies, if this share of the partition dies."""
        number = cursors.get(partition, self.topic.number_at(partition, start) - 1)
        number += 1 + _skip(self.random, share)
        while not self.topic.is_free(incident.consumer, (partition, number), incident.trait):
            number += 1
        cursors[partition] = number
        return partition, number

    def _keys_die(self, incident: Incident, times: list[int], share: float) -> Iterator[_Source]:
        keys, cursors = incident.keys, dict[int, int]()
        for turn, at in enumerate(times):
            key = keys[turn] if turn < len(keys) else self.random.choice(keys)
            source = self._next(incident, cursors, self.topic.partition_of(key), times[0], share)
            yield self.topic.record(incident.consumer, source, at, incident.trait, key)

    def _partition_dies(self, incident: Incident, times: list[int], share: float) -> Iterator[_Source]:
        cursors = dict[int, int]()
        for at in times:
            source = self._next(incident, cursors, incident.partition, times[0], share)
            yield self.topic.record(incident.consumer, source, at, incident.trait)

    def _spread(self, incident: Incident, times: list[int], share: float) -> Iterator[_Source]:
        """Yield records of all partitions; in each the same share dies."""
        cursors, order = dict[int, int](), list[int]()
        for at in times:
            order = order or self.random.sample(range(self.topic.partitions), self.topic.partitions)
            source = self._next(incident, cursors, order.pop(), times[0], share)
            yield self.topic.record(incident.consumer, source, at, incident.trait)

    def _suspect(self, main: Incident) -> Suspect | None:
        """Return the first suspect of the main incident, and set what its records share."""
        r, topic, kind = self.random, self.topic, self.suspect_kind
        main.partition = 0 if r.random() < 0.3 else r.randrange(topic.partitions)
        if main.verdict == "KEY_LOCAL":
            main.keys = topic.failing_keys(
                r.randrange(2, 5) if kind == "key_prefix" else r.choice((1, 1, 2, 3)), kind == "key_prefix"
            )
            main.trait = Trait(keys=main.keys)
        if kind == "key_prefix":
            return Suspect(kind, f"{topic.failing_tenant}:")
        if kind == "client":
            topic.client_header = False  # only acknowledgements tell the client
            main.trait = Trait(client=topic.clients[1])
            return Suspect(kind, main.trait.client)
        if kind == "header":
            main.trait = Trait(header=self._shared_header())
            assert main.trait.header
            return Suspect(kind, "=".join(main.trait.header))
        if kind == "schema_id":
            main.trait = Trait(schema_id=max(topic.schemas) + r.randrange(1, 30))
            return Suspect(kind, str(main.trait.schema_id))
        if kind in ("topology", "new_group"):
            return Suspect(kind, main.consumer.name)
        if kind == "writer_topology":
            return Suspect(kind, self._application("writer"))
        if kind == "broker_restart":
            return Suspect(kind, str(self.node))
        if kind == "missing_headers":
            return Suspect(kind, main.consumer.dlq_topic)
        if kind == "new_client":
            return Suspect(kind, f"{topic.name}-writer-5")
        return Suspect(kind, topic.clients[0]) if kind else None

    def _shared_header(self) -> tuple[str, str]:
        """Return a header with a value that no other record has; each call returns another header."""
        dimension = self.random.choice([*self.topic.unused])
        return dimension, self.topic.unused.pop(dimension)

    def _noise(self, end: int) -> None:
        """Add dead letters of other errors: long before the main incident, and around it.

        A group that is not new shows up at least 26 hours before. A new group shows up with the incident; another group
        of the topic is the one that is known.
        """
        r = self.random
        is_new = self.suspect_kind == "new_group"
        known = self._other() if is_new else self.main_consumer
        times = self._noise_of(known, self.start - r.randrange(52 * HOUR, 92 * HOUR), must_scatter=self.suspect_kind)
        if times[-1] > self.start - 26 * HOUR:
            raise Undecidable
        before, during, soon = self.shape.noise
        if r.random() < before:
            consumer = known if r.random() < 0.5 else self._other()
            self._noise_of(consumer, self.start - r.randrange(80 * HOUR, 96 * HOUR))
        mixes = self.suspect_kind == "client"  # no figure tells whose client it was if a group has two errors at once
        if r.random() < during:  # under way when the main incident begins
            consumer = known if r.random() < 0.6 and not mixes else self._other()
            begin = self.start - r.randrange(2 * HOUR, 5 * HOUR)
            self._noise_of(consumer, begin, until=min(self.start + 2 * HOUR, max(end, self.start + HOUR)))
        if r.random() < soon:
            self._noise_of(self._other() if mixes else self.main_consumer, self.start + r.randrange(2 * MINUTE, HOUR))

    def _noise_of(
        self,
        consumer: Consumer,
        start: int,
        until: int | None = None,
        must_scatter: str | None = None,
    ) -> list[int]:
        """Add a thin scatter or a poison pill of an unused error, or of one whose last incident ended long before."""
        r = self.random
        error = self._error(consumer)
        predecessor = None
        if error is None:
            earlier = [incident for incident in self.incidents if incident.noise and incident.consumer is consumer]
            if not earlier:
                return []
            predecessor = max(earlier, key=lambda incident: incident.times[-1])
            error = predecessor.error
            if not _is_over(predecessor.times, [start, start + 11 * MINUTE]):
                return []
        incident = Incident(consumer, error, "POISON_PILL", noise=True, predecessor=predecessor)
        thinnest = 1 / (0.015 * self.topic.rate)  # ms between dead letters if 1.5 % of the log die
        count = r.randrange(max(36, 3 * self.topic.partitions), max(36, 3 * self.topic.partitions) + 25)
        longest = (until - start) / count if until else 11 * MINUTE
        can_scatter = thinnest < min(longest, 11 * MINUTE)
        if must_scatter in ("header", "schema_id", "key_prefix") and not can_scatter:
            raise Undecidable
        if can_scatter and (must_scatter or until or r.random() < 0.5):
            incident.verdict = "UNDETERMINED"
            gap = longest if until else math.exp(r.uniform(math.log(thinnest), math.log(11 * MINUTE)))
            times = times_of(r, start, count, min(gap, 11 * MINUTE))
        else:
            count = r.choice((1, 1, 2, r.randrange(4, 16), r.randrange(4, 16)))
            count = max(count, 4) if predecessor else count  # a lone record would go with the one or the other
            times = times_of(r, start, count, r.uniform(1, 9) * MINUTE)
        self.strike(incident, times)
        return times

    def _overlap(self, main: Incident, times: list[int]) -> None:
        """Add one or two incidents of other errors on the topic that are under way together with the main one.

        They begin before the first change, or after it; then they share its suspect.
        """
        for _ in range(self.random.choice(self.shape.overlaps)):
            self._overlap_once(main, times)

    def _overlap_once(self, main: Incident, times: list[int]) -> None:
        r = self.random
        shares_cause = r.random() < 0.5
        is_new = self.suspect_kind == "new_group"
        is_alone = self.suspect_kind == "client" or (is_new and not shares_cause)
        consumer = main.consumer if r.random() < 0.6 and not is_alone else self._other()
        if is_new and shares_cause:
            consumer = main.consumer
        if not (is_new and shares_cause):
            self._make_known(consumer)
        error = self._error(consumer)
        if error is None:
            return
        length = times[-1] - times[0]
        if shares_cause:
            start = self.start + r.randrange(1, max(2, min(5 * MINUTE, length // 2)))
            span = max(10 * SECOND, length) * r.uniform(0.3, 1)
        else:
            start = self.start - r.randrange(90 * MINUTE, 3 * HOUR)
            span = self.start - start + min(length, HOUR) * r.uniform(0.1, 1) + SECOND
        other = Incident(consumer, error, "POISON_PILL", noise=False)
        if shares_cause and (self.suspect_kind in TOPIC_WIDE or consumer is main.consumer):
            other.suspect = main.suspect if self.suspect_kind in CHANGES else None
        count, gap, share = self._fitting(other, main, span)
        other_times = times_of(r, start, count, gap)
        if other_times[-1] <= self.start:  # it must overlap
            raise Undecidable
        self.strike(other, other_times, share)

    def _make_known(self, consumer: Consumer) -> None:
        """Add noise of a consumer long before, if it has none: otherwise its group looked new."""
        long_before = self.start - 30 * HOUR
        if not any(incident.consumer is consumer and incident.times[0] < long_before for incident in self.incidents):
            self._noise_of(consumer, self.start - self.random.randrange(52 * HOUR, 92 * HOUR))

    def _fitting(self, other: Incident, main: Incident, span: float) -> tuple[int, float, float]:
        """Choose a verdict for a second incident that the flow of the topic allows within a span of time in ms.

        Return the records that die, their mean gap and their share of the log.
        """
        r, topic = self.random, self.topic
        partitions = topic.partitions
        flow = span * topic.rate
        with_change = other.suspect is not None
        rivals = [
            incident
            for incident in (main, *self.incidents)
            if incident.consumer is other.consumer and not incident.noise
        ]
        choices = ["POISON_PILL", "UNDETERMINED", "KEY_LOCAL", "PARTITION_LOCAL", "PRODUCER_LOCAL", "SYSTEMIC"]
        if any(rival.verdict in ("SYSTEMIC", "FLOOD", "PARTITION_LOCAL") for rival in rivals):
            choices = choices[:3]  # a record dies of one error only: little is left for another dense incident
        elif rivals:
            choices = choices[:5]
        for verdict in r.sample(choices, len(choices)):
            count = r.randrange(max(50, 10 * partitions), max(50, 10 * partitions) + 200)
            other.verdict, share = verdict, 0.0
            if verdict == "POISON_PILL":
                count = max(r.randrange(8, 60), round(span / (15 * MINUTE)))
                return count, span / count, share
            if span / count > 15 * MINUTE:
                continue
            if verdict == "UNDETERMINED":
                count = r.randrange(max(36, 3 * partitions), max(36, 3 * partitions) + 30)
                if count < 0.012 * flow:
                    return count, span / count, share
                continue
            if verdict == "KEY_LOCAL" and other.consumer.copied and topic.key_style not in (None, "tenant"):
                other.keys = topic.failing_keys(1, False)
                other.trait = Trait(keys=other.keys)
                share = count / (flow / partitions)
                if share < 0.3 and main.verdict != "KEY_LOCAL":
                    return count, span / count, share
            if verdict == "PARTITION_LOCAL":
                other.partition = r.randrange(partitions)
                share = count / (flow / partitions)
                if share <= 1 and topic.key_style and (other.consumer.copied or share > 0.9):
                    return count, span / count, share
            if verdict == "PRODUCER_LOCAL" and not with_change and main.suspect is None and topic.key_style:
                share = count / flow
                if share < 0.3 and topic.unused and self._has_shown_headers(other.consumer):
                    header = self._shared_header()
                    other.trait, other.suspect = Trait(header=header), Suspect("header", "=".join(header))
                    return count, span / count, share
            if verdict == "SYSTEMIC" and 50 < 0.8 * flow < 1_500 and flow > 15 * partitions and not main.trait:
                share = 0.95 if topic.step in (1, 2) else r.uniform(0.75, 0.97)
                count = int(share * flow)
                if span / count < 15 * MINUTE:
                    return count, span / count, share
            other.trait, other.keys = Trait(), ()
        raise Undecidable

    def _has_shown_headers(self, consumer: Consumer) -> bool:
        """Tell whether earlier dead letters of the consumer, with other errors, show the headers that are usual."""
        scatters = [incident for incident in self.incidents if incident.noise and incident.verdict == "UNDETERMINED"]
        ended = [incident for incident in scatters if incident.times[-1] < self.start - 26 * HOUR]
        return consumer.profile in WITH_HEADERS and any(incident.consumer is consumer for incident in ended)

    def _regress(self, main: Incident, count: int, gap: float, share: float) -> None:
        """Let the main incident come back after a pause that ends it, sometimes after another change."""
        r = self.random
        pause = pause_limit(main.times) * r.uniform(2, 4)
        start = int(main.times[-1] + max(pause, 2 * HOUR))
        again = replace(main, dead=[], predecessor=main, suspect=None if self.suspect_kind in CHANGES else main.suspect)
        if self.suspect_kind in CHANGES:
            start = max(start, self.start + r.randrange(30 * HOUR, 40 * HOUR))
            if self.suspect_kind in ("topology", "writer_topology") and r.random() < 0.5:
                again.suspect = main.suspect
        if start > self.start + 4 * DAY:
            return
        fewer = {"POISON_PILL": r.randrange(5, 40), "UNDETERMINED": count}
        least = max(50, 10 * self.topic.partitions)
        again_count = fewer.get(main.verdict, r.randrange(least, max(least, count) + 1))
        times = times_of(r, start, again_count, gap)
        if not _is_over(main.times, times):
            raise Undecidable
        self.strike(again, times, share)

    # --- what else lands

    def _application(self, role: str) -> str:
        return f"{self.topic.name.partition('.')[0]}-{role}.{self.name}"

    def _applications(self, main: Incident) -> None:
        """Push topologies, state producers, start brokers: the suspect's change, and others that explain nothing.

        What explains nothing: a first push days before, the same description again, a push that the broker refuses, a
        change of an application that does not touch the topic, a change of a producer of another topic, a broker that
        started days before, headers that are missing again and again.
        """
        r, topic, kind = self.random, self.topic, self.suspect_kind
        starts = [
            incident.times[0] for incident in self.incidents if incident.suspect and incident.suspect == main.suspect
        ]
        changes = [self.start - r.randrange(2 * MINUTE, 40 * MINUTE)]
        regressions = [
            incident for incident in self.incidents if incident.predecessor and incident.suspect and not incident.noise
        ]
        changes += [incident.times[0] - r.randrange(2 * MINUTE, 40 * MINUTE) for incident in regressions]
        assert all(changes[0] < start for start in starts)
        landed = r.random() < 0.6
        reader = main.consumer.name
        if kind == "topology" or (landed and main.consumer.profile in READ_BY_TOPOLOGY and kind != "new_group"):
            own = changes if kind == "topology" else []
            self.push(reader, topic.name, f"out.{self.name}", own)
        if kind == "writer_topology" or landed:
            own = changes if kind == "writer_topology" else []
            self.push(self._application("writer"), f"raw.{self.name}", topic.name, own)
        if landed:
            elsewhere = self.start - r.randrange(MINUTE, 30 * MINUTE)
            self.push(self._application("unrelated"), f"other-in.{self.name}", f"other-out.{self.name}", [elsewhere])
        if kind == "broker_restart":
            for before, node in (
                ((3, self.node + 2), (1, self.node + 1)) if r.random() < 0.5 else ()
            ):  # a rolling restart
                self._start(changes[0] - before * r.randrange(MINUTE, 4 * MINUTE), node)
            self._start(changes[0], self.node)
        elif r.random() < 0.2:
            self._start(self.start - r.randrange(30 * HOUR, 90 * HOUR), self.node)
        if kind == "missing_headers":
            for _ in range(r.randrange(1, 6)):
                self._lose_headers(main.consumer, r.randrange(changes[0], self.start))
            self._lose_headers(main.consumer, changes[0])
        elif r.random() < 0.15:
            for number in range(6):
                self._lose_headers(main.consumer, self.start - number * 11 * HOUR - r.randrange(HOUR))
        if kind == "new_client":
            self.state(f"{topic.name}-writer-5", topic.name, first=changes[0])
        if kind in ("new_client", "producer") or r.random() < 0.4:
            for number, client in enumerate(topic.clients):
                changed = changes[0] if kind == "producer" and number == 0 else None
                self.state(client, topic.name, changed)
            self.state(f"other-client.{self.name}", f"other-in.{self.name}", changes[0])

    def push(self, group: str, source: str, sink: str, changes: Sequence[int]) -> None:
        """Log a first push 60 to 100 hours before, the same again, refused ones, and those that change the topology."""
        r = self.random
        first = self.start - r.randrange(60 * HOUR, 100 * HOUR)
        member, connection = _uuid(r), f"10.0.{r.randrange(256)}.{r.randrange(256)}:{r.randrange(30000, 60000)}"
        steps = ["FILTER", "MAPVALUES", "AGGREGATE"][: r.randrange(1, 4)]
        stores = [f"{group}-store"] if r.random() < 0.5 else []

        def exchange(at: int, api: tuple[int, int, str], request: dict[str, Any], response: dict[str, Any]) -> None:
            number = len(self.requests) + 1
            client = f"{group}-StreamThread-1-consumer"
            self.requests.append((at, _request_line(at, number, client, connection, api, request, response)))

        def push(at: int, wire: dict[str, Any], epoch: int, error: int = 0) -> None:
            heartbeat = {"groupId": group, "memberId": member, "memberEpoch": 0}
            heartbeat |= {"topology": {"epoch": epoch, "subtopologies": []}, "shutdownApplication": False}
            said: dict[str, Any] = {
                "errorCode": 0,
                "errorMessage": None,
                "memberId": member,
                "memberEpoch": 1,
                "status": [],
            }
            asked = said | {"topologyDescriptionRequired": True}
            exchange(at - 250, (88, 1, "STREAMS_GROUP_HEARTBEAT"), heartbeat, asked)
            request = {"groupId": group, "memberId": member, "topologyEpoch": epoch, "topologyDescription": wire}
            text = f"Topology epoch {epoch} does not match the group's current topology epoch 0." if error else None
            answer = {"errorCode": error, "errorMessage": text}
            exchange(at, (93, 0, "STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE"), request, answer)

        wire = _chain(source, sink, steps, stores)
        push(first, wire, 0)
        if r.random() < 0.5:
            push(self.start - r.randrange(45 * MINUTE, 3 * HOUR), wire, 0)
        if r.random() < 0.3:
            push(self.start - r.randrange(45 * MINUTE, 3 * HOUR), _chain(source, sink, ["BRANCH"], []), 9, error=42)
        for at in changes:
            steps = [*steps, r.choice(("FLATMAP", "PEEK", "TRANSFORM", "JOIN"))]
            push(at, _chain(source, sink, steps, stores), 0)

    def _start(self, at: int, node: int) -> None:
        """Log the end of a broker's start, and lines around it that are none."""
        said = (
            f"[GroupCoordinator id={node}] Starting up. (org.apache.kafka.coordinator.group.GroupCoordinatorService)",
            f"[GroupCoordinator id={node}] Startup complete. "
            "(org.apache.kafka.coordinator.group.GroupCoordinatorService)",
            f"[BrokerServer id={node}] Transition from STARTING to STARTED (kafka.server.BrokerServer)",
            "Kafka version: 4.4.0 (org.apache.kafka.common.utils.internals.AppInfoParser)",
            f"[KafkaRaftServer nodeId={node}] Kafka Server started (kafka.server.KafkaRaftServer)",
        )
        for index, text in enumerate(said):
            when = at - 40 * (len(said) - 1 - index)
            self.starts.append((when, f"[{_moment(when):%Y-%m-%d %H:%M:%S},{when % 1000:03}] INFO {text}"))

    def _lose_headers(self, consumer: Consumer, at: int) -> None:
        """Write a dead letter without the header of its offset, to a partition of its own."""
        error = Error("", disposition="CLIENT_REJECTED", exception="java.lang.IllegalStateException")
        source = _Source(0, self.random.randrange(10**6), None, b"", (), self.topic.clients[0], at)
        letter = _DeadLetter(Incident(consumer, error, "POISON_PILL", noise=True), at, source)
        record = json.loads(self._line(letter))
        record |= {"partition": consumer.dlq_partitions, "offset": len(self.headless)}
        record["headers"] = [header for header in record["headers"] if not header["key"].endswith("offset")]
        self.headless.append(json.dumps(record, separators=(",", ":")))

    def state(self, client: str, topic: str, changed_at: int | None = None, first: int | None = None) -> None:
        """State a producer's settings days before and, if it changed, what it lost shortly before the incident.

        A new client states its settings for the first time.
        """
        r = self.random
        stated: dict[str, Any] = {"client_id": client, "topic": topic, "client_version": "4.1.0"}
        stated |= {"enable_idempotence": "true", "broker_version": "4.4.0", "message_format_version": "2"}
        times = [(self.start - r.randrange(60 * HOUR, 100 * HOUR) if first is None else first, stated)]
        if first is None and changed_at is not None:
            off = {"enable_idempotence": "false"}
            old = {"enable_idempotence": "requested", "message_format_version": "1"}
            times.append((changed_at, stated | r.choice((off, old))))
        elif first is None and r.random() < 0.5:
            times.append((self.start - r.randrange(MINUTE, 3 * HOUR), stated))
        for at, said in times:
            self.producers.append((at, json.dumps(said | {"stated_at": at})))

    # --- files

    def landed(self) -> Scenario:
        """Return the scenario: offsets in the DLQ given in order of time, lines in files, some late or twice."""
        r = self.random
        dead = [_DeadLetter(incident, at, source) for incident in self.incidents for at, source in incident.dead]
        dead.sort(key=lambda letter: letter.at)
        ends: dict[tuple[str, int], int] = {}
        for letter in dead:
            consumer = letter.incident.consumer
            letter.partition = letter.source.partition % consumer.dlq_partitions
            dlq_partition = (consumer.dlq_topic, letter.partition)
            letter.offset = ends.get(dlq_partition, r.choice((0, 0, r.randrange(10**5))))
            ends[dlq_partition] = letter.offset + 1
            letter.line = self._line(letter)
        late = self._late(dead)
        on_time = [letter.line for letter in dead if letter not in late]
        copies = r.sample(on_time, min(len(on_time), r.randrange(1, 12))) if r.random() < 0.5 else []
        first: dict[str, tuple[str, ...]] = {}
        second: dict[str, tuple[str, ...]] = {}
        pieces = r.randrange(2, 6)
        size = -(-len(on_time) // pieces)
        for piece in range(pieces):
            if lines := on_time[piece * size : (piece + 1) * size]:
                first[f"dlq/{self.name}-{piece}.jsonl"] = tuple(lines)
        if copies:
            (second if late and r.random() < 0.5 else first)[f"dlq/{self.name}-again.jsonl"] = tuple(copies)
        if late:
            second[f"dlq/{self.name}-late.jsonl"] = tuple(letter.line for letter in dead if letter in late)
        logs_late = bool(late) and r.random() < 0.3
        if self.requests:
            name = f"streams-requests/{self.name}-kafka-request.log"
            (second if logs_late else first)[name] = tuple(line for _, line in sorted(self.requests))
        if self.producers:
            first[f"producers/{self.name}.jsonl"] = tuple(line for _, line in sorted(self.producers))
        if self.starts:
            first[f"broker-logs/{self.name}-server.log"] = tuple(line for _, line in sorted(self.starts))
        if self.headless:
            first[f"dlq/{self.name}{HEADLESS}"] = tuple(self.headless)
        if self.tells_all or self.suspect_kind == "client" or (len(dead) < 400 and r.random() < 0.3):
            (second if logs_late else first)[f"acknowledgements/{self.name}.jsonl"] = tuple(self._acknowledgements())
        files = (first, second) if second else (first,)
        return Scenario(self.name, self._truth(dead), len(copies), files)

    def _late(self, dead: Sequence[_DeadLetter]) -> set[_DeadLetter]:
        """Choose lines of the main incident that land in a second batch: its begin, middle or end, or some of all."""
        r = self.random
        main = [letter for letter in dead if letter.incident is self.main]
        if r.random() > self.shape.late or len(main) < 10:
            return set()
        share = max(2, len(main) // r.randrange(5, 12))
        middle = r.randrange(1, len(main) - share)
        chosen = (main[:share], main[-share:], main[middle : middle + share], r.sample(main, share))
        return set(r.choice(chosen))

    def _truth(self, dead: Sequence[_DeadLetter]) -> tuple[TrueIncident, ...]:
        places: dict[Incident, list[_DeadLetter]] = {incident: [] for incident in self.incidents}
        for letter in dead:
            places[letter.incident].append(letter)
        truth = []
        for incident, letters in places.items():
            consumer = incident.consumer
            truth.append(
                TrueIncident(
                    consumer_group=consumer.group,
                    original_topic=self.topic.name,
                    verdict=incident.verdict,
                    rejection=incident.error.is_rejection,
                    first_at=_moment(letters[0].at),
                    last_at=_moment(letters[-1].at),
                    records=len(letters),
                    source_records=len({(letter.source.partition, letter.source.offset) for letter in letters}),
                    first_suspect=incident.suspect,
                    predecessor=self.incidents.index(incident.predecessor) if incident.predecessor else None,
                    noise=incident.noise,
                    profile=consumer.profile,
                    error=str(incident.error),
                    places=frozenset((consumer.dlq_topic, letter.partition, letter.offset) for letter in letters),
                )
            )
        return tuple(truth)

    def _line(self, letter: _DeadLetter) -> str:
        """Return a dead letter in the capture form."""
        consumer, source = letter.incident.consumer, letter.source
        headers: list[tuple[str, bytes]] = []
        if consumer.profile in WITH_HEADERS:
            headers += [(name, value.encode()) for name, value in source.headers]
        headers += self._headers(letter)
        record = {
            "topic": consumer.dlq_topic,
            "partition": letter.partition,
            "offset": letter.offset,
            "timestamp": letter.at,
            "timestampType": consumer.timestamp_type,
            "key": _base64(source.key if consumer.copied else None),
            "value": _base64(source.value if consumer.copied else None),
            "headers": [{"key": name, "value": _base64(value)} for name, value in headers],
        }
        return json.dumps(record, separators=(",", ":"))

    def _headers(self, letter: _DeadLetter) -> list[tuple[str, bytes]]:
        """Return the headers that the consumer's profile adds, in its order."""
        r, consumer, source, error = self.random, letter.incident.consumer, letter.source, letter.incident.error
        topic, partition, offset = self.topic.name, source.partition, source.offset
        origin = {"topic": topic.encode(), "partition": b"%d" % partition, "offset": b"%d" % offset}
        group = consumer.name.encode()
        if consumer.profile == SHARE:
            deliveries = r.randrange(1, consumer.limit + 1) if error.is_rejection else consumer.limit
            headers = origin | {"group": group, "delivery.count": b"%d" % deliveries, "message": error.message.encode()}
            return [(f"__dlq.errors.{name}", value) for name, value in headers.items()]
        if consumer.profile == DRAFT:
            headers = {"disposition": error.disposition.encode()}
            headers |= {f"original.{name}": value for name, value in origin.items()}
            headers |= {"original.consumer.group": group, "timestamp": _iso(letter.at).encode()}
            return [(f"_dlq.errors.{name}", value) for name, value in headers.items()]
        prefix = ("ord", "inv", "cust")[crc32(str(error).encode()) % 3]
        message = _filled(error.message, r, prefix)
        stacktrace = self._stacktrace(consumer, error, message)
        if consumer.profile == STREAMS:
            thrown = f"{error.exception}: {message}"
            headers = {"exception": thrown.encode(), "stacktrace": stacktrace, "message": message.encode(), **origin}
            return [(f"__streams.errors.{name}", value) for name, value in headers.items()]
        if consumer.profile == CONNECT:
            headers = origin | {
                "connector.name": group,
                "task.id": b"%d" % (partition % 3),
                "stage": b"VALUE_CONVERTER",
                "class.name": b"org.apache.kafka.connect.json.JsonConverter",
                "exception.class.name": error.exception.encode(),
                "exception.message": message.encode(),
                "exception.stacktrace": stacktrace,
            }
            return [(f"__connect.errors.{name}", value) for name, value in headers.items()]
        headers = {
            "original-topic": topic.encode(),
            "original-partition": struct.pack(">i", partition),
            "original-offset": struct.pack(">q", offset),
            "original-timestamp": struct.pack(">q", source.written_at),
            "original-timestamp-type": b"CreateTime",
            "original-consumer-group": group,
            "exception-fqcn": error.exception.encode(),
        }
        if consumer.has_header_of_cause:
            headers["exception-cause-fqcn"] = error.exception.encode()
        headers |= {"exception-message": message.encode(), "exception-stacktrace": stacktrace}
        return [(f"kafka_dlt-{name}", value) for name, value in headers.items()]

    def _stacktrace(self, consumer: Consumer, error: Error, message: str) -> bytes:
        """Return a stack trace; what is below the application's frame differs between records."""
        r = self.random
        reflection = r.choice(
            (
                f"java.base/jdk.internal.reflect.GeneratedMethodAccessor{r.randrange(20, 90)}.invoke(Unknown Source)",
                "java.base/jdk.internal.reflect.DirectMethodHandleAccessor.invoke(DirectMethodHandleAccessor.java:103)",
            )
        )
        caller = (f"{self.package}.Application.handle(Application.java:31)",) if error.frame else ()
        own = (error.frame,) if error.frame else ()
        frames = (*error.above, *own, *caller, reflection, *BELOW[consumer.profile])
        return "\n\tat ".join((f"{error.exception}: {message}", *frames)).encode()

    def _acknowledgements(self) -> Iterator[str]:
        """Yield what producers were told about the dead records, and about records beside them that went through.

        If producers tell all, these are all records around the main incident, and one beside each other dead record.
        """
        topic, shows = self.topic, self.random.random() < 0.5
        around = self._around() if self.tells_all else set()
        for partition, number in sorted(around - topic.made.keys()):
            client, at = self.random.choice(topic.clients), topic.made[min(topic.made)].written_at
            headers = topic.headers(client) if shows else ()
            yield _acknowledgement(topic.name, partition, topic.offset(number), at, client, headers)
        for (partition, number), source in sorted(topic.made.items()):
            coordinate = (topic.name, partition, source.offset, source.written_at)
            yield _acknowledgement(*coordinate, source.client, source.headers if shows else ())
            if (partition, number + 1) not in topic.made.keys() | around:
                client = self.random.choice(topic.clients)
                headers = topic.headers(client) if shows else ()
                coordinate = (topic.name, partition, topic.offset(number + 1), source.written_at + 1)
                yield _acknowledgement(*coordinate, client, headers)

    def _around(self) -> set[tuple[int, int]]:
        """Return the records from the first to the last one of the main incident in each partition, if not too many."""
        numbers = {(source.partition, source.offset): number for (_, number), source in self.topic.made.items()}
        own: dict[int, list[int]] = {}
        for _, source in self.main.dead:
            own.setdefault(source.partition, []).append(numbers[source.partition, source.offset])
        if sum(max(many) - min(many) + 1 for many in own.values()) > MOST_TOLD:
            return set()
        return {(partition, number) for partition, many in own.items() for number in range(min(many), max(many) + 1)}


def _acknowledgement(
    topic: str, partition: int, offset: int, at: int, client: str, headers: Iterable[tuple[str, str]] = ()
) -> str:
    fields = {"topic": topic, "partition": partition, "offset": offset, "timestamp": at, "serializedKeySize": 8}
    fields |= {
        "serializedValueSize": 40,
        "exception": None,
        "headers": [{"key": name, "value": _base64(value.encode())} for name, value in headers],
        "acknowledged_at": at + 4,
        "client_id": client,
    }
    return json.dumps(fields, separators=(",", ":"))


def _chain(source: str, sink: str, steps: Iterable[str], stores: Sequence[str]) -> dict[str, Any]:
    """Return a topology description with one chain of processors, named as Streams names them."""
    names = [f"KSTREAM-{step}-{number:010}" for number, step in enumerate(("SOURCE", *steps, "SINK"))]
    made = [node(names[0], 1, [names[1]], sourceTopics=[source])]
    made += [
        node(name, 2, [after], stores=list(stores) if index == 0 else [])
        for index, (name, after) in enumerate(pairwise(names[1:]))
    ]
    return description([*made, node(names[-1], 3, sinkTopic=sink)])


def _request_line(
    at: int,
    number: int,
    client: str,
    connection: str,
    api: tuple[int, int, str],
    request: Mapping[str, Any],
    response: Mapping[str, Any],
) -> str:
    """Return a line as ``kafka.request.logger`` of a 4.4 broker writes it at DEBUG."""
    key, version, name = api
    header = {"requestApiKey": key, "requestApiVersion": version, "correlationId": number, "clientId": client}
    body = {
        "isForwarded": False,
        "requestHeader": header | {"requestApiKeyName": name},
        "request": request,
        "response": {"throttleTimeMs": 0, **response},
        "connection": f"10.0.0.1:9092-{connection}-0-14",
        "totalTimeMs": 9.008,
        "requestQueueTimeMs": 1.561,
        "localTimeMs": 7.161,
        "remoteTimeMs": 0.0,
        "throttleTimeMs": 0,
        "responseQueueTimeMs": 0.205,
        "sendTimeMs": 0.079,
        "securityProtocol": "PLAINTEXT",
        "principal": "User:ANONYMOUS",
        "listener": "PLAINTEXT",
        "clientInformation": {"softwareName": "apache-kafka-java", "softwareVersion": "4.4.0"},
    }
    time = f"{_moment(at):%Y-%m-%d %H:%M:%S},{at % 1000:03}"
    return f"[{time}] DEBUG Completed request:{json.dumps(body, separators=(',', ':'))} (kafka.request.logger)"


def _moment(at: int) -> datetime:
    return datetime.fromtimestamp(at // 1000, UTC).replace(microsecond=at % 1000 * 1000)


def _iso(at: int) -> str:
    return f"{_moment(at):%Y-%m-%dT%H:%M:%S}.{at % 1000:03}Z"


def _base64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode()
