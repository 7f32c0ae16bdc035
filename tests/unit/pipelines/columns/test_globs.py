"""Glob patterns of settings on Python's engine; Java's engine differs only in the end of input."""

from __future__ import annotations

import pytest

from pipelines.columns import globs


@pytest.mark.parametrize(
    ("glob", "name", "matches"),
    [
        pytest.param("*-changelog", "app-store-changelog", True, id="a star before"),
        pytest.param("*-changelog", "app-changelog-2", False, id="to the end"),
        pytest.param("__*", "__consumer_offsets", True, id="a star behind"),
        pytest.param("__*", "x__a", False, id="from the beginning"),
        pytest.param("a.b", "axb", False, id="a dot is a dot"),
        pytest.param("a?b", "a\nb", True, id="any one character"),
        pytest.param("[a]+", "a", False, id="no regular expression"),
        pytest.param("*", "", True, id="nothing"),
    ],
)
def test_a_glob_matches_whole_names(glob: str, name: str, matches: bool) -> None:
    assert globs.matches(glob, name) == matches
