"""Temporary files of real processes: they end with the process, however it ends in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.run import interrupt
from pipelines.settings import ROOT

SCRIPT = """
import os, time
from pathlib import Path
from pipelines import scratch
from pipelines.run import interrupt, stop as stops
stops.CUT_OFF_SECONDS, stops.LEAVE_SECONDS = 0.2, 0.4
with {within}:
    made = Path(scratch.directory("duckdb"))
    (made / "rows").write_text("a payload")
    shared = Path(scratch.below(os.environ["SHARED"]))
    (shared / "lines").write_text("a payload")
    assert shared.parent.stat().st_mode == shared.stat().st_mode, "others can read it"
    assert shared.name.startswith("."), "no landed file"
    print(made.parent, oct(made.parent.stat().st_mode & 0o777), flush=True)
    {then}
"""
ENDS = {
    "by itself": ("interrupt.heard()", "pass", None, 0),
    "by an error": ("interrupt.heard()", "raise SystemExit(3)", None, 3),
    "by Ctrl-C": ("interrupt.heard()", "time.sleep(60)", signal.SIGINT, interrupt.EXIT_CODE),
    "by SIGTERM while it waits": ("stops.Stop(lambda: 7)", "time.sleep(60)", signal.SIGTERM, 7),
}


@pytest.mark.parametrize("end", ENDS)
def test_temporary_files_end_with_the_process(end: str, tmp_path: Path) -> None:
    within, then, number, code = ENDS[end]
    shared, own = tmp_path / "shared", tmp_path / "own"
    for directory in (shared, own):
        directory.mkdir()
    shared.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(within=within, then=then)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(own), "SHARED": str(shared)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    whole, mode = process.stdout.readline().split()
    if number:
        process.send_signal(number)
    assert process.wait(timeout=60) == code
    assert (Path(whole).parent, mode) == (own.resolve(), "0o700")
    assert [*own.iterdir(), *shared.iterdir()] == []
