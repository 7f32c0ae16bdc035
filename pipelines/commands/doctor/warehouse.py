"""Checks of a warehouse: its lock, store and backups, its tables and their progress, what is in quarantine."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from expectations.contract import contract_of
from expectations.rules import counted
from expectations.text import visible
from expectations.verdict import FIX, WHOLE, way_on
from pipelines import moments
from pipelines.catalog import CATALOG, stages_of_type
from pipelines.commands.check import Check, environment_error, greatest
from pipelines.commands.doctor.machine import runs_spark
from pipelines.errors import AfterlogError, EnvironmentLacking, UsageError
from pipelines.installation import setup
from pipelines.jvm import jars
from pipelines.jvm.properties import defaults, for_s3
from pipelines.run import contracts, idleness, landing, newest
from pipelines.run.newest import lasting
from pipelines.settings import s3
from pipelines.stage import Land, Split, Stage, Summarise
from pipelines.steps import held, unreadable
from pipelines.stores import locations, lock, restored
from pipelines.stores.base import STATE
from pipelines.text import iso
from pipelines.warehouse import backups, clock, delta_log, jvmless, quality
from pipelines.warehouse.clock import Written
from pipelines.warehouse.progress import Progress
from pipelines.warehouse.tables import Warehouse

MOST_HELD = 10
_CONNECTORS = {"abfs": "hadoop-azure", "gs": "gcs-connector"}


def check_store(warehouse: Warehouse) -> Iterator[Check]:
    """Find nothing; raise why an object store cannot be reached, as all that asks it does."""
    if locations.scheme_of(warehouse.root) and warehouse.opens_tables:
        warehouse.store.is_empty()
    yield from ()


def check_lock(warehouse: Warehouse) -> Iterator[Check]:
    """Say who holds the writer's lock."""
    if locations.directory_of(warehouse.root) or warehouse.opens_tables:
        holder = lock.holder(warehouse.root)
        yield Check("writer's lock", "ok", f"Held by {holder}." if holder else "Free.")


def is_half(warehouse: Warehouse) -> bool:
    """Tell whether only a part of the warehouse is restored, whose tables tell nothing."""
    try:
        mark = restored.found(warehouse.store) if warehouse.opens_tables else None
    except AfterlogError:  # what it raises is a finding about backups
        return True
    return mark is not None and mark.is_half


def check_clock(warehouse: Warehouse) -> Iterator[Check]:
    """Say whether this machine's clock is behind what the warehouse has written."""
    lag = Written.of(warehouse).lag(moments.now()) if warehouse.opens_tables else None
    if lag is not None:
        finding = f"This machine's clock is {lasting(lag)} behind what the warehouse has written."
        remedy = f"Set the clock. If an earlier one was ahead, remove {clock.FILE} in {warehouse.shown}."
        yield Check("clock", "warning", finding, f"{remedy} See docs/operate.md.")


def check_backups(warehouse: Warehouse) -> Iterator[Check]:
    """Say from what the warehouse was restored, and how old its last backup is, if there is one."""
    if not warehouse.opens_tables:
        return
    mark = restored.found(warehouse.store)
    if mark is not None and mark.is_half:
        finding = f"Only a part of the warehouse is restored, from backup {mark.backup}; its tables are not examined."
        yield environment_error("backups", finding, f"{mark.way_on[0].upper()}{mark.way_on[1:]}.")
        return
    if mark is not None and mark.ended_at is not None:
        yield Check("backups", "ok", f"Restored at {iso(mark.ended_at)} from a backup of {iso(mark.taken_at)}.")
    last, wanted = backups.last_of(warehouse.store), warehouse.settings.backup
    age = None if last is None else moments.now() - last.taken_at
    is_late = wanted.to is not None and (age is None or age > 2 * timedelta(hours=wanted.every_hours))
    remedy = "`afterlog backup` makes one; the DAG `backup` does so regularly." if is_late else None
    if last is not None and age is not None:
        finding = f"The last one was taken {lasting(age)} ago: {last.backup} in {last.place}."
        yield Check("backups", "warning" if is_late else "ok", finding, remedy)
    elif is_late:
        yield Check("backups", "warning", f"There is none yet in {visible(wanted.to or '')}.", remedy)


def check_log_store(warehouse: Warehouse) -> Iterator[Check]:
    """Examine what a warehouse on an object store needs: Delta's log store for it, and Hadoop's file system."""
    scheme = locations.scheme_of(warehouse.root)
    if scheme is None:
        return
    properties = {**defaults(warehouse.settings.spark), **warehouse.settings.spark}
    if why := locations.unsafe_store(warehouse.root, properties):
        finding = f"Two writers on {scheme}:// could lose each other's commits: {why}."
        yield environment_error("log store", finding, "`afterlog run` refuses it. Name another warehouse.")
    elif locations.directory_of(warehouse.root):
        yield Check("log store", "ok", f"{scheme}:// is on this machine: the writer's lock lets one at a time write.")
    elif s3.is_s3(warehouse.root):
        for_s3()  # raises a sentence about variables that cannot be used
        if runs_spark() and (reason := jars.fault_of(jars.S3)):
            yield environment_error("log store", f"{reason}.", f"Run `{setup(jars.S3)}`.")
        else:
            yield Check(
                "log store", "ok", "A commit to S3 never replaces another one; a lease lets one writer at a time work."
            )
    else:
        yield Check("log store", "ok", f"Delta's own log store for {scheme}:// is safe with several writers.")
    conf = jars.of(warehouse.root) if runs_spark() else None
    connector = _CONNECTORS.get(conf or "")
    added = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
    if conf and connector and jars.fault_of(conf) and not any(connector in properties.get(name, "") for name in added):
        yield Check(
            "log store",
            "warning",
            f"{connector}, by which Spark reads {scheme}://, is not among the JVM jars, nor in a property of [spark].",
            f"Run `{setup(conf)}`, unless the cluster has it.",
        )


def was_written(warehouse: Warehouse, table: str) -> bool:
    """Tell whether a table can hold rows; False if only Spark can tell, or if ``check_tables`` finds it refused."""
    with contextlib.suppress(UsageError):
        return warehouse.opens_tables and bool(warehouse.last_version(table))
    return False


def check_tables(warehouse: Warehouse) -> Iterator[Check]:
    """Say which tables are missing or cannot be read, and how far each stage is."""
    if not warehouse.opens_tables:
        remedy = (
            '`afterlog sql "SELECT * FROM quality.freshness"` says how far each table is, '
            "and `afterlog report` how old the newest record of each feed is."
        )
        yield Check(
            "tables",
            "warning",
            f"Only Spark opens {warehouse.shown}: its tables are not read without a session.",
            remedy,
        )
        return
    names = [contract.table for contract in contracts.contracts()]
    missing = [name for name in names if warehouse.last_version(name) is None]
    if len(missing) == len(names):
        yield Check("tables", "ok", f"None yet in {warehouse.shown}: `afterlog run` creates them.")
    elif missing:
        yield Check("tables", "warning", f"{', '.join(missing)} missing.", "`afterlog run` creates them, empty.")
    else:
        yield Check("tables", "ok", f"All {len(names)} are there; of data files only sizes are compared.")
    damaged: set[str] = set()
    for name in names:
        for check in () if name in missing else _faults(warehouse, name):
            damaged.add(name)
            yield check
    for stage in CATALOG:
        for check in _check_progress(warehouse, stage):
            if stage.table not in damaged or check.state != "ok":
                yield check


def _faults(warehouse: Warehouse, name: str) -> Iterator[Check]:
    """Say why a table cannot be read, or which of its data files are missing or damaged; nothing if it is whole."""
    if fault := delta_log.fault(warehouse.store, warehouse.table_path(name)):
        yield Check(name, "error", fault.finding, fault.remedy)
        return
    try:
        if damaged := warehouse.damaged_files(name):
            yield _data_files(warehouse.location(name), name, damaged)
    except UsageError as error:
        yield Check(name, "error", str(error))
    except EnvironmentLacking:
        fault = delta_log.fault(warehouse.store, warehouse.table_path(name), refused=True)
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


def _data_files(directory: str, name: str, damaged: Sequence[str]) -> Check:
    files = "A data file is" if len(damaged) == 1 else f"{len(damaged):,} data files are"
    return Check(
        name,
        "error",
        f"{files} missing or damaged in {directory}: its rows cannot be read. The first: {damaged[0]}.",
        "Restore it from a backup, or let `afterlog repair` take it out: `afterlog run` then makes its rows again.",
    )


def _check_progress(warehouse: Warehouse, stage: Stage) -> Iterator[Check]:
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
    if causes := sorted(idleness.blocked_upstream(warehouse, [stage])):
        first = next(stage_before.table for stage_before in CATALOG if stage_before.table in causes)
        finding = f"Waits for {', '.join(causes)}: facts of {first} are broken."
        yield Check(stage.table, "error", finding, f"`afterlog rebuild {first}`, then `afterlog run`.")
        return
    if reason := _disagreement(warehouse, stage, known):
        read = "all landed files" if isinstance(stage, Land) else f"all of {' and '.join(stage.inputs)}"
        yield Check(stage.table, "warning", f"{reason}.", f"The next `afterlog run` reads {read} again, without harm.")
    elif known and any(
        known.within_a_batch(own.cluster, landing.reads_topics(own.settings, stage)) for own in warehouse.of_clusters()
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
    at = next((index for index, line in enumerate(lines) if line.startswith(FIX)), len(lines))
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


def check_quarantines(warehouse: Warehouse) -> Iterator[Check]:
    """Count what is in quarantine, by rule and by source."""
    for stage in stages_of_type(Split):
        if not was_written(warehouse, stage.quarantine):
            continue
        by_rule = (
            'SELECT violations, "_source" AS source, count(*) AS row_count FROM rows GROUP BY violations, "_source"'
        )
        try:
            counts = jvmless.query(warehouse, stage.quarantine, by_rule, {"cluster": warehouse.cluster})
        except Exception:  # the table cannot be read, which ``check_tables`` reports
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
                f"{counted(rows, 'row')} in quarantine. By rule: {greatest(rules)}. By source: {greatest(sources)}."
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


def check_quality_reports(warehouse: Warehouse) -> Iterator[Check]:
    """Say whether a run ended before it reported."""
    if warehouse.opens_tables and quality.waiting(warehouse):
        yield Check(
            "quality reports", "warning", "A run ended before it reported.", "The next `afterlog run` reports it."
        )
