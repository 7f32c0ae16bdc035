"""silver.transactions: how each transaction ended, as far as its log was read from the data to the marker."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pyspark.sql import SparkSession

from pipelines.catalog import stages
from pipelines.commands import trace
from pipelines.run import runner
from pipelines.settings import Settings
from pipelines.steps.refresh import select_of
from pipelines.stores import lock
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import land, rows
from tests.testing.deliveries import acknowledgement
from tests.testing.engines import selected
from tests.testing.logs import OF_LOGS, T, lands, one, segment
from tests.testing.segments import marker

IN_TRANSACTION = 0x10
TABLE, LEDGER = "silver.transactions", "gold.message_ledger"
OF_LEDGER = (*OF_LOGS, "bronze.acknowledgements", "silver.acknowledgements", "silver.topic_policies", LEDGER)


def run(spark: SparkSession, settings: Settings, *only: str) -> dict[str, StageRun]:
    with lock.writer(settings, "test"):
        wanted = [stage for stage in stages("delivery") if stage.table in only]
        done = {ran.table: ran for ran in runner.run(Warehouse(settings, spark), wanted)}
    assert {ran.status for ran in done.values()} <= {"passed", "idle"}, done
    return done


def data(base: int, count: int = 3, epoch: int = 0, producer: int = 7) -> bytes:
    return one(base, count, flags=IN_TRANSACTION, producer=(producer, epoch, 0))


def states(spark: SparkSession, settings: Settings) -> dict[tuple[str, int], tuple[str, int | None]]:
    """How each transaction ended, and the offset of its marker, by topic and first offset."""
    return {
        (row["topic"], row["first_offset"]): (row["state"], row["marker_offset"])
        for row in rows(spark, settings, TABLE)
    }


# Before transaction.version 2 all transactions of a producer have one epoch. In each log, offsets 0 to 2 are of the
# first transaction, which is committed at 3; 4 to 6 are of the second, which is aborted at 7.
FIRST = data(0)
ENDS_FIRST = marker(3, commits=True)
SECOND = data(4) + marker(7, commits=False)


def test_a_marker_behind_offsets_that_were_not_read_ends_nothing_before_them(
    spark: SparkSession, settings: Settings
) -> None:
    """A segment that is missing can hold the transaction's own marker."""
    lands(settings, "missing", {segment(0): (FIRST, T), segment(7): (marker(7, commits=False), T)})
    lands(settings, "missing-in-part", {segment(0): (FIRST, T), segment(4): (SECOND, T)})
    lands(settings, "whole", {segment(0): (FIRST + ENDS_FIRST, T), segment(4): (SECOND, T)})
    # A hole in a segment is no gap: the cleaner never removes a marker whose data it keeps.
    lands(settings, "with-a-hole", {segment(0): (FIRST + marker(7, commits=False), T)})
    lands(settings, "without-an-end", {segment(0): (FIRST, T), segment(5): (one(5), T)})
    lands(settings, "open", {segment(0): (FIRST + one(3), T), segment(4): (one(4), T)})
    lands(settings, "of-another-epoch", {segment(0): (FIRST + marker(3, True, (7, 5)), T)})
    lines = [acknowledgement(topic, 0, 1) for topic in ("missing", "whole", "open")]
    land(settings, {"a.jsonl": lines}, "acknowledgements")
    run(spark, settings, *OF_LEDGER)

    assert states(spark, settings) == {
        ("missing", 0): ("UNKNOWN", None),
        ("missing-in-part", 0): ("UNKNOWN", None),
        ("missing-in-part", 4): ("ABORTED", 7),
        ("whole", 0): ("COMMITTED", 3),
        ("whole", 4): ("ABORTED", 7),
        ("with-a-hole", 0): ("ABORTED", 7),
        ("without-an-end", 0): ("UNKNOWN", None),
        ("open", 0): ("OPEN", None),
        ("of-another-epoch", 0): ("UNKNOWN", None),
    }
    found = {row["topic"]: (row["outcome"], row["transaction_state"]) for row in rows(spark, settings, LEDGER)}
    assert found == {
        "missing": ("ACKNOWLEDGED", "UNKNOWN"),
        "whole": ("ACKNOWLEDGED", "COMMITTED"),
        "open": ("ACKNOWLEDGED", "OPEN"),
    }
    assert "transaction's end unknown" in trace.answer(Warehouse(settings), "missing:0:1").result

    # The missing segments land.
    lands(settings, "missing", {segment(3): (ENDS_FIRST + data(4), T)})
    lands(settings, "missing-in-part", {segment(3): (ENDS_FIRST, T)})
    lands(settings, "without-an-end", {segment(3): (one(3, 2), T)})
    run(spark, settings, *OF_LEDGER)
    now = states(spark, settings)
    assert {place: now[place] for place in now if place[0] in ("missing", "missing-in-part", "without-an-end")} == {
        ("missing", 0): ("COMMITTED", 3),
        ("missing", 4): ("ABORTED", 7),
        ("missing-in-part", 0): ("COMMITTED", 3),
        ("missing-in-part", 4): ("ABORTED", 7),
        ("without-an-end", 0): ("OPEN", None),
    }
    (message,) = [row for row in rows(spark, settings, LEDGER) if row["topic"] == "missing"]
    assert (message["outcome"], message["transaction_state"]) == ("ACKNOWLEDGED", "COMMITTED")
    assert {ran.status for ran in run(spark, settings, *OF_LEDGER).values()} == {"idle"}

    # A newer copy of a segment in the middle lacks its end, so that what stood there is not known any more.
    lands(settings, "missing", {segment(3): (one(3), T + 9)})
    run(spark, settings, *OF_LOGS)
    assert states(spark, settings)["missing", 0] == ("UNKNOWN", None)


# --- random logs -----------------------------------------------------------------------------------------------------

BATCHES = (
    "cluster string, segment string, topic string, partition int, topic_id string, position bigint, "
    "size_in_bytes bigint, base_offset bigint, last_offset bigint, record_count int, max_timestamp timestamp, "
    "superseded_by string, is_transactional boolean, is_control boolean, control_type string, producer_id bigint, "
    "producer_epoch int"
)
COPIES = "cluster string, segment string, superseded_ranges array<struct<first_offset: bigint, last_offset: bigint>>"


@dataclass(frozen=True)
class Batch:
    """A batch of a log, of a transaction's data if it has a producer, a marker if it also ``ends`` batch."""

    first: int
    last: int
    producer: int | None = None
    epoch: int = 0
    ends: str | None = None


class Log:
    """Segments of a log of one to three producers; an epoch grows with each transaction, or never."""

    def __init__(self, chance: random.Random) -> None:
        self.segments: dict[int, list[Batch]] = {0: []}
        self.ended: dict[int, tuple[str, int]] = {}
        grows, end = chance.random() < 0.5, 0
        epochs = dict.fromkeys(range(chance.randint(1, 3)), 0)
        pending: dict[int, list[int]] = {producer: [] for producer in epochs}
        for _ in range(chance.randint(1, 40)):
            if self.segments[max(self.segments)] and chance.random() < 0.3:
                self.segments[end] = []
            producer, kind, count = chance.choice(list(epochs)), chance.random(), chance.randint(1, 3)
            if kind < 0.35 and (pending[producer] or chance.random() < 0.2):
                epochs[producer] += grows
                ends = chance.choice(("COMMIT", "ABORT"))
                batch = Batch(end, end, producer, epochs[producer], ends)
                state = {"COMMIT": "COMMITTED", "ABORT": "ABORTED"}[ends]
                self.ended |= dict.fromkeys(pending[producer], (state, end))
                pending[producer] = []
            elif kind < 0.8:
                batch = Batch(end, end + count - 1, producer, epochs[producer])
                pending[producer].append(end)
            else:
                batch = Batch(end, end + count - 1)
            self.segments[max(self.segments)].append(batch)
            end = batch.last + 1

    def rows(self, topic: str, landed: set[int]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of silver.log_batches for the segments that landed."""
        for base in landed:
            for place, batch in enumerate(self.segments[base]):
                yield (
                    *("c", f"{topic}-0/{base:020}.log", topic, 0, None, 100 * place, 100, batch.first, batch.last),
                    *(
                        batch.last - batch.first + 1,
                        None,
                        None,
                        batch.producer is not None,
                        batch.ends is not None,
                        batch.ends,
                    ),
                    *(-1 if batch.producer is None else batch.producer, batch.epoch),
                )

    def expected(self, landed: set[int]) -> Iterator[tuple[int, int, str, int | None]]:
        """Yield first and last offset of each batch of data that landed, and what these segments prove of its end."""
        batches = [batch for base in sorted(landed) for batch in self.segments[base]]
        gaps = {batch.last + 1 for batch, following in pairwise(batches) if following.first > batch.last + 1}
        for batch in batches:
            if batch.producer is None or batch.ends is not None:
                continue
            state, marker = self.ended.get(batch.first, ("OPEN", None))
            if any(batch.last < gap and (marker is None or gap <= marker) for gap in gaps):
                yield batch.first, batch.last, "UNKNOWN", None
            elif marker not in {other.first for other in batches}:
                yield batch.first, batch.last, "OPEN", None
            else:
                yield batch.first, batch.last, state, marker


def test_what_landed_segments_of_random_logs_prove(spark: SparkSession) -> None:
    chance = random.Random(20261126)
    expected: dict[tuple[str, int], tuple[str, int | None]] = {}
    landed: list[tuple[Any, ...]] = []
    for number in range(300):
        log, topic = Log(chance), f"t{number}"
        segments = {base for base in log.segments if chance.random() < 0.7}
        landed += log.rows(topic, segments)
        for first, last, state, marked in log.expected(segments):
            expected |= dict.fromkeys(((topic, offset) for offset in range(first, last + 1)), (state, marked))
    frames = {"log_batches": spark.createDataFrame(landed, BATCHES).coalesce(1)}
    frames["log_copies"] = spark.createDataFrame([], COPIES)
    frames["log_ranges"] = selected(spark, select_of("silver.log_ranges"), frames, {})
    frames["log_gaps"] = selected(spark, select_of("silver.log_gaps"), frames, {})
    found = selected(spark, select_of(TABLE), frames, {}).collect()

    assert {
        (row["topic"], offset): (row["state"], row["marker_offset"])
        for row in found
        for span in row["ranges"]
        for offset in range(span["first_offset"], span["last_offset"] + 1)
    } == expected
    assert {state for state, _ in expected.values()} == {"COMMITTED", "ABORTED", "OPEN", "UNKNOWN"}
    assert len(
        {(row["topic"], row["producer_id"], row["producer_epoch"], row["first_offset"]) for row in found}
    ) == len(found)


def test_transactions_are_those_of_the_log(spark: SparkSession, captured_deliveries: Settings) -> None:
    found = {
        (row["topic"], row["producer_id"], row["producer_epoch"]): row
        for row in rows(spark, captured_deliveries, "silver.transactions")
    }

    committed = {("batches", producer, 0) for producer in (3, 6, 9, 12, 15, 18)} | {("batches", 18, 1)}
    aborted = {("batches", producer, 0) for producer in (4, 7, 10, 13, 16)}
    assert {key for key, row in found.items() if row["state"] == "COMMITTED"} == committed
    assert {key for key, row in found.items() if row["state"] == "ABORTED"} == aborted
    assert {key for key, row in found.items() if row["state"] == "OPEN"} == {("batches.open", 21, 0)}
    assert {row["marker_epoch"] - row["producer_epoch"] for row in found.values() if row["marker_epoch"]} == {1}
    two = found["batches", 18, 0]
    assert (two["first_offset"], two["last_offset"], two["marker_offset"], two["batch_count"]) == (70, 72, 73, 2)
    assert two["ranges"] == [{"first_offset": 70, "last_offset": 72}]
