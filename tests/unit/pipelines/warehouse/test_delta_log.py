"""The files of a Delta log: an action a line, whatever its texts contain."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.warehouse.delta_log import actions_of


@given(st.lists(st.dictionaries(st.text(), st.text()), max_size=4), st.booleans())
def test_each_line_is_an_action(actions: list[dict[str, str]], ends: bool) -> None:
    text = "\n".join(json.dumps(action, ensure_ascii=False) for action in actions) + "\n" * (ends and bool(actions))
    assert actions_of(text) == actions


@pytest.mark.parametrize("character", ["\x85", "\u2028", "\u2029", "\x1c"])
def test_only_newlines_end_lines(character: str) -> None:
    text = json.dumps({"add": {"stats": character}}, ensure_ascii=False)
    assert actions_of(f"{text}\n{{}}\n") == [{"add": {"stats": character}}, {}]


@pytest.mark.parametrize("text", ["\n", "{}\n\n", "{}\n\n{}\n", "{"])
def test_a_line_without_an_action_is_damage(text: str) -> None:
    with pytest.raises(ValueError, match=r"line 1"):
        actions_of(text)
