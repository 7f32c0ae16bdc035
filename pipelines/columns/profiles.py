"""Header profiles as data: which headers each kind of writer puts on dead-letter records.

There are three kinds of profiles. The specified ones follow a KIP or a writer of Apache Kafka or Spring, and contracts
name them. Profiles of the settings come from ``[[dlq.profile]]``. Shipped profiles have the same form and lie in
``conf/profiles/``; a profile of the settings with the same name replaces one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

from pipelines.settings.feeds import Dlq
from pipelines.settings.profiles import MappedHeader, Newest, OwnProfile

Encoding = Literal["text", "throwable", "int32", "int64", "integer", "uri"]
Kind = Literal["specified", "settings", "shipped"]
TOPIC, GROUP = "{original_topic}", "{consumer_group}"  # in the default name of DLQ topics


@dataclass(frozen=True)
class Header:
    """A header of a profile and the field that it fills.

    ``throwable`` is the text of Java's ``Throwable.toString()``, class and message: the part before ``": "`` counts.
    ``int32`` and ``int64`` are big-endian; ``integer`` has any length up to 8 bytes, as Java's ``BigInteger`` writes
    it. ``uri`` is the part behind the last ``/``. If several headers fill one field, the first that has a value counts.

    ``name`` can be a prefix (``is_prefix``). It matches all headers that begin with it and that no other name of the
    profile matches more closely; the last of them gives the value. If ``path`` is not empty, the value comes from that
    path in the JSON of the record's value instead of a header. A header without a field is only recognised. ``repeats``
    tells that one set can have the name several times; the last value counts.
    """

    field: str
    name: str = ""
    encoding: Encoding = "text"
    mandatory: bool = False
    is_prefix: bool = False
    path: str = ""
    repeats: bool = False

    @property
    def key(self) -> str:
        """The name, with a ``*`` behind a prefix, or the path."""
        return self.path or (f"{self.name}*" if self.is_prefix else self.name)


@dataclass(frozen=True)
class Profile:
    """The headers of one kind of writer, in the order in which it writes them.

    ``topic`` is a glob that limits the DLQ topics. ``newest`` tells where the writer puts its set: behind the headers
    that it copies (``last``), before them (``first``), or ``anywhere``, as it keeps all headers in a map with one value
    a name. ``default_topic`` is a glob that the DLQ topics' default names match; ``before_group`` is what stands there
    before the consumer group, with ``{original_topic}`` in it, and empty if the names hold no group. ``writer`` is its
    name for people; ``tells_more`` says which of its settings makes it tell more.
    """

    name: str
    headers: tuple[Header, ...]
    topic: str = ""
    kind: Kind = "settings"
    newest: Newest = "last"
    default_topic: str = ""
    before_group: str = ""
    writer: str = ""
    tells_more: str = ""

    def __hash__(self) -> int:
        """Return a hash that costs little: plans look profiles up all the time."""
        return hash(self.name)

    @property
    def says_minus_one(self) -> bool:
        """Whether the number -1 says that the writer knows none; the headers of share groups must have values."""
        return self.name not in SHARE_GROUP

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all headers of the profile, without prefixes."""
        return tuple(header.name for header in self.headers if header.name and not header.is_prefix)

    @cached_property
    def prefixes(self) -> tuple[str, ...]:
        """The prefixes that match further headers of the profile."""
        return tuple(header.name for header in self.headers if header.is_prefix)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The paths in an envelope that the profile reads."""
        return tuple(header.path for header in self.headers if header.path)

    @cached_property
    def mandatory(self) -> tuple[str, ...]:
        """The keys of the headers and prefixes without which the profile is incomplete."""
        return tuple(header.key for header in self.headers if header.mandatory and not header.path)

    @cached_property
    def mandatory_paths(self) -> tuple[str, ...]:
        """The paths that must lead to a value."""
        return tuple(header.path for header in self.headers if header.mandatory and header.path)

    @cached_property
    def encodings(self) -> dict[str, Encoding]:
        """The encoding of each field that the profile fills; all headers of a field have the same."""
        return {header.field: header.encoding for header in self.headers if header.field}


def _original(prefix: str) -> tuple[Header, ...]:
    """Return the mandatory headers for topic, partition and offset of the record that failed."""
    fields = ("topic", "partition", "offset")
    return tuple(Header(f"original_{field}", f"{prefix}{field}", mandatory=True) for field in fields)


PROFILES = (
    Profile(
        "kip-1317",
        (
            Header("disposition", "_dlq.errors.disposition", mandatory=True),
            *_original("_dlq.errors.original."),
            Header("consumer_group", "_dlq.errors.original.consumer.group", mandatory=True),
            Header("routed_at", "_dlq.errors.timestamp", mandatory=True),
        ),
        kind="specified",
        default_topic="dlq.*",
        writer="share groups (draft of KIP-1317)",
    ),
    Profile(
        "kip-1191",
        (
            *_original("__dlq.errors."),
            Header("consumer_group", "__dlq.errors.group", mandatory=True),
            Header("delivery_count", "__dlq.errors.delivery.count"),
            Header("error_message", "__dlq.errors.message"),
        ),
        kind="specified",
        default_topic="dlq.*",
        writer="share groups (KIP-1191)",
        tells_more="The group's errors.deadletterqueue.copy.record.enable=true copies key and value.",
    ),
    Profile(
        "kafka-streams",
        (
            Header("exception_class", "__streams.errors.exception", "throwable"),
            Header("error_message", "__streams.errors.message"),
            Header("exception_stacktrace", "__streams.errors.stacktrace"),
            *_original("__streams.errors."),
        ),
        kind="specified",
        writer="Kafka Streams",
        tells_more="It names no application: give each application a dead-letter topic of its own.",
    ),
    Profile(
        "kafka-connect",
        (
            *_original("__connect.errors."),
            Header("connector_name", "__connect.errors.connector.name"),
            Header("task_id", "__connect.errors.task.id"),
            Header("stage", "__connect.errors.stage"),
            Header("stage_class", "__connect.errors.class.name"),
            Header("exception_class", "__connect.errors.exception.class.name"),
            Header("error_message", "__connect.errors.exception.message"),
            Header("exception_stacktrace", "__connect.errors.exception.stacktrace"),
        ),
        kind="specified",
        writer="Kafka Connect",
        tells_more="Set errors.deadletterqueue.context.headers.enable=true: without it there are no headers at all.",
    ),
    Profile(
        "spring-kafka",
        (
            Header("exception_class", "kafka_dlt-exception-fqcn"),
            Header("exception_class", "kafka_dlt-key-exception-fqcn"),
            Header("exception_cause_class", "kafka_dlt-exception-cause-fqcn"),
            Header("error_message", "kafka_dlt-exception-message"),
            Header("error_message", "kafka_dlt-key-exception-message"),
            Header("exception_stacktrace", "kafka_dlt-exception-stacktrace"),
            Header("exception_stacktrace", "kafka_dlt-key-exception-stacktrace"),
            Header("original_topic", "kafka_dlt-original-topic", mandatory=True),
            Header("original_partition", "kafka_dlt-original-partition", "int32", mandatory=True),
            Header("original_offset", "kafka_dlt-original-offset", "int64", mandatory=True),
            Header("original_timestamp", "kafka_dlt-original-timestamp", "int64"),
            Header("original_timestamp_type", "kafka_dlt-original-timestamp-type"),
            Header("consumer_group", "kafka_dlt-original-consumer-group"),
        ),
        kind="specified",
        default_topic="*dlt",
        writer="Spring for Apache Kafka",
    ),
)
KIP_1317, KIP_1191 = PROFILES[:2]
SHARE_GROUP = (KIP_1317.name, KIP_1191.name)
FIELDS = (
    *("disposition", "original_topic", "original_partition", "original_offset", "consumer_group", "routed_at"),
    *("delivery_count", "error_message", "exception_class", "exception_stacktrace", "connector_name", "task_id"),
    *("stage", "stage_class", "original_timestamp", "original_timestamp_type", "exception_cause_class", "application"),
)
NAMES = tuple(name for profile in PROFILES for name in profile.names)
"""The header names of the specified profiles."""


@cache
def profiles_of(dlq: Dlq) -> tuple[Profile, ...]:
    """Return all profiles that take part: the specified ones, those of the settings, and the shipped ones."""
    settings, shipped = dlq.mapped[: len(dlq.profile)], dlq.mapped[len(dlq.profile) :]
    return (*PROFILES, *own_profiles(settings), *own_profiles(shipped, "shipped"))


def own_profiles(profiles: Iterable[OwnProfile], kind: Kind = "settings") -> tuple[Profile, ...]:
    """Return profiles in the form of the settings as the decoder takes them."""
    made = []
    for profile in profiles:
        before, _, _ = (profile.default_topic or "").partition(GROUP)
        made.append(
            Profile(
                profile.name,
                tuple(map(_header, profile.headers)),
                profile.topic or "",
                kind,
                profile.newest,
                (profile.default_topic or "").replace(TOPIC, "*").replace(GROUP, "*"),
                before if TOPIC in before else "",
                profile.writer or profile.name,
                profile.tells_more or "",
            )
        )
    return tuple(made)


def _header(mapped: MappedHeader) -> Header:
    name = mapped.name or ""
    return Header(
        mapped.field or "",
        name.removesuffix("*"),
        mapped.encoding,
        mapped.mandatory,
        is_prefix=name.endswith("*"),
        path=mapped.path or "",
        repeats=mapped.repeats,
    )
