"""Each reason of ineligibility alone: what makes a record not eligible, and what lets it pass."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from pipelines.replay import judge
from pipelines.replay.accepted import COLUMNS
from pipelines.replay.candidate import Candidate, Replay
from pipelines.replay.client import Topic
from pipelines.replay.judge import Options
from pipelines.replay.model import Letter
from pipelines.replay.rules import Action
from pipelines.replay.states import State
from pipelines.settings import ROOT

REPLAY = Replay("PLAN", Letter("dlq.a", "id", 0, 1), None, True)


def candidate(**values: Any) -> Candidate:
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {"dlq_topic": "dlq.a", "dlq_topic_id": "id", "dlq_partition": 0, "dlq_offset": 1}
    row |= {"original_topic": "a", "original_partition": 1, "original_offset": 5, "payload_copied": True}
    facts = {name: values.pop(name) for name in list(values) if name in Candidate.__dataclass_fields__}
    return Candidate(row | values, **facts)


@pytest.mark.parametrize(
    ("facts", "action", "options", "reasons"),
    [
        ({}, "REVIEW", Options(), []),
        ({"state": "quarantined"}, "REVIEW", Options(), ["quarantined"]),
        ({"state": "held", "lossy_encoding": True}, "HOLD", Options(), ["held"]),
        ({"copies": 2, "dlq_topic_id": None}, "REVIEW", Options(), ["ambiguous_place"]),
        ({"copies": 2}, "REVIEW", Options(), []),
        ({"is_marker": True}, "REVIEW", Options(), ["control_marker"]),
        ({"control_marker_suspected": True}, "REVIEW", Options(), ["control_marker_suspected"]),
        ({"control_marker_suspected": True, "is_marker": False}, "REVIEW", Options(), []),
        ({"is_aborted": True}, "REVIEW", Options(), ["aborted_transaction"]),
        ({"write_state": "ABORTED"}, "REVIEW", Options(), ["rolled_back"]),
        ({"write_state": "COMMITTED"}, "REVIEW", Options(), []),
        ({"replayed": REPLAY, "attempt": 2}, "REVIEW", Options(), ["replayed_before"]),
        ({"replayed": REPLAY, "attempt": 2}, "REVIEW", Options(again=True, max_replays=0), []),
        ({"attempt": 2}, "REVIEW", Options(max_replays=1), []),
        ({"attempt": 3}, "REVIEW", Options(max_replays=1), ["died_after_replay"]),
        ({"is_discarded": True}, "REVIEW", Options(), ["discarded"]),
        ({"is_discarded": True}, "REVIEW", Options(again=True), []),
        ({"is_discarded": True}, "DISCARD", Options(), ["discarded", "discard"]),
        ({"is_discarded": True, "is_discarded_by_rule": True}, "DISCARD", Options(), ["discard"]),
        ({"is_discarded": True, "is_discarded_by_rule": True}, "REVIEW", Options(), ["discarded"]),
        ({"is_discarded": True, "is_discarded_by_rule": True}, "DISCARD", Options(ignore_rules=True), []),
        ({}, "HOLD", Options(), ["hold"]),
        ({}, "DISCARD", Options(), ["discard"]),
        ({}, "DISCARD", Options(ignore_rules=True), []),
        ({"lossy_encoding": True}, "REVIEW", Options(), ["lossy_encoding"]),
        ({"masked": ["key"], "lossy_encoding": True}, "REVIEW", Options(), ["masked"]),
        ({"original_topic": None}, "REVIEW", Options(), ["no_source"]),
        ({"original_topic": None}, "REVIEW", Options(to="b"), []),
        ({"original_topic_id": "id"}, "REVIEW", Options(), ["topic_is_id"]),
        ({"original_topic_id": "id"}, "REVIEW", Options(to="b"), []),
    ],
)
def test_tables_and_rules(facts: dict[str, Any], action: Action, options: Options, reasons: list[str]) -> None:
    assert judge.of_record(candidate(**facts), action, options) == reasons
    assert set(reasons) <= judge.REASONS.keys()


TARGET = Topic("a", "id", 2, ends=(10, 6), is_dead_letter_topic=False, may_write=True)


@pytest.mark.parametrize(
    ("facts", "options", "target", "reasons"),
    [
        ({}, Options(), TARGET, []),
        ({}, Options(), None, ["target_gone"]),
        ({}, Options(to="b"), replace(TARGET, name="b", is_dead_letter_topic=True), ["loop"]),
        ({"original_partition": 2}, Options(), TARGET, ["partition_gone"]),
        ({"original_partition": 2}, Options(to="b"), replace(TARGET, name="b"), []),
        ({"original_offset": 6}, Options(), TARGET, ["target_recreated"]),
        ({"original_offset": 6}, Options(to="b"), replace(TARGET, name="b"), []),
        ({"original_partition": None, "original_offset": None}, Options(), TARGET, []),
        ({}, Options(), replace(TARGET, may_write=False), ["not_allowed"]),
        ({}, Options(), replace(TARGET, may_write=None), []),
        ({"original_topic": None}, Options(), TARGET, []),
    ],
)
def test_targets(facts: dict[str, Any], options: Options, target: Topic | None, reasons: list[str]) -> None:
    targets = {target.name: target} if target else {}
    assert judge.of_target(candidate(**facts), options, targets) == reasons
    assert set(reasons) <= judge.REASONS.keys()


def test_size_is_that_of_a_batch_of_one_record() -> None:
    small = replace(TARGET, max_message_bytes=2_000)
    assert not judge.is_too_large(b"k", b"v" * 1_000, [("h", b"x" * 100)], small)
    assert judge.is_too_large(b"k", b"v" * 1_000, [("h", b"x" * 800)], small)
    assert judge.is_too_large(b"k" * 1_000, b"v" * 1_000, [], small)
    assert not judge.is_too_large(b"k", b"v" * 10_000_000, [], TARGET)


def test_the_documentation_has_each_reason_in_the_same_words() -> None:
    text = (ROOT / "docs" / "replay.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| `([a-z_]+)` \| (.*) \|$", text, re.MULTILINE)) == judge.REASONS
    assert set(re.findall(r"`--allow ([a-z_]+)`", text)) == set(judge.DOUBTS)
    states = re.findall(r"^\| `([A-Z]+)` \|", text, re.MULTILINE)
    assert sorted(states) == sorted(state.value for state in State)
