"""The tables of a warehouse -> the statements by which a tool that we do not reach gets to know them.

What each tool takes is in its documentation:

- Spark: https://docs.delta.io/latest/delta-batch.html, Databricks:
  https://docs.databricks.com/aws/en/tables/external. Both read columns and comments from the Delta log.
- Trino: https://trino.io/docs/current/connector/delta-lake.html#register-table. It reads the log, too.
- DuckDB: https://duckdb.org/docs/stable/core_extensions/delta.html. A view has no comments of its own, so they follow.
- Snowflake: https://docs.snowflake.com/en/sql-reference/sql/create-iceberg-table-delta and
  https://docs.snowflake.com/en/user-guide/tables-iceberg-configure-catalog-integration-object-storage.
- Fabric: https://learn.microsoft.com/en-us/rest/api/fabric/core/onelake-shortcuts/creates-shortcuts-in-bulk, a
  preview. What is below Tables/<schema> of a lakehouse with schemas is a table, which Fabric finds by its Delta log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from expectations import literals
from pipelines.catalogs.described import Described, on_hadoop, on_stores, refuse_other_stores, root_on_stores
from pipelines.errors import UsageError
from pipelines.settings import s3

TOOLS = ("spark", "trino", "databricks", "duckdb", "snowflake", "fabric")
CATALOGS = {"spark": None, "trino": "delta", "databricks": "afterlog", "duckdb": None, "snowflake": "afterlog"}
"""The catalog, or Snowflake's database, of tools that have them; None: the one in which the statements run."""
CLOUDS = ("s3", "gs", "abfss")
_SECRETS = {"s3": "s3, PROVIDER credential_chain", "gs": "gcs", "abfss": "azure, PROVIDER credential_chain"}
_FABRIC = "https://api.fabric.microsoft.com/v1/workspaces/WORKSPACE/items/LAKEHOUSE/shortcuts/bulkCreate"


@dataclass(frozen=True)
class Names:
    """How the tables are called: their catalog (None: the tool's own) and what comes before the name of a layer."""

    catalog: str | None = None
    prefix: str = ""

    def schema(self, layer: str) -> str:
        """Return the schema of a layer."""
        return f"{self.prefix}{layer}"


def statements(tool: str, root: str, tables: Sequence[Described], names: Names, connection: str | None = None) -> str:
    """Return the statements for a tool, or Fabric's request; ``connection`` is the id of Fabric's connection.

    Raises UsageError: the tool does not read such a warehouse, or Fabric has no connection.
    """
    if tool == "fabric":
        return _fabric(root, tables, names, connection)
    catalog = names.catalog or CATALOGS[tool]
    lines = {"spark": _spark, "databricks": _databricks, "trino": _trino, "duckdb": _duckdb, "snowflake": _snowflake}
    return "".join(f"{line}\n" for line in lines[tool](root, tables, Names(catalog, names.prefix)))


def after(tool: str, root: str) -> str | None:
    """Return what a person has to know beside the statements; None if nothing."""
    match tool:
        case "fabric":
            return (
                f"POST this to {_FABRIC}?shortcutConflictPolicy=CreateOrOverwrite, with the ids of a workspace and of "
                "a lakehouse that has schemas."
            )
        case "snowflake":
            return (
                f"Snowflake needs an external volume {literals.name(_VOLUME)} at {_base_url(root)}: CREATE EXTERNAL "
                "VOLUME, once, with the role that reads it."
            )
        case "trino":
            return "Trino needs delta.register-table-procedure.enabled=true in the properties of the catalog."
        case "duckdb" if (scheme := root_on_stores(root).partition("://")[0]) in _SECRETS:
            return f"DuckDB needs a secret for the store, such as CREATE SECRET (TYPE {_SECRETS[scheme]})."
        case "databricks":
            return "Databricks needs the catalog, and an external location that holds the warehouse."
    return None


def _layers(tables: Iterable[Described]) -> list[str]:
    return list(dict.fromkeys(table.layer for table in tables))


def spark_names(names: Names, table: Described) -> str:
    """Return a table's name for Spark."""
    return _joined(literals.spark_name, names.catalog, names.schema(table.layer), table.short)


def _joined(quoted: Callable[[str], str], *parts: str | None) -> str:
    """Return a name of several parts, each quoted, without those that are None."""
    return ".".join(quoted(part) for part in parts if part is not None)


def spark_table(root: str, names: Names, table: Described) -> str:
    """Return the statement that makes a table known to Spark, which reads the rest from the Delta log."""
    return f"TABLE {spark_names(names, table)} USING DELTA LOCATION {literals.spark(on_hadoop(root, table.name))}"


def _spark(root: str, tables: Sequence[Described], names: Names) -> Iterator[str]:
    for layer in _layers(tables):
        yield f"CREATE SCHEMA IF NOT EXISTS {_joined(literals.spark_name, names.catalog, names.schema(layer))};"
    for table in tables:
        yield f"CREATE {spark_table(root, names, table).replace('TABLE', 'TABLE IF NOT EXISTS', 1)};"


def _databricks(root: str, tables: Sequence[Described], names: Names) -> Iterator[str]:
    refuse_other_stores(root, CLOUDS, "Databricks")
    return _spark(root_on_stores(root), tables, names)


def _trino(root: str, tables: Sequence[Described], names: Names) -> Iterator[str]:
    refuse_other_stores(root, (*CLOUDS, "hdfs"), "Trino")
    assert names.catalog is not None
    catalog = literals.name(names.catalog)
    for layer in _layers(tables):
        yield f"CREATE SCHEMA IF NOT EXISTS {catalog}.{literals.name(names.schema(layer))};"
    for table in tables:
        given = {
            "schema_name": names.schema(table.layer),
            "table_name": table.short,
            "table_location": on_stores(root, table.name),
        }
        arguments = ", ".join(f"{name} => {literals.text(value)}" for name, value in given.items())
        yield f"CALL {catalog}.system.register_table({arguments});"


def _duckdb(root: str, tables: Sequence[Described], names: Names) -> Iterator[str]:
    refuse_other_stores(root, ("file", *CLOUDS), "DuckDB")
    yield "INSTALL delta;"
    yield "LOAD delta;"
    for layer in _layers(tables):
        yield f"CREATE SCHEMA IF NOT EXISTS {_joined(literals.name, names.catalog, names.schema(layer))};"
    for table in tables:
        view = _joined(literals.name, names.catalog, names.schema(table.layer), table.short)
        # A view keeps the columns that it had, so a table with a new column needs it to be replaced.
        location = literals.text(on_stores(root, table.name))
        yield f"CREATE OR REPLACE VIEW {view} AS SELECT * FROM delta_scan({location});"
        if table.comment:
            yield f"COMMENT ON VIEW {view} IS {literals.text(table.comment)};"
        for field in table.fields:
            if field.comment:
                yield f"COMMENT ON COLUMN {view}.{literals.name(field.name)} IS {literals.text(field.comment)};"


_VOLUME = "AFTERLOG"
_INTEGRATION = "AFTERLOG_DELTA"


def _snowflake(root: str, tables: Sequence[Described], names: Names) -> Iterator[str]:
    """Yield Snowflake's statements; names are in capitals, as Snowflake reads those that nobody quotes."""
    refuse_other_stores(root, CLOUDS, "Snowflake")
    assert names.catalog is not None

    def quoted(*parts: str) -> str:
        return ".".join(literals.name(part.upper()) for part in parts)

    yield (
        f"CREATE CATALOG INTEGRATION IF NOT EXISTS {_INTEGRATION} CATALOG_SOURCE = OBJECT_STORE TABLE_FORMAT = DELTA "
        "ENABLED = TRUE;"
    )
    for layer in _layers(tables):
        yield f"CREATE SCHEMA IF NOT EXISTS {quoted(names.catalog, names.schema(layer))};"
    for table in tables:
        text = literals.text(table.comment.replace("\\", "\\\\"))
        comment = f" COMMENT = {text}" if table.comment else ""
        yield (
            f"CREATE ICEBERG TABLE IF NOT EXISTS {quoted(names.catalog, names.schema(table.layer), table.short)} "
            f"EXTERNAL_VOLUME = '{_VOLUME}' CATALOG = '{_INTEGRATION}' "
            f"BASE_LOCATION = '{table.layer}/{table.short}' AUTO_REFRESH = TRUE{comment};"
        )


def _base_url(root: str) -> str:
    """Return a warehouse as Snowflake's external volumes name it."""
    scheme, _, rest = root_on_stores(root).partition("://")
    if scheme == "abfss":
        container, _, host_and_path = rest.partition("@")
        host, _, path = host_and_path.partition("/")
        return f"azure://{host.replace('.dfs.', '.blob.')}/{container}/{path}".rstrip("/") + "/"
    return f"{'gcs' if scheme == 'gs' else scheme}://{rest}/"


def _fabric(root: str, tables: Sequence[Described], names: Names, connection: str | None) -> str:
    refuse_other_stores(root, CLOUDS, "Fabric")
    if connection is None:
        raise UsageError("Fabric reads a warehouse through one of its connections: give its id with --connection.")
    scheme, _, rest = root_on_stores(root).partition("://")
    bucket, _, path = rest.partition("/")
    match scheme:
        case "s3":
            region = s3.connection().region
            kind, host = "amazonS3", f"{bucket}.s3.{region}.amazonaws.com" if region else f"{bucket}.s3.amazonaws.com"
        case "gs":
            kind, host = "googleCloudStorage", f"{bucket}.storage.googleapis.com"
        case _:
            container, _, host = bucket.partition("@")
            kind, path = "adlsGen2", f"{container}/{path}"
    requests = [
        {
            "path": f"Tables/{names.schema(table.layer)}",
            "name": table.short,
            "target": {
                kind: {
                    "location": f"https://{host}",
                    "subpath": f"/{'/'.join(filter(None, (path, table.layer, table.short)))}".replace("//", "/"),
                    "connectionId": connection,
                }
            },
        }
        for table in tables
    ]
    return json.dumps({"createShortcutRequests": requests}, indent=2, ensure_ascii=False) + "\n"
