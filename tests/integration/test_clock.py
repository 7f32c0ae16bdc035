"""Commands whose clock went back: nothing is lost, written twice or removed early, and the doctor says so."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from pipelines.warehouse import backups
from tests.testing import other_clock
from tests.testing.builders import land, line, tables, warehouse_of

NOW = timedelta()
LETTERS = "silver.dlq_records"
RETENTION = '[retention]\nbronze = "30 days"\nquarantine = "30 days"\nquality = "30 days"\n'


BEHIND = timedelta(days=365)


@pytest.mark.thorough
def test_a_clock_that_goes_back_a_year_and_is_set_right(empty_warehouse: Path, tmp_path: Path) -> None:
    library = other_clock.library(tmp_path)
    settings, config = warehouse_of(empty_warehouse, tmp_path), tmp_path / "afterlog.toml"
    config.write_text(RETENTION, encoding="utf-8")
    place = {"SETTINGS": str(config), "WAREHOUSE": settings.warehouse, "LANDING": str(settings.landing)}
    copies = str(tmp_path / "backups")

    def afterlog(*command: str, shift: timedelta) -> str:
        done = subprocess.run(
            [sys.executable, "-c", "from pipelines.cli import main; main()", *command],
            env=other_clock.environment(library, shift) | {f"AFTERLOG_{name}": item for name, item in place.items()},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0 or command[0] == "doctor", done.stderr
        return done.stdout

    def run(batch: int, shift: timedelta) -> None:
        land(settings, {f"{batch}.jsonl": [line(3 * batch + offset) for offset in range(3)]})
        afterlog("run", "--feed", "dlq", shift=shift)

    def clocks(shift: timedelta) -> list[str]:
        told = map(json.loads, afterlog("doctor", "--format", "json", shift=shift).splitlines())
        return [row["finding"] for row in told if row["name"] == "clock"]

    def nothing_goes(shift: timedelta) -> None:
        before = tables(settings)
        told = json.loads(afterlog("maintain", "--format", "json", shift=shift))
        assert sum(row["rows"] + row["files"] for row in told["tables"]) == 0
        assert tables(settings) == before

    run(0, NOW)
    afterlog("backup", copies, "--keep", "1", shift=NOW)
    run(1, -BEHIND)
    assert clocks(-BEHIND) == ["This machine's clock is 364 days behind what the warehouse has written."]
    later = afterlog("backup", copies, "--keep", "1", shift=-BEHIND)
    (kept,) = backups.known(backups.place_of(copies))
    assert kept in later
    nothing_goes(-BEHIND)
    nothing_goes(NOW)
    run(2, NOW)
    assert clocks(NOW) == []
    nothing_goes(NOW)
    assert sorted(row["dlq_offset"] for row in tables(settings)[LETTERS]) == [*range(9)]
    shutil.rmtree(settings.warehouse)
    afterlog("restore", copies, shift=NOW)
    assert len(tables(settings)[LETTERS]) == 6
