"""An Airflow of its own for each module: a fresh home and database, started once."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from rich.console import Console

from pipelines.demo import Airflow


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    home = tmp_path_factory.mktemp("airflow")
    started = Airflow(home, home / "airflow.log", Console(file=io.StringIO()))
    yield started
    started.close()
