"""One Spark session for the whole test run, and a warehouse and landing directory for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipelines.settings import Settings, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from pipelines.session import spark_session

    with spark_session(load(spark={"spark.master": "local[2]"}), brisk=True) as session:
        yield session


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load(warehouse=str(tmp_path / "warehouse"), landing=str(tmp_path / "landing"))
