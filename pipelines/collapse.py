"""Collapse on the grain: which candidates are new, which are duplicates, which contradict what stands.

Everything here works on a few narrow columns; payloads are neither shuffled nor cached. Where a census proves that
a batch neither repeats itself nor meets the table, there is nothing to decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any

from expectations.contract import Contract

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CONFLICT = "grain.conflict"
MOST_RANGES = 100
ROW = ("_source", "_bronze_id")  # bronze's grain: what names one candidate


@dataclass(frozen=True)
class Census:
    """What a batch looks like on its grain: rows, whether a grain comes twice, and the literal bounds of its grains."""

    rows: int
    repeats: bool
    bounds: Column | None


def census(candidates: DataFrame, contract: Contract) -> Census:
    """Count a batch by grain, in one job over the grain's columns alone.

    The bounds are a predicate on the table that every row of the batch's grains satisfies, in literals, so that Delta
    skips files: a range of the grain's last column for each value of the others, or one range if there are too many.
    Rows whose last grain column is null (they break the contract) repeat each other by ``_bronze_id``, bound nothing.
    """
    from pyspark.sql import functions as F

    *others, last = contract.grain
    known = F.col(last).isNotNull()
    nameless = F.when(~known, F.col("_bronze_id")).alias("_nameless")
    per_grain = candidates.groupBy(*contract.grain, nameless).agg(F.count("*").alias("_rows"))
    ranges = (
        per_grain.groupBy(*others)
        .agg(
            F.sum("_rows").alias("_rows"),
            F.max("_rows").alias("_most"),
            F.min(last).alias("_least"),
            F.max(last).alias("_greatest"),
        )
        .collect()
    )
    known_ranges = [found for found in ranges if found["_least"] is not None]
    return Census(
        rows=sum(found["_rows"] for found in ranges),
        repeats=any(found["_most"] > 1 for found in ranges),
        bounds=_bounds(known_ranges, others, last) if known_ranges else None,
    )


def decided(
    candidates: DataFrame, contract: Contract, standing: DataFrame | None, quarantined: DataFrame | None
) -> DataFrame:
    """Return the candidates (by ``_source, _bronze_id``) that are not simply accepted or quarantined, and why.

    ``candidates`` carry ``_broken_rules``; ``standing`` are the table's rows within the census's bounds, and
    ``quarantined`` the quarantine's; None where there are none. ``outcome`` is

    - ``duplicate``: the same ``_bronze_id`` stands already, or the same grain with the same content, or a lossy copy;
    - ``conflict``: the same grain with other content; what stands stays, within a batch the lowest ``_bronze_id`` wins;
    - ``supersede``: the lossless record behind a lossy copy that stands;
    - null where the row is decided by its rules alone.

    ``heals``: the row leaves quarantine, as the table holds it now. ``conflicts``: a conflict, also where the outcome
    is ``duplicate`` because the quarantine holds it already.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    grain = contract.grain
    valid = F.col("_broken_rules") == 0
    rows = candidates.select(
        *ROW,
        *grain,
        valid.alias("_valid"),
        (F.col(contract.content) if contract.content else F.lit(0)).alias("_content"),
        (F.coalesce(F.col(contract.lossy), F.lit(False)) if contract.lossy else F.lit(False)).alias("_lossy"),
    )
    rivals = Window.partitionBy(
        F.col("_valid"),
        *[F.when(F.col("_valid"), F.col(name)) for name in grain],
        F.when(~F.col("_valid"), F.col("_bronze_id")),
    ).orderBy("_lossy", "_bronze_id", "_source")
    rows = rows.select(
        "*",
        F.row_number().over(rivals).alias("_place"),
        F.first("_content").over(rivals).alias("_first_content"),
    )
    rows = _met(rows, standing, contract)
    if quarantined is None:
        rows = rows.withColumn("_in_quarantine", F.lit(False))
    else:
        ids = quarantined.select("_bronze_id", F.lit(True).alias("_in_quarantine"))
        rows = rows.join(ids, "_bronze_id", how="left")
    in_quarantine = F.coalesce(F.col("_in_quarantine"), F.lit(False))
    first = F.col("_place") == 1
    stands = F.col("_stands")
    same_as_standing = F.col("_content").eqNullSafe(F.col("_standing_content"))
    same_as_first = F.col("_content").eqNullSafe(F.col("_first_content"))
    supersedes = F.coalesce(F.col("_standing_lossy"), F.lit(False)) & ~F.col("_lossy")
    outcome = (
        F.when(F.col("_known"), "duplicate")
        .when(~F.col("_valid") & (~first | in_quarantine), "duplicate")
        .when(~F.col("_valid"), None)
        .when(stands & (same_as_standing | F.col("_lossy")), "duplicate")
        .when(stands & supersedes & first, "supersede")
        .when(stands & ~supersedes, "conflict")
        .when(first, None)
        .when(F.col("_lossy") | same_as_first, "duplicate")
        .otherwise("conflict")
    )
    rows = rows.withColumn("outcome", outcome)
    conflicts = F.coalesce(F.col("outcome") == "conflict", F.lit(False))
    heals = in_quarantine & (F.col("_known") | (F.col("_valid") & ~conflicts))
    again = Window.partitionBy("_bronze_id", "conflicts").orderBy("_source")
    held = F.col("conflicts") & (F.col("_held") | (F.row_number().over(again) > 1))
    return (
        rows.select(*ROW, "outcome", heals.alias("heals"), conflicts.alias("conflicts"), in_quarantine.alias("_held"))
        .where(F.col("outcome").isNotNull() | F.col("heals"))
        .withColumn("outcome", F.when(held, "duplicate").otherwise(F.col("outcome")))
        .drop("_held")
    )


def _met(rows: DataFrame, standing: DataFrame | None, contract: Contract) -> DataFrame:
    """Add what stands in the table at each row's grain, and whether its ``_bronze_id`` stands there."""
    from pyspark.sql import functions as F

    if standing is None:
        return rows.select(
            "*",
            F.lit(False).alias("_stands"),
            F.lit(None).cast("bigint").alias("_standing_content"),
            F.lit(False).alias("_standing_lossy"),
            F.lit(False).alias("_known"),
        )
    there = standing.select(
        *[F.col(name).alias(f"_at_{place}") for place, name in enumerate(contract.grain)],
        F.lit(True).alias("_stands"),
        (F.col(contract.content) if contract.content else F.lit(0)).alias("_standing_content"),
        (F.col(contract.lossy) if contract.lossy else F.lit(False)).alias("_standing_lossy"),
    )
    same = reduce(and_, (F.col(name).eqNullSafe(F.col(f"_at_{place}")) for place, name in enumerate(contract.grain)))
    ids = standing.select("_bronze_id", F.lit(True).alias("_known")).dropDuplicates(["_bronze_id"])
    return (
        rows.join(there, same, how="left")
        .join(ids, "_bronze_id", how="left")
        .withColumn("_stands", F.coalesce("_stands", F.lit(False)))
        .withColumn("_known", F.coalesce("_known", F.lit(False)))
    )


def _bounds(ranges: list[Any], others: list[str], last: str) -> Column:
    from pyspark.sql import functions as F

    def within(least: Any, greatest: Any) -> Column:
        return F.col(last).between(F.lit(least), F.lit(greatest))

    if len(ranges) > MOST_RANGES:
        return within(min(found["_least"] for found in ranges), max(found["_greatest"] for found in ranges))
    return reduce(
        or_,
        (
            reduce(and_, (_is(name, found[name]) for name in others), within(found["_least"], found["_greatest"]))
            for found in ranges
        ),
    )


def _is(name: str, value: Any) -> Column:
    from pyspark.sql import functions as F

    return F.col(name).isNull() if value is None else F.col(name) == F.lit(value)
