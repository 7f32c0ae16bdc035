"""Delta logs that cannot be read alone: a damaged checkpoint, and coordinated or catalog-managed commits."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.commands import doctor
from pipelines.commands.doctor import warehouse
from pipelines.errors import EnvironmentLacking, UsageError, readable
from pipelines.settings import Settings
from pipelines.stores import locations
from pipelines.warehouse import delta_log, jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing.builders import warehouse_of

TABLE = "gold.dlq_summary"


def fault_of(table: Path) -> delta_log.Fault | None:
    """Return what is wrong with the log of a table's directory."""
    return delta_log.fault(locations.of(str(table.parent)), table.name)


def count_of(spark: SparkSession, settings: Settings) -> int:
    return Warehouse(settings, spark).read(TABLE).count()


@pytest.fixture(scope="module")
def made(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A warehouse with a table of seven versions that has checkpoints at versions 2 and 4."""
    settings = warehouse_of(empty_warehouse, tmp_path_factory.mktemp("made"))
    place = Warehouse(settings).location(TABLE)
    jvm: Any = spark.sparkContext._jvm
    for version in range(1, 7):
        rows = spark.range(1).selectExpr("'c' AS cluster", "'t' AS dlq_topic", f"{version}L AS record_count")
        rows.coalesce(1).write.format("delta").mode("append").save(place)
        if version in (2, 4):
            jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, place).checkpoint()
    return settings


@pytest.fixture
def copied(made: Settings, tmp_path: Path) -> Settings:
    return warehouse_of(Path(made.warehouse), tmp_path)


def told_or_counted(read: Callable[[], int]) -> int | Exception:
    try:
        return read()
    except Exception as error:
        return error


def log_of(settings: Settings) -> Path:
    return Path(Warehouse(settings).location(TABLE)) / "_delta_log"


def checkpoint(log: Path, version: int = 4) -> Path:
    (found,) = log.glob(f"{version:020}.checkpoint*.parquet")
    return found


def cut_off(log: Path) -> None:
    content = checkpoint(log).read_bytes()
    checkpoint(log).write_bytes(content[: len(content) // 2])


def cut_off_without_checksums(log: Path) -> None:
    cut_off(log)
    for name in os.listdir(log):
        if name.endswith(".crc"):
            (log / name).unlink()


def overwrite(log: Path) -> None:
    checkpoint(log).write_bytes(os.urandom(3000))


def empty(log: Path) -> None:
    checkpoint(log).write_bytes(b"")


def flip(log: Path) -> None:
    content = bytearray(checkpoint(log).read_bytes())
    content[200:260] = bytes(60)
    checkpoint(log).write_bytes(bytes(content))


def flip_without_checksums(log: Path) -> None:
    flip(log)
    for name in os.listdir(log):
        if name.endswith(".crc"):
            (log / name).unlink()


def remove(log: Path) -> None:
    checkpoint(log).unlink()


def point_beyond(log: Path) -> None:
    (log / "_last_checkpoint").write_text('{"version": 99, "size": 3}')


def no_json(log: Path) -> None:
    (log / "_last_checkpoint").write_text('{"version":')


def other_json(log: Path) -> None:
    (log / "_last_checkpoint").write_text("[1]")


DAMAGES = [
    *(cut_off, cut_off_without_checksums, overwrite, empty, flip, flip_without_checksums),
    *(remove, point_beyond, no_json, other_json),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_the_doctor_knows_a_damaged_checkpoint_and_its_way_back_works(
    spark: SparkSession, copied: Settings, damage: Callable[[Path], None]
) -> None:
    log = log_of(copied)
    damage(log)
    for read in (
        lambda: count_of(spark, copied),
        lambda: len(jvmless.rows(Warehouse(copied), TABLE, {"cluster": "c"})),
    ):
        found = told_or_counted(read)
        if isinstance(found, Exception):  # some readers work around the damage
            told = readable(found)
            assert isinstance(told, EnvironmentLacking), found
            assert "`afterlog doctor`" in str(told)
            assert (told.exit_code, str(told).count("\n")) == (3, 0)
        else:
            assert found == 6
    checks = warehouse.check_tables(Warehouse(copied))
    (check,) = [check for check in checks if check.name == TABLE and check.state == "error"]
    assert str(log) in (check.remedy or "") + check.finding
    away = re.match(r"Move (.+) out of (\S+): readers then fall back to .*JSON commits \d to 6", check.remedy or "")
    assert away, check.remedy
    for name in away[1].split(" and "):
        (Path(away[2]) / name).rename(log.parent.parent / name)
    elsewhere = copied.model_copy(update={"warehouse": f"{copied.warehouse} fixed"})  # Spark caches logs by path
    shutil.copytree(copied.warehouse, elsewhere.warehouse)
    assert count_of(spark, elsewhere) == 6
    assert len(jvmless.rows(Warehouse(elsewhere), TABLE, {"cluster": "c"})) == 6
    assert fault_of(log.parent) is None


def test_without_its_commits_there_is_no_way_back_to_them(copied: Settings) -> None:
    log = log_of(copied)
    cut_off(log)
    checkpoint(log, 2).unlink()
    (log / f"{1:020}.json").unlink()
    fault = fault_of(log.parent)
    assert fault is not None
    assert "1 of the JSON commits 0 to 6 are gone, the first of them 1" in fault.remedy
    assert "Move " not in fault.remedy


def test_earlier_checkpoint_that_is_sound_is_fallen_back_to(copied: Settings) -> None:
    log = log_of(copied)
    cut_off(log)
    (log / f"{1:020}.json").unlink()
    fault = fault_of(log.parent)
    assert fault is not None
    assert "fall back to the checkpoint of version 2 and the JSON commits 3 to 6" in fault.remedy


def test_logs_without_a_fault_have_none(made: Settings, empty_warehouse: Path) -> None:
    for table in empty_warehouse.glob("*/*"):
        assert fault_of(table) is None
    assert fault_of(log_of(made).parent) is None
    assert fault_of(log_of(made).parent / "not there") is None


def commit(log: Path, *actions: dict[str, Any]) -> None:
    info = {"timestamp": 1, "inCommitTimestamp": 1_900_000_000_000, "operation": "x", "operationParameters": {}}
    lines = [{"commitInfo": info}, *actions]
    (log / f"{7:020}.json").write_text("".join(f"{json.dumps(action)}\n" for action in lines))


def metadata(log: Path, **properties: str) -> dict[str, Any]:
    for text in (log / f"{0:020}.json").read_text().splitlines():
        if found := json.loads(text).get("metaData"):
            return {"metaData": found | {"configuration": found["configuration"] | properties}}
    raise AssertionError


def by_property(log: Path) -> None:
    commit(log, metadata(log, **{"delta.coordinatedCommits.commitCoordinator-preview": "dynamodb"}))


def protocol(readers: list[str], writers: list[str]) -> dict[str, Any]:
    features = {"readerFeatures": readers, "writerFeatures": ["changeDataFeed", "appendOnly", "invariants", *writers]}
    return {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}


def by_feature(log: Path) -> None:
    properties = {"delta.enableInCommitTimestamps": "true"}
    writers = ["coordinatedCommits-preview", "inCommitTimestamp", "vacuumProtocolCheck"]
    commit(log, protocol(["vacuumProtocolCheck"], writers), metadata(log, **properties))


def by_catalog(log: Path) -> None:
    both = ["catalogManaged", "vacuumProtocolCheck"]
    properties = {"delta.enableInCommitTimestamps": "true"}
    commit(log, protocol(both, [*both, "inCommitTimestamp"]), metadata(log, **properties))


def by_staged_commits(log: Path) -> None:
    (log / "_staged_commits").mkdir()
    (log / "_staged_commits" / f"{7:020}.uuid.json").write_text("{}\n")


@pytest.mark.parametrize("coordinate", [by_property, by_feature, by_catalog, by_staged_commits])
def test_tables_whose_commits_are_coordinated_are_refused(
    spark: SparkSession, copied: Settings, coordinate: Callable[[Path], None]
) -> None:
    coordinate(log_of(copied))
    with pytest.raises(UsageError, match=f"commits of {TABLE} are not decided by its Delta log alone") as local:
        jvmless.rows(Warehouse(copied), TABLE, {"cluster": "c"})
    assert "\n" not in str(local.value)
    if coordinate is not by_staged_commits:
        with pytest.raises(UsageError):
            Warehouse(copied, spark).state(TABLE)
    with pytest.raises(UsageError):
        Warehouse(copied, spark).register([TABLE])
    found = [check for check in doctor.diagnose(copied) if "are not decided by its Delta log alone" in check.finding]
    assert [check.state for check in found] == ["error"]
