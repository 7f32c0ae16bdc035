"""Temporary files of this process, which can hold payloads: one directory for all of them, which ends with the process.

This module imports only the standard library: it is asked to clear up while packages load.
"""

from __future__ import annotations

import os
from functools import cache
from tempfile import TemporaryDirectory


@cache
def _whole() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="afterlog-", ignore_cleanup_errors=True)


def directory(name: str) -> str:
    """Return the directory of one part of Afterlog, such as ``duckdb``; only this user can reach it."""
    path = os.path.join(os.path.realpath(_whole().name), name)
    os.makedirs(path, exist_ok=True)
    return path


def clear() -> None:
    """Remove all temporary files, for a process that ends without unwinding; one that unwinds does so by itself."""
    if _whole.cache_info().currsize:
        _whole().cleanup()
