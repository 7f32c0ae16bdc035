"""silver.inferred_dead_letters: what headers tell of dead letters that did not land."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from expectations.contract import contract_of
from pipelines.columns.slices import name
from pipelines.steps.refresh import select_of
from tests.testing.engines import selected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Place = tuple[str, int, int]
PLACE = ("topic", "partition", "offset")


def chains(chance: random.Random, many: int) -> list[list[tuple[Place, str | None]]]:
    """Messages and the places through which they went, each with the group that failed there; no group at the last."""
    made = []
    for number in range(many):
        hops: list[tuple[Place, str | None]] = [(("orders", number % 3, number), f"group-{number % 4}")]
        for hop in range(chance.randint(1, 4)):
            hops.append(((f"dlq.{hop}", chance.randrange(2), number), f"group-{hop}"))
        made.append(hops)
    return made


def records(spark: SparkSession, told: list[list[tuple[Place, str | None]]]) -> DataFrame:
    """Rows of silver.dlq_records: the last dead letter of each chain, whose headers have all hops."""
    contract = contract_of("silver.dlq_records")
    names = ("cluster", "dlq_topic", "dlq_topic_id", "dlq_partition", "dlq_offset", "earlier_hops")
    names += tuple(f"original_{part}" for part in PLACE)
    types = {column.name: column.type for column in contract.columns}
    rows = []
    for chain in told:
        (*earlier, (origin, _)), (last, _) = chain[:-1], chain[-1]
        hops = [("spring-kafka", *place, group) for place, group in earlier]
        rows.append(("kafka", last[0], None, *last[1:], hops, *origin))
    return spark.createDataFrame(rows, ", ".join(f"{name} {types[name]}" for name in names))


def test_each_hop_of_each_chain_is_a_dead_letter(spark: SparkSession) -> None:
    told = chains(random.Random(45), 200)
    found = selected(spark, select_of("silver.inferred_dead_letters"), {"dlq_records": records(spark, told)}, {})
    columns = [column.name for column in contract_of("silver.inferred_dead_letters").columns]
    assert found.columns == columns
    rows = {
        (tuple(row[f"original_{part}"] for part in PLACE), tuple(row[f"dlq_{part}"] for part in PLACE)): row
        for row in found.collect()
    }
    expected = {(chain[at][0], chain[at + 1][0]): chain[at][1] for chain in told for at in range(len(chain) - 2)}
    assert {places: row["consumer_group"] for places, row in rows.items()} == expected
    for (source, letter), row in rows.items():
        assert (row["source_slice"], row["dlq_slice"]) == (name(*source), name(*letter))


@pytest.mark.parametrize("lacking", PLACE)
def test_a_hop_that_does_not_name_its_place_tells_no_dead_letter(lacking: str, spark: SparkSession) -> None:
    hop: dict[str, Any] = {"profile": "p", "topic": "a", "partition": 0, "offset": 1, "consumer_group": "g"}
    told = records(spark, []).schema
    rows = [("kafka", "dlq", None, 0, 5, [hop | {lacking: None}, hop | {"offset": 2}], "b", 0, 3)]
    found = selected(
        spark, select_of("silver.inferred_dead_letters"), {"dlq_records": spark.createDataFrame(rows, told)}, {}
    ).collect()
    assert [(row["hop"], row["original_offset"], row["dlq_topic"]) for row in found] == [(1, 2, "b")]
