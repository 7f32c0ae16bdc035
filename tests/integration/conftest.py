"""Give each test a copy of an empty warehouse, because these tests are not about creating tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.settings import Settings
from tests.testing import all_features as features
from tests.testing.builders import warehouse_of
from tests.testing.shared import once


@pytest.fixture
def settings(empty_warehouse: Path, tmp_path: Path) -> Settings:
    return warehouse_of(empty_warehouse, tmp_path)


@pytest.fixture(scope="session")
def all_features(
    request: pytest.FixtureRequest, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A directory with a warehouse in which every feature was used, made once for all workers, and what landed."""

    def make(directory: Path) -> Path:
        return features.all_features(request.getfixturevalue("spark"), warehouse_of(empty_warehouse, directory))

    return once(tmp_path_factory, "all_features", make)
