"""The tasks of a feed: fill the tables of a layer, build the reports, tell the outcome of the run."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from dags import connections, failures
from dags.command import Command, Ended, Runs, Unreachable, printable
from pipelines import settings
from pipelines.errors import UsageError
from pipelines.settings.airflow import Pod

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

T = TypeVar("T")
LOCATIONS = ("landing", "warehouse")
COUNTS = ("read", "accepted", "quarantined", "duplicates", "skipped", "held", "written")
BROKE = ("broken", "held")
_WITHOUT_COUNTS = {"idle": "nothing new", "waiting": "waits, as the gate of an input broke"}
_WITHOUT_COUNTS |= {"held": "what broke its contract is still held"}
_NOTIFY_SECONDS = 30


class GateBroke(AirflowFailException):
    """A contract broke: a retry gives the same answer, so Airflow does not retry."""

    way_on = (
        "See the report and `afterlog doctor`; when it is fixed, the next run takes what is held first. "
        "To accept it, trigger this DAG with the parameter accept (TABLE[:SCOPE] as above) or tolerance."
    )


class CannotRun(AirflowFailException):
    """A setting, a parameter or the machine is wrong: a retry gives the same answer."""

    way_on = "Fix it, check with `afterlog doctor`, then clear this task or wait for the next run."


class WriterBusy(AirflowException):
    """Another process writes to the same warehouse, so Airflow retries."""

    way_on = "Let the other writer end, then clear this task or wait for the next run."


class CommandDied(AirflowException):
    """The command ended in an unexpected way; Airflow retries, because a run leaves nothing half done."""

    way_on = "See the log above; the next run continues where this one ended."


class RunFailed(AirflowFailException):
    """A task of the run failed: `outcome` says which, why, and what to do next."""

    way_on = "See the logs of the tasks above."


TOLD = (GateBroke, CannotRun, WriterBusy, CommandDied, RunFailed)
FAILURE = "failure"
"""The XCom of a task that failed: ``{"why": ..., "next": ...}``."""


class CommandOperator(BaseOperator):
    """A task that runs the command line; the command ends with the task, also when Airflow kills the task."""

    def __init__(self, *, arguments: Sequence[str], **options: Any) -> None:
        """Take the arguments after the program's name."""
        super().__init__(**options)
        self.arguments = list(arguments)
        self.locations: dict[str, Any] = {}
        self.servers: dict[
            str, str
        ] = {}  # of clusters by variable; secrets stay out of attributes that events can hold
        self.only: str | None = None  # of several clusters
        self._command: Runs | None = None

    def on_kill(self) -> None:
        """End the command that this task started."""
        if self._command is not None:
            self._command.kill()

    def execute(self, context: Context) -> dict[str, Any]:
        """Do the work; on a failure leave for `outcome` the reason and what to do next.

        Raises GateBroke, CannotRun, WriterBusy, CommandDied, each with the report's path.
        """
        failures.shorten_tracebacks(TOLD)
        try:
            return self.work(context)
        except TOLD as error:
            error.report = _report(context)  # type: ignore[union-attr]
            why, way_on = failures.cause_and_remedy(error)
            with contextlib.suppress(Exception):  # a second error must not hide the reason of the failure
                context["ti"].xcom_push(key=FAILURE, value={"why": why, "next": way_on})
            raise error.with_traceback(None) from None

    def work(self, context: Context) -> dict[str, Any]:
        """Run the command and return the XCom."""
        raise NotImplementedError

    def more_arguments(self, context: Context) -> list[str]:
        """Return the arguments that the parameters of the run add."""
        return []

    def _run(self, context: Context) -> Ended:
        """Run the command; each parameter of the run is one argument, and no shell reads it.

        Raises as `check`, and CannotRun if the command does not exist.
        """
        self.locations = {name: context["params"].get(name) for name in LOCATIONS}
        self.only = context["params"].get("cluster") or None
        clusters = self._clusters(context)
        self.servers = {variable: cluster.kafka.bootstrap_servers for variable, cluster in clusters.items()}
        variables: dict[str, str] = {}
        for variable, cluster in clusters.items():
            variables |= cluster.environment(variable)
        locations = [f"--{name}={location}" for name, location in self.locations.items() if location is not None]
        locations += [f"--cluster={self.only}"] if self.only else []
        arguments = [*self.arguments, *locations, *self.more_arguments(context)]
        self._command = _where(context, arguments, variables or None)
        self.log.info("Running %s", shlex.join(self._command.argv))
        try:
            ended = self._command.run(lambda line: self.log.info("%s", line))
        except UsageError as error:
            raise CannotRun(str(error)) from None
        except Unreachable as error:
            raise CommandDied(str(error)) from None
        except OSError as error:
            raise CannotRun(f"{self._command.argv[0]} cannot be started: {error.strerror}. Run `make setup`.") from None
        check(ended)
        return ended

    def _answer(self, context: Context, taken: Callable[[Any], T]) -> T:
        """Run the command, and return and log what is ``taken`` of the JSON that it answered.

        Raises as `_run`, and CommandDied if that cannot be taken.
        """
        ended = self._run(context)
        try:
            found = taken(json.loads(ended.answer))
        except (ValueError, LookupError, TypeError):
            raise CommandDied(f"The command ended with exit code {ended.code}: {ended.complaint}") from None
        self.log.info("%s", json.dumps(found))
        return found

    def _clusters(self, context: Context) -> dict[str, connections.Cluster]:
        """Return the clusters for which connections are named, secrets included, by the variables that take them."""
        try:
            wanted = settings.kafka_connections(self.only, context["params"].get("kafka_connection"))
            if not wanted:
                return {}
            if settings.tasks_run_elsewhere() is not None:
                raise CannotRun(
                    "A task that runs in a pod or on another host takes the cluster from the settings there: leave out "
                    "kafka_connection."
                )
            clusters = {variable: connections.named(name) for variable, name in wanted.items()}
        except UsageError as error:
            raise CannotRun(str(error)) from None
        for variable, cluster in clusters.items():
            left_out = f"; left out of it: {', '.join(cluster.left_out)}" if cluster.left_out else ""
            whose = "The cluster" if variable == "AFTERLOG_KAFKA" else f"That of {variable}"
            self.log.info("%s is that of the connection %s%s", whose, wanted[variable], printable(left_out))
        return clusters


class AskCluster(CommandOperator):
    """Ask the cluster for its settings and topologies, which land for the layers."""

    def __init__(self, **options: Any) -> None:
        """Take what every task takes."""
        super().__init__(arguments=["collect", "--format", "json"], **options)

    def work(self, context: Context) -> dict[str, Any]:
        """Return what the cluster has, how much of it changed, and the files with the changes.

        Raises CannotRun, CommandDied.
        """
        ended = self._run(context)
        try:
            answer: dict[str, Any] = json.loads(ended.answer)
            sentence = f"{answer['changed']:,} changed"
        except (ValueError, LookupError, TypeError):
            raise CommandDied(f"The command {_how(ended.code)}, without an answer: {ended.complaint}") from None
        self.log.info("The cluster answered: %s; %s", sentence, ", ".join(answer["files"]) or "no new file")
        return answer


class FillLayer(CommandOperator):
    """Fill the tables of a feed's layer from new input; their counts become the XCom and their assets' extras."""

    def __init__(self, *, feed: str, layer: str, tables: Sequence[str], **options: Any) -> None:
        """Take a feed and a layer of the catalog, and the feed's tables in this layer."""
        super().__init__(arguments=["run", "--feed", feed, "--layer", layer, "--format", "json"], **options)
        self.tables = list(tables)
        self.filled: dict[str, Any] = {}

    def get_openlineage_facets_on_complete(self, _ti: object) -> OperatorLineage[Any, Any]:
        """Return what the task read, filled and judged; Airflow's provider asks when the task ended, also in error."""
        from dags import lineage

        return lineage.of_layer(self.tables, self.locations, self.servers, self.filled, self.only)

    def more_arguments(self, context: Context) -> list[str]:
        """Return the `--accept` arguments for the tables that this layer fills."""
        accepted = context["params"].get("accept") or []
        asked = [accepted] if isinstance(accepted, str) else accepted
        if not all(isinstance(scope, str) and scope.isprintable() for scope in asked):
            raise CannotRun("The parameter accept is neither TABLE[:SCOPE] nor a list of such texts.")
        return [f"--accept={scope}" for scope in asked if scope.partition(":")[0] in self.tables]

    def work(self, context: Context) -> dict[str, Any]:
        """Return ``{"run_id": ..., "tables": {table: counts and verdict}}``, which is the XCom also if a gate broke.

        Raises GateBroke, CannotRun, WriterBusy, CommandDied.
        """
        ended = self._run(context)
        filled, broke = self._filled(ended)
        self.filled = filled["tables"]
        for table, counts in filled["tables"].items():
            self.log.info("%s", _sentence(table, counts))
        if broke:
            context["ti"].xcom_push(key="return_value", value=filled)
            raise GateBroke(" ".join(broke))
        for asset in self.outlets:
            if isinstance(asset, Asset):
                counts = filled["tables"][asset.name]
                context["outlet_events"][asset].extra.update({"run_id": filled["run_id"], **counts})
        return filled

    def _filled(self, ended: Ended) -> tuple[dict[str, Any], list[str]]:
        """Return what a run says about each table, and a sentence for each gate that broke.

        A table can have several batches, such as one that waited and the next one. Their counts are summed up, and the
        last batch gives the status.
        """
        try:
            answer = json.loads(ended.answer)
            tables: dict[str, dict[str, Any]] = {}
            broke: list[str] = []
            for table in self.tables:
                batches = [row for row in answer["tables"] if row["table"] == table]
                last = batches[-1]
                sums = {name: sum(batch[name] for batch in batches) for name in (*COUNTS, "seconds")}
                judged = [batch["verdict"] for batch in batches if batch["verdict"] is not None]
                tables[table] = {"status": last["status"], **sums, "verdict": judged[-1] if judged else None}
                red = [row for row in batches if _refused(row)] or ([last] if last["status"] in BROKE else [])
                broke += ["\n".join(map(printable, row["message"].split("\n"))) for row in red]
            if not broke:  # the broken gate is perhaps in another layer, whose task is red
                broke = [f"{table} waits." for table, counts in tables.items() if counts["status"] == "waiting"]
            if ended.code != (1 if broke else 0):
                raise ValueError
            return {"run_id": answer["run_id"], "tables": tables}, broke
        except (ValueError, LookupError, TypeError):
            raise CommandDied(f"The command {_how(ended.code)}, without counts: {ended.complaint}") from None


def _refused(row: Mapping[str, Any]) -> bool:
    """Tell whether a gate broke and its failing rows are in quarantine, which no later batch changes."""
    return row["status"] == "broken" and not row["held"] and bool((row["verdict"] or {}).get("candidates"))


class BuildReports(CommandOperator):
    """Build Data Docs and the quality page, and publish the verdict of every table of the run."""

    def __init__(self, *, layers: Mapping[str, Sequence[str]], **options: Any) -> None:
        """Take the upstream layers, whose tasks have the same names, and the tables of each layer."""
        super().__init__(arguments=["report"], **options)
        self.layers = {layer: list(tables) for layer, tables in layers.items()}

    def work(self, context: Context) -> dict[str, Any]:
        """Return the path of the report, and the counts and verdict of each table that this run reached.

        Raises CannotRun, WriterBusy, CommandDied.
        """
        ended = self._run(context)
        if ended.code != 0:
            raise CommandDied(f"The command {_how(ended.code)}: {ended.complaint}")
        reached: dict[str, Any] = {}
        for layer, tables in self.layers.items():
            filled = context["ti"].xcom_pull(task_ids=layer)
            for table in tables:
                if filled:
                    reached[table] = {"run_id": filled["run_id"], **filled["tables"][table]}
                self.log.info("%s", _sentence(table, reached[table]) if filled else f"{table}: not reached")
        outcome: dict[str, Any] = {"report": ended.answer.strip(), "tables": reached}
        for asset in self.outlets:
            if isinstance(asset, Asset):
                context["outlet_events"][asset].extra.update(outcome)
        return outcome


class Outcome(BaseOperator):
    """The last task, which always runs: it tells how each other task ended, and succeeds only if all succeeded.

    Airflow judges a run by its last tasks. Later layers and the reports run also after a failure, so without this task
    a run with a broken gate would be green.
    """

    def __init__(self, *, layers: Sequence[str], before: Sequence[str] = (), **options: Any) -> None:
        """Take the upstream layers, whose tasks have the same names, and the tasks ``before`` them."""
        super().__init__(**options)
        self.layers = list(layers)
        self.before = list(before)

    def execute(self, context: Context) -> None:
        """Log what each task did, and what to do about each failed task.

        Raises RunFailed: a task failed, or did not say how it ended.
        """
        failures.shorten_tracebacks(TOLD)
        wrong: list[str] = []
        ways_on: list[str] = []
        for task in (*self.before, *self.layers, "reports"):
            filled = context["ti"].xcom_pull(task_ids=task)
            failure = context["ti"].xcom_pull(task_ids=task, key=FAILURE)
            if filled and task in self.layers:
                for table, counts in filled["tables"].items():
                    self.log.info("%s", _sentence(table, counts))
            if failure:
                wrong.append(f"{task}: {failure['why']}")
                ways_on.append(failure["next"])
            elif not filled:
                wrong.append(f"{task} did not say how it ended.")
                ways_on.append(f"See the log of {task}.")
            elif task == "reports":
                self.log.info("The report: %s", filled["report"])
        if wrong:
            error = RunFailed(" ".join(wrong))
            error.way_on = " ".join(dict.fromkeys(ways_on))
            raise error
        self.log.info("Every gate held and the reports are built.")


def check(ended: Ended) -> None:
    """Pass a command that answered: exit code 0, or 1 if a gate broke.

    Raises CannotRun, WriterBusy, CommandDied, chosen by the exit code, with what the command said.
    """
    complaint = ended.complaint.removeprefix("afterlog: ") or "it said nothing"
    if ended.code in (2, 3, 126, 127):  # the last two are a shell's: there is no such command
        raise CannotRun(complaint)
    if ended.code == 4:
        raise WriterBusy(complaint)
    if ended.code not in (0, 1) or not ended.answer:
        raise CommandDied(f"The command {_how(ended.code)}: {complaint}")


def _where(context: Context, arguments: Sequence[str], cluster: Mapping[str, str] | None) -> Runs:
    """Return the run of the command where the settings say that tasks run it.

    Raises CannotRun: the settings cannot be used, or Airflow's provider for what runs the commands is not installed.
    """
    variables = _tolerance(context) | _trace()
    try:
        elsewhere = settings.tasks_run_elsewhere()
        if elsewhere is None:
            return Command(arguments, cluster, variables)
        if isinstance(elsewhere, Pod):
            from dags.pods import PodCommand

            return PodCommand(elsewhere, arguments, variables, context)
        from dags.ssh import SshCommand

        return SshCommand(elsewhere, arguments, variables)
    except UsageError as error:
        raise CannotRun(str(error)) from None
    except ModuleNotFoundError:
        provider = "cncf-kubernetes" if isinstance(elsewhere, Pod) else "ssh"
        raise CannotRun(f"Install apache-airflow-providers-{provider} for Airflow's workers.") from None


def tell_failure(context: Context) -> None:
    """Log in one sentence what failed, why and what to do; pass it to the command in AFTERLOG_ON_FAILURE.

    The sentence also becomes the note of the task, if Airflow's API accepts a note without a login.
    """
    log = logging.getLogger(__name__)
    why, way_on = failures.cause_and_remedy(context.get("exception"))
    ti = context["ti"]
    if problem := failures.note(ti, why, f" Next: {way_on}"):
        log.info("This task has no note: %s", problem)
    if hook := os.environ.get("AFTERLOG_ON_FAILURE"):
        event = {"dag": ti.dag_id, "run": ti.run_id, "task": ti.task_id, "why": why, "next": way_on}
        try:
            subprocess.run(
                shlex.split(hook), input=json.dumps(event), text=True, timeout=_NOTIFY_SECONDS, check=True, stdout=2
            )
        except (OSError, ValueError, subprocess.SubprocessError) as problem:
            log.error("The command of AFTERLOG_ON_FAILURE failed: %s", problem)
    log.error("%s failed: %s Next: %s", ti.task_id, why, way_on)


def _report(context: Context) -> str | None:
    """Return the path of the run's reports, or None if the settings cannot be loaded."""
    locations = {name: context["params"].get(name) for name in LOCATIONS}
    try:
        return os.fspath(settings.load(**locations).reports() / "index.html")
    except UsageError:
        return None


def _tolerance(context: Context) -> dict[str, str]:
    """Return the variable that gives the run's tolerance to a command; empty if the settings apply."""
    tolerance = context["params"].get("tolerance")
    if tolerance is None:
        return {}
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0 <= tolerance <= 1:
        raise CannotRun("The parameter tolerance is no share from 0 to 1.")
    return {"AFTERLOG_TOLERANCE": repr(float(tolerance))}


def _trace() -> dict[str, str]:
    """Return the variables by which the command continues the task's trace; empty unless Airflow sends traces."""
    carrier: dict[str, str] = {}
    if hasattr(trace.get_tracer_provider(), "sampler"):  # that of OpenTelemetry's SDK, which Airflow sets up
        TraceContextTextMapPropagator().inject(carrier)
    return {name.upper(): value for name, value in carrier.items()}


def _how(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _sentence(table: str, counts: dict[str, Any]) -> str:
    if (sentence := _WITHOUT_COUNTS.get(counts["status"])) and not counts["read"]:
        return f"{table}: {sentence}"
    numbers = ", ".join(f"{counts[name]:,} {name}" for name in COUNTS if name != "held" or counts[name])
    gate = "" if counts["verdict"] is None else f"; the gate {'held' if counts['verdict']['passed'] else 'broke'}"
    return f"{table}: {numbers}; {counts['seconds']:.1f} s{gate}"
