"""Held rows: rows of scopes that broke the gate, kept as they landed until they pass or are accepted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from expectations.contract import ORIGIN, Column, Contract, contract_of
from expectations.provenance import ADDED_BY_THE_RUN
from expectations.rules import counted
from expectations.text import visible
from expectations.verdict import MOST_NAMED, SCOPE, WHOLE, way_on
from pipelines.catalog import stages_of_type
from pipelines.errors import UsageError
from pipelines.settings import Settings
from pipelines.stage import Split, Stage
from pipelines.steps.modules import split_module
from pipelines.steps.scopes import can_be_of_a_file, file_scope, is_of_any, is_of_other_cluster, scope_of
from pipelines.steps.split import SplitBatch, contract_under
from pipelines.text import first_names, hint, near
from pipelines.warehouse import change_feed, jvmless, progress
from pipelines.warehouse.change_feed import Changes
from pipelines.warehouse.progress import Batch, Held, Progress
from pipelines.warehouse.ranges import points
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INPUT = "input"
HELD_QUESTION = "blocked_tables"
# These settings do not change what a gate finds. Thresholds of `gates` count by the contract: see `contract_under`.
_OTHER_SETTINGS = {
    *("cluster", "warehouse", "landing", "engine", "kafka", "kafka_connection", "lock", "report", "spark", "gates"),
    *("collect", "silence", "alerts", "metrics", "replay", "schemas", "privacy", "privacy_key", "airflow"),
    *("shared_directories", "teams", "retention", "backup"),
}


def contract_of_held(stage: Stage) -> Contract | None:
    """Return the contract of a table's held rows; None for a table without scopes.

    A held row contains its row of bronze. The transform runs on it again when the row is judged again, as the transform
    may have changed.
    """
    if not isinstance(stage, Split):
        return None
    contract = contract_of(stage.table)
    if contract.scope is None:
        return None
    name = contract.table.partition(".")[2]
    fields = ", ".join(f"`{column.name}`: {column.type}" for column in _landed(stage))
    return Contract(
        table=f"held.{name}",
        description=f"Rows of scopes that break the contract of {contract.table}: they wait until they are accepted.",
        columns=(
            Column(
                "scope",
                "string",
                "What is held: a topic; file:<source> for lines of a file that name none; of another cluster than that "
                "of the first run behind cluster:<cluster>/.",
            ),
            *contract.quarantine,
            Column(INPUT, f"struct<{fields}>", f"Row of {stage.inputs[0]} that the row is made from."),
        ),
        grain=("scope", *contract.row),
    )


def _landed(stage: Split) -> tuple[Column, ...]:
    """Return the columns of bronze that a held row keeps."""
    return tuple(column for column in contract_of(stage.inputs[0]).stored if column.name not in ADDED_BY_THE_RUN)


def mark_of(contract: Contract) -> str:
    """Return a hash that changes when the contract's rules, scope, grain or thresholds change."""
    rules = [(rule.code, rule.kind, rule.arguments, rule.subject, rule.guard, rule.refuses) for rule in contract.rules]
    return _digest([rules, contract.scope, contract.grain, contract.tolerance, contract.min_failures])


def circumstances(settings: Settings, stage: Stage) -> str:
    """Return a hash that changes when the contract or the settings change; held rows are then judged again."""
    return _digest(
        [mark_of(contract_under(settings, stage)), settings.model_dump(mode="json", exclude=_OTHER_SETTINGS)]
    )


def reading(settings: Settings, stage: Stage) -> str:
    """Return a hash that changes when rows may be read in another way or by other rules.

    Thresholds that the settings give are left out.
    """
    return circumstances(settings.model_copy(update={"tolerance": None, "gates": {}}), stage)


def _digest(values: object) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Acceptance:
    """The scopes that a run accepts once, by table; ``WHOLE`` means all of a table's that are of the run's clusters."""

    scopes: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, asked: Iterable[str], stages: Sequence[Stage]) -> Acceptance:
        """Parse arguments TABLE[:SCOPE]; the scope is spelled as in the data or as ``shown``.

        Raises UsageError: the table is not a ``Split`` table, this run does not fill it, or the scope is empty.
        """
        scopes: dict[str, frozenset[str]] = {}
        judged = {stage.table for stage in stages_of_type(Split)}
        for argument in asked:
            table, colon, scope = argument.partition(":")
            if table not in judged:
                raise UsageError(f"Nothing can be accepted for {visible(table)!r}.{near(table, sorted(judged))}")
            if table not in {stage.table for stage in stages}:
                raise UsageError(f"This run does not fill {table}, for which something is to be accepted.")
            if colon and not scope:  # for example an empty variable in a script
                raise UsageError(f"{visible(argument)!r} names no scope behind the colon; all of the table is {table}.")
            scopes[table] = scopes.get(table, frozenset()) | {scope if colon else WHOLE}
        return cls(scopes)

    def has(self, table: str, scope: str, is_own: bool = True) -> bool:
        """Tell whether this run accepts a scope; ``is_own`` says that it is of a cluster of the run."""
        asked = self.scopes.get(table, frozenset())
        return (WHOLE in asked and is_own) or scope in asked or visible(scope) in asked

    def remarks(self, warehouse: Warehouse) -> list[str]:
        """Return a sentence for each table to accept that has no held rows now.

        Raises UsageError: a scope that is named has none. A run that was killed may have released it already, so that
        is no mistake as long as its batch is not complete.
        """
        said = []
        for table, scopes in self.scopes.items():
            known = progress.load(warehouse, table) or Progress()
            own = of_clusters(known, warehouse.settings.names)
            there = {*known.held, *map(visible, known.held)}
            unknown = next((scope for scope in sorted(scopes - there - {WHOLE})), None)
            if unknown is not None and not known.pending:
                near = hint(unknown, sorted(known.held)) or f" `afterlog ask {HELD_QUESTION}` names what is."
                raise UsageError(f"Nothing of {table} is held as {visible(unknown)!r}.{near}")
            if WHOLE in scopes and not (own.held or known.blocked_since):
                said.append(
                    f"Nothing of {table} is held: it is accepted if this run finds that it breaks the contract."
                )
        return said


NOTHING_ACCEPTED = Acceptance({})


def again(known: Progress, settings: Settings, stage: Stage, accepted: Acceptance) -> list[str]:
    """Return the held scopes to judge again without new rows: they are accepted, or contract or settings changed.

    Changed settings do not speak about scopes of clusters that they do not name.
    """
    now, own = circumstances(settings, stage), of_clusters(known, settings.names).held
    return [
        name
        for name, held in known.held.items()
        if accepted.has(stage.table, name, name in own) or (held.under != now and name in own)
    ]


def would_break_again(
    known: Progress, settings: Settings, stage: Stage, accepted: Acceptance = NOTHING_ACCEPTED
) -> bool:
    """Tell whether a batch that is held as a whole would break the gate again, as nothing has changed."""
    if known.blocked_since is None or known.decided is not None:
        return False
    return known.under == circumstances(settings, stage) and not accepted.has(stage.table, WHOLE)


def names_in(warehouse: Warehouse, contract: Contract) -> list[str]:
    """Return the scopes that have held rows."""
    existing_rows = warehouse.existing_rows(contract.table)
    if existing_rows is None:
        return []
    return sorted(row["scope"] for row in existing_rows.select("scope").distinct().collect())


def with_news(warehouse: Warehouse, stage: Split, versions: Batch, scopes: set[str], home: str | None) -> set[str]:
    """Return which of the held scopes have new rows; compute only the scope of each row.

    A file whose lines without a topic are held has news if it has any new line.
    """
    from pyspark.sql import functions as F

    feed = feed_of(warehouse, stage, versions)
    if feed is None or not scopes:
        return set()
    new = rows_of(warehouse, stage, feed, ())
    assert new is not None
    contract, module = contract_of(stage.table), split_module(stage)
    if contract.scope and module.SCOPE_OF_INPUT:
        candidates = new.withColumn(contract.scope, F.col(module.SCOPE_OF_INPUT))
    else:
        candidates = module.transform(new, warehouse.settings)
    of = [scope_of(contract, home)]
    of += [file_scope(home)] if any(map(can_be_of_a_file, scopes)) else []
    named = candidates.select(F.explode(F.array(*of)).alias("scope")).distinct()
    return {row["scope"] for row in named.where(F.col("scope").isin(sorted(scopes))).collect()}


def feed_of(warehouse: Warehouse, stage: Split, versions: Batch) -> Changes | None:
    """Return the changes of a stage's input in a batch; None if the input has no new version."""
    (table,) = stage.inputs
    return change_feed.changes(warehouse, table, versions) if (versions.start or 0) < versions.end else None


def rows_of(warehouse: Warehouse, stage: Split, feed: Changes | None, scopes: Sequence[str]) -> DataFrame | None:
    """Return a batch's rows of bronze: new rows, and those of held scopes to judge again; None if there are none."""
    from pyspark.sql import functions as F

    (table,) = stage.inputs
    new = feed.rows.where("_change_type = 'insert'").drop("_change_type") if feed else None
    held = contract_of_held(stage)
    if held is None or not scopes:
        return new
    existing_rows = warehouse.existing_rows(held.table, points("scope", sorted(scopes)))
    if existing_rows is None:
        return new
    there = {field.name for field in existing_rows.schema[INPUT].dataType.fields}  # type: ignore[attr-defined]
    kept = existing_rows.select(
        *(
            (F.col(INPUT)[column.name] if column.name in there else F.lit(None).cast(column.type)).alias(column.name)
            for column in contract_of(table).stored
        )
    ).dropDuplicates([*ORIGIN])
    if new is None:
        return kept
    # New rows can be held already: by a killed attempt at this batch, or because all of the input is read again.
    return new.join(kept.select(*ORIGIN), [*ORIGIN], how="left_anti").unionByName(kept, allowMissingColumns=True)


def files_of(
    warehouse: Warehouse, stage: Split, versions: Batch, scopes: Sequence[str]
) -> tuple[change_feed.NamedFiles, ...] | None:
    """Return the files that ``rows_of`` reads at most; None if only Delta can read them or they are many to look up."""
    (table,) = stage.inputs
    held = contract_of_held(stage)
    are_many = versions.start is not None and versions.end - versions.start > change_feed.MOST_COMMITS
    if are_many or not warehouse.opens_tables:
        return None
    files = [change_feed.batch_files(warehouse, table, versions)] if (versions.start or 0) < versions.end else []
    if held is not None and scopes:
        files.append(change_feed.all_rows(warehouse, held.table))
    return None if None in files else tuple(filter(None, files))


def hold(split: SplitBatch, stage: Split, otherwise: Sequence[str] = ()) -> int:
    """Insert the rows of the scopes that a batch holds; return how many rows of these scopes are held now.

    Rows that are held already stay as they are, except those of the scopes that are judged ``otherwise`` than before,
    by another contract or other settings: their present candidates replace them. Rows that are held in the scope of
    another cluster leave it; they are held in their own one first, if that is held.
    """
    from pyspark.sql import functions as F

    held = contract_of_held(stage)
    assert held is not None
    row = [*split.contract.row]
    mask = F.col("_broken_rules")
    withheld = split.withheld().select(
        *row, F.col(SCOPE).alias("scope"), split.contract.violations(mask).alias("violations")
    )
    columns = [column.name for column in _landed(stage)]
    landed = split.rows.select(*ORIGIN, F.struct(*columns).alias(INPUT))
    existing_rows = split.warehouse.existing_rows(held.table, points("scope", sorted(split.held)))
    is_elsewhere = F.lit(False) if split.home is None else is_of_other_cluster(split.home)
    kept_before = of_other_cluster = 0
    if existing_rows is not None:
        counted = existing_rows.groupBy(is_elsewhere).count().collect()
        counts: dict[bool, int] = {elsewhere: rows for elsewhere, rows in counted}
        kept_before, of_other_cluster = counts.get(False, 0), counts.get(True, 0)
        existing_rows = existing_rows.where(~is_elsewhere)
        kept = existing_rows.select(*held.grain)
        if otherwise:
            again = withheld.where(F.col("scope").isin(list(otherwise))).join(kept, [*held.grain], how="left_semi")
            rows = split.among(again).join(landed, [*ORIGIN]).select(*(column.name for column in held.columns))
            split.warehouse.replace_matching(held.table, rows, held.grain)
        withheld = withheld.join(kept, [*held.grain], how="left_anti")
    rows = split.among(withheld).join(landed, [*ORIGIN])
    inserted = split.warehouse.insert(rows, held, are_few=split.are_few)
    if of_other_cluster:
        split.warehouse.remove_where(held.table, F.col("scope").isin(sorted(split.held)) & is_elsewhere)
    return kept_before + inserted


def release(warehouse: Warehouse, stage: Split, scopes: Sequence[str]) -> None:
    """Remove the rows of scopes that are no longer held from the table of held rows."""
    from pyspark.sql import functions as F

    held = contract_of_held(stage)
    if held is not None and scopes:
        warehouse.remove_where(held.table, F.col("scope").isin(list(scopes)))


def of_clusters(known: Progress, clusters: Collection[str]) -> Progress:
    """Return a stage's progress with the held scopes of some clusters only."""
    own = {name: held for name, held in known.held.items() if is_of_any(clusters, name, known.home)}
    return replace(known, held=own)


def own(warehouse: Warehouse, table: str) -> Progress | None:
    """Return a table's progress with the held scopes of the settings' clusters only; None if it has no progress."""
    known = progress.load(warehouse, table)
    return of_clusters(known, warehouse.settings.names) if known else None


def since(known: Progress) -> str | None:
    """Return since when rows of a table are held; None if none are."""
    times = [held.since for held in known.held.values()]
    return min([*times, *([known.blocked_since] if known.blocked_since else [])], default=None)


def message(table: str, known: Progress) -> str | None:
    """Say what is held, since when, why, and what to do."""
    if not known.held:
        return known.message
    if len(known.held) == 1:
        ((name, held),) = known.held.items()
        return f"{rows_held(held.rows, visible(name))} since {_moment(held.since)}. {held.message}"
    scopes = [
        f"{visible(name)} ({counted(held.rows, 'row')} since {_moment(held.since)})"
        for name, held in known.held.items()
    ]
    rows = sum(held.rows for held in known.held.values())
    name, held = next(iter(known.held.items()))
    return (
        f"{rows_held(rows, counted(len(known.held), 'scope'))}: {first_names(scopes, MOST_NAMED)}. "
        f"`{way_on(table, WHOLE)}` accepts all of them once. The first: {held.message}"
    )


def told_to_cluster(warehouse: Warehouse, table: str, known: Progress) -> Progress:
    """Return a table's progress with the held scopes of the settings' cluster, and the number of its rows in each.

    A run of an earlier version held rows of several clusters in one scope, if their topics had the same name. If
    nothing tells whose rows these are, all clusters have them.
    """
    own = of_clusters(known, (warehouse.cluster,))
    name = f"held.{table.partition('.')[2]}"
    if known.home is not None or not own.held or not warehouse.exists(name):
        return own
    text = "SELECT cluster, count(*) AS row_count FROM rows GROUP BY cluster"
    found: dict[str, Held] = {}
    for scope, held in own.held.items():
        try:
            counts = jvmless.query(warehouse, name, text, {"scope": scope})
        except Exception:  # a damaged table, which `afterlog doctor` names
            return own
        rows = {row["cluster"]: row["row_count"] for row in counts}
        if not rows or rows.keys() == {warehouse.cluster}:
            found[scope] = held
        elif warehouse.cluster in rows:
            found[scope] = replace(held, rows=rows[warehouse.cluster])
    return replace(own, held=found)


def rows_held(rows: int, of: str) -> str:
    """Say how many rows of a scope, or of a table, are held."""
    return f"{counted(rows, 'row')} of {of} {'is' if rows == 1 else 'are'} held"


def of_table(warehouse: Warehouse, stage: Stage) -> Progress | None:
    """Return a stage's progress, with the held scopes of the settings' clusters; None if nothing of it is held."""
    known = own(warehouse, stage.table)
    return known if known and (known.held or known.blocked_since) else None


def _moment(text: str) -> str:
    at = datetime.fromisoformat(text)
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
