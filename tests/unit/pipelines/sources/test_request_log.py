"""The time zone of a log's timestamps: one that Java knows, too."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import available_timezones

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.errors import UsageError
from pipelines.sources import request_log

LINE = bytearray(b"[2026-11-21 02:41:15,344] DEBUG Completed request:{}")


@pytest.mark.parametrize(
    ("timezone", "hour"), [("UTC", 2), ("Europe/Berlin", 1), ("Asia/Kolkata", 21), ("EST", 7), ("Etc/GMT-2", 0)]
)
def test_a_time_is_read_in_its_zone(spark: SparkSession, timezone: str, hour: int) -> None:
    lines = spark.createDataFrame([(LINE,)], "line binary")
    row = lines.select(F.unix_seconds(request_log.logged_at(F.col("line"), timezone)).alias("at")).head()
    assert row
    assert datetime.fromtimestamp(row["at"], UTC).hour == hour


def test_a_zone_that_only_python_knows_is_refused_in_a_sentence(spark: SparkSession) -> None:
    assert "Factory" in available_timezones()
    with pytest.raises(UsageError, match=r"^The timezone Factory of a log is none that Java [0-9.]+ knows: name anoth"):
        request_log.logged_at(F.col("line"), "Factory")
