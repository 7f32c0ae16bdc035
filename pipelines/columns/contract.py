"""Columns that transforms of all tables share: those of a contract, and times from milliseconds."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

from expectations.contract import Contract
from expectations.provenance import ADDED_BY_THE_RUN
from expectations.rules import GREATEST_MILLIS


def of_contract(contract: Contract, values: Mapping[str, Column]) -> list[Column]:
    """Return a contract's columns except those that the run adds; a column without a value is taken by its name."""
    names = [column.name for column in contract.columns if column.name not in ADDED_BY_THE_RUN]
    return [values.get(name, F.col(name)).alias(name) for name in names]


def time_of_millis(millis: Column) -> Column:
    """Return the time of epoch milliseconds; null if out of range, such as the -1 that means no time."""
    return F.when(millis.between(0, GREATEST_MILLIS), F.timestamp_millis(millis))
