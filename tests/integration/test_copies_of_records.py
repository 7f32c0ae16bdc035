"""Copies of a record from files and from its topic give one row with the topic id, in any order of arrival."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from expectations.bronze.dlq_records import CONTRACT as BRONZE
from pipelines.run.readmit import readmit, stage_with_quarantine
from pipelines.settings import Settings
from pipelines.stores import lock
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing import ways
from tests.testing.builders import kip_1191, rows, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SILVER, LETTERS = "silver.dlq_records", "silver.dead_letters"
DOWNSTREAM = (SILVER, LETTERS, "gold.dlq_counts", "gold.dlq_summary", "gold.message_ledger")
Standing = dict[str | None, "Copy"]


@dataclass(frozen=True, order=True)
class Copy:
    """A copy of a record from a topic (with its id) or a file; ``content`` is its value, ``lossy`` kcat's form."""

    lossy: bool
    bronze_id: str
    source: str
    offset: int
    topic_id: str | None
    content: str
    good: bool = True


def of_topic(offset: int, content: str, topic_id: str, good: bool = True) -> Copy:
    name = f"topic-{topic_id}-{offset}-{content}-{good}"
    return Copy(False, name, f"kafka:dlq.orders/{topic_id}/0", offset, topic_id, content, good)


def of_file(offset: int, content: str, file: str = "a", lossy: bool = False, good: bool = True) -> Copy:
    return Copy(lossy, f"file-{offset}-{content}-{lossy}-{good}", f"{file}.jsonl", offset, None, content, good)


def land(spark: SparkSession, settings: Settings, copies: Iterable[Copy]) -> None:
    """Insert copies into bronze in one commit, as a landing does."""
    names = [column.name for column in BRONZE.columns]
    given = [
        {
            "_source": copy.source,
            "_bronze_id": copy.bronze_id,
            "cluster": settings.cluster,
            "topic": "dlq.orders",
            "topic_id": copy.topic_id,
            "partition": 0,
            "offset": copy.offset,
            "timestamp_type": 0,
            "key": b"k",
            "value": copy.content.encode(),
            "headers": kip_1191(offset=copy.offset if copy.good else "none"),
            "lossy_encoding": copy.lossy,
        }
        for copy in copies
    ]
    schema = ", ".join(f"`{column.name}` {column.type}" for column in BRONZE.columns)
    frame = spark.createDataFrame([[row.get(name) for name in names] for row in given], schema).coalesce(1)
    Warehouse(settings, spark).insert(frame, BRONZE)


def standing(spark: SparkSession, settings: Settings) -> dict[int, dict[str | None, tuple[str, bool, str]]]:
    """The rows of silver, by offset and topic id: content, whether it is lossy, and the `_bronze_id`."""
    found: dict[int, dict[str | None, tuple[str, bool, str]]] = {}
    for row in rows(spark, settings, SILVER):
        here = found.setdefault(row["dlq_offset"], {})
        assert row["dlq_topic_id"] not in here
        here[row["dlq_topic_id"]] = (bytes(row["value"]).decode(), row["lossy_encoding"], row["_bronze_id"])
    return found


def taken(here: Standing, item: Copy) -> str:
    """Apply the rules to one copy of the record at a place, and return its outcome."""
    nameless = here.get(None)
    if item.topic_id is not None:
        if item.topic_id in here:
            return "duplicate" if here[item.topic_id].content == item.content else "conflict"
        if nameless and (nameless.lossy or nameless.content == item.content):
            del here[None]
        here[item.topic_id] = item
        return "accepted" if not nameless or None in here or nameless.lossy else "duplicate"
    named = [other for topic_id, other in here.items() if topic_id is not None]
    if (item.lossy and here) or item.content in {other.content for other in named}:
        return "duplicate"
    if nameless and not nameless.lossy:
        return "duplicate" if nameless.content == item.content else "conflict"
    if nameless and nameless.bronze_id == item.bronze_id:
        return "duplicate"
    here[None] = item
    return "accepted"


def batch_taken(model: dict[int, Standing], refused: set[str], batch: list[Copy]) -> dict[str, int]:
    """Apply the rules to a batch: first copies from topics, then lossless copies from files, then lossy ones."""
    counts = dict.fromkeys(("accepted", "duplicates", "quarantined"), 0)
    for item in sorted(batch, key=lambda copy: (copy.topic_id is None, copy)):
        outcome = taken(model.setdefault(item.offset, {}), item)
        if outcome == "conflict" and item.bronze_id not in refused:
            refused.add(item.bronze_id)
            counts["quarantined"] += 1
        else:
            if outcome != "conflict":  # a row that the table holds leaves quarantine
                refused.discard(item.bronze_id)
            counts["accepted" if outcome == "accepted" else "duplicates"] += 1
    return counts


def hold_equal(spark: SparkSession, settings: Settings, seed: int, places: int, batches: int) -> None:
    seeded = random.Random(seed)
    settings = settings.model_copy(update={"tolerance": 1.0})
    model: dict[int, Standing] = {}
    refused: set[str] = set()
    for number in range(batches):
        batch: dict[tuple[str, str], Copy] = {}
        for offset in range(places):
            for _ in range(seeded.choice([0, 0, 1, 1, 2, 3, 4])):
                content = seeded.choice("ccd" if offset % 2 else "cde")
                item = (
                    of_topic(offset, content, seeded.choice("xxy"))
                    if seeded.random() < 0.45
                    else of_file(offset, content, seeded.choice("ab") + str(number), lossy=seeded.random() < 0.3)
                )
                batch[item.source, item.bronze_id] = item
        known = {(row["_source"], row["_bronze_id"]) for row in rows(spark, settings, BRONZE.table)}
        fresh = [item for name, item in batch.items() if name not in known]
        land(spark, settings, fresh)

        done = run(spark, settings, SILVER)[SILVER]

        counts = batch_taken(model, refused, fresh)
        assert {name: getattr(done, name) for name in counts} == counts
        assert done.read == sum(counts.values()) == len(fresh)
        expected = {
            offset: {topic_id: (copy.content, copy.lossy, copy.bronze_id) for topic_id, copy in here.items()}
            for offset, here in model.items()
        }
        assert standing(spark, settings) == expected
        quarantined = {row["_bronze_id"] for row in rows(spark, settings, "quarantine.dlq_records")}
        assert quarantined == refused
    assert refused
    assert any(len(here) > 2 for here in model.values())


@pytest.mark.parametrize("way", [ways.FEW, ways.MANY, pytest.param(ways.LEFT_TO_SPARK, marks=pytest.mark.thorough)])
def test_random_copies_stand_as_the_rules_say(
    way: str, spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways.take(way, monkeypatch)
    hold_equal(spark, settings, seed=7, places=120 if way == ways.FEW else 40, batches=2)


@pytest.mark.parametrize("batches", [1, 2])
def test_a_copy_is_no_duplicate_of_the_lossy_one_that_another_replaces(
    batches: int, spark: SparkSession, settings: Settings
) -> None:
    settings = settings.model_copy(update={"tolerance": 1.0})
    copies = [of_file(0, "d", lossy=True), of_file(0, "c", "b"), of_file(0, "d", "b")]
    for batch in [copies] if batches == 1 else [copies[:1], copies[1:]]:
        land(spark, settings, batch)
        run(spark, settings, SILVER)
    assert standing(spark, settings) == {0: {None: ("c", False, copies[1].bronze_id)}}
    assert [row["_bronze_id"] for row in rows(spark, settings, "quarantine.dlq_records")] == [copies[2].bronze_id]


@pytest.mark.thorough
def test_random_copies_stand_as_the_rules_say_on_a_uri(spark: SparkSession, settings: Settings) -> None:
    by_uri = settings.model_copy(update={"warehouse": Path(settings.warehouse).as_uri()})
    hold_equal(spark, by_uri, seed=8, places=60, batches=3)


COPIES = {
    "file first": [[of_file(0, "c")], [of_topic(0, "c", "x")]],
    "topic first": [[of_topic(0, "c", "x")], [of_file(0, "c")]],
    "at once": [[of_topic(0, "c", "x"), of_file(0, "c")]],
    "lossy file first": [[of_file(0, "?", lossy=True)], [of_topic(0, "c", "x")]],
    "topic first, lossy file": [[of_topic(0, "c", "x")], [of_file(0, "?", lossy=True)]],
}


def test_one_record_counts_once_downstream(spark: SparkSession, settings: Settings) -> None:
    """Land all kinds of COPIES at different offsets, and summarise after each step; a row keeps when it came."""
    first: dict[int, tuple[Any, str]] = {}
    batches: dict[int, list[Copy]] = {0: [], 1: []}
    for offset, steps in enumerate(COPIES.values()):
        for number, step in enumerate(steps):
            batches[number] += [
                of_topic(offset, copy.content, copy.topic_id)
                if copy.topic_id
                else of_file(offset, copy.content, lossy=copy.lossy)
                for copy in step
            ]
    for batch in batches.values():
        land(spark, settings, batch)
        assert {stage_run.status for stage_run in run(spark, settings, *DOWNSTREAM, feed=None).values()} <= {
            "passed",
            "idle",
        }
        first = first or came(settings)
    assert came(settings) == first
    assert first.keys() == {*range(len(COPIES))}

    assert standing(spark, settings) == {
        offset: {"x": ("c", False, f"topic-x-{offset}-c-True")} for offset in range(len(COPIES))
    }
    assert rows(spark, settings, "quarantine.dlq_records") == []
    letters = rows(spark, settings, LETTERS)
    assert [(row["dlq_offset"], row["dlq_topic_id"], row["is_counted"]) for row in letters] == [
        (offset, "x", True) for offset in range(len(COPIES))
    ]
    assert sum(row["record_count"] for row in rows(spark, settings, "gold.dlq_summary")) == len(COPIES)
    ledger = rows(spark, settings, "gold.message_ledger")
    assert [row["dead_lettered_count"] for row in ledger] == [1] * len(COPIES)


@pytest.mark.thorough
def test_refused_copies_are_one_dead_letter(spark: SparkSession, settings: Settings) -> None:
    settings = settings.model_copy(update={"tolerance": 1.0})
    for batch in (
        [of_file(0, "c", good=False), of_topic(1, "c", "x", good=False), of_file(2, "c", good=False)],
        [of_topic(0, "c", "x", good=False), of_file(1, "c", good=False), of_topic(2, "d", "x", good=False)],
    ):
        land(spark, settings, batch)
        run(spark, settings, SILVER, LETTERS, feed=None)

    letters = rows(spark, settings, LETTERS)
    assert sorted((row["dlq_offset"], row["dlq_topic_id"] or "", row["is_accepted"]) for row in letters) == [
        (0, "x", False),
        (1, "x", False),
        (2, "", False),
        (2, "x", False),
    ]


def test_equal_lines_of_two_clusters_are_two_records(spark: SparkSession, settings: Settings) -> None:
    second = settings.model_copy(update={"cluster": "second"})
    bad = of_file(1, "c", good=False)
    for where, batch in (
        (settings, [of_file(0, "c"), bad]),
        (settings, [of_file(0, "d", "b")]),
        (second, [of_file(0, "d", "s"), replace(bad, source="s.jsonl")]),
    ):
        land(spark, where, batch)
        done = run(spark, where, SILVER)[SILVER]
    assert (done.read, done.accepted, done.quarantined, done.duplicates) == (2, 1, 1, 0)
    found = [(row["cluster"], row["dlq_offset"]) for row in rows(spark, settings, "quarantine.dlq_records")]
    assert sorted(found) == [(settings.cluster, 0), (settings.cluster, 1), ("second", 1)]

    with lock.writer(second, "test"):
        readmitted = readmit(Warehouse(second, spark), stage_with_quarantine(SILVER))
    assert (readmitted.found, readmitted.readmitted) == (3, 0)


def came(settings: Settings) -> dict[int, tuple[Any, str]]:
    """Return when each row came to the table, and in which run, by offset."""
    found = jvmless.rows(Warehouse(settings), SILVER, {"cluster": settings.cluster})
    return {row["dlq_offset"]: (row["_ingested_at"], row["_run_id"]) for row in found}


@pytest.mark.thorough
def test_readmit_takes_a_conflict_that_its_topic_explains(spark: SparkSession, settings: Settings) -> None:
    first, second = of_file(0, "c"), of_file(0, "d", "b")
    for item in (first, second):
        land(spark, settings, [item])
        run(spark, settings, SILVER)
    assert [row["violations"] for row in rows(spark, settings, "quarantine.dlq_records")] == [["grain.conflict"]]
    land(spark, settings, [of_topic(0, "d", "x"), of_file(1, "c"), of_file(1, "d", "b")])
    run(spark, settings, SILVER)
    land(spark, settings, [of_topic(1, "c" if standing(spark, settings)[1][None][0] == "c" else "d", "x")])
    run(spark, settings, SILVER)

    with lock.writer(settings, "test"):
        readmitted = readmit(Warehouse(settings, spark), stage_with_quarantine(SILVER))

    assert (readmitted.found, readmitted.readmitted) == (2, 2)
    assert rows(spark, settings, "quarantine.dlq_records") == []
    found = standing(spark, settings)
    assert {topic_id: content for topic_id, (content, _, _) in found[0].items()} == {None: "c", "x": "d"}
    assert {content for content, _, _ in found[1].values()} == {"c", "d"}


class Died(Exception):
    """Stands for a process that is killed."""


@pytest.mark.parametrize("step", [pytest.param("replace_matching", marks=pytest.mark.thorough), "insert"])
def test_a_run_that_dies_between_two_steps_converges(
    step: str, spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(spark, settings, [of_file(0, "c"), of_file(1, "?", lossy=True), of_file(2, "c")])
    run(spark, settings, SILVER)
    fresh = [
        *(of_topic(0, "c", "x"), of_file(0, "d", "b"), of_topic(1, "c", "x"), of_file(1, "d", "b")),
        *(of_topic(2, "d", "x"), of_file(2, "d", "b"), of_file(2, "e", "b")),
    ]
    land(spark, settings, fresh)
    done = getattr(Warehouse, step)

    def dying(warehouse: Warehouse, *given: Any, **named: Any) -> int:
        written = done(warehouse, *given, **named)
        if SILVER in (given[0], getattr(given[1], "table", None)):
            raise Died
        return int(written)

    with monkeypatch.context() as patched:
        patched.setattr(Warehouse, step, dying)
        with pytest.raises(Died):
            run(spark, settings, SILVER)
    run(spark, settings, SILVER)

    model: dict[int, Standing] = {}
    refused: set[str] = set()
    batch_taken(model, refused, [of_file(0, "c"), of_file(1, "?", lossy=True), of_file(2, "c")])
    batch_taken(model, refused, fresh)
    assert standing(spark, settings) == {
        offset: {topic_id: (copy.content, copy.lossy, copy.bronze_id) for topic_id, copy in here.items()}
        for offset, here in model.items()
    }
    assert {row["_bronze_id"] for row in rows(spark, settings, "quarantine.dlq_records")} == refused != set()


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(6))
def test_many_random_copies_stand_as_the_rules_say(seed: int, spark: SparkSession, settings: Settings) -> None:
    hold_equal(spark, settings, seed, places=300, batches=5)
