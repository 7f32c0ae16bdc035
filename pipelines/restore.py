"""A backup in a place -> the warehouse that it was taken of, in one that is empty; a restore that was killed goes on.

The mark of a half restored warehouse is written first and completed last, and nothing works on the warehouse meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from expectations.rules import counted
from expectations.text import visible
from pipelines import moments
from pipelines.errors import UsageError
from pipelines.replay import journal, kept
from pipelines.settings import Settings
from pipelines.stores import lease, lock, restored
from pipelines.stores.base import Store
from pipelines.stores.restored import Restored
from pipelines.text import first_names, size_of
from pipelines.warehouse import backups
from pipelines.warehouse.at_once import at_once
from pipelines.warehouse.backups import Kept, Last, Manifest
from pipelines.warehouse.tables import Warehouse

COPIED_AT_ONCE = 4  # files that are in memory
MOST_NAMED = 3
OF_NO_WAREHOUSE = (lock.NAME, lease.LEASE.partition("/")[0])
"""What is in a place where a writer waited for its turn, and nothing was written."""
JOURNAL = f"{journal.DIRECTORY}/{kept.NAME}"


@dataclass(frozen=True)
class WasRestored:
    """What was restored, and how much of it was there from an earlier attempt."""

    backup: str
    place: str
    taken_at: str
    tables: int
    files: int
    bytes: int
    kept_files: int


def restore(settings: Settings, source: str, wanted: str | None) -> WasRestored:
    """Restore the backup that a person named (None: the newest, or the one that was begun) into the warehouse.

    Raises UsageError: there is no such backup, it is damaged, or the warehouse holds something else. WriterBusy:
    another process writes there.
    """
    warehouse = Warehouse(settings)
    warehouse.refuse_spark_only("backups are restored")
    place, store = backups.place_of(source), warehouse.store
    backups.named(place, wanted)  # raises UsageError before anything is created
    with lock.writer(settings, "afterlog restore", restores=True):
        begun = _begun(store)
        name = backups.named(place, begun.backup if begun and wanted is None else wanted)
        if begun is not None and begun.backup != name:
            raise UsageError(
                f"The restore of backup {begun.backup} into {store.shown} was not completed: name that backup, or "
                "remove the warehouse first."
            )
        manifest = backups.read(place, name)
        if lacking := backups.damaged(place, manifest.files):
            raise _damaged(place, name, lacking, manifest.files)
        mark = begun or Restored(name, place.root, manifest.taken_at, moments.now())
        restored.note(store, mark)
        there = _write(store, place, name, manifest, mark, is_begun=begun is not None)
        backups.note(store, Last(name, place.root, manifest.taken_at))
        restored.note(store, replace(mark, ended_at=moments.now()))
    return WasRestored(
        name,
        place.root,
        manifest.taken_at.isoformat(),
        len(manifest.tables),
        len(manifest.files),
        manifest.bytes,
        there,
    )


def _begun(store: Store) -> Restored | None:
    """Return the restore that was begun and not completed; None if nothing is there.

    Raises UsageError: something else is there.
    """
    mark = restored.found(store)
    if mark is not None and mark.is_half:
        return mark
    if others := [name for name in store.names("") if name not in OF_NO_WAREHOUSE]:
        raise UsageError(
            f"{store.shown} is not empty ({first_names(others, MOST_NAMED)}), and nothing is restored over other "
            "files: name another warehouse, or remove this one first."
        )
    return None


def _write(store: Store, place: Store, name: str, manifest: Manifest, mark: Restored, is_begun: bool) -> int:
    """Write the files of a backup that are not there yet; return how many were."""
    there: list[str] = []

    def write(path: str) -> None:
        of_backup = manifest.files[path]
        present = store.read(path) if is_begun else None
        if present is not None and path != JOURNAL and of_backup.holds(present):
            there.append(path)
            return
        content = place.read(of_backup.name)
        if content is None or not of_backup.holds(content):
            raise _damaged(place, name, [path], manifest.files)
        store.write(path, journal.unsure(content, mark.began_at) if path == JOURNAL else content)

    # Commits come after the files that they name, as times of files tell what is younger than a version.
    is_log = {path: "/_delta_log/" in path for path in manifest.files}
    at_once(COPIED_AT_ONCE, write, [path for path in manifest.files if not is_log[path]])
    at_once(COPIED_AT_ONCE, write, [path for path in manifest.files if is_log[path]])
    return len(there)


def _damaged(place: Store, name: str, paths: list[str], files: Mapping[str, Kept]) -> UsageError:
    first = paths[0]
    more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
    return UsageError(
        f"Backup {name} is damaged: {place.shown}/{files[first].name}, which is {first}{more}, is missing, cut off or "
        "changed. Repair it and run again, or remove the warehouse and restore another backup."
    )


def show(done: WasRestored, root: str) -> None:
    """Print what was restored."""
    what = f"{counted(done.tables, 'table')}, {counted(done.files, 'file')}, {size_of(done.bytes)}"
    print(f"Restored backup {done.backup} into {visible(root)}: {what}.")
    if done.kept_files:
        print(f"There from an earlier attempt: {counted(done.kept_files, 'file')}.")


def what_is_lost(done: WasRestored) -> str:
    """Say what a restored warehouse does not know."""
    return (
        f"What happened since {done.taken_at} is not in it: the next run reads what landed since; plans, replays, "
        "discards, mutes and notes are lost, and alerts may be sent again. See docs/operate.md."
    )
