"""Make the tables known to a catalog, or print the statements that do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from expectations.rules import counted
from expectations.text import visible
from pipelines.catalogs import described as tables_of
from pipelines.catalogs.described import Described, is_same_location
from pipelines.catalogs.statements import Names
from pipelines.commands.stored import LAYERS
from pipelines.commands.stored import STORED as TABLES
from pipelines.errors import UsageError
from pipelines.settings import located, s3
from pipelines.text import first_names, hint
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pipelines.catalogs.base import Catalog, Entry

CATALOGS = ("hive", "unity", "glue")
MOST_NAMED = 3
_PREFIX = re.compile(r"[a-z][a-z0-9_]{0,63}")
Status = Literal["registered", "updated", "unchanged"]


@dataclass(frozen=True)
class Registered:
    """How a table stands in a catalog, and what was wrong with its entry before."""

    table: str
    status: Status
    was: str = ""

    def __str__(self) -> str:
        """Say it in a line."""
        return f"{self.table}: {self.status}{f' ({self.was})' if self.was else ''}"


def refuse_unused(target: str, options: Mapping[str, tuple[bool, Sequence[str]]]) -> None:
    """Raise UsageError if an option was given that a catalog or tool does not take: each is given or not, and whose."""
    for option, (is_given, targets) in options.items():
        if is_given and target not in targets:
            raise UsageError(f"{option} is for {', '.join(targets)}, not for {target}.")


def names_of(catalog: str | None, prefix: str) -> Names:
    """Return how tables are called; raises UsageError: no tool takes such a name."""
    if prefix and not _PREFIX.fullmatch(prefix):
        raise UsageError("--prefix takes a lower-case letter, then such letters, digits and _.")
    if catalog is not None and not (catalog and catalog.isprintable()):
        raise UsageError("--catalog takes a name.")
    return Names(catalog, prefix)


def chosen(tables: Warehouse, layers: Sequence[str]) -> list[Described]:
    """Return the tables of layers (none: all) that the warehouse has.

    Raises UsageError: there is no such layer, or no table in them.
    """
    for layer in layers:
        if layer not in LAYERS:
            raise UsageError(f"There is no layer {visible(layer)!r}; layers: {', '.join(LAYERS)}.{hint(layer, LAYERS)}")
    wanted = [table for table in TABLES if not layers or table.partition(".")[0] in layers]
    found = tables_of.described(tables, sorted(wanted, key=lambda table: LAYERS.index(table.partition(".")[0])))
    if not found:
        named = " or ".join(layers)
        raise UsageError(
            f"There is no table {f'of {named} ' if layers else ''}in {visible(tables.shown)} yet: "
            "`afterlog run` creates them, or name another warehouse with --warehouse."
        )
    return found


def register(
    catalog: Catalog,
    root: str,
    tables: Sequence[Described],
    *,
    moved_from: str | None = None,
    dry_run: bool = False,
    recreate: bool = False,
) -> list[Registered]:
    """Bring a catalog up to date with the tables of a warehouse; return how each stands then.

    All entries are looked at before any is changed. An entry is a table of this warehouse if its location says so, or
    one of the warehouse at ``moved_from``.

    Raises UsageError: an entry belongs to somebody else, or the catalog could only drop what has to change and create
    it again, and the caller did not say that it may.
    """
    old = None if moved_from is None else moved_from if "://" in moved_from else str(located(moved_from))
    old = None if old is None else s3.one_name(old).rstrip("/")
    found = [(table, catalog.entry(table)) for table in tables]
    if strangers := [
        (table, entry) for table, entry in found if entry and not _is_ours(catalog, table, entry, root, old)
    ]:
        raise _refused(catalog, strangers)
    done = [_standing(catalog, table, entry, root) for table, entry in found]
    updated = [registered for registered in done if registered.status == "updated"]
    if updated and catalog.replaces and not recreate and not dry_run:
        names = first_names([registered.table for registered in updated], MOST_NAMED)
        raise UsageError(
            f"{catalog.words} changes no table, and {names} "
            f"{'differs' if len(updated) == 1 else 'differ'} ({updated[0].was}): --recreate drops and creates such "
            "entries again, without what was granted on them; files stay."
        )
    if not dry_run:
        new = {registered.table for registered in done if registered.status == "registered"}
        if new:
            catalog.prepare(list(dict.fromkeys(table.layer for table in tables if table.name in new)))
        for registered, table in zip(done, tables, strict=True):
            if registered.status == "registered":
                catalog.create(table)
            elif registered.status == "updated":
                catalog.change(table)
    return done


def _is_ours(catalog: Catalog, table: Described, entry: Entry, root: str, old: str | None) -> bool:
    locations = [
        catalog.location(warehouse_root, table.name) for warehouse_root in (root, old) if warehouse_root is not None
    ]
    return any(is_same_location(entry.location, location) for location in locations)


def _standing(catalog: Catalog, table: Described, entry: Entry | None, root: str) -> Registered:
    if entry is None:
        return Registered(table.name, "registered")
    if not is_same_location(entry.location, catalog.location(root, table.name)):
        return Registered(table.name, "updated", f"was at {visible(entry.location or '')}")
    if entry.differs:
        return Registered(table.name, "updated", f"other than its Delta log: {entry.differs}")
    return Registered(table.name, "unchanged")


def _refused(catalog: Catalog, strangers: Sequence[tuple[Described, Entry]]) -> UsageError:
    _, entry = strangers[0]
    names = first_names([table.name for table, _ in strangers], MOST_NAMED)
    where = f"at {visible(entry.location)}" if entry.location else "no Delta table at a place of its own"
    several = len(strangers) > 1
    return UsageError(
        f"{catalog.words} has other tables under the names {names} "
        f"({'the first is ' if several else ''}{where}): give our schemas other names with --prefix or, if this "
        "warehouse moved, name its old place with --moved-from; nothing was changed."
    )


def in_words(done: Sequence[Registered], dry_run: bool) -> str:
    """Say what was done, or would be: a line for each table that was not there as it is, and a sentence."""
    counts = {
        status: sum(registered.status == status for registered in done)
        for status in ("registered", "updated", "unchanged")
    }
    lines = [str(registered) for registered in done if registered.status != "unchanged"]
    there = counts["unchanged"]
    parts = [
        f"{counted(counts[status], 'table')} {'would be ' if dry_run else ''}{status}"
        for status in ("registered", "updated")
        if counts[status]
    ]
    if there:
        parts.append(f"{counted(there, 'table')} {'is' if there == 1 else 'are'} registered already")
    return "\n".join([*lines, f"{', '.join(parts)}."])
