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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from expectations.quality import INCIDENT_ACTIONS
from pipelines.errors import EnvironmentLacking, UsageError
from pipelines.warehouse import jvmless, storage
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
    """Record an action.

    Raises UsageError: the warehouse is not local. EnvironmentLacking: its directory cannot be written.
    """
    if not warehouse.is_local:
        raise UsageError("Incidents of a warehouse at a URI cannot be muted, resolved or noted from here yet.")
    done = Action(secrets.token_hex(8), incident_id, action, datetime.now(UTC), account(), until, note)
    directory = Path(warehouse.root) / DIRECTORY
    try:
        directory.mkdir(exist_ok=True)
        text = json.dumps(asdict(done) | {"cluster": warehouse.cluster}, default=datetime.isoformat)
        storage.replace_text(directory / f"{done.acted_at:%Y%m%dT%H%M%S.%f}-{done.action_id}.json", text)
    except OSError as error:
        raise EnvironmentLacking(f"The action cannot be written below {directory}: {error.strerror}.") from None
    return done


def actions(warehouse: Warehouse) -> list[Action]:
    """Return all actions on incidents of the settings' cluster, in order of time."""
    known: dict[str, Action] = {}
    if warehouse.is_local and warehouse.local_version(INCIDENT_ACTIONS.table) is not None:
        for row in jvmless.rows(warehouse, INCIDENT_ACTIONS.table, {"cluster": warehouse.cluster}):
            action = Action(**{name: row[name] for name in Action.__dataclass_fields__})
            known[action.action_id] = action
    for _, told in _waiting(warehouse):
        if told["cluster"] == warehouse.cluster:
            times = {name: told[name] and datetime.fromisoformat(told[name]) for name in ("acted_at", "until")}
            action = Action(**{name: told[name] for name in Action.__dataclass_fields__} | times)
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
    rows = warehouse.rows_of_objects(INCIDENT_ACTIONS, [told for _, told in found])
    existing_rows = warehouse.existing_rows(INCIDENT_ACTIONS.table)
    if existing_rows is not None:
        rows = rows.join(existing_rows.select("action_id"), ["action_id"], how="left_anti")
    warehouse.insert(rows, INCIDENT_ACTIONS)
    for file, _ in found:
        file.unlink(missing_ok=True)


def _waiting(warehouse: Warehouse) -> Sequence[tuple[Path, dict[str, Any]]]:
    """Return the files of actions in order of time, with what they say; files that cannot be read are left alone."""
    if not warehouse.is_local:
        return []
    found = []
    for file in sorted((Path(warehouse.root) / DIRECTORY).glob("*.json")):
        try:
            told = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(told, dict) and told.keys() >= {column.name for column in INCIDENT_ACTIONS.columns}:
            found.append((file, told))
    return found


def account() -> str:
    """Return who acts: the account's name, as far as the system tells it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
