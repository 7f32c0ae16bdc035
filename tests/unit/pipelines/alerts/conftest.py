"""A world of alerts, and a receiver of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.testing.alerts import World
from tests.testing.receiver import Receiver, receiving


@pytest.fixture
def world(tmp_path: Path) -> Callable[..., World]:
    return lambda *routes, **more: World(tmp_path, *routes, **more)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server
