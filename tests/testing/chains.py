"""Random dead letters that were dead-lettered again and again, and their hops."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from expectations.contract import contract_of
from pipelines.columns.slices import OFFSETS, name
from pipelines.steps.refresh import select_of
from tests.testing.engines import selected

LETTERS = (
    "cluster string, dlq_topic string, dlq_partition int, dlq_offset bigint, original_topic string, "
    "original_partition int, original_offset bigint, routed_at timestamp, is_accepted boolean, "
    "is_control_marker boolean, slice string, source_slice string, is_new boolean"
)

INFERRED = ", ".join(f"`{column.name}` {column.type}" for column in contract_of("silver.inferred_dead_letters").columns)
OFFSETS_OF_LOGS = [*range(4), *range(OFFSETS - 2, OFFSETS + 3)]
CASES = 150
Place = tuple[str, int, int]
Origin = tuple[str | None, int | None, int | None]
UNPLACED: tuple[Origin, ...] = ((None, None, None), ("orders", None, 3), ("dlq.a", 0, None))


def random_letters(chance: random.Random, cluster: str) -> list[tuple[Any, ...]]:
    """Return dead letters of a few DLQ topics, many of which name a place in one of them; some name none, or a part."""
    dlqs = ["dlq.a", "dlq.b", "dlq.c"]
    places = [(dlq, partition, offset) for dlq in dlqs for partition in (0, 1) for offset in OFFSETS_OF_LOGS]
    letters = []
    for place in chance.sample(places, chance.randint(1, len(places))):
        origin: Origin = (
            chance.choice(places) if chance.random() < 0.8 else ("orders", 0, chance.choice(OFFSETS_OF_LOGS))
        )
        if chance.random() < 0.05:
            origin = chance.choice(UNPLACED)
        for at in range(chance.choice((1, 1, 1, 2))):  # two topics of one name, one after the other
            letters.append(
                (
                    *(cluster, *place, *origin, datetime(2026, 11, 21) + timedelta(seconds=at)),
                    *(chance.random() < 0.9, chance.random() < 0.05),
                    *(name(*place), None if None in origin else name(*origin)),  # type: ignore[arg-type]
                    chance.random() < 0.3,
                )
            )
    return letters


def hops_of(spark: SparkSession, letters: DataFrame) -> DataFrame:
    inferred = spark.createDataFrame([], INFERRED)
    inputs = {"dead_letters": letters, "inferred_dead_letters": inferred}
    return selected(spark, select_of("silver.dlq_hops"), inputs, {})
