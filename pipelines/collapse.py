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
OUTCOMES = ("refused", "duplicate", "conflict", "supersede")
SKIPPED = "_skipped"  # of a candidate: true where it is none of the table's business


@dataclass(frozen=True)
class Census:
    """What a batch looks like on its grain: rows, whether a grain comes twice, and the literal bounds of its grains.

    ``skipped`` counts rows that are none of the table's business; ``rows`` does not.
    """

    rows: int
    repeats: bool
    bounds: Column | None
    skipped: int = 0


def census(judged: DataFrame, contract: Contract) -> Census:
    """Count a batch by grain, in one job.

    The bounds are a predicate on the table that every row of the batch's grains satisfies, in literals, so that Delta
    skips files: a range of the grain's last column for each value of ``ranges_per``, or one if there are too many.
    Rows whose last grain column is null (they break the contract) repeat each other by what they are made from, and
    bound nothing.
    """
    from pyspark.sql import functions as F

    *others, last = contract.grain
    others = list(contract.ranges_per) if contract.ranges_per is not None else others
    skipped = F.col(SKIPPED)
    nameless = [F.when(F.col(last).isNull() & ~skipped, F.col(name)).alias(f"_of{name}") for name in contract.identity]
    grain = [F.when(~skipped, F.col(name)).alias(name) for name in contract.grain]
    per_grain = judged.groupBy(*grain, *nameless, skipped.alias(SKIPPED)).agg(F.count("*").alias("_rows"))
    ranges = (
        per_grain.groupBy(*others, SKIPPED)
        .agg(
            F.sum("_rows").alias("_rows"),
            F.max("_rows").alias("_most"),
            F.min(last).alias("_least"),
            F.max(last).alias("_greatest"),
        )
        .collect()
    )
    wanted = [found for found in ranges if not found[SKIPPED]]
    known_ranges = [found for found in wanted if found["_least"] is not None]
    return Census(
        rows=sum(found["_rows"] for found in wanted),
        repeats=any(found["_most"] > 1 for found in wanted),
        bounds=_bounds(known_ranges, others, last) if known_ranges else None,
        skipped=sum(found["_rows"] for found in ranges if found[SKIPPED]),
    )


def decided(
    judged: DataFrame,
    contract: Contract,
    repeats: bool,
    standing: DataFrame | None,
    quarantined: DataFrame | None,
) -> DataFrame:
    """Return the candidates (by the contract's ``row``) that are not simply accepted, and why.

    ``repeats`` tells whether a grain may come twice in the batch; ``standing`` are the table's rows within the census's
    bounds, and ``quarantined`` the quarantine's; None where there are none. ``outcome`` is

    - ``refused``: broken rules keep it out of the table;
    - ``duplicate``: what is made from the same row of bronze stands already, or the same grain with the same content,
      or a lossy copy;
    - ``conflict``: the same grain with other content; what stands stays, within a batch the lowest ``_bronze_id`` wins;
    - ``supersede``: the lossless record behind a lossy copy that stands;
    - null where the row is accepted, and was in quarantine.

    ``heals``: the row leaves quarantine, as the table holds it now. ``conflicts``: a conflict, also where the outcome
    is ``duplicate`` because the quarantine holds it already.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    grain, identity = contract.grain, contract.identity
    refused = contract.refused(F.col("_broken_rules"))
    if not repeats and standing is None and quarantined is None:
        plain = judged.where(refused).select(*contract.row, "_broken_rules")
        return plain.withColumns({"outcome": F.lit("refused"), "heals": F.lit(False), "conflicts": F.lit(False)})
    rows = judged.select(
        *contract.row,
        *(name for name in grain if name not in contract.row),
        "_broken_rules",
        (~refused).alias("_valid"),
        (F.col(contract.content) if contract.content else F.lit(0)).alias("_content"),
        (F.coalesce(F.col(contract.lossy), F.lit(False)) if contract.lossy else F.lit(False)).alias("_lossy"),
    )
    rivals = Window.partitionBy(
        F.col("_valid"),
        *[F.when(F.col("_valid"), F.col(name)) for name in grain],
        *[F.when(~F.col("_valid"), F.col(name)) for name in identity],
    ).orderBy("_lossy", *identity, "_source")
    rows = rows.select(
        "*",
        F.row_number().over(rivals).alias("_place"),
        F.first("_content").over(rivals).alias("_first_content"),
    )
    rows = _met(rows, standing, contract)
    if quarantined is None:
        rows = rows.withColumn("_in_quarantine", F.lit(False))
    else:
        ids = quarantined.select(*identity, F.lit(True).alias("_in_quarantine"))
        rows = rows.join(ids, [*identity], how="left")
    in_quarantine = F.coalesce(F.col("_in_quarantine"), F.lit(False))
    first = F.col("_place") == 1
    stands = F.col("_stands")
    same_as_standing = F.col("_content").eqNullSafe(F.col("_standing_content"))
    same_as_first = F.col("_content").eqNullSafe(F.col("_first_content"))
    supersedes = F.coalesce(F.col("_standing_lossy"), F.lit(False)) & ~F.col("_lossy")
    outcome = (
        F.when(F.col("_known"), "duplicate")
        .when(~F.col("_valid") & (~first | in_quarantine), "duplicate")
        .when(~F.col("_valid"), "refused")
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
    again = Window.partitionBy(*identity, "conflicts").orderBy("_source")
    held = F.col("conflicts") & (F.col("_held") | (F.row_number().over(again) > 1))
    return (
        rows.select(
            *contract.row,
            "_broken_rules",
            "outcome",
            heals.alias("heals"),
            conflicts.alias("conflicts"),
            in_quarantine.alias("_held"),
        )
        .where(F.col("outcome").isNotNull() | F.col("heals"))
        .withColumn("outcome", F.when(held, "duplicate").otherwise(F.col("outcome")))
        .drop("_held")
    )


def _met(rows: DataFrame, standing: DataFrame | None, contract: Contract) -> DataFrame:
    """Add what stands in the table at each row's grain, and whether what is made from the same bronze stands there."""
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
    ids = standing.select(*contract.identity, F.lit(True).alias("_known")).dropDuplicates([*contract.identity])
    return (
        rows.join(there, same, how="left")
        .join(ids, [*contract.identity], how="left")
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
