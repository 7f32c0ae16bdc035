"""Bronze -> silver: transform, judge at the gate, split into table and quarantine, collapse on the grain, insert."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from expectations.contract import Contract, contract_of
from expectations.verdict import SCOPE, Verdict
from pipelines.columns.cached import cached
from pipelines.columns.once import computed_once
from pipelines.engines.choose import Choice
from pipelines.jvm import session
from pipelines.settings import Settings
from pipelines.stage import Stage
from pipelines.steps import failing_rows, unreadable
from pipelines.steps.batch_rows import ArrowRows, SparkRows
from pipelines.steps.collapse import CONFLICT, OUTCOMES, SKIPPED, Census, census, contested, decided
from pipelines.steps.modules import unexplained
from pipelines.steps.scopes import APPLYING, Counted, History, count, scope_of
from pipelines.steps.unreadable import Unreadable
from pipelines.warehouse.staging import staged
from pipelines.warehouse.tables import Warehouse, quarantine_contract

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MARKS = (SKIPPED, SCOPE, APPLYING, "_broken_rules")
LEAVES = "leaves_quarantine"
MANY_ROWS = 200_000  # whose judgement and reading fill Java's heap
MOST_BROADCAST = 5_000_000  # rows of a batch: at most half as many hashes repeat, and so many fit into Java's heap


@dataclass(frozen=True)
class Counts:
    """Where the rows of a batch went: read = accepted + quarantined + duplicates + skipped + held."""

    read: int
    accepted: int
    quarantined: int
    duplicates: int
    skipped: int
    held: int = 0


@dataclass(frozen=True)
class SplitBatch:
    """A batch of candidates for a table and its quarantine, without those of the ``held`` scopes.

    The candidates were made from the input ``rows`` and judged once; ``made`` returns them. ``judged`` has one row per
    candidate, without payloads: the columns that name it, its grain and scope, bitmasks of the rules that it breaks and
    of the rules that apply to it, and the values that rules examine. ``explain`` adds to a broken gate's verdict what
    else the judged and the input rows tell. ``home`` is the cluster whose scopes do not name it. ``read`` tells how far
    a change feed was read, if it does.
    """

    warehouse: Warehouse
    contract: Contract
    rows: DataFrame
    judged: SparkRows | ArrowRows
    census: Census
    held: frozenset[str] = frozenset()
    explain: Callable[[DataFrame, DataFrame, Verdict, Settings], Verdict] = unexplained
    home: str | None = None
    engine: Choice | None = None
    staged: DataFrame | None = None
    read: DataFrame | None = None
    are_few: ClassVar[bool] = False
    """Whether the candidates, with the rows that they come from, fit into memory."""

    @classmethod
    @contextmanager
    def between(
        cls, warehouse: Warehouse, contract: Contract, rows: DataFrame, candidates: DataFrame, home: str | None = None
    ) -> Iterator[SplitBatch]:
        """Yield a batch of rows from which ``candidates`` are made; they are staged until the block ends.

        After a batch of many rows Java gives the memory back.
        """
        with staged(warehouse, contract.table, marked(contract, candidates, home)) as made:
            judged = SparkRows(judged_by(contract, made))
            counted = census(judged, contract)
            yield SplitBatch(warehouse, contract, rows, judged, counted, home=home, staged=made)
        if counted.rows + counted.skipped >= MANY_ROWS:
            session.give_back(warehouse.spark)

    def made(self) -> DataFrame:
        """Return all candidates, with payloads, scopes and marks."""
        assert self.staged is not None
        return self.staged

    @property
    def candidates(self) -> DataFrame:
        """The candidates that belong to the table and are not held, with payloads."""
        return self._not_held(wanted(self.made()))

    def _not_held(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        return rows.where(~F.col(SCOPE).isin(sorted(self.held))) if self.held else rows

    def flowing(self) -> SparkRows:
        """Return the judged rows that belong to the table and are not held."""
        return SparkRows(self._not_held(wanted(self.judged.frame)))

    def withheld(self) -> DataFrame:
        """Return the judged rows that are held."""
        from pyspark.sql import functions as F

        return wanted(self.judged.frame).where(F.col(SCOPE).isin(sorted(self.held)))

    def holding(self, scopes: frozenset[str]) -> SplitBatch:
        """Return the batch with these scopes held."""
        return replace(self, held=scopes)

    def counted(self, history: History | None = None, others: Mapping[str, int] | None = None) -> Counted:
        """Count what each rule finds in each scope; see ``scopes.count``."""
        return count(self.judged, self.contract, history, others, self.home)

    def unreadable(self, counted: Counted) -> Unreadable | None:
        """Return what is told of the rows that could not be read; None if there are none."""
        return unreadable.of_batch(self.judged, self.contract, counted, self.warehouse.settings)

    def gate(self, run_id: str, counted: Counted | None = None, unread: Unreadable | None = None) -> Verdict:
        """Judge the candidates by the contract; a broken gate's verdict says where failing rows are, and why."""
        from expectations import suite

        counted = counted or self.counted()
        judged = wanted(self.judged.frame)

        def locate(verdict: Verdict) -> Verdict:
            verdict = failing_rows.located(verdict, judged, self.contract, self.warehouse.settings)
            readable = self.contract.readable
            return unread.explained(verdict, readable.code) if unread and readable else verdict

        verdict = suite.gate(
            judged,
            self.contract,
            run_id=run_id,
            store=self.warehouse.settings.reports() / "gx",
            scopes=counted.scopes,
            examined_rows=counted.examined_rows,
            locate=locate,
        )
        return verdict if verdict.passed else self.explain(judged, self.rows, verdict, self.warehouse.settings)

    def write(self, held: int = 0) -> Counts:
        """Insert new rows into quarantine, then into the table, then remove from quarantine the rows that leave it.

        No step writes again what an earlier, killed attempt wrote, so that a rerun converges. ``held`` is the number of
        the batch's rows in the table of held rows.

        Raises RuntimeError: the rows written do not add up to the rows read; progress must not be recorded.
        """
        with self.decisions() as decisions:
            return self.write_decided(decisions, held)

    def write_decided(self, decisions: SparkRows | ArrowRows, held: int = 0) -> Counts:
        """Do what ``write`` does, with decisions that were made before."""
        from pyspark.sql import functions as F

        warehouse, contract, row = self.warehouse, self.contract, [*self.contract.row]
        tally = _tally(decisions)
        quarantined = self.quarantine(decisions) if tally["refused"] or tally["conflict"] else 0
        replaced = 0
        if tally["supersede"] or tally["identify"]:  # before the insert: a new row may have the grain of a replaced one
            chosen = decisions.frame.where(F.col("outcome").isin("supersede", "identify")).select(*row, "_replaces")
            names = [column.name for column in contract.stored]
            replacing = self.among(chosen).select(*names, "_replaces")
            under = {contract.late_key: "_replaces"} if contract.late_key else {}
            replaced = warehouse.replace_matching(contract.table, replacing, contract.grain, under)
        accepted = self.insert(decisions, all_=not any(tally[outcome] for outcome in OUTCOMES))
        accepted += replaced - tally["identify"]
        duplicates = tally["duplicate"] + tally["identify"]
        if tally[LEAVES]:
            leaving = decisions.frame.where(LEAVES).select(*contract.identity).distinct()
            warehouse.remove_matching(quarantine_contract(contract).table, leaving, contract.identity)
        skipped = self.census.skipped
        counts = Counts(self.census.rows + skipped, accepted, quarantined, duplicates, skipped, held)
        if counts.read != accepted + quarantined + counts.duplicates + skipped + held:
            raise RuntimeError(f"the counts of {contract.table} do not add up: {counts}")
        return counts

    def quarantine(self, decisions: SparkRows | ArrowRows) -> int:
        """Insert refused and conflicting candidates into quarantine; return how many."""
        from pyspark.sql import functions as F

        why = decisions.frame.where(F.col("outcome").isin("refused", "conflict")).select(
            *self.contract.row, self.why(F.col("outcome") == "conflict").alias("violations")
        )
        return self.warehouse.insert(self.among(why), quarantine_contract(self.contract))

    def insert(self, decisions: SparkRows | ArrowRows, all_: bool) -> int:
        """Insert the candidates without an outcome, which may be ``all_``, into the table; return how many."""
        row = [*self.contract.row]
        new = self.candidates
        if not all_:
            new = new.join(decisions.frame.where("outcome IS NOT NULL").select(*row), row, how="left_anti")
        return self.warehouse.insert(new, self.contract, self.census.ranges or None)

    def among(self, chosen: DataFrame) -> DataFrame:
        """Return the candidates that ``chosen`` names, with its columns."""
        made = self.made().drop(*({*chosen.columns} - {*self.contract.row}))
        return made.join(chosen, [*self.contract.row])

    def why(self, conflict: Column) -> Column:
        """Return the violations of a candidate that enters or stays in quarantine, as array<string>."""
        from pyspark.sql import functions as F

        codes = self.contract.violations(F.col("_broken_rules"))
        return F.when(conflict, F.array(F.lit(CONFLICT))).otherwise(codes)

    @contextmanager
    def decisions(self) -> Iterator[SparkRows | ArrowRows]:
        """Yield the outcomes of candidates that are not simply inserted; see ``collapse.decided``."""
        ranges = self.census.ranges
        existing_rows = self.warehouse.existing_rows(self.contract.table, ranges) if ranges else None
        quarantined = self.warehouse.existing_rows(quarantine_contract(self.contract).table)
        columns = None if existing_rows is None else existing_rows.columns
        text = decided(self.contract, self.census.repeats, columns, quarantined is not None)
        others = {"existing_rows": existing_rows, "quarantined": quarantined}
        given: dict[str, Any] = {name: rows for name, rows in others.items() if rows is not None}
        spark, rows = self.warehouse.spark, self.flowing().frame
        if not given and self.census.repeats and self.census.rows <= MOST_BROADCAST:
            rows = spark.sql(contested(self.contract), rows=rows)
        with cached(spark.sql(text, rows=rows, **given)) as kept:
            yield SparkRows(kept)


def _tally(decisions: SparkRows | ArrowRows) -> dict[str, int]:
    """Return how many rows have each outcome, and how many leave quarantine."""
    tally = dict.fromkeys((*OUTCOMES, LEAVES), 0)
    counts = decisions.fetched(f"SELECT outcome, count(*), count_if({LEAVES}) FROM {{rows}} GROUP BY outcome")
    for outcome, rows, leaving in counts:
        if outcome is not None:
            tally[outcome] = rows
        tally[LEAVES] += leaving
    return tally


def marked(contract: Contract, candidates: DataFrame, home: str | None = None) -> DataFrame:
    """Return candidates with their ``MARKS``."""
    names = [name for name in candidates.columns if name != SKIPPED]
    return candidates.select(*names, *_marks(contract, SKIPPED in candidates.columns, home))


def judged_by(contract: Contract, candidates: DataFrame) -> DataFrame:
    """Return the judged row of each marked candidate; ``SplitBatch`` says which columns it has."""
    return candidates.select(*narrow(contract, candidates.columns), *examined(contract))


@lru_cache(maxsize=64)
def _marks(contract: Contract, has_skipped: bool, home: str | None) -> Sequence[Column]:
    """Return whether a candidate is skipped, its scope, and the bitmasks of rules: the columns that ``MARKS`` names.

    They are kept, because building them takes hundreds of JVM calls.
    """
    from pyspark.sql import functions as F

    columns = (
        F.col(SKIPPED) if has_skipped else F.lit(False),
        computed_once(scope_of(contract, home)),
        computed_once(contract.applying_rules()),
        computed_once(contract.broken_rules()),
    )
    return [column.alias(name) for name, column in zip(MARKS, columns, strict=True)]


@lru_cache(maxsize=64)
def examined(contract: Contract) -> Sequence[Column]:
    """Return the values that the rules of a contract examine, each under its rule's code."""
    return [rule.examined().alias(rule.code) for rule in contract.rules]


def narrow(contract: Contract, columns: Sequence[str]) -> list[str]:
    """Return the columns of a marked candidate that name it and its grain, tell it from rivals, say why it was unread.

    Its marks are among them.
    """
    reason = contract.readable.reason if contract.readable else None
    named = (*contract.row, *contract.grain, *filter(None, (contract.content, contract.lossy, reason)), *MARKS)
    return [name for name in dict.fromkeys(named) if name in columns]


def wanted(judged: DataFrame) -> DataFrame:
    """Return the judged rows that belong to the table."""
    from pyspark.sql import functions as F

    return judged.where(~F.col(SKIPPED))


def contract_under(settings: Settings, stage: Stage) -> Contract:
    """Return a stage's contract with the thresholds that the settings give its gate."""
    gate = settings.gates.get(stage.table)
    tolerance = settings.tolerance if settings.tolerance is not None else gate.tolerance if gate else None
    return contract_of(stage.table).with_gate(tolerance, gate.min_failures if gate else None)
