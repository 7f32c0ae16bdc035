"""`afterlog erase` beside retention, maintenance, backups and gates: what they keep is forgotten, too."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines import moments
from pipelines.backup import backup
from pipelines.commands.erase import erase
from pipelines.commands.maintain import maintain
from pipelines.commands.selection import Selector
from pipelines.errors import UsageError
from pipelines.run.readmit import readmit, stage_with_quarantine
from pipelines.settings import Settings, load
from pipelines.settings.retention import Retention
from pipelines.stores import lock
from pipelines.warehouse.tables import Warehouse
from tests.testing import s3
from tests.testing.builders import BROKEN, kip_1191, land, line, rows, run, run_chain, warehouse_of
from tests.testing.canaries import MARKER, with_marker
from tests.testing.deliveries import acknowledgement
from tests.testing.upkeep import maintained

WHO = MARKER.encode()
KEY = Selector("key", WHO)
STREET = "Hillside 5"  # what only the person's records say: no value that is searched
BRONZE, SILVER, QUARANTINE, HELD = (f"{layer}.dlq_records" for layer in ("bronze", "silver", "quarantine", "held"))
ACKNOWLEDGED, HELD_ACKNOWLEDGED = "silver.acknowledgements", "held.acknowledgements"


def of_person(offset: int, topic: str = "dlq.orders", at: int | str | None = None, is_broken: bool = False) -> str:
    headers = BROKEN if is_broken else kip_1191(offset=offset if at is None else at)
    own = ("street", STREET.encode())
    return line(offset, topic=topic, headers=[*headers, own], key=WHO, value=json.dumps({"at": STREET}).encode())


def gone_by_age(settings: Settings, days: int, **ages: str) -> dict[str, int]:
    """Maintain as if so many days had gone by; return how many rows went of each table."""
    short = settings.model_copy(update={"retention": Retention.model_validate(ages)})
    at = moments.now() + timedelta(days=days)
    return {done.table: done.rows for done in maintain(short, 7, False, lambda sentence: None, at) if done.rows}


def left(settings: Settings) -> list[str]:
    """The files in which something of the person is."""
    place = [Path(settings.warehouse)]
    return [*with_marker(place), *with_marker(place, STREET)]


def test_records_whose_bronze_went_by_its_age_are_forgotten(spark: SparkSession, settings: Settings) -> None:
    lines = [of_person(30), of_person(31), of_person(40, at="x"), of_person(41, at="y")]
    held = [of_person(offset, "dlq.held", is_broken=True) for offset in range(12)]
    land(settings, {"a.jsonl": [*(line(number) for number in range(30)), *lines], "held.jsonl": held})
    run(spark, settings, BRONZE, SILVER)
    before = {table: len(rows(spark, settings, table)) for table in (SILVER, QUARANTINE, HELD)}
    assert before == {SILVER: 32, QUARANTINE: 2, HELD: 12}
    assert gone_by_age(settings, 20, bronze="10 days") == {BRONZE: 44}  # the two that were refused can be readmitted

    done = erase(settings, KEY)

    assert (done.is_done, done.records) == (True, 2 + 2 + 12), done.left
    assert left(settings) == []
    assert {table: len(rows(spark, settings, table)) for table in before} == before
    assert len([row for row in rows(spark, settings, SILVER) if row["value"] == b"v"]) == 30

    with lock.writer(settings, "test"):
        assert readmit(Warehouse(settings, spark), stage_with_quarantine(SILVER)).found == 2
    accepting = settings.model_copy(update={"tolerance": 1.0})
    land(settings, {"again.jsonl": [*lines, *held]})
    done_by_run = run(spark, accepting, BRONZE, SILVER)[SILVER]
    assert (done_by_run.read, done_by_run.quarantined) == (12, 12)  # what was held, and none of what landed again
    assert left(settings) == []


def test_no_log_checkpoint_or_later_backup_has_it(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    says = kip_1191(offset=7, message=f"customer {MARKER} is unknown")
    land(settings, {"a.jsonl": [*(line(number) for number in range(5)), line(7, key=WHO, headers=says)]})
    run_chain(spark, settings)
    maintained(settings, [SILVER], 1)
    files = with_marker([Path(settings.warehouse)])
    assert {name.rpartition(".")[0].rpartition(".")[2] for name in files if "_delta_log" in name} >= {"checkpoint"}
    assert any("_delta_log" in name and name.endswith(".json") for name in files)  # minima and maxima

    assert erase(settings, KEY).is_done

    assert with_marker([Path(settings.warehouse)]) == []
    maintained(settings, [BRONZE, SILVER], 2)
    backup(settings, str(tmp_path / "backups"), None, False, print)
    assert with_marker([Path(settings.warehouse), tmp_path / "backups"]) == []


def test_a_run_between_a_killed_erasure_and_the_next_keeps_nothing(spark: SparkSession, settings: Settings) -> None:
    def die(step: str) -> None:
        if step == f"{BRONZE} is committed":
            raise KeyboardInterrupt

    land(settings, {"a.jsonl": [*(line(number) for number in range(5)), of_person(7)]})
    run_chain(spark, settings)
    with pytest.raises(KeyboardInterrupt):
        erase(settings, KEY, die)
    land(settings, {"b.jsonl": [line(20)]})
    run_chain(spark, settings, BRONZE)
    with pytest.raises(UsageError, match=f"{SILVER} has still to read"):
        erase(settings, KEY)
    run_chain(spark, settings)

    done = erase(settings, KEY)

    assert done.is_done, done.left
    assert left(settings) == []
    assert sorted(row["dlq_offset"] for row in rows(spark, settings, SILVER)) == [*range(5), 7, 20]
    assert {ran.status for ran in run_chain(spark, settings).values()} == {"idle"}


def told(offset: int, street: str, topic: str = "orders", **more: Any) -> str:
    header = {"key": "street", "value": base64.b64encode(street.encode()).decode()}
    return acknowledgement(topic, offset=offset, seconds=offset, headers=[header], **more)


@pytest.fixture(scope="module")
def of_two_clusters(empty_warehouse: Path, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse whose clusters have the same coordinates; the person's records are in the first one."""
    place = tmp_path_factory.mktemp("two-clusters")
    first = warehouse_of(empty_warehouse, place)
    for settings, name in ((first, "first"), (first.model_copy(update={"cluster": "west"}), "west")):
        its = settings.model_copy(update={"landing": str(place / name)})
        is_first = name == "first"
        letters = [of_person(number) if is_first else line(number, key=b"another") for number in (5, 6)]
        of_held = kip_1191(topic="held", offset=3)
        letters.append(line(9, headers=of_held, key=WHO if is_first else b"another"))
        land(its, {"a.jsonl": letters})
        orders = [told(number, f"{name} street {number}") for number in range(4, 9)]
        held = [told(number, f"{name} lane {number}", "held", timestamp=10**18) for number in range(12)]
        land(its, {"acks.jsonl": [*orders, *held]}, feed="acknowledgements")
        run(spark, its, BRONZE, SILVER, "bronze.acknowledgements", ACKNOWLEDGED, feed=None)
    return place / "warehouse"


def streets(settings: Settings, table: str) -> dict[tuple[str, int], bytes]:
    """What the headers of acknowledgements say, by cluster and offset."""
    scanned = Warehouse(settings).opened_table(table).scan()
    acknowledgements = [row for batch in scanned for row in batch.to_struct_array().to_pylist()]
    return {(row["cluster"], row["offset"]): row["headers"][0]["value"] for row in acknowledgements}


@pytest.fixture(params=["directory", "S3"])
def copied(
    request: pytest.FixtureRequest, of_two_clusters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Settings]:
    if request.param == "directory":
        shutil.copytree(of_two_clusters, tmp_path / "warehouse")
        yield load(warehouse=str(tmp_path / "warehouse"))
        return
    with s3.server("lakehouse") as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        s3.upload(of_two_clusters, s3.store("lakehouse", variables), "warehouse")
        yield load(warehouse="s3://lakehouse/warehouse")


def test_acknowledgements_of_another_cluster_stay(copied: Settings) -> None:
    before = {table: streets(copied, table) for table in (ACKNOWLEDGED, HELD_ACKNOWLEDGED)}
    assert [len(found) for found in before.values()] == [10, 24]

    done = erase(copied, KEY)

    assert (done.is_done, done.records, done.acknowledgements) == (True, 3, 3), done.left
    after = {table: streets(copied, table) for table in before}
    gone = {(table, at) for table, found in before.items() for at in found if after[table][at] != found[at]}
    assert gone == {
        *((ACKNOWLEDGED, ("default", offset)) for offset in (5, 6)),
        (HELD_ACKNOWLEDGED, ("default", 3)),
    }
    store = Warehouse(copied).store
    contents = [store.read(name) or b"" for name in store.walk() if not name.endswith(".parquet")]
    assert not [content for content in contents if b"first lane 3" in content or WHO in content]
