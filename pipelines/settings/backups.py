"""Settings of backups: where they go, how often, and how many are kept."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pipelines.settings.section import Section


class Backup(Section):
    """Where ``afterlog backup`` and the DAG ``backup`` copy the warehouse to; None: only to a place that is named.

    The DAG makes one ``every_hours``, and the newest ``keep`` of the warehouse stay.
    """

    to: Annotated[str, Field(min_length=1)] | None = None
    keep: Annotated[int, Field(ge=1)] = 7
    every_hours: Annotated[float, Field(ge=1.0, le=10_000.0)] = 24.0
