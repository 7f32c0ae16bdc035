"""What the tables of a warehouse cost: rows, files and bytes, how fast they grow, and what `maintain` would free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pipelines import moments
from pipelines.catalog import CATALOG
from pipelines.commands import display
from pipelines.commands.stored import stored
from pipelines.errors import of_unopened
from pipelines.steps import retention
from pipelines.text import size_of
from pipelines.warehouse.outdated import LEAST_DAYS, outdated
from pipelines.warehouse.tables import Warehouse

GROWTH = timedelta(days=7)  # over which growth is measured, or since the table was created
LEAST_AGE = timedelta(days=1)  # of a table whose growth a day says something
NAMES = ("table", "rows", "files", "bytes", "rows a day", "bytes a day", "log", "maintain frees", "rows by age")


@dataclass(frozen=True)
class Stats:
    """A table's last version in rows, files and bytes; its growth a day; the bytes of its log, and those that can go.

    ``rows`` is null where a file does not tell its rows. The growth is that of the last seven days; it is null for a
    table that is younger than a day. ``aged_bytes`` are those of rows that are older than ``[retention]`` says. Of a
    table whose log cannot be read all is null; ``unreadable`` says so in a sentence.
    """

    table: str
    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    rows_a_day: float | None = None
    bytes_a_day: float | None = None
    log_bytes: int | None = None
    freed_bytes: int | None = None
    aged_bytes: int | None = None
    unreadable: str | None = None


def stats(warehouse: Warehouse) -> Iterator[Stats]:
    """Yield what each table costs, that of the most bytes first.

    Raises UsageError: there is no table yet, or only Spark opens the warehouse.
    """
    costs = [_of_readable(warehouse, table, moments.now()) for table in stored(warehouse, "stats works")]
    yield from sorted(costs, key=lambda cost: (-(cost.bytes or 0) - (cost.log_bytes or 0), cost.table))


def _of_readable(warehouse: Warehouse, table: str, now: datetime) -> Stats:
    try:
        return _of(warehouse, table, now)
    except Exception as error:
        return Stats(table, unreadable=of_unopened(error))


def _of(warehouse: Warehouse, table: str, now: datetime) -> Stats:
    log = warehouse.store.files(warehouse.log(table))
    commits = {int(file.name[:20]): file.modified_at for file in log if file.name[20:] == ".json"}
    files, size, rows = _version(warehouse.opened_table(table))
    rows_a_day = bytes_a_day = None
    since = max((at for at in commits.values() if at <= now - GROWTH), default=min(commits.values(), default=now))
    if now - since >= LEAST_AGE:
        before = max(version for version, at in commits.items() if at <= since)
        _, size_before, rows_before = _version(warehouse.opened_table(table, before))
        days = (now - since) / timedelta(days=1)
        bytes_a_day = (size - size_before) / days
        rows_a_day = None if rows is None or rows_before is None else (rows - rows_before) / days
    rule = retention.aged(warehouse.settings, table, now)
    can_go = outdated(warehouse, table, CATALOG, LEAST_DAYS)
    return Stats(
        table,
        rows,
        files,
        size,
        rows_a_day,
        bytes_a_day,
        sum(file.size for file in log),
        sum(can_go.paths.values()),
        retention.found(warehouse, rule).freed if rule else 0,
    )


def _version(opened: Any) -> tuple[int, int, int | None]:
    """Return how many files, bytes and rows a version has."""
    actions = opened.get_add_actions(flatten=True)
    sizes, rows = actions["size_bytes"].to_pylist(), actions["num_records"].to_pylist()
    return len(sizes), sum(sizes), None if None in rows else sum(rows)


def show(costs: Sequence[Stats]) -> None:
    """Print what each table costs, and all of them together."""

    def cells(name: str, tables: Sequence[Stats]) -> list[str]:
        return [
            name,
            _sum([row.rows for row in tables]),
            _sum([row.files for row in tables]),
            _sum([row.bytes for row in tables], in_bytes=True),
            _sum([row.rows_a_day for row in tables]),
            _sum([row.bytes_a_day for row in tables], in_bytes=True),
            _sum([row.log_bytes for row in tables], in_bytes=True),
            _sum([row.freed_bytes for row in tables], in_bytes=True),
            _sum([row.aged_bytes for row in tables], in_bytes=True),
        ]

    rows = [*(cells(row.table, [row]) for row in costs), cells("all", costs)]
    display.table(NAMES, rows, 1, {}, 0)


def _sum(values: Sequence[float | None], in_bytes: bool = False) -> str:
    """Return the sum of values in words; nothing where one is not known."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return ""
    total = sum(known)
    return f"{'-' if total < 0 else ''}{size_of(abs(total))}" if in_bytes else f"{total:,.0f}"
