"""catalog -> DAG: one task per layer, an edge for an input in another layer, then the reports and the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Asset, Param, TriggerRule

from dags.operators import AskCluster, BuildReports, FillLayer, Outcome, tell_failure
from pipelines.catalog import POOL, stages
from pipelines.stage import Derive, Land, LookUp, Split, Stage, Summarise

_NAME = r"^(?![\s\S]*[^A-Za-z0-9_.-])"
PRINTABLE = r"^(?!-)(?=[\s\S]*\S)(?![\s\S]*[\x00-\x1f\x7f])"
"""Not an option, not blank, no control character; written so that Python and browsers read it alike."""

ASK = "ask"
"""The first task of a feed that asks the cluster."""

_KEPT = {Land: "everything lands", Split: "gate, quarantine", Summarise: "gate", Derive: "gate", LookUp: "no gate"}
_DOC = """\
The feed `{feed}`, from its landing directory to gold, once for what is new.

| table | from | kept by |
|---|---|---|
{rows}

Each layer is one task, which runs `afterlog run --feed {feed} --layer LAYER`; its log streams here. The counts and
the verdict of each table are in its XCom and in the extra of the table's asset. Later layers run also after a broken
gate, with what it did not hold; so does `reports`. `outcome` runs last, says in its log what became of all others, and
is green only where they are.

**A layer's task is red.** The last line of its log says which tables, why, and what to do next; so does its note in the
grid, where Airflow's API gives a token without a login, as that of `make up` does. A broken contract is
not retried: its rows, such as those of a topic, are held, runs are red as long as they are, and later rows of the topic
wait behind them. A busy warehouse and a crash are retried twice.

**Parameters.** `landing` and `warehouse` (a directory or a URI) override the settings for one run, and so does
`kafka_connection`: the Airflow connection that says how to reach the cluster, in place of `[kafka]` of the settings.
`cluster` names the only one of several `[[cluster]]` that the run is for.
`tolerance` (0 to 1) is that of every gate for one run; `accept` (TABLE[:SCOPE], or a list) accepts once what is held.
"""


def asset_of(table: str) -> Asset:
    """Return the asset that stands for a table of the warehouse."""
    return Asset(name=table, uri=f"x-afterlog://warehouse/{table.replace('.', '/')}", group="afterlog")


def feed_dag(feed: str, schedule: str | None, *, asks: bool = False) -> DAG:
    """Return the DAG of a feed; its id is the feed's name. If it ``asks``, its first task asks the cluster what lands.

    All feeds share a pool of one slot, because only one process at a time may write to a local warehouse.
    """
    filled = stages(feed)
    layers: dict[str, list[Stage]] = {}
    for stage in filled:
        layers.setdefault(stage.layer, []).append(stage)
    with DAG(
        dag_id=feed,
        schedule=schedule,
        catchup=False,
        max_active_runs=1,
        description=f"{filled[0].table} to {filled[-1].table}, each step held to its contract",
        doc_md=_DOC.format(feed=feed, rows="\n".join(_row(stage) for stage in filled)),
        tags=["afterlog", feed],
        params=_parameters(filled),
        default_args=defaults(pool=POOL, execution_timeout=timedelta(hours=1)),
    ) as dag:
        tasks = {
            layer: FillLayer(
                task_id=layer,
                feed=feed,
                layer=layer,
                tables=[stage.table for stage in members],
                # Rows that an upstream gate holds must not stop the other rows.
                trigger_rule=TriggerRule.ALL_DONE,
                inlets=[asset_of(table) for table in _read_by(members)],
                outlets=[asset_of(stage.table) for stage in members],
            )
            for layer, members in layers.items()
        }
        reports = BuildReports(
            task_id="reports",
            layers={layer: [stage.table for stage in members] for layer, members in layers.items()},
            trigger_rule=TriggerRule.ALL_DONE,
            outlets=[Asset(name=f"reports.{feed}", uri=f"x-afterlog://reports/{feed}", group="afterlog")],
        )
        before = [AskCluster(task_id=ASK, trigger_rule=TriggerRule.ALL_DONE)] if asks else []
        outcome = Outcome(
            task_id="outcome",
            layers=list(layers),
            before=[task.task_id for task in before],
            retries=0,
            trigger_rule=TriggerRule.ALL_DONE,
        )
        layer_of = {stage.table: stage.layer for stage in filled}
        for layer, members in layers.items():
            for above in dict.fromkeys(layer_of[table] for table in _read_by(members) if table in layer_of):
                tasks[above] >> tasks[layer]
        for task in tasks.values():
            if not task.downstream_task_ids:
                task >> reports
        for first in before:
            first >> tasks[next(iter(layers))]
        [*before, *tasks.values(), reports] >> outcome
    return dag


def defaults(**more: Any) -> dict[str, Any]:
    """Return what the tasks of every DAG have, and ``more``."""
    return {
        "owner": "afterlog",
        "retries": 2,
        "retry_delay": timedelta(minutes=1),
        "on_failure_callback": tell_failure,
        **more,
    }


def _parameters(filled: Sequence[Stage]) -> dict[str, Param]:
    """Return the parameters of a feed's DAG."""
    return {
        "landing": location("Landing directory; empty: as in the settings."),
        "warehouse": location("Warehouse directory or URI; empty: as in the settings."),
        "cluster": cluster(),
        "kafka_connection": kafka_connection(),
        "tolerance": Param(
            None,
            "Share of failing rows, 0 to 1, that every gate of this run tolerates; empty: as in the settings.",
            type=["null", "number"],
            minimum=0,
            maximum=1,
        ),
        "accept": _accepted(filled),
    }


def kafka_connection() -> Param:
    """Return the DAG parameter that names the cluster's Airflow connection."""
    return _name("Airflow connection of the Kafka cluster; empty: as in the settings.")


def cluster() -> Param:
    """Return the DAG parameter that narrows a run to one of several clusters."""
    return _name("Only that one of several [[cluster]]; empty: all.")


def _name(description: str) -> Param:
    return Param(None, description, type=["null", "string"], minLength=1, maxLength=200, pattern=_NAME)


def location(description: str) -> Param:
    """Return the DAG parameter of a directory or URI."""
    return Param(None, description, type=["null", "string"], minLength=1, maxLength=1024, pattern=PRINTABLE)


def _read_by(members: Sequence[Stage]) -> tuple[str, ...]:
    """Return the inputs of a layer's stages that the layer does not fill itself."""
    own = {stage.table for stage in members}
    return tuple(dict.fromkeys(table for stage in members for table in stage.inputs if table not in own))


def _accepted(filled: Sequence[Stage]) -> Param:
    """Return the DAG parameter that accepts held rows of tables with a gate."""
    tables = "|".join(stage.table.replace(".", r"\.") for stage in filled if isinstance(stage, Split))
    pattern = rf"^(?![\s\S]*[\x00-\x1f\x7f])(?:{tables})(?::[\s\S]*\S[\s\S]*)?$"
    return Param(
        None,
        "TABLE[:SCOPE] that breaks its contract and is accepted once, or a list of such; empty: nothing.",
        type=["null", "string", "array"],
        pattern=pattern,
        maxLength=700,
        items={"type": "string", "pattern": pattern, "maxLength": 700},
        maxItems=100,
    )


def _row(stage: Stage) -> str:
    inputs = ", ".join(f"`{table}`" for table in stage.inputs) or "landing"
    return f"| `{stage.table}` | {inputs} | {_KEPT[type(stage)]} |"
