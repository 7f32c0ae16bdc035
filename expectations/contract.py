"""A contract is data: a table's columns with type, comment and rules, its grain, its tolerance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING

from expectations.rules import Rule

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

MOST_RULES = 62  # one bit each in a bigint


@dataclass(frozen=True)
class Column:
    """A column: its Spark SQL type, its comment (which becomes the Delta comment) and the rules on it.

    ``evidence`` columns exist in candidates and quarantine only: they show what could not be typed.
    """

    name: str
    type: str
    comment: str
    rules: tuple[Rule, ...] = ()
    evidence: bool = False


@dataclass(frozen=True)
class Contract:
    """What a table promises.

    ``grain`` names the columns that identify a row, compared null-safe. ``content`` names the column that tells whether
    two rows of one grain are the same (a duplicate) or not (a conflict); ``lossy`` the boolean column that marks copies
    which never conflict; ``learned`` the column of the grain that some sources cannot tell: a row without it is the
    same as one with it where their contents agree, or where it is a lossy copy; ``item`` the column that numbers the
    rows, from 0, where one row of bronze gives several; ``position`` the column of the grain that says where in its
    source a row stands: the offset in a topic, the byte in a segment.
    ``ranges_per`` are the columns of the grain for each value of which a batch's range of the last one is looked at
    apart, so that Delta skips files; default all the others, which suits those with few values. ``scope`` names the
    column, of topics, for each value of which the gate judges apart; default the batch as a whole. ``tolerance`` and
    ``min_failures`` are the gate's: a rule breaks it when failing rows are at least ``min_failures`` and more than the
    share ``tolerance`` of the rows that the rule speaks about; with a tolerance of 0 one failing row does.
    """

    table: str
    description: str
    columns: tuple[Column, ...]
    grain: tuple[str, ...]
    content: str | None = None
    lossy: str | None = None
    learned: str | None = None
    item: str | None = None
    position: str | None = None
    ranges_per: tuple[str, ...] | None = None
    scope: str | None = None
    tolerance: float = 0.05
    min_failures: int = 10

    def __post_init__(self) -> None:
        """Refuse a contract that contradicts itself, when it is imported rather than when data arrives."""
        names = [column.name for column in self.columns]
        optional = (self.content, self.lossy, self.learned, self.item, self.position, self.scope)
        named = [*self.grain, *(self.ranges_per or ()), *filter(None, optional)]
        if len(set(names)) != len(names):
            raise ValueError(f"{self.table}: a column is declared twice")
        if missing := [name for name in named if name not in names]:
            raise ValueError(f"{self.table}: no column {', '.join(missing)}")
        codes = [rule.code for rule in self.rules]
        if len(set(codes)) != len(codes) or len(codes) > MOST_RULES:
            raise ValueError(f"{self.table}: rule codes must be distinct and at most {MOST_RULES}")
        if self.scope and self.item:
            raise ValueError(f"{self.table}: a row of bronze that gives several rows cannot be of one scope")

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """All rules, each with its code, in the order of the columns: the bit of a rule is its place here."""
        return tuple(rule.bound(column.name) for column in self.columns for rule in column.rules)

    @property
    def place(self) -> tuple[str, ...]:
        """The columns of the grain that every source knows."""
        return tuple(name for name in self.grain if name != self.learned)

    @property
    def identity(self) -> tuple[str, ...]:
        """What a row is made from, whichever file held it: the row of bronze, and the item within it."""
        return ("_bronze_id", self.item) if self.item else ("_bronze_id",)

    @property
    def row(self) -> tuple[str, ...]:
        """What names one candidate: bronze's grain, and the item within it."""
        return ("_source", *self.identity)

    @property
    def stored(self) -> tuple[Column, ...]:
        """The columns of the table itself."""
        return tuple(column for column in self.columns if not column.evidence)

    @property
    def quarantine(self) -> tuple[Column, ...]:
        """The columns of the table's quarantine: every candidate column, and why."""
        violations = Column("violations", "array<string>", "Codes of the rules that the row breaks, column.rule.")
        return (*(replace(column, evidence=False) for column in self.columns), violations)

    def broken_rules(self) -> SparkColumn:
        """Return a bigint Column, bit i set where rule i is broken: one projection however many rules."""
        from pyspark.sql import functions as F

        none = F.lit(0).cast("bigint")
        mask = none
        for bit, rule in enumerate(self.rules):
            mask = mask.bitwiseOR(F.when(rule.broken(), F.lit(1 << bit).cast("bigint")).otherwise(none))
        return mask

    def applying_rules(self) -> SparkColumn:
        """Return a bigint Column, bit i set where rule i speaks about the row; each guard is looked at once."""
        from pyspark.sql import functions as F

        bits: dict[str, int] = {}
        for bit, rule in enumerate(self.rules):
            bits[rule.guard] = bits.get(rule.guard, 0) | 1 << bit
        none = F.lit(0).cast("bigint")
        mask = F.lit(bits.pop("", 0)).cast("bigint")
        for guard, guarded in bits.items():
            mask = mask.bitwiseOR(F.when(F.expr(guard), F.lit(guarded).cast("bigint")).otherwise(none))
        return mask

    def refused(self, mask: SparkColumn) -> SparkColumn:
        """Return whether the mask has the bit of a rule that keeps a row out of the table."""
        from pyspark.sql import functions as F

        if all(rule.refuses for rule in self.rules):
            return mask != 0
        refusing = sum(1 << bit for bit, rule in enumerate(self.rules) if rule.refuses)
        return mask.bitwiseAND(F.lit(refusing).cast("bigint")) != 0

    def violations(self, mask: SparkColumn) -> SparkColumn:
        """Return the codes of the bits set in the mask as array<string>, in the order of the rules."""
        from pyspark.sql import functions as F

        one = F.lit(1).cast("bigint")

        def broken(code: SparkColumn, bit: SparkColumn) -> SparkColumn:
            return mask.bitwiseAND(F.call_function("shiftleft", one, bit)) != 0

        return F.filter(F.array(*[F.lit(rule.code) for rule in self.rules]).cast("array<string>"), broken)

    def with_gate(self, tolerance: float | None, min_failures: int | None) -> Contract:
        """Return the contract under other thresholds; None keeps the contract's own."""
        return replace(
            self,
            tolerance=self.tolerance if tolerance is None else tolerance,
            min_failures=self.min_failures if min_failures is None else min_failures,
        )


def contract_of(table: str) -> Contract:
    """Return the contract of a table, found by its path: ``silver.x`` is ``expectations/silver/x.py``."""
    contract = import_module(f"expectations.{table}").CONTRACT
    assert isinstance(contract, Contract)
    return contract
