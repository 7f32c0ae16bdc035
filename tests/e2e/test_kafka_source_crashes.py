"""Topics as a source: runs that are killed or lose their progress, and the gaps that they record."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.broker import Broker
from pipelines.catalog import stages
from pipelines.run import idleness
from pipelines.settings import Dlq, Settings
from pipelines.warehouse import progress
from pipelines.warehouse.tables import Warehouse
from tests.integration.killed import killed_at
from tests.testing.builders import run
from tests.testing.kafka import KafkaAdmin
from tests.testing.kafka_source import BRONZE, environment, gaps, numbers, texts, values


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("after a batch of topics is fixed", marks=pytest.mark.thorough),
        "after records of topics, before their progress",
    ],
)
def test_a_killed_run_converges(
    spark: SparkSession, kafka: KafkaAdmin, following: Callable[..., Settings], point: str
) -> None:
    topic = f"dlq.killed-{point.split()[1]}"
    settings = following(topic)
    kafka.create_topic(topic, 2)
    kafka.produce(topic, values(10))
    run(spark, settings, BRONZE)
    kafka.produce(topic, values(10, begin=10))
    by_four = settings.dlq.model_copy(update={"max_records_per_batch": 4})
    with killed_at(point):
        run(spark, settings.model_copy(update={"dlq": by_four}), BRONZE)
    known = progress.load(Warehouse(settings), BRONZE)
    assert known is not None
    assert known.within_a_batch(settings.cluster)
    kafka.produce(topic, values(10, begin=20))
    run(spark, settings, BRONZE)
    assert texts(settings) == numbers(0, 30)
    assert gaps(settings) == []


def test_a_gap_that_was_found_is_recorded_also_by_a_run_that_reads_no_topics(
    spark: SparkSession, kafka: KafkaAdmin, following: Callable[..., Settings]
) -> None:
    settings = following(r"dlq\.unrecorded")
    kafka.create_topic("dlq.unrecorded")
    kafka.produce("dlq.unrecorded", values(2))
    run(spark, settings, BRONZE)
    kafka.produce("dlq.unrecorded", values(3, begin=2))
    kafka.delete_records("dlq.unrecorded", 0, 4)
    with killed_at("after a gap is kept, before it is recorded"):
        run(spark, settings, BRONZE)
    of_files = settings.model_copy(update={"dlq": Dlq()})
    run(spark, of_files, BRONZE)
    assert gaps(settings) == [("dlq.unrecorded", kafka.topic_id("dlq.unrecorded"), 0, 2, 4)]
    assert idleness.idle(Warehouse(of_files), stages("dlq", BRONZE))


def test_a_batch_that_was_written_and_then_removed_from_its_topic_is_no_gap(
    spark: SparkSession, kafka: KafkaAdmin, following: Callable[..., Settings]
) -> None:
    settings = following("dlq.written")
    kafka.create_topic("dlq.written")
    kafka.produce("dlq.written", values(10))
    with killed_at("after records of topics, before their progress"):
        run(spark, settings, BRONZE)
    kafka.delete_records("dlq.written", 0, 10)
    kafka.produce("dlq.written", values(2, begin=10))
    run(spark, settings, BRONZE)
    assert (texts(settings), gaps(settings)) == (numbers(0, 12), [])


@pytest.mark.parametrize(
    "point",
    [
        "after a gap is kept, before it is recorded",
        pytest.param("after a gap is recorded", marks=pytest.mark.thorough),
    ],
)
def test_a_gap_is_recorded_once_also_after_a_crash(
    spark: SparkSession, kafka: KafkaAdmin, following: Callable[..., Settings], point: str
) -> None:
    topic = f"dlq.gap-{point.split()[-1]}-{'kept' in point}".lower()
    settings = following(topic)
    kafka.create_topic(topic)
    kafka.produce(topic, values(2))
    run(spark, settings, BRONZE)
    kafka.produce(topic, values(8, begin=2))
    kafka.delete_records(topic, 0, 5)
    with killed_at(point):
        run(spark, settings, BRONZE)
    kafka.delete_records(topic, 0, 6)
    run(spark, settings, BRONZE)
    run(spark, settings, BRONZE)
    id_ = kafka.topic_id(topic)
    assert gaps(settings) == [(topic, id_, 0, 2, 5), (topic, id_, 0, 5, 6)]
    assert texts(settings) == ["0", "1", *numbers(6, 10)]


@pytest.mark.thorough
def test_a_run_killed_at_any_time_converges(
    spark: SparkSession, kafka: KafkaAdmin, broker: Broker, following: Callable[..., Settings]
) -> None:
    settings = following("dlq.anytime")
    kafka.create_topic("dlq.anytime", 3)
    kafka.produce("dlq.anytime", values(60))
    run(spark, settings, BRONZE)
    kafka.produce("dlq.anytime", values(60, begin=60))
    command = "from pipelines.cli import main; main()"
    chance = random.Random(6)
    for _ in range(3):
        killed = subprocess.Popen(
            [sys.executable, "-c", command, "run", "--only", BRONZE, "--warehouse", settings.warehouse],
            env=environment(
                broker, "dlq.anytime", AFTERLOG_DLQ__MAX_RECORDS_PER_BATCH="7", AFTERLOG_LANDING=settings.landing
            ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(chance.uniform(8, 20))
        killed.kill()
        killed.wait()
    run(spark, settings, BRONZE)
    assert texts(settings) == numbers(0, 120)
    assert gaps(settings) == []


def test_lost_progress_costs_a_read_and_doubles_nothing(
    spark: SparkSession, kafka: KafkaAdmin, following: Callable[..., Settings]
) -> None:
    settings = following(r"dlq\.lost", max_records_per_batch=12)
    kafka.create_topic("dlq.lost", 2)
    kafka.produce("dlq.lost", values(20))
    run(spark, settings, BRONZE)
    (Path(settings.warehouse) / "_progress" / f"{BRONZE}.json").unlink()
    kafka.produce("dlq.lost", values(5, begin=20))
    done = run(spark, settings, BRONZE)[BRONZE]
    assert (done.read, done.accepted, done.duplicates) == (25, 5, 20)
    assert texts(settings) == numbers(0, 25)
