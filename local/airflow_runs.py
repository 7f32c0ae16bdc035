"""Runs inside Airflow's environment: prepares its database, and runs a DAG for each line of standard input."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipelines.catalog import POOL


def prepare() -> None:
    """Create or migrate the database, and create the pool of one slot that allows one writer at a time."""
    from airflow.models.pool import Pool
    from airflow.utils.db import initdb

    initdb()
    Pool.create_or_update_pool(
        POOL, slots=1, description="One writer at a time on a local warehouse", include_deferred=False
    )


def serve(tell: Callable[[dict[str, Any]], None]) -> None:
    """Run a DAG for each line of standard input, ``{"dag": its id, "parameters": {...}}``, and tell its events.

    Airflow takes seconds to start, so one process runs several DAGs. The runs are ordinary DAG runs in Airflow's
    database, but their tasks run one after the other in this process, without a scheduler.
    """
    from airflow.dag_processing.dagbag import DagBag
    from airflow.listeners import hookimpl
    from airflow.sdk.exceptions import ParamValidationError
    from airflow.sdk.listener import get_listener_manager

    class Listener:
        @hookimpl
        def on_task_instance_running(self, previous_state: Any, task_instance: Any) -> None:
            tell({"event": "task", "task": task_instance.task_id, "try": task_instance.try_number})

    prepare()
    bag = DagBag(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    get_listener_manager().add_listener(Listener())  # type: ignore[no-untyped-call]
    tell({"event": "ready"})
    for line in sys.stdin:
        asked = json.loads(line)
        dag = bag.dags.get(asked["dag"])
        if dag is None:
            raise SystemExit(f"There is no DAG {asked['dag']}: {bag.import_errors}")
        try:
            run = dag.test(run_conf=asked["parameters"])
        except ParamValidationError as error:
            tell({"event": "refused", "why": str(error).partition("\n")[0]})
            continue
        tell({"event": "run", "state": str(run.state), "run": run.run_id, **_found(dag.dag_id, run.run_id)})


def _found(dag_id: str, run_id: str) -> dict[str, Any]:
    """Return what Airflow's database holds about a run: its tasks, their XComs and its asset events."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        tasks = session.scalars(
            select(TaskInstance).where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
        )
        xcoms = session.scalars(
            select(XComModel).where(
                XComModel.dag_id == dag_id, XComModel.run_id == run_id, XComModel.key == "return_value"
            )
        )
        events = session.execute(
            select(AssetModel.name, AssetEvent.extra)
            .join(AssetModel, AssetModel.id == AssetEvent.asset_id)
            .where(AssetEvent.source_dag_id == dag_id, AssetEvent.source_run_id == run_id)
        )
        return {
            "tasks": {
                task.task_id: {"state": str(task.state), "tries": task.try_number, "seconds": task.duration}
                for task in tasks
            },
            "xcoms": {xcom.task_id: XComModel.deserialize_value(xcom) for xcom in xcoms},
            "assets": {name: extra for name, extra in events},
        }


def main(arguments: list[str]) -> None:
    """Run ``prepare`` or ``serve``: answers go to standard output, all that Airflow prints to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def tell(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    Path(os.environ["AIRFLOW_HOME"]).mkdir(parents=True, exist_ok=True)
    if arguments[0] == "prepare":
        prepare()
    else:
        serve(tell)


if __name__ == "__main__":
    main(sys.argv[1:])
