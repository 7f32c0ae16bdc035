"""A small batch of bronze -> silver: Spark makes and judges the candidates in one query, DuckDB decides on them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from expectations import literals
from expectations.contract import Contract
from expectations.verdict import SCOPE
from pipelines.columns.stamps import stamped
from pipelines.engines import choose
from pipelines.engines.choose import Choice, UnsupportedByDuckDB
from pipelines.engines.duckdb import sessions
from pipelines.engines.duckdb.translate import translated
from pipelines.stage import Split
from pipelines.steps.batch_rows import ArrowRows, SparkRows, without_zones
from pipelines.steps.collapse import CONFLICT, SKIPPED, census, decided
from pipelines.steps.modules import split_module
from pipelines.steps.split import SplitBatch, contract_under, examined, marked, narrow
from pipelines.warehouse import few_rows
from pipelines.warehouse.change_feed import NamedFiles
from pipelines.warehouse.data_files import DataFiles
from pipelines.warehouse.ranges import Range
from pipelines.warehouse.tables import Warehouse, quarantine_contract

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyarrow import Schema, Table  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame

MOST_UNPACKED = 128 << 20  # bytes of it without compression: Java's heap holds the candidates, too
MOST_OF_CANDIDATES = 256 << 20  # bytes in memory
JUDGED, FLOWING, EXISTING, QUARANTINED, DECISIONS = "_judged", "_flowing", "_existing", "_quarantined", "_decisions"
RANGES, WITHIN = "_ranges", "_within"
AT = "_at"  # the index of a candidate in the batch


@contextlib.contextmanager
def split_of(
    warehouse: Warehouse,
    stage: Split,
    rows: DataFrame,
    run_id: str,
    started_at: datetime,
    among: DataFrame | None = None,
    files: Sequence[NamedFiles] | None = None,
    home: str | None = None,
) -> Iterator[SplitBatch]:
    """Yield the batch for input rows, counted by grain; ``among`` names the candidates to take (None: all).

    ``files`` hold the input rows, or as large ones; None means that the rows may be many.
    """
    contract = contract_under(warehouse.settings, stage)
    module = split_module(stage)

    transform_in = module.transform_in
    made = transform_in(rows, warehouse) if transform_in else module.transform(rows, warehouse.settings)
    candidates = stamped(made, started_at, run_id)
    if among is not None:
        candidates = candidates.join(among, [*contract.row], how="left_semi")

    with contextlib.ExitStack() as stack:
        split: SplitBatch | None = None
        chosen = choose.of_decisions(warehouse, files)
        if chosen.is_duckdb:
            try:
                with sessions.refusals():
                    connection = stack.enter_context(sessions.session(warehouse.root))
                    if sum(sessions.unpacked(connection, file) for file in files or ()) <= MOST_UNPACKED:
                        split = FewSplit.collected(warehouse, contract, rows, candidates, connection, home)
            except UnsupportedByDuckDB as left:
                chosen = choose.left_to_spark(stage.table, left)
            else:
                chosen = chosen if split is not None else Choice(choose.SPARK, choose.MANY)
        if split is None:
            split = stack.enter_context(SplitBatch.between(warehouse, contract, rows, candidates, home))
        yield replace(split, explain=module.explain, engine=chosen)


@dataclass(frozen=True)
class Decided(ArrowRows):
    """Outcomes, and the indexes in the batch of what enters the tables.

    ``why`` has for each candidate that enters quarantine its index, the mask of rules that it breaks, and its outcome.
    ``new`` are the indexes of those without an outcome.
    """

    why: Sequence[tuple[int, int, str]]
    new: Sequence[int]


@dataclass(frozen=True)
class FewSplit(SplitBatch):
    """A batch whose candidates, with their judgement, are in memory.

    What DuckDB or the writer of few rows refuses is left to Spark, which gets the candidates back.
    """

    judged: ArrowRows
    are_few: ClassVar[bool] = True
    table: Table = None
    connection: DuckDBPyConnection = None  # type: ignore[assignment]

    @classmethod
    def collected(
        cls,
        warehouse: Warehouse,
        contract: Contract,
        rows: DataFrame,
        candidates: DataFrame,
        connection: DuckDBPyConnection,
        home: str | None = None,
    ) -> FewSplit | None:
        """Return the batch; None if its candidates are too large."""
        import pyarrow as arrow

        made = marked(contract, candidates, home)
        read = made.select("*", *examined(contract))
        table = few_rows.collected(read, MOST_OF_CANDIDATES)
        if table is None:
            return None
        names = narrow(contract, made.columns)
        known = table.select(names).append_column(AT, arrow.array(range(table.num_rows), arrow.int64()))
        connection.register(JUDGED, without_zones(known))
        judged_columns = table.select([*names, *(rule.code for rule in contract.rules)])
        judged = ArrowRows(judged_columns, warehouse.spark, connection, JUDGED)
        return cls(
            warehouse,
            contract,
            rows,
            judged,
            census(judged, contract),
            home=home,
            read=read,
            table=table.select(made.columns),
            connection=connection,
        )

    @cached_property
    def _in_spark(self) -> DataFrame:
        return self.warehouse.spark.createDataFrame(self.table)

    def made(self) -> DataFrame:
        """Return all candidates, with payloads, scopes and marks."""
        return self._in_spark

    def _flowing(self) -> Table:
        """Return the indexes of the judged rows that belong to the table and are not held."""
        import pyarrow as arrow
        import pyarrow.compute as compute  # type: ignore[import-untyped]

        judged = self.judged.table
        flows = compute.invert(judged[SKIPPED])
        if self.held:
            held = compute.is_in(judged[SCOPE], value_set=arrow.array(sorted(self.held), judged[SCOPE].type))
            flows = compute.and_(flows, compute.invert(held))
        return arrow.table({AT: arrow.array(range(judged.num_rows), arrow.int64()).filter(flows)})

    @contextlib.contextmanager
    def decisions(self) -> Iterator[SparkRows | ArrowRows]:
        """Yield the outcomes of candidates that are not simply inserted, by DuckDB if it can tell them."""
        made: Decided | None = None
        try:
            with sessions.refusals():
                made = self._decided()
        except UnsupportedByDuckDB as left:
            choose.left_to_spark(self.contract.table, left)
        if made is not None:
            yield made
            return
        with super().decisions() as decisions:
            yield decisions

    def _decided(self) -> Decided | None:
        """Return the outcomes; None if only Delta can read the tables."""
        contract, ranges = self.contract, self.census.ranges
        quarantine = self.warehouse.data_files(quarantine_contract(contract).table)
        there = self.warehouse.data_files(contract.table)
        if quarantine is None or there is None:
            return None
        self.connection.register("_at_flowing", self._flowing())
        self._view(FLOWING, f"FROM {JUDGED} SEMI JOIN _at_flowing USING ({AT})")
        files = there.paths(ranges) if ranges else []
        columns = self._existing(there, files, ranges) if files else None
        held_back = quarantine.paths()
        if held_back:
            self._view(QUARANTINED, sessions.rows(self.connection, quarantine, held_back))
        text = decided(contract, self.census.repeats, columns, bool(held_back))
        text = text.format(rows=FLOWING, existing_rows=EXISTING, quarantined=QUARANTINED)
        made = self.connection.sql(translated(text)).to_arrow_table()
        self.connection.register(DECISIONS, without_zones(made))
        row = ", ".join(map(literals.name, contract.row))
        why = self.connection.sql(
            f"SELECT {AT}, one._broken_rules, decided.outcome FROM {FLOWING} AS one "
            f"JOIN {DECISIONS} AS decided USING ({row}) WHERE decided.outcome IN ('refused', 'conflict') ORDER BY {AT}"
        )
        new = self.connection.sql(
            f"SELECT {AT} FROM {FLOWING} "
            f"ANTI JOIN (SELECT * FROM {DECISIONS} WHERE outcome IS NOT NULL) USING ({row}) ORDER BY {AT}"
        )
        spark = self.warehouse.spark
        return Decided(made, spark, self.connection, DECISIONS, why.fetchall(), [at for (at,) in new.fetchall()])

    def _existing(self, there: DataFiles, files: list[str], ranges: tuple[Range, ...]) -> list[str]:
        """Make a view of the table's rows within the census's ranges; return its columns."""
        import pyarrow as arrow

        *_, last = self.contract.known_grain
        others = sorted({name for range_ in ranges for name in range_} - {last})
        ends = [range_[last] or (None, None) for range_ in ranges]
        kinds: Schema = without_zones(self.judged.table.select([*others, last]).slice(0, 0)).schema
        fields = {
            **{name: ([(range_[name] or (None,))[0] for range_ in ranges], kinds.field(name).type) for name in others},
            "_least": ([least for least, _ in ends], kinds.field(last).type),
            "_greatest": ([greatest for _, greatest in ends], kinds.field(last).type),
        }
        self.connection.register(RANGES, arrow.table({name: arrow.array(*field) for name, field in fields.items()}))
        stored = self._view(WITHIN, sessions.rows(self.connection, there, files))
        same = [f"stored.{literals.name(name)} IS NOT DISTINCT FROM one.{literals.name(name)}" for name in others]
        inside = f"stored.{literals.name(last)} BETWEEN one._least AND one._greatest"
        condition = " AND ".join([*same, inside])
        self._view(EXISTING, f"SELECT * FROM {WITHIN} AS stored WHERE EXISTS (FROM {RANGES} AS one WHERE {condition})")
        return stored

    def _view(self, called: str, query: str) -> list[str]:
        """Make a view; return its columns."""
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {called} AS {query}")
        return list(self.connection.sql(f"FROM {called}").columns)

    def quarantine(self, decisions: SparkRows | ArrowRows) -> int:
        """Insert refused and conflicting candidates into quarantine; return how many."""
        import pyarrow as arrow

        if not isinstance(decisions, Decided):
            return super().quarantine(decisions)
        codes = [
            [CONFLICT] if outcome == "conflict" else self.contract.codes_of(mask) for _, mask, outcome in decisions.why
        ]
        violations = arrow.array(codes, arrow.list_(arrow.field("element", arrow.string())))
        rows = self._taken(at for at, *_ in decisions.why).append_column("violations", violations)
        return self.warehouse.insert(rows, quarantine_contract(self.contract))

    def insert(self, decisions: SparkRows | ArrowRows, all_: bool) -> int:
        """Insert the candidates without an outcome, which may be ``all_``, into the table; return how many."""
        if not isinstance(decisions, Decided):
            return super().insert(decisions, all_)
        return self.warehouse.insert(self._taken(decisions.new), self.contract, self.census.ranges or None)

    def _taken(self, indexes: Iterable[int]) -> Table:
        import pyarrow as arrow

        return self.table.take(arrow.array(indexes, arrow.int64()))
