"""What a step asks of an engine: to register rows under names, to run Spark SQL about them, and to give rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from expectations.literals import EPOCH
from pipelines.warehouse.groups import Groups
from pipelines.warehouse.progress import Batch
from pipelines.warehouse.ranges import Range

if TYPE_CHECKING:
    from pyarrow import RecordBatchReader, Table  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame


class Engine(Protocol):
    """An engine that computes rows of one table, until its block ends; then it forgets all names.

    Texts are Spark SQL, in which the names stand for what was registered under them. Times that the engine gives to
    Python have a zone in ``rows``, and are microseconds since 1970 in ``objects``.
    """

    @property
    def rows_of_a_part(self) -> int | None:
        """How many rows of an input the engine takes at a time for a SELECT that keeps much of each (None: all)."""

    @property
    def most_rewritten(self) -> int | None:
        """How many rows are rather written again than compared with those there (None: the writer compares)."""

    def refusals(self) -> AbstractContextManager[None]:
        """Raise UnsupportedByDuckDB for what the engine cannot do in the block."""

    def read(
        self,
        called: str,
        table: str,
        version: int | None = None,
        among: Sequence[Range] | None = None,
        where: str = "",
        is_shared: bool = False,
    ) -> None:
        """Register a table's rows at a version (None: the latest) that meet a condition; ``is_shared``: for many uses.

        Files that hold no rows in the ranges ``among`` (None: all) need not be read.
        """

    def changes(self, called: str, table: str, batch: Batch) -> None:
        """Register the rows of a batch, with their ``_change_type``."""

    def groups(self, called: str, values: Iterable[Any]) -> None:
        """Register groups, of which None is null."""

    def is_one_of(self, group: str, groups: str) -> str:
        """Return the text of a condition: an expression is one of the registered groups."""

    def has_one_of(self, list_: str, groups: str) -> str:
        """Return the text of a condition: an array has one of the registered groups."""

    def view(self, called: str, text: str) -> None:
        """Register what a query gives."""

    def keep(
        self,
        called: str,
        text: str,
        values: Mapping[str, Any] | None = None,
        *,
        are_fresh: bool = False,
        are_more: bool = False,
    ) -> None:
        """Compute once, and register, what a query with ``:values`` gives.

        ``are_fresh``: as rows of the engine's table. ``are_more``: in addition to those under the name.
        """

    def give(self, called: str, objects: Sequence[Mapping[str, Any]]) -> None:
        """Register rows of the engine's table; a column that a row lacks is null."""

    def columns(self, called: str) -> list[str]:
        """Return the columns of what is registered."""

    def rows(self, text: str, complete: Iterable[str] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query.

        ``complete`` names changes of which the query reads all rows: if some of theirs are missing, FeedIncomplete.
        """

    def objects(self, text: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a query by names of columns, without holding all of them."""

    def counts(self, texts: Sequence[str]) -> dict[str, int]:
        """Return the values of queries that each give one row of counts, by names of columns; null is 0."""

    def for_writer(
        self, called: str, column: str, groups: Groups | None, count: int
    ) -> DataFrame | Table | RecordBatchReader:
        """Return registered rows of the table for the writer, which replaces these groups by them (None: all rows).

        Many rows are in the order of the column, so that a refresh of few groups rewrites few files.
        """


def with_times(rows: list[tuple[Any, ...]], timed: Sequence[bool]) -> list[tuple[Any, ...]]:
    """Return rows with times in the columns that are ``timed``, which have microseconds since 1970."""
    if not any(timed):
        return rows
    return [
        tuple(
            EPOCH + timedelta(microseconds=value) if is_time and value is not None else value
            for value, is_time in zip(row, timed, strict=True)
        )
        for row in rows
    ]
