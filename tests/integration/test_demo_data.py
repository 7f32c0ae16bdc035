"""The demo's records through the pipeline: the counts that demo/README.md promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines import lakehouse
from pipelines.catalog import stages
from pipelines.demo import land
from pipelines.runner import run
from pipelines.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_demo_shows_every_profile_and_has_something_in_quarantine(spark: SparkSession, settings: Settings) -> None:
    land(settings.landing_of("dlq"))
    bronze, silver, gold = run(spark, settings, stages("dlq"))
    assert (bronze.read, bronze.accepted, bronze.duplicates) == (1931, 1931, 0)
    assert (silver.status, silver.read, silver.accepted, silver.quarantined, silver.duplicates) == (
        "passed",
        1931,
        1912,
        16,
        3,
    )
    assert gold.status == "passed"
    quarantine = lakehouse.read(spark, settings, "quarantine.dlq_records")
    assert quarantine.where("array_contains(violations, 'grain.conflict')").count() == 1
    accepted = lakehouse.read(spark, settings, "silver.dlq_records")
    assert {row[0] for row in accepted.select("header_profile").distinct().collect()} == {
        "kip-1317",
        "kip-1191",
        "kafka-streams",
        "kafka-connect",
        "spring-kafka",
    }
    assert accepted.where("is_control_marker").count() > 0
