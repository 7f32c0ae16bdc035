"""What a task of a feed does: fill one table, build the reports, say how the run came out."""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
from collections.abc import Sequence
from typing import Any

from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from dags.command import Command, Ended, printable

PLACES = ("landing", "warehouse")
COUNTS = ("read", "accepted", "quarantined", "duplicates", "skipped")
_NOTIFY_SECONDS = 30


class GateBroke(AirflowFailException):
    """A contract broke: running again gives the same answer, so Airflow does not retry."""

    way_on = "See the report and `afterlog doctor`; when it is mended, the next run takes the same batch first."


class CannotRun(AirflowFailException):
    """A setting, a parameter or the machine is wrong: running again gives the same answer."""

    way_on = "Mend it, check with `afterlog doctor`, then clear this task or wait for the next run."


class WriterBusy(AirflowException):
    """Another process writes to the same warehouse: worth another try."""

    way_on = "Let the other writer end, then clear this task or wait for the next run."


class CommandDied(AirflowException):
    """The command ended in a way it never should: worth another try, as nothing is left half done."""

    way_on = "See the log above; the next run continues where this one ended."


class _CommandOperator(BaseOperator):
    """A task that runs the command line; it ends with the task, also when Airflow kills that."""

    def __init__(self, *, arguments: Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self.arguments = list(arguments)
        self._command: Command | None = None

    def on_kill(self) -> None:
        """End the command that this task started."""
        if self._command is not None:
            self._command.kill()

    def _run(self, context: Context) -> Ended:
        """Run with the run's parameters as single arguments; no shell reads them.

        Raises as `check`, and CannotRun where there is no command.
        """
        places = [f"--{name}={context['params'][name]}" for name in PLACES if context["params"].get(name) is not None]
        self._command = Command([*self.arguments, *places])
        self.log.info("Running %s", shlex.join(self._command.argv))
        try:
            ended = self._command.run(lambda line: self.log.info("%s", line))
        except OSError as error:
            raise CannotRun(f"{self._command.argv[0]} cannot be started: {error.strerror}. Run `make setup`.") from None
        check(ended)
        return ended


class FillTable(_CommandOperator):
    """Fill one table from what is new in its inputs; counts and verdict become the XCom and the asset's extra."""

    def __init__(self, *, table: str, **options: Any) -> None:
        """Take the table of the catalog."""
        super().__init__(arguments=["run", "--only", table, "--format", "json"], **options)
        self.table = table

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the table's counts and verdict; they stand in the XCom also where the gate broke.

        Raises GateBroke, CannotRun, WriterBusy, CommandDied.
        """
        ended = self._run(context)
        counts, message = self._counts(ended)
        self.log.info("%s", _sentence(counts))
        if ended.code == 1 or counts["status"] == "broken":
            context["ti"].xcom_push(key="return_value", value=counts)
            raise GateBroke(message or f"The gate of {self.table} broke.")
        for asset in self.outlets:
            if isinstance(asset, Asset):
                context["outlet_events"][asset].extra.update(counts)
        return counts

    def _counts(self, ended: Ended) -> tuple[dict[str, Any], str]:
        """Sum up the table's batches (one that waited and the next, say); the last one says how it came out."""
        try:
            answer = json.loads(ended.answer)
            batches = [row for row in answer["tables"] if row["table"] == self.table]
            sums = {name: sum(batch[name] for batch in batches) for name in (*COUNTS, "seconds")}
            last = batches[-1]
            counts = {"run_id": answer["run_id"], "table": self.table, "status": last["status"], **sums}
            return {**counts, "verdict": last["verdict"]}, printable(last["message"] or "")
        except (ValueError, LookupError, TypeError):
            raise CommandDied(f"The command {_how(ended.code)}, without counts: {ended.complaint}") from None


class BuildReports(_CommandOperator):
    """Build Data Docs and the quality page, and publish the verdict of every table of the run."""

    def __init__(self, *, tables: Sequence[str], **options: Any) -> None:
        """Take the tables whose tasks, named like them, run before."""
        super().__init__(arguments=["report"], **options)
        self.tables = list(tables)

    def execute(self, context: Context) -> dict[str, Any]:
        """Return where the report is, and the counts and verdict of each table that this run reached.

        Raises CannotRun, WriterBusy, CommandDied.
        """
        ended = self._run(context)
        if ended.code != 0:
            raise CommandDied(f"The command {_how(ended.code)}: {ended.complaint}")
        reached: dict[str, Any] = {}
        for table in self.tables:
            if counts := context["ti"].xcom_pull(task_ids=table):
                reached[table] = counts
            self.log.info("%s", _sentence(counts) if counts else f"{table}: not reached")
        outcome: dict[str, Any] = {"report": ended.answer.strip(), "tables": reached}
        for asset in self.outlets:
            if isinstance(asset, Asset):
                context["outlet_events"][asset].extra.update(outcome)
        return outcome


class Outcome(BaseOperator):
    """The last task: it runs only where every table and the reports succeeded, else it fails the run.

    Airflow judges a run by its last tasks. The reports are built in any case, so that they alone would turn a broken
    gate green.
    """

    def execute(self, context: Context) -> None:
        """Say that the run is good; reaching this line is the proof."""
        self.log.info("Every gate held and the reports are built.")


def check(ended: Ended) -> None:
    """Pass a command that answered: exit code 0, or 1 where a gate broke.

    Raises CannotRun, WriterBusy, CommandDied: what the command said, by its exit code.
    """
    said = ended.complaint.removeprefix("afterlog: ") or "it said nothing"
    if ended.code in (2, 3):
        raise CannotRun(said)
    if ended.code == 4:
        raise WriterBusy(said)
    if ended.code not in (0, 1) or not ended.answer:
        raise CommandDied(f"The command {_how(ended.code)}: {said}")


def tell_failure(context: Context) -> None:
    """Log one sentence: what failed, why, and what to do; pass it to the command that AFTERLOG_ON_FAILURE names."""
    log = logging.getLogger(__name__)
    error = context.get("exception")
    why = printable(str(error)) if error and str(error) else "it was ended from outside"
    way_on = getattr(error, "way_on", "See the log above, then clear this task or wait for the next run.")
    ti = context["ti"]
    log.error("%s failed: %s Next: %s", ti.task_id, why, way_on)
    if not (hook := os.environ.get("AFTERLOG_ON_FAILURE")):
        return
    event = {"dag": ti.dag_id, "run": ti.run_id, "task": ti.task_id, "why": why, "next": way_on}
    try:
        subprocess.run(
            shlex.split(hook), input=json.dumps(event), text=True, timeout=_NOTIFY_SECONDS, check=True, stdout=2
        )
    except (OSError, ValueError, subprocess.SubprocessError) as problem:
        log.error("The command of AFTERLOG_ON_FAILURE failed: %s", problem)


def _how(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _sentence(counts: dict[str, Any]) -> str:
    if counts["status"] == "idle":
        return f"{counts['table']}: nothing new"
    numbers = ", ".join(f"{counts[name]:,} {name}" for name in COUNTS)
    gate = "" if counts["verdict"] is None else f"; the gate {'held' if counts['verdict']['passed'] else 'broke'}"
    return f"{counts['table']}: {numbers}; {counts['seconds']:.1f} s{gate}"
