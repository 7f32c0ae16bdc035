"""What a run prints: complete without a terminal, and within the width of a terminal."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from pipelines.catalog import CATALOG
from pipelines.commands import display, tabular
from pipelines.commands.check import Check
from pipelines.commands.doctor import show
from pipelines.warehouse.quality import StageRun

AT = datetime(2026, 3, 1, tzinfo=UTC)
HEADERS = ["stage", "status", "read", "accepted", "quarantined", "duplicates", "skipped", "held", "written", "seconds"]


def stage_runs() -> list[StageRun]:
    counts = {"read": 123_456_789, "accepted": 100_000_000, "quarantined": 3, "skipped": 23_456_786, "held": 12}
    done = [StageRun("r", stage.table, "passed", AT, AT, **counts) for stage in CATALOG]  # type: ignore[arg-type]
    return [*done, StageRun("r", "silver.dlq_records", "broken", AT, AT, message="a\x1b[31m[red] " + "x" * 300)]


def test_a_pipe_gets_every_header_and_number_in_one_line_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    display.stage_runs(stage_runs())
    header, _, *rows, message = capsys.readouterr().out.splitlines()
    assert header.split() == HEADERS
    assert [row.split() for row in rows[:-1]] == [
        [stage.table, "passed", "123,456,789", "100,000,000", "3", "0", "23,456,786", "12", "100,000,000", "0.0"]
        for stage in CATALOG
    ]
    assert message == "silver.dlq_records: a\\u001b[31m[red] " + "x" * 300


def test_80_columns_hold_every_header_and_number(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tabular, "terminal_width", lambda out: 80)
    display.stage_runs([replace(run, duplicates=1) for run in stage_runs()])
    *shown, _ = capsys.readouterr().out.splitlines()
    assert max(map(len, shown)) <= 80
    text = "\n".join(shown)
    assert all(header in text for header in HEADERS if header != "written")  # it equals `accepted`
    assert text.count("123,456,789") == len(CATALOG)
    assert all(stage.table in text.replace("\n", "") or stage.table.split("_")[0] in text for stage in CATALOG)


def test_80_columns_hold_a_run_without_columns_that_say_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tabular, "terminal_width", lambda out: 80)
    display.stage_runs([StageRun("r", stage.table, "passed", AT, AT, read=1_234, accepted=1_234) for stage in CATALOG])
    header, _, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["stage", "status", "read", "accepted", "quarantined", "written", "seconds"]
    assert [row.split()[0] for row in rows] == [stage.table for stage in CATALOG]


def test_a_finding_of_the_doctor_is_whole_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    show([Check("landing streams-requests", "error", "finding " * 40, "remedy " * 40)])
    _, _, finding, remedy, _summary = capsys.readouterr().out.splitlines()
    assert finding.split() == ["landing", "streams-requests", "error", *["finding"] * 40]
    assert remedy.split() == ["remedy"] * 40


@pytest.mark.parametrize(("columns", "width"), [(132, 132), (0, 80)])
def test_a_terminal_without_a_known_width_has_80_columns(
    monkeypatch: pytest.MonkeyPatch, columns: int, width: int
) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((columns, 24)))
    main, side = os.openpty()
    with os.fdopen(side, "w") as terminal, os.fdopen(main, "rb"):
        assert tabular.terminal_width(terminal) == width
    with open(os.devnull, "w") as nowhere:
        assert tabular.terminal_width(nowhere) is None
