"""How many examples a property test tries that takes seconds: fewer where the tests that take long do not run."""

from __future__ import annotations

import hypothesis

_SHARE, _LEAST = 0.25, 2
_thorough: list[bool] = []


def configure(is_thorough: bool) -> None:
    """Say, before tests are imported, whether the tests that take long run, too."""
    _thorough[:] = [is_thorough]


def are_many() -> bool:
    """Tell whether the tests that take long run, too."""
    return any(_thorough)


def at_most(examples: int, usually: int | None = None) -> hypothesis.settings:
    """Return the settings of a property test that tries so many examples if the tests that take long run.

    Else it tries ``usually`` as many, by default a share of them.
    """
    fewer = max(_LEAST, round(examples * _SHARE)) if usually is None else usually
    return hypothesis.settings(max_examples=examples if are_many() else min(fewer, examples))
