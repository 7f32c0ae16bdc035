"""The present -> the id of a run."""

from __future__ import annotations

import secrets

from pipelines import moments

LETTERS = "bcdfghjkmnpqrstvwxz"


def new_run_id() -> str:
    """Return an id that sorts by time and is unique.

    It ends with letters, as Great Expectations tries to parse a run's name as a time, with digits there as its zone.
    """
    return f"{moments.now():%Y%m%dT%H%M%S.%fZ}-{''.join(secrets.choice(LETTERS) for _ in range(6))}"
