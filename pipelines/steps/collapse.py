"""Collapse on the grain: which candidates are new, which are duplicates, which conflict with existing rows.

All functions work on a few narrow columns; payloads are neither shuffled nor cached. If the census proves that no
grain repeats in the batch or exists in the table, there is nothing to decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from expectations.contract import Contract
from pipelines.warehouse.ranges import Range

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

CONFLICT = "grain.conflict"
MOST_RANGES = 100
OUTCOMES = ("refused", "duplicate", "conflict", "supersede", "identify")
SKIPPED = "_skipped"  # column of a candidate: true if the row belongs to other tables


@dataclass(frozen=True)
class Census:
    """A batch's number of rows, whether a grain repeats in it, and ranges that hold its grains.

    ``skipped`` counts rows that belong to other tables; ``rows`` does not count them.
    """

    rows: int
    repeats: bool
    ranges: tuple[Range, ...] = ()
    skipped: int = 0


def census(judged: DataFrame, contract: Contract) -> Census:
    """Count a batch by grain, in one job; rows that differ only in the ``learned`` column count as one grain.

    The ranges hold every row of the table that has a grain of the batch: a range of the grain's last column for each
    value of ``ranges_per``, or one range for all if there are more than ``MOST_RANGES``. Rows whose last grain column
    is null break the contract: they repeat only if they come from the same row of bronze, and the ranges ignore them.
    """
    from pyspark.sql import functions as F

    *others, last = contract.place
    others = list(contract.ranges_per) if contract.ranges_per is not None else others
    skipped = F.col(SKIPPED)
    nameless = [F.when(F.col(last).isNull() & ~skipped, F.col(name)).alias(f"_of{name}") for name in contract.identity]
    grain = [F.when(~skipped, F.col(name)).alias(name) for name in contract.place]
    per_grain = judged.groupBy(*grain, *nameless, skipped.alias(SKIPPED)).agg(F.count("*").alias("_rows"))
    counted = (
        per_grain.groupBy(*others, SKIPPED)
        .agg(
            F.sum("_rows").alias("_rows"),
            F.max("_rows").alias("_most"),
            F.min(last).alias("_least"),
            F.max(last).alias("_greatest"),
        )
        .collect()
    )
    wanted = [found for found in counted if not found[SKIPPED]]
    known_ranges = [found for found in wanted if found["_least"] is not None]
    if len(known_ranges) > MOST_RANGES:
        least = min(found["_least"] for found in known_ranges)
        together: list[Range] = [{last: (least, max(found["_greatest"] for found in known_ranges))}]
    else:
        together = [
            {
                **{name: None if found[name] is None else (found[name], found[name]) for name in others},
                last: (found["_least"], found["_greatest"]),
            }
            for found in known_ranges
        ]
    return Census(
        rows=sum(found["_rows"] for found in wanted),
        repeats=any(found["_most"] > 1 for found in wanted),
        ranges=tuple(together),
        skipped=sum(found["_rows"] for found in counted if found[SKIPPED]),
    )


def decided(
    judged: DataFrame,
    contract: Contract,
    repeats: bool,
    existing_rows: DataFrame | None,
    quarantined: DataFrame | None,
) -> DataFrame:
    """Return an outcome for each candidate (by the contract's ``row``) that is not simply inserted.

    ``repeats`` tells whether a grain can repeat in the batch. ``existing_rows`` are the table's rows within the
    census's ranges, ``quarantined`` the quarantine's rows; None if there are none. ``outcome`` is

    - ``refused``: the row breaks rules that keep it out of the table;
    - ``duplicate``: the table has a row from the same row of bronze; or the table or the batch has the grain with the
      same content; or it has the grain, and the row is a lossy copy; or the row breaks rules, and the quarantine or the
      batch has a row from the same row of bronze;
    - ``conflict``: the same grain with other content; an existing row stays, and within a batch the lowest
      ``_bronze_id`` wins;
    - ``supersede``: the lossless record that replaces a lossy copy in the table;
    - ``identify``: a duplicate of an existing row without the contract's ``learned`` column; the duplicate has that
      column and replaces the existing row;
    - null: the row is accepted and was in quarantine.

    Rows with the ``learned`` column take precedence. A row without it and with other content than theirs belongs to
    another incarnation. ``leaves_quarantine`` is true if the row was in quarantine and the table has it now.
    ``conflicts`` marks every conflict, even if ``outcome`` is ``duplicate`` because the quarantine, or another source
    in the batch, has the same row. For a row that supersedes or identifies another one, ``_replaces`` is the
    ``learned`` column of the row to replace.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    identity = contract.identity
    refused = contract.refused(F.col("_broken_rules"))
    if not repeats and existing_rows is None and quarantined is None:
        plain = judged.where(refused).select(*contract.row, "_broken_rules")
        return plain.withColumns(
            {"outcome": F.lit("refused"), "leaves_quarantine": F.lit(False), "conflicts": F.lit(False)}
        )
    rows = judged.select(
        *contract.row,
        *(name for name in contract.grain if name not in contract.row),
        "_broken_rules",
        (~refused).alias("_valid"),
        (F.col(contract.content) if contract.content else F.lit(0)).alias("_content"),
        (F.coalesce(F.col(contract.lossy), F.lit(False)) if contract.lossy else F.lit(False)).alias("_lossy"),
    )
    rows = _met(rows, existing_rows, contract)
    if contract.learned and (repeats or existing_rows is not None):
        rows = _identified(rows, existing_rows, contract)
    else:
        rows = rows.withColumns({"_told": F.lit(False), "_takes": F.lit(False)})
    rivals = _rivals(contract, contract.grain, F.col("_told"))
    rows = rows.select(
        "*",
        F.row_number().over(rivals).alias("_place"),
        F.first("_content").over(rivals).alias("_first_content"),
    )
    if quarantined is None:
        rows = rows.withColumn("_in_quarantine", F.lit(False))
    else:
        ids = quarantined.select(*identity, F.lit(True).alias("_in_quarantine"))
        rows = rows.join(ids, [*identity], how="left")
    in_quarantine = F.coalesce(F.col("_in_quarantine"), F.lit(False))
    first = F.col("_place") == 1
    stands = F.col("_stands")
    same_as_existing = F.col("_content").eqNullSafe(F.col("_existing_content"))
    same_as_first = F.col("_content").eqNullSafe(F.col("_first_content"))
    supersedes = F.coalesce(F.col("_existing_lossy"), F.lit(False)) & ~F.col("_lossy")
    outcome = (
        F.when(F.col("_known"), "duplicate")
        .when(~F.col("_valid") & (~first | in_quarantine), "duplicate")
        .when(~F.col("_valid"), "refused")
        .when(F.col("_told"), "duplicate")
        .when(F.col("_takes"), F.when(supersedes, "supersede").otherwise("identify"))
        .when(stands & supersedes & first, "supersede")
        .when(stands & (same_as_existing | F.col("_lossy")), "duplicate")
        .when(stands & ~supersedes, "conflict")
        .when(first, None)
        .when(F.col("_lossy") | same_as_first, "duplicate")
        .otherwise("conflict")
    )
    rows = rows.withColumn("outcome", outcome)
    conflicts = F.coalesce(F.col("outcome") == "conflict", F.lit(False))
    leaves_quarantine = in_quarantine & (F.col("_known") | (F.col("_valid") & ~conflicts))
    again = Window.partitionBy(*identity, "conflicts").orderBy("_source")
    held = F.col("conflicts") & (F.col("_held") | (F.row_number().over(again) > 1))
    replaces = F.col(contract.learned) if contract.learned else F.lit(None).cast("string")
    return (
        rows.select(
            *contract.row,
            "_broken_rules",
            "outcome",
            leaves_quarantine.alias("leaves_quarantine"),
            conflicts.alias("conflicts"),
            F.when(~F.col("_takes"), replaces).alias("_replaces"),
            in_quarantine.alias("_held"),
        )
        .where(F.col("outcome").isNotNull() | F.col("leaves_quarantine"))
        .withColumn("outcome", F.when(held, "duplicate").otherwise(F.col("outcome")))
        .drop("_held")
    )


def _rivals(contract: Contract, grain: Sequence[str], *more: Column) -> WindowSpec:
    """Return the window over a grain's rows, by precedence; rows that break a rule compete only with their copies."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    return Window.partitionBy(
        F.col("_valid"),
        *[F.when(F.col("_valid"), F.col(name)) for name in grain],
        *[F.when(~F.col("_valid"), F.col(name)) for name in contract.identity],
        *more,
    ).orderBy("_lossy", *contract.identity, "_source")


def _met(rows: DataFrame, existing_rows: DataFrame | None, contract: Contract) -> DataFrame:
    """Add the existing row of each row's grain, and whether the table has a row from the same row of bronze."""
    from pyspark.sql import functions as F

    if existing_rows is None:
        return rows.select(
            "*",
            F.lit(False).alias("_stands"),
            F.lit(None).cast("bigint").alias("_existing_content"),
            F.lit(False).alias("_existing_lossy"),
            F.lit(False).alias("_known"),
        )
    content = F.col(contract.content) if contract.content else F.lit(0)
    if contract.content and contract.content not in existing_rows.columns:  # written before the contract had it
        content = F.lit(None).cast("bigint")
    there = existing_rows.select(
        *contract.grain,
        F.lit(True).alias("_stands"),
        content.alias("_existing_content"),
        (F.col(contract.lossy) if contract.lossy else F.lit(False)).alias("_existing_lossy"),
    )
    ids = existing_rows.select(*contract.identity, F.lit(True).alias("_known")).dropDuplicates([*contract.identity])
    return (
        _beside(rows, there, contract.grain)
        .join(ids, [*contract.identity], how="left")
        .withColumn("_stands", F.coalesce("_stands", F.lit(False)))
        .withColumn("_known", F.coalesce("_known", F.lit(False)))
    )


def _identified(rows: DataFrame, existing_rows: DataFrame | None, contract: Contract) -> DataFrame:
    """Match rows that have the contract's ``learned`` column with rows that lack it.

    ``_told``: the row lacks the column and is a copy of a row that has it, in the table or in the batch. ``_takes``:
    the row has the column and replaces an existing row without it, because it has the same content or is the lossless
    record of that lossy copy. ``_stands`` becomes false for other rows without the column, as that existing row goes.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    assert contract.learned is not None
    assert contract.content is not None
    assert contract.lossy is not None
    if existing_rows is None:
        rows = rows.withColumns(
            {
                "_nameless": F.lit(None).cast("struct<content: bigint, lossy: boolean>"),
                "_named": F.array().cast("array<bigint>"),
            }
        )
    else:
        content, named = F.col(contract.content), F.col(contract.learned).isNotNull()
        lossy = F.coalesce(F.col(contract.lossy), F.lit(False))
        there = existing_rows.groupBy(*contract.place).agg(
            F.max(F.when(~named, F.struct(content.alias("content"), lossy.alias("lossy")))).alias("_nameless"),
            F.collect_set(F.when(named, content)).alias("_named"),
        )
        rows = _beside(rows, there, contract.place)
    valid, named = F.col("_valid"), F.col(contract.learned).isNotNull()
    content, nameless = F.col("_content"), F.col("_nameless")
    rows = rows.withColumn("_place", F.row_number().over(_rivals(contract, contract.grain)))
    arrives = valid & named & (F.col("_place") == 1) & ~F.col("_stands")
    is_it = content.eqNullSafe(nameless["content"]) | (nameless["lossy"] & ~F.col("_lossy"))
    could_take = arrives & nameless.isNotNull() & is_it
    # The window's order must not narrow its frame.
    together = _rivals(contract, contract.place).rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    name = F.struct(*contract.row)
    rows = rows.withColumns(
        {
            "_taker": F.first(F.when(could_take, name), ignorenulls=True).over(together),
            "_arriving": F.collect_set(F.when(arrives, content)).over(together),
        }
    )
    takes = could_take & (name == F.col("_taker"))
    told_by = F.concat(F.coalesce("_named", F.array().cast("array<bigint>")), "_arriving")
    told = valid & ~named & (F.array_contains(told_by, content) | (F.col("_lossy") & (F.size(told_by) > 0)))
    gone = ~named & F.col("_taker").isNotNull()
    return (
        rows.withColumn("_takes", F.coalesce(takes, F.lit(False)))
        .withColumns(
            {
                "_told": F.coalesce(told, F.lit(False)),
                "_stands": F.col("_stands") & ~gone,
                "_existing_lossy": F.when(F.col("_takes"), nameless["lossy"]).otherwise(F.col("_existing_lossy")),
            }
        )
        .drop("_place", "_nameless", "_named", "_taker", "_arriving")
    )


def _beside(rows: DataFrame, there: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Left-join rows with ``there`` on the keys, compared null-safe."""
    from pyspark.sql import functions as F

    there = there.withColumnsRenamed({name: f"_at_{place}" for place, name in enumerate(keys)})
    same = reduce(and_, (F.col(name).eqNullSafe(F.col(f"_at_{place}")) for place, name in enumerate(keys)))
    return rows.join(there, same, how="left").drop(*(f"_at_{place}" for place in range(len(keys))))
