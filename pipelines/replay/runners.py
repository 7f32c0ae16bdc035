"""Which process runs a plan: one at a time."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from pipelines.errors import UsageError, WriterBusy
from pipelines.stores.base import Store

_LOCK_SECONDS = 1.0  # who only asks whether a plan runs holds its lock for a moment


@contextlib.contextmanager
def alone(store: Store, plan_id: str) -> Iterator[None]:
    """Be the only runner of a plan; if the process dies, a directory's lock ends, on an object store after 30 s.

    Raises WriterBusy: another process runs the plan.
    """
    with store.lock(_lock_of(plan_id), f"plan {plan_id}", _LOCK_SECONDS) as is_held:
        if not is_held:
            raise WriterBusy(f"Another process runs plan {plan_id}: wait for it, or pause the plan.")
        yield


def is_running(store: Store, plan_id: str) -> bool:
    """Tell whether a process runs a plan."""
    return store.is_locked(_lock_of(plan_id))


def _lock_of(plan_id: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", plan_id):
        raise UsageError("A plan has letters, digits, hyphens and underscores in its id.")
    return f"{plan_id}.lock"
