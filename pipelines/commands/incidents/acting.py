"""What a person says of an incident -> quality.incident_actions: it is muted, resolved, or has a note."""

from __future__ import annotations

from pipelines import moments
from pipelines.commands.describe import Answer
from pipelines.commands.incidents.reading import Incidents
from pipelines.errors import UsageError
from pipelines.incidents.state import REGRESSED
from pipelines.moments import moment_of
from pipelines.run.newest import moment
from pipelines.warehouse import actions
from pipelines.warehouse.tables import Warehouse


def acted(
    warehouse: Warehouse,
    wanted: str,
    mute_until: str | None = None,
    resolve: bool = False,
    note: str | None = None,
    team: str | None = None,
) -> Answer:
    """Mute, resolve or note an incident; the answer says what was recorded.

    Raises UsageError: the id names no incident, or one of other teams, the time is not in the future, the note is
    empty, or it is to be muted and resolved at once.
    """
    now = moments.now()
    if note is not None and not note.strip():
        raise UsageError("--note needs a text.")
    if resolve and mute_until is not None:
        raise UsageError("Give --resolve or --mute-until, not both.")
    row = Incidents(warehouse, now).of(wanted, team).row
    name, said = row["incident_id"], []
    if mute_until is not None:
        until = moment_of(mute_until, "--mute-until", now, ahead=True)
        actions.act(warehouse, name, actions.MUTE, until, note)
        said.append(f"{name} is muted until {moment(until)}.")
    if resolve:
        ahead = row["last_at"] if row["last_at"] > now else None  # a producer's clock can be
        actions.act(warehouse, name, actions.RESOLVE, ahead, note)
        said.append(f"{name} is resolved; a new record makes it {REGRESSED}.")
    if note is not None and not said:
        actions.act(warehouse, name, actions.NOTE, note=note)
        said.append(f"The note on {name} is kept.")
    return Answer("\n".join(said))
