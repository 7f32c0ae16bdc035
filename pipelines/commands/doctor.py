"""What is wrong with this machine, the settings and the warehouse, and how to fix it; starts no session."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from types import MappingProxyType
from typing import Literal

from expectations import owners
from expectations.bronze.record_batches import UNREAD
from expectations.contract import contract_of
from expectations.quality import GAPS
from expectations.rules import counted
from expectations.silver.dlq_records import PROFILES
from expectations.text import visible
from expectations.verdict import FIX, WHOLE, way_on
from pipelines.catalog import CATALOG, stages_of_type
from pipelines.columns import unknown_headers
from pipelines.columns.profiles import profiles_of
from pipelines.columns.proposals import Proposal, proposals, read_by
from pipelines.columns.writers import Letter
from pipelines.commands import display, findings, known, oversights
from pipelines.errors import AfterlogError, EnvironmentLacking, UsageError
from pipelines.installation import CONFIGURATIONS, IS_CHECKOUT, setup
from pipelines.jvm import jars, java
from pipelines.jvm.properties import defaults, for_s3
from pipelines.payloads import check_schemas
from pipelines.run import newest, runner
from pipelines.run.newest import lasting
from pipelines.settings import AIRFLOW_HOME, Settings, s3, settings_file
from pipelines.settings.layers import fields_of
from pipelines.sources import landing
from pipelines.sources.logs import files as log_files
from pipelines.sources.logs import unknown
from pipelines.stage import Land, Split, Stage, Summarise
from pipelines.steps import held, unreadable
from pipelines.steps.land import unread, waiting
from pipelines.steps.modules import listing
from pipelines.stores import lock, places, restored
from pipelines.stores.base import STATE
from pipelines.text import files_of, first_names, iso, size_of
from pipelines.warehouse import backups, delta_log, jvmless, progress, quality
from pipelines.warehouse.progress import Progress
from pipelines.warehouse.tables import Warehouse

State = Literal["ok", "warning", "error"]

LEDGER, POLICIES = "gold.message_ledger", "silver.topic_policies"
SPARE_BYTES = 2 << 30
LEAST_BYTES = 200 << 20
MOST_HELD = 10
MOST_NAMED = 3

MOST_LOOKED_AT = 1_000  # records of a DLQ topic whose headers tell of a writer
MOST_LETTERS = 5_000  # of all DLQ topics
MOST_TOPICS = 10_000  # whose names are known

# Some rows of each DLQ topic and, in each, how many there are; {headers} and {where} are columns and a condition.
_LETTERS = """
, unread AS (
  SELECT dlq_topic, arrow_cast(dlq_timestamp, 'Int64') AS time, {headers} AS headers, count(*) OVER () AS total,
    row_number() OVER (PARTITION BY dlq_topic ORDER BY "_bronze_id") AS place
  FROM rows WHERE {where}
)
SELECT dlq_topic, time, headers, total FROM unread WHERE place <= {most} ORDER BY place, dlq_topic LIMIT {most_of_all}
"""
_TOPICS = """
SELECT DISTINCT topic FROM (
  SELECT dlq_topic AS topic FROM rows UNION ALL SELECT original_topic AS topic FROM rows
) WHERE topic IS NOT NULL LIMIT {most}
"""

_COLOURS = {"ok": "green", "warning": "yellow", "error": "bold red"}
_ORDER = (
    "ok",
    "error",
    "warning",
)  # as printed for people: what needs work is next to the prompt, errors first
_CONNECTORS = {"abfs": "hadoop-azure", "gs": "gcs-connector"}


@dataclass(frozen=True)
class Check:
    """One finding.

    An ``error`` makes the doctor fail: an environment that lacks something (``lacks``), a broken contract or table, or
    data that is damaged, in quarantine, or does not arrive. A ``warning`` does not. A feed that nobody set up is
    ``ok``. ``snippet`` has lines for the settings, which are printed unchanged. What is said ``of_pattern`` is true if
    it is so in all clusters.
    """

    name: str
    state: State
    finding: str
    remedy: str | None = None
    snippet: str | None = None
    lacks: bool = False
    of_pattern: bool = False


def diagnose(
    settings: Settings, others: Mapping[str, Callable[[Settings], Iterator[Check]]] = MappingProxyType({})
) -> list[Check]:
    """Return every finding, from the machine to the tables, then ``others``; a check that fails becomes a finding.

    Of several clusters, a finding about one of them has its name.
    """
    warehouse, on_disk = Warehouse(settings), Warehouse(_on_disk(settings))
    Examinations = tuple[tuple[str, Callable[[Warehouse], Iterator[Check]], Sequence[Warehouse]], ...]
    examinations: Examinations = (
        ("Java", _java, (on_disk,)),
        ("Python packages", _packages, (on_disk,)),
        ("JVM jars", _jars, (on_disk,)),
        ("settings", _settings, (warehouse,)),
        ("disk", _disk, (on_disk,)),
        ("landing", _strays, (on_disk,)),
        ("landing", _landing, on_disk.of_clusters()),
        ("Kafka", _kafka, on_disk.of_clusters()),
        ("writer's lock", _lock, (on_disk,)),
        ("log store", _log_store, (warehouse,)),
        ("backups", _backups, (on_disk,)),
    )
    of_tables: Examinations = (
        ("tables", _tables, (on_disk,)),
        ("header profiles", _header_profiles, on_disk.of_clusters()),
        ("writers", _writers, on_disk.of_clusters()),
        ("settings that match nothing", _unmatched, on_disk.of_clusters()),
        ("quarantine", _quarantines, on_disk.of_clusters()),
        ("damaged files", _damaged_files, on_disk.of_clusters()),
        ("cleanup policies", _policies, on_disk.of_clusters()),
        ("dead-letter settings", _mistakes, on_disk.of_clusters()),
        ("quality reports", _quality, (on_disk,)),
        ("gaps", _gaps, on_disk.of_clusters()),
        ("Airflow", _airflow, (on_disk,)),
        *((name, partial(_other, found), warehouse.of_clusters()) for name, found in others.items()),
    )
    if not _is_half(on_disk):
        examinations += of_tables
    checks: list[Check] = []
    for name, examine, warehouses in examinations:
        of_each = [_found(name, examine(own)) for own in warehouses]
        checks += [one for one in of_each[0] if one.of_pattern and all(_says(found, one) for found in of_each)]
        for own, found in zip(warehouses, of_each, strict=True):
            head = "" if own.settings.sole_cluster == settings.sole_cluster else f"{own.cluster}: "
            checks += [replace(one, name=f"{head}{one.name}") for one in found if not one.of_pattern]
    return checks


def _says(checks: Sequence[Check], wanted: Check) -> bool:
    return any(check.finding == wanted.finding for check in checks)


def _other(found: Callable[[Settings], Iterator[Check]], warehouse: Warehouse) -> Iterator[Check]:
    return found(warehouse.settings)


def _found(name: str, found: Iterator[Check]) -> list[Check]:
    """Return the findings of an examination; one that fails becomes a finding."""
    checks: list[Check] = []
    try:
        checks += found
    except AfterlogError as error:
        checks.append(_environment_error(name, str(error)))
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:  # a damaged state file
        checks.append(_environment_error(name, f"It cannot be examined: {error}", "Fix that and ask again."))
    except Exception as error:  # a reader's error of any kind; its text can quote a record
        kind = type(error).__name__
        checks.append(_environment_error(name, f"It cannot be examined ({kind}).", "Fix the tables that are named."))
    return checks


def _environment_error(name: str, finding: str, remedy: str | None = None) -> Check:
    """Return an error of the environment, for which the doctor exits with 3."""
    return Check(name, "error", finding, remedy, lacks=True)


def _on_disk(settings: Settings) -> Settings:
    """Return the settings with the warehouse's directory in place of its URI, if the URI is on this machine."""
    directory = places.directory_of(settings.warehouse)
    return settings if directory is None else settings.model_copy(update={"warehouse": str(directory)})


def exit_code(checks: Iterable[Check]) -> int:
    """Return 0 without an error, 3 if the environment lacks something, else 1."""
    return max((3 if check.lacks else 1 for check in checks if check.state == "error"), default=0)


def summary(checks: Sequence[Check]) -> str:
    """Return the findings in one sentence: which checks have errors, and the number of warnings."""
    errors = list(dict.fromkeys(check.name for check in checks if check.state == "error"))
    warned = sum(check.state == "warning" for check in checks)
    if not errors and not warned:
        return "All is ok."
    warnings = f"; {counted(warned, 'warning')}" if warned else ""
    return f"Errors in {', '.join(errors)}{warnings}." if errors else f"No errors{warnings}."


def show(checks: Sequence[Check], as_json: bool = False) -> None:
    """Print the findings as a table, what is ok first, and a sentence; or as one JSON object per line."""
    if as_json:
        for check in checks:
            members = {"name": check.name, "state": check.state, "finding": check.finding, "remedy": check.remedy}
            print(json.dumps(members | ({"snippet": check.snippet} if check.snippet else {})))
        return
    rows = []
    for check in sorted(checks, key=lambda check: _ORDER.index(check.state)):
        first, *more = map(visible, check.finding.split("\n"))
        rows += [[visible(check.name), check.state, first], *(["", "", line] for line in more)]
        if check.remedy:
            rows.append(["", "", visible(check.remedy)])
    display.table(["check", "state", "finding"], rows, 3, _COLOURS, coloured=1)
    for snippet in dict.fromkeys(check.snippet for check in checks if check.snippet):
        print(f"\n{snippet.strip()}\n")
    print(visible(summary(checks)))


def _runs_spark() -> bool:
    """Tell whether Spark is to run here: what is installed to ask only has no PySpark."""
    return IS_CHECKOUT or find_spec("pyspark") is not None


def _java(warehouse: Warehouse) -> Iterator[Check]:
    if not _runs_spark():
        return
    chosen = java.find()
    yield Check("Java", "ok", f"Java {chosen.version}, from {chosen.source}: {chosen.home}")


def _packages(warehouse: Warehouse) -> Iterator[Check]:
    try:
        pinned = [re.match(r"([\w.-]+)==([^;\s]+)(?:.*extra == .(\w+))?", line) for line in requires("afterlog") or ()]
    except PackageNotFoundError:
        yield _environment_error("Python packages", "Afterlog is not installed here.", f"Run `{setup()}`.")
        return
    installed, absent, wrong = {}, set(), False
    for pin in filter(None, pinned):
        try:
            installed[pin[1]] = version(pin[1])
        except PackageNotFoundError:
            if pin[3] and not IS_CHECKOUT:
                absent.update({pin[3]} - {"all"})
                continue
            installed[pin[1]] = "missing"
        if installed[pin[1]] != pin[2]:
            wrong = True
            finding = f"{pin[1]} is {installed[pin[1]]}, not {pin[2]}."
            remedy = setup() if IS_CHECKOUT else f"pip install '{pin[1]}=={pin[2]}'"
            yield _environment_error("Python packages", finding, f"Run `{remedy}`.")
    if not wrong:
        found = ", ".join(f"{name} {number}" for name, number in sorted(installed.items()))
        without = f"; extras not installed: {', '.join(sorted(absent))}" if absent else ""
        yield Check("Python packages", "ok", found + without)


def _jars(warehouse: Warehouse) -> Iterator[Check]:
    if not _runs_spark():
        return
    if reason := jars.fault():
        yield _environment_error("JVM jars", f"{reason}.", f"Run `{setup()}`.")
        return
    sizes = jars.sizes()
    parts = []
    for conf in CONFIGURATIONS:
        if of_conf := [size for name, size in sizes.items() if name.startswith(f"{conf}/")]:
            parts.append(f"{conf} {files_of(len(of_conf), sum(of_conf))}")
    yield Check("JVM jars", "ok", f"As conf/ivy.xml names them, each of its size: {'; '.join(parts)}.")


def _settings(warehouse: Warehouse) -> Iterator[Check]:
    without_effect = dict(oversights.unknown_variables())
    for name, sentence in without_effect.items():
        yield Check("settings", "warning", sentence, f"Unset {name}.")
    unknown = bool(without_effect)
    used = [name for name in sorted(os.environ) if _is_used(name) and name not in without_effect]
    for sentence in oversights.gates_without_effect(warehouse.settings):
        unknown = True
        gated = ", ".join(stage.table for stage in stages_of_type(Split))
        yield Check("settings", "warning", sentence, f"Tables whose gate has a tolerance: {gated}.")
    try:
        check_schemas(warehouse.settings)
    except UsageError as error:
        unknown = True
        yield Check("settings", "error", str(error), "Correct the name, or put the file there.")
    if not unknown:
        file = settings_file()
        overridden = f", {', '.join(used)} from the environment" if used else ""
        source = str(file) if file.exists() else "defaults, no settings file"
        yield Check("settings", "ok", f"{source}{overridden}; warehouse {warehouse.root}.")


def _is_used(variable: str) -> bool:
    top = variable.removeprefix(oversights.PREFIX).partition("__")[0].lower()
    return variable.startswith(oversights.PREFIX) and top in fields_of(Settings)


def _disk(warehouse: Warehouse) -> Iterator[Check]:
    root = places.directory_of(warehouse.root)
    if root is None:
        return
    directory = next(part for part in (root, *root.parents) if part.exists())
    if not directory.is_dir():
        yield _environment_error("disk", f"{directory} is not a directory.", "Name another warehouse with --warehouse.")
        return
    if not os.access(directory, os.W_OK | os.X_OK):
        yield _environment_error(
            "disk", f"{directory} cannot be written.", "Fix its permissions or name another warehouse."
        )
        return
    free = shutil.disk_usage(directory).free
    finding = f"{size_of(free)} free at {directory}."
    if free >= SPARE_BYTES:
        yield Check("disk", "ok", finding)
    else:
        remedy = "Free some space: 2 GB or more."
        lacks = free < LEAST_BYTES
        yield Check("disk", "error" if lacks else "warning", finding, remedy, lacks=lacks)


def _strays(warehouse: Warehouse) -> Iterator[Check]:
    for name, sentence in oversights.stray_places(warehouse.settings):
        yield Check("landing", "warning", sentence, f"Move {name!r} to where it belongs.")


def _landing(warehouse: Warehouse) -> Iterator[Check]:
    for stage in stages_of_type(Land):
        try:
            yield _feed(warehouse, stage)
        except AfterlogError as error:  # other feeds can still be ok
            yield _environment_error(f"landing {stage.directory}", str(error))


def _feed(warehouse: Warehouse, stage: Land) -> Check:
    """Tell what a feed has left to read, how old its newest record is, and whether it fell silent."""
    name = f"landing {stage.directory}"
    directory = warehouse.settings.landing_of(stage.directory)
    if not warehouse.opens_tables:
        files_there = unread(warehouse.settings, stage, None).values()
        finding = f"{directory}: {files_of(len(files_there), sum(file.size for file in files_there))}."
        return Check(name, "ok", f"{finding} Only a session can tell which are read, and how old the newest is.")
    known = progress.load(warehouse, stage.table)
    files = unread(warehouse.settings, stage, known).values()
    size = sum(file.size for file in files)
    finding = f"{files_of(len(files), size)}, to be read" if files else "all files are read"
    finding = f"{directory}: {finding}" if directory.is_dir() else f"{directory} does not exist: no files"
    newest_record = newest.of_feed(warehouse, stage)
    silence = newest.silence(warehouse, newest_record)
    if not newest_record.used:
        return Check(name, "ok", f"{newest_record.in_words}.")
    finding = f"{newest_record.in_words}; {finding}."
    if silence is None:
        return Check(name, "ok", f"{finding[0].upper()}{finding[1:]}")
    before = "which is longer than it may pause"
    if silence.pause is not None:
        before = f"and it never paused longer than {newest.lasting(silence.pause)} before"
    hours = (newest_record.age or silence.limit).total_seconds() / 3600
    return Check(
        name,
        "error",
        f"It fell silent, {before}: {finding}",
        f"Look at what lands it. If it may pause so long, set [silence] after_hours, "
        f"such as {stage.directory} = {2 * hours:.0f}.",
    )


def _kafka(warehouse: Warehouse) -> Iterator[Check]:
    """Ask the cluster how many offsets are left to read, for each feed that reads topics."""
    for stage in stages_of_type(Land):
        topics = warehouse.settings.topics_of(stage.directory)
        if topics is None:
            continue
        name = f"topics of {stage.feed}"
        known = progress.load(warehouse, stage.table) if warehouse.opens_tables else None
        try:
            late = waiting(warehouse.settings, [(stage, known)])[stage.table]
        except AfterlogError as error:
            yield _environment_error(name, str(error))
            continue
        topics_there = f"{topics.wanted} at {warehouse.settings.kafka.bootstrap_servers}"
        finding = f"{counted(late, 'offset')} to be read" if late else "all is read"
        if topics.isolation_level == "read_uncommitted":
            remedy = 'Set isolation_level = "read_committed" unless that is wanted.'
            yield Check(
                name, "warning", f"{topics_there}: {finding}, what aborted transactions wrote included.", remedy
            )
        else:
            yield Check(name, "ok", f"{topics_there}: {finding}.")


def _gaps(warehouse: Warehouse) -> Iterator[Check]:
    if not warehouse.opens_tables or warehouse.last_version(GAPS.table) is None:
        return
    gaps = jvmless.rows(warehouse, GAPS.table, {"cluster": warehouse.cluster})
    if gaps:
        gone = sum(gap["to_offset"] - gap["from_offset"] for gap in gaps)
        last = max(gaps, key=lambda gap: (gap["found_at"], gap["topic"], gap["partition"]))
        yield Check(
            "gaps",
            "warning",
            f"{counted(gone, 'offset')} of {counted(len({gap['topic'] for gap in gaps}), 'topic')} "
            f"{'was' if gone == 1 else 'were'} gone before {'it was' if gone == 1 else 'they were'} read, "
            f"the last found at {last['found_at']:%Y-%m-%d %H:%M:%S} UTC in {last['topic']}, "
            f"partition {last['partition']}.",
            "quality.gaps names them all. Run more often, or have those topics keep their records longer.",
        )


def _lock(warehouse: Warehouse) -> Iterator[Check]:
    if places.directory_of(warehouse.root) or warehouse.opens_tables:
        holder = lock.holder(warehouse.root)
        yield Check("writer's lock", "ok", f"Held by {holder}." if holder else "Free.")


def _is_half(warehouse: Warehouse) -> bool:
    """Tell whether only a part of the warehouse is restored, whose tables tell nothing."""
    try:
        mark = restored.found(warehouse.store) if warehouse.opens_tables else None
    except AfterlogError:  # what it raises is a finding about backups
        return True
    return mark is not None and mark.is_half


def _backups(warehouse: Warehouse) -> Iterator[Check]:
    """Say from what the warehouse was restored, and how old its last backup is, if there is one."""
    if not warehouse.opens_tables:
        return
    mark = restored.found(warehouse.store)
    if mark is not None and mark.is_half:
        finding = f"Only a part of the warehouse is restored, from backup {mark.backup}; its tables are not examined."
        yield _environment_error("backups", finding, f"{mark.way_on[0].upper()}{mark.way_on[1:]}.")
        return
    if mark is not None and mark.ended_at is not None:
        yield Check("backups", "ok", f"Restored at {iso(mark.ended_at)} from a backup of {iso(mark.taken_at)}.")
    if (last := backups.last_of(warehouse.store)) is not None:
        age = lasting(datetime.now(UTC) - last.taken_at)
        yield Check("backups", "ok", f"The last one was taken {age} ago: {last.backup} in {last.place}.")


def _log_store(warehouse: Warehouse) -> Iterator[Check]:
    """Examine what a warehouse on an object store needs: Delta's log store for it, and Hadoop's file system."""
    scheme = places.scheme_of(warehouse.root)
    if scheme is None:
        return
    properties = {**defaults(warehouse.settings.spark), **warehouse.settings.spark}
    if why := places.unsafe_store(warehouse.root, properties):
        finding = f"Two writers on {scheme}:// could lose each other's commits: {why}."
        yield _environment_error("log store", finding, "`afterlog run` refuses it. Name another warehouse.")
    elif places.directory_of(warehouse.root):
        yield Check("log store", "ok", f"{scheme}:// is on this machine: the writer's lock lets one at a time write.")
    elif s3.is_s3(warehouse.root):
        for_s3()  # raises a sentence about variables that cannot be used
        if _runs_spark() and (reason := jars.fault_of(jars.S3)):
            yield _environment_error("log store", f"{reason}.", f"Run `{setup(jars.S3)}`.")
        else:
            yield Check(
                "log store", "ok", "A commit to S3 never replaces another one; a lease lets one writer at a time work."
            )
    else:
        yield Check("log store", "ok", f"Delta's own log store for {scheme}:// is safe with several writers.")
    conf = jars.of(warehouse.root) if _runs_spark() else None
    connector = _CONNECTORS.get(conf or "")
    added = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
    if conf and connector and jars.fault_of(conf) and not any(connector in properties.get(name, "") for name in added):
        yield Check(
            "log store",
            "warning",
            f"{connector}, by which Spark reads {scheme}://, is not among the JVM jars, nor in a property of [spark].",
            f"Run `{setup(conf)}`, unless the cluster has it.",
        )


def _tables(warehouse: Warehouse) -> Iterator[Check]:
    if not warehouse.opens_tables:
        remedy = (
            '`afterlog sql "SELECT * FROM quality.freshness"` says how far each table is, '
            "and `afterlog report` how old the newest record of each feed is."
        )
        yield Check(
            "tables",
            "warning",
            f"Only Spark opens {warehouse.root}: its tables are not read without a session.",
            remedy,
        )
        return
    names = [contract.table for contract in runner.contracts()]
    missing = [name for name in names if warehouse.last_version(name) is None]
    if len(missing) == len(names):
        yield Check("tables", "ok", f"None yet in {warehouse.root}: `afterlog run` creates them.")
    elif missing:
        yield Check("tables", "warning", f"{', '.join(missing)} missing.", "`afterlog run` creates them, empty.")
    else:
        yield Check("tables", "ok", f"All {len(names)} are there.")
    for name in names:
        if name in missing:
            continue
        if fault := delta_log.fault(warehouse.store, warehouse.place(name)):
            yield Check(name, "error", fault.finding, fault.remedy)
            continue
        try:
            if damaged := warehouse.damaged_files(name):
                yield _data_files(warehouse.location(name), name, damaged)
        except UsageError as error:
            yield Check(name, "error", str(error))
        except EnvironmentLacking:
            fault = delta_log.fault(warehouse.store, warehouse.place(name), refused=True)
            if fault and warehouse.missing_commit(name) is None:
                yield Check(name, "error", fault.finding, fault.remedy)
        except Exception as error:  # a reader's error of any kind; a missing commit is reported below
            if warehouse.missing_commit(name) is None:
                remedy = "Restore its log from a backup, or move the table away: `afterlog run` then fills it again."
                yield Check(name, "error", f"Its log cannot be read ({type(error).__name__}).", remedy)
        if (gap := warehouse.missing_commit(name)) is not None:
            directory = warehouse.location(name)
            yield Check(
                name,
                "error",
                f"Commit {gap} is missing in {directory}/_delta_log: the table cannot be read.",
                f"Restore it, or move {directory} away: `afterlog run` then fills it again from its input.",
            )
    for stage in CATALOG:
        yield from _progress(warehouse, stage)


def _data_files(directory: str, name: str, damaged: Sequence[str]) -> Check:
    files = "A data file is" if len(damaged) == 1 else f"{len(damaged):,} data files are"
    return Check(
        name,
        "error",
        f"{files} missing or damaged in {directory}: its rows cannot be read. The first: {damaged[0]}.",
        "Restore it from a backup, or let `afterlog repair` take it out: `afterlog run` then makes its rows again.",
    )


def _progress(warehouse: Warehouse, stage: Stage) -> Iterator[Check]:
    """Compare a stage's progress with its table and its inputs, as the next run will."""
    known = held.own(warehouse, stage.table)
    if known is None and not _stated(warehouse, stage) and not warehouse.last_version(stage.table):
        return
    if known and known.held:
        yield from _held(stage, known)
        return
    if known and known.blocked_since:
        since = newest.moment(datetime.fromisoformat(known.blocked_since).astimezone(UTC))
        finding = f"Blocked since {since}: {known.message or 'its gate broke.'}"
        if isinstance(stage, Split):
            yield _broken(stage, finding, WHOLE)
            return
        remedy = "The next run takes the same rows again: fix the contract or raise the tolerance, then `afterlog run`."
        if isinstance(stage, Summarise):
            remedy = f"`afterlog rebuild {stage.table}` computes it again from its inputs; then `afterlog run`."
        yield Check(stage.table, "error", finding, remedy)
        return
    if causes := sorted(runner.blocked_upstream(warehouse, [stage])):
        first = next(stage_before.table for stage_before in CATALOG if stage_before.table in causes)
        finding = f"Waits for {', '.join(causes)}: facts of {first} are broken."
        yield Check(stage.table, "error", finding, f"`afterlog rebuild {first}`, then `afterlog run`.")
        return
    if reason := _disagreement(warehouse, stage, known):
        read = "all landed files" if isinstance(stage, Land) else f"all of {' and '.join(stage.inputs)}"
        yield Check(stage.table, "warning", f"{reason}.", f"The next `afterlog run` reads {read} again, without harm.")
    elif known and any(
        known.within_a_batch(own.cluster, runner.reads_topics(own.settings, stage)) for own in warehouse.of_clusters()
    ):
        yield Check(stage.table, "warning", "A run ended within a batch.", "The next `afterlog run` takes it again.")
    else:
        table = warehouse.last_version(stage.table)
        versions = {name: known.version_of(name) if known else None for name in stage.inputs}
        read = "".join(f", {name} is read up to version {version}" for name, version in versions.items())
        behind = warehouse.versions_after(versions)
        waits = f", {counted(behind, 'version')} {'waits' if behind == 1 else 'wait'}" if behind else ""
        yield Check(stage.table, "ok", f"Version {table}{read}{waits}.")


def _broken(stage: Stage, message: str, scope: str) -> Check:
    """Tell a broken gate's message, in which a line says what to do, and lines for the settings can follow."""
    lines = message.split("\n")
    at = next((place for place, line in enumerate(lines) if line.startswith(FIX)), len(lines))
    remedy = lines[at] if at < len(lines) else f"Fix the contract, or accept the rows: {_accept(stage, scope)}."
    return Check(stage.table, "error", " ".join(lines[:at]), remedy, "\n".join(lines[at + 1 :]) or None)


def _held(stage: Stage, known: Progress) -> Iterator[Check]:
    """Name the held scopes, since when they are held, and how to release them."""
    for name, scope in list(known.held.items())[:MOST_HELD]:
        yield _broken(stage, held.message(stage.table, replace(known, held={name: scope})) or "", name)
    left = len(known.held) - MOST_HELD
    if left > 0:
        finding = f"{left:,} more of its scopes {'is' if left == 1 else 'are'} held: quality.freshness names them all."
        yield Check(stage.table, "error", finding, f"{_accept(stage, WHOLE)} accepts all of them.")


def _header_profiles(warehouse: Warehouse) -> Iterator[Check]:
    """Say what the headers of records are that no profile reads, and propose a profile for each of their writers.

    These are rows in quarantine or held, and accepted rows of an unknown writer.
    """
    if not warehouse.opens_tables:
        return
    letters, total = _letters(warehouse)
    if not letters:
        return
    dlq = warehouse.settings.dlq
    profiles = profiles_of(dlq)
    readings = [read_by(letter, profiles) for letter in letters]
    unread = [letter for letter, reading in zip(letters, readings, strict=True) if not reading.comes_in]
    waiting = [(letter, one) for letter, one in zip(letters, readings, strict=True) if not letter.is_accepted]
    made = proposals(unread, dlq, _topics(warehouse))
    sampled = len(letters) < total
    for proposal in made:
        yield _proposed(proposal, f" Of {counted(total, 'such record')} {len(letters):,} were looked at." * sampled)
    if readable := sum(reading.comes_in for _, reading in waiting):
        finding = f"{counted(readable, 'record')} in quarantine or held can be read by the profiles as they are now."
        remedy = "`afterlog run` judges what is held again, `afterlog readmit silver.dlq_records` the others."
        yield Check("header profiles", "warning", finding, remedy)
    lacking = ((one.profile, one.lacking) for _, one in waiting if one.profile and one.lacking)
    if nearest := Counter(lacking):
        remedy = "If the writer leaves them out by right, replace the profile by a [[dlq.profile]] of the same name."
        yield Check("header profiles", "warning", unknown_headers.nearest(nearest), remedy)
    told = {id(letter) for proposal in made for letter in proposal.letters}
    if left := [letter for letter, reading in waiting if not reading.profile and id(letter) not in told]:
        finding = f"{unknown_headers.sentence(_names(left), len(left))} They are in quarantine or held."
        remedy = "Map them in a [[dlq.profile]] of the settings; names and values do not tell to which fields."
        yield Check("header profiles", "warning", finding, remedy)


def _proposed(proposal: Proposal, sampled: str) -> Check:
    """Say which records a proposed profile is for, what it would do, and what it would not."""
    letters = proposal.letters
    accepted = sum(letter.is_accepted for letter in letters)
    waiting = len(letters) - accepted
    where = []
    remedy = "Look at the guess below before you put it into the settings."
    if waiting:
        where.append(f"{waiting:,} {'is' if waiting == 1 else 'are'} in quarantine or held")
        remedy += " Then `afterlog run` judges what is held again, `afterlog readmit silver.dlq_records` the others."
    if accepted:
        where.append(f"{accepted:,} {'is' if accepted == 1 else 'are'} accepted with profile {owners.UNKNOWN}")
        remedy += " Accepted rows stay as they are, also in `afterlog readmit`: the profile reads new records."
        remedy += " Only a run into a new warehouse reads the old ones by it, if they are still landed."
    lead = "" if proposal.has_origin else "No header shows where the records come from. "
    said = unknown_headers.sentence(_names(letters), len(letters), "of a writer that no profile reads")
    finding = f"{lead}{said} {' and '.join(where) or 'None is the newest'}.{sampled} {proposal.tried}"
    return Check("header profiles", "warning", finding, remedy, proposal.toml)


def _names(letters: Iterable[Letter]) -> Counter[str]:
    """Count the records that have a header of each name."""
    return Counter(name for letter in letters for name in letter.all_names)


def _letters(warehouse: Warehouse) -> tuple[list[Letter], int]:
    """Return records that no profile reads, a part of each DLQ topic's, and their number."""
    letters: list[Letter] = []
    total = 0
    mapped = f"header_profile NOT IN ({', '.join(map(repr, PROFILES))})"
    lacks = f"header_profile IS NULL OR cardinality(missing_headers) > 0 AND {mapped}"
    for table in ("quarantine.dlq_records", "held.dlq_records", "silver.dlq_records"):
        if not warehouse.last_version(table):  # it does not exist, or was never written
            continue
        is_accepted = table == "silver.dlq_records"
        equal = {"cluster": warehouse.cluster} | ({"header_profile": owners.UNKNOWN} if is_accepted else {})
        try:
            columns = {column.name for column in warehouse.opened_table(table).schema().fields}
            unread = f"error IS NULL AND ({lacks if 'missing_headers' in columns else 'header_profile IS NULL'})"
            text = _LETTERS.format(
                headers="user_headers" if is_accepted else "headers",
                where="cardinality(user_headers) > 0" if is_accepted else unread,
                most=MOST_LOOKED_AT,
                most_of_all=MOST_LETTERS,
            )
            rows = jvmless.query(warehouse, table, text, equal)
        except Exception:  # the table cannot be read, which ``_tables`` reports
            continue
        total += rows[0]["total"] if rows else 0
        for row in rows:
            time = None if row["time"] is None else row["time"] // 1000
            letters.append(Letter.of(row["dlq_topic"], row["headers"], time, is_accepted))
    return letters, total


def _topics(warehouse: Warehouse) -> set[str]:
    """Return names of topics that accepted records are in or come from."""
    with contextlib.suppress(Exception):  # the table cannot be read, which ``_tables`` reports
        if warehouse.last_version("silver.dlq_records"):
            text = _TOPICS.format(most=MOST_TOPICS)
            rows = jvmless.query(warehouse, "silver.dlq_records", text, {"cluster": warehouse.cluster})
            return {row["topic"] for row in rows}
    return set()


def _writers(warehouse: Warehouse) -> Iterator[Check]:
    """Name the DLQ topics whose dead letters name no writer."""
    if not warehouse.last_version("gold.trust_findings"):
        return
    equal = {"cluster": warehouse.cluster, "kind": "UNKNOWN_WRITER"}
    for row in sorted(jvmless.rows(warehouse, "gold.trust_findings", equal), key=lambda row: str(row["topic"])):
        counted_ = counted(row["amount"], "dead letter")
        verb = "names" if row["amount"] == 1 else "name"
        yield Check("writers", "warning", f"{visible(row['topic'])}: {counted_} {verb} no writer.", owners.NAMELESS)


def _accept(stage: Stage, scope: str) -> str:
    return f"`{way_on(stage.table, scope)}` or AFTERLOG_TOLERANCE=1.0"


def _disagreement(warehouse: Warehouse, stage: Stage, known: Progress | None) -> str | None:
    latest = warehouse.last_version(stage.table)
    if known is None:
        return f"Its progress {'cannot be understood' if _stated(warehouse, stage) else 'is gone'}"
    if latest is None:
        return "It has progress, but the table is gone"
    sides = [("the table", stage.table, known.target_id, latest, known.target_version)]
    for table, reading in known.inputs.items():
        ends_at = warehouse.last_version(table)
        sides.append((table, table, reading.table_id, -1 if ends_at is None else ends_at, known.reached(table)))
    for shown, table, stated_id, version_there, version_stated in sides:
        actual_id = warehouse.table_id(table)
        if actual_id and stated_id and actual_id != stated_id:
            return f"Its progress speaks of another table than {shown} that is there now"
        if version_there < (version_stated or 0):
            return f"Its progress speaks of version {version_stated} of {shown}, which ends at {version_there}"
    return None


def _stated(warehouse: Warehouse, stage: Stage) -> bool:
    return warehouse.store.has(f"{STATE}/{stage.table}.json")


def _unmatched(warehouse: Warehouse) -> Iterator[Check]:
    """Name patterns of the settings that match nothing that landed."""
    for finding, remedy in (*known.unmatched(warehouse), *known.unmatched_of_teams(warehouse)):
        yield Check("settings", "warning", finding, remedy, of_pattern=True)


def _quarantines(warehouse: Warehouse) -> Iterator[Check]:
    """Count what is in quarantine, by rule and by source."""
    for stage in stages_of_type(Split):
        if not _was_written(warehouse, stage.quarantine):
            continue
        by_rule = (
            'SELECT violations, "_source" AS source, count(*) AS row_count FROM rows GROUP BY violations, "_source"'
        )
        try:
            counts = jvmless.query(warehouse, stage.quarantine, by_rule, {"cluster": warehouse.cluster})
        except Exception:  # the table cannot be read, which ``_tables`` reports
            continue
        rules: Counter[str] = Counter()
        sources: Counter[str] = Counter()
        for row in counts:
            sources[row["source"]] += row["row_count"]
            rules.update(dict.fromkeys(row["violations"] or (), row["row_count"]))
        if rows := sources.total():
            yield Check(
                stage.quarantine,
                "error",
                f"{counted(rows, 'row')} in quarantine. By rule: {_most(rules)}. By source: {_most(sources)}."
                f"{_unreadable(warehouse, stage, rules)}",
                f'`afterlog sql "SELECT violations, _source, count(*) FROM {stage.quarantine} GROUP BY ALL"` counts '
                "them; bad lines that have landed stay as they are. Once the contract or the settings are fixed, "
                f"`afterlog readmit {stage.table}` takes back what passes.",
            )


def _unreadable(warehouse: Warehouse, stage: Split, rules: Mapping[str, int]) -> str:
    """Say which rows in quarantine could not be read, and why; empty if all could."""
    readable = contract_of(stage.table).readable
    known = unreadable.kept(warehouse, stage, stage.quarantine) if readable and rules.get(readable.code) else None
    return f" {known.sentence()}" if known else ""


def _most(counts: Counter[str]) -> str:
    """Return the greatest counts in words."""
    named = sorted(counts.items(), key=lambda entry: (-entry[1], str(entry[0])))
    return first_names([f"{name} {count:,}" for name, count in named], MOST_NAMED)


def _damaged_files(warehouse: Warehouse) -> Iterator[Check]:
    """Name landed files that could not be read to their end, and still cannot."""
    for stage in stages_of_type(Land):
        if not _was_written(warehouse, stage.table):
            continue
        try:
            damages = _damages(warehouse, stage)
        except Exception:  # the table cannot be read, which ``_tables`` reports
            continue
        directory = warehouse.settings.landing_of(stage.directory)
        again = f"Land each again from its source, under its name in {directory}; what is read already stays."
        of_layouts = [one for one in damages if one[1].startswith(unknown.FINDING)]
        for what, those, remedy in (
            ("cannot be read, or not to the end", [one for one in damages if one not in of_layouts], again),
            (
                "in no known layout",
                of_layouts,
                f"Name the layout in the settings, then land each again in {directory}, or remove it.",
            ),
        ):
            if those:
                lines = [f"{source}: {_in_words(error)}" for source, error in those[:MOST_NAMED]]
                more = len(those) - MOST_NAMED
                lines += [f"And {more:,} more."] if more > 0 else []
                are = "is " if len(those) == 1 else "are "
                finding = f"{counted(len(those), 'file')} {are if what.startswith('in ') else ''}{what}."
                remedies = dict.fromkeys(UNREAD[error][-1] if error in UNREAD else remedy for _, error in those)
                yield Check(f"files of {stage.directory}", "error", f"{finding} {' '.join(lines)}", " ".join(remedies))


def _in_words(error: str) -> str:
    """Return a sentence about a file, given the sentence or the code in its row of bronze."""
    words = f"it {UNREAD[error][0]}" if error in UNREAD else error
    return words if words.endswith(".") else f"{words}."


def _damages(warehouse: Warehouse, stage: Land) -> list[tuple[str, str]]:
    """Return the files of a feed that bronze records as damaged, each with its error, if they are still damaged."""
    directory = warehouse.settings.landing_of(stage.directory)
    listed = listing(stage, directory)
    if stage.reader:
        versions = 'SELECT "_source", version, error FROM rows WHERE error IS NOT NULL'
        rows = jvmless.query(warehouse, stage.table, versions, {"cluster": warehouse.cluster})
        latest = 'SELECT "_source", max(version) AS version FROM rows GROUP BY "_source"' if rows else ""
        last = jvmless.query(warehouse, stage.table, latest, {"cluster": warehouse.cluster}) if rows else []
        version = {row["_source"]: row["version"] for row in last}
        errors = {row["_source"]: row["error"] for row in rows if row["version"] in (None, version[row["_source"]])}
        return sorted((source, error) for source, error in errors.items() if source in listed)
    content = "raw" if stage.directory == "dlq" else "line"
    damages = f'SELECT DISTINCT "_source", error FROM rows WHERE error IS NOT NULL AND "{content}" IS NULL'
    rows = jvmless.query(warehouse, stage.table, damages, {"cluster": warehouse.cluster})
    errors = {row["_source"]: row["error"] for row in rows if row["_source"] in listed}
    packed = [listed[source] for source, error in errors.items() if not error.startswith(unknown.FINDING)]
    still = landing.damaged(directory, packed)
    pattern = log_files.pattern_of(warehouse.settings, stage.directory) if stage.is_rotated else None
    return sorted(
        (source, error)
        for source, error in errors.items()
        if source in still
        or landing.is_unread(source)
        or (
            error.startswith(unknown.FINDING)
            and log_files.is_unknown(directory, source, pattern, stage.directory == "broker-logs")
        )
    )


def _policies(warehouse: Warehouse) -> Iterator[Check]:
    """Name the topics with ABSENT messages for which nothing tells whether compaction removed them."""
    if not _was_written(warehouse, POLICIES) or not _was_written(warehouse, LEDGER):
        return
    try:
        rows = jvmless.rows(warehouse, POLICIES, {"cluster": warehouse.cluster}, ["topic", "is_compacted"])
        if not (unknown := {row["topic"] for row in rows if row["is_compacted"] is None}):
            return
        by_topic = "SELECT topic, count(*) AS row_count FROM rows WHERE outcome = 'ABSENT' GROUP BY topic"
        absences = jvmless.query(warehouse, LEDGER, by_topic, {"cluster": warehouse.cluster})
    except Exception:  # the table cannot be read, which ``_tables`` reports
        return
    if absent := Counter({row["topic"]: row["row_count"] for row in absences if row["topic"] in unknown}):
        yield Check(
            "cleanup policies",
            "warning",
            f"{_absent(absent.total())}: {_most(absent)}.",
            "Name the cleanup.policy of these topics under [[segments.cleanup_policy]], or grant Afterlog "
            "DescribeConfigs on them; the next `afterlog run` decides.",
        )


def _absent(messages: int) -> str:
    """Return words that say how many messages are ABSENT."""
    if messages == 1:
        words = "is absent from its log (ABSENT), and nothing tells whether compaction removed it or it is lost"
    else:
        words = (
            "are absent from their logs (ABSENT), and nothing tells whether compaction removed them or they are lost"
        )
    return f"{counted(messages, 'acknowledged message')} {words}"


def _mistakes(warehouse: Warehouse) -> Iterator[Check]:
    """Tell how many groups would lose dead letters, or write useless ones, with the settings as they are."""
    if not _was_written(warehouse, findings.MISTAKES):
        return
    try:
        mistakes = findings.mistakes_of(warehouse, datetime.now(UTC))
    except Exception:  # the table cannot be read, which ``_tables`` reports
        return
    if kinds := Counter(one["kind"] for one in findings.urgent(mistakes)):
        yield Check(
            "dead-letter settings",
            "warning",
            f"{counted(kinds.total(), 'mistake')} in the settings of groups and topics would lose dead letters "
            f"or payloads: {_most(kinds)}.",
            "`afterlog top` shows each with the command that repairs it; `afterlog collect` asks the cluster again.",
        )


def _was_written(warehouse: Warehouse, table: str) -> bool:
    """Tell whether a table can hold rows; False if only Spark can tell, or if ``_tables`` says that it is refused."""
    with contextlib.suppress(UsageError):
        return warehouse.opens_tables and bool(warehouse.last_version(table))
    return False


def _quality(warehouse: Warehouse) -> Iterator[Check]:
    if warehouse.opens_tables and quality.waiting(warehouse):
        yield Check(
            "quality reports", "warning", "A run ended before it reported.", "The next `afterlog run` reports it."
        )


def _airflow(warehouse: Warehouse) -> Iterator[Check]:
    """Check the project's own Airflow: whether this version prepared it, and whether it answers if `make up` runs."""
    if not IS_CHECKOUT:
        return
    installed = version("apache-airflow")
    try:
        prepared = (AIRFLOW_HOME / ".prepared").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        prepared = None
    if prepared not in (None, installed):
        finding = f"{AIRFLOW_HOME} was prepared by Airflow {prepared}, {installed} is installed."
        yield Check("Airflow", "warning", finding, "`make up` or `make demo` migrates it.")
    home = f"home {AIRFLOW_HOME}" if prepared else "no home yet (`make up` makes one)"
    text = os.environ.get("AFTERLOG_PORT") or "8080"
    port = int(text) if text.isascii() and text.isdigit() else 8080
    address = f"http://127.0.0.1:{port}"
    health = _health(address)
    if health is None:
        with socket.socket() as probe:
            probe.settimeout(2)
            taken = probe.connect_ex(("127.0.0.1", port)) == 0
        if taken:
            finding = f"What listens on port {port} is not an Airflow that answers."
            yield Check("Airflow", "warning", finding, "Choose another port: AFTERLOG_PORT=8081 make up.")
        else:
            yield Check("Airflow", "ok", f"Airflow {installed}, {home}; not serving (`make up` starts it).")
        return
    ill = [part for part in ("metadatabase", "scheduler", "dag_processor") if health.get(part) != "healthy"]
    if ill:
        remedy = f"Read {AIRFLOW_HOME / 'logs' / 'up'}, then restart `make up`."
        yield _environment_error("Airflow", f"At {address}, not healthy: {', '.join(ill)}.", remedy)
    else:
        yield Check("Airflow", "ok", f"Airflow {installed}, {home}; healthy at {address}.")


def _health(address: str) -> dict[str, str | None] | None:
    """Ask Airflow's API for the state of its components; None if nothing answers as Airflow does."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{address}/api/v2/monitor/health", timeout=2) as answer:
            parts = json.load(answer)
        return {name: (part or {}).get("status") for name, part in parts.items() if isinstance(part, dict | None)}
    except (OSError, ValueError, AttributeError):
        return None
