"""Settings: conf/afterlog.toml, overridden by AFTERLOG_* environment variables, overridden by flags."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import available_timezones

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from pipelines.errors import UsageError

ROOT = Path(__file__).resolve().parent.parent
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Gate(_Part):
    """When a gate breaks: failing rows >= ``min_failures`` and failing rows / candidates > ``tolerance``."""

    tolerance: Share | None = None
    min_failures: Annotated[int, Field(ge=1)] | None = None


class RequiredProfile(_Part):
    """A header profile that every record of the DLQ topics matching a glob pattern must carry."""

    topic: Annotated[str, Field(min_length=1)]
    profile: Literal["kip-1317", "kip-1191", "kafka-streams", "kafka-connect", "spring-kafka"]


class Dlq(_Part):
    """Settings of the feed ``dlq``."""

    require: tuple[RequiredProfile, ...] = ()


class _Log(_Part):
    timezone: str = "UTC"

    @field_validator("timezone")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in available_timezones():
            raise ValueError("no such time zone; name one like Europe/Berlin")
        return name


class StreamsRequests(_Log):
    """Settings of the brokers' request log: the zone of its timestamps, which do not name one."""


class BrokerLogs(_Log):
    """Settings of the brokers' own log: the zone of its timestamps, which do not name one."""


class Acknowledgements(_Part):
    """Settings of the feed of acknowledgements.

    ``trace_header`` names the record header that holds the trace; ``compacted_topics`` are glob patterns of the topics
    in whose logs an offset may be absent because it was compacted away.
    """

    trace_header: Annotated[str, Field(min_length=1)] = "traceparent"
    compacted_topics: tuple[Annotated[str, Field(min_length=1)], ...] = ("*-changelog", "__*")


class Lock(_Part):
    """How long a writing command waits for another writer on the same warehouse."""

    wait_seconds: Annotated[float, Field(ge=0.0)] = 60.0


class Report(_Part):
    """Where reports are written (default ``<warehouse>/_reports``) and how many runs Data Docs keep."""

    directory: str | None = None
    keep_runs: Annotated[int, Field(ge=1)] = 20


class Settings(_Part):
    """All settings; relative paths are below the project's directory, URIs (``s3a://``) are kept."""

    cluster: Annotated[str, Field(min_length=1)] = "default"
    warehouse: Annotated[str, Field(min_length=1)] = "warehouse"
    landing: Annotated[str, Field(min_length=1)] = "landing"
    tolerance: Share | None = None
    gates: dict[str, Gate] = Field(default_factory=dict)
    dlq: Dlq = Dlq()
    streams_requests: StreamsRequests = StreamsRequests()
    broker_logs: BrokerLogs = BrokerLogs()
    acknowledgements: Acknowledgements = Acknowledgements()
    lock: Lock = Lock()
    report: Report = Report()
    spark: dict[str, str] = Field(default_factory=dict)

    def landing_of(self, directory: str) -> Path:
        """Return one of the directories that files land in."""
        return Path(self.landing) / directory

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
    ``wait_seconds`` of ``[lock]``. Paths of flags are relative to the current directory.

    Raises UsageError: a file or value that cannot be used.
    """
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
    for name in ("warehouse", "landing"):
        if flags.get(name) is not None and "://" not in str(flags[name]):
            flags[name] = str(Path(flags[name]).expanduser().absolute())
    values.update({name: value for name, value in flags.items() if value is not None})
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in wrong["loc"])
        raise UsageError(f"The setting {where} cannot be used: {wrong['msg']}.") from None
    absolute = {
        name: str(located(getattr(settings, name)))
        for name in ("warehouse", "landing")
        if "://" not in getattr(settings, name)
    }
    return settings.model_copy(update=absolute)


def _override_from_environment(values: dict[str, Any]) -> None:
    """Put AFTERLOG_A__B=x where ``[a] b = x`` stands; variables that name no setting are left alone."""
    for variable, text in os.environ.items():
        if not variable.startswith("AFTERLOG_"):
            continue
        *parts, last = variable.removeprefix("AFTERLOG_").lower().split("__")
        top = parts[0] if parts else last
        if top not in Settings.model_fields or top in ("gates", "spark"):
            continue
        place = values
        for part in parts:
            place = place.setdefault(part, {})
        place[last] = text
