"""A run of a long-lived session generates no code that an earlier run generated with other literals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.catalog import stages
from pipelines.run import runner
from pipelines.settings import Settings
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import kip_1191, land, line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPILES = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "CODEGEN_ONLY",
    "spark.sql.codegen.fallback": "false",
}


OF_SPARK = [stage for stage in stages("dlq") if stage.table in ("bronze.dlq_records", "silver.dlq_records")]
"""The stages that Spark works for; DuckDB makes the others."""


def test_a_small_run_compiles_nothing_that_an_earlier_one_compiled(spark: SparkSession, settings: Settings) -> None:
    session = spark.newSession()
    for name, value in COMPILES.items():
        session.conf.set(name, value)
    assert session._jvm is not None
    compilations = session._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    compiled = []
    for number in range(3):
        letters = [
            line(10 * number + part, headers=kip_1191(offset=10 * number + part), timestamp=1_795_228_800_000 + part)
            for part in range(10)
        ]
        land(settings, {f"{number}.jsonl": letters})
        before = compilations.getCount()
        runner.run(Warehouse(settings, session), OF_SPARK)
        compiled.append(compilations.getCount() - before)
    first, _, last = compiled
    assert first > 10
    assert last == 0
