"""The Hive metastore that a Spark session is connected to.

It keeps the location of a Delta table; Spark and Trino read columns and comments from the Delta log.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from expectations import literals
from pipelines.catalogs.base import Entry
from pipelines.catalogs.described import Described, on_hadoop
from pipelines.catalogs.statements import Names, spark_names, spark_table
from pipelines.errors import EnvironmentLacking, UsageError
from pipelines.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DIRECTORY = "spark.sql.warehouse.dir"


def settings_of(settings: Settings) -> Settings:
    """Return the settings of a session whose catalog is the metastore that they name."""
    return settings.model_copy(update={"spark": {**settings.spark, "spark.sql.catalogImplementation": "hive"}})


@dataclass(frozen=True)
class Hive:
    """The metastore of a session."""

    spark: SparkSession
    settings: Settings
    names: Names

    words = "The Hive metastore"
    replaces = False

    def __post_init__(self) -> None:
        """Raise UsageError if the session has no metastore but an empty one of its own, which ends with it."""
        configured = self.spark._jsparkSession.sessionState().newHadoopConf()
        if not (configured.get("hive.metastore.uris") or configured.get("javax.jdo.option.ConnectionURL")):
            raise UsageError(
                "No Hive metastore is configured: name spark.hadoop.hive.metastore.uris under [spark] in the settings, "
                "or the directory of a hive-site.xml in HADOOP_CONF_DIR."
            )

    @cached_property
    def _catalog(self) -> Any:
        return self.spark._jsparkSession.sharedState().externalCatalog()

    def location(self, root: str, table: str) -> str:
        """Return a table's location as Hadoop writes it."""
        return on_hadoop(root, table)

    def entry(self, table: Described) -> Entry | None:
        """Return what the metastore has under the table's name."""
        schema = self.names.schema(table.layer)
        try:
            if not self._catalog.databaseExists(schema) or not self._catalog.tableExists(schema, table.short):
                return None
            known = self._catalog.getTable(schema, table.short)
        except Exception as error:
            raise EnvironmentLacking(
                f"The Hive metastore does not answer ({type(error).__name__}): look at "
                "spark.hadoop.hive.metastore.uris or spark.hadoop.javax.jdo.option.ConnectionURL under [spark] in the "
                "settings."
            ) from None
        provider, location = known.provider(), known.storage().locationUri()
        is_external = str(known.tableType().name()) == "EXTERNAL"
        if not (is_external and location.isDefined() and provider.isDefined() and provider.get().lower() == "delta"):
            return Entry(None)
        jvm: Any = self.spark.sparkContext._jvm
        return Entry(str(jvm.org.apache.hadoop.fs.Path(location.get()).toString()))

    def prepare(self, layers: list[str]) -> None:
        """Create the schemas that are missing, for which the settings must say where their own tables would be.

        By default that would be a scratch directory of this session.
        """
        for layer in layers:
            schema = self.names.schema(layer)
            if self._catalog.databaseExists(schema):
                continue
            if _DIRECTORY not in self.settings.spark:
                raise UsageError(
                    f"The metastore has no schema {schema}: create it, or say with {_DIRECTORY} under [spark] in the "
                    "settings where tables of its schemas are, unless they name another place."
                )
            self.spark.sql(f"CREATE SCHEMA {literals.spark_name(schema)}")

    def create(self, table: Described) -> None:
        """Make a table known."""
        self.spark.sql(f"CREATE {spark_table(self.settings.warehouse, self.names, table)}")

    def change(self, table: Described) -> None:
        """Let an entry point to this warehouse: its name is dropped and created again, no file is touched.

        Delta's own statement for it would open the table at the old location, which may be gone.
        """
        self.spark.sql(f"DROP TABLE {spark_names(self.names, table)}")
        self.create(table)
