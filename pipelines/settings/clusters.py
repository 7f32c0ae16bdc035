"""The entries of ``[[cluster]]``: several Kafka clusters in one warehouse, each with what it has of its own.

What an entry does not give it takes from the sections that all clusters share.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError, field_validator

from pipelines.errors import UsageError
from pipelines.settings.feeds import Acknowledgements, BrokerLogs, Dlq, StreamsRequests
from pipelines.settings.kafka import Kafka
from pipelines.settings.section import Section, first_mistake

MOST_CLUSTERS = 20  # progress remembers the files of so many landing directories

_TOPICS = ("source", "isolation_level", "max_records_per_batch")
# What lands a feed differs between clusters. What judges rows does not: it works on the rows of all clusters at once.
OWN_KEYS: Mapping[str, tuple[str, ...]] = {
    "dlq": (*_TOPICS, "subscribe_pattern"),
    "streams_requests": (*_TOPICS, "topic", "timezone", "layout"),
    "acknowledgements": (*_TOPICS, "topic"),
    "broker_logs": ("timezone", "layout"),
}
# Keys that say together who this client is, and the options that say the same.
_LOGIN, _CERTIFICATE = ("username", "password", "password_file"), ("certificate_file", "key_file", "key_password")
_IDENTITIES = ((_LOGIN, "sasl."), (_CERTIFICATE, "ssl.key"))
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class ClusterEntry(Section):
    """One ``[[cluster]]``, with what it takes from the shared sections.

    Files land in ``landing``, by default in a directory of the cluster's name in the shared landing directory.
    """

    name: str
    landing: Annotated[str, Field(min_length=1)] | None = None
    kafka_connection: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{0,200}$")] | None = None
    kafka: Kafka = Kafka()
    dlq: Dlq = Dlq()
    streams_requests: StreamsRequests = StreamsRequests()
    acknowledgements: Acknowledgements = Acknowledgements()
    broker_logs: BrokerLogs = BrokerLogs()

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):  # it becomes part of paths and of variables
            raise ValueError(
                "a name has at most 64 letters of a to z, digits, dots, hyphens and underscores, and begins with a "
                "letter or digit"
            )
        return name

    @field_validator("landing")
    @classmethod
    def _check_landing(cls, landing: str | None) -> str | None:
        if landing is not None and "://" in landing:
            raise ValueError("files land in a directory: write its path, not a URI")
        return landing


def folded(name: str) -> str:
    """Return a name as variables have it, and as file systems that ignore case may."""
    return re.sub(r"[^a-z0-9]", "_", name.lower())


def entries_of(values: Mapping[str, Any]) -> tuple[ClusterEntry, ...]:
    """Return the entries of settings that are otherwise valid.

    Raises UsageError: an entry has a mistake, or two of them contradict each other.
    """
    given = values["cluster"]
    if not given:
        raise UsageError("The setting cluster cannot be used: it must name a cluster.")
    if len(given) > MOST_CLUSTERS:
        raise UsageError(f"The setting cluster cannot be used: there are more than {MOST_CLUSTERS} clusters.")
    whole = [_completed(number, values_given, values) for number, values_given in enumerate(given)]
    try:
        found = TypeAdapter(dict[str, tuple[ClusterEntry, ...]]).validate_python({"cluster": whole})["cluster"]
    except ValidationError as error:
        raise UsageError(f"The setting {first_mistake(error)}") from None
    _check_apart(found)
    return found


def _completed(number: int, given: Any, values: Mapping[str, Any]) -> Any:
    """Return an entry with what it takes from the shared sections; one that is none is left to validation."""
    if not isinstance(given, dict):
        return given
    whole = dict(given)
    if isinstance(own := given.get("kafka", {}), dict):
        whole["kafka"] = _inherited(values.get("kafka", {}), own)
    for section, keys in OWN_KEYS.items():
        own = given.get(section, {})
        if not isinstance(own, dict):
            continue
        fields = ClusterEntry.model_fields[section].annotation.model_fields  # type: ignore[union-attr]
        for key in sorted(own.keys() & fields.keys() - set(keys)):
            raise UsageError(
                f"The setting cluster.{number}.{section}.{key} cannot be used: it is one for all clusters, so set it "
                f"under [{section}]."
            )
        whole[section] = {**_plain(values.get(section, {})), **own}
    return whole


def _inherited(shared: Any, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return how to reach a cluster; one with a login or a certificate of its own gets no other's."""
    kept, own_options = _plain(shared), own.get("options") or {}
    for keys, prefix in _IDENTITIES:
        if any(key in own for key in keys) or any(str(name).startswith(prefix) for name in own_options):
            kept = {key: value for key, value in kept.items() if key not in keys}
            if isinstance(options := kept.get("options"), dict):
                kept["options"] = {name: value for name, value in options.items() if not name.startswith(prefix)}
    return {**kept, **own}


def _plain(section: Any) -> dict[str, Any]:
    """Return what a section gives, whether it is a table of the file or a section that code made."""
    if isinstance(section, Section):
        return {name: getattr(section, name) for name in section.model_fields_set}
    return dict(section)


def _check_apart(entries: Sequence[ClusterEntry]) -> None:
    """Raise UsageError if two entries cannot be told apart by their names, or are the same cluster."""
    for entry, other in combinations(entries, 2):
        if folded(entry.name) == folded(other.name):
            alike = "the same" if entry.name == other.name else "too much the same"
            raise UsageError(f"Two [[cluster]] have {alike} name, {entry.name} and {other.name}: name them apart.")
        if shared := {*entry.kafka.addresses} & {*other.kafka.addresses}:
            host, port = min(shared)
            raise UsageError(
                f"The clusters {entry.name} and {other.name} are the same one, at {host}:{port}: give each its own "
                "bootstrap_servers under [cluster.kafka]."
            )


def check_landings(landings: Mapping[str, Path]) -> None:
    """Raise UsageError if files of two clusters would land in one directory, or one within the other."""
    for (name, directory), (other, of_other) in combinations(landings.items(), 2):
        if directory.is_relative_to(of_other) or of_other.is_relative_to(directory):
            raise UsageError(
                f"The landing directories of the clusters {name} and {other} are one directory or within each other "
                f"({directory}, {of_other}): give each its own."
            )
