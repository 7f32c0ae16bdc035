"""What runs write to quality.*: counts per stage, results per expectation, gaps in topics.

Counts and results go to a small state file at once, and to the Delta tables when the run ends, in one commit per table.
A killed run loses none of them, because the next run reports what it finds in the file. Gaps wait in the progress of
the stage that found them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from expectations.quality import EXPECTATION_RESULTS, GAPS, STAGE_RUNS
from expectations.verdict import Verdict
from pipelines.errors import EnvironmentLacking
from pipelines.kafka.offsets import Gap
from pipelines.stores.base import STATE
from pipelines.warehouse.tables import Warehouse

UNREPORTED = "unreported.json"
NOTED = (STAGE_RUNS, EXPECTATION_RESULTS)
Status = Literal["passed", "broken", "failed", "idle", "waiting", "held"]
Row = dict[str, Any]
"""A row of a quality table; times are texts."""

_hearing: list[Callable[[Sequence[Row]], object]] = []


@dataclass(frozen=True)
class StageRun:
    """What one run did to one table.

    Nothing is reported about a stage that is ``idle`` (no new input), ``waiting`` or ``held`` (rows wait as before and
    were not judged again). ``refreshed`` counts the rows of the groups that a summarised table computed again; it is
    None for other tables. ``warns`` tells that the message of a stage that passed is for people. ``engine`` decided
    about the rows, or computed them, for ``engine_reason``. ``cluster`` is the one of several whose feed landed.
    """

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
    held: int = 0
    input_from: int | None = None
    input_to: int | None = None
    message: str | None = None
    verdict: Verdict | None = None
    refreshed: int | None = None
    warns: bool = False
    engine: str | None = None
    engine_reason: str | None = None
    cluster: str | None = None

    @property
    def name(self) -> str:
        """The table for people, with the cluster if the row is about one of several."""
        return self.table if self.cluster is None else f"{self.table} ({self.cluster})"

    @property
    def refused(self) -> bool:
        """True if the gate broke and holds nothing that a later batch may release: failing rows are in quarantine."""
        judged = self.verdict is not None and self.verdict.candidates > 0  # facts of a table have no candidates
        return self.status == "broken" and judged and not self.held

    @property
    def written(self) -> int:
        """Rows written to the table."""
        return self.accepted if self.refreshed is None else self.refreshed

    @property
    def seconds(self) -> float:
        """Wall-clock seconds."""
        return (self.finished_at - self.started_at).total_seconds()

    def as_json(self) -> dict[str, Any]:
        """Return the values that the command line and Airflow show."""
        counts = ("read", "accepted", "quarantined", "duplicates", "skipped", "held", "written")
        texts = ("message", "engine", "engine_reason")
        shown: dict[str, Any] = {name: getattr(self, name) for name in ("table", "status", *counts, *texts)}
        shown["seconds"] = round(self.seconds, 3)
        shown["verdict"] = self.verdict.summary() if self.verdict else None
        return shown if self.cluster is None else {"cluster": self.cluster, **shown}


def note(warehouse: Warehouse, stage_run: StageRun) -> None:
    """Save a stage's counts and its gate's results in the state file until the run reports them.

    What a stage did on the rows of several clusters at once is about none of them.
    """
    cluster = warehouse.settings.sole_cluster
    ran = asdict(stage_run) | {"cluster": cluster, "seconds": round(stage_run.seconds, 3)}
    ran["written"] = stage_run.written
    results = [
        asdict(outcome)
        | {
            "run_id": stage_run.run_id,
            "cluster": cluster,
            "table": stage_run.table,
            "expectation": outcome.code,
            "observed": outcome.failing / outcome.candidates if outcome.candidates else 0.0,
            "examined_at": stage_run.finished_at,
        }
        for outcome in (stage_run.verdict.outcomes if stage_run.verdict else ())
    ]
    unreported = _unreported(warehouse)
    if stage_run.status == "passed":  # a landing stage saves its counts so far repeatedly
        noted = unreported[STAGE_RUNS.table]
        unreported[STAGE_RUNS.table] = [
            row for row in noted if row["cluster"] != cluster or not _speaks_of(row, stage_run)
        ]
    for contract, objects in ((STAGE_RUNS, [ran]), (EXPECTATION_RESULTS, results)):
        names = [column.name for column in contract.columns]
        unreported[contract.table] += [{name: row[name] for name in names} for row in objects]
    _note(warehouse, unreported)


def _speaks_of(noted: dict[str, Any], stage_run: StageRun) -> bool:
    same = (stage_run.run_id, stage_run.table, stage_run.status, stage_run.started_at.isoformat())
    return (noted["run_id"], noted["table"], noted["status"], noted["started_at"]) == same


def record_gaps(warehouse: Warehouse, table: str, gaps: Sequence[Gap]) -> None:
    """Insert the gaps that quality.gaps does not have yet."""
    objects = [
        {
            "run_id": gap.run_id,
            "cluster": warehouse.cluster,
            "table": table,
            "topic": gap.span.topic,
            "topic_id": gap.span.topic_id,
            "partition": gap.span.partition,
            "from_offset": gap.span.start,
            "to_offset": gap.span.end,
            "found_at": gap.found_at,
        }
        for gap in gaps
    ]
    rows = warehouse.rows_of_objects(GAPS, objects)
    existing_rows = warehouse.existing_rows(GAPS.table)
    if existing_rows is not None:
        rows = rows.join(existing_rows.select(*GAPS.grain), [*GAPS.grain], how="left_anti")
    warehouse.insert(rows, GAPS)


def report(warehouse: Warehouse) -> None:
    """Append the unreported rows to the quality tables, empty the state file, and pass the stages' rows on."""
    unreported = _unreported(warehouse)
    if not any(unreported.values()):
        return
    for contract in NOTED:
        if objects := unreported[contract.table]:
            warehouse.append_objects(contract, objects)
    _note(warehouse, {})
    for hear in _hearing:
        hear(unreported[STAGE_RUNS.table])


@contextlib.contextmanager
def heard(hear: Callable[[Sequence[Row]], object]) -> Iterator[None]:
    """Pass on the rows that quality.stage_runs gets while the context lasts, also those of earlier runs."""
    _hearing.append(hear)
    try:
        yield
    finally:
        _hearing.remove(hear)


def waiting(warehouse: Warehouse) -> bool:
    """Tell whether an earlier run was killed before it reported."""
    return any(_unreported(warehouse).values())


def _note(warehouse: Warehouse, unreported: dict[str, list[dict[str, Any]]]) -> None:
    text = json.dumps(unreported, default=datetime.isoformat)
    warehouse.store.write(f"{STATE}/{UNREPORTED}", text.encode())


def _unreported(warehouse: Warehouse) -> dict[str, list[dict[str, Any]]]:
    text = warehouse.store.text(f"{STATE}/{UNREPORTED}")
    try:
        noted: dict[str, list[dict[str, Any]]] = json.loads(text) if text else {}
        return {contract.table: noted.get(contract.table, []) for contract in NOTED}
    except (ValueError, AttributeError):
        raise EnvironmentLacking(
            f"The file {STATE}/{UNREPORTED} in {warehouse.shown} is damaged: move it away and run again; "
            f"only the counts of the last run are in it."
        ) from None
