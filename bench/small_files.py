"""What questions take on tables of many small files, after ``maintain``, and after the files are merged.

A run merges files at every 64th commit of a table (``pipelines/warehouse/commits.py``), so that tables of so many are
those that nobody merges.
"""

from __future__ import annotations

import time
from statistics import median

from deltalake import DeltaTable
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.columns import slices
from pipelines.commands.maintain import maintain
from pipelines.run import contracts
from pipelines.settings import Settings
from pipelines.warehouse.outdated import LEAST_DAYS
from pipelines.warehouse.tables import Warehouse
from tests.testing.deliveries import store
from tests.testing.requests import at

FILES, ROWS, TOPICS, ATTEMPTS = 2_000, 5, 50, 3
LETTERS, LEDGER = "silver.dlq_records", "gold.message_ledger"
QUESTIONS = {
    "sql by topic": ["sql", f"SELECT count(*) FROM {LETTERS} WHERE dlq_topic = 'dlq.7'"],
    "trace": ["trace", "orders:0:17"],
}


def fill(warehouse: Warehouse, files: int) -> None:
    """Append rows to two tables, a few in each commit."""
    for number in range(files):
        numbers = range(number * ROWS, (number + 1) * ROWS)
        common = {"cluster": warehouse.cluster}
        store(
            warehouse.settings,
            LETTERS,
            *(
                common
                | {"_bronze_id": str(n), "dlq_topic": f"dlq.{n % TOPICS}", "dlq_partition": 0, "dlq_offset": n}
                | {"original_topic": "orders", "original_partition": 0, "original_offset": n}
                | {"dlq_timestamp": at(n), "_ingested_at": at(n)}
                for n in numbers
            ),
        )
        store(
            warehouse.settings,
            LEDGER,
            *(
                common | {"slice": slices.name("orders", 0, n), "topic": "orders", "partition": 0, "offset": n}
                for n in numbers
            ),
        )


def measured(settings: Settings, files: int) -> dict[str, dict[str, float]]:
    """Return the seconds of each question by the state of the tables."""
    warehouse = Warehouse(settings)
    warehouse.ensure_all(contracts.contracts())
    fill(warehouse, files)
    seconds = {f"{files:,} small files": _asked(settings)}
    list(maintain(settings, LEAST_DAYS, False, lambda sentence: None))
    seconds["after maintain"] = _asked(settings)
    for table in (LETTERS, LEDGER):
        DeltaTable(warehouse.location(table)).optimize.compact()
    seconds["merged"] = _asked(settings)
    return seconds


def _asked(settings: Settings) -> dict[str, float]:
    """Return the median seconds of each question, asked in this process."""
    found = {}
    for name, command in QUESTIONS.items():
        spent = []
        for _ in range(ATTEMPTS):
            began = time.perf_counter()
            answered = CliRunner().invoke(app, [*command, "--warehouse", settings.warehouse])
            spent.append(time.perf_counter() - began)
            if answered.exit_code:
                raise RuntimeError(f"{name} failed: {answered.output[-300:]}")
        found[name] = median(spent)
    return found
