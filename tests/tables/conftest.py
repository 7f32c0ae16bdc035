"""Give each test a copy of an empty warehouse, because these tests are not about creating tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.settings import Settings
from tests.testing.builders import warehouse_of


@pytest.fixture
def settings(empty_warehouse: Path, tmp_path: Path) -> Settings:
    return warehouse_of(empty_warehouse, tmp_path)
