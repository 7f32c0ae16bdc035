"""Other tools read the tables: by name from a Hive metastore, and as docs/ask.md shows it, each in its own process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import write_deltalake

from expectations.contract import contract_of
from expectations.replays import TABLES as REPLAYS
from pipelines.catalog import CATALOG
from pipelines.cli import main
from pipelines.jvm import java
from pipelines.settings import ROOT, load
from pipelines.warehouse.tables import Warehouse

GOLD = tuple(sorted({*(stage.table for stage in CATALOG if stage.layer == "gold"), *REPLAYS}))
ASK = (ROOT / "docs" / "ask.md").read_text(encoding="utf-8")
SHOWN = re.findall(
    r"^```(python|sh|sql)\n(.+?)^```$", ASK[ASK.index("## From other tools") :], re.DOTALL | re.MULTILINE
)
PYTHON = {block.split("\n", 1)[0].split()[1].partition(".")[0]: block for kind, block in SHOWN if kind == "python"}
HOSTILE = 'it\'s a "lake" `of` #1é'
VALUES: dict[str, tuple[Any, ...]] = {
    "string": ("a", None, "\u202eb'\""),
    "integer": (1, None, -(2**31)),
    "long": (1, None, 2**63 - 1),
    "double": (0.5, None, -1e300),
    "boolean": (True, None, False),
    "binary": (b"\x00\xff", None, b""),
    "date": (date(2026, 11, 21), None, date(1970, 1, 1)),
    "timestamp": (datetime(2026, 11, 21, 2, 41, 6, 123456, UTC), None, datetime(1970, 1, 1, tzinfo=UTC)),
}


def value(kind: Any, row: int) -> Any:
    """A value of a type of a Delta log for one of three rows; the second row is null."""
    if row == 1:
        return None
    if isinstance(kind, str):
        return VALUES[kind][row]
    if kind["type"] == "array":
        return [value(kind["elementType"], 0), value(kind["elementType"], row)]
    return {values["name"]: value(values["type"], row) for values in kind["fields"]}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a warehouse, at a path that has to be quoted, whose gold tables have three rows of all types."""
    place = tmp_path_factory.mktemp("tools") / HOSTILE
    settings = load(warehouse=str(place / "warehouse"))
    tables = Warehouse(settings)
    tables.ensure_all(map(contract_of, (*GOLD, "silver.dlq_records")))
    for table in GOLD:
        opened = tables.opened_table(table)
        types = {row["name"]: row["type"] for row in json.loads(opened.schema().to_json())["fields"]}
        rows = [{name: value(kind, row) for name, kind in types.items()} for row in range(3)]
        write_deltalake(opened, pa.Table.from_pylist(rows, schema=pa.schema(opened.schema())), mode="append")
    return place


def counts(filled: Path, table: str) -> dict[str, int]:
    """How many values of each column of a table are not null, from its files."""
    rows = Warehouse(load(warehouse=str(filled / "warehouse"))).opened_table(table).to_pyarrow_table()
    return {name: rows.num_rows - rows[name].null_count for name in rows.column_names}


def ended(*command: str | Path, cwd: Path, **variables: str) -> str:
    """Run a process without Afterlog's code or settings; return its standard output."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("AFTERLOG_", "PYTHONPATH"))}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=kept | variables, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, (done.stdout[-2_000:], done.stderr[-4_000:])
    return done.stdout


def reader(tool: str, counted: str) -> str:
    """A program that does for every gold table what the document shows for one, and prints what it counts."""
    block = PYTHON[tool]
    assert block.count("gold/dlq_incidents") == 1
    return f"""
import json
block, names, counts = {block!r}, {[table.partition(".")[2] for table in GOLD]!r}, {{}}
for name in names:
    exec(block.replace("gold/dlq_incidents", "gold/" + name))
    counts["gold." + name] = {counted}
print("COUNTS " + json.dumps(counts))
"""


def told(output: str) -> dict[str, dict[str, int]]:
    (line,) = [line for line in output.splitlines() if line.startswith("COUNTS ")]
    return dict(json.loads(line.removeprefix("COUNTS ")))


def expected(filled: Path) -> dict[str, dict[str, int]]:
    found = {table: counts(filled, table) for table in GOLD}
    assert all(max(columns.values()) == 2 for columns in found.values())
    return found


def test_the_document_shows_each_tool() -> None:
    assert {*PYTHON} == {"delta", "deltalake", "polars"}


def test_a_polars_process_reads_every_gold_table(filled: Path, tmp_path: Path) -> None:
    shutil.copytree(filled / "warehouse", tmp_path / "warehouse")  # polars takes no path that a URI would escape
    program = reader("polars", "{one.name: one.len() - one.null_count() for one in rows.get_columns()}")
    assert told(ended(sys.executable, "-I", "-c", program, cwd=tmp_path)) == expected(filled)


def test_a_duckdb_process_reads_every_gold_table(filled: Path) -> None:
    program = reader(
        "deltalake", "{name: rows.aggregate(f'count(\"{name}\")').fetchall()[0][0] for name in rows.columns}"
    )
    assert told(ended(sys.executable, "-I", "-c", program, cwd=filled)) == expected(filled)


@pytest.fixture(scope="module")
def with_extension(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the newest DuckDB for which a package has the extension ``delta``."""
    environment = tmp_path_factory.mktemp("duckdb") / "environment"
    uv, python = Path(sys.executable).with_name("uv"), environment / "bin" / "python"
    ended(uv, "venv", "--quiet", "--python", sys.executable, environment, cwd=ROOT)
    packages = ("duckdb==1.5.5", "duckdb-extension-delta==1.5.5")
    ended(uv, "pip", "install", "--quiet", "--python", python, *packages, cwd=ROOT)
    return python


def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: object) -> str:
    monkeypatch.setattr(sys, "argv", ["afterlog", "register", *map(str, words)])
    with pytest.raises(SystemExit) as done:
        main()
    assert not done.value.code
    return capsys.readouterr().out


def test_the_statements_for_duckdb_make_views_with_comments(
    filled: Path,
    with_extension: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = printed(capsys, monkeypatch, "--print", "duckdb", "--layer", "gold", "--warehouse", filled / "warehouse")
    program = """
import json, pathlib, sys
import duckdb, duckdb_extension_delta
extension = next(pathlib.Path(duckdb_extension_delta.__file__).parent.glob("extensions/*/delta.duckdb_extension"))
connection = duckdb.connect("lake.duckdb", config={"extension_directory": "extensions"})
connection.execute(f"INSTALL '{extension}'")  # what INSTALL delta would download
script, states = sys.stdin.read(), []
for _ in range(2):
    connection.execute(script)
    asked = "SELECT {} FROM duckdb_{}() WHERE NOT internal"
    comments = dict(connection.execute(asked.format("view_name, comment", "views")).fetchall())
    columns = connection.execute(asked.format("table_name, column_name, comment", "columns")).fetchall()
    counts = {}
    for name in comments:
        rows = connection.sql(f'SELECT * FROM gold."{name}"')
        counts["gold." + name] = {one: rows.aggregate(f'count("{one}")').fetchall()[0][0] for one in rows.columns}
    states.append([counts, comments, columns])
assert states[0] == states[1]
print(json.dumps(states[0]))
"""
    done = subprocess.run(
        [with_extension, "-I", "-c", program], cwd=tmp_path, input=script, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    found, comments, columns = json.loads(done.stdout)
    assert found == expected(filled)
    assert comments == {table.partition(".")[2]: contract_of(table).description for table in GOLD}
    assert {(table, name): comment for table, name, comment in columns} == {
        (table.partition(".")[2], column.name): column.comment for table in GOLD for column in contract_of(table).stored
    }


COMMANDS = """
import contextlib, io, json, os, sys
from pipelines.catalogs import hive
from pipelines.cli import main
from pipelines.jvm.session import spark_session
from pipelines.settings import load

def dumped():
    with spark_session(hive.settings_of(load()), short_lived=True) as spark:
        catalog = spark._jsparkSession.sharedState().externalCatalog()
        names = [f"{row.namespace}.{row.tableName}" for schema in spark.sql("SHOW SCHEMAS").collect()
                 for row in spark.sql(f"SHOW TABLES IN `{schema.namespace}`").collect()]
        return sorted(catalog.getTable(*name.split(".")).toString() for name in names)

def stranger():
    with spark_session(hive.settings_of(load()), short_lived=True) as spark:
        spark.sql("CREATE SCHEMA their_gold")
        spark.sql("CREATE TABLE their_gold.dlq_counts (n int) USING parquet")

for line in sys.stdin:
    words = json.loads(line)
    if words == ["dump"]:
        print(json.dumps(dumped()), flush=True)
        continue
    if words == ["stranger"]:
        stranger()
        print("null", flush=True)
        continue
    sys.argv, out, err, code = ["afterlog", *words], io.StringIO(), io.StringIO(), 0
    variables = dict(os.environ)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    os.environ["AFTERLOG_SETTINGS"] = variables["AFTERLOG_SETTINGS"]  # --config names others
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""
Ask = Callable[..., Any]


@contextlib.contextmanager
def registering(filled: Path, metastore: Path) -> Iterator[Ask]:
    """Yield what runs `afterlog register` with a metastore of Derby, which one process at a time opens."""
    bare = f'[spark]\n"spark.hadoop.javax.jdo.option.ConnectionURL" = "jdbc:derby:{metastore};create=true"\n'
    whole = f'{bare}"spark.sql.warehouse.dir" = "{metastore.parent / "managed"}"\n'
    for name, text in (("empty", ""), ("bare", bare), ("afterlog", whole)):
        (metastore.parent / f"{name}.toml").write_text(text)
    variables = {
        "AFTERLOG_SETTINGS": str(metastore.parent / "afterlog.toml"),
        "AFTERLOG_WAREHOUSE": str(filled / "warehouse"),
    }
    with (metastore.parent / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", COMMANDS],
            cwd=ROOT,
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(*words: object) -> Any:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps([*map(str, words)]) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask
        process.stdin.close()
        assert process.wait(timeout=60) == 0


@pytest.mark.thorough
def test_a_metastore_knows_the_tables_and_any_session_reads_them_by_name(filled: Path, tmp_path: Path) -> None:
    metastore = tmp_path / "metastore"
    with registering(filled, metastore) as register:
        # A JVM keeps the properties of its earlier sessions, so what lacks some comes first.
        empty, bare = (("--config", tmp_path / f"{item}.toml", "register", "hive") for item in ("empty", "bare"))
        code, out, err = register(*empty)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert "No Hive metastore is configured" in err

        assert register("stranger") is None
        before = register("dump")
        code, out, err = register("register", "hive", "--layer", "gold", "--prefix", "their_")
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert "other tables under the names gold.dlq_counts (no Delta table at a place of its own)" in err
        assert register("dump") == before

        code, out, err = register(*bare, "--layer", "gold", "--prefix", "new_")
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert "The metastore has no schema new_gold: create it" in err
        assert register("dump") == before

        code, out, err = register("register", "hive", "--layer", "gold", "--dry-run")
        assert (code, out.splitlines()[-1], err) == (0, f"{len(GOLD)} tables would be registered.", "")
        assert register("dump") == before

        code, out, err = register("register", "hive", "--layer", "gold")
        assert (code, out.splitlines()[-1], err) == (0, f"{len(GOLD)} tables registered.", "")
        after = register("dump")
        assert len(after) == len(before) + len(GOLD)
        code, out, err = register("register", "hive", "--layer", "gold")
        assert (code, out, err) == (0, f"{len(GOLD)} tables are registered already.\n", "")
        assert register("dump") == after

        moved = tmp_path / "moved"
        shutil.copytree(filled / "warehouse", moved)
        code, _, err = register("register", "hive", "--layer", "gold", "--warehouse", moved)
        assert (code, len(err.splitlines())) == (2, 1)
        assert f"at file:{filled / 'warehouse'}/gold/" in err
        assert register("dump") == after
        options = ("register", "hive", "--layer", "gold", "--warehouse", moved, "--moved-from", filled / "warehouse")
        code, out, err = register(*options, "--format", "json")
        assert (code, err) == (0, "")
        assert {json.loads(line)["status"] for line in out.splitlines()} == {"updated"}
        assert register(*options)[1] == f"{len(GOLD)} tables are registered already.\n"
    assert read_by_spark(filled, metastore, f"{moved}/gold/dlq_incidents") == expected(filled)


def read_by_spark(filled: Path, metastore: Path, place: str) -> dict[str, dict[str, int]]:
    """What a session of a user counts in every gold table, by its path and by its name in the metastore.

    The session is that of the document, with the jars that set-up fetched in place of a download, and with Hive.
    """
    counted = "rows.selectExpr(*(f'count(`{one}`) AS `{one}`' for one in rows.columns)).first().asDict()"
    named = f"""
for name in names:
    rows = spark.table("gold." + name)
    assert {counted} == counts["gold." + name], name
    told = {{row.col_name: row.comment for row in spark.sql("DESCRIBE gold." + name).collect()}}
    assert told == comments["gold." + name], (name, told)
detail = {{row.col_name: row.data_type for row in spark.sql("DESCRIBE EXTENDED gold.dlq_incidents").collect()}}
assert detail["Comment"] == {contract_of("gold.dlq_incidents").description!r}, detail
assert detail["Location"] == {f"file:{place}"!r}, detail
"""
    comments = {table: {column.name: column.comment for column in contract_of(table).stored} for table in GOLD}
    options = {
        "spark.driver.extraClassPath": f"{ROOT}/.jars/spark/*",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:{metastore}",
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.session.timeZone": "UTC",
    }
    prelude = f"""
import delta
def configured(builder):
    for name, value in {options!r}.items():
        builder = builder.config(name, value)
    return builder.enableHiveSupport()
delta.configure_spark_with_delta_pip = configured
comments = {comments!r}
"""
    program = prelude + reader("delta", counted).replace("print(", f"{named}\nprint(")
    return told(ended(sys.executable, "-c", program, cwd=filled, JAVA_HOME=str(java.find().home)))
