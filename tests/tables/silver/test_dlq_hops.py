"""silver.dlq_hops: where a record came from that was dead-lettered again, refreshed slice by slice."""

from __future__ import annotations

import random

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.catalog import stages
from pipelines.stage import Summarise
from pipelines.steps.refresh import EachOf, refresh_of
from tests.testing.chains import CASES, LETTERS, hops_of, random_letters


def test_news_touches_every_slice_whose_hops_change_and_its_inputs_are_enough(spark: SparkSession) -> None:
    chance = random.Random(7)
    made = [letter for case in range(CASES) for letter in random_letters(chance, str(case))]
    letters = spark.createDataFrame(made, LETTERS).coalesce(1).persist()
    (stage,) = (stage for stage in stages() if stage.table == "silver.dlq_hops")
    assert isinstance(stage, Summarise)
    group = refresh_of(stage).groups["silver.dead_letters"]
    assert isinstance(group, EachOf)
    groups = F.expr(group.expression)
    touched = letters.where("is_new").select("cluster", F.explode(groups).alias("slice")).distinct().persist()
    before, after = (hops_of(spark, some).persist() for some in (letters.where("NOT is_new"), letters))

    changed = before.exceptAll(after).union(after.exceptAll(before)).select("cluster", "slice").distinct().persist()
    assert changed.count() > CASES
    assert changed.exceptAll(touched.intersect(changed)).count() == 0

    of_touched = touched.groupBy("cluster").agg(F.collect_set("slice").alias("touched"))
    enough = letters.join(of_touched, "cluster").where(F.arrays_overlap(groups, "touched")).drop("touched")
    fresh = hops_of(spark, enough).join(touched, ["cluster", "slice"], "left_semi").persist()
    whole = after.join(touched, ["cluster", "slice"], "left_semi")
    assert fresh.exceptAll(whole).count() == whole.exceptAll(fresh).count() == 0
