"""AWS's Glue, which Athena, EMR and Redshift read, by AWS's own client.

Athena and Trino know a Delta table by its properties and read the log; other tools show the columns that Glue has. See
https://docs.aws.amazon.com/athena/latest/ug/delta-lake-tables.html.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from expectations.text import visible
from pipelines.catalogs.base import ITSELF, Entry, differing
from pipelines.catalogs.described import Described, on_stores, refuse_other_stores
from pipelines.catalogs.statements import Names
from pipelines.errors import AfterlogError, EnvironmentLacking
from pipelines.settings import s3
from pipelines.text import cut

Answer = TypeVar("Answer")

PROPERTIES = {
    "EXTERNAL": "TRUE",
    "table_type": "DELTA",
    "classification": "delta",
    "spark.sql.sources.provider": "delta",
}
_MOST_COMMENT, _MOST_DESCRIPTION = 255, 2048  # characters that Glue takes
KEPT = ("Owner", "Retention", "PartitionKeys", "TableType", "Description", "StorageDescriptor", "Parameters")
# What a reader without Delta would need to open files; Spark and Athena write the same for a Delta table.
_FORMATS = {
    "InputFormat": "org.apache.hadoop.mapred.SequenceFileInputFormat",
    "OutputFormat": "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat",
}
_SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"


@dataclass(frozen=True)
class Glue:
    """The catalog of an account; region, keys and endpoint are those of AWS's usual variables and files."""

    root: str
    names: Names

    words = "Glue"
    replaces = False

    def __post_init__(self) -> None:
        """Raise UsageError if what reads Glue's tables does not read such a warehouse."""
        refuse_other_stores(self.root, ("s3",), "Glue")

    def location(self, root: str, table: str) -> str:
        """Return a table's location with the scheme that AWS uses."""
        return on_stores(root, table)

    def entry(self, table: Described) -> Entry | None:
        """Return what Glue has under the table's name."""
        known = self._found(table)
        if known is None:
            return None
        properties, storage = known.get("Parameters", {}), known.get("StorageDescriptor", {})
        is_delta = "delta" in (
            properties.get("table_type", "").lower(),
            properties.get("spark.sql.sources.provider", "").lower(),
        )
        if not is_delta or known.get("TableType") != "EXTERNAL_TABLE":
            return Entry(None)
        wanted = self._input(table)
        there = {ITSELF: known.get("Description", "")} | {
            column["Name"]: (column.get("Type"), column.get("Comment", "")) for column in storage.get("Columns", ())
        }
        here = {ITSELF: wanted["Description"]} | {
            column["Name"]: (column["Type"], column["Comment"]) for column in wanted["StorageDescriptor"]["Columns"]
        }
        is_told = all(properties.get(name) == value for name, value in PROPERTIES.items())
        differs = [differing(here, there), "" if is_told else "its properties"]
        return Entry(storage.get("Location", ""), ", ".join(filter(None, differs)))

    def prepare(self, layers: list[str]) -> None:
        """Create the databases that are missing."""
        for name in map(self.names.schema, layers):
            if self._asked(lambda name=name: self._client.get_database(Name=name)) is None:  # type: ignore[misc]
                given = {"Name": name, "Description": "Tables of Afterlog."}
                self._asked(lambda given=given: self._client.create_database(DatabaseInput=given))  # type: ignore[misc]

    def create(self, table: Described) -> None:
        """Make a table known."""
        database, given = self.names.schema(table.layer), self._input(table)
        self._asked(lambda: self._client.create_table(DatabaseName=database, TableInput=given))

    def change(self, table: Described) -> None:
        """Bring an entry up to date; what others keep in it stays."""
        known = self._found(table) or {}
        given = {name: known[name] for name in KEPT if name in known} | self._input(table)
        given["Parameters"] = known.get("Parameters", {}) | PROPERTIES
        database = self.names.schema(table.layer)
        self._asked(lambda: self._client.update_table(DatabaseName=database, TableInput=given))

    def _found(self, table: Described) -> dict[str, Any] | None:
        database = self.names.schema(table.layer)
        answer = self._asked(lambda: self._client.get_table(DatabaseName=database, Name=table.short))
        return None if answer is None else answer["Table"]

    def _input(self, table: Described) -> dict[str, Any]:
        location = self.location(self.root, table.name)
        columns = [
            {"Name": column.name, "Type": column.sql_type, "Comment": cut(column.comment, _MOST_COMMENT)}
            for column in table.fields
        ]
        serde = {"SerializationLibrary": _SERDE, "Parameters": {"serialization.format": "1", "path": location}}
        return {
            "Name": table.short,
            "Description": cut(table.comment, _MOST_DESCRIPTION),
            "TableType": "EXTERNAL_TABLE",
            "Parameters": dict(PROPERTIES),
            "StorageDescriptor": {"Columns": columns, "Location": location, "SerdeInfo": serde, **_FORMATS},
        }

    @cached_property
    def _client(self) -> Any:
        from botocore.config import Config  # type: ignore[import-untyped]
        from botocore.session import get_session  # type: ignore[import-untyped]

        own = Config(connect_timeout=15, read_timeout=30, retries={"mode": "standard", "max_attempts": 3})
        try:
            return get_session().create_client("glue", region_name=s3.connection().region, config=own)
        except AfterlogError:  # of the variables
            raise
        except Exception as error:
            raise _unreachable(error) from None

    def _asked(self, ask: Callable[[], Answer]) -> Answer | None:
        """Return the answer to a request; None if Glue has no such database or table."""
        from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

        try:
            return ask()
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code == "EntityNotFoundException":
                return None
            raise EnvironmentLacking(f"Glue refuses ({visible(code[:100])}): look at what the role may do.") from None
        except BotoCoreError as error:
            raise _unreachable(error) from None


def _unreachable(error: Exception) -> EnvironmentLacking:
    return EnvironmentLacking(
        f"Glue cannot be asked ({type(error).__name__}): look at AWS_REGION and the keys in AWS's variables or files."
    )
