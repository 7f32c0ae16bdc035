"""Inputs -> summarised table, by DuckDB: groups are computed again without Spark's planning and row by row.

Spark takes half a second or more to describe, plan and start the queries of a refresh, however few rows it reads, and
several times as long as DuckDB for many. The texts are the same: `pipelines.engines.duckdb` translates them. Only
SELECTs take part that a test has compared in both engines (``-- Engine: duckdb``). Whatever DuckDB refuses, and
whatever is very large, is left to Spark.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby
from math import ceil
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from expectations.contract import Contract, contract_of
from expectations.verdict import Verdict
from pipelines.engines.choose import Engine, LeftToSpark, is_in_parts
from pipelines.engines.duckdb import sessions
from pipelines.engines.duckdb.translate import Untranslatable, parameters, translated
from pipelines.stage import Derive, Summarise
from pipelines.steps.derive import made, shares
from pipelines.steps.refresh import (
    REPLACED,
    Along,
    EachOf,
    OwnRows,
    Refresh,
    facts_of,
    name_of,
    parameters_of,
    ranges_among,
    ranges_of,
    refresh_of,
    select_of,
)
from pipelines.warehouse import change_feed, few_rows
from pipelines.warehouse.groups import EPOCH, MOST_GROUPS, Groups
from pipelines.warehouse.progress import Batch
from pipelines.warehouse.ranges import Range
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from duckdb import DuckDBPyConnection
    from pyarrow import DataType, RecordBatchReader, Table  # type: ignore[import-untyped]

REPEATED = "grain.repeated"
MOST_BYTES = 16 << 30  # of an input's files with changes, or with rows that may be of the touched groups
ROWS_OF_A_PART = 750_000  # of an input; of many more DuckDB would spill rows, which takes twice the time
MOST_KEPT = 4 << 20  # of an input's files, whose rows are then kept in memory
MOST_REWRITTEN = 500  # rows; more are compared with those that the groups have, so that a commit has the new ones only
MOST_OBJECTS = 20_000  # rows of the table that become Python's objects, of some 6 kB each
ROWS_OF_A_BATCH = 2_000  # that become Python's objects at a time
FRESH, ADDED, SORTED, TOUCHED, DERIVED, OWN = "_fresh", "_added", "_sorted", "_touched", "_derived", "_own"
ONLY_DELTA = "only Delta can read or write one of its tables"
TOO_LARGE = "more of an input's files may hold rows of the groups than fit one machine"
MANY_GROUPS = "the groups that changed are many"
STEP, CHAIN, PART = "_step", "_chain", "_part"
NOTHING = "SELECT NULL AS _group, false AS _is_first WHERE false"  # of inputs that are all empty


@dataclass(frozen=True)
class DuckSummary:
    """The rows that a table gets, the facts that its gate examines, and the groups of the table's rows to replace.

    ``rows`` are the ``count`` fresh rows or, if ``is_added``, those of them that the groups lack. Many rows are read
    from DuckDB while they are written, in the order of their groups.
    """

    warehouse: Warehouse
    stage: Summarise
    replaces: Groups | None
    read: int
    facts: Mapping[str, int]
    count: int
    rows: Table | RecordBatchReader
    is_added: bool
    engine: Engine | None = None

    @classmethod
    @contextlib.contextmanager
    def of(cls, warehouse: Warehouse, stage: Summarise, batch: Mapping[str, Batch]) -> Iterator[DuckSummary | None]:
        """Compute again the groups that a batch touches; yield None if the batch changes nothing.

        What is yielded can be written until the block ends.

        Raises LeftToSpark: Spark must do it. No defect of the rows is told: Spark finds it again, and says what is
        wrong.
        """
        with contextlib.ExitStack() as stack:
            try:
                opened = warehouse.local_table(stage.table)
                if not few_rows.is_plain(opened):
                    raise LeftToSpark(ONLY_DELTA)
                with sessions.refusals():
                    connection = stack.enter_context(sessions.session(warehouse.root))
                    made = _Refreshing(warehouse, stage, refresh_of(stage), batch, connection, opened).made()
            except Untranslatable as error:
                raise LeftToSpark(str(error), is_refusal=True) from error
            if made is not None and any(made.facts.values()):
                raise LeftToSpark("its facts do not hold, and Spark says why")
            yield made

    def gate(self, run_id: str) -> tuple[Verdict, int]:
        """Check the facts; return the verdict and the number of fresh rows."""
        from expectations import suite

        store = self.warehouse.settings.reports() / "gx"
        return suite.gate_facts(self.facts, self.stage.table, run_id=run_id, store=store), self.count

    def write(self, count: int) -> int:
        """Replace the touched groups by the ``count`` fresh rows in one commit; return ``count``."""
        contract = contract_of(self.stage.table)
        return self.warehouse.replace_groups(
            self.stage.table, self.rows, self.replaces, contract, count, are_added=self.is_added
        )


@dataclass(frozen=True)
class _Refreshing:
    """The computation of a refresh in a connection of DuckDB, which gets views and tables one after the other."""

    warehouse: Warehouse
    stage: Summarise
    refresh: Refresh
    batch: Mapping[str, Batch]
    connection: DuckDBPyConnection
    opened: DeltaTable

    def made(self) -> DuckSummary | None:
        """Return the fresh rows with their facts; None if nothing changes."""
        contract = contract_of(self.stage.table)
        if not few_rows.has_columns_of(self.opened, contract):
            raise LeftToSpark("an earlier version of Afterlog made the table")
        changed = self._changed()
        touched: list[Any] | None = None  # every group
        if any(versions.start is not None for versions in self.batch.values()):
            counts = f"SELECT _group, count(*) FILTER (WHERE _is_first) FROM ({changed}) GROUP BY _group"
            found = self._fetched(f"{counts} LIMIT {MOST_GROUPS + 1}")
            if not found:
                return None
            if len(found) <= MOST_GROUPS:
                touched, read = [group for group, _ in found], sum(count for _, count in found)
                for table, chain in self._chains().items():
                    touched = self._reached(table, touched, chain.following, chain.group, chain.times)
        if touched is None:
            ((read,),) = self._fetched(f"SELECT count(*) FROM ({changed}) WHERE _is_first")
            if not read and not self.opened.version():
                return None  # no input rows, and no rows of the table to replace
        replaces = None if touched is None else Groups(self.refresh.column, tuple(touched))
        if replaces is not None and replaces.local_predicate() is None:
            raise LeftToSpark(MANY_GROUPS)
        if touched is not None:
            self._keep(TOUCHED, touched)
        for table in self.batch:
            self._take(table, touched)
        count = self._fresh(touched, self._parts())
        facts = self._facts(contract, touched)
        is_added = count > MOST_REWRITTEN and self._lacks_some(touched)
        rows = self._rows(f"SELECT * EXCLUDE (_times) FROM {ADDED}" if is_added else f"FROM {FRESH}")
        return DuckSummary(self.warehouse, self.stage, replaces, read, facts, count, rows, is_added)

    def _parts(self) -> int:
        """Return in how many parts to make the fresh rows, so that a part takes some ``ROWS_OF_A_PART`` of an input."""
        if isinstance(self.stage, Derive) or not is_in_parts(self.stage.table):
            return 1
        counts = [self._fetched(f"SELECT count(*) FROM {name}") for name in self._names.values()]
        return ceil(max(count for ((count,),) in counts) / ROWS_OF_A_PART) or 1

    def _fresh(self, touched: list[Any] | None, parts: int = 1) -> int:
        """Make the table of fresh rows, of a part of the groups at a time; return how many there are."""
        text = select_of(self.stage.table).format(**self._in_part(parts) if parts > 1 else self._names)
        select = translated(text)
        if touched is not None:  # input rows of several groups also give rows of untouched groups: incomplete ones
            is_null = None in touched or shares(self.stage)
            select = f"FROM ({select}) WHERE {_is_touched(sessions.name(self.refresh.column), TOUCHED, is_null)}"
        values = parameters_of(self.warehouse.settings)
        bound = {name: values[name] for name in parameters(text) if name in values}
        if isinstance(self.stage, Derive):
            self.connection.register(DERIVED, self._derived(self.stage, select, bound, touched))
            select, bound = f"FROM {DERIVED}", {}
        columns = ", ".join(
            f"CAST({sessions.name(one)} AS {kind}) AS {sessions.name(one)}" for one, kind in self._types()
        )
        if parts > 1:
            select = f"FROM ({select}) WHERE {self._is_in_part(parts, sessions.name(self.refresh.column))}"
        for part in range(parts):
            self.connection.execute(f"SET VARIABLE {PART} = {part}")
            into = f"INSERT INTO {FRESH}" if part else f"CREATE TEMP TABLE {FRESH} AS"
            self.connection.execute(f"{into} SELECT {columns} FROM ({select})", bound)
        ((count,),) = self._fetched(f"SELECT count(*) FROM {FRESH}")
        return int(count)

    def _rows(self, query: str) -> Table | RecordBatchReader:
        """Return the rows of a query as rows of the table: many of them as batches, in the order of groups."""
        import pyarrow as arrow

        schema = few_rows.schema_of(self.opened.schema())
        ((count,),) = self._fetched(f"SELECT count(*) FROM ({query})")
        if count <= few_rows.MOST_ROWS:
            return self.connection.sql(query).to_arrow_table().cast(schema)
        in_order = f"FROM ({query}) ORDER BY {sessions.name(self.refresh.column)}"
        self.connection.execute(f"CREATE TEMP TABLE {SORTED} AS {in_order}")
        batches = self.connection.sql(f"FROM {SORTED}").to_arrow_reader(few_rows.ROWS_OF_A_BATCH)
        return arrow.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in batches))

    def _lacks_some(self, touched: list[Any] | None) -> bool:
        """Make the table of the fresh rows that the groups lack; return False if a row of the groups is not fresh."""
        own = self._own(touched)
        names = ", ".join(map(sessions.name, self._columns(FRESH)))
        if self._fetched(f"SELECT 1 {own} LIMIT 1"):
            signed = f"SELECT *, 1 AS _times FROM {FRESH} UNION ALL BY NAME SELECT *, -1 AS _times {own}"
            differing = f"SELECT {names}, sum(_times) AS _times FROM ({signed}) GROUP BY {names}"
            self.connection.execute(f"CREATE TEMP TABLE {ADDED} AS {differing} HAVING sum(_times) <> 0")
            return self._fetched(f"SELECT count(*) FROM {ADDED} WHERE _times <> 1") == [(0,)]
        self.connection.execute(f"CREATE TEMP VIEW {ADDED} AS SELECT *, 1 AS _times FROM {FRESH}")
        return True

    def _own(self, touched: list[Any] | None) -> str:
        """Return the FROM clause of the table's own rows in the touched groups (None: all)."""
        column = self.refresh.column
        among = None if touched is None else ranges_of([column], column, touched, None) or None
        self._stored(OWN, self.stage.table, self.opened, among)
        if touched is None:
            return f"FROM {OWN}"
        return f"FROM {OWN} WHERE {_is_touched(sessions.name(column), TOUCHED, None in touched)}"

    def _derived(self, stage: Derive, select: str, bound: Mapping[str, Any], touched: list[Any] | None) -> Table:
        """Return what the table's module makes from the selected rows and the table's own rows of each group.

        Raises LeftToSpark: the table's own rows are more than ``MOST_OBJECTS``.
        """
        column, own = self.refresh.column, self._own(touched)
        if self._fetched(f"SELECT count(*) > {MOST_OBJECTS} {own}") != [(False,)]:
            raise LeftToSpark("the rows that its module looks at are many")
        existing_rows: dict[Any, list[Any]] = {}
        for row in self._objects(own, {}):
            existing_rows.setdefault(row[column], []).append(row)
        common = []
        if shares(stage):
            common = list(self._objects(f"FROM ({select}) WHERE {sessions.name(column)} IS NULL", bound))
            existing_rows.pop(None, None)
            select = f"FROM ({select}) WHERE {sessions.name(column)} IS NOT NULL"

        def groups() -> Iterator[tuple[list[Any], list[Any]]]:
            rows = self._objects(f"FROM ({select}) ORDER BY {sessions.name(column)}", bound)
            for group, members in groupby(rows, key=itemgetter(column)):
                yield list(members), existing_rows.pop(group, [])
            yield from (([], only) for only in existing_rows.values())

        return few_rows.of_values(self.opened.schema(), made(stage, groups(), common))

    def _facts(self, contract: Contract, touched: list[Any] | None) -> dict[str, int]:
        """Return how many rows break what: the table's facts, the grain, and the contract's rules."""
        inputs = self._names
        for table, chain in self._chains().items() if touched is not None else ():
            name = name_of(table)  # facts are about touched groups, without the rows that these lead to
            inputs[name] = self._within(chain, inputs[name], touched or [], f"_checked_{name}")
        facts = self.connection.sql(translated(facts_of(self.stage.table).format(**inputs, fresh=FRESH)))
        (row,) = facts.fetchall()
        found = dict(zip(facts.columns, row, strict=True))
        grain = ", ".join(map(sessions.name, contract.grain))
        repeated = f"SELECT 1 FROM {FRESH} GROUP BY {grain} HAVING count(*) > 1"
        ((found[REPEATED],),) = self._fetched(f"SELECT count(*) FROM ({repeated})")
        if contract.rules:
            counts = ", ".join(f"count_if({rule.breaks()})" for rule in contract.rules)
            (broken,) = self._fetched(translated(f"SELECT {counts} FROM {FRESH}"))
            found |= zip((rule.code for rule in contract.rules), broken, strict=True)
        return {fact: count or 0 for fact, count in found.items()}

    @property
    def _names(self) -> dict[str, str]:
        """What the tables of inputs are called here, by their names in texts."""
        return {name_of(table): f"_input_{name_of(table)}" for table in self.batch}

    def _chains(self) -> dict[str, Along]:
        return {table: group for table, group in self.refresh.groups.items() if isinstance(group, Along)}

    def _changed(self) -> str:
        """Return a query for one row per group that each changed row of an input touches, and whether it is the first.

        If the groups are found in the table itself, the table's own rows count instead of the input's.
        """
        texts = []
        for table, versions in self.batch.items():
            if (versions.start or 0) >= versions.end:
                continue
            feed = change_feed.local_changes(self.warehouse, table, versions)
            if feed is None:
                raise LeftToSpark(ONLY_DELTA)
            if feed.size() > MOST_BYTES:
                raise LeftToSpark(TOO_LARGE)
            changes, group = f"_changes_{name_of(table)}", self.refresh.groups[table]
            self._view(changes, sessions.changes(self.connection, feed))
            if versions.start is not None and table in REPLACED:
                changes = self._net(table, changes)
            texts.append(
                self._own_groups(group, changes)
                if isinstance(group, OwnRows)
                else self._groups(changes, _expression(group))
            )
        return " UNION ALL ".join(texts) or NOTHING

    def _net(self, table: str, changes: str) -> str:
        """Return the name of a view of changes without rows that were written back unchanged."""
        columns = [name for name in self._columns(changes) if name != "_change_type"]
        names = ", ".join(map(sessions.name, self.refresh.counts(table, columns)))
        sign = "CASE WHEN _change_type IN ('insert', 'update_postimage') THEN 1 ELSE -1 END"
        net = f"SELECT {names} FROM {changes} GROUP BY {names} HAVING sum({sign}) <> 0"
        return self._view(f"_net{changes}", net)

    def _groups(self, rows: str, expression: str) -> str:
        """Return a query for one row per group of each row, and whether it is the row's first group."""
        query = translated(f"SELECT {expression} AS _group FROM {rows}")
        if not self._is_list(query):
            return f"SELECT _group, true AS _is_first FROM ({query})"
        return f"SELECT unnest(_group) AS _group, generate_subscripts(_group, 1) = 1 AS _is_first FROM ({query})"

    def _own_groups(self, group: OwnRows, changes: str) -> str:
        """Return a query for the groups of own rows that meet a condition and share a value with changes."""
        named = [value for (value,) in self._fetched(f"SELECT DISTINCT {group.column} FROM {changes}")]
        if len(named) > MOST_GROUPS:
            raise LeftToSpark(MANY_GROUPS)
        values, own = f"_named{changes}", f"_own{changes}"
        self._keep(values, named)
        among = ranges_of([group.column], group.column, named, None) or None
        self._stored(own, self.stage.table, self.opened, among)
        met = translated(f"SELECT *, {group.condition} AS _met FROM {own}")
        shared = _is_touched(sessions.name(group.column), values, None in named)
        return f"SELECT {sessions.name(self.refresh.column)} AS _group, true AS _is_first FROM ({met}) WHERE _met AND {shared}"

    def _take(self, table: str, touched: list[Any] | None) -> None:
        """Make a table of an input's rows in the touched groups (None: all), under its name in the SELECT.

        Of a large input make a view: its columns are many, and each use reads only those that it needs.
        """
        group, called = self.refresh.groups[table], f"_all_{name_of(table)}"
        opened = self.warehouse.local_table(table, self.batch[table].end)
        if touched is None or isinstance(group, OwnRows):
            size = self._stored(called, table, opened)
        else:
            among = touched
            if isinstance(group, Along):
                among = self._reached(table, touched, group.group, group.following, group.times)
            columns = [column.name for column in opened.schema().fields]
            ranges = ranges_among(columns, group, among, self.refresh.span)
            size = self._stored(called, table, opened, ranges or None)
            called = self._within(group, called, among, f"_in_{name_of(table)}")
        kind = "TABLE" if size <= MOST_KEPT else "VIEW"
        self.connection.execute(f"CREATE TEMP {kind} {self._names[name_of(table)]} AS FROM {called}")

    def _within(self, group: str | EachOf | Along, rows: str, among: list[Any], called: str) -> str:
        """Make a view of rows in some groups; return its name."""
        self._keep(f"_groups{called}", among)
        has_null = None in among and not isinstance(group, EachOf)  # null is none of several groups

        def is_met(name: str, is_list: bool) -> str:
            return (_has_touched if is_list else _is_touched)(name, f"_groups{called}", has_null)

        return self._met(group, rows, called, is_met)

    def _in_part(self, parts: int) -> dict[str, str]:
        """Make views of the inputs' rows in a part of the groups, which the variable PART names; return their names.

        Inputs with chains or ``own rows`` are whole in each part.
        """
        names = self._names
        for table, group in self.refresh.groups.items():
            if isinstance(group, str | EachOf):
                rows = names[name_of(table)]
                names[name_of(table)] = self._met(group, rows, f"_part{rows}", partial(self._is_in_part, parts))
        return names

    def _is_in_part(self, parts: int, group: str, is_list: bool = False) -> str:
        """Return a condition: a group, or one of a list of them, is in the part that the variable PART names.

        Equal groups are in one part, whatever type an input has for them.
        """
        if is_list:
            return f"len(list_filter({group}, lambda one: {self._is_in_part(parts, 'one')})) > 0"
        kind = dict(self._types())[self.refresh.column]
        return f"hash(CAST({group} AS {kind})) % {parts} = getvariable('{PART}')"

    def _types(self) -> list[tuple[str, str]]:
        """Return the table's columns with DuckDB's types."""
        return sessions.types(self.opened.schema().to_json())

    def _met(self, group: str | EachOf | Along, rows: str, called: str, is_met: Callable[[str, bool], str]) -> str:
        """Make a view of the rows with a group that meets a condition; return its name.

        ``is_met`` returns the condition for the name of a column that holds a group, or a list of groups. Each of
        several groups is looked at by itself, which takes a tenth of the time that lists of them take.
        """
        each = group if isinstance(group, EachOf) else EachOf((_expression(group),))
        groups = {f"_group_{place}": one for place, one in enumerate(each.groups)}
        named = ", ".join(f"{one} AS {name}" for name, one in groups.items())
        query = translated(f"SELECT *, {each.condition or 'true'} AS _meets, {named} FROM {rows}")
        is_list = self._is_list(f"SELECT _group_0 FROM ({query})")
        condition = " OR ".join(is_met(name, is_list) for name in groups)
        kept = f"SELECT * EXCLUDE (_meets, {', '.join(groups)})"
        return self._view(called, f"{kept} FROM ({query}) WHERE _meets AND ({condition})")

    def _reached(self, table: str, groups: list[Any], place: str, leads_to: str, times: int) -> list[Any]:
        """Return groups and those that an input's rows lead to from them; see `summarise._reached`."""
        opened = self.warehouse.local_table(table, self.batch[table].end)
        columns = [field.name for field in opened.schema().fields]
        reached, last = set(groups), list(groups)
        for _ in range(times):
            self._keep(STEP, last)
            self._stored(CHAIN, table, opened, ranges_of(columns, place, last, None) or None)
            query = translated(f"SELECT {place} AS _place, {leads_to} AS _group FROM {CHAIN}")
            is_there = _is_touched("_place", STEP, None in last)
            led = self._fetched(f"SELECT DISTINCT _group FROM ({query}) WHERE _group IS NOT NULL AND {is_there}")
            last = [group for (group,) in led if group not in reached]
            reached.update(last)
            if len(reached) > MOST_GROUPS:
                raise LeftToSpark(MANY_GROUPS)
            if not last:
                break
        return list(reached)

    def _stored(self, called: str, table: str, opened: DeltaTable, among: Sequence[Range] | None = None) -> int:
        """Make a view of a table's rows in the files that may hold rows in ranges (None: all); return their size."""
        files = self.warehouse.files_of(table, opened)
        if files is None:
            raise LeftToSpark(ONLY_DELTA)
        paths = files.paths(among)
        size = files.size(paths)
        if size > MOST_BYTES:
            raise LeftToSpark(TOO_LARGE)
        self._view(called, sessions.rows(self.connection, files, paths))
        return size

    def _view(self, called: str, query: str) -> str:
        """Make a view that ends with the connection; return its name."""
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW {called} AS {query}")
        return called

    def _keep(self, name: str, groups: Iterable[Any]) -> None:
        """Make a table of groups, without null."""
        import pyarrow as arrow

        values = [_naive(group) for group in groups if group is not None]
        self.connection.register(f"_given{name}", arrow.table({"_group": values}))
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS FROM _given{name}")
        self.connection.unregister(f"_given{name}")

    def _columns(self, rows: str) -> list[str]:
        return list(self.connection.sql(f"FROM {rows}").columns)

    def _is_list(self, query: str) -> bool:
        return str(self.connection.sql(query).types[0]).endswith("[]")

    def _fetched(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query; a time has a zone, as in Spark's refresh."""
        answered = self.connection.sql(query)
        timed = [str(kind) == "TIMESTAMP" for kind in answered.types]
        if not any(timed):
            return answered.fetchall()
        micros = (
            f"epoch_us({sessions.name(one)})" if is_time else sessions.name(one)
            for one, is_time in zip(answered.columns, timed, strict=True)
        )
        rows = self.connection.sql(f"SELECT {', '.join(micros)} FROM ({query})").fetchall()
        return [
            tuple(
                EPOCH + timedelta(microseconds=value) if is_time and value is not None else value
                for value, is_time in zip(row, timed, strict=True)
            )
            for row in rows
        ]

    def _objects(self, query: str, bound: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the rows of a query by names of columns, times as microseconds since 1970."""
        import pyarrow as arrow

        batches = self.connection.sql(query, params=dict(bound)).to_arrow_reader(ROWS_OF_A_BATCH)
        kinds = [
            one.with_type(arrow.int64() if arrow.types.is_timestamp(one.type) else _whole(one.type))
            for one in batches.schema
        ]
        for batch in batches:
            yield from batch.cast(arrow.schema(kinds)).to_pylist()


def _expression(group: str | EachOf | Along) -> str:
    return group if isinstance(group, str) else group.expression


def _is_touched(column: str, groups: str, has_null: bool) -> str:
    """Return a condition: a column has one of the groups of a table, or is null if null is one."""
    condition = f"{column} IN (SELECT _group FROM {groups})"
    return f"({condition} OR {column} IS NULL)" if has_null else condition


def _has_touched(column: str, groups: str, has_null: bool) -> str:
    """Return the same for a column of lists, which must contain one of the groups."""
    condition = f"list_has_any({column}, (SELECT list(_group) FROM {groups}))"
    return f"({condition} OR len(list_filter({column}, lambda one: one IS NULL)) > 0)" if has_null else condition


def _whole(kind: DataType) -> DataType:
    """Return a type of Arrow with whole numbers instead of decimals without a fraction, which are DuckDB's sums."""
    import pyarrow as arrow

    if arrow.types.is_struct(kind):
        return arrow.struct([kind.field(place).with_type(_whole(kind.field(place).type)) for place in range(len(kind))])
    if arrow.types.is_list(kind):
        return arrow.list_(kind.value_field.with_type(_whole(kind.value_type)))
    return arrow.int64() if arrow.types.is_decimal(kind) and not kind.scale else kind


def _naive(group: Any) -> Any:
    """Return a time as DuckDB has it: in UTC, without a zone."""
    return group.astimezone(UTC).replace(tzinfo=None) if isinstance(group, datetime) else group
