"""Errors of libraries become one sentence with an exit code."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from pipelines.errors import EnvironmentLacking, readable


@pytest.mark.parametrize(
    ("place", "lacks"),
    [
        pytest.param("gs://b/w", "a file system for gs://: run `make setup-gs`, ", id="no class for the scheme"),
        pytest.param("nope://bucket/w", "a file system for nope://: ", id="mistyped"),
        pytest.param("s3a://bucket/w", "org.apache.hadoop.fs.s3a.S3AFileSystem: ", id="no jar"),
    ],
)
def test_a_scheme_that_spark_cannot_read_is_one_sentence(spark: SparkSession, place: str, lacks: str) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011
        spark.read.format("delta").load(f"{place}/gold/dlq_incidents")
    assert isinstance(raised.value, Exception)
    known = readable(raised.value)
    assert isinstance(known, EnvironmentLacking)
    assert str(known).startswith(f"Spark lacks {lacks}name its jars in spark.jars")
