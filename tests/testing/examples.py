"""How many examples a property test tries that takes seconds: fewer where the tests that take long do not run."""

from __future__ import annotations

import hypothesis

_SHARE = 0.4
_thorough: list[bool] = []


def configure(is_thorough: bool) -> None:
    """Say, before tests are imported, whether the tests that take long run, too."""
    _thorough[:] = [is_thorough]


def at_most(examples: int) -> hypothesis.settings:
    """Return the settings of a property test that tries so many examples if the tests that take long run."""
    return hypothesis.settings(max_examples=examples if any(_thorough) else round(examples * _SHARE))
