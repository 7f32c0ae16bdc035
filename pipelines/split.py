"""Bronze -> silver: transform, gate, split into table and quarantine, collapse on the grain, insert."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from expectations.contract import Contract, contract_of
from expectations.verdict import Verdict
from pipelines import lakehouse
from pipelines.collapse import CONFLICT, ROW, Census, census, decided
from pipelines.plan import computed_once
from pipelines.settings import Settings
from pipelines.stage import Stage

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

MOST_COORDINATES = 20
NO_VIOLATIONS = "row.no_violations"


@dataclass(frozen=True)
class Counts:
    """Where the rows of a batch went: read = accepted + quarantined + duplicates."""

    read: int
    accepted: int
    quarantined: int
    duplicates: int


@dataclass(frozen=True)
class Split:
    """A batch of candidates on its way into a table and its quarantine.

    ``candidates`` have the contract's columns and ``_broken_rules``, the bitmask of the rules that each row breaks.
    """

    spark: SparkSession
    settings: Settings
    contract: Contract
    candidates: DataFrame
    census: Census

    @classmethod
    def of(cls, settings: Settings, stage: Stage, rows: DataFrame, run_id: str, started_at: datetime) -> Split:
        """Transform input rows into candidates, one each, and count them by grain."""
        from pyspark.sql import functions as F

        contract = contract_under(settings, stage)
        candidates = (
            import_module(f"pipelines.{stage.table}")
            .transform(rows, settings)
            .withColumns({"_ingested_at": F.lit(started_at), "_run_id": F.lit(run_id)})
            .withColumn("_broken_rules", computed_once(contract.broken_rules()))
        )
        return cls(rows.sparkSession, settings, contract, candidates, census(candidates, contract))

    def gate(self, run_id: str) -> Verdict:
        """Hold the candidates to the contract; of a broken gate the verdict names failing rows' coordinates."""
        from expectations import suite

        verdict = suite.gate(self.candidates, self.contract, run_id=run_id, store=self.settings.reports() / "gx")
        return verdict if verdict.passed else verdict.located(self._coordinates(verdict))

    def write(self, invalid: int, decisions: DataFrame | None = None) -> Counts:
        """Insert new rows into quarantine, then into the table, then take healed rows out of quarantine.

        Each step leaves alone what an earlier, killed attempt wrote, so that a rerun converges. ``invalid`` is how many
        candidates break a rule and may have to enter quarantine; ``decisions`` are this batch's, if they are known.

        Raises RuntimeError: the rows written do not add up to the rows read, so that progress must not be recorded.
        """
        from pyspark.sql import functions as F

        settings, contract = self.settings, self.contract
        quarantine = lakehouse.quarantine_contract(contract)
        own = self.decisions() if decisions is None else None
        decisions = own if decisions is None else decisions
        try:
            tally, rows = self._decided(decisions)
            undecided = F.col("outcome").isNull()
            conflict = F.coalesce(F.col("outcome") == "conflict", F.lit(False))
            broken = F.col("_broken_rules") != 0
            quarantined = 0
            if invalid or tally["conflict"]:
                codes = contract.violations(F.col("_broken_rules"))
                codes = F.when(conflict, F.array(F.lit(CONFLICT))).otherwise(codes)
                refused = rows.where((broken & undecided) | conflict).withColumn("violations", codes)
                quarantined = lakehouse.insert(settings, quarantine.table, refused, quarantine, None)
            new = rows.where(~broken & undecided)
            accepted = lakehouse.insert(settings, contract.table, new, contract, self.census.bounds)
            if tally["supersede"]:
                lossless = rows.where("outcome = 'supersede'").select([column.name for column in contract.stored])
                accepted += lakehouse.replace_matching(settings, contract.table, lossless, contract.grain)
            if tally["heals"] and decisions is not None:
                healed = decisions.where("heals").select("_bronze_id").distinct()
                lakehouse.remove_matching(settings, quarantine.table, healed, ["_bronze_id"])
        finally:
            if own is not None:
                own.unpersist()
        counts = Counts(self.census.rows, accepted, quarantined, tally["duplicate"])
        if counts.read != counts.accepted + counts.quarantined + counts.duplicates:
            raise RuntimeError(f"the counts of {contract.table} do not add up: {counts}")
        return counts

    def decisions(self) -> DataFrame | None:
        """Return, cached, the candidates that duplicates, conflicts or earlier runs decide; None if there are none."""
        standing = None
        if self.census.bounds is not None:
            standing = lakehouse.standing(self.spark, self.settings, self.contract.table, self.census.bounds)
        quarantine = lakehouse.quarantine_contract(self.contract)
        quarantined = lakehouse.standing(self.spark, self.settings, quarantine.table)
        if standing is None and quarantined is None and not self.census.repeats:
            return None
        return decided(self.candidates, self.contract, standing, quarantined).persist()

    def _decided(self, decisions: DataFrame | None) -> tuple[dict[str, int], DataFrame]:
        """Return how many rows have each outcome (and how many heal), and the candidates with their ``outcome``."""
        from pyspark.sql import functions as F

        tally = {"duplicate": 0, "conflict": 0, "supersede": 0, "heals": 0}
        unmarked = self.candidates.withColumn("outcome", F.lit(None).cast("string"))
        if decisions is None:
            return tally, unmarked
        for found in decisions.groupBy("outcome").agg(F.count("*"), F.count_if("heals")).collect():
            if found[0] is not None:
                tally[found[0]] = found[1]
            tally["heals"] += found[2]
        if not any(tally.values()):
            return tally, unmarked
        return tally, self.candidates.join(decisions.drop("heals", "conflicts"), [*ROW], how="left")

    def _coordinates(self, verdict: Verdict) -> dict[str, tuple[str, ...]]:
        """Return where up to 20 failing rows of each failing rule are, by code: the grain, never a value."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        failed = [outcome.code for outcome in verdict.failed]
        *_, last = self.contract.grain
        parts = [
            F.concat(F.lit(f"{name}="), F.substring(F.col(name).cast("string"), 1, 250))
            for name in self.contract.grain
            if name != "cluster"
        ]
        line = F.concat(F.col("_source"), F.lit(" line "), F.substring("_bronze_id", 1, 16))
        rows = self.candidates.where(F.col("_broken_rules") != 0).select(
            F.explode(F.array_append(self.contract.violations(F.col("_broken_rules")), F.lit(NO_VIOLATIONS))).alias(
                "code"
            ),
            F.when(F.col(last).isNull(), line).otherwise(F.concat_ws(" ", *parts)).alias("coordinates"),
        )
        place = F.row_number().over(Window.partitionBy("code").orderBy("coordinates"))
        found: dict[str, tuple[str, ...]] = {}
        for row in (
            rows.where(F.col("code").isin(failed))
            .withColumn("place", place)
            .where(F.col("place") <= MOST_COORDINATES)
            .orderBy("code", "place")
            .collect()
        ):
            found[row["code"]] = (*found.get(row["code"], ()), row["coordinates"])
        return found


def contract_under(settings: Settings, stage: Stage) -> Contract:
    """Return a stage's contract with the thresholds that the settings give its gate."""
    gate = settings.gates.get(stage.table)
    tolerance = settings.tolerance if settings.tolerance is not None else gate.tolerance if gate else None
    return contract_of(stage.table).with_gate(tolerance, gate.min_failures if gate else None)
