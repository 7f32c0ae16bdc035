"""The Spark session of a command."""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pipelines.settings import Settings
from pipelines.stage import Land, Stage
from pipelines.stores import lock
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pipelines.steps.watch import Watch

STARTING = "Starting Spark."


@contextlib.contextmanager
def session(settings: Settings, watch: Watch, gates: bool = False, short_lived: bool = True) -> Iterator[Any]:
    """Yield a session; Great Expectations, which takes seconds to import, is imported while the JVM starts."""
    from pipelines.jvm.session import spark_session
    from pipelines.steps import migrate

    migrate.lags(Warehouse(settings))  # refuses what a later version has changed before Spark starts
    if gates:
        import pyspark.sql  # noqa: F401  # both threads need it: whole before the second one starts

        threading.Thread(target=importlib.import_module, args=("expectations.suite",), daemon=True).start()
    with spark_session(settings, short_lived) as spark:
        lock.name_jvm(settings.warehouse, spark)
        watch.asks(spark)
        try:
            yield spark
        finally:
            watch.asks(None)


def need_gates(stages: Sequence[Stage]) -> bool:
    """Tell whether a stage among these judges what it reads: all but those that land."""
    return any(not isinstance(stage, Land) for stage in stages)
