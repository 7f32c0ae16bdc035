"""A rate of records a second -> when the next batch may go, and how large it is."""

from __future__ import annotations

import time
from collections.abc import Callable

_BATCHES_A_SECOND = 10
_CATCH_UP_SECONDS = 1.0


class Pace:
    """Keeps a rate (None: as fast as it goes); ``clock`` returns seconds.

    Batches are small at low rates, so that records flow evenly. After a delay, at most a second of it is made up for.
    """

    def __init__(self, rate: float | None, batch: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the rate and the largest size of a batch."""
        self.size = batch if rate is None else max(1, min(batch, round(rate / _BATCHES_A_SECOND)))
        self._rate = rate
        self._clock = clock
        self._due = clock()

    @property
    def wait(self) -> float:
        """The seconds until the next batch may go; not above 0 if it may go now."""
        return 0.0 if self._rate is None else self._due - self._clock()

    def sent(self, count: int) -> None:
        """Count records that went."""
        if self._rate is not None:
            self._due = max(self._due, self._clock() - _CATCH_UP_SECONDS) + count / self._rate
