"""``afterlog run --follow`` as a process: it reads new files, stops on a signal, and a rerun continues."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from pipelines.catalog import stages
from pipelines.run import idleness
from pipelines.settings import Settings
from pipelines.stores import lock
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import AT, BROKEN, HOUR, land, line, run, tables
from tests.testing.following import Following, found
from tests.testing.statements import topic

BRONZE, SILVER, GOLD = "bronze.dlq_records", "silver.dlq_records", "gold.dlq_summary"

Start = Callable[..., Following]


@pytest.fixture
def start(settings: Settings, tmp_path: Path) -> Iterator[Start]:
    started: list[Following] = []

    def following(**environment: str) -> Following:
        started.append(Following(settings, tmp_path / f"log-{len(started)}", **environment))
        return started[-1]

    yield following
    for item in started:
        if item.process.poll() is None:
            item.process.kill()
            item.process.wait()


def is_at_work(settings: Settings) -> bool:
    """Tell whether a cycle is running stages: only then does the lock name its JVM."""
    return '"jvm"' in (Path(settings.warehouse) / lock.NAME).read_text()


def ended_jvm(settings: Settings) -> None:
    """Wait for the JVM of a process that has ended, as any other writer waits for it."""
    with lock.writer(settings, "test"):
        pass


def test_what_lands_is_read_once_and_an_idle_cycle_commits_nothing(settings: Settings, start: Start) -> None:
    """The feed with the fewest stages; test_live.py in e2e follows topics of dead letters."""
    made = [stage.table for stage in stages("collect")]
    lines = [topic(f"topic-{number}", number) for number in range(9)]
    following = start(feed="collect")
    following.until_idle()
    assert not psutil.Process(following.process.pid).children()  # no session starts before it is needed
    land(settings, {"a.jsonl": lines[:5]}, "cluster-settings")
    following.until_rows(made[1], 5)
    land(settings, {"b.jsonl": lines[3:]}, "cluster-settings")
    following.until_rows(made[1], 9)
    before = {table: Warehouse(settings).last_version(table) for table in (*made, "quality.stage_runs")}
    following.until_idle()
    assert before == {table: Warehouse(settings).last_version(table) for table in before}

    code, lines_told = following.stop()
    assert code == 0, following.log.read_text()
    reads = [[(row["table"], row["read"]) for row in told["tables"][:3]] for told in lines_told]
    assert reads == [
        [*zip(made[:3], (5, 5, 5), strict=True)],
        [*zip(made[:3], (6, 6, 4), strict=True)],
    ]
    health = following.health()
    assert (health["state"], health["blocked"], health["failing_since"]) == ("ended", [], None)
    ended_jvm(settings)
    assert idleness.idle(Warehouse(settings), stages("collect"))


@pytest.mark.thorough
def test_a_stop_amid_a_stage_leaves_it_where_a_rerun_goes_on(
    spark: SparkSession, settings: Settings, start: Start, tmp_path: Path, empty_warehouse: Path
) -> None:
    following = start()
    land(settings, {"first.jsonl": [line(1)]})
    following.until_rows(GOLD, 1)  # the session that the test stops is warm
    before = Warehouse(settings).last_version(BRONZE)
    land(settings, {"many.jsonl": [line(offset, timestamp=AT + HOUR * (offset % 50)) for offset in range(2, 4_000)]})
    # Silver runs as soon as bronze has committed.
    following.until(lambda _: is_at_work(settings) and Warehouse(settings).last_version(BRONZE) != before)
    time.sleep(0.2)
    code, _ = following.stop()
    said = following.log.read_text()
    assert code == 0, said
    assert "failed" not in said
    assert "Traceback" not in said

    ended_jvm(settings)
    run(spark, settings)
    assert {row["status"] for row in found(settings, "quality.stage_runs")} == {"passed"}
    undisturbed = settings.model_copy(update={"warehouse": str(tmp_path / "undisturbed")})
    shutil.copytree(empty_warehouse, undisturbed.warehouse)
    run(spark, undisturbed)
    assert tables(settings) == tables(undisturbed)


@pytest.mark.parametrize("after", [pytest.param(1.5, marks=pytest.mark.thorough), 6], ids=str)
def test_a_stop_while_it_starts(settings: Settings, start: Start, after: float) -> None:
    land(settings, {"a.jsonl": [line(1)]})
    following = start()
    following.until(bool)
    time.sleep(after)
    code, _ = following.stop(signal.SIGINT)
    assert code == 0, following.log.read_text()
    assert "Traceback" not in following.log.read_text()


@pytest.mark.thorough
def test_a_broken_gate_does_not_end_it_and_shows_at_the_end(settings: Settings, start: Start) -> None:
    following = start()
    land(settings, {"bad.jsonl": [line(offset, headers=BROKEN) for offset in range(20)]})
    health = following.until(lambda health: bool(health.get("blocked")))
    assert [row["table"] for row in health["blocked"]] == [SILVER]
    following.until_idle()
    before = Warehouse(settings).last_version("quality.stage_runs")
    following.until_idle()
    assert Warehouse(settings).last_version("quality.stage_runs") == before  # not every cycle judges it again
    land(settings, {"good.jsonl": [line(100, topic="dlq.other")]})
    following.until_rows(GOLD, 1)  # another topic does not wait
    code, _ = following.stop()
    assert code == 1
    assert following.log.read_text().count(f"{SILVER}: broken: ") == 1
    ended_jvm(settings)

    again = start(AFTERLOG_TOLERANCE="1.0")  # this tolerance accepts the held rows
    again.until_rows("quarantine.dlq_records", 20)
    code, _ = again.stop()
    assert code == 0, again.log.read_text()


@pytest.mark.thorough
def test_another_writer_makes_it_skip_cycles(settings: Settings, start: Start) -> None:
    with lock.writer(settings, "the test"):
        following = start(AFTERLOG_LOCK__WAIT_SECONDS="0.5")
        land(settings, {"a.jsonl": [line(1)]})
        following.until(lambda health: bool(health.get("last_cycle")) and health["last_cycle"]["result"] == "skipped")
        assert "the test" in following.log.read_text()
    following.until_rows(GOLD, 1)
    assert following.stop()[0] == 0


@pytest.mark.thorough
def test_a_jvm_that_is_killed_ends_it_with_a_sentence(settings: Settings, start: Start) -> None:
    following = start()
    land(settings, {"a.jsonl": [line(1)]})
    following.until_rows(GOLD, 1)
    (jvm,) = psutil.Process(following.process.pid).children()
    jvm.kill()
    land(settings, {"b.jsonl": [line(2)]})
    assert following.process.wait(60) == 3
    assert "JVM has ended" in following.log.read_text()
    assert "Traceback" not in following.log.read_text()
