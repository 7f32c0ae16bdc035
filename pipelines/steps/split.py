"""Bronze -> silver: transform, judge at the gate, split into table and quarantine, collapse on the grain, insert."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from expectations.contract import ORIGIN, Contract, contract_of
from expectations.verdict import SCOPE, Verdict
from pipelines.columns.cached import cached
from pipelines.columns.once import computed_once
from pipelines.engines.choose import Choice
from pipelines.jvm import session
from pipelines.settings import Settings
from pipelines.stage import Stage
from pipelines.steps import places, unreadable
from pipelines.steps.collapse import CONFLICT, OUTCOMES, SKIPPED, Census, census, contested, decided
from pipelines.steps.modules import unexplained
from pipelines.steps.queried import ArrowRows, SparkRows
from pipelines.steps.scopes import APPLYING, Counted, History, count, scope_of
from pipelines.steps.unreadable import Unreadable
from pipelines.warehouse.tables import Warehouse, quarantine_contract

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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

    ``transform`` makes candidates from ``rows``. ``judged`` has one row per candidate, without payloads: the columns
    that name it, its grain and scope, bitmasks of the rules that it breaks and of the rules that apply to it, and the
    values that rules examine. It is computed once, by ``read``; later passes over the candidates evaluate no rule.
    ``explain`` adds to a broken gate's verdict what else the judged and the input rows tell. ``home`` is the cluster
    whose scopes do not name it. ``looks_at_others`` tells that ``transform`` needs all rows to make some candidates.
    """

    warehouse: Warehouse
    contract: Contract
    rows: DataFrame
    transform: Callable[[DataFrame], DataFrame]
    read: DataFrame
    judged: SparkRows | ArrowRows
    census: Census
    held: frozenset[str] = frozenset()
    explain: Callable[[DataFrame, DataFrame, Verdict, Settings], Verdict] = unexplained
    home: str | None = None
    looks_at_others: bool = False
    engine: Choice | None = None

    @classmethod
    @contextmanager
    def between(
        cls,
        warehouse: Warehouse,
        contract: Contract,
        rows: DataFrame,
        transform: Callable[[DataFrame], DataFrame],
        home: str | None = None,
    ) -> Iterator[SplitBatch]:
        """Yield a batch of rows from which ``transform`` makes candidates; unpersist its cache when the block ends.

        After a batch of many rows Java gives the memory back.
        """
        with cached(judged_by(contract, transform(rows), home)) as kept:
            judged = SparkRows(kept)
            counted = census(judged, contract)
            yield SplitBatch(warehouse, contract, rows, transform, kept, judged, counted, home=home)
        if counted.rows + counted.skipped >= MANY_ROWS:
            session.give_back(warehouse.spark)

    @property
    def candidates(self) -> DataFrame:
        """The candidates that are not held, with payloads; each use computes them again."""
        from pyspark.sql import functions as F

        candidates = self.made(self.rows)
        if SKIPPED in candidates.columns:
            candidates = candidates.where(~F.col(SKIPPED)).drop(SKIPPED)
        if self.held:
            candidates = candidates.where(~scope_of(self.contract, self.home).isin(sorted(self.held)))
        return candidates

    def made(self, rows: DataFrame) -> DataFrame:
        """Return at least the candidates of some of the batch's rows."""
        return self.transform(rows)

    def flowing(self) -> SparkRows:
        """Return the judged rows that belong to the table and are not held."""
        from pyspark.sql import functions as F

        rows = wanted(self.judged.frame)
        return SparkRows(rows.where(~F.col(SCOPE).isin(sorted(self.held))) if self.held else rows)

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
            verdict = places.located(verdict, judged, self.contract, self.warehouse.settings)
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
            under = {contract.learned: "_replaces"} if contract.learned else {}
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
        """Return the candidates that ``chosen`` names, with its columns; transform no other rows if it can."""
        rows = self.rows
        if not self.looks_at_others:
            rows = rows.join(chosen.select(*ORIGIN).distinct(), [*ORIGIN], how="left_semi")
        return self.made(rows).join(chosen, [*self.contract.row])

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


def judged_by(contract: Contract, candidates: DataFrame, home: str | None = None) -> DataFrame:
    """Return the judged row of each candidate; ``SplitBatch`` says which columns it has."""
    judgement = judgement_by(contract, SKIPPED in candidates.columns, home)
    return candidates.select(*names_of(contract, candidates), *judgement.values())


@lru_cache(maxsize=64)
def judgement_by(contract: Contract, has_skipped: bool, home: str | None) -> Mapping[str, Column]:
    """Return the columns, by name, that judge a candidate; ``SplitBatch`` says which they are.

    They are kept, because building them takes hundreds of JVM calls.
    """
    from pyspark.sql import functions as F

    columns = {
        SKIPPED: F.col(SKIPPED) if has_skipped else F.lit(False),
        SCOPE: computed_once(scope_of(contract, home)),
        APPLYING: computed_once(contract.applying_rules()),
        "_broken_rules": computed_once(contract.broken_rules()),
        **{rule.code: rule.examined() for rule in contract.rules},
    }
    return {name: column.alias(name) for name, column in columns.items()}


def names_of(contract: Contract, candidates: DataFrame) -> list[str]:
    """Return the columns of a candidate that name it and its grain, tell it from its rivals, and why it was unread."""
    reason = contract.readable.reason if contract.readable else None
    named = (*contract.row, *contract.grain, *filter(None, (contract.content, contract.lossy, reason)))
    return [name for name in dict.fromkeys(named) if name in candidates.columns]


def wanted(judged: DataFrame) -> DataFrame:
    """Return the judged rows that belong to the table."""
    from pyspark.sql import functions as F

    return judged.where(~F.col(SKIPPED))


def contract_under(settings: Settings, stage: Stage) -> Contract:
    """Return a stage's contract with the thresholds that the settings give its gate."""
    gate = settings.gates.get(stage.table)
    tolerance = settings.tolerance if settings.tolerance is not None else gate.tolerance if gate else None
    return contract_of(stage.table).with_gate(tolerance, gate.min_failures if gate else None)
