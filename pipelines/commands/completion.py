"""Shell completions: feeds, layers, tables, groups, teams, incidents, questions. They start no JVM and print nothing.

A shell evaluates completions, and some names come from Kafka. So names with characters special to a shell are left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import typer

from pipelines.catalog import CATALOG, FEEDS, LAYERS, stages_of_type
from pipelines.stage import Split, Summarise

MOST = 500
_PLAIN = re.compile(r"[A-Za-z0-9_.,@%+=/-]{1,250}")

Completion = Callable[[typer.Context, str], list[str]]


def _cautious(known: Callable[[typer.Context], Iterable[str]]) -> Completion:
    """Turn a function that returns names into a completion: names with the typed prefix, or none if anything fails."""

    @wraps(known)
    def completed(context: typer.Context, incomplete: str) -> list[str]:
        try:
            names = [name for name in known(context) if name.startswith(incomplete) and _PLAIN.fullmatch(name)]
        except Exception:  # a shell would show an error message in the middle of the line that the user types
            return []
        return sorted(names)[:MOST]

    completed.__annotations__ = {"context": typer.Context, "incomplete": str}
    del completed.__wrapped__  # Typer inspects the signature, and would follow this to the wrapped function
    return completed


@_cautious
def feeds(_: typer.Context) -> Iterable[str]:
    """Complete a feed."""
    return FEEDS


@_cautious
def layers(_: typer.Context) -> Iterable[str]:
    """Complete a layer."""
    return LAYERS


@_cautious
def layers_of_tables(_: typer.Context) -> Iterable[str]:
    """Complete a layer in which there are tables, also what is no stage's."""
    return (*LAYERS, "quarantine", "held", "quality")


@_cautious
def tables(_: typer.Context) -> Iterable[str]:
    """Complete a table that a stage fills."""
    return [stage.table for stage in CATALOG]


@_cautious
def judged_tables(_: typer.Context) -> Iterable[str]:
    """Complete a table with a quarantine."""
    return [stage.table for stage in stages_of_type(Split)]


@_cautious
def computed_tables(_: typer.Context) -> Iterable[str]:
    """Complete a table that is computed from others."""
    return [stage.table for stage in stages_of_type(Summarise)]


@_cautious
def groups(context: typer.Context) -> Iterable[str]:
    """Complete a Kafka Streams group whose topology is known in the warehouse."""
    from pipelines.commands import describe
    from pipelines.settings import load
    from pipelines.stores import locations
    from pipelines.warehouse.tables import Warehouse

    given: dict[str, Any] = context.params
    warehouse = Warehouse(load(given.get("cluster"), warehouse=given.get("warehouse")))
    if locations.scheme_of(warehouse.root) is not None:
        return []
    return [group for own in warehouse.of_clusters() for group in describe.groups(own)]


@_cautious
def incidents(context: typer.Context) -> Iterable[str]:
    """Complete the id of an incident."""
    from pipelines.settings import load
    from pipelines.stores import locations
    from pipelines.warehouse import jvmless
    from pipelines.warehouse.tables import Warehouse

    given: dict[str, Any] = context.params
    warehouse = Warehouse(load(given.get("cluster"), warehouse=given.get("warehouse")))
    if locations.scheme_of(warehouse.root) is not None:  # nobody waits for a JVM or a network while typing
        return []
    columns = ["incident_id", "record_count"]
    return [
        row["incident_id"]
        for own in warehouse.of_clusters()
        for row in jvmless.rows(own, "gold.dlq_incidents", {"cluster": own.cluster}, columns)
        if row["record_count"]
    ]


@_cautious
def teams(_: typer.Context) -> Iterable[str]:
    """Complete the name of a team."""
    from pipelines.settings import load

    return [team.name for team in load().teams]


@_cautious
def asked(_: typer.Context) -> Iterable[str]:
    """Complete the name of an on-call question."""
    from pipelines.settings import ROOT

    return [path.stem for path in (ROOT / "sql" / "questions").glob("*.sql")]


@_cautious
def questions(_: typer.Context) -> Iterable[str]:
    """Complete the file of an on-call question; if none has the typed prefix, the shell itself completes files."""
    from pipelines.settings import ROOT

    files = [os.path.relpath(path) for path in (ROOT / "sql" / "questions").glob("*.sql")]
    return [os.path.abspath(file) if file.startswith("..") else file for file in files]
