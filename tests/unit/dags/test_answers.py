"""What a run prints of its tables is what its task reads and says."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from pipelines.warehouse.quality import StageRun, Status

BATCH = {"read": 10, "accepted": 9, "quarantined": 1, "duplicates": 0, "skipped": 0, "held": 0, "written": 9}

PASSED = {**BATCH, "status": "passed", "seconds": 1.5, "verdict": {"passed": True}, "message": None}

BROKEN = {**BATCH, "status": "broken", "seconds": 2.0, "verdict": {"passed": False}}

NOTHING = {**dict.fromkeys(BATCH, 0), "seconds": 0.0, "verdict": None, "message": None}


def answer(*tables: dict[str, Any]) -> str:
    return json.dumps({"run_id": "r", "tables": tables})


def layer(*tables: str) -> Any:
    from dags.operators import FillLayer

    return FillLayer(task_id="silver", feed="f", layer="silver", tables=tables)


def test_a_table_with_two_batches_in_a_run_is_summed_up() -> None:
    from dags.command import Ended

    batches = [{**PASSED, "table": "silver.x"}, {**BROKEN, "table": "silver.x", "message": "It broke."}]
    filled, broke = layer("silver.x")._filled(Ended(1, answer(*batches), ""))
    assert filled == {
        "run_id": "r",
        "tables": {
            "silver.x": {
                "status": "broken",
                "read": 20,
                "accepted": 18,
                "quarantined": 2,
                "duplicates": 0,
                "skipped": 0,
                "held": 0,
                "written": 18,
                "seconds": 3.5,
                "verdict": {"passed": False},
            }
        },
    }
    assert broke == ["It broke."]


@pytest.mark.parametrize("status", ["broken", "held", "waiting"])
def test_what_a_run_prints_of_a_table_is_what_its_task_reads(status: Status) -> None:
    from dags.command import Ended

    stage_run = StageRun("r", "silver.x", status, datetime.now(UTC), datetime.now(UTC), message="silver.x waits.")
    _, broke = layer("silver.x")._filled(Ended(1, answer(stage_run.as_json()), ""))
    assert broke == ["silver.x waits."]


def test_a_table_of_which_something_is_still_held_is_red_whatever_else_passed() -> None:
    from dags.command import Ended

    batches = [{**PASSED, "table": "silver.x"}, {**NOTHING, "table": "silver.x", "status": "held", "message": "Held."}]
    filled, broke = layer("silver.x")._filled(Ended(1, answer(*batches), ""))
    assert (filled["tables"]["silver.x"]["read"], filled["tables"]["silver.x"]["verdict"]) == (10, {"passed": True})
    assert broke == ["Held."]


def test_files_that_a_gate_refused_are_red_whatever_a_later_batch_did() -> None:
    from dags.command import Ended

    refused = {**BROKEN, "table": "silver.x", "verdict": {"passed": False, "candidates": 10}, "message": "No line."}
    _, broke = layer("silver.x")._filled(Ended(1, answer(refused, {**PASSED, "table": "silver.x"}), ""))
    assert broke == ["No line."]


def test_every_gate_that_broke_is_named_and_tables_are_kept_apart() -> None:
    from dags.command import Ended

    rows = [
        {**BROKEN, "table": "silver.x", "message": "The gate of silver.x broke: a\x1b[31m.\u202e"},
        {**PASSED, "table": "silver.y"},
        {**BROKEN, "table": "silver.z", "message": "The gate of silver.z broke: b."},
        {**NOTHING, "table": "silver.of_x", "status": "waiting"},
    ]
    filled, broke = layer("silver.x", "silver.y", "silver.z", "silver.of_x")._filled(Ended(1, answer(*rows), ""))
    assert broke == ["The gate of silver.x broke: a [31m. ", "The gate of silver.z broke: b."]
    assert {table: (counts["status"], counts["read"]) for table, counts in filled["tables"].items()} == {
        "silver.x": ("broken", 10),
        "silver.y": ("passed", 10),
        "silver.z": ("broken", 10),
        "silver.of_x": ("waiting", 0),
    }


def test_a_layer_whose_tables_wait_for_another_layers_is_not_done() -> None:
    from dags.command import Ended

    rows = [{**PASSED, "table": "gold.x"}, {**NOTHING, "table": "gold.y", "status": "waiting"}]
    filled, broke = layer("gold.x", "gold.y")._filled(Ended(1, answer(*rows), ""))
    assert broke == ["gold.y waits."]
    assert filled["tables"]["gold.y"]["status"] == "waiting"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        pytest.param(0, "no JSON", id="no JSON"),
        pytest.param(0, "[]", id="another JSON"),
        pytest.param(0, answer({**PASSED, "table": "silver.other"}), id="a table is missing"),
        pytest.param(0, answer({"table": "silver.x", "status": "passed"}), id="counts are missing"),
        pytest.param(1, answer({**PASSED, "table": "silver.x"}), id="exit code 1 although no gate broke"),
        pytest.param(0, answer({**BROKEN, "table": "silver.x", "message": "It broke."}), id="0 although one broke"),
    ],
)
def test_an_answer_that_is_not_counts_is_worth_another_try(code: int, said: str) -> None:
    from dags.command import Ended
    from dags.operators import CommandDied

    with pytest.raises(CommandDied, match=f"ended with exit code {code}, without counts: last words"):
        layer("silver.x")._filled(Ended(code, said, "last words"))


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        pytest.param(
            PASSED,
            "10 read, 9 accepted, 1 quarantined, 0 duplicates, 0 skipped, 9 written; 1.5 s; the gate held",
            id="passed",
        ),
        pytest.param(
            BROKEN,
            "10 read, 9 accepted, 1 quarantined, 0 duplicates, 0 skipped, 9 written; 2.0 s; the gate broke",
            id="broken",
        ),
        pytest.param(
            {**PASSED, "read": 12345, "verdict": None},
            "12,345 read, 9 accepted, 1 quarantined, 0 duplicates, 0 skipped, 9 written; 1.5 s",
            id="landed",
        ),
        pytest.param(
            {**BROKEN, "read": 40, "held": 30},
            "40 read, 9 accepted, 1 quarantined, 0 duplicates, 0 skipped, 30 held, 9 written; 2.0 s; the gate broke",
            id="held",
        ),
        pytest.param({**NOTHING, "status": "held"}, "what broke its contract is still held", id="still held"),
        pytest.param({**NOTHING, "status": "idle"}, "nothing new", id="idle"),
        pytest.param({**NOTHING, "status": "waiting"}, "waits, as the gate of an input broke", id="waiting"),
    ],
)
def test_a_table_is_one_line_of_the_log(counts: dict[str, Any], sentence: str) -> None:
    from dags.operators import _sentence

    assert _sentence("silver.x", counts) == f"silver.x: {sentence}"
