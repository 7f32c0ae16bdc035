"""The direction of imports, which pyproject.toml states and import-linter checks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pipelines.settings import ROOT


def test_imports_point_downward_and_make_no_circle() -> None:
    command = [Path(sys.executable).parent / "lint-imports", "--no-cache"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout


def test_the_house_has_36_packages_at_most() -> None:
    rooms = ("dags", "expectations", "local", "pipelines")
    assert sum(1 for room in rooms for _ in (ROOT / room).rglob("__init__.py")) <= 36
