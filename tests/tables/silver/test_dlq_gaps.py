"""silver.dlq_gaps: which offsets of DLQ topics did not land, and what explains that."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

from pyspark.sql import SparkSession

from pipelines.columns.cached import cached
from pipelines.columns.slices import OFFSETS, name
from pipelines.settings import ROOT
from pipelines.steps.refresh import select_of
from tests.testing.builders import rows
from tests.testing.delivery_feed import Injected
from tests.testing.engines import selected

LETTERS = (
    "cluster string, dlq_topic string, dlq_topic_id string, dlq_partition int, dlq_offset bigint, "
    "routed_at timestamp, dlq_timestamp timestamp, slice string"
)
TRANSACTIONS = (
    "cluster string, topic string, partition int, topic_id string, marker_offset bigint, state string, "
    "ranges array<struct<first_offset: bigint, last_offset: bigint>>"
)
BATCHES = (
    "cluster string, topic string, partition int, topic_id string, base_offset bigint, last_offset bigint, "
    "is_control boolean, superseded_by string"
)
RANGES = (
    "cluster string, topic string, partition int, topic_id string, first_offset bigint, last_offset bigint, "
    "is_present boolean, is_compacted boolean"
)
NEAR_ENDS = [*range(6), *range(OFFSETS - 6, OFFSETS + 6), *range(3 * OFFSETS - 4, 3 * OFFSETS + 4)]


def pieces(chance: random.Random, offsets: list[int]) -> list[tuple[int, int]]:
    """Return a few ranges of offsets, in order, none of which meets another."""
    ends = sorted(chance.sample(offsets, 2 * chance.randint(0, 4)))
    return [(least, most) for least, most in zip(ends[::2], ends[1::2], strict=True)]


def test_gaps_of_random_logs_are_those_of_a_model(spark: SparkSession) -> None:
    chance, expected = random.Random(20261123), set()
    letters: list[Any] = []
    batches: list[Any] = []
    transactions: list[Any] = []
    ranges: list[Any] = []
    for case in range(300):
        cluster, topic_id = str(case), chance.choice((None, "id"))
        landed = sorted(chance.sample(NEAR_ENDS, chance.randint(1, len(NEAR_ENDS))))
        of_topic = chance.sample(landed, chance.randint(1, len(landed)))
        of_files = {*landed} - {*of_topic} | {*chance.sample(landed, len(landed) // 4)}
        copies = {*((at, topic_id) for at in of_topic), *((at, None) for at in of_files)}
        markers = {offset for offset in NEAR_ENDS if chance.random() < 0.1}
        aborted, compacted = pieces(chance, NEAR_ENDS), pieces(chance, NEAR_ENDS)
        letters += [(cluster, "dlq.t", of, 1, at, None, None, name("dlq.t", 1, at)) for at, of in copies]
        batches += [(cluster, "dlq.t", 1, "id", marker, marker, True, None) for marker in markers]
        batches += [(cluster, "dlq.t", 1, "id", at, at, True, "COPY") for at in NEAR_ENDS if chance.random() < 0.1]
        batches += [(cluster, "dlq.t", 1, "id", at, at, False, None) for at in NEAR_ENDS if at not in markers]
        transactions += [(cluster, "dlq.t", 1, "id", None, "ABORTED", [piece]) for piece in aborted]
        transactions += [(cluster, "dlq.t", 1, "other", None, "ABORTED", [(0, 99)])] if topic_id else []
        ranges += [(cluster, "dlq.t", 1, "id", *piece, False, True) for piece in compacted]
        for before, after in pairwise(landed):
            gap = range(before + 1, after)
            if gap:
                within = [
                    sum(max(0, min(most, gap[-1]) - max(least, gap[0]) + 1) for least, most in known)
                    for known in ([(marker, marker) for marker in markers], aborted)
                ]
                known = {*markers, *(at for least, most in aborted + compacted for at in range(least, most + 1))}
                explained = len(known & {*gap})
                of_markers, of_aborted = within
                by_compaction = max(0, explained - of_markers - of_aborted)
                expected.add((cluster, gap[0], gap[-1], *within, by_compaction, len(gap) - explained))

    frames = {"dead_letters": spark.createDataFrame(letters, LETTERS).coalesce(1)}
    frames["dlq_ranges"] = selected(spark, select_of("silver.dlq_ranges"), frames, {}).persist()
    frames["log_batches"] = spark.createDataFrame(batches, BATCHES).coalesce(1)
    frames["transactions"] = spark.createDataFrame(transactions, TRANSACTIONS).coalesce(1)
    frames["log_ranges"] = spark.createDataFrame(ranges, RANGES).coalesce(1)
    with cached(selected(spark, select_of("silver.dlq_gaps"), frames, {})) as fresh:
        gaps = fresh.collect()
        facts = (ROOT / "sql" / "facts" / "silver" / "dlq_gaps.sql").read_text(encoding="utf-8")
        assert selected(spark, facts, {**frames, "fresh": fresh}, {}).collect() == [(0,)]

    counts = ("first_offset", "last_offset", "marker_count", "aborted_count", "compacted_count", "unexplained_count")
    assert {(gap["cluster"], *(gap[count] for count in counts)) for gap in gaps} == expected
    assert len(gaps) == len(expected)
    stretches = frames["dlq_ranges"].collect()
    assert sum(landed["last_offset"] - landed["first_offset"] + 1 for landed in stretches) == len(letters)
    assert {landed["slice"] for landed in stretches} == {letter[-1] for letter in letters}


def test_all_removed_dead_letters_are_found_and_no_other(spark: SparkSession, injected_losses: Injected) -> None:
    settings, truth = injected_losses
    gaps = rows(spark, settings, "silver.dlq_gaps")

    assert len(truth["gaps"]) > 60
    assert {offset for row in gaps for offset in range(row["first_offset"], row["last_offset"] + 1)} == truth["gaps"]
    assert sum(row["unexplained_count"] for row in gaps) == len(truth["gaps"])
