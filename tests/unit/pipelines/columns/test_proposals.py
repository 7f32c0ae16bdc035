"""Profiles that are proposed for letters of unknown writers: what they place, and that they read what was written."""

from __future__ import annotations

import random

import pytest

from pipelines.columns.headers import read
from pipelines.columns.profiles import profiles_of
from pipelines.columns.proposals import pasted_profile, proposals
from pipelines.settings import Dlq
from tests.testing.made_up_writers import made_up


@pytest.mark.parametrize("seed", range(200))
@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_pasted_proposals_read_what_made_up_writers_wrote(seed: int, number: int) -> None:
    seeded = random.Random(seed)
    writers = [made_up(seeded, at) for at in range(number)]
    written = [writer.letter(seeded, at) for writer in writers for at in range(30)]
    seeded.shuffle(written)
    made = proposals([letter for letter, _ in written], Dlq())
    pasted = Dlq(profile=tuple(pasted_profile(one.toml) for one in made))
    shown = "\n".join(f"{one.toml}\n{one.tried}" for one in made)
    for letter, texts in written:
        plan, found = read(letter.headers, profiles_of(pasted), letter.topic)
        assert plan.is_complete, shown
        assert {field: found.get(field) for field in texts} == texts, f"{shown}\n{writers}"
    assert [one.whole for one in made] == [30] * number
    assert "anna" not in shown
