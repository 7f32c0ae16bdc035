"""A warehouse -> a backup of it in the place that `[backup]` names: the Airflow DAG `backup`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Context

from dags.factory import defaults, location
from dags.operators import CommandOperator
from pipelines import settings
from pipelines.errors import UsageError

COPIED = ("copied_files", "copied_bytes")
_DOC = """\
Copies what is new in the warehouse to the place that `to` of `[backup]` names, as `afterlog backup` does, every
`every_hours`, and keeps the newest `keep` backups. Without `to` nothing is scheduled, and a run that somebody triggers
fails. Feeds run meanwhile, as the writer's lock is held for a moment only; a busy warehouse is retried. The XCom names
the backup, and says how many files and bytes were copied.
"""


class Backup(CommandOperator):
    """Run `afterlog backup`."""

    def __init__(self, **options: Any) -> None:
        """Take what every task takes."""
        super().__init__(arguments=["backup", "--format", "json"], **options)

    def work(self, context: Context) -> dict[str, str | int]:
        """Return the backup's id, and how many files and bytes were copied for it.

        Raises CannotRun, WriterBusy, CommandDied.
        """

        def made(answer: Any) -> dict[str, str | int]:
            return {"backup": str(answer["backup"])} | {name: int(answer[name]) for name in COPIED}

        return self._answer(context, made)


def _schedule() -> timedelta | None:
    """Return how often a backup is made; None if the settings name no place, or cannot be read."""
    try:
        found = settings.load().backup
    except UsageError:
        return None
    return None if found.to is None else timedelta(hours=found.every_hours)


with DAG(
    dag_id="backup",
    schedule=_schedule(),
    catchup=False,
    max_active_runs=1,
    description="copies the warehouse to a place from which it can be restored",
    doc_md=_DOC,
    tags=["afterlog", "backup"],
    params={"warehouse": location("Warehouse directory or URI; empty: as in the settings.")},
    default_args=defaults(retry_delay=timedelta(minutes=10), execution_timeout=timedelta(hours=12)),
) as dag:
    Backup(task_id="backup")
