"""A warehouse -> a backup of it in a place, which has the files of earlier backups already.

The writer's lock is held only while the list of versions is taken: what a version needs never changes, so it is copied
while writers go on. The manifest is written last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from threading import Lock

from expectations.rules import counted
from expectations.text import visible
from pipelines.catalog import CATALOG
from pipelines.commands.stored import stored
from pipelines.errors import EnvironmentLacking, UsageError, WriterBusy
from pipelines.replay import kept as journals
from pipelines.replay import store as replays
from pipelines.replay.journal import DIRECTORY, journal_store
from pipelines.settings import Settings, located
from pipelines.stores import lock
from pipelines.stores.base import File, Store
from pipelines.text import size_of
from pipelines.warehouse import backups, belongings
from pipelines.warehouse.at_once import at_once
from pipelines.warehouse.backups import Kept, Last, Manifest
from pipelines.warehouse.belongings import Taken, Vanished
from pipelines.warehouse.tables import Warehouse

COPIED_AT_ONCE = 4  # files that are in memory
ATTEMPTS = 3


@dataclass(frozen=True)
class BackedUp:
    """What a backup holds, what was or would be copied for it, and what went of older ones; ``backup`` is its id."""

    backup: str | None
    place: str
    taken_at: str
    tables: int
    files: int
    bytes: int
    copied_files: int
    copied_bytes: int
    removed_backups: tuple[str, ...] = ()
    removed_files: int = 0
    removed_bytes: int = 0


@dataclass
class _Copy:
    """Copies what a place lacks. ``known`` has the files of the last backup by path, ``there`` sizes by checksum."""

    source: Store
    place: Store
    known: Mapping[str, Kept]
    there: dict[str, int]
    is_dry_run: bool
    count: int = 0
    size: int = 0

    def __post_init__(self) -> None:
        self._lock = Lock()

    def file(self, path: str, file: File) -> Kept:
        """Return a file of the warehouse as the place has it from now on; an unchanged one is not read again."""
        modified_at = file.modified_at.isoformat()
        known = self.known.get(path)
        if known and (known.size, known.modified_at) == (file.size, modified_at):
            if self.there.get(known.sha256) == known.size:
                return known
        elif self.is_dry_run:  # it is not read, so another file may have the same content
            self.count, self.size = self.count + 1, self.size + file.size
            return Kept(file.size, "", modified_at)
        content = self.source.read(path)
        if content is None or len(content) != file.size:
            raise Vanished(path)
        return self.content(content, modified_at)

    def content(self, content: bytes, modified_at: str | None = None) -> Kept:
        """Return bytes as the place has them from now on."""
        kept = Kept(len(content), sha256(content).hexdigest(), modified_at)
        with self._lock:  # files with the same content are written once
            if self.there.get(kept.sha256) == kept.size:
                return kept
            self.there[kept.sha256] = kept.size
            self.count, self.size = self.count + 1, self.size + kept.size
        if not self.is_dry_run:
            self.place.write(kept.name, content)
        return kept


def backup(settings: Settings, to: str, keep: int | None, is_dry_run: bool, say: Callable[[str], None]) -> BackedUp:
    """Make a backup in a place, and remove all but the newest ``keep`` ones of this warehouse (None: none).

    Raises UsageError: there is no warehouse yet, only Spark opens it, or the place cannot be one. WriterBusy: another
    process makes a backup, or a writer is at work for too long. EnvironmentLacking: a file of the warehouse is missing.
    """
    warehouse = Warehouse(settings)
    stored(warehouse, "backups are made")
    place = backups.place_of(to)
    backups.refuse_within(place, warehouse.root)
    with ExitStack() as held:
        if not is_dry_run:
            for store in (place, warehouse.store):
                if not held.enter_context(store.lock(backups.LOCK, "afterlog backup", settings.lock.wait_seconds)):
                    raise WriterBusy(
                        f"Another backup or `afterlog maintain` is at work on {store.shown}: try again later."
                    )
        manifests = dict(_manifests(place, keep, say))
        made, copy = _copied(warehouse, place, manifests, is_dry_run, say)
        name = backups.id_of(made, backups.known(place))
        if not is_dry_run:
            place.write(backups.file_of(name), made.content())
            backups.note(warehouse.store, Last(name, place.root, made.taken_at))
        gone, files = _outlived(place, {**manifests, name: made}, warehouse.root, keep)
        if not is_dry_run:
            for path in (*map(backups.file_of, gone), *(f"{backups.FILES}/{name}" for name in files)):
                place.remove(path)
    return BackedUp(
        None if is_dry_run else name,
        place.root,
        made.taken_at.isoformat(),
        len(made.tables),
        len(made.files),
        made.bytes,
        copy.count,
        copy.size,
        tuple(gone),
        len(files),
        sum(files.values()),
    )


def _manifests(place: Store, keep: int | None, say: Callable[[str], None]) -> Iterator[tuple[str, Manifest]]:
    """Yield the manifests of a place, by their names; say which ones cannot be read.

    Raises UsageError: one cannot be read, and files go that it may name.
    """
    for name in backups.known(place):
        try:
            yield name, backups.read(place, name)
        except UsageError as unreadable:
            if keep is not None:
                raise
            say(str(unreadable))


def _copied(
    warehouse: Warehouse, place: Store, manifests: Mapping[str, Manifest], is_dry_run: bool, say: Callable[[str], None]
) -> tuple[Manifest, _Copy]:
    """Copy what the place lacks, and return the manifest of all; begin anew if a file went meanwhile."""
    own = [manifest for manifest in manifests.values() if manifest.warehouse == warehouse.root]
    known = own[-1].files if own else {}
    there = backups.sizes(place)
    for attempt in range(1, ATTEMPTS + 1):
        copy = _Copy(warehouse.store, place, known, there, is_dry_run)
        taken = _looked(warehouse) if is_dry_run else _taken(warehouse)
        try:
            return _manifest(warehouse, taken, _files(warehouse, taken, copy)), copy
        except Vanished as gone:
            if attempt == ATTEMPTS:
                raise EnvironmentLacking(
                    f"No backup was made, as {gone.path} is missing in {warehouse.shown}, or changes all the time: "
                    "`afterlog doctor` says what is wrong, and what to do."
                ) from None
            say(f"{gone.path} went while the backup was copied, which begins anew with what is there now.")
    raise AssertionError


def _taken(warehouse: Warehouse) -> Taken:
    """Note what is there while nobody writes."""
    with lock.writer(warehouse.settings, "afterlog backup"), replays.writing(warehouse):
        return _looked(warehouse)


def _looked(warehouse: Warehouse) -> Taken:
    """Note what is there. Beside writers tables can be of different moments, which is enough to count files."""
    tables = stored(warehouse, "backups are made")
    journal = journals.snapshot(journal_store(warehouse.settings))
    databases = {} if journal is None else {f"{DIRECTORY}/{journals.NAME}": journal}
    return belongings.take(warehouse, tables, databases)


def _files(warehouse: Warehouse, taken: Taken, copy: _Copy) -> dict[str, Kept]:
    """Return all files of what was taken, each of which the place has then."""
    files: dict[str, Kept] = {}

    def keep(named: tuple[str, File]) -> None:
        files[named[0]] = copy.file(*named)

    at_once(COPIED_AT_ONCE, keep, taken.logs.items())  # first, as Delta itself removes old commits
    at_once(COPIED_AT_ONCE, keep, belongings.data_files(warehouse, taken, CATALOG).items())
    files |= {path: copy.content(content) for path, content in taken.state.items()}
    return dict(sorted(files.items()))


def _manifest(warehouse: Warehouse, taken: Taken, files: Mapping[str, Kept]) -> Manifest:
    clusters = tuple(own.cluster for own in warehouse.of_clusters())
    return Manifest(version("afterlog"), warehouse.root, clusters, taken.at, taken.versions, files)


def _outlived(
    place: Store, manifests: Mapping[str, Manifest], warehouse: str, keep: int | None
) -> tuple[list[str], dict[str, int]]:
    """Return which backups of a warehouse go, and the files, with their sizes, that no other one names."""
    if keep is None:
        return [], {}
    gone = [name for name, manifest in sorted(manifests.items()) if manifest.warehouse == warehouse][:-keep]
    return gone, backups.unnamed(place, (manifest for name, manifest in manifests.items() if name not in gone))


def chosen(settings: Settings, to: str | None, keep: int | None) -> tuple[str, int | None]:
    """Return where a backup goes and how many stay (None: all), as a person or else ``[backup]`` says.

    Raises UsageError: nobody names a place, or no backup at all would be kept.
    """
    if keep is not None and keep < 1:
        raise UsageError(f"--keep {keep} is refused, as the new backup would go, too: take 1 or more.")
    if to is not None:
        return to, keep
    if (place := settings.backup.to) is None:
        raise UsageError("Name a place for the backup: `afterlog backup TO`, or to under [backup] of the settings.")
    return place if "://" in place else str(located(place)), settings.backup.keep if keep is None else keep


def show(done: BackedUp) -> None:
    """Print what a backup holds, what was copied, and what went."""
    held = f"{counted(done.tables, 'table')}, {counted(done.files, 'file')}, {size_of(done.bytes)}"
    copied = f"{counted(done.copied_files, 'file')}, {size_of(done.copied_bytes)}"
    is_dry_run = done.backup is None
    print(f"A backup in {visible(done.place)} would hold {held}." if is_dry_run else f"Backup {done.backup}: {held}.")
    print(f"{'To copy' if is_dry_run else 'Copied'}: {copied}; the rest is there already.")
    if done.removed_backups or done.removed_files:
        went = f"{counted(len(done.removed_backups), 'backup')} and {counted(done.removed_files, 'file')}"
        print(f"{went} {'would go' if is_dry_run else 'went'}, {size_of(done.removed_bytes)}.")
