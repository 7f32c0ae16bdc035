"""Tell how far each table is behind its input and what blocks it: from progress, Delta logs, landed files and Kafka."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from expectations.contract import Column, Contract
from pipelines.catalog import CATALOG
from pipelines.errors import AfterlogError, EnvironmentLacking
from pipelines.stage import Land, Stage
from pipelines.steps import held
from pipelines.steps.waiting import unread, waiting
from pipelines.warehouse import progress
from pipelines.warehouse.tables import Warehouse

BYTES_OF_A_RECORD = 1_000  # rule of thumb for a topic's records

FRESHNESS = Contract(
    table="quality.freshness",
    description="One row per table: how far it is behind its input, and what blocks it; as of the moment of asking.",
    columns=(
        Column("cluster", "string", "Kafka cluster, a setting."),
        Column("table", "string", "Table that the stage fills."),
        Column("input", "string", "What it is filled from: a feed's landing directory and topics, or tables."),
        Column("unread_files", "bigint", "Landed files that are new or changed; null where the input is a table."),
        Column("unread_bytes", "bigint", "Their size in bytes."),
        Column(
            "unread_offsets", "bigint", "Offsets of topics not read, at least as many as records; null if not known."
        ),
        Column("unread_versions", "bigint", "Versions of the input table not read; null where the input is a landing."),
        Column("blocked_since", "timestamp", "Since when what broke a gate is held; null where nothing is."),
        Column("message", "string", "Why: the sentence of the gate that broke; or why topics cannot be looked at."),
        Column("held_scopes", "array<string>", "Scopes, such as topics, that are held; empty where none is."),
    ),
    grain=("cluster", "table"),
)


@dataclass(frozen=True)
class Freshness:
    """One row of quality.freshness; ``blocked_since`` is ISO-8601 text."""

    cluster: str
    table: str
    input: str
    unread_files: int | None = None
    unread_bytes: int | None = None
    unread_versions: int | None = None
    blocked_since: str | None = None
    message: str | None = None
    unread_offsets: int | None = None
    held_scopes: tuple[str, ...] = ()

    @property
    def behind(self) -> bool:
        """True if the table has unread input."""
        return bool(self.unread_files or self.unread_versions or self.unread_offsets)


def freshness(warehouse: Warehouse) -> list[Freshness]:
    """Return one entry per cluster and stage; a session is needed only where nothing else opens tables."""
    return [entry for own in warehouse.of_clusters() for entry in _of_cluster(own)]


def _of_cluster(warehouse: Warehouse) -> list[Freshness]:
    entries = []
    away: EnvironmentLacking | None = None
    for stage in CATALOG:
        known = progress.load(warehouse, stage.table)
        entry = Freshness(warehouse.cluster, stage.table, stage.feed)
        if known:
            own = held.told_to_cluster(warehouse, stage.table, known)
            entry = replace(entry, blocked_since=held.since(own), message=held.message(stage.table, own))
            entry = replace(entry, held_scopes=tuple(own.held))
        if isinstance(stage, Land):
            files = unread(warehouse.settings, stage, known).values()
            entry = replace(entry, unread_files=len(files), unread_bytes=sum(file.size for file in files))
            try:
                if away and warehouse.settings.topics_of(stage.directory):
                    raise away  # ask a cluster that does not answer only once
                entry = replace(entry, unread_offsets=waiting(warehouse.settings, [(stage, known)]).get(stage.table))
            except AfterlogError as error:
                away = error if isinstance(error, EnvironmentLacking) else None
                entry = replace(entry, message=str(error))
        else:
            read = {table: known.version_of(table) if known else None for table in stage.inputs}
            behind = warehouse.versions_after(read)
            entry = replace(entry, input=", ".join(stage.inputs), unread_versions=behind)
        entries.append(entry)
    return entries


def unread_bytes(warehouse: Warehouse, stages: Sequence[Stage]) -> int | None:
    """Return roughly how many unread bytes stages have; None if only a session could tell."""
    if not warehouse.opens_tables:
        return None
    size = 0
    landing = [(stage, progress.load(warehouse, stage.table)) for stage in stages if isinstance(stage, Land)]
    for own in warehouse.of_clusters():
        with contextlib.suppress(AfterlogError):  # the run will report it
            size += BYTES_OF_A_RECORD * sum(waiting(own.settings, landing).values())
        for feed, known in landing:
            size += sum(file.size for file in unread(own.settings, feed, known).values())
    for stage in stages:
        if not isinstance(stage, Land):
            known = progress.load(warehouse, stage.table)
            size += sum(
                warehouse.bytes_after(table, known.version_of(table) if known else None) for table in stage.inputs
            )
    return size
