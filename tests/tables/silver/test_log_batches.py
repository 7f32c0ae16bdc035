"""silver.log_batches: which copy of a batch speaks, and what supersedes the others."""

from __future__ import annotations

import pytest

from tests.testing.copies_of_logs import CASES, Rows


@pytest.mark.parametrize("topic", CASES)
def test_which_copy_speaks(topic: str, copies_of_logs: dict[str, tuple[Rows, Rows]]) -> None:
    _, speaks, gone, _ = CASES[topic]
    batches, _ = copies_of_logs[topic]
    names = ("base_offset", "last_offset", "leader_epoch")
    assert sorted(tuple(row[name] for name in names) for row in batches if row["superseded_by"] is None) == speaks
    names = ("base_offset", "leader_epoch", "superseded_by")
    assert sorted(tuple(row[name] for name in names) for row in batches if row["superseded_by"]) == gone
