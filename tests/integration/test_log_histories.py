"""Random histories of logs, their copies landed in any order: no stage stops, and the newest copy decides."""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.catalog import stages
from pipelines.run import runner
from pipelines.settings import Settings
from pipelines.sources import landing
from pipelines.stage import Split
from pipelines.stores import lock
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import kip_1191, kip_1317, land, line, rows, warehouse_of
from tests.testing.deliveries import acknowledgement, millis, producer, unproduced
from tests.testing.logs import (
    ID,
    METADATA,
    OF_LOGS,
    Clock,
    Landed,
    Log,
    Piece,
    T,
    lands,
    one,
    place,
    put,
    segment,
    stated,
)
from tests.testing.segments import control, marker, message

TABLES_OF_LOGS = ("silver.log_ranges", "silver.log_gaps", "silver.transactions")
TABLES = (
    *(*TABLES_OF_LOGS, "silver.dead_letters", "silver.dlq_ranges", "silver.dlq_gaps", "gold.message_ledger"),
    *("gold.message_counts", "gold.reconciliation", "gold.delivery_guarantees"),
)


def run(spark: SparkSession, settings: Settings, *, only_logs: bool = True) -> dict[str, StageRun]:
    """Run the delivery feed, or only its tables about logs; no table may wait or break."""
    wanted = [
        stage for feed in ("dlq", "delivery") for stage in stages(feed) if not only_logs or stage.table in OF_LOGS
    ]
    with lock.writer(settings, "test"):
        done = {stage_run.table: stage_run for stage_run in runner.run(Warehouse(settings, spark), wanted)}
    assert {stage_run.status for stage_run in done.values()} <= {"passed", "idle"}, done
    for ran in done.values():
        if stage_is_split(ran.table):
            assert ran.read == ran.accepted + ran.quarantined + ran.duplicates + ran.skipped
    return done


def stage_is_split(table: str) -> bool:
    return any(stage.table == table and isinstance(stage, Split) for stage in stages())


# --- random histories -----------------------------------------------------------------------------------------------


def dead(dlq: str, offset: int, source: str, at: int) -> str:
    return line(offset, topic=dlq, timestamp=millis(offset % 9000), headers=kip_1191(source, 0, at, "g"))


class History:
    """Logs that change and are copied at random, sometimes torn, and the last landed copy at each path."""

    def __init__(self, seed: int, logs: int, is_torn: bool) -> None:
        self.chance = random.Random(seed)
        clock = Clock()
        names = [f"{'dlq.' if number % 2 else ''}t{number}" for number in range(logs)]
        self.logs = [Log(name, self.chance, clock, number % 3 > 0, is_torn) for number, name in enumerate(names)]
        self.known: dict[str, tuple[bytes, int]] = {}
        self.complete: dict[str, dict[int, list[Piece]]] = {}

    def step(self, directory: Path, is_last: bool) -> None:
        """Change each log in random ways, and land copies of parts of it."""
        for log in self.logs:
            self.complete.pop(log.topic, None)
            for _ in range(self.chance.randint(1, 4)):
                log.change()
                if self.chance.random() < 0.4:
                    log.land(directory, complete=False)
                if self.chance.random() < 0.3:
                    log.land_an_old_copy(directory)
            if self.chance.random() < (0.5 if is_last else 0.3):
                log.land(directory, complete=True)
                self.complete[log.topic] = log.segments
        for source, file in landing.listing(directory).items():
            if source.endswith(".log"):
                self.known[source] = ((directory / source).read_bytes(), file.modified_ns)

    def tell(self, settings: Settings, run: int) -> None:
        """Land dead letters, acknowledgements and producers' settings for these logs."""
        letters, told = [], []
        for log in self.logs:
            for _ in range(6):
                at = self.chance.randrange(max(1, log.end + 5))
                told.append(acknowledgement(log.topic, 0, at, seconds=self.chance.randrange(9000)))
                if log.topic.startswith("dlq."):
                    letters.append(dead(log.topic, at, self.logs[at % len(self.logs)].topic, at))
        land(settings, {f"{run}.jsonl": letters})
        land(settings, {f"{run}.jsonl": told}, "acknowledgements")
        land(settings, {f"{run}.jsonl": [producer(topic=log.topic, producer_id=2) for log in self.logs]}, "producers")


def compared(spark: SparkSession, settings: Settings, table: str) -> list[dict[str, Any]]:
    """Rows without the columns that depend on the landing: ingestion time, run and topic id."""
    found = rows(spark, settings, table)
    return sorted(({name: row[name] for name in row if name != "topic_id"} for row in found), key=repr)


def land_file(settings: Settings, file: Path) -> None:
    directory = settings.landing_of(file.parent.name)
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy2(file, directory)


def of(empty_warehouse: Path, directory: Path, **values: Any) -> Callable[[str], Settings]:
    """Return a maker of settings for warehouses in a directory."""

    def made(name: str) -> Settings:
        (directory / name).mkdir()
        return warehouse_of(empty_warehouse, directory / name, **values)

    return made


def history(
    spark: SparkSession, made: Callable[[str], Settings], past: History, runs: int, again: int, *, only_logs: bool
) -> None:
    """Land a history in runs, and its final files in fewer runs and another order; compare the tables."""
    settings = made("history")
    for number in range(runs):
        past.step(settings.landing_of("segments"), number == runs - 1)
        past.tell(settings, number)
        run(spark, settings, only_logs=only_logs)
    of_older_topics = {row["segment"] for row in rows(spark, settings, "silver.log_copies") if row["is_of_older_topic"]}
    batches = rows(spark, settings, "silver.log_batches")

    held: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in batches:
        if row["superseded_by"] is None:
            held[row["topic"]].append((row["base_offset"], row["last_offset"]))
    for topic, spans in held.items():
        spans.sort()
        assert all(before[1] < after[0] for before, after in pairwise(spans)), topic
    assert past.complete
    for topic, log in past.complete.items():
        now = [piece for pieces in log.values() for piece in pieces]
        spans = {(piece.base, piece.last) for piece in now}
        assert spans <= set(held[topic]), topic
        covered = [(base, pieces[-1].last) for base, pieces in log.items() if pieces]
        for row in batches:
            first, last = row["base_offset"], row["last_offset"]
            if row["topic"] == topic and row["superseded_by"] is None and (first, last) not in spans:
                # no file covers what the cleaner emptied after a segment's last batch, so an older copy counts there
                assert not any(first <= end and base <= last for base, end in covered), (topic, row)
                epoch = -1 if row["leader_epoch"] is None else row["leader_epoch"]
                assert not any(piece.base < first and 0 <= epoch < piece.epoch for piece in now), (topic, row)

    other = made("other")
    files = [(source, *past.known[source]) for source in sorted(past.known) if source not in of_older_topics]
    told = [file for feed in ("dlq", "acknowledgements", "producers") for file in settings.landing_of(feed).iterdir()]
    past.chance.shuffle(files)
    past.chance.shuffle(told)
    for number in range(again):
        for source, data, at in files[number::again]:
            log, _, name = source.partition("/")
            put(place(other, log) / name, data, at)
        for file in told[number::again]:
            land_file(other, file)
        run(spark, other, only_logs=only_logs)
    names = ("segment", "base_offset", "last_offset", "leader_epoch", "record_count")
    speak = [
        sorted(tuple(row[name] for name in names) for row in found if row["superseded_by"] is None)
        for found in (batches, rows(spark, other, "silver.log_batches"))
    ]
    assert speak[0] == speak[1]
    for table in TABLES_OF_LOGS if only_logs else TABLES:
        assert compared(spark, settings, table) == compared(spark, other, table), table


def test_no_history_of_logs_stops_a_table_and_the_order_of_arrival_does_not_matter(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    history(spark, of(empty_warehouse, tmp_path), History(1, logs=24, is_torn=False), runs=2, again=1, only_logs=True)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(2, 8))
def test_more_histories(seed: int, spark: SparkSession, empty_warehouse: Path, tmp_path: Path) -> None:
    made = of(empty_warehouse, tmp_path, **({"tolerance": 1.0} if seed % 2 else {}))
    history(spark, made, History(seed, logs=60, is_torn=seed % 2 > 0), runs=4, again=1 + seed % 3, only_logs=False)


# --- contents that no broker writes ---------------------------------------------------------------------------------

MOST = 2**63 - 1


@pytest.mark.thorough
def test_nothing_that_producers_say_stops_a_table(spark: SparkSession, empty_warehouse: Path, tmp_path: Path) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path, tolerance=1.0)
    edges = (0, 1, 255, 256, 9_999, 10_000, 2**31, MOST - 10_001, MOST - 1, MOST)
    letters = [dead("dlq.t", offset, "t", offset) for offset in edges]
    letters += [
        line(offset, topic="dlq.t", partition=partition, headers=kip_1191("dlq.t", partition, offset, "g"))
        for partition in (1, 2**31 - 1)
        for offset in (0, MOST)
    ]
    letters += [
        line(index, topic="dlq.when", headers=kip_1317(timestamp=text))
        for index, text in enumerate(("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "1582-10-10T12:00:00Z"))
    ]
    land(settings, {"a.jsonl": [*letters, dead("dlq.t", 0, "t", 7)]})
    told = [acknowledgement("t", partition, offset) for partition in (0, 2**31 - 1) for offset in edges]
    told += [acknowledgement("t", 0, 0, client_id=str(client), timestamp=253402300799999) for client in range(3)]
    told += [
        acknowledgement("t", 0, None, baseOffset=MOST, relativeOffset=9),
        acknowledgement("t", 0, None, baseOffset=-(2**63), relativeOffset=-1),
        acknowledgement("t", 0, 3, acknowledged_at=253402300799999),
        acknowledgement("t", 0, 3, acknowledged_at=0, timestamp=0),
    ]
    land(settings, {"a.jsonl": told}, "acknowledgements")
    land(settings, {"a.log": unproduced(1, first=0, last=MOST) + unproduced(2, first=MOST, last=MOST)}, "broker-logs")
    land(settings, {"a.jsonl": [producer(topic="t", producer_id=MOST), producer(topic="t")]}, "producers")
    in_transaction: dict[str, Any] = {"flags": 0x10, "producer": (7, 0, 0)}
    for topic, far in (("t", 2**31 - 1), ("dlq.t", 10**6)):
        files: Landed = {
            segment(0): (
                b"".join(
                    [
                        one(0, 3, **in_transaction),
                        one(1, 3),  # offsets that exist already
                        marker(3, True, (7, 0)),
                        marker(4, False, (7, 0)),  # no open transaction is left
                        marker(5, False, (7, 0)),
                        message(6, 0) + message(7, 1),
                        one(8, 2, **in_transaction),
                        one(10, 2, flags=0x10, producer=(7, 32767, 5)),  # the same producer id with another epoch
                        control(12, 99, None),
                        control(13, 0, b""),
                        one(14, 1, flags=0x10),  # a transaction without a producer
                        one(15, 1, flags=0x30, producer=(7, 0, -1), records=[], record_count=0),
                        one(far, 1),  # a hole of many slices
                        one(16, 1),
                    ]
                ),
                T,
            ),
            segment(2**63 - 2**31): (one(2**63 - 2**31, 1) + one(MOST - 1, 2, **in_transaction), T),
            segment(MOST): (one(MOST, 1), T),
            METADATA: (b"\xff", T),
            "x.log": (b"", T),
        }
        lands(settings, topic, files)

    run(spark, settings, only_logs=False)
    lands(
        settings, "t", {segment(0): (one(4, 9, epoch=-5) + marker(13, False, (9, 9)), T + 1), METADATA: (stated(ID), T)}
    )
    land(settings, {"b.jsonl": [dead("dlq.t", MOST - 5, "t", 5)]})
    run(spark, settings, only_logs=False)

    gaps = [row for row in rows(spark, settings, "silver.dlq_gaps") if row["dlq_topic"] == "dlq.t"]
    assert sum(row["offset_count"] for row in gaps) == (MOST + 1 - len(edges) - 1) + 2 * (MOST - 1)
    outcomes = Warehouse(settings, spark).read("gold.message_ledger").select("outcome").distinct().collect()
    assert {row["outcome"] for row in outcomes} >= {"ABSENT", "DEAD_LETTERED"}
    hours = Warehouse(settings, spark).read("gold.reconciliation").selectExpr("CAST(hour AS STRING) AS hour").collect()
    assert {row["hour"][:10] for row in hours} >= {"0001-01-01", "9999-12-31", "1582-10-10"}
