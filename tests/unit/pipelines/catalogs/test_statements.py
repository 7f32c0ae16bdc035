"""What is printed for tools that cannot be reached: each text is quoted, and each tool's own parser reads it."""

from __future__ import annotations

import json

import pytest
import sqlglot
from sqlglot import exp

from pipelines.catalogs import statements
from pipelines.catalogs.described import Described, Field
from pipelines.catalogs.statements import Names
from pipelines.errors import UsageError
from pipelines.settings import load

HOSTILE = 'it\'s "quoted" `so`; DROP TABLE x; -- \\'
TABLES = [
    Described(
        "gold.dlq_incidents",
        HOSTILE,
        (Field("id", "string", {}, HOSTILE), Field('a"b`c', "long", {}, "")),
    ),
    Described("silver.dlq_records", "Records.", (Field("n", "integer", {}, ""),)),
]
S3 = "s3a://lake's/w h/`x`\"y"
NAMES = Names("cat\"`'alog", "our_")


def printed(tool: str, root: str = S3, names: Names = NAMES, connection: str | None = "c-1") -> list[str]:
    text = statements.statements(tool, load(warehouse=root).warehouse, TABLES, names, connection)
    assert text.endswith("\n")
    return text.splitlines()


def texts(statement: exp.Expression | None) -> list[str]:
    assert statement is not None
    return [found.this for found in statement.find_all(exp.Literal)]


@pytest.mark.parametrize("tool", ["spark", "databricks"])
def test_spark_makes_schemas_and_external_tables(tool: str) -> None:
    root = "s3a" if tool == "spark" else "s3"
    parsed = [sqlglot.parse_one(line, dialect=tool) for line in printed(tool)]
    assert [statement.args["kind"] for statement in parsed] == ["SCHEMA", "SCHEMA", "TABLE", "TABLE"]
    assert all(statement.args["exists"] for statement in parsed)
    table = parsed[2].find(exp.Table)
    assert table is not None
    assert [part.name for part in table.parts] == ["cat\"`'alog", "our_gold", "dlq_incidents"]
    location = parsed[2].find(exp.LocationProperty)
    assert location is not None
    assert location.this.this.encode("ascii").decode("unicode_escape") == f"{root}{S3[3:]}/gold/dlq_incidents"
    assert [statement.this.name.lower() for statement in parsed[2].find_all(exp.FileFormatProperty)] == ["delta"]


def test_a_table_of_spark_is_in_its_own_catalog_unless_another_is_named() -> None:
    assert printed("spark", "/srv/w", Names())[0] == "CREATE SCHEMA IF NOT EXISTS `gold`;"


def test_trino_calls_its_procedure_for_each_table() -> None:
    schema, _, call, _ = printed("trino")
    assert schema == 'CREATE SCHEMA IF NOT EXISTS "cat""`\'alog"."our_gold";'
    assert sqlglot.parse_one(schema, dialect="trino").args["kind"] == "SCHEMA"
    assert call.startswith('CALL "cat""`\'alog".system.register_table(schema_name => ')
    arguments = sqlglot.parse_one(f"SELECT f({call.partition('(')[2][:-2]})", dialect="trino")
    assert texts(arguments) == ["our_gold", "dlq_incidents", "s3://lake's/w h/`x`\"y/gold/dlq_incidents"]
    assert printed("trino", names=Names())[0] == 'CREATE SCHEMA IF NOT EXISTS "delta"."gold";'


def test_snowflake_reads_the_log_through_an_integration() -> None:
    integration, schema, _, table, _ = printed("snowflake")
    assert "CATALOG_SOURCE = OBJECT_STORE TABLE_FORMAT = DELTA" in integration
    parsed = sqlglot.parse_one(table, dialect="snowflake")
    assert isinstance(parsed, exp.Create)
    found = parsed.find(exp.Table)
    assert found is not None
    assert [part.name for part in found.parts] == ["CAT\"`'ALOG", "OUR_GOLD", "DLQ_INCIDENTS"]
    said = texts(parsed)
    assert "gold/dlq_incidents" in said
    assert HOSTILE in said
    assert sqlglot.parse_one(schema, dialect="snowflake").args["kind"] == "SCHEMA"


@pytest.mark.parametrize(
    ("root", "url"),
    [
        ("s3://lake/w", "s3://lake/w/"),
        ("gs://lake/w", "gcs://lake/w/"),
        ("abfss://c@a.dfs.core.windows.net/w", "azure://a.blob.core.windows.net/c/w/"),
        ("abfss://c@a.dfs.core.windows.net", "azure://a.blob.core.windows.net/c/"),
    ],
)
def test_snowflake_is_told_where_its_volume_has_to_be(root: str, url: str) -> None:
    said = statements.after("snowflake", load(warehouse=root).warehouse)
    assert said is not None
    assert f" at {url}: " in said


@pytest.mark.parametrize(
    ("root", "target"),
    [
        (
            "s3://lake/w",
            {"amazonS3": {"location": "https://lake.s3.eu-west-1.amazonaws.com", "subpath": "/w/gold/dlq_incidents"}},
        ),
        (
            "gs://lake",
            {
                "googleCloudStorage": {
                    "location": "https://lake.storage.googleapis.com",
                    "subpath": "/gold/dlq_incidents",
                }
            },
        ),
        (
            "abfs://c@a.dfs.core.windows.net/w",
            {"adlsGen2": {"location": "https://a.dfs.core.windows.net", "subpath": "/c/w/gold/dlq_incidents"}},
        ),
    ],
)
def test_fabric_gets_a_shortcut_for_each_table(
    root: str, target: dict[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    first, second = json.loads("\n".join(printed("fabric", root)))["createShortcutRequests"]
    assert (first["path"], first["name"], second["path"]) == ("Tables/our_gold", "dlq_incidents", "Tables/our_silver")
    assert first["target"] == {kind: {**place, "connectionId": "c-1"} for kind, place in target.items()}


def test_fabric_needs_a_connection() -> None:
    with pytest.raises(UsageError, match="--connection"):
        printed("fabric", connection=None)


@pytest.mark.parametrize(
    ("tool", "root"),
    [
        *((tool, "/srv/w") for tool in ("trino", "databricks", "snowflake", "fabric")),
        *((tool, "hdfs://name/w") for tool in ("databricks", "duckdb", "snowflake", "fabric")),
    ],
)
def test_a_tool_that_does_not_read_the_store_is_named(tool: str, root: str) -> None:
    with pytest.raises(UsageError, match="does not read"):
        printed(tool, root)
