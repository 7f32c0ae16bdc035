"""An empty home for Airflow, and a script instead of the command line."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _airflow_home(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give Airflow an empty home before its first import, so that it never reads the user's home."""
    os.environ["AIRFLOW_HOME"] = str(tmp_path_factory.mktemp("airflow"))
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let tasks start a Python script instead of the command line, to simulate what the real one cannot do."""

    def put(script: str) -> None:
        file = tmp_path / "command.py"
        file.write_text(script)
        monkeypatch.setenv("AFTERLOG_COMMAND", shlex.join([sys.executable, os.fspath(file)]))

    return put
