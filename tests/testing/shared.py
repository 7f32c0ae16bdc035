"""Expensive things that tests share: made once for all workers of a test run, for the first test that asks."""

from __future__ import annotations

import fcntl
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

Made = TypeVar("Made")


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Made]) -> Made:
    """Return what ``make`` returns for an empty directory, which it fills; other workers get a copy of the result.

    The files are shared: tests must not write to them.
    """
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # pytest makes it for the test run, with a directory for each worker
    directory, result = base / name, base / f"{name}.pickle"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            shutil.rmtree(directory, ignore_errors=True)  # an attempt that failed
            directory.mkdir()
            made = make(directory)
            result.write_bytes(pickle.dumps(made))
            return made
    found: Made = pickle.loads(result.read_bytes())
    return found
