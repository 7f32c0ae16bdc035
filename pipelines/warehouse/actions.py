"""What people did about incidents: mute, resolve, note; each is a file at once, and a row of a table at the next run.

A file of its own for each action needs no lock, so that a person can act while a run or ``--follow`` writes. A run
inserts what the table lacks, then removes the files: a killed run loses nothing and writes nothing twice.
"""

from __future__ import annotations

import getpass
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from expectations.quality import INCIDENT_ACTIONS
from pipelines import moments
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

DIRECTORY = "_actions"
MUTE, RESOLVE, NOTE = "mute", "resolve", "note"


@dataclass(frozen=True)
class Action:
    """An action on an incident: what, when and by whom; ``note`` is free text.

    ``until`` ends a mute. Of a resolution it is the incident's last record, if that is ahead of the clock.
    """

    action_id: str
    incident_id: str
    action: str
    acted_at: datetime
    acted_by: str
    until: datetime | None = None
    note: str | None = None


def act(
    warehouse: Warehouse, incident_id: str, action: str, until: datetime | None = None, note: str | None = None
) -> Action:
    """Record an action, after the earlier ones on the incident.

    Raises UsageError: only Spark opens the warehouse. EnvironmentLacking: it cannot be written.
    """
    warehouse.refuse_spark_only("actions are written")
    last = max((action.acted_at for action in actions(warehouse) if action.incident_id == incident_id), default=None)
    at = moments.now() if last is None else max(moments.now(), last + timedelta(microseconds=1))  # clocks go back
    done = Action(secrets.token_hex(8), incident_id, action, at, account(), until, note)
    text = json.dumps(asdict(done) | {"cluster": warehouse.cluster}, default=datetime.isoformat)
    name = f"{DIRECTORY}/{done.acted_at:%Y%m%dT%H%M%S.%f}-{done.action_id}.json"
    warehouse.store.write(name, text.encode())
    return done


def actions(warehouse: Warehouse) -> list[Action]:
    """Return all actions on incidents of the settings' cluster, in order of time."""
    known: dict[str, Action] = {}
    if warehouse.opens_tables and warehouse.last_version(INCIDENT_ACTIONS.table) is not None:
        for row in jvmless.rows(warehouse, INCIDENT_ACTIONS.table, {"cluster": warehouse.cluster}):
            action = Action(**{name: row[name] for name in Action.__dataclass_fields__})
            known[action.action_id] = action
    for _, values in _waiting(warehouse):
        if values["cluster"] == warehouse.cluster:
            times = {name: values[name] and datetime.fromisoformat(values[name]) for name in ("acted_at", "until")}
            action = Action(**{name: values[name] for name in Action.__dataclass_fields__} | times)
            known[action.action_id] = action
    return sorted(known.values(), key=lambda action: (action.acted_at, action.action_id))


def waiting(warehouse: Warehouse) -> bool:
    """Tell whether actions wait for the next run."""
    return bool(_waiting(warehouse))


def report(warehouse: Warehouse) -> None:
    """Insert the waiting actions that the table lacks, then remove their files."""
    found = _waiting(warehouse)
    if not found:
        return
    rows = warehouse.rows_of_objects(INCIDENT_ACTIONS, [action for _, action in found])
    existing_rows = warehouse.existing_rows(INCIDENT_ACTIONS.table)
    if existing_rows is not None:
        rows = rows.join(existing_rows.select("action_id"), ["action_id"], how="left_anti")
    warehouse.insert(rows, INCIDENT_ACTIONS)
    for name, _ in found:
        warehouse.store.remove(name)


def names(warehouse: Warehouse) -> list[str]:
    """Return the names of the files of actions that wait for the next run, in order of time."""
    if not warehouse.opens_tables:
        return []
    return [f"{DIRECTORY}/{name}" for name in warehouse.store.names(DIRECTORY) if name.endswith(".json")]


def _waiting(warehouse: Warehouse) -> Sequence[tuple[str, dict[str, Any]]]:
    """Return the files of actions in order of time, with what they say; files that cannot be read are left alone."""
    found = []
    for name in names(warehouse):
        try:
            values = json.loads(warehouse.store.text(name) or "")
        except (OSError, ValueError):
            continue
        if isinstance(values, dict) and values.keys() >= {column.name for column in INCIDENT_ACTIONS.columns}:
            found.append((name, values))
    return found


def account() -> str:
    """Return who acts: the account's name, as far as the system tells it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
