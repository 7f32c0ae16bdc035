"""catalog -> DAG: one task a table, an edge for each input within the feed, then the reports."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Asset, Param, TriggerRule

from dags.operators import BuildReports, FillTable, Outcome, tell_failure
from pipelines.airflow_runs import POOL
from pipelines.catalog import stages
from pipelines.stage import Stage

PRINTABLE = r"^(?!-)(?=[\s\S]*\S)(?![\s\S]*[\x00-\x1f\x7f])"
"""Not an option, not blank, no control character; written so that Python and browsers read it alike."""

_DOC = """\
The feed `{feed}`, from its landing directory to gold, once for what is new.

| table | from | kept by |
|---|---|---|
{rows}

Each table task runs `afterlog run --only TABLE`; its log streams here, its counts and verdict are its XCom and the
extra of its asset. `reports` runs also after a broken gate. `outcome` is green only where all else is.

**A table task is red.** The last line of its log says which table, why, and what to do next. A broken contract is not
retried: nothing of the batch was written, and the next run takes the same batch first. A busy warehouse and a crash are
retried twice.

**Parameters.** `landing` and `warehouse` (a directory or a URI) override the settings for one run.
"""


def asset_of(table: str) -> Asset:
    """Return the asset that stands for a table of the warehouse."""
    return Asset(name=table, uri=f"x-afterlog://warehouse/{table.replace('.', '/')}", group="afterlog")


def feed_dag(feed: str, schedule: str | None) -> DAG:
    """Return the DAG of a feed, its id the feed's name.

    All feeds share a pool of one slot, as one process at a time may write to a local warehouse.
    """
    filled = stages(feed)
    with DAG(
        dag_id=feed,
        schedule=schedule,
        catchup=False,
        max_active_runs=1,
        description=f"{filled[0].table} to {filled[-1].table}, each step held to its contract",
        doc_md=_DOC.format(feed=feed, rows="\n".join(_row(stage) for stage in filled)),
        tags=["afterlog", feed],
        params={
            "landing": _place("Landing directory; empty: as in the settings."),
            "warehouse": _place("Warehouse directory or URI; empty: as in the settings."),
        },
        default_args={
            "owner": "afterlog",
            "pool": POOL,
            "retries": 2,
            "retry_delay": timedelta(minutes=1),
            "execution_timeout": timedelta(hours=1),
            "on_failure_callback": tell_failure,
        },
    ) as dag:
        tasks = {
            stage.table: FillTable(
                task_id=stage.table,
                table=stage.table,
                inlets=[asset_of(table) for table in stage.inputs],
                outlets=[asset_of(stage.table)],
            )
            for stage in filled
        }
        reports = BuildReports(
            task_id="reports",
            tables=list(tasks),
            trigger_rule=TriggerRule.ALL_DONE,
            outlets=[Asset(name=f"reports.{feed}", uri=f"x-afterlog://reports/{feed}", group="afterlog")],
        )
        outcome = Outcome(task_id="outcome", retries=0)
        for stage in filled:
            for table in stage.inputs:
                if table in tasks:
                    tasks[table] >> tasks[stage.table]
        for task in tasks.values():
            if not task.downstream_task_ids:
                task >> [reports, outcome]
        reports >> outcome
    return dag


def _place(description: str) -> Param:
    return Param(None, description, type=["null", "string"], minLength=1, maxLength=1024, pattern=PRINTABLE)


def _row(stage: Stage) -> str:
    kept = {"land": "everything lands", "split": "gate, quarantine", "summarise": "gate"}[stage.kind]
    return f"| `{stage.table}` | {', '.join(f'`{table}`' for table in stage.inputs) or 'landing'} | {kept} |"
