"""gold.replay_plans -> Kafka: the Airflow DAG `replay`, which a person approves before anything is produced."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Context, Param
from airflow.sdk.exceptions import AirflowSkipException

from dags.factory import cluster, defaults, kafka_connection, location
from dags.operators import CannotRun, CommandOperator
from pipelines import settings
from pipelines.errors import UsageError

PLAN = r"^[0-9A-Za-z]{4}-?[0-9A-Za-z]{4}$"
_DOC = """\
Sends a plan's dead letters back to Kafka, once a person has approved it. `choose` takes the plan that the parameter
`plan` names. Without one it plans what the remediation rules replay, if `[replay] by_rules` allows that. `approve`
waits for a person (Airflow's required actions). `run` replays; a second run of the same plan produces nothing twice.
`outcome` tells how many records were delivered, died again, or are not known of, in its log and its XCom.

Nobody approves: the run ends without a replay. The plan stays, and can be run later.
"""


class ReplayStep(CommandOperator):
    """Run `afterlog replay` with a plan and return the object that it prints."""

    def __init__(self, *, step: Sequence[str], **options: Any) -> None:
        """Take the subcommand and its options; the plan's id follows."""
        super().__init__(arguments=["replay", *step, "--format", "json"], **options)

    def more_arguments(self, context: Context) -> list[str]:
        """Return the id of the plan that `choose` took."""
        return [str(context["ti"].xcom_pull(task_ids="choose")["plan"])]

    def work(self, context: Context) -> dict[str, Any]:
        """Return what the command says.

        Raises CannotRun, WriterBusy, CommandDied.
        """
        answer = self._answer(context, lambda answer: answer)
        assert isinstance(answer, dict)
        return answer


class ChoosePlan(ReplayStep):
    """Take the plan of the parameter, or plan what the rules replay; skip the rest if nothing is left to replay."""

    def __init__(self, **options: Any) -> None:
        """Decide at run time which command it is."""
        super().__init__(step=[], **options)

    def more_arguments(self, context: Context) -> list[str]:
        """Return nothing: the plan is in the arguments."""
        return []

    def work(self, context: Context) -> dict[str, Any]:
        """Return the plan's id and how many records it would replay.

        Raises CannotRun: no plan is named, and the settings do not let rules choose.
        """
        named = context["params"].get("plan")
        if named:
            self.arguments = ["replay", "run", "--dry-run", "--format", "json", str(named)]
        elif by_rules():
            self.arguments = ["replay", "plan", "--by-rules", "--format", "json"]
        else:
            raise CannotRun("Name a plan in the parameter plan, or set by_rules = true under [replay].")
        answer = super().work(context)
        left = answer["left"] if named else answer["eligible"]
        if not left:
            raise AirflowSkipException("There is nothing to replay.")
        return {"plan": answer["plan"], "records": left}


def by_rules() -> bool:
    """Tell whether the settings let the DAG plan what the rules replay."""
    try:
        return settings.load().replay.by_rules
    except UsageError as error:
        raise CannotRun(str(error)) from None


def _schedule() -> str | None:
    """Return when the rules are asked; None if the settings do not allow it or cannot be read."""
    try:
        found = settings.load().replay
    except UsageError:
        return None
    return found.schedule if found.by_rules else None


with DAG(
    dag_id="replay",
    schedule=_schedule(),
    catchup=False,
    max_active_runs=1,
    description="dead letters back to Kafka, planned, approved, once",
    doc_md=_DOC,
    tags=["afterlog", "replay"],
    params={
        "plan": Param(
            None,
            "Plan to run, as `afterlog replay plan` names it; empty: by rules.",
            type=["null", "string"],
            pattern=PLAN,
        ),
        "warehouse": location("Warehouse directory; empty: as in the settings."),
        "cluster": cluster(),
        "kafka_connection": kafka_connection(),
    },
    default_args=defaults(),
) as dag:
    choose = ChoosePlan(task_id="choose", retries=0)
    approve = ApprovalOperator(
        task_id="approve",
        subject="Replay plan {{ ti.xcom_pull(task_ids='choose')['plan'] }}?",
        body=(
            "It would send {{ ti.xcom_pull(task_ids='choose')['records'] }} records back to Kafka. "
            "`afterlog replay show {{ ti.xcom_pull(task_ids='choose')['plan'] }}` lists them."
        ),
        response_timeout=timedelta(days=7),
        retries=0,
    )
    run = ReplayStep(task_id="run", step=["run"], execution_timeout=timedelta(hours=12))
    outcome = ReplayStep(task_id="outcome", step=["status"])
    choose >> approve >> run >> outcome
