"""Settings: conf/afterlog.toml, overridden by AFTERLOG_* environment variables, overridden by flags."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import available_timezones

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

from expectations.silver.dlq_records import PROFILES
from pipelines.errors import UsageError

ROOT = Path(__file__).resolve().parent.parent
AIRFLOW_HOME = ROOT / ".airflow"  # of the project's own Airflow, which `make up` starts
Share = Annotated[float, Field(ge=0.0, le=1.0)]
# What [kafka] options cannot set: the settings have it, or reading exactly the planned offsets depends on it.
_NO_OPTIONS = {
    *("bootstrap.servers", "security.protocol", "isolation.level", "group.id", "auto.offset.reset"),
    *("enable.auto.commit", "interceptor.classes", "key.deserializer", "value.deserializer"),
}
MOST_PROFILES = 20
MOST_MAPPED = 60
_PROFILE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
# As Spark reads a path into a variant: its parser passes over space before a key, and ends a quoted one at ? too.
_PATH = re.compile(r"""\$(?:\.[^\s.\[\]'"?]+|\[[0-9]{1,9}\]|\['(?!\s)[^'?]+'\]|\["(?!\s)[^"?]+"\])+""")
LANDING_DIRECTORIES = ("dlq", "streams-requests", "acknowledgements", "producers", "broker-logs", "segments")
_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:,\[\]/]+):([0-9]{1,5})")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Gate(_Part):
    """When a rule breaks a gate: failing rows >= ``min_failures``, and their share of the examined > ``tolerance``."""

    tolerance: Share | None = None
    min_failures: Annotated[int, Field(ge=1)] | None = None


class RequiredProfile(_Part):
    """A header profile that every record of the DLQ topics matching a glob pattern must carry."""

    topic: Annotated[str, Field(min_length=1)]
    profile: str


class MappedHeader(_Part):
    """What a header (``name``), or JSON in the record's value (``path``), says, and the field that it fills.

    A name that ends in ``*`` stands for all headers that begin with what is before it. A header without a field is
    recognised as one of the profile, no more. ``int32`` and ``int64`` are big-endian.
    """

    name: str | None = None
    path: str | None = None
    field: (
        Literal[
            "original_topic",
            "original_partition",
            "original_offset",
            "original_timestamp",
            "original_timestamp_type",
            "consumer_group",
            "disposition",
            "delivery_count",
            "error_message",
            "exception_class",
            "exception_cause_class",
            "exception_stacktrace",
            "connector_name",
            "task_id",
            "stage",
            "stage_class",
            "routed_at",
        ]
        | None
    ) = None
    encoding: Literal["text", "int32", "int64"] = "text"
    mandatory: bool = False

    @field_validator("name")
    @classmethod
    def _named(cls, name: str | None) -> str | None:
        if name == "*":
            raise ValueError("a prefix has at least one character before the *")
        if name == "":
            raise ValueError("a header's name has at least one character")
        return name

    @field_validator("path")
    @classmethod
    def _parsed(cls, path: str | None) -> str | None:
        if path is not None and not _PATH.fullmatch(path):
            raise ValueError("write it like $.error.offset, $['a key'] or $.records[0].topic")
        return path

    @model_validator(mode="after")
    def _consistent(self) -> MappedHeader:
        if (self.name is None) == (self.path is None):
            raise ValueError("give name, for a header, or path, for JSON in the value, and not both")
        if self.field is None and (self.mandatory or self.path is not None or self.encoding != "text"):
            raise ValueError("it needs a field to fill")
        if self.path is not None and self.encoding != "text":
            raise ValueError("what a path leads to is text or a number of JSON, so that encoding cannot be set")
        return self


class OwnProfile(_Part):
    """A header profile beside the built-in ones: what a team's own code writes on dead-letter records.

    Only records of DLQ topics that match the glob pattern ``topic``, if there is one, can have it.
    """

    name: str
    topic: Annotated[str, Field(min_length=1)] | None = None
    headers: Annotated[tuple[MappedHeader, ...], Field(min_length=1, max_length=MOST_MAPPED)]

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        if not _PROFILE_NAME.fullmatch(name):
            raise ValueError("a name has up to 64 letters, digits and . _ - between them")
        if name in PROFILES:
            raise ValueError(f"{name} is the name of a built-in profile")
        return name

    @field_validator("headers")
    @classmethod
    def _unambiguous(cls, headers: tuple[MappedHeader, ...]) -> tuple[MappedHeader, ...]:
        if not any(header.mandatory for header in headers):
            raise ValueError("at least one must be mandatory: it tells the profile from others")
        encodings: dict[str, str] = {}
        for header in headers:
            if header.field and encodings.setdefault(header.field, header.encoding) != header.encoding:
                raise ValueError(f"all that fills {header.field} must have the same encoding")
        places = [(header.name, header.path, header.field) for header in headers]
        if len(set(places)) < len(places):
            raise ValueError("two of them are the same")
        return headers


class Kafka(_Part):
    """How to reach the cluster whose topics are read; what is secret shows nowhere, not even in ``repr``.

    Certificates and keys are PEM files. ``options`` are properties of Kafka's clients, over all else.
    """

    bootstrap_servers: str = ""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    username: str | None = None
    password: SecretStr | None = None
    password_file: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: SecretStr | None = None
    options: dict[str, SecretStr] = Field(default_factory=dict)
    timeout_seconds: Annotated[float, Field(ge=1.0, le=3600.0)] = 15.0

    @field_validator("bootstrap_servers")
    @classmethod
    def _addresses(cls, text: str) -> str:
        addresses = [part.strip() for part in text.split(",") if part.strip()]
        for address in addresses:
            match = _ADDRESS.fullmatch(address)
            if not match or not 0 < int(match[1]) < 1 << 16:
                raise ValueError("write it like host:9092,other:9092")
        return ",".join(addresses)

    @field_validator("options")
    @classmethod
    def _permitted(cls, options: dict[str, SecretStr]) -> dict[str, SecretStr]:
        if refused := sorted(_NO_OPTIONS & options.keys()):
            raise ValueError(f"{refused[0]} cannot be set here")
        return options

    @model_validator(mode="after")
    def _consistent(self) -> Kafka:
        if self.password is not None and self.password_file is not None:
            raise ValueError("give password or password_file, not both")
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file go together")
        return self

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """The hosts and ports of the bootstrap servers."""
        pairs = (address.rpartition(":") for address in self.bootstrap_servers.split(",") if address)
        return tuple((host.strip("[]"), int(port)) for host, _, port in pairs)


class Topics(_Part):
    """Whether a feed is read from topics too (``source``), and how.

    A batch takes at most ``max_records_per_batch`` offsets, so that its size does not depend on what waits.
    """

    source: Literal["files", "kafka"] = "files"
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    max_records_per_batch: Annotated[int, Field(ge=1)] = 500_000

    @property
    def pattern(self) -> str:
        """The regular expression that the whole name of a topic must match."""
        raise NotImplementedError

    @property
    def wanted(self) -> str:
        """The topics that are wanted, in words."""
        raise NotImplementedError


class _OneTopic(Topics):
    topic: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _named(self) -> _OneTopic:
        if self.source == "kafka" and self.topic is None:
            raise ValueError('source = "kafka" needs the name of a topic')
        return self

    @property
    def pattern(self) -> str:
        """The topic's name, as a regular expression."""
        return re.escape(self.topic or "")

    @property
    def wanted(self) -> str:
        """The topic, in words."""
        return f"topic {self.topic}"


class Dlq(Topics):
    """Settings of the feed ``dlq``; topics whose whole name matches ``subscribe_pattern`` are read, new ones too."""

    require: tuple[RequiredProfile, ...] = ()
    profile: Annotated[tuple[OwnProfile, ...], Field(max_length=MOST_PROFILES)] = ()
    subscribe_pattern: Annotated[str, Field(min_length=1)] = r"dlq\..*"

    @model_validator(mode="after")
    def _profiles_are_known(self) -> Dlq:
        own = [profile.name for profile in self.profile]
        for name in own:
            if own.count(name) > 1:
                raise ValueError(f"two profiles have the name {name}")
        known = [*PROFILES, *own]
        for number, required in enumerate(self.require):
            if required.profile not in known:
                raise ValueError(f"require.{number}.profile names no profile; profiles: {', '.join(known)}")
        return self

    @field_validator("subscribe_pattern")
    @classmethod
    def _regular(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"it is no regular expression ({error})") from None
        return pattern

    @property
    def pattern(self) -> str:
        """The pattern of the topics' names."""
        return self.subscribe_pattern

    @property
    def wanted(self) -> str:
        """The topics, in words."""
        return f"topics that match {self.subscribe_pattern}"


class _Log(_Part):
    timezone: str = "UTC"

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in available_timezones():
            raise ValueError("no such time zone; name one like Europe/Berlin")
        return name


class StreamsRequests(_Log, _OneTopic):
    """Settings of the brokers' request log: the zone of its timestamps, which do not name one; the topic it is in.

    A member is silent whose last heartbeat is ``silent_after_seconds`` older than its group's latest logged exchange.
    """

    silent_after_seconds: Annotated[float, Field(gt=0.0, le=86_400.0)] = 60.0


class BrokerLogs(_Log):
    """Settings of the brokers' own log: the zone of its timestamps, which do not name one."""


class Acknowledgements(_OneTopic):
    """Settings of the feed of acknowledgements; ``trace_header`` names the record header that holds the trace."""

    trace_header: Annotated[str, Field(min_length=1)] = "traceparent"


class CleanupPolicy(_Part):
    """The topic configuration ``cleanup.policy`` of the topics that match a glob pattern."""

    topic: Annotated[str, Field(min_length=1)]
    policy: str

    @field_validator("policy")
    @classmethod
    def _known(cls, policy: str) -> str:
        parts = {part.strip() for part in policy.split(",")} - {""}
        if not parts <= {"compact", "delete"}:
            raise ValueError("write it as Kafka does: delete, compact, or both with a comma")
        return ",".join(sorted(parts))


class Segments(_Part):
    """Settings of the feed of log segments; of ``cleanup_policy`` the first that matches a topic says its policy.

    An acknowledged message that is absent from the log is lost only where the log is known not to be compacted.
    """

    cleanup_policy: tuple[CleanupPolicy, ...] = ()


class Silence(_Part):
    """When a feed counts as silent: its newest record is too old.

    That is older than the hours that ``after_hours`` has for the feed, by its landing directory. Where it has none, a
    steady feed is silent after ``times_longest_pause`` times its longest pause, and ``least_hours`` at least.
    """

    times_longest_pause: Annotated[float, Field(ge=1.0, le=1_000.0)] = 3.0
    least_hours: Annotated[float, Field(gt=0.0, le=1_000_000.0)] = 1.0
    after_hours: dict[str, Annotated[float, Field(gt=0.0, le=1_000_000.0)]] = Field(default_factory=dict)

    @field_validator("after_hours")
    @classmethod
    def _known(cls, hours: dict[str, float]) -> dict[str, float]:
        if unknown := sorted(hours.keys() - set(LANDING_DIRECTORIES)):
            raise ValueError(f"there is no feed {unknown[0]}; name one of {', '.join(LANDING_DIRECTORIES)}")
        return hours


class Lock(_Part):
    """How long a writing command waits for another writer on the same warehouse."""

    wait_seconds: Annotated[float, Field(ge=0.0)] = 60.0


class Report(_Part):
    """Where reports are written (default ``<warehouse>/_reports``) and how many runs Data Docs keep."""

    directory: str | None = None
    keep_runs: Annotated[int, Field(ge=1)] = 20


class Settings(_Part):
    """All settings; relative paths are below the project's directory, URIs (``s3a://``) are kept.

    ``single_writer`` promises that one process at a time writes to a warehouse whose store cannot tell writers apart.
    ``kafka_connection``, where not empty, names the Airflow connection from which DAGs take the cluster, instead of
    ``kafka``.
    """

    cluster: Annotated[str, Field(min_length=1)] = "default"
    warehouse: Annotated[str, Field(min_length=1)] = "warehouse"
    landing: Annotated[str, Field(min_length=1)] = "landing"
    single_writer: bool = False
    kafka_connection: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{0,200}$")] | None = None
    tolerance: Share | None = None
    gates: dict[str, Gate] = Field(default_factory=dict)
    kafka: Kafka = Kafka()
    dlq: Dlq = Dlq()
    streams_requests: StreamsRequests = StreamsRequests()
    broker_logs: BrokerLogs = BrokerLogs()
    acknowledgements: Acknowledgements = Acknowledgements()
    segments: Segments = Segments()
    silence: Silence = Silence()
    lock: Lock = Lock()
    report: Report = Report()
    spark: dict[str, str] = Field(default_factory=dict)

    def landing_of(self, directory: str) -> Path:
        """Return one of the directories that files land in."""
        return Path(self.landing) / directory

    def topics_of(self, directory: str) -> Topics | None:
        """Return what is read from Kafka beside the files of a landing directory; None where nothing is."""
        feeds: dict[str, Topics] = {
            "dlq": self.dlq,
            "streams-requests": self.streams_requests,
            "acknowledgements": self.acknowledgements,
        }
        topics = feeds.get(directory)
        return topics if topics and topics.source == "kafka" else None

    def reports(self) -> Path:
        """Return the directory of the reports, always local."""
        if self.report.directory:
            return located(self.report.directory)
        return (ROOT / "reports") if "://" in self.warehouse else Path(self.warehouse) / "_reports"


def located(path: str) -> Path:
    """Return a path of the settings as an absolute one: relative paths are below the project's directory."""
    return (ROOT / Path(path).expanduser()).absolute()


def load(**flags: Any) -> Settings:
    """Read the settings file, the environment and flags (None means not given), each overriding the one before.

    The file is ``conf/afterlog.toml`` or what ``AFTERLOG_SETTINGS`` names. ``AFTERLOG_LOCK__WAIT_SECONDS=5`` sets
    ``wait_seconds`` of ``[lock]``, ``AFTERLOG_LOCK={...}`` all of it, as an object of JSON. Paths of flags are relative
    to the current directory.

    Raises UsageError: a file or value that cannot be used.
    """
    values = _given()
    for name in ("warehouse", "landing"):
        if flags.get(name) is not None and "://" not in str(flags[name]):
            flags[name] = str(Path(flags[name]).expanduser().absolute())
    values.update({name: value for name, value in flags.items() if value is not None})
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise UsageError(f"The setting {first_mistake(error)}") from None
    from_kafka = [name for name in ("dlq", "streams_requests", "acknowledgements") if _reads_topics(settings, name)]
    if from_kafka and not settings.kafka.bootstrap_servers:
        raise UsageError(f'[{from_kafka[0]}] has source = "kafka": set bootstrap_servers under [kafka].')
    absolute = {
        name: str(located(getattr(settings, name)))
        for name in ("warehouse", "landing")
        if "://" not in getattr(settings, name)
    }
    return settings.model_copy(update=absolute)


def kafka_connection() -> str | None:
    """Return the Airflow connection that file or environment name, whatever else they say.

    Raises UsageError: a file that cannot be read.
    """
    named = _given().get("kafka_connection")
    return named if isinstance(named, str) else None


def first_mistake(error: ValidationError) -> str:
    """Return where the first mistake is, and what it is, without the value."""
    wrong = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in wrong["loc"])
    plain = "".join(character if character.isprintable() else repr(character)[1:-1] for character in where)
    return f"{plain} cannot be used: {wrong['msg']}."


def _given() -> dict[str, Any]:
    """Return what the settings file and the environment say."""
    named = os.environ.get("AFTERLOG_SETTINGS")
    file = Path(named).expanduser() if named else ROOT / "conf" / "afterlog.toml"
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if named:
            raise UsageError(f"The settings file {file} does not exist; mend AFTERLOG_SETTINGS.") from None
        values = {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"The settings file {file} cannot be read: {error}") from None
    _override_from_environment(values)
    return values


def _reads_topics(settings: Settings, part: str) -> bool:
    return settings.topics_of(part.replace("_", "-")) is not None


def _override_from_environment(values: dict[str, Any]) -> None:
    """Put AFTERLOG_A__B=x where ``[a] b = x`` stands; variables that name no setting are left alone."""
    for variable, text in sorted(os.environ.items(), key=lambda one: "__" in one[0]):  # a part as a whole goes first
        if not variable.startswith("AFTERLOG_"):
            continue
        *parts, last = variable.removeprefix("AFTERLOG_").lower().split("__")
        top = parts[0] if parts else last
        if top not in Settings.model_fields or top in ("gates", "spark"):
            continue
        place = values
        for part in parts:
            if not isinstance(place.get(part), dict):
                place[part] = {}
            place = place[part]
        place[last] = _object(text) if isinstance(Settings.model_fields[top].default, _Part) and not parts else text


def _object(text: str) -> Any:
    """Return the object that JSON says, or the text, which is refused as a part of the settings."""
    try:
        return json.loads(text)
    except ValueError:
        return text
