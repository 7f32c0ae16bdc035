"""A table's path in a store -> the table, opened once for each state of its Delta log.

To open a log takes some milliseconds, and a run asks for the version, files or columns of each table again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from pipelines.stores.base import Fingerprint, Store

if TYPE_CHECKING:
    from deltalake import DeltaTable

MOST_TABLES = 128
MOST_VERSIONS = 4  # of a table; an opened table holds the statistics of all of its files


@dataclass(frozen=True)
class _Kept:
    log: Fingerprint
    versions: dict[int | None, DeltaTable] = field(default_factory=dict)


_kept: dict[str, _Kept] = {}  # the last used at the end
_lock = Lock()


def once(store: Store, table_path: str, version: int | None, opening: Callable[[], DeltaTable]) -> DeltaTable:
    """Return what ``opening`` returns for a version (None: the latest); call it once for each state of the log."""
    location, log = store.for_deltalake(table_path), store.fingerprint(f"{table_path}/_delta_log")
    with _lock:
        kept = _kept.get(location)
        if kept is None or kept.log != log:
            kept = _Kept(log)
        _keep(location, kept)
        latest = kept.versions.get(None)
        found = latest if latest is not None and latest.version() == version else kept.versions.get(version)
    if found is None:
        found = opening()
        with _lock:
            if len(kept.versions) >= MOST_VERSIONS:
                kept.versions.clear()
            kept.versions[version] = found
    return found


def committed(store: Store, table_path: str, opened: DeltaTable) -> None:
    """Keep a table that its own commit took to the latest version: to open it again reads the log from its checkpoint.

    If another writer has committed since, the table is opened again when it is asked for.
    """
    log = f"{table_path}/_delta_log"
    store.forget(log)
    found = store.fingerprint(log)
    if f"{opened.version():020}.json" in found:
        with _lock:
            _keep(store.for_deltalake(table_path), _Kept(found, {None: opened}))


def _keep(location: str, kept: _Kept) -> None:
    """Keep a table as the last used one; the lock is held."""
    _kept.pop(location, None)
    _kept[location] = kept
    if len(_kept) > MOST_TABLES:
        del _kept[next(iter(_kept))]
