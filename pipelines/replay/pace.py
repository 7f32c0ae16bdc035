"""A rate of records a second -> when the next batch may go, and how large it is."""

from __future__ import annotations

import time
from collections.abc import Callable

_BATCHES_A_SECOND = 10
_JITTER = 0.25  # of a batch's time, which the next one makes up for


class Pace:
    """Keeps a rate (None: as fast as it goes); ``clock`` returns seconds.

    Batches are small at low rates, so that records flow evenly. What a delay held up is not made up for: no second has
    more records than the rate, but for those of two batches.
    """

    def __init__(self, rate: float | None, batch: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the rate and the largest size of a batch."""
        self.size = batch if rate is None else max(1, min(batch, round(rate / _BATCHES_A_SECOND)))
        self._rate = rate
        self._clock = clock
        self._due = self._began = clock()

    @property
    def wait(self) -> float:
        """The seconds until the next batch may go; not above 0 if it may go now."""
        now = self._clock()
        self._began = max(now, self._due)
        return 0.0 if self._rate is None else self._due - now

    def sent(self, count: int) -> None:
        """Count records that went."""
        if self._rate is not None:
            seconds = count / self._rate
            is_late = self._began - self._due > _JITTER * seconds
            self._due = max((self._began if is_late else self._due) + seconds, self._clock())
