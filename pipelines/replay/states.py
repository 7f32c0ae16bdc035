"""Where a plan stands, as the journal of its runs knows it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Where a plan stands.

    READY: it can be run, also after a run that was interrupted. FAILED: a run ended with an error. EXPIRED: it must not
    be run any more, as rules and tables tell; the journal does not know it.
    """

    READY = "READY"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FINISHED = "FINISHED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    EXPIRED = "EXPIRED"


class Request(StrEnum):
    """What somebody asked a runner to do."""

    PAUSE = "PAUSE"
    CANCEL = "CANCEL"


@dataclass(frozen=True)
class Status:
    """A plan's state, why it is so, and what its runs counted.

    ``attempted``, ``replayed`` and ``skipped`` count records. ``since_planned`` is False if the journal may have been
    lost since the plan was written, so that runs can have attempted more than it knows. ``request`` is what its runner
    has still to do: with CANCEL and no runner, the next run cancels the plan, once it knows what stands on the target.
    ``exit_code`` is that of the last run, if it ended.
    """

    plan_id: str
    state: State
    sentence: str | None
    request: Request | None
    since_planned: bool
    attempted: int
    replayed: int
    skipped: int
    exit_code: int | None = None

    @property
    def can_run(self) -> bool:
        """Whether a run has something to do: to replay, or to cancel."""
        is_over = self.state in (State.FINISHED, State.CANCELLED)
        return not is_over and (self.state is not State.PAUSED or self.request is Request.CANCEL)

    @property
    def is_untouched(self) -> bool:
        """Whether certainly no run attempted a batch."""
        return self.since_planned and not self.attempted
