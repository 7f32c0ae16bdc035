"""The site -> a directory or an object store that a web server shows; what did not change is not sent again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from expectations.text import visible
from pipelines.errors import EnvironmentLacking, UsageError
from pipelines.settings import Settings, located
from pipelines.site import addresses
from pipelines.site.environment import DATA_DOCS
from pipelines.text import elided

if TYPE_CHECKING:
    from obstore.store import ObjectStore

MANIFEST, CLUSTER = "published.json", "published-cluster.json"
PRIVATE = "gx"  # what Data Docs are made from
AT_ONCE = 16  # requests to an object store
PATIENCE = timedelta(seconds=60)
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}

Stamp = list[int]
"""Size and modification time of a file, in bytes and nanoseconds."""


def publish(settings: Settings) -> int:
    """Copy what changed of the site to where ``[report] publish`` says; return how many files were sent.

    Each file is replaced in one step, and the front comes last, so that a reader never meets half of a page or a link
    that leads nowhere. Pages that are gone here stay there, except those of Data Docs. A copy that was cut short goes
    on where it ended: the manifest, which names what is there, is written at its end.

    Raises UsageError: the target is within the reports' directory, or has the pages of another cluster. Raises
    EnvironmentLacking: it cannot be written.
    """
    wanted = settings.report.publish
    if wanted is None:
        return 0
    source = settings.reports()
    try:
        store = _store(wanted, source)
        _claim(store, wanted, settings.every_name[0])
        there, here = _manifest(store), dict(_files(source))
        changed = sorted(path for path, stamp in here.items() if there.get(path) != stamp)
        gone = [path for path in there.keys() - here.keys() if path.startswith(f"{DATA_DOCS}/")]
        if changed or gone:
            _send(store, source, (path for path in changed if path != addresses.FRONT))
            _send(store, source, (path for path in changed if path == addresses.FRONT))
            _remove(store, gone)
            kept = {path: stamp for path, stamp in there.items() if path not in gone}
            _put(store, MANIFEST, json.dumps(kept | here).encode())
    except UsageError:
        raise
    except Exception as error:  # the library's errors have no common type of their own
        raise EnvironmentLacking(
            f"The pages cannot be published to {visible(wanted)} ({_reason(error)}): "
            "check the address, its permissions and the credentials; the next `afterlog report` goes on."
        ) from None
    return len(changed)


def _store(wanted: str, source: Path) -> ObjectStore:
    """Return the target that the setting names.

    Raises UsageError: it is within the reports' directory, or around it, or the directory around it does not exist.
    """
    from obstore.store import LocalStore, from_url

    if "://" not in wanted or wanted.startswith("file://"):
        target = located(wanted.removeprefix("file://")).resolve()
        if target.is_relative_to(source.resolve()) or source.resolve().is_relative_to(target):
            raise UsageError("[report] publish is the reports' directory itself, or a part of it: name another place.")
        if not target.parent.exists():
            raise UsageError(f"[report] publish cannot be created: {visible(str(target.parent))} does not exist.")
        return LocalStore(target, mkdir=True)
    # Hadoop's name of the scheme is that of the warehouse's settings.
    address = "s3://" + wanted.removeprefix("s3a://") if wanted.startswith("s3a://") else wanted
    return from_url(
        address,
        client_options={"timeout": "30s", "allow_http": True},
        retry_config={"max_retries": 3, "retry_timeout": PATIENCE},
    )


def _files(source: Path) -> Iterator[tuple[str, Stamp]]:
    """Return the path and stamp of each file of the site; those that only Afterlog reads are left out."""
    for directory, below, names in os.walk(source):
        inner = Path(directory).relative_to(source)
        below[:] = [name for name in below if not name.startswith(".") and (inner / name).as_posix() != PRIVATE]
        for name in names:
            if not name.startswith("."):
                known = (Path(directory) / name).stat()
                yield (inner / name).as_posix(), [known.st_size, known.st_mtime_ns]


def _claim(store: ObjectStore, wanted: str, cluster: str) -> None:
    """Note whose pages are there, before the first one; raises UsageError: they are another cluster's."""
    known = _json(store, CLUSTER)
    if not isinstance(known, str):
        _put(store, CLUSTER, json.dumps(cluster).encode())
    elif known != cluster:
        raise UsageError(
            f"{visible(wanted)} has the pages of cluster '{visible(known)}', where groups and topics can have the same "
            f"names: set [report] publish to a place of its own for cluster '{visible(cluster)}'."
        )


def _manifest(store: ObjectStore) -> dict[str, Stamp]:
    """Return what is there already; nothing if nobody published there before."""
    manifest = _json(store, MANIFEST)
    return manifest if isinstance(manifest, dict) else {}


def _json(store: ObjectStore, path: str) -> Any:
    """Return what a file of JSON holds; None if it is not there or cannot be understood."""
    import obstore

    try:
        return json.loads(bytes(obstore.get(store, path).bytes()))
    except (FileNotFoundError, ValueError):
        return None


def _send(store: ObjectStore, source: Path, paths: Iterable[str]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as workers:
        for sent in [workers.submit(_put, store, path, (source / path).read_bytes) for path in paths]:
            sent.result()


def _put(store: ObjectStore, path: str, content: Any) -> None:
    """Replace a file in one step; in an object store it gets the type by which a browser shows it."""
    import obstore
    from obstore.store import LocalStore

    data = content if isinstance(content, bytes) else content()
    kind = None if isinstance(store, LocalStore) else TYPES.get(Path(path).suffix)
    obstore.put(store, path, data, attributes={"Content-Type": kind} if kind else None)


def _remove(store: ObjectStore, paths: Iterable[str]) -> None:
    import obstore

    for path in paths:
        try:
            obstore.delete(store, path)
        except FileNotFoundError:
            continue


def _reason(error: Exception) -> str:
    """Return the first line of an error, without the query of an address, which may sign a request."""
    line = (str(error).splitlines() or [""])[0] or type(error).__name__
    words = (word.partition("?")[0] if "://" in word else word for word in line.split(" "))
    return visible(elided(" ".join(words).strip().rstrip("."), 240))
