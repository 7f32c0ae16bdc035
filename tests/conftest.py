"""One Spark session for the whole test run, an empty warehouse to copy, and directories for each test."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from pipelines.engines.choose import SPARK, Choice
from pipelines.run import contracts
from pipelines.settings import Settings, load
from pipelines.warehouse.tables import Warehouse
from tests.testing import commands, delivery_feed, engines, examples, topology_feed
from tests.testing import copies_of_logs as cases_of_copies
from tests.testing.builders import warehouse_of
from tests.testing.shared import Made, once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.scheduler import LoadFileScheduling


hypothesis.settings.register_profile("untimed", deadline=None)  # a busy machine must not fail a test
hypothesis.settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    examples.configure(is_thorough=config.option.markexpr != "not thorough")
    commands.keep()


def pytest_collection_finish() -> None:
    """Let no later collection of garbage look at modules and tests again; it takes seconds."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep the hash of what the equality of engines depends on if all tests passed, also the thorough ones about it."""
    asked = session.config.option
    is_part = asked.keyword or asked.file_or_dir or asked.maxfail or asked.collectonly
    is_whole = not (is_part or hasattr(session.config, "workerinput"))
    is_thorough = asked.markexpr == "thorough or not thorough" or not engines.THOROUGH
    if exitstatus == 0 and is_whole and is_thorough:
        engines.PROVEN.write_text(f"{engines.digest()}\n", encoding="utf-8")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Give all files of tests/e2e to one worker.

    They share one broker and one process for commands. While they wait for these, Spark of the other worker works.
    """
    from xdist.scheduler import LoadFileScheduling

    class OneWorkerForE2E(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "tests/e2e" if nodeid.startswith("tests/e2e/") else super()._split_scope(nodeid)

    return OneWorkerForE2E(config, log) if config.option.dist == "loadfile" else None


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from pipelines.jvm.session import spark_session

    # Its work is small, as in a short-lived session, but it lives long enough to profit from the JVM's full compiler.
    # Tests of plans read all columns in them.
    long_lived = {
        "spark.master": "local[2]",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4",
        "spark.sql.debug.maxToStringFields": "25",
    }
    with spark_session(load(spark=long_lived), short_lived=True) as session:
        yield session


@pytest.fixture(scope="session")
def empty_warehouse(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty warehouse with all its tables, created once, for tests to copy."""

    def make(directory: Path) -> Path:
        warehouse = directory / "warehouse"
        spark = request.getfixturevalue("spark")  # a worker that only copies the tables needs no session
        Warehouse(load(warehouse=str(warehouse)), spark).ensure_all(contracts.contracts())
        return warehouse

    return once(tmp_path_factory, "empty", make)


def made_once(name: str, fill: Callable[[SparkSession, Settings], Made], **values: Any) -> Any:
    """Return a fixture of what ``fill`` makes of an empty warehouse, once for all workers; tests only read it."""

    @pytest.fixture(scope="session", name=name)
    def made(request: pytest.FixtureRequest, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
        def make(directory: Path) -> Made:
            return fill(request.getfixturevalue("spark"), warehouse_of(empty_warehouse, directory, **values))

        return once(tmp_path_factory, name, make)

    return made


POLICIES = {"cleanup_policy": delivery_feed.POLICIES}
captured_requests = made_once("captured_requests", topology_feed.of_captures)
mixed_requests = made_once("mixed_requests", topology_feed.of_scenarios)
captured_deliveries = made_once("captured_deliveries", delivery_feed.of_captures, segments=POLICIES)
mixed_deliveries = made_once("mixed_deliveries", delivery_feed.of_parts, segments=POLICIES)
injected_losses = made_once("injected_losses", delivery_feed.of_damage, segments=POLICIES)
copies_of_logs = made_once("copies_of_logs", cases_of_copies.of_copies, tolerance=1.0)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load(warehouse=str(tmp_path / "warehouse"), landing=str(tmp_path / "landing"))


@pytest.fixture(autouse=True)
def no_defects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test in which DuckDB cannot read SQL of Afterlog: a run would leave it to Spark."""
    from pipelines.engines import choose

    left_to_spark = choose.left_to_spark

    def checked(what: str, left: choose.UnsupportedByDuckDB) -> choose.Choice:
        if left.is_defect:
            raise AssertionError(f"DuckDB cannot read the SQL for {what}: {left.__cause__}") from left
        return left_to_spark(what, left)

    monkeypatch.setattr(choose, "left_to_spark", checked)


@pytest.fixture
def both_engines(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let Spark repeat each refresh that DuckDB makes, and compare them."""
    from pipelines.steps import summarise
    from tests.testing.engines import all_of, differences

    by, found, made_by_duckdb = summarise.refreshed_by, [], []

    @contextmanager
    def compared(chosen: Any, warehouse: Warehouse, stage: Any, batch: Any) -> Iterator[summarise.Refreshed | None]:
        with by(chosen, warehouse, stage, batch) as made:
            if chosen.is_duckdb:
                made_by_duckdb.append(stage.table)
                made = made and replace(made, rows=all_of(made.rows))
                with by(Choice(SPARK, "a test compares"), warehouse, stage, batch) as expected:
                    found.extend(differences(made, expected))
            yield made

    monkeypatch.setattr(summarise, "refreshed_by", compared)
    yield
    assert found == []
    assert made_by_duckdb


@pytest.fixture
def by_spark_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Spark make every refresh."""
    from pipelines.engines import choose

    monkeypatch.setattr(choose, "suits_duckdb", lambda table: False)
