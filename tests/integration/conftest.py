"""An empty warehouse, made once and copied: creating tables is not what these tests are about."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipelines import lakehouse, runner
from pipelines.settings import Settings, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def empty_warehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("empty") / "warehouse"
    lakehouse.ensure_all(spark, load(warehouse=str(directory)), runner.contracts())
    return directory


@pytest.fixture
def settings(empty_warehouse: Path, tmp_path: Path) -> Settings:
    shutil.copytree(empty_warehouse, tmp_path / "warehouse")
    return load(warehouse=str(tmp_path / "warehouse"), landing=str(tmp_path / "landing"))
