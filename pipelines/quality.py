"""What runs leave behind in quality.*: counts per stage, results per expectation.

Rows go to a small state file first, at once, and to the Delta tables in one commit a table when the run ends: a run
that is killed loses none of them, since the next one reports what it finds there.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from expectations.quality import EXPECTATION_RESULTS, QUALITY, STAGE_RUNS
from expectations.verdict import Verdict
from pipelines import lakehouse, storage
from pipelines.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNREPORTED = "unreported.json"
Status = Literal["passed", "broken", "failed", "idle", "waiting"]


@dataclass(frozen=True)
class StageRun:
    """What one run did to one table; of an ``idle`` (no new input) or ``waiting`` stage nothing is reported."""

    run_id: str
    table: str
    status: Status
    started_at: datetime
    finished_at: datetime
    read: int = 0
    accepted: int = 0
    quarantined: int = 0
    duplicates: int = 0
    skipped: int = 0
    input_from: int | None = None
    input_to: int | None = None
    message: str | None = None
    verdict: Verdict | None = None

    @property
    def seconds(self) -> float:
        """Wall-clock seconds."""
        return (self.finished_at - self.started_at).total_seconds()

    def as_json(self) -> dict[str, Any]:
        """Return what the command line and Airflow show of it."""
        names = ("table", "status", "read", "accepted", "quarantined", "duplicates", "skipped", "message")
        shown: dict[str, Any] = {name: getattr(self, name) for name in names}
        shown["seconds"] = round(self.seconds, 3)
        shown["verdict"] = self.verdict.summary() if self.verdict else None
        return shown


def now() -> datetime:
    """Return the present, in UTC."""
    return datetime.now(UTC)


def note(settings: Settings, stage_run: StageRun) -> None:
    """Keep a stage's counts and its gate's results until the run reports them."""
    values = asdict(stage_run) | {"cluster": settings.cluster, "seconds": round(stage_run.seconds, 3)}
    verdict = values.pop("verdict")
    run = [values[column.name] for column in STAGE_RUNS.columns]
    results = [
        [
            stage_run.run_id,
            settings.cluster,
            stage_run.table,
            outcome["code"],
            outcome["success"],
            outcome["failing"],
            outcome["candidates"],
            outcome["failing"] / outcome["candidates"] if outcome["candidates"] else 0.0,
            outcome["tolerance"],
            outcome["min_failures"],
            list(outcome["coordinates"]),
            stage_run.finished_at,
        ]
        for outcome in (verdict["outcomes"] if verdict else ())
    ]
    unreported = _unreported(settings)
    unreported.append({STAGE_RUNS.table: [run], EXPECTATION_RESULTS.table: results})
    storage.write_text(settings.warehouse, UNREPORTED, json.dumps(unreported, default=datetime.isoformat))


def report(spark: SparkSession, settings: Settings) -> None:
    """Append what is unreported to the quality tables."""
    unreported = _unreported(settings)
    if not unreported:
        return
    for contract in QUALITY:
        timestamps = [place for place, column in enumerate(contract.columns) if column.type == "timestamp"]
        rows = [row for noted in unreported for row in noted[contract.table]]
        for row in rows:
            for place in timestamps:
                row[place] = datetime.fromisoformat(row[place])
        if rows:
            lakehouse.append_values(spark, settings, contract, (tuple(row) for row in rows))
    storage.write_text(settings.warehouse, UNREPORTED, "[]")


def waiting(settings: Settings) -> bool:
    """Tell whether an earlier run was killed before it reported."""
    return bool(_unreported(settings))


def _unreported(settings: Settings) -> list[dict[str, list[list[Any]]]]:
    text = storage.read_text(settings.warehouse, UNREPORTED)
    noted: list[dict[str, list[list[Any]]]] = json.loads(text) if text else []
    return noted
