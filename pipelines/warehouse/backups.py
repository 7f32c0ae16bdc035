"""Backups in a place: a manifest for each, written last, and files that they share, named by their SHA-256.

A manifest's name ends with the beginning of its own checksum, so that a damaged one is found out.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from expectations.text import visible
from pipelines.errors import UsageError
from pipelines.stores import locations
from pipelines.stores.base import Store

FORMAT = 1
MANIFESTS, FILES = "manifests", "files"
LOCK = "_backup.lock"
"""Of a place: one process at a time writes or removes there. Of a warehouse: none of its files is removed meanwhile."""
NOTE = "_backup.json"
_ID = re.compile(r"(\d{8}T\d{9}-[0-9a-f]{12})\.json")
_STEP = re.compile(r"(?!\.{1,2}$)[^/\\\x00]+")


@dataclass(frozen=True)
class Kept:
    """A file of a backup: its size, its checksum, and when it was written in the warehouse (None: read each time)."""

    size: int
    sha256: str
    modified_at: str | None = None

    @property
    def name(self) -> str:
        """Where the place of the backup has its bytes."""
        return f"{FILES}/{self.sha256}"

    def holds(self, content: bytes) -> bool:
        """Tell whether bytes are those of the file."""
        return len(content) == self.size and sha256(content).hexdigest() == self.sha256


@dataclass(frozen=True)
class Manifest:
    """What belongs to a backup: versions of tables, and files by their path below the warehouse."""

    afterlog: str
    warehouse: str
    clusters: tuple[str, ...]
    taken_at: datetime
    tables: Mapping[str, int]
    files: Mapping[str, Kept]

    def content(self) -> bytes:
        """Return the bytes of the manifest."""
        values = asdict(self) | {"format": FORMAT}
        return json.dumps(values, default=datetime.isoformat, sort_keys=True, indent=0).encode()

    @property
    def bytes(self) -> int:
        """The size of what it names."""
        return sum(kept.size for kept in self.files.values())


@dataclass(frozen=True)
class Last:
    """The last backup of a warehouse, as the warehouse knows it."""

    backup: str
    place: str
    taken_at: datetime


def place_of(name: str) -> Store:
    """Return the place of backups that a person names.

    Raises UsageError: only Spark opens it, or its parent is not there.
    """
    directory = locations.directory_of(name)
    if directory is None:
        found = locations.of(name)
        if not found.opens_tables:
            raise UsageError(f"Only Spark opens {name}: name a directory or an object store for backups.")
        return found
    directory = Path(os.path.abspath(directory.expanduser()))
    if os.path.lexists(directory) and not directory.is_dir():
        raise UsageError(f"{directory} is not a directory.")
    if not directory.parent.is_dir():
        raise UsageError(f"There is no {directory.parent}, in which {directory.name} would be.")
    return locations.of(os.fspath(directory))


def refuse_within(place: Store, warehouse: str) -> None:
    """Raise UsageError if a place lies in the warehouse: it would go with it."""
    home = locations.directory_of(warehouse)
    root = os.path.realpath(home) if home is not None else warehouse.rstrip("/")
    own = os.path.realpath(place.root) if home is not None and "://" not in place.root else place.root
    if f"{_plain(own)}/".startswith(f"{_plain(root)}/"):
        raise UsageError(
            f"{place.shown} is in the warehouse, and would be lost with it: name another place for backups."
        )


def _plain(root: str) -> str:
    return re.sub(r"^s3a://", "s3://", root)


def known(place: Store) -> list[str]:
    """Return the ids of the backups in a place, the oldest first."""
    return sorted(match[1] for name in place.names(MANIFESTS) if (match := _ID.fullmatch(name)))


def read(place: Store, name: str) -> Manifest:
    """Return a backup's manifest.

    Raises UsageError: it is damaged, or of a later version of Afterlog.
    """
    content = place.read(file_of(name)) or b""
    damaged = UsageError(f"The manifest {place.shown}/{file_of(name)} is missing or damaged: repair it or remove it.")
    if sha256(content).hexdigest()[:12] != name.rpartition("-")[2]:
        raise damaged
    manifest = json.loads(content)
    if (told_format := manifest.pop("format")) != FORMAT:
        raise UsageError(
            f"Backup {name} was made by Afterlog {visible(manifest['afterlog'])}, in format {told_format}: "
            f"this version reads format {FORMAT} only."
        )
    files = {path: Kept(**kept) for path, kept in manifest["files"].items()}
    if not all(_STEP.fullmatch(step) for path in files for step in path.split("/")):
        raise damaged
    taken_at, clusters = datetime.fromisoformat(manifest["taken_at"]), tuple(manifest["clusters"])
    return Manifest(**manifest | {"files": files, "taken_at": taken_at, "clusters": clusters})


def id_of(manifest: Manifest, names: Sequence[str]) -> str:
    """Return a name for a new backup, after those of a place: when it was taken, and the beginning of its checksum.

    If the clock went back since, the time is just after that of the last name.
    """
    at = manifest.taken_at.astimezone(UTC)
    if names:
        last = datetime.strptime(names[-1].partition("-")[0], "%Y%m%dT%H%M%S%f").replace(tzinfo=UTC)
        at = max(at, last + timedelta(milliseconds=1))
    checksum = sha256(manifest.content()).hexdigest()[:12]
    return f"{at:%Y%m%dT%H%M%S}{at.microsecond // 1000:03}-{checksum}"


def file_of(name: str) -> str:
    """Return where a place has the manifest of a backup."""
    return f"{MANIFESTS}/{name}.json"


def named(place: Store, wanted: str | None) -> str:
    """Return the id of the backup that a person named, whole or its beginning; None: the newest.

    Raises UsageError: there is none, or several.
    """
    names = known(place)
    if not names:
        raise UsageError(f"There is no backup in {place.shown}: `afterlog backup` makes one.")
    found = names[-1:] if wanted is None else [name for name in names if name.startswith(wanted)]
    if len(found) != 1:
        how_many = "Several backups begin" if found else "No backup begins"
        raise UsageError(
            f"{how_many} with {visible((wanted or '')[:40])}; the newest are {', '.join((found or names)[-3:])}."
        )
    return found[0]


def sizes(place: Store) -> dict[str, int]:
    """Return the sizes of the files that a place has, by their checksum."""
    return {file.name: file.size for file in place.files(FILES)}


def damaged(place: Store, files: Mapping[str, Kept]) -> list[str]:
    """Return the paths of files that a place lacks, or has in another size."""
    there = sizes(place)
    return sorted(path for path, kept in files.items() if there.get(kept.sha256) != kept.size)


def unnamed(place: Store, manifests: Iterable[Manifest]) -> dict[str, int]:
    """Return the files of a place that no manifest names, with their sizes; leftovers of killed backups, too."""
    named_in = {kept.sha256 for manifest in manifests for kept in manifest.files.values()}
    return {name: size for name, size in sizes(place).items() if name not in named_in}


def note(warehouse: Store, last: Last) -> None:
    """Let a warehouse know its last backup."""
    warehouse.write(NOTE, json.dumps(asdict(last), default=datetime.isoformat).encode())


def last_of(warehouse: Store) -> Last | None:
    """Return the last backup that a warehouse knows of; raises ValueError, TypeError, KeyError: the note is damaged."""
    text = warehouse.text(NOTE)
    if text is None:
        return None
    values = json.loads(text)
    return Last(values["backup"], values["place"], datetime.fromisoformat(values["taken_at"]))
