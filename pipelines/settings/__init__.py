"""Settings: a file, overridden by AFTERLOG_* environment variables, overridden by flags."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, PrivateAttr, TypeAdapter, ValidationError, field_validator

from expectations.text import visible
from pipelines.errors import UsageError
from pipelines.installation import PROJECT, ROOT, settings_files
from pipelines.settings import s3
from pipelines.settings.airflow import Airflow, Pod, Ssh
from pipelines.settings.alerts import Alerts
from pipelines.settings.backups import Backup
from pipelines.settings.clusters import OWN_KEYS, ClusterEntry, check_landings, entries_of, folded
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
from pipelines.settings.layers import chosen_cluster, read_layers
from pipelines.settings.payloads import Mask, PrivacyKey, SchemaFile
from pipelines.settings.profiles import MappedHeader, OwnProfile, RequiredProfile
from pipelines.settings.retention import Retention
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
    "kafka_connections",
    "kafka_variable",
    "load",
    "located",
    "settings_file",
    "tasks_run_elsewhere",
]

T = TypeVar("T", "Settings", ClusterEntry)

ZONE = "spark.sql.session.timeZone"
QUESTIONS = ROOT / "sql" / "questions"
AIRFLOW_HOME = PROJECT / ".airflow"  # of the project's own Airflow, which `make up` starts


class Settings(Section):
    """All settings. Relative paths are below the project's directory; URIs (``s3a://``) stay as they are.

    ``shared_directories`` says that warehouse and landing have the same path on all machines of Spark's cluster.
    ``kafka_connection``, unless empty, names the Airflow connection from which DAGs take the cluster instead of
    ``kafka``. With the ``engine`` spark, Spark makes every table and decision; with auto, DuckDB makes what is small.

    With ``[[cluster]]`` entries ``of_clusters`` gives the settings of each cluster. These settings name the first one
    as ``cluster``, and are those of what works on the rows of all clusters at once.
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
    retention: Retention = Retention()
    backup: Backup = Backup()
    schemas: Annotated[tuple[SchemaFile, ...], Field(alias="schema")] = ()
    privacy: tuple[Mask, ...] = ()
    privacy_key: PrivacyKey = PrivacyKey()
    teams: Annotated[tuple[Team, ...], Field(alias="team")] = ()
    spark: dict[str, str] = Field(default_factory=dict)

    _entries: tuple[ClusterEntry, ...] = PrivateAttr(default=())
    _only: str | None = PrivateAttr(default=None)
    _site: str = PrivateAttr(default="")

    @field_validator("warehouse")
    @classmethod
    def _name_once(cls, warehouse: str) -> str:
        if (
            "://" in warehouse
            and not warehouse.startswith("file:")
            and any(character in warehouse for character in "%#?")
        ):
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
        names = [team.name.casefold() for team in teams]
        if twice := next((team.name for team in teams if names.count(team.name.casefold()) > 1), None):
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
            whole = located(self.report.directory)
        else:
            whole = (PROJECT / "reports") if "://" in self.warehouse else Path(self.warehouse) / "_reports"
        return whole / self.site

    @property
    def site(self) -> str:
        """The path of the cluster's pages below those of the first cluster; empty for the first one."""
        return self._site

    @property
    def has_entries(self) -> bool:
        """Whether ``[[cluster]]`` names the clusters."""
        return bool(self._entries)

    @property
    def names(self) -> tuple[str, ...]:
        """The clusters that these settings are for."""
        return tuple(entry.name for entry in self._chosen) or (self.cluster,)

    @property
    def every_name(self) -> tuple[str, ...]:
        """The same, also of clusters that ``--cluster`` leaves out."""
        return tuple(entry.name for entry in self._entries) or (self.cluster,)

    @property
    def sole_cluster(self) -> str | None:
        """The cluster that these settings are for; None if there are several."""
        return self.cluster if len(self.names) == 1 else None

    @property
    def chosen_cluster(self) -> str | None:
        """The cluster that ``--cluster`` chose of several; None if it chose none."""
        return self._only if len(self._entries) > 1 else None

    @property
    def _chosen(self) -> tuple[ClusterEntry, ...]:
        return tuple(entry for entry in self._entries if self._only in (None, entry.name))

    def of_clusters(self) -> tuple[Settings, ...]:
        """Return the settings of each cluster, for what lands it, asks it or tells of it; these without entries."""
        return tuple(map(self._of, self._chosen)) or (self,)

    def of_every_cluster(self) -> tuple[Settings, ...]:
        """Return the same, also of clusters that ``--cluster`` leaves out."""
        return tuple(map(self._of, self._entries)) or (self,)

    def widened(self) -> Settings:
        """Return the settings for all clusters, also if ``--cluster`` chose one."""
        return _narrowed(self, None)

    def files_only(self) -> Settings:
        """Return the settings of a cluster of which only files are read, as it cannot be reached now."""
        return _files_only(self)

    def without_topics(self, names: Collection[str]) -> Settings:
        """Return the settings of several clusters, of some of which only files are read."""
        changed = self.model_copy()
        changed._entries = tuple(_files_only(entry) if entry.name in names else entry for entry in self._entries)
        return changed

    def _of(self, entry: ClusterEntry) -> Settings:
        sections = {name: getattr(entry, name) for name in ("kafka", "kafka_connection", *OWN_KEYS)}
        landing = located(entry.landing) if entry.landing is not None else Path(self.landing) / entry.name
        site = "" if entry is self._entries[0] else f"clusters/{entry.name}"
        url = self.report.url and site and f"{self.report.url}{site}/"
        report = self.report.model_copy(update={"url": url}) if url else self.report
        own = self.model_copy(
            update={"cluster": entry.name, "landing": str(landing), "report": report, **sections},
        )
        own._entries, own._only, own._site = (), None, site
        return own


def _files_only(cluster: T) -> T:
    sections = [name for name in OWN_KEYS if isinstance(getattr(cluster, name), Topics)]
    return cluster.model_copy(
        update={name: getattr(cluster, name).model_copy(update={"source": "files"}) for name in sections}
    )


def located(path: str) -> Path:
    """Return an absolute path: a relative path of the settings is below the project's directory."""
    return (PROJECT / Path(path).expanduser()).absolute()


def load(only: str | None = None, **flags: Any) -> Settings:
    """Read the settings file, the environment and flags (None means not given); each overrides the one before.

    ``AFTERLOG_LOCK__WAIT_SECONDS=5`` sets ``wait_seconds`` of ``[lock]``; ``AFTERLOG_LOCK={...}``, a JSON object,
    replaces all of ``[lock]``, as a flag does. Relative paths of flags are below the current directory. ``only`` names
    the one cluster that the settings are for, of several; so does ``AFTERLOG_CLUSTER``.

    Raises UsageError: a file or value that cannot be used.
    """
    values = read_layers(settings_file(), Settings)
    for name in ("warehouse", "landing"):
        if flags.get(name) and "://" not in str(flags[name]):  # an empty flag does not mean the current directory
            flags[name] = str(Path(flags[name]).expanduser().absolute())
    values.update({name: value for name, value in flags.items() if value is not None})
    shared = values
    if isinstance(values.get("cluster"), list | tuple):
        shared = {name: value for name, value in values.items() if name != "cluster"}
    try:
        settings = Settings.model_validate(shared)
    except ValidationError as error:
        raise UsageError(f"The setting {first_mistake(error)}") from None
    absolute = {
        name: str(located(getattr(settings, name)))
        for name in ("warehouse", "landing")
        if "://" not in getattr(settings, name)
    }
    settings = settings.model_copy(update=absolute | _routes_of_teams(settings))
    if shared is not values:
        if settings.kafka_connection:
            raise UsageError("The setting kafka_connection cannot be used beside [[cluster]]: set it in each of them.")
        settings._entries = entries_of(values)
        check_landings({own.cluster: Path(os.path.realpath(own.landing)) for own in settings.of_every_cluster()})
        only = only or chosen_cluster()
    for own in settings.of_every_cluster():
        _check_servers(own, f"cluster {own.cluster}, under [cluster.kafka]" if settings._entries else "")
    if any(mask.do == "hash" for mask in settings.privacy) and settings.privacy_key.hash_key_env is None:
        raise UsageError('[[privacy]] has do = "hash": set hash_key_env under [privacy_key].')
    return _narrowed(settings, only)


def _routes_of_teams(settings: Settings) -> dict[str, Alerts]:
    """Return alerts whose routes have the quiet hours of their teams; nothing if no route names a team.

    Raises UsageError: a route names a team that there is not.
    """
    teams = {team.name: team for team in settings.teams}
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


def _check_servers(settings: Settings, of: str) -> None:
    for directory in LANDING_DIRECTORIES:
        if settings.topics_of(directory) and not settings.kafka.bootstrap_servers:
            where = f"of {of}" if of else "under [kafka]"
            section = directory.replace("-", "_")
            raise UsageError(f'[{section}] has source = "kafka": set bootstrap_servers {where}.')


def _narrowed(settings: Settings, only: str | None) -> Settings:
    """Return the settings for the one cluster that is named, for all if none is.

    Raises UsageError: there is no such cluster.
    """
    known = settings.every_name
    if only is not None and only not in known:
        there = f"clusters: {', '.join(map(visible, known))}"
        raise UsageError(f"There is no cluster '{visible(only[:64])}'; {there}.{hint(only, known)}")
    if not settings._entries:
        return settings
    settings = settings.model_copy(update={"cluster": only or known[0]})
    settings._only = only
    return settings


def kafka_connections(only: str | None = None, given: str | None = None) -> dict[str, str]:
    """Return the Airflow connections that the file or the environment names, even if other settings are wrong.

    Each is under the variable that takes what the connection says: ``AFTERLOG_KAFKA``, or that of a ``[[cluster]]``.
    ``given`` replaces the connection of the only cluster.

    Raises UsageError: a file that cannot be read, or a connection is given for several clusters.
    """
    values = read_layers(settings_file(), Settings)
    entries = values.get("cluster")
    if not isinstance(entries, list):
        entries, only = [{"kafka_connection": values.get("kafka_connection")}], None
    only = only or chosen_cluster()
    chosen = [entry for entry in entries if isinstance(entry, dict) and only in (None, entry.get("name"))]
    if given and len(chosen) > 1:
        raise UsageError("kafka_connection is that of one cluster: say by cluster which one.")
    wanted = {kafka_variable(entry.get("name")): given or entry.get("kafka_connection") for entry in chosen}
    return {variable: name for variable, name in wanted.items() if isinstance(name, str) and name}


def kafka_variable(cluster: object) -> str:
    """Return the variable that replaces ``[kafka]``, or that of a named ``[[cluster]]``."""
    return "AFTERLOG_KAFKA" if cluster is None else f"AFTERLOG_CLUSTER__{folded(str(cluster)).upper()}__KAFKA"


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
    return next((path for path in found if path.exists()), shipped)
