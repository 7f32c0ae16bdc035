"""Setting, store and size -> the engine that makes a stage's rows or decisions, and why.

Spark lands, makes and judges all candidates. DuckDB decides on few candidates and refreshes summarised tables that fit
one machine, if the setting ``engine`` is ``auto``. This is the only reader of that setting and of these limits.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.settings import ROOT
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pipelines.warehouse.change_feed import NamedFiles

SPARK, DUCKDB = "spark", "duckdb"
FOR_DUCKDB = "-- Engine: duckdb"
IN_PARTS = f"{FOR_DUCKDB}, in parts"
SMALL = 8 << 20  # bytes of a batch's input in files, which are compressed about tenfold
MANY = "its rows may be many"
ASKED = "the setting engine asks for it"
OF_SPARK = "only Spark opens the warehouse"

log = logging.getLogger("afterlog")


@dataclass(frozen=True)
class Engine:
    """The engine of a stage, ``SPARK`` or ``DUCKDB``, and the reason, as a clause."""

    name: str
    reason: str

    @property
    def is_duckdb(self) -> bool:
        """Whether it is DuckDB."""
        return self.name == DUCKDB


class LeftToSpark(Exception):  # no error: Spark does it
    """DuckDB cannot or must not do a stage; the message is a clause that says why.

    ``is_refusal`` tells that DuckDB refused a statement, which nothing foretold.
    """

    def __init__(self, reason: str, *, is_refusal: bool = False) -> None:
        """Take the reason."""
        super().__init__(reason)
        self.is_refusal = is_refusal


def suits_duckdb(table: str) -> bool:
    """Tell whether the head of a table's SELECT says that DuckDB makes the rows that Spark makes."""
    return not {FOR_DUCKDB, IN_PARTS}.isdisjoint(_lines(table))


def is_in_parts(table: str) -> bool:
    """Tell whether the head of a table's SELECT says that DuckDB makes the rows of many groups in parts."""
    return IN_PARTS in _lines(table)


def _lines(table: str) -> list[str]:
    return (ROOT / "sql" / f"{table.replace('.', '/')}.sql").read_text(encoding="utf-8").splitlines()


def of_refresh(warehouse: Warehouse, table: str) -> Engine:
    """Return the engine that refreshes a summarised table."""
    if warehouse.settings.engine == SPARK:
        return Engine(SPARK, ASKED)
    if not warehouse.opens_tables:
        return Engine(SPARK, OF_SPARK)
    if not suits_duckdb(table):
        return Engine(SPARK, "its SELECT is for Spark alone")
    return Engine(DUCKDB, "the groups that changed fit one machine")


def of_decisions(warehouse: Warehouse, files: Sequence[NamedFiles] | None) -> Engine:
    """Return the engine that decides about the candidates of a split table, whose input is in files, if it is few."""
    if warehouse.settings.engine == SPARK:
        return Engine(SPARK, ASKED)
    if not warehouse.opens_tables:
        return Engine(SPARK, OF_SPARK)
    if files is None or sum(one.size() for one in files) > SMALL:
        return Engine(SPARK, MANY)
    return Engine(DUCKDB, "its candidates are few")


def left_to_spark(table: str, left: LeftToSpark) -> Engine:
    """Return Spark, after DuckDB has left a stage to it; a refusal is told."""
    if left.is_refusal:
        log.warning("DuckDB cannot do %s (%s), so Spark does it.", table, left)
    return Engine(SPARK, str(left))
