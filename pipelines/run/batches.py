"""A stage's progress and the versions of its inputs -> the batch to take; a batch that is done -> progress."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from pipelines.engines.choose import Choice
from pipelines.stage import Split, Stage
from pipelines.steps import held
from pipelines.warehouse import change_feed, progress
from pipelines.warehouse.progress import Batch, Progress, Reading
from pipelines.warehouse.tables import Warehouse

log = logging.getLogger("afterlog")


def progress_of(warehouse: Warehouse, stage: Stage) -> Progress:
    """Return a stage's progress; empty progress, with a warning, if it names other tables or versions that are gone."""
    target_id, target_version = warehouse.state(stage.table)
    states = {table: warehouse.state(table) for table in stage.inputs}
    inputs = {table: Reading(table_id) for table, (table_id, _) in states.items()}
    fresh = Progress(target_id=target_id, inputs=inputs)
    known = progress.load(warehouse, stage.table)
    if known is None:
        if target_version > 0:
            log.warning("%s has no progress that can be read: reading all of its input again.", stage.table)
        return fresh
    if (
        known.target_id != target_id
        or known.is_ahead_of(target_version)
        or {table: reading.table_id for table, reading in known.inputs.items()}
        != {table: reading.table_id for table, reading in inputs.items()}
        or not _keeps(warehouse, stage, known)
        or not all(_is_there(warehouse, known, table, latest) for table, (_, latest) in states.items())
    ):
        log.warning("The progress of %s speaks of a table or versions that are gone: reading all again.", stage.table)
        return fresh
    return known


def _keeps(warehouse: Warehouse, stage: Stage, known: Progress) -> bool:
    """Tell whether quarantine and held rows are the tables in the progress, at the same versions or later ones."""
    for table, (known_id, known_version) in tables_beside(stage, known).items():
        table_id, version = warehouse.state(table)
        if known_id is not None and (table_id != known_id or version < (known_version or 0)):
            return False
    return True


def tables_beside(stage: Stage, known: Progress) -> dict[str, tuple[str | None, int | None]]:
    """Return the id and the version that the progress has of the tables beside a stage's own: quarantine, held rows."""
    beside = {stage.quarantine: (known.quarantine_id, known.quarantine_version)} if isinstance(stage, Split) else {}
    if kept := held.contract_of_held(stage):
        beside[kept.table] = (known.held_id, known.held_version)
    return beside


def _is_there(warehouse: Warehouse, known: Progress, table: str, latest: int) -> bool:
    """Tell whether an input has reached the version in the progress, and its log has the versions to read next."""
    batch = known.pending.get(table) or Batch(known.inputs[table].version, latest)
    if (known.reached(table) or 0) > latest:
        return False
    return (batch.start or 0) >= batch.end or change_feed.can_read(warehouse, table, batch)


def news_of(warehouse: Warehouse, known: Progress) -> dict[str, Batch]:
    """Return, for every input, the versions after the last one read; an empty dict if no input has new versions.

    Version 0 creates a table and has no rows.
    """
    latest = {table: warehouse.state(table)[1] for table in known.inputs}
    if all(latest[table] == (reading.version or 0) for table, reading in known.inputs.items()):
        return {}
    return {table: Batch(reading.version, latest[table]) for table, reading in known.inputs.items()}


def engine_of(found: Choice | None) -> dict[str, Any]:
    """Return which engine did a batch and why, as fields of a stage's run."""
    return {"engine": found.name, "engine_reason": found.reason} if found is not None else {}


def passed(warehouse: Warehouse, stage: Stage, known: Progress) -> Progress:
    """Save and return the progress of a stage whose batch is written."""
    _, target_version = warehouse.state(stage.table)
    known = known.done(target_version=target_version)
    if kept := held.contract_of_held(stage):
        held_id, held_version = warehouse.state(kept.table)
        known = replace(known, held_id=held_id, held_version=held_version)
    if isinstance(stage, Split):
        quarantine_id, quarantine_version = warehouse.state(stage.quarantine)
        known = replace(known, quarantine_id=quarantine_id, quarantine_version=quarantine_version)
    progress.save(warehouse, stage.table, known)
    return known
