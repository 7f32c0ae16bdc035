"""The mark of a warehouse that is restored from a backup: which one, when, and whether it is whole again."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass
from datetime import datetime

from expectations.text import visible
from pipelines.errors import EnvironmentLacking
from pipelines.stores.base import Store

FILE = "_restored.json"


@dataclass(frozen=True)
class Restored:
    """What a warehouse was restored from: a backup in a place, and when that was taken.

    It is whole since ``ended_at``; None while a part of it is still to be restored.
    """

    backup: str
    place: str
    taken_at: datetime
    began_at: datetime
    ended_at: datetime | None = None

    @property
    def is_half(self) -> bool:
        """Tell whether only a part is there."""
        return self.ended_at is None

    @property
    def way_on(self) -> str:
        """What a person does about a warehouse of which only a part is there."""
        return f"run `afterlog restore {shlex.quote(visible(self.place))}` again, which goes on"


def found(store: Store) -> Restored | None:
    """Return what a warehouse was restored from; None if it never was.

    Raises EnvironmentLacking: the mark cannot be read.
    """
    text = store.text(FILE)
    if text is None:
        return None
    try:
        values = json.loads(text)
        times = {
            name: values[name] and datetime.fromisoformat(values[name]) for name in ("taken_at", "began_at", "ended_at")
        }
        return Restored(values["backup"], values["place"], **times)
    except (ValueError, TypeError, KeyError):
        raise EnvironmentLacking(
            f"{store.shown}/{FILE} is damaged, so nobody knows whether all of the warehouse was restored: remove the "
            "warehouse and restore it again."
        ) from None


def note(store: Store, restored: Restored) -> None:
    """Replace the mark of a warehouse."""
    store.write(FILE, json.dumps(asdict(restored), default=datetime.isoformat).encode())


def refuse_half(store: Store) -> None:
    """Raise EnvironmentLacking if only a part of a warehouse is there."""
    restored = found(store) if store.opens_tables else None  # what only Spark opens is never restored
    if restored is not None and restored.is_half:
        raise EnvironmentLacking(
            f"Only a part of the warehouse {store.shown} is restored, from backup {restored.backup}: {restored.way_on}."
        )
