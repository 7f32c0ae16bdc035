"""Temporary files of this process, which can hold payloads: they end with the process.

One directory holds all of them but those that other machines must reach.

This module imports only the standard library: it is asked to clear up while packages load.
"""

from __future__ import annotations

import os
from functools import cache
from tempfile import TemporaryDirectory


@cache
def _whole() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="afterlog-", ignore_cleanup_errors=True)


_shared: dict[str, TemporaryDirectory[str]] = {}


def directory(name: str) -> str:
    """Return the directory of one part of Afterlog, such as ``duckdb``; only this user can reach it."""
    path = os.path.join(os.path.realpath(_whole().name), name)
    os.makedirs(path, exist_ok=True)
    return path


def below(parent: str) -> str:
    """Return a hidden directory below one that other machines share; who can read that one can read it, too."""
    if parent not in _shared:
        _shared[parent] = TemporaryDirectory(prefix=".afterlog-", dir=parent, ignore_cleanup_errors=True)
        os.chmod(_shared[parent].name, os.stat(parent).st_mode & 0o777)
    return _shared[parent].name


def clear() -> None:
    """Remove all temporary files, for a process that ends without unwinding; one that unwinds does so by itself."""
    if _whole.cache_info().currsize:
        _whole().cleanup()
    for shared in _shared.values():
        shared.cleanup()
