"""Rows for the inputs of a summarised table, and what each engine selects from them."""

from __future__ import annotations

import hashlib
import random
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as arrow  # type: ignore[import-untyped]
import pyarrow.parquet as parquet  # type: ignore[import-untyped]
import pytest
from pyspark.sql.types import ArrayType, DataType, StructType

from expectations.contract import Contract, contract_of
from pipelines.catalog import stages_of_type
from pipelines.engines.choose import DUCKDB, Choice
from pipelines.engines.duckdb import sessions
from pipelines.engines.duckdb.engine import DuckEngine
from pipelines.engines.duckdb.translate import translated
from pipelines.settings import ROOT, load
from pipelines.stage import Split, Summarise
from pipelines.steps.held import contract_of_held
from pipelines.steps.refresh import name_of, refresh_of, select_of
from pipelines.steps.summarise import FRESH, Refreshed, Refreshing
from pipelines.warehouse.progress import Batch
from pipelines.warehouse.tables import quarantine_contract
from tests.testing.shapes import UNIQUE, shaped

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame, SparkSession

Test = TypeVar("Test", bound=Callable[..., object])
DECIDES = ("sql", "pipelines/engines", "pipelines/incidents/signature.py", "expectations/rules.py")
UNREAD_PARTS = ("Purpose", "Usage", "Grain", "Feeds", "Kept", "Speaks of what is kept")
"""Parts of a SELECT's head that decide nothing of its rows."""
_PART = re.compile(r"-- ([A-Z][a-z ]*):")
PROVEN = ROOT / "tests" / "data" / "engines.sha256"
PARAMETERS = {"silent_after_seconds": 300}
MOMENT = datetime(2026, 11, 21, 2, 41, 17, tzinfo=UTC)
TEXTS = ("", "a", "b", "B", "é", "orders", "it's\n", "\U0001f4a3", "\x00", "10", "9")
NUMBERS = (0, 1, 2, 3, 5, 999, 1000, 1001, 2**31 - 1)
LARGE = (-1, 2**53 + 1, 2**63 - 2, 2**63 - 1)
SECONDS = (0, 0, 1, 59, 60, 1800, 3599, 3600, 86_399, 90_000, -1)

Known = Mapping[str, Callable[[random.Random], Any]]
"""For names of columns, and of structs' fields with a dot before them: what draws a value, or a function of the row so
far that does, where a table says more of it than the column's type."""


def digest() -> str:
    """Return a hash of what the equality of engines depends on: SQL, engines and the versions of packages."""
    paths = [path for place in DECIDES for path in (ROOT / place, *sorted((ROOT / place).rglob("*")))]
    found = hashlib.sha256()
    for file in [path for path in paths if path.suffix in (".sql", ".py")]:
        text = file.read_text(encoding="utf-8")
        content = "\n".join(_deciding(text)) if file.suffix == ".sql" else text
        found.update(f"{file.relative_to(ROOT).as_posix()}\0{content}".encode())
    locked = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    versions = sorted(f"{package['name']} {package['version']}" for package in locked if package["name"] != "afterlog")
    found.update("\0".join(versions).encode())
    return found.hexdigest()


def _deciding(text: str) -> Iterator[str]:
    """Yield the lines of a SELECT without those of its head that no engine reads, such as its purpose."""
    part = ""
    for row in text.splitlines():
        if row.startswith("--"):
            named = _PART.match(row)
            part = named[1] if named else part
            if part in UNREAD_PARTS:
                continue
        yield row


def is_proven() -> bool:
    """Tell whether the SQL, engines and packages are those with which all thorough tests passed last, if they ever did.

    ``make test-all`` keeps their hash, and so does ``make test`` after a change, as it then runs these tests, too.
    """
    return PROVEN.is_file() and PROVEN.read_text(encoding="utf-8").strip() == digest()


THOROUGH: tuple[pytest.MarkDecorator, ...] = (pytest.mark.thorough,) if is_proven() else ()
"""Marks of tests that need not run again while nothing changed that the equality of engines depends on."""


def thorough(test: Test) -> Test:
    """Mark such a test."""
    for mark in THOROUGH:
        test = mark(test)
    return test


def compared(test: Test) -> Test:
    """Let Spark repeat each refresh of a test that DuckDB makes, and compare them, where that is not proven."""
    return test if THOROUGH else pytest.mark.usefixtures("both_engines")(test)


def contract_of_input(table: str) -> Contract:
    """Return the contract of a table, or of the quarantine of one."""
    layer, _, name = table.partition(".")
    if layer == "held":
        (split,) = (item for item in stages_of_type(Split) if item.table == f"silver.{name}")
        held = contract_of_held(split)
        assert held is not None
        return held
    return quarantine_contract(contract_of(f"silver.{name}")) if layer == "quarantine" else contract_of(table)


def type_of(contract: Contract) -> StructType:
    made = StructType()
    for column in contract.stored:
        made.add(column.name, DataType.fromDDL(column.type))
    return made


def drawn(contract: Contract, count: int, chance: random.Random, known: Known, hostile: float = 0.05) -> arrow.Table:
    """Return rows of a contract's columns, at most ``count``, as rows of one grain are drawn once.

    Columns of one name in several tables often have equal values. A column that must not be null is not, and one with
    known values mostly has one of them.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(type_of(contract))
    kinds = {field.name: field.dataType for field in type_of(contract)}
    rules = {column.name: column.rules for column in contract.stored}

    def one_of(name: str, row: Mapping[str, Any]) -> Any:
        if name in known:
            found = known[name](chance)
            return found(row) if callable(found) else found
        is_needed = any(rule.kind == "not_null" for rule in rules[name])
        words = [rule.arguments for rule in rules[name] if rule.kind == "one_of" and not rule.subject]
        if words and chance.random() < 0.9:
            return chance.choice(words[0])
        return value(kinds[name], chance, hostile, 0 if is_needed else 0.15, known)

    rows = []
    for _ in range(count):
        row: dict[str, Any] = {}
        for name in kinds:
            row[name] = one_of(name, row)
        rows.append(row)
    if not known:
        rows = shaped(contract.table, rows, chance, hostile)
    for columns in (contract.grain, UNIQUE.get(contract.table, contract.grain)):
        rows = list({repr([row[name] for name in columns]): row for row in rows}.values())
    return arrow.Table.from_pylist(rows, schema)


def value(
    kind: DataType, chance: random.Random, hostile: float, nulls: float = 0.15, known: Known = MappingProxyType({})
) -> Any:
    """Return a value of a type of Spark, or null."""
    if chance.random() < nulls:
        return None
    if isinstance(kind, ArrayType):
        return [value(kind.elementType, chance, hostile, 0.15, known) for _ in range(chance.choice((0, 1, 1, 2, 3)))]
    if isinstance(kind, StructType):
        return {
            named.name: known[f".{named.name}"](chance)
            if f".{named.name}" in known
            else value(named.dataType, chance, hostile, 0.15, known)
            for named in kind
        }
    name = kind.simpleString()
    if name == "boolean":
        return chance.random() < 0.5
    if name == "string":
        return chance.choice(TEXTS[:3] if chance.random() > hostile else TEXTS)
    if name == "binary":
        return chance.choice(TEXTS).encode() + bytes([chance.choice((0, 255))])
    if name == "timestamp":
        micros = chance.choice((0, 0, 1, 999_999))
        return MOMENT + timedelta(seconds=chance.choice(SECONDS), microseconds=micros)
    if name == "double":
        return chance.choice((0.0, 0.5, 1.0, 0.285, 1 / 3, 0.1 + 0.2, 99.95))
    if name == "bigint" and chance.random() < hostile:
        return chance.choice(LARGE)
    return chance.choice(NUMBERS[:5] if chance.random() > hostile else NUMBERS)


def by_spark(spark: SparkSession, stage: Summarise, inputs: Mapping[str, Path]) -> arrow.Table:
    """Return what the table's SELECT gives in Spark."""
    frames = {
        name_of(table): spark.read.schema(type_of(contract_of_input(table))).parquet(str(file))
        for table, file in inputs.items()
    }
    return selected(spark, select_of(stage.table), frames, PARAMETERS).toArrow()


def selected(
    spark: SparkSession, text: str, frames: Mapping[str, DataFrame], parameters: Mapping[str, Any]
) -> DataFrame:
    """Return what a query selects; its text names DataFrames in braces."""
    return spark.sql(text, args=dict(parameters), **frames)


def by_duckdb(stage: Summarise, inputs: Mapping[str, Path]) -> arrow.Table:
    """Return the same from DuckDB; raises what DuckDB raises."""
    with _viewed(inputs) as connection:
        text = translated(select_of(stage.table).format(**{name_of(table): name_of(table) for table in inputs}))
        bound = {name: given for name, given in PARAMETERS.items() if f"${name}" in text}
        return connection.sql(text, params=bound).to_arrow_table()


def in_parts(stage: Summarise, inputs: Mapping[str, Path], most: int | None) -> arrow.Table:
    """Return what a refresh of all groups makes in parts of so many rows (None: in one); raises what DuckDB raises."""
    schema = SimpleNamespace(to_json=type_of(contract_of(stage.table)).json)
    there: Any = SimpleNamespace(schema=lambda: schema)
    warehouse: Any = SimpleNamespace(settings=load())
    batch = dict.fromkeys(inputs, Batch(None, 0))
    with _viewed(inputs, "_input_") as connection:
        engine = DuckEngine(warehouse, there, connection)
        refreshing = Refreshing(Choice(DUCKDB, ""), engine, warehouse, stage, refresh_of(stage), batch)
        refreshing._make(None, refreshing._starts(most))
        return connection.sql(f"FROM {FRESH}").to_arrow_table()


@contextmanager
def _viewed(inputs: Mapping[str, Path], prefix: str = "") -> Iterator[DuckDBPyConnection]:
    """Yield a connection with a view of each file, which has the name of its table in SELECTs behind a prefix."""
    with sessions.connected(str(next(iter(inputs.values())).parent)) as connection:
        for table, file in inputs.items():
            fields = type_of(contract_of_input(table)).jsonValue()["fields"]
            columns = (f'CAST("{row["name"]}" AS {sessions._type(row["type"])}) AS "{row["name"]}"' for row in fields)
            select = f"SELECT {', '.join(columns)} FROM read_parquet('{file}')"
            connection.execute(f"CREATE VIEW {prefix}{name_of(table)} AS {select}")
        yield connection


def fitted(stage: Summarise, rows: arrow.Table) -> arrow.Table:
    """Return rows in the columns of a table; raises ArrowInvalid if a value does not fit its column."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(type_of(contract_of(stage.table)))
    return rows.select(schema.names).cast(schema)


def kept(directory: Path, tables: Mapping[str, arrow.Table]) -> dict[str, Path]:
    """Keep the rows of each table in a Parquet file."""
    files = {}
    for table, rows in tables.items():
        files[table] = directory / f"{table}.parquet"
        parquet.write_table(rows, files[table])
    return files


def in_order(rows: arrow.Table, like: arrow.Schema) -> list[str]:
    """Return rows of another table's columns as texts, in an order of their own, times as microseconds.

    Raises ArrowInvalid: a value does not fit its column.
    """
    micros = [item.with_type(arrow.int64() if arrow.types.is_timestamp(item.type) else item.type) for item in like]
    return sorted(map(repr, rows.cast(like).cast(arrow.schema(micros)).to_pylist()))


def all_of(rows: arrow.Table | arrow.RecordBatchReader) -> arrow.Table:
    """Return the rows of a refresh as a table."""
    return rows if isinstance(rows, arrow.Table) else rows.read_all()


def differences(found: Refreshed | None, expected: Refreshed | None) -> Iterator[str]:
    """Yield how a refresh by DuckDB, with all rows in memory, differs from the same one by Spark."""
    if found is None or expected is None:
        if found is not expected:
            yield f"{(found or expected).stage.table}: only one engine finds news"  # type: ignore[union-attr]
        return
    table, warehouse = found.stage.table, found.warehouse
    for what, item, other in (
        ("input rows", found.read, expected.read),
        ("groups", *(made.replaces and set(made.replaces.values) for made in (found, expected))),
        ("facts", dict(found.facts), dict(expected.facts)),
        ("count", found.count, expected.count),
    ):
        if item != other:
            yield f"{table}: {what}: {item} instead of {other}"
    rows = expected.rows.toArrow()  # type: ignore[union-attr]
    if found.count != rows.num_rows:
        yield f"{table}: {found.count} rows instead of {rows.num_rows}"
    found_rows, expected_rows = in_order(found.rows, rows.schema), in_order(rows, rows.schema)
    if found.is_added:
        there = warehouse.read(table)
        there = there.where(found.replaces.predicate()) if found.replaces else there
        found_rows = sorted([*found_rows, *in_order(there.select(rows.schema.names).toArrow(), rows.schema)])
    if found_rows != expected_rows:
        both = Counter(found_rows), Counter(expected_rows)
        extra, missing = [*(both[0] - both[1])][:2], [*(both[1] - both[0])][:2]
        yield f"{table}: rows {extra} instead of {missing}"
