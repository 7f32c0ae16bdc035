"""Inputs -> summarised table: compute again, with the table's SELECT, only the groups that new input touches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from heapq import merge
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from expectations.contract import contract_of
from expectations.literals import spark as spark_literal
from expectations.literals import spark_name
from expectations.verdict import Verdict
from pipelines.engines import choose, spark
from pipelines.engines.base import Engine
from pipelines.engines.choose import Choice, UnsupportedByDuckDB
from pipelines.engines.duckdb import engine as duckdb
from pipelines.stage import Derive, Summarise
from pipelines.steps.derive import made, shares
from pipelines.steps.modules import Rows
from pipelines.steps.refresh import (
    REPLACED,
    Along,
    EachOf,
    Group,
    OwnRows,
    Refresh,
    facts_of,
    groups_in,
    having,
    kept_of,
    name_of,
    parameters_of,
    ranges_among,
    ranges_of,
    refresh_of,
    select_of,
)
from pipelines.warehouse import removed
from pipelines.warehouse.groups import MOST_GROUPS, Groups
from pipelines.warehouse.progress import Batch
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pyarrow import RecordBatchReader, Table  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame

REPEATED, COUNT = "grain.repeated", "_count"
FRESH, ADDED, LACKING, OWN, SELECTED, DERIVED = "_fresh", "_added", "_lacking", "_own", "_selected", "_derived"
AS_IT_WAS = "_as_it_was"
TOUCHED, STEP, CHAIN = "_touched", "_step", "_chain"
NOTHING = "SELECT CAST(NULL AS STRING) AS _group, false AS _is_first WHERE false"  # of inputs that are all empty


@contextlib.contextmanager
def refreshed(warehouse: Warehouse, stage: Summarise, batch: Mapping[str, Batch]) -> Iterator[Refreshed | None]:
    """Compute again the groups that a batch touches, by the engine that suits; DuckDB can leave them to Spark.

    Yield None if the batch changes nothing. What is yielded can be written until the block ends.
    """
    warehouse.take_later_columns(contract_of(stage.table))
    chosen = choose.of_refresh(warehouse, stage.table)
    with contextlib.ExitStack() as stack:
        if chosen.is_duckdb:
            try:
                found = stack.enter_context(refreshed_by(chosen, warehouse, stage, batch))
            except UnsupportedByDuckDB as left:
                chosen = choose.left_to_spark(stage.table, left)
        if not chosen.is_duckdb:
            found = stack.enter_context(refreshed_by(chosen, warehouse, stage, batch))
        yield found


@contextlib.contextmanager
def refreshed_by(
    chosen: Choice, warehouse: Warehouse, stage: Summarise, batch: Mapping[str, Batch]
) -> Iterator[Refreshed | None]:
    """Do the same by one engine.

    Raises UnsupportedByDuckDB: DuckDB cannot do it, or facts do not hold, which Spark finds again and words.
    """
    with (duckdb if chosen.is_duckdb else spark).opened(warehouse, stage.table) as engine:
        with engine.refusals():
            found = Refreshing(chosen, engine, warehouse, stage, refresh_of(stage), batch).found()
        if chosen.is_duckdb and found is not None and any(found.facts.values()):
            raise UnsupportedByDuckDB("its facts do not hold, and Spark says why")
        yield found


@dataclass(frozen=True)
class Refreshed:
    """The rows that a table gets, the facts that its gate examines, and the groups of the table's rows to replace.

    ``rows`` are the ``count`` fresh rows or, if ``is_added``, those of them that the groups lack.
    """

    engine: Choice
    warehouse: Warehouse
    stage: Summarise
    replaces: Groups | None
    read: int
    facts: Mapping[str, int]
    count: int
    rows: DataFrame | Table | RecordBatchReader
    is_added: bool = False

    def gate(self, run_id: str) -> Verdict:
        """Return the verdict on the facts."""
        from expectations import suite

        store = self.warehouse.settings.reports() / "gx"
        return suite.gate_facts(self.facts, self.stage.table, run_id=run_id, store=store)

    def write(self) -> int:
        """Replace the touched groups by the fresh rows in one commit; return how many rows were written."""
        contract = contract_of(self.stage.table)
        return self.warehouse.replace_groups(
            self.stage.table, self.rows, self.replaces, contract, self.count, are_added=self.is_added
        )


@dataclass(frozen=True)
class Refreshing:
    """The computation of a refresh by an engine, which gets names for rows one after the other."""

    chosen: Choice
    engine: Engine
    warehouse: Warehouse
    stage: Summarise
    refresh: Refresh
    batch: Mapping[str, Batch]

    def found(self) -> Refreshed | None:
        """Return the fresh rows of the groups that the batch touches, with their facts; None if nothing changes."""
        changed, fed = self._changed()
        touched: list[Any] | None = None  # every group
        if any(versions.start is not None for versions in self.batch.values()):
            counts = f"SELECT _group, count_if(_is_first) AS {COUNT} FROM ({changed}) GROUP BY _group"
            found = self.engine.rows(f"{counts} LIMIT {MOST_GROUPS + 1}", fed)
            if not found:
                return None
            if len(found) <= MOST_GROUPS:
                touched, read = [group for group, _ in found], sum(count for _, count in found)
                touched = [group for group in touched if not self._stays(group)]
                if not touched:
                    return None
        for table, chain in self._chains().items():
            touched = self._reached(table, touched, chain.following, chain.group, chain.times)
        if touched is None:
            ((read,),) = self.engine.rows(f"SELECT count(*) AS {COUNT} FROM ({changed}) WHERE _is_first")
            if not read and not self.warehouse.state(self.stage.table)[1]:
                return None  # no input rows, and no rows of the table to replace
        else:
            self.engine.groups(TOUCHED, touched)
        for table in self.batch:
            self._take(table, touched)
        self._make(touched, self._starts(self._most_of_a_part))
        facts = self._facts(touched)
        count, written = facts.pop(COUNT), FRESH
        if self._stays_before is not None:
            count, written = self._keep_earlier(touched, *self._stays_before)
        most = self.engine.most_rewritten
        is_added = most is not None and count > most and self._lacks_some(touched, written)
        replaces = None if touched is None else Groups(self.refresh.column, tuple(touched))
        rows = self.engine.for_writer(LACKING if is_added else written, self.refresh.column, replaces, count)
        return Refreshed(self.chosen, self.warehouse, self.stage, replaces, read, facts, count, rows, is_added)

    def _changed(self) -> tuple[str, list[str]]:
        """Return a query for one row per group that each changed row of an input touches, and whether it is the first.

        If the groups are found in the table itself, the table's own rows count instead of the input's. Also return the
        names of the changes that the query reads.
        """
        texts, fed = [], []
        for table, versions in self.batch.items():
            if (versions.start or 0) >= versions.end:
                continue
            changes, group = f"_changes_{name_of(table)}", self.refresh.groups[table]
            self.engine.changes(changes, table, versions)
            rows = self._net(table, changes) if versions.start is not None and table in REPLACED else changes
            if isinstance(group, OwnRows):
                texts.append(self._own_groups(group, rows, changes))
            else:
                texts.append(groups_in(rows, group))
                fed.append(changes)
        return " UNION ALL ".join(texts) or NOTHING, fed

    def _net(self, table: str, changes: str) -> str:
        """Return the name of changes without rows that were written back unchanged."""
        columns = [name for name in self.engine.columns(changes) if name != "_change_type"]
        names = _listed(self.refresh.counts(table, columns))
        sign = "IF(_change_type IN ('insert', 'update_postimage'), 1, -1)"
        self.engine.view(f"_net{changes}", f"SELECT {names} FROM {changes} GROUP BY {names} HAVING sum({sign}) <> 0")
        return f"_net{changes}"

    def _own_groups(self, group: OwnRows, rows: str, changes: str) -> str:
        """Return a query for the groups of own rows that meet a condition and share a value with changed rows.

        With very many values take all rows of the condition.
        """
        asked = f"SELECT DISTINCT {group.column} FROM {rows} LIMIT {MOST_GROUPS + 1}"
        named = [value for (value,) in self.engine.rows(asked, [changes])]
        own, where, among = f"_own{changes}", f"({group.condition})", None
        if len(named) <= MOST_GROUPS:
            self.engine.groups(f"_named{changes}", named)
            where += f" AND {self.engine.is_one_of(group.column, f'_named{changes}')}"
            among = ranges_of(group.column, named, None) or None
        self.engine.read(own, self.stage.table, among=among, where=where)
        return groups_in(own, self.refresh.column)

    def _take(self, table: str, touched: list[Any] | None) -> None:
        """Register an input's rows in the touched groups (None: all), under its name in the SELECT."""
        group, end = self.refresh.groups[table], self.batch[table].end
        called, among = self._names[name_of(table)], None if isinstance(group, OwnRows) else touched
        if isinstance(group, Along):
            among = self._reached(table, among, group.group, group.following, group.times)
        if among is None:
            self.engine.read(called, table, end, where=self._from_then(group), is_shared=True)
            return
        ranges = ranges_among(group, among, self.refresh.span)
        where = self._within(group, among, f"_groups{called}")
        self.engine.read(called, table, end, ranges or None, where, is_shared=True)

    def _from_then(self, group: Group) -> str:
        """Return a condition for an input's rows in groups that do not stay as they are; "" if all are."""
        if self._stays_before is None or self._stays_before[0] != self.refresh.column or not isinstance(group, str):
            return ""
        return f"NOT coalesce(({group}) < {spark_literal(self._stays_before[1])}, false)"

    def _within(self, group: Group, among: Iterable[Any], called: str) -> str:
        """Return a condition for rows in some groups, which get a name; null is none of ``each of`` several."""
        self.engine.groups(called, {*among} - {None} if isinstance(group, EachOf) else among)
        return having(
            group,
            lambda expression: self.engine.is_one_of(expression, called),
            lambda expression: self.engine.has_one_of(expression, called),
        )

    def _reached(
        self, table: str, groups: list[Any] | None, group_of_row: str, leads_to: str, times: int
    ) -> list[Any] | None:
        """Return groups and those that an input's rows lead to from them, in so many steps; None for very many.

        ``group_of_row`` is the expression of the group that a row is in, ``leads_to`` that of the one it leads to.
        """
        if groups is None:
            return None
        reached, last = set(groups), list(groups)
        for _ in range(times):
            self.engine.groups(STEP, last)
            where = f"({leads_to}) IS NOT NULL AND {self.engine.is_one_of(f'({group_of_row})', STEP)}"
            self.engine.read(CHAIN, table, self.batch[table].end, ranges_of(group_of_row, last, None) or None, where)
            led = self.engine.rows(f"SELECT DISTINCT {leads_to} AS _group FROM {CHAIN} LIMIT {MOST_GROUPS + 1}")
            last = [group for (group,) in led if group not in reached]
            reached.update(last)
            if len(reached) > MOST_GROUPS:
                return None
            if not last:
                break
        return list(reached)

    def _make(self, touched: list[Any] | None, starts: Sequence[Any] = ()) -> None:
        """Make the fresh rows: of one part of the groups after the other, given the first groups of all later parts."""
        column, values = self.refresh.column, parameters_of(self.warehouse.settings)
        for number, ends in enumerate(pairwise([None, *starts, None])):
            text = select_of(self.stage.table).format(**(self._in_part(ends) if starts else self._names))
            conditions = [_is_between(column, ends)] if starts and self._gives_rows_of_other_parts else []
            if touched is not None:  # input rows of several groups also give rows of untouched groups: incomplete ones
                is_touched = self.engine.is_one_of(column, TOUCHED)
                conditions.append(f"({is_touched} OR {column} IS NULL)" if shares(self.stage) else is_touched)
            if conditions:
                text = f"SELECT * FROM (\n{text}\n) WHERE {' AND '.join(conditions)}"
            if isinstance(self.stage, Derive):
                self.engine.keep(SELECTED, text, values)
                self.engine.give(DERIVED, self._derived(self.stage, touched))
                text, values = f"SELECT * FROM {DERIVED}", {}
            self.engine.keep(FRESH, text, values, are_fresh=True, are_more=number > 0)

    @property
    def _most_of_a_part(self) -> int | None:
        """How many input rows to take at a time (None: all)."""
        is_whole = isinstance(self.stage, Derive) or not choose.is_in_parts(self.stage.table)
        return None if is_whole else self.engine.rows_of_a_part

    def _starts(self, most: int | None) -> list[Any]:
        """Return where parts of the groups begin, without the first, so that each takes about so many rows (None: all).

        A part is a range of groups, because row groups of files that hold no rows of the range are not read.
        """
        inputs = {
            self._names[name_of(table)]: group
            for table, group in self.refresh.groups.items()
            if not isinstance(group, Along | OwnRows)
        }
        if most is None or not inputs:
            return []
        counts = " UNION ALL ".join(f"SELECT count(*) AS {COUNT} FROM {name}" for name in inputs)
        ((count,),) = self.engine.rows(f"SELECT sum({COUNT}) AS {COUNT} FROM ({counts})")
        if count <= most:
            return []
        groups = " UNION ALL ".join(groups_in(name, group) for name, group in inputs.items())
        sizes = f"SELECT _group, count(*) AS {COUNT} FROM ({groups}) WHERE _group IS NOT NULL GROUP BY _group"
        parts = f"SELECT _group, (sum({COUNT}) OVER (ORDER BY _group) - {COUNT}) div {most} AS _part FROM ({sizes})"
        firsts = self.engine.rows(f"SELECT min(_group) AS _first FROM ({parts}) GROUP BY _part ORDER BY _first")
        return [first for (first,) in firsts[1:]]

    @property
    def _gives_rows_of_other_parts(self) -> bool:
        """Whether the inputs' rows of a part give rows of other parts: a row has several groups, or an input is whole.

        DuckDB explodes arrays much more slowly if it has to look for some groups among the rows that a SELECT gives.
        """
        groups = self.refresh.groups.values()
        return not all(
            isinstance(group, str) or (isinstance(group, EachOf) and len(group.groups) == 1) for group in groups
        )

    def _in_part(self, ends: tuple[Any, Any]) -> dict[str, str]:
        """Register the inputs' rows in the groups of a part; return their names.

        Inputs with chains or ``own rows`` are whole in each part.
        """
        names = self._names
        for table, group in self.refresh.groups.items():
            if not isinstance(group, Along | OwnRows):
                rows = names[name_of(table)]
                where = having(
                    group,
                    lambda expression: _is_between(expression, ends),
                    lambda expression: f"exists({expression}, one -> {_is_between('one', ends)})",
                )
                names[name_of(table)] = f"_part{rows}"
                self.engine.view(f"_part{rows}", f"SELECT * FROM {rows} WHERE {where}")
        return names

    def _derived(self, stage: Derive, touched: list[Any] | None) -> list[Mapping[str, Any]]:
        """Return what the table's module makes from the selected rows and the table's own rows of each group."""
        column, common = self.refresh.column, []
        self._read_own(touched)
        is_grouped = ""
        if shares(stage):
            common = list(self.engine.objects(f"SELECT * FROM {SELECTED} WHERE {column} IS NULL"))
            is_grouped = f" WHERE {column} IS NOT NULL"
        selected, own = (
            self.engine.objects(f"SELECT * FROM {rows}{is_grouped} ORDER BY {column}") for rows in (SELECTED, OWN)
        )
        return made(stage, _by_group(selected, own, column), common)

    def _facts(self, touched: list[Any] | None) -> dict[str, int]:
        """Return how many rows break what, and the number of fresh rows under the name ``COUNT``.

        The facts are those of the table, the uniqueness of its grain, and the contract's rules.
        """
        inputs, contract = self._names, contract_of(self.stage.table)
        for table, chain in self._chains().items() if touched is not None else ():
            name = name_of(table)  # facts are about touched groups, without the rows that these lead to
            where = self.engine.is_one_of(f"({chain.group})", TOUCHED)
            self.engine.view(f"_checked_{name}", f"SELECT * FROM {inputs[name]} WHERE {where}")
            inputs[name] = f"_checked_{name}"
        counted = [f"count_if({rule.breaks()}) AS `{rule.code}`" for rule in contract.rules]
        rules = f"SELECT {', '.join([*counted, f'count(*) AS {COUNT}'])} FROM {FRESH}"
        facts = facts_of(self.stage.table).format(**inputs, fresh=FRESH)
        return self.engine.counts([facts, repeated(FRESH, contract.grain), rules])

    @cached_property
    def _stays_before(self) -> tuple[str, datetime] | None:
        """The expression of the time of the table's rows, and the time before which they stay as they are, or away.

        So it is if rows of the table, or of an input, went by their age: the input tells no more what was counted.
        """
        if (kept := kept_of(self.stage.table)) is None:
            return None
        went = removed.before(self.warehouse)
        times = [went[table] for table in (self.stage.table, *kept.inputs) if table in went]
        return (kept.time, max(times)) if times else None

    def _stays(self, group: Any) -> bool:
        """Tell whether all rows of a group stay as they are, as the group is their time."""
        if group is None or self._stays_before is None or self._stays_before[0] != self.refresh.column:
            return False
        return bool(group < self._stays_before[1])

    def _keep_earlier(self, touched: list[Any] | None, time: str, before: datetime) -> tuple[int, str]:
        """Register fresh rows from a time on, beside the table's own rows before it; return their number and name."""
        self._read_own(touched)
        names, is_earlier = _listed(self.engine.columns(FRESH)), f"coalesce(({time}) < {spark_literal(before)}, false)"
        fresh, own = (f"SELECT {names} FROM {rows} WHERE" for rows in (FRESH, OWN))
        text = f"{fresh} NOT {is_earlier} UNION ALL {own} {is_earlier}"
        self.engine.keep(AS_IT_WAS, text, are_fresh=True)
        ((count,),) = self.engine.rows(f"SELECT count(*) AS {COUNT} FROM {AS_IT_WAS}")
        return count, AS_IT_WAS

    def _lacks_some(self, touched: list[Any] | None, written: str) -> bool:
        """Register the fresh rows that the groups lack; return False if a row of the groups is not fresh."""
        names = _listed(self.engine.columns(FRESH))
        self._read_own(touched)
        signed = f"SELECT {names}, 1 AS _times FROM {written} UNION ALL SELECT {names}, -1 AS _times FROM {OWN}"
        differing = f"SELECT {names}, sum(_times) AS _times FROM ({signed}) GROUP BY {names} HAVING sum(_times) <> 0"
        if self.engine.rows(f"SELECT 1 AS _one FROM {OWN} LIMIT 1"):
            self.engine.keep(ADDED, differing)
        else:
            self.engine.view(ADDED, f"SELECT {names}, 1 AS _times FROM {written}")
        self.engine.view(LACKING, f"SELECT {names} FROM {ADDED}")
        return not self.engine.rows(f"SELECT 1 AS _one FROM {ADDED} WHERE _times <> 1 LIMIT 1")

    def _read_own(self, touched: list[Any] | None) -> None:
        """Register the table's own rows in the touched groups (None: all)."""
        column = self.refresh.column
        if touched is None:
            self.engine.read(OWN, self.stage.table)
        else:
            where = self.engine.is_one_of(column, TOUCHED)
            self.engine.read(OWN, self.stage.table, among=ranges_of(column, touched, None) or None, where=where)

    @property
    def _names(self) -> dict[str, str]:
        """What the inputs are called here, by their names in texts."""
        return {name_of(table): f"_input_{name_of(table)}" for table in self.batch}

    def _chains(self) -> dict[str, Along]:
        return {table: group for table, group in self.refresh.groups.items() if isinstance(group, Along)}


def repeated(rows: str, grain: Iterable[str]) -> str:
    """Return a query for the number of values of a grain that occur in several rows; null counts as a value."""
    names = _listed(grain)
    several = f"SELECT count(*) AS _times FROM {rows} GROUP BY {names} HAVING count(*) > 1"
    return f"SELECT count(*) AS `{REPEATED}` FROM ({several})"


def _is_between(group: str, ends: tuple[Any, Any]) -> str:
    """Return a condition: a group is in the range that begins with the first end and stops before the second one.

    None is no end. Null is in the range without a beginning.
    """
    first, after = ends
    until = [] if after is None else [f"{group} < {spark_literal(after)}"]
    if first is None:
        return f"({' OR '.join([f'{group} IS NULL', *until])})" if until else "true"
    return f"({' AND '.join([f'{group} >= {spark_literal(first)}', *until])})"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(spark_name, names))


def _by_group(
    selected: Iterable[Mapping[str, Any]], own: Iterable[Mapping[str, Any]], column: str
) -> Iterator[tuple[Rows, Rows]]:
    """Yield the selected rows and the table's own rows of each group; both come in the order of groups, null first."""

    def with_group(rows: Iterable[Mapping[str, Any]], is_own: bool) -> Iterator[tuple[Any, bool, Mapping[str, Any]]]:
        return (((row[column] is not None, row[column]), is_own, row) for row in rows)

    both = merge(with_group(selected, False), with_group(own, True), key=itemgetter(0))
    for _, members in groupby(both, key=itemgetter(0)):
        given: tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]] = ([], [])
        for _, is_own, row in members:
            given[is_own].append(row)
        yield given
