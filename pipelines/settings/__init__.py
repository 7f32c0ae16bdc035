"""Settings: a file, overridden by AFTERLOG_* environment variables, overridden by flags."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError, field_validator

from expectations.text import visible
from pipelines.errors import UsageError
from pipelines.installation import PROJECT, ROOT, settings_files
from pipelines.settings import s3
from pipelines.settings.airflow import Airflow, Pod, Ssh
from pipelines.settings.alerts import Alerts
from pipelines.settings.feeds import (
    LANDING_DIRECTORIES,
    Acknowledgements,
    BrokerLogs,
    CleanupPolicy,
    Collect,
    Dlq,
    Segments,
    StreamsRequests,
    Topics,
)
from pipelines.settings.kafka import Kafka
from pipelines.settings.layers import read_layers
from pipelines.settings.payloads import Mask, PrivacyKey, SchemaFile
from pipelines.settings.profiles import MappedHeader, OwnProfile, RequiredProfile
from pipelines.settings.runs import Gate, Lock, Metrics, Replay, Report, Silence
from pipelines.settings.section import Section, Share, first_mistake
from pipelines.settings.teams import NO_TEAM, Team
from pipelines.text import hint

__all__ = [
    "AIRFLOW_HOME",
    "LANDING_DIRECTORIES",
    "PROJECT",
    "ROOT",
    "CleanupPolicy",
    "Dlq",
    "Gate",
    "Kafka",
    "Lock",
    "MappedHeader",
    "Mask",
    "OwnProfile",
    "PrivacyKey",
    "Replay",
    "RequiredProfile",
    "SchemaFile",
    "Segments",
    "Settings",
    "Topics",
    "first_mistake",
    "kafka_connection",
    "load",
    "located",
    "settings_file",
    "tasks_run_elsewhere",
]

ZONE = "spark.sql.session.timeZone"
QUESTIONS = ROOT / "sql" / "questions"
AIRFLOW_HOME = PROJECT / ".airflow"  # of the project's own Airflow, which `make up` starts


class Settings(Section):
    """All settings. Relative paths are below the project's directory; URIs (``s3a://``) stay as they are.

    ``shared_directories`` says that warehouse and landing have the same path on all machines of Spark's cluster.
    ``kafka_connection``, unless empty, names the Airflow connection from which DAGs take the cluster instead of
    ``kafka``. With the ``engine`` spark, Spark makes every table and decision; with auto, DuckDB makes what is small.
    """

    cluster: Annotated[str, Field(min_length=1)] = "default"
    warehouse: Annotated[str, Field(min_length=1)] = "warehouse"
    landing: Annotated[str, Field(min_length=1)] = "landing"
    shared_directories: bool = False
    engine: Literal["auto", "spark"] = "auto"
    kafka_connection: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{0,200}$")] | None = None
    tolerance: Share | None = None
    gates: dict[str, Gate] = Field(default_factory=dict)
    kafka: Kafka = Kafka()
    dlq: Dlq = Dlq()
    streams_requests: StreamsRequests = StreamsRequests()
    broker_logs: BrokerLogs = BrokerLogs()
    acknowledgements: Acknowledgements = Acknowledgements()
    segments: Segments = Segments()
    collect: Collect = Collect()
    silence: Silence = Silence()
    lock: Lock = Lock()
    report: Report = Report()
    alerts: Alerts = Alerts()
    metrics: Metrics = Metrics()
    airflow: Airflow = Airflow()
    replay: Replay = Replay()
    schemas: Annotated[tuple[SchemaFile, ...], Field(alias="schema")] = ()
    privacy: tuple[Mask, ...] = ()
    privacy_key: PrivacyKey = PrivacyKey()
    teams: Annotated[tuple[Team, ...], Field(alias="team")] = ()
    spark: dict[str, str] = Field(default_factory=dict)

    @field_validator("warehouse")
    @classmethod
    def _name_once(cls, warehouse: str) -> str:
        if "://" in warehouse and not warehouse.startswith("file:") and any(one in warehouse for one in "%#?"):
            raise ValueError("a URI has none of % # ?, as its readers take them for different places")
        return s3.one_name(warehouse)

    @field_validator("landing")
    @classmethod
    def _check_landing(cls, landing: str) -> str:
        if "://" in landing:
            raise ValueError("files land in a directory: write its path, not a URI")
        return landing

    @field_validator("teams")
    @classmethod
    def _check_teams(cls, teams: tuple[Team, ...]) -> tuple[Team, ...]:
        names = [one.name.casefold() for one in teams]
        if twice := next((one.name for one in teams if names.count(one.name.casefold()) > 1), None):
            raise ValueError(f"two teams have the name '{twice}', as upper and lower case are alike")
        return teams

    @field_validator("spark")
    @classmethod
    def _check_zone(cls, spark: dict[str, str]) -> dict[str, str]:
        if spark.get(ZONE, "UTC") != "UTC":
            raise ValueError(f"sessions run in UTC: leave out {ZONE}")
        return spark

    def landing_of(self, directory: str) -> Path:
        """Return the path of a landing directory."""
        return Path(self.landing) / directory

    def topics_of(self, directory: str) -> Topics | None:
        """Return the topics that the feed of a landing directory also reads; None if it reads only files."""
        feeds: dict[str, Topics] = {
            "dlq": self.dlq,
            "streams-requests": self.streams_requests,
            "acknowledgements": self.acknowledgements,
        }
        topics = feeds.get(directory)
        return topics if topics and topics.source == "kafka" else None

    def reports(self) -> Path:
        """Return the directory of the reports, which is always local."""
        if self.report.directory:
            return located(self.report.directory)
        return (PROJECT / "reports") if "://" in self.warehouse else Path(self.warehouse) / "_reports"


def located(path: str) -> Path:
    """Return an absolute path: a relative path of the settings is below the project's directory."""
    return (PROJECT / Path(path).expanduser()).absolute()


def load(**flags: Any) -> Settings:
    """Read the settings file, the environment and flags (None means not given); each overrides the one before.

    ``AFTERLOG_LOCK__WAIT_SECONDS=5`` sets ``wait_seconds`` of ``[lock]``; ``AFTERLOG_LOCK={...}``, a JSON object,
    replaces all of ``[lock]``, as a flag does. Relative paths of flags are below the current directory.

    Raises UsageError: a file or value that cannot be used.
    """
    values = read_layers(settings_file(), Settings)
    for name in ("warehouse", "landing"):
        if flags.get(name) and "://" not in str(flags[name]):  # an empty flag does not mean the current directory
            flags[name] = str(Path(flags[name]).expanduser().absolute())
    values.update({name: value for name, value in flags.items() if value is not None})
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise UsageError(f"The setting {first_mistake(error)}") from None
    for directory in LANDING_DIRECTORIES:
        if settings.topics_of(directory) and not settings.kafka.bootstrap_servers:
            section = directory.replace("-", "_")
            raise UsageError(f'[{section}] has source = "kafka": set bootstrap_servers under [kafka].')
    if any(mask.do == "hash" for mask in settings.privacy) and settings.privacy_key.hash_key_env is None:
        raise UsageError('[[privacy]] has do = "hash": set hash_key_env under [privacy_key].')
    absolute = {
        name: str(located(getattr(settings, name)))
        for name in ("warehouse", "landing")
        if "://" not in getattr(settings, name)
    }
    return settings.model_copy(update=absolute | _routes_of_teams(settings))


def _routes_of_teams(settings: Settings) -> dict[str, Alerts]:
    """Return alerts whose routes have the quiet hours of their teams; nothing if no route names a team.

    Raises UsageError: a route names a team that there is not.
    """
    teams = {one.name: one for one in settings.teams}
    known = {**teams, NO_TEAM: None} if teams else {}
    routes = []
    for route in settings.alerts.route:
        if route.team is not None and route.team not in known:
            raise UsageError(
                f"[[alerts.route]] {route.name} names a team that no [[team]] is: '{visible(route.team[:64])}'."
                f"{hint(route.team, known)}"
            )
        team = teams.get(route.team or "")
        if team is not None and route.quiet_hours is None:
            route = route.model_copy(update={"quiet_hours": team.quiet_hours})
        routes.append(route)
    changed = tuple(routes) != settings.alerts.route
    return {"alerts": settings.alerts.model_copy(update={"route": tuple(routes)})} if changed else {}


def kafka_connection() -> str | None:
    """Return the Airflow connection that the file or the environment names, even if other settings are wrong.

    Raises UsageError: a file that cannot be read.
    """
    name = read_layers(settings_file(), Settings).get("kafka_connection")
    return name if isinstance(name, str) else None


def tasks_run_elsewhere() -> Pod | Ssh | None:
    """Return where DAGs run the command, even if other settings are wrong; None: beside Airflow's worker.

    Raises UsageError: a file that cannot be read, or an ``[airflow]`` that cannot be used.
    """
    try:
        given = {"airflow": read_layers(settings_file(), Settings).get("airflow", {})}
        found = TypeAdapter(dict[str, Airflow]).validate_python(given)["airflow"]
    except ValidationError as error:
        raise UsageError(f"The setting {first_mistake(error)}") from None
    return found.pod or found.ssh


def settings_file() -> Path:
    """Return the settings file: the one that ``AFTERLOG_SETTINGS`` names, else the first that is there.

    Raises UsageError: the named file is not there.
    """
    if named := os.environ.get("AFTERLOG_SETTINGS"):
        given = Path(named).expanduser()
        if not given.exists():
            raise UsageError(f"The settings file {given} does not exist: correct --config or AFTERLOG_SETTINGS.")
        return given
    *found, shipped = settings_files()
    return next((one for one in found if one.exists()), shipped)
