"""A warehouse -> the same without what nobody reads any more: the Airflow DAG `maintain`, once a day."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Context

from dags.factory import defaults, location
from dags.operators import CommandOperator
from pipelines.catalog import POOL

WENT = ("files", "log_files", "bytes", "rows")
_DOC = """\
Removes rows that are older than `[retention]` says, files of old versions, leftovers of crashed writes and what logs
tell of old versions, as `afterlog maintain` does. Files that are younger than seven days stay, and so does what a stage
has still to read. The XCom says how many rows, files and bytes went.
"""


class Maintain(CommandOperator):
    """Run `afterlog maintain`."""

    def __init__(self, **options: Any) -> None:
        """Take what every task takes."""
        super().__init__(arguments=["maintain", "--format", "json"], **options)

    def work(self, context: Context) -> dict[str, int]:
        """Return how many files, files of logs, bytes and rows went.

        Raises CannotRun, WriterBusy, CommandDied.
        """
        return self._answer(context, lambda answer: {name: int(answer[name]) for name in WENT})


with DAG(
    dag_id="maintain",
    schedule="@daily",
    catchup=False,
    max_active_runs=1,
    description="removes files that nobody reads any more",
    doc_md=_DOC,
    tags=["afterlog", "maintain"],
    params={"warehouse": location("Warehouse directory or URI; empty: as in the settings.")},
    default_args=defaults(pool=POOL, execution_timeout=timedelta(hours=6)),
) as dag:
    Maintain(task_id="maintain")
