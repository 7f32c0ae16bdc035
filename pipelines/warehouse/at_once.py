"""A function and some things -> each is asked of, at most so many at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

CREATED_AT_ONCE = 4
OPENED_AT_ONCE = 16
T = TypeVar("T")


def at_once(most: int, ask: Callable[[T], object], of: Iterable[T]) -> None:
    """Call a function with each of some things, at most so many at the same time."""
    with ThreadPoolExecutor(most) as pool:
        for done in [pool.submit(copy_context().run, ask, each) for each in of]:
            done.result()
