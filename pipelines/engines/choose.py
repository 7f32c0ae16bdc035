"""Setting, store and size -> the engine that makes a stage's rows or decisions, and why.

Spark lands, makes and judges all candidates. DuckDB decides on few candidates and refreshes summarised tables that fit
one machine, if the setting ``engine`` is ``auto``. This is the only reader of that setting and of these limits.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.jvm import properties
from pipelines.settings import ROOT, Settings
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pipelines.warehouse.change_feed import NamedFiles

SPARK, DUCKDB = "spark", "duckdb"
FOR_DUCKDB = "-- Engine: duckdb"
IN_PARTS = f"{FOR_DUCKDB}, in parts"
SMALL = 8 << 20  # bytes of a batch's input in files, which are compressed about tenfold
MOST_BYTES = 16 << 30  # of an input's files with changes, or with rows that may be of the touched groups
MOST_BYTES_BESIDE_A_CLUSTER = 1 << 30  # of the same, if Spark's master is a cluster's
MANY = "its rows may be many"
ASKED = "the setting engine asks for it"
OF_SPARK = "only Spark opens the warehouse"
FOR_THE_CLUSTER = "an input's files have work for a cluster"
TOO_LARGE = "more of an input's files may hold rows of the groups than fit one machine"

log = logging.getLogger("afterlog")


@dataclass(frozen=True)
class Choice:
    """The engine of a stage, ``SPARK`` or ``DUCKDB``, and the reason, as a clause."""

    name: str
    reason: str

    @property
    def is_duckdb(self) -> bool:
        """Whether it is DuckDB."""
        return self.name == DUCKDB


class UnsupportedByDuckDB(Exception):  # no error: Spark does it
    """DuckDB cannot or must not do a stage; the message is a clause that says why.

    ``is_refusal`` tells that DuckDB refused a statement, which nothing foretold; ``is_defect``, that the statement is
    wrong.
    """

    is_refusal = False
    is_defect = False


def suits_duckdb(table: str) -> bool:
    """Tell whether the head of a table's SELECT says that DuckDB makes the rows that Spark makes."""
    return not {FOR_DUCKDB, IN_PARTS}.isdisjoint(_lines(table))


def is_in_parts(table: str) -> bool:
    """Tell whether the head of a table's SELECT says that DuckDB makes the rows of many groups in parts."""
    return IN_PARTS in _lines(table)


def _lines(table: str) -> list[str]:
    return (ROOT / "sql" / f"{table.replace('.', '/')}.sql").read_text(encoding="utf-8").splitlines()


def of_refresh(warehouse: Warehouse, table: str) -> Choice:
    """Return the engine that refreshes a summarised table."""
    if warehouse.settings.engine == SPARK:
        return Choice(SPARK, ASKED)
    if not warehouse.opens_tables:
        return Choice(SPARK, OF_SPARK)
    if not suits_duckdb(table):
        return Choice(SPARK, "its SELECT is for Spark alone")
    return Choice(DUCKDB, "the groups that changed fit one machine")


def of_decisions(warehouse: Warehouse, files: Sequence[NamedFiles] | None) -> Choice:
    """Return the engine that decides about the candidates of a split table, whose input is in files, if it is few."""
    if warehouse.settings.engine == SPARK:
        return Choice(SPARK, ASKED)
    if not warehouse.opens_tables:
        return Choice(SPARK, OF_SPARK)
    if files is None or sum(file.size() for file in files) > SMALL:
        return Choice(SPARK, MANY)
    return Choice(DUCKDB, "its candidates are few")


def check_size(settings: Settings, size: int) -> None:
    """Check that files of so many bytes are for one machine; raises UnsupportedByDuckDB."""
    if size > MOST_BYTES:
        raise UnsupportedByDuckDB(TOO_LARGE)
    if size > MOST_BYTES_BESIDE_A_CLUSTER and not properties.master(settings.spark).startswith("local"):
        raise UnsupportedByDuckDB(FOR_THE_CLUSTER)


def left_to_spark(what: str, left: UnsupportedByDuckDB) -> Choice:
    """Return Spark, after DuckDB has left a stage to it; a refusal is told, and a defect of Afterlog as an error."""
    if left.is_defect:
        log.error("Afterlog has a defect: DuckDB cannot read its SQL for %s (%s), so Spark does it.", what, left)
    elif left.is_refusal:
        log.warning("DuckDB cannot do %s (%s), so Spark does it.", what, left)
    return Choice(SPARK, str(left))
