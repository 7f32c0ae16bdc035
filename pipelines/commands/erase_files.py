"""Files beside the tables, and backups -> files without the value, the proof, and the note of the erasure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from expectations.quality import ERASURES
from pipelines import moments
from pipelines.commands.erasures import PURPOSE, UNDER_WAY, Erased, Erasure, UnderWay
from pipelines.commands.selection import Selector
from pipelines.erasure import Words
from pipelines.settings import Settings
from pipelines.stores import locations
from pipelines.stores.base import Store
from pipelines.warehouse import alert_log, append, databases, erased, jvmless, search
from pipelines.warehouse.redaction import Redaction
from pipelines.warehouse.search import Searched
from pipelines.warehouse.tables import Warehouse

GONE = ("_staged/", "_reports/")  # what is made again, or was left by a crash: it goes if a value is in it


def is_other(name: str) -> bool:
    """Tell whether a file is of no table: state, pages, what a crash left."""
    return name.startswith("_") and name != UNDER_WAY


def erase_others(warehouse: Warehouse, words: Words, under_way: UnderWay) -> None:
    """Take values out of files of state, and remove pages that show them: `afterlog report` makes them again."""
    store = warehouse.store
    for name in [*store.walk()]:
        if not is_other(name):
            continue
        content = store.read(name)
        if content is None or not (words.are_in(name.encode()) or search.holds(content, words)):
            continue
        under_way.others += 1
        store.checked()
        if name.startswith(alert_log.DIRECTORY):
            with store.lock(f"{name.rpartition('/')[0]}/{alert_log.LOCK}", PURPOSE, math.inf):  # it may be sent now
                store.write(name, search.without(store.read(name) or b"", words) or b"")
        elif name.startswith(GONE) or words.are_in(name.encode()):
            store.remove(name)
        elif content.startswith(search.SQLITE) or name.endswith(databases.BESIDE):
            databases.clean(store, databases.named(name), words)
        elif (clean := search.without(content, words)) is not None:
            store.write(name, clean)
    if (pages := _pages(warehouse)) is not None:
        for name in search.search(pages, words).found:
            under_way.others += 1
            pages.remove(name)
        _show_again(pages, "")
    _show_again(store, "_reports")


def _show_again(store: Store, directory: str) -> None:
    """Let the next `afterlog report` make all pages again that are missing, though no table has changed."""
    for name in [*store.walk(directory)]:
        if name.rpartition("/")[2] == erased.SHOWN:
            store.remove(name)


def _pages(warehouse: Warehouse) -> Store | None:
    """Return the directory of reports if it is not below the warehouse."""
    directory = warehouse.settings.reports()
    is_within = "://" not in warehouse.root and directory.is_relative_to(Path(warehouse.root))
    return None if is_within or not directory.is_dir() else locations.of(str(directory))


def proved(
    warehouse: Warehouse,
    copies: Sequence[Store],
    selector: Selector,
    under_way: UnderWay,
    redaction: Redaction,
    records: int,
) -> Erasure:
    """Read every file again, and return what the erasure did."""
    stores = [("", warehouse.store), *((f"{place.root}/", place) for place in copies)]
    if (pages := _pages(warehouse)) is not None:
        stores.append(("", pages))
    searched = [(head, search.search(store, redaction.words)) for head, store in stores]
    found = [
        f"{head}{name}" for head, result in searched for name in (*result.found, *result.unread) if name != UNDER_WAY
    ]
    done = Erasure(under_way.erasure_id, selector.kind, records)
    done.tables = [Erased(table, *counts) for table, counts in sorted(under_way.done.items()) if counts[1]]
    done.others = under_way.others
    done.files = sum(result.files for _, result in searched) - 1  # but for what is kept of the erasure until it is done
    done.left = [redaction.words.replaced_text(name) for name in dict.fromkeys(found)]
    done.landed = landed_files(warehouse.settings, redaction.words)
    return done


def landed_files(settings: Settings, words: Words) -> int:
    """Return how many files in landing directories hold a value: Afterlog does not remove what others wrote."""
    directories = dict.fromkeys(own.landing for own in settings.of_clusters())
    found: set[str] = set()
    for directory in directories:
        if "://" not in str(directory) and Path(str(directory)).is_dir():
            searched: Searched = search.search(locations.of(str(directory)), words)
            found |= {f"{directory}/{name}" for name in searched.found}
    return len(found)


def audit(warehouse: Warehouse, done: Erasure, under_way: UnderWay) -> None:
    """Note what the erasure did: never what it erased."""
    facts = {
        "erasure_id": done.erasure_id,
        "began_at": datetime.fromisoformat(under_way.began_at),
        "finished_at": moments.now(),
        "erased_by": under_way.by,
        "selector": done.selector,
    }
    equal: Mapping[str, str | int] = {"erasure_id": done.erasure_id}
    if warehouse.exists(ERASURES.table) and jvmless.rows(warehouse, ERASURES.table, equal, ["erasure_id"]):
        return
    none = {"file_count": None, "left_count": None}
    rows = [
        {**facts, **none, "table": loss.table, "row_count": loss.rows, "cell_count": loss.cells} for loss in done.tables
    ]
    sums = {"row_count": sum(loss.rows for loss in done.tables), "cell_count": sum(loss.cells for loss in done.tables)}
    proof = {"table": None, "file_count": done.files, "left_count": len(done.left)}
    append.append(warehouse, ERASURES, [*rows, {**facts, **sums, **proof}])
