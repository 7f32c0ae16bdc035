"""Bronze -> silver: transform, judge at the gate, split into table and quarantine, collapse on the grain, insert."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from expectations.contract import ORIGIN, Contract, contract_of
from expectations.verdict import SCOPE, Verdict
from pipelines.columns.cached import cached
from pipelines.columns.once import computed_once
from pipelines.settings import Settings
from pipelines.stage import Split, Stage
from pipelines.steps import places
from pipelines.steps.collapse import CONFLICT, OUTCOMES, SKIPPED, Census, census, decided
from pipelines.steps.modules import split_module, unexplained
from pipelines.steps.scopes import APPLYING, Counted, count, scope_of
from pipelines.warehouse import few_rows, jvmless
from pipelines.warehouse.tables import Warehouse, quarantine_contract

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame

MOST_COMPARED = 20_000  # rows of a batch, and rows of its quarantine
SMALL = 8 << 20  # bytes of a batch's input in files, which are compressed about tenfold


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

    ``transform`` makes candidates from ``rows``. ``judged`` has one row per candidate, cached and without payloads: the
    columns that name it, its grain and scope, bitmasks of the rules that it breaks and of the rules that apply to it,
    and the values that rules examine. It is computed once; later passes over the candidates evaluate no rule.
    ``transformed`` are the candidates of a small batch, cached too: to plan the transform again would take longer than
    to run it. ``are_few`` says that all candidates surely fit into memory. ``explain`` adds to a broken gate's verdict
    what else the judged and the input rows tell. ``home`` is the cluster whose scopes do not name it.
    """

    warehouse: Warehouse
    contract: Contract
    rows: DataFrame
    transform: Callable[[DataFrame], DataFrame]
    judged: DataFrame
    census: Census
    held: frozenset[str] = frozenset()
    transformed: DataFrame | None = None
    are_few: bool = False
    explain: Callable[[DataFrame, DataFrame, Verdict], Verdict] = unexplained
    home: str | None = None

    @classmethod
    @contextmanager
    def of(
        cls,
        warehouse: Warehouse,
        stage: Split,
        rows: DataFrame,
        run_id: str,
        started_at: datetime,
        among: DataFrame | None = None,
        size: int | None = None,
        home: str | None = None,
    ) -> Iterator[SplitBatch]:
        """Yield the batch for input rows, counted by grain; ``among`` names the candidates to take (None: all).

        ``size`` is that of the input rows in files, in bytes; None means that they may be many.
        """
        from pyspark.sql import functions as F

        contract = contract_under(warehouse.settings, stage)
        module = split_module(stage)

        def transform(rows: DataFrame) -> DataFrame:
            candidates = module.transform(rows, warehouse.settings).withColumns(
                {"_ingested_at": F.lit(started_at), "_run_id": F.lit(run_id)}
            )
            return candidates if among is None else candidates.join(among, [*contract.row], how="left_semi")

        is_small = size is not None and size <= SMALL
        with cls.between(warehouse, contract, rows, transform, is_small, home) as split:
            are_few = size is not None and size <= few_rows.MOST_BYTES and split.census.rows <= few_rows.MOST_ROWS
            yield replace(split, explain=module.explain, are_few=are_few)

    @classmethod
    @contextmanager
    def between(
        cls,
        warehouse: Warehouse,
        contract: Contract,
        rows: DataFrame,
        transform: Callable[[DataFrame], DataFrame],
        is_small: bool = False,
        home: str | None = None,
    ) -> Iterator[SplitBatch]:
        """Yield a batch of rows from which ``transform`` makes candidates; unpersist its cache when the block ends."""
        candidates = transform(rows)
        if is_small:
            judgement = judgement_by(contract, candidates, home)
            names = [name for name in candidates.columns if name != SKIPPED]
            with cached(candidates.select(*names, *judgement.values())) as kept:
                judged = kept.select(*_names(contract, candidates), *(f"`{name}`" for name in judgement))
                counted = census(judged, contract)
                transformed = kept.select(*names, SKIPPED)
                yield cls(warehouse, contract, rows, transform, judged, counted, transformed=transformed, home=home)
        else:
            with cached(judged_by(contract, candidates, home)) as judged:
                yield cls(warehouse, contract, rows, transform, judged, census(judged, contract), home=home)

    @property
    def candidates(self) -> DataFrame:
        """The candidates that are not held, with payloads; in a large batch each use computes them again."""
        from pyspark.sql import functions as F

        candidates = self.transform(self.rows) if self.transformed is None else self.transformed
        if SKIPPED in candidates.columns:
            candidates = candidates.where(~F.col(SKIPPED)).drop(SKIPPED)
        if self.held:
            candidates = candidates.where(~scope_of(self.contract, self.home).isin(sorted(self.held)))
        return candidates

    def flowing(self) -> DataFrame:
        """Return the judged rows that belong to the table and are not held."""
        from pyspark.sql import functions as F

        rows = wanted(self.judged)
        return rows.where(~F.col(SCOPE).isin(sorted(self.held))) if self.held else rows

    def withheld(self) -> DataFrame:
        """Return the judged rows that are held."""
        from pyspark.sql import functions as F

        return wanted(self.judged).where(F.col(SCOPE).isin(sorted(self.held)))

    def holding(self, scopes: frozenset[str]) -> SplitBatch:
        """Return the batch with these scopes held."""
        return replace(self, held=scopes)

    def gate(self, run_id: str, counted: Counted | None = None) -> Verdict:
        """Judge the candidates by the contract; a broken gate's verdict says where failing rows are."""
        from expectations import suite

        counted = counted or count(self.judged, self.contract, home=self.home)
        judged = wanted(self.judged)
        verdict = suite.gate(
            judged,
            self.contract,
            run_id=run_id,
            store=self.warehouse.settings.reports() / "gx",
            scopes=counted.scopes,
            examined_rows=counted.examined_rows,
            locate=lambda verdict: places.located(verdict, judged, self.contract, self.warehouse.settings),
        )
        return verdict if verdict.passed else self.explain(judged, self.rows, verdict)

    def write(self, held: int = 0) -> Counts:
        """Insert new rows into quarantine, then into the table, then remove from quarantine the rows that leave it.

        No step writes again what an earlier, killed attempt wrote, so that a rerun converges. ``held`` is the number of
        the batch's rows in the table of held rows.

        Raises RuntimeError: the rows written do not add up to the rows read; progress must not be recorded.
        """
        with self.decisions() as decisions:
            return self.write_decided(decisions, held)

    def write_decided(self, decisions: DataFrame, held: int = 0) -> Counts:
        """Do what ``write`` does, with decisions that the caller has cached."""
        from pyspark.sql import functions as F

        warehouse, contract, row = self.warehouse, self.contract, [*self.contract.row]
        quarantine = quarantine_contract(contract)
        tally = self._tally(decisions)
        quarantined = 0
        if tally["refused"] or tally["conflict"]:
            why = decisions.where(F.col("outcome").isin("refused", "conflict")).select(
                *row, self.why(F.col("outcome") == "conflict").alias("violations")
            )
            quarantined = warehouse.insert(self.among(why), quarantine, are_few=self.are_few)
        replaced = 0
        if tally["supersede"] or tally["identify"]:  # before the insert: a new row may have the grain of a replaced one
            chosen = decisions.where(F.col("outcome").isin("supersede", "identify")).select(*row, "_replaces")
            names = [column.name for column in contract.stored]
            replacing = self.among(chosen).select(*names, "_replaces")
            under = {contract.learned: "_replaces"} if contract.learned else {}
            replaced = warehouse.replace_matching(contract.table, replacing, contract.grain, under)
        new = self.candidates
        if any(tally[outcome] for outcome in OUTCOMES):
            new = new.join(decisions.where(F.col("outcome").isNotNull()).select(*row), row, how="left_anti")
        accepted = warehouse.insert(new, contract, self.census.ranges or None, are_few=self.are_few)
        accepted += replaced - tally["identify"]
        duplicates = tally["duplicate"] + tally["identify"]
        if tally["leaves_quarantine"]:
            leaving = decisions.where("leaves_quarantine").select(*contract.identity).distinct()
            warehouse.remove_matching(quarantine.table, leaving, contract.identity)
        skipped = self.census.skipped
        counts = Counts(self.census.rows + skipped, accepted, quarantined, duplicates, skipped, held)
        if counts.read != accepted + quarantined + counts.duplicates + skipped + held:
            raise RuntimeError(f"the counts of {contract.table} do not add up: {counts}")
        return counts

    def among(self, chosen: DataFrame) -> DataFrame:
        """Return the candidates that ``chosen`` names, with its columns; transform only the rows behind them."""
        if self.transformed is not None:
            return self.transformed.join(chosen, [*self.contract.row])
        rows = self.rows.join(chosen.select(*ORIGIN).distinct(), [*ORIGIN], how="left_semi")
        return self.transform(rows).join(chosen, [*self.contract.row])

    def why(self, conflict: Column) -> Column:
        """Return the violations of a candidate that enters or stays in quarantine, as array<string>."""
        from pyspark.sql import functions as F

        codes = self.contract.violations(F.col("_broken_rules"))
        return F.when(conflict, F.array(F.lit(CONFLICT))).otherwise(codes)

    @contextmanager
    def decisions(self) -> Iterator[DataFrame]:
        """Yield, cached, the outcomes of candidates that are not simply inserted; see ``collapse.decided``."""
        ranges = self.census.ranges
        existing_rows = self.warehouse.existing_rows(self.contract.table, ranges) if ranges else None
        quarantined = self._quarantined(existing_rows is not None)
        with cached(decided(self.flowing(), self.contract, self.census.repeats, existing_rows, quarantined)) as kept:
            yield kept

    def _quarantined(self, is_contested: bool) -> DataFrame | None:
        """Return the rows of quarantine; None if it has none from the rows of bronze that an uncontested batch is of.

        To compare the ids of a small batch here is faster than to plan a query that compares all.
        """
        quarantine = quarantine_contract(self.contract)
        quarantined = self.warehouse.existing_rows(quarantine.table)
        if quarantined is None or is_contested or self.census.repeats or self.transformed is None:
            return quarantined
        known = jvmless.values(self.warehouse, quarantine.table, "_bronze_id", MOST_COMPARED)
        if known is None or self.census.rows > MOST_COMPARED:
            return quarantined
        is_there = any(row[0] in known for row in self.flowing().select("_bronze_id").collect())
        return quarantined if is_there else None

    def _tally(self, decisions: DataFrame) -> dict[str, int]:
        """Return how many rows have each outcome, and how many leave quarantine."""
        from pyspark.sql import functions as F

        tally = dict.fromkeys((*OUTCOMES, "leaves_quarantine"), 0)
        for counted in decisions.groupBy("outcome").agg(F.count("*"), F.count_if("leaves_quarantine")).collect():
            if counted[0] is not None:
                tally[counted[0]] = counted[1]
            tally["leaves_quarantine"] += counted[2]
        return tally


def judged_by(contract: Contract, candidates: DataFrame, home: str | None = None) -> DataFrame:
    """Return the judged row of each candidate; ``SplitBatch`` says which columns it has."""
    return candidates.select(*_names(contract, candidates), *judgement_by(contract, candidates, home).values())


def judgement_by(contract: Contract, candidates: DataFrame, home: str | None) -> dict[str, Column]:
    """Return the columns, by name, that judge a candidate; ``SplitBatch`` says which they are."""
    from pyspark.sql import functions as F

    columns = {
        SKIPPED: F.col(SKIPPED) if SKIPPED in candidates.columns else F.lit(False),
        SCOPE: computed_once(scope_of(contract, home)),
        APPLYING: computed_once(contract.applying_rules()),
        "_broken_rules": computed_once(contract.broken_rules()),
        **{rule.code: rule.examined() for rule in contract.rules},
    }
    return {name: column.alias(name) for name, column in columns.items()}


def _names(contract: Contract, candidates: DataFrame) -> list[str]:
    """Return the columns of a candidate that name it and its grain, and that tell it from its rivals."""
    named = (*contract.row, *contract.grain, *filter(None, (contract.content, contract.lossy)))
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
