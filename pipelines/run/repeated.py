"""A warning that each cycle repeats -> said once."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

log = logging.getLogger("afterlog")


class _Once(logging.Filter):
    """Lets a message pass once in a cycle, and only if the cycle before did not have it."""

    def __init__(self) -> None:
        super().__init__()
        self.before: set[str] = set()
        self.seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        known = message in self.before or message in self.seen
        self.seen.add(message)
        return not known

    def new_cycle(self) -> None:
        self.before, self.seen = self.seen, set()


@contextlib.contextmanager
def said_once() -> Iterator[Callable[[], None]]:
    """Log a warning once if each cycle repeats it; yield the function to call after each cycle."""
    found = _Once()
    log.addFilter(found)
    try:
        yield found.new_cycle
    finally:
        log.removeFilter(found)
