"""One Spark session for the whole test run, an empty warehouse to copy, and directories for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from pipelines.run import runner
from pipelines.settings import Settings, load
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


hypothesis.settings.register_profile("untimed", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("untimed")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from pipelines.jvm.session import spark_session

    # Most of its work is small, as a short-lived session's, but it lives long enough for all of the JVM's compiler.
    long_lived = {"spark.master": "local[2]", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"}
    with spark_session(load(spark=long_lived), short_lived=True) as session:
        yield session


@pytest.fixture(scope="session")
def empty_warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse whose tables are there, made once, for tests that are not about creating them: to be copied."""
    directory = tmp_path_factory.mktemp("empty") / "warehouse"
    Warehouse(load(warehouse=str(directory)), spark).ensure_all(runner.contracts())
    return directory


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load(warehouse=str(tmp_path / "warehouse"), landing=str(tmp_path / "landing"))
