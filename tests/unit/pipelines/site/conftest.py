"""A warehouse and a landing directory that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.settings import Settings


@pytest.fixture
def settings(settings: Settings) -> Settings:
    for place in (settings.warehouse, settings.landing):
        Path(place).mkdir(exist_ok=True)
    return settings
