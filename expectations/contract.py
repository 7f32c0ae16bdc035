"""A contract is data: a table's columns with type, comment and rules, its grain, its tolerance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from expectations.rules import Rule

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

ORIGIN = ("cluster", "_source", "_bronze_id")
"""The columns that identify a row of bronze: the grain of all tables there."""
MOST_RULES = 62  # one bit each in a bigint
Content = Literal["key", "payload", "headers", "message", "trace", "line", "text"]
"""What a column holds of what people sent: a record's key, payload or headers; an error's message or stack trace; a
line as it landed; another free text."""


@dataclass(frozen=True)
class Column:
    """A column: its Spark SQL type, its comment (which becomes the Delta comment) and the rules on it.

    ``evidence`` columns exist in candidates and quarantine only: they show what could not be typed. A ``later`` column
    came to tables that were there: a summarised table takes it at its next run, without a rebuild. Until a row is
    computed again it lacks the column, which reads as null and must be as true. ``content`` says that values that
    people sent can be in it, and how `afterlog erase` takes them out of a record that is forgotten.
    """

    name: str
    type: str
    comment: str
    rules: tuple[Rule, ...] = ()
    evidence: bool = False
    later: bool = False
    content: Content | None = None


@dataclass(frozen=True)
class Contract:
    """What a table promises.

    - ``grain``: the columns that identify a row, compared null-safe.
    - ``content``: the column that tells whether two rows of one grain are equal (a duplicate) or not (a conflict).
    - ``lossy``: the boolean column that marks lossy copies, which never conflict.
    - ``late_key``: the column of the grain that some sources do not know. A row without it is the same as a row with it
      if their contents agree, or if the row without it is a lossy copy.
    - ``item``: the column that numbers the rows, from 0, if one bronze row gives several.
    - ``position``: the column of the grain with a row's position in its source: the offset in a topic, the byte in a
      segment.
    - ``ranges_per``: the columns of the grain that group a batch. Each group gets its own range of the grain's last
      column, so that Delta skips files. Default: all other columns of the grain, which suits columns with few values.
    - ``sorted_by``: the column that the rows of a batch are sorted by in files of at most ``ROWS_OF_A_FILE``, so that
      later stages read few files.
    - ``scope``: the column of topics; the gate judges each of its values apart. Default: the batch as a whole.
    - ``tolerance``, ``min_failures``: a rule breaks the gate if at least ``min_failures`` rows fail and they are more
      than the share ``tolerance`` of the rows that the rule applies to. With a tolerance of 0 one failure is enough.
    """

    table: str
    description: str
    columns: tuple[Column, ...]
    grain: tuple[str, ...]
    content: str | None = None
    lossy: str | None = None
    late_key: str | None = None
    item: str | None = None
    position: str | None = None
    ranges_per: tuple[str, ...] | None = None
    sorted_by: str | None = None
    scope: str | None = None
    tolerance: float = 0.05
    min_failures: int = 10

    def __post_init__(self) -> None:
        """Raise ValueError if the contract contradicts itself: at import, not only when data arrives."""
        names = [column.name for column in self.columns]
        optional = (self.content, self.lossy, self.late_key, self.item, self.position, self.sorted_by, self.scope)
        named = [*self.grain, *(self.ranges_per or ()), *filter(None, optional)]
        if len(set(names)) != len(names):
            raise ValueError(f"{self.table}: a column is declared twice")
        if missing := [name for name in named if name not in names]:
            raise ValueError(f"{self.table}: no column {', '.join(missing)}")
        later = [column for column in self.columns if column.later]
        if later and self.stored[-len(later) :] != (*later,):
            raise ValueError(f"{self.table}: columns that came later are the last")
        codes = [rule.code for rule in self.rules]
        if len(set(codes)) != len(codes) or len(codes) > MOST_RULES:
            raise ValueError(f"{self.table}: rule codes must be distinct and at most {MOST_RULES}")
        if self.scope and self.item:
            raise ValueError(f"{self.table}: a row of bronze that gives several rows cannot be of one scope")

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """All rules with their codes, in the order of the columns; a rule's index is its bit in a mask."""
        return tuple(rule.bound(column.name) for column in self.columns for rule in column.rules)

    @property
    def readable(self) -> Rule | None:
        """The rule that a row could be read; None if the contract has none."""
        return next((rule for rule in self.rules if rule.reason), None)

    @property
    def known_grain(self) -> tuple[str, ...]:
        """The columns of the grain that every source knows."""
        return tuple(name for name in self.grain if name != self.late_key)

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify a row's origin, in whichever file of its cluster: the bronze row, and the item."""
        return ("cluster", "_bronze_id", self.item) if self.item else ("cluster", "_bronze_id")

    @property
    def row(self) -> tuple[str, ...]:
        """The columns that identify a candidate: bronze's grain, and the item within the bronze row."""
        return (*ORIGIN, self.item) if self.item else ORIGIN

    @property
    def stored(self) -> tuple[Column, ...]:
        """The columns of the table itself."""
        return tuple(column for column in self.columns if not column.evidence)

    @property
    def quarantine(self) -> tuple[Column, ...]:
        """The columns of the table's quarantine: every candidate column, and ``violations``."""
        violations = Column("violations", "array<string>", "Codes of the rules that the row breaks, column.rule.")
        return (*(replace(column, evidence=False, later=False) for column in self.columns), violations)

    def broken_rules(self) -> SparkColumn:
        """Return a bigint Column with bit i set if rule i is broken: one projection for any number of rules."""
        from pyspark.sql import functions as F

        none = F.lit(0).cast("bigint")
        mask = none
        for bit, rule in enumerate(self.rules):
            mask = mask.bitwiseOR(F.when(rule.broken(), F.lit(1 << bit).cast("bigint")).otherwise(none))
        return mask

    def applying_rules(self) -> SparkColumn:
        """Return a bigint Column with bit i set if rule i applies to the row; each guard is evaluated once."""
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
        """Return a boolean Column: true if the mask has the bit of a rule that keeps a row out of the table."""
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

    def codes_of(self, mask: int) -> list[str]:
        """Return the codes of the bits set in a mask, in the order of the rules."""
        return [rule.code for bit, rule in enumerate(self.rules) if mask >> bit & 1]

    def with_gate(self, tolerance: float | None, min_failures: int | None) -> Contract:
        """Return the contract with other thresholds; None keeps the contract's own."""
        return replace(
            self,
            tolerance=self.tolerance if tolerance is None else tolerance,
            min_failures=self.min_failures if min_failures is None else min_failures,
        )


def contract_of(table: str) -> Contract:
    """Return the contract of a table, found by its path: ``silver.x`` is ``expectations/silver/x.py``.

    >>> contract_of('silver.dlq_records').scope
    'dlq_topic'
    """
    contract = import_module(f"expectations.{table}").CONTRACT
    assert isinstance(contract, Contract)
    return contract


@cache
def later_columns(table: str) -> tuple[Column, ...]:
    """Return the columns that came to a table later; none if the table has no contract."""
    layer, _, name = table.partition(".")
    is_copy = layer in ("quarantine", "held")  # of the columns of silver
    try:
        contract = contract_of(f"silver.{name}" if is_copy else table)
    except ModuleNotFoundError:
        return ()
    return tuple(column for column in contract.stored if column.later)
