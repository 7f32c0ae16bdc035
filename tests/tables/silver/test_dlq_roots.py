"""silver.dlq_roots: where a record came from that was dead-lettered again and again."""

from __future__ import annotations

import random
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from expectations.contract import contract_of
from pipelines.columns.slices import OFFSETS, name
from pipelines.settings import Settings
from pipelines.steps.refresh import select_of
from pipelines.warehouse.tables import Warehouse
from tests.testing import engines
from tests.testing.builders import run
from tests.testing.chains import CASES, LETTERS, Place, hops_of, random_letters
from tests.testing.engines import selected

MOST_HOPS = 8
COLUMNS_OF_ROOTS = [column.name for column in contract_of("silver.dlq_roots").columns]


def roots_of(letters: list[tuple[Any, ...]]) -> dict[Place, tuple[Place, int] | None]:
    """Return, by the place that a later dead letter names, its root and the hops to it; None in a long chain."""
    origins: dict[Place, tuple[Any, Place]] = {}
    named = set()
    for _, *columns in letters:
        place, origin, routed_at, (is_accepted, is_marker) = (
            *(tuple(columns[:3]), tuple(columns[3:6]), columns[6]),
            columns[7:9],
        )
        if is_accepted and not is_marker and None not in origin:
            named.add(origin)
            origins[place] = max(origins.get(place, (routed_at, origin)), (routed_at, origin))
    hops = {place: origin for place, (_, origin) in origins.items() if place in named}

    def root(place: Place) -> tuple[Place, int] | None:
        for count in range(1, MOST_HOPS + 1):
            place = hops[place]
            if place not in hops:
                return place, count
        return None

    return {place: root(place) for place in hops}


def test_roots_of_random_chains_are_those_of_a_model(spark: SparkSession) -> None:
    chance = random.Random(20261123)
    cases = {str(case): random_letters(chance, str(case)) for case in range(CASES)}
    letters = spark.createDataFrame([letter for case in cases.values() for letter in case], LETTERS).coalesce(1)
    hops = hops_of(spark, letters).persist()

    roots: dict[str, dict[Place, tuple[Place, int] | None]] = {case: {} for case in cases}
    for row in selected(spark, select_of("silver.dlq_roots"), {"dlq_hops": hops}, {}).collect():
        root = (row["root_topic"], row["root_partition"], row["root_offset"])
        place = (row["topic"], row["partition"], row["offset"])
        assert place not in roots[row["cluster"]]
        roots[row["cluster"]][place] = (root, row["hop_count"]) if row["hop_count"] else None

    expected = {case: roots_of(case_letters) for case, case_letters in cases.items()}
    assert roots == expected
    found = [root for case in expected.values() for root in case.values()]
    assert {root[1] for root in found if root} >= {1, 2, 3}
    assert None in found


@engines.compared
@pytest.mark.parametrize("rounds", [4, pytest.param(7, marks=pytest.mark.thorough)])
def test_chains_that_change_bit_by_bit_have_the_roots_of_a_whole_computation(
    spark: SparkSession, settings: Settings, rounds: int
) -> None:
    """A hop that comes, goes or changes touches the rows that lead to it; rows that it cannot touch are not written."""
    chance = random.Random(11)
    warehouse = Warehouse(settings, spark)
    warehouse.ensure_all([contract_of("silver.dlq_hops")])
    contract = contract_of("silver.dlq_hops")
    schema = ", ".join(f"`{column.name}` {column.type}" for column in contract.stored)
    offsets = [slice_ * OFFSETS + offset for slice_ in range(14) for offset in (0, 1)]
    places = [("dlq.a", 0, offset) for offset in offsets]
    # The last one leads to no other hop.
    hops = {coordinate: ("dlq.a", 0, coordinate[2] + OFFSETS) for coordinate in places}
    hops |= {("dlq.far", 3, offset): ("orders", 0, offset) for offset in offsets}
    for changes in range(rounds):
        rows = [("kafka", *place, *origin, name(*place)) for place, origin in hops.items()]
        warehouse.replace_groups("silver.dlq_hops", spark.createDataFrame(rows, schema), None, contract)
        done = run(spark, settings, "silver.dlq_roots", feed="delivery")["silver.dlq_roots"]
        assert done.status == "passed"

        roots = warehouse.read("silver.dlq_roots").select(COLUMNS_OF_ROOTS)
        whole = selected(
            spark, select_of("silver.dlq_roots"), {"dlq_hops": warehouse.read("silver.dlq_hops")}, {}
        ).select(COLUMNS_OF_ROOTS)
        assert sorted(map(tuple, roots.collect()), key=repr) == sorted(map(tuple, whole.collect()), key=repr)
        if changes:
            last = DeltaTable(warehouse.location("silver.dlq_roots")).history(1)[0]["operationParameters"]["predicate"]
            assert "dlq" in last
            assert "far" not in last
        for place in chance.sample(places, 1 + changes % 3):
            if chance.random() < 0.4:
                hops.pop(place, None)
            else:
                hops[place] = chance.choice([("orders", 0, place[2]), *places])
