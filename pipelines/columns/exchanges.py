"""Columns and rows that the transforms of all exchanges with streams groups share."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from expectations.contract import Contract
from expectations.kafka_errors import NAMES
from pipelines.columns import contract as columns


def error_name(code: Column) -> Column:
    """Return Kafka's name of an error code; null if Kafka has none."""
    names = F.create_map(*chain.from_iterable((F.lit(number), F.lit(name)) for number, name in NAMES.items()))
    return F.try_element_at(names, code)


def items(exchanges: DataFrame, listed: str) -> DataFrame:
    """Return a row for each element of an array of the response, ``_group``, with its index ``_item`` and its own hash.

    A row whose array is null stays, so that the contract judges it. A row whose array is empty is skipped.
    """
    exploded = exchanges.select("*", F.posexplode_outer(listed).alias("_index", "_group"))
    return exploded.withColumns(
        {
            "_skipped": F.col("_skipped") | F.coalesce(F.size(listed) == 0, F.lit(False)),
            "_item": F.coalesce(F.col("_index"), F.lit(0)),
            "_content_hash": F.xxhash64("_content_hash", "_index"),
        }
    )


def row(exchanges: DataFrame, contract: Contract, values: Mapping[str, Column]) -> DataFrame:
    """Return candidates in a contract's columns, and ``_skipped``; a column without a value is taken by its name."""
    return exchanges.select(*columns.of_contract(contract, values), "_skipped")
