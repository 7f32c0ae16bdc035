"""Who reads a topic, and the errors with which it fails."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from bench.scenarios.times import DAY, FIRST_START
from pipelines.commands.generated_letters import CONNECT, DRAFT, EXHAUSTED, REJECTED, SHARE, SPRING, STREAMS, Error

WITHOUT_GROUP = (STREAMS, CONNECT)
READ_BY_TOPOLOGY = (STREAMS, SPRING)
"""Profiles of Streams applications: its own handler, or Spring's recoverer, which names the application's group."""


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
    *("PriceParser.parse", "OrderMapper.toDomain", "Validator.check", "Ledger.book", "StockKeeper.take"),
    "Router.send",
)
WORDS = ("n/a", "blue shirt", "Müller GmbH", "12,5", "--", "EMEA north", "tbd", "zwei", "1O", "R&D", "x", "null")
DOMAINS = ("example.com", "acme.io", "mail.shop.de", "payflow.co.uk")


def uuid(r: random.Random) -> str:
    """Draw a UUID."""
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
    "uuid": uuid,
    "hex": lambda r: f"{r.getrandbits(28):07x}{r.randrange(10)}",
    "amount": lambda r: f"{r.randrange(1, 10**6) / 100:.2f}",
}
_PLACE = re.compile(r"\{(\w+)\}")


def filled(template: str, r: random.Random, prefix: str) -> str:
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
    copied: bool = True
    timestamp_type: int = 0
    limit: int = 5
    errors: list[Error] = field(default_factory=list)
    has_header_of_cause: bool = False

    @property
    def group(self) -> str | None:
        """The group that its dead letters name."""
        return None if self.profile in WITHOUT_GROUP else self.name


def frame_of(package: str, call: str, line: int) -> str:
    """Return the frame of a stack trace that shows a call of ``<class>.<method>``."""
    return f"{package}.{call}({call.partition('.')[0]}.java:{line})"


def errors_of(profile: str, package: str, r: random.Random) -> list[Error]:
    """Return different errors in random order; the first two are often alike but for their frame or message."""
    if profile == SHARE:
        return r.sample((REJECTED, EXHAUSTED), 2)
    if profile == DRAFT:
        return [replace(error, message="") for error in r.sample((REJECTED, EXHAUSTED), 2)]
    known = CONNECT_ERRORS if profile == CONNECT else APPLICATION_ERRORS
    made = []
    for exception, message, above in r.sample(known, min(len(known), 7)):
        call = r.choice(CALLS)
        frame = frame_of(package, call, r.randrange(20, 400))
        frame = "" if CONVERTER in above else frame
        made.append(Error(message, exception.replace("@", package), above=above, frame=frame))
    first, draw = made[0], r.random()
    if first.frame and draw < 0.25:  # the same exception and message at another place
        call = r.choice([other for other in CALLS if other not in first.frame])
        made.insert(1, replace(first, frame=frame_of(package, call, r.randrange(20, 400))))
    elif draw < 0.5:  # the same exception at the same place, with another message
        made.insert(1, replace(first, message=f"Cannot go on after a failure of {{id}}: {first.message}"))
    return made
