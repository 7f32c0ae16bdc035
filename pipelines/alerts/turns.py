"""Who sends alerts now, and whether somebody asked it to look again."""

from __future__ import annotations

import contextlib

from pipelines.stores.base import Store
from pipelines.warehouse.alert_log import LOCK

ASKED = ".asked"


def sole_sender(store: Store) -> contextlib.AbstractContextManager[bool]:
    """Tell whether this process is the only sender, for as long as the context lasts.

    Raises EnvironmentLacking: the store cannot be written.
    """
    return store.lock(LOCK, "alerts")


def ask(store: Store) -> None:
    """Ask whoever sends now to look again when done, as it may have looked before this process had news.

    Raises EnvironmentLacking: the store cannot be written.
    """
    store.write(ASKED, b"", durable=False)


def is_asked(store: Store) -> bool:
    """Tell whether somebody asked to look again."""
    return store.has(ASKED)


def heed(store: Store) -> None:
    """Take over what was asked, before looking."""
    store.remove(ASKED)
