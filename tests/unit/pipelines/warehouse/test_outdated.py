"""Files that nobody reads any more go; what a stage has still to read, and the log of later versions, stays."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.settings import Settings
from pipelines.stage import Land, Summarise
from pipelines.warehouse import progress
from pipelines.warehouse.outdated import outdated
from pipelines.warehouse.progress import Batch, Progress, Reading
from pipelines.warehouse.tables import PROPERTIES, Warehouse

TABLE = "bronze.dlq_records"
READER = Summarise("silver.dlq_records", feed="dlq", inputs=(TABLE,))
LANDS = Land(TABLE, feed="dlq", directory="dlq")
LONG_AGO = time.time() - 40 * 86_400


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(Settings(warehouse=str(tmp_path)))


def change(place: str, drawn: random.Random) -> None:
    """Change a table once: add, remove, change or merge rows, or leave a file as a crashed write does."""
    what = drawn.choice(("append", "append", "delete", "update", "compact", "overwrite", "crash"))
    rows = pa.table({"number": [drawn.randrange(20) for _ in range(3)]})
    if what == "delete":
        DeltaTable(place).delete(f"number % 3 = {drawn.randrange(3)}")
    elif what == "update":
        DeltaTable(place).update({"number": "number + 100"}, predicate=f"number < {drawn.randrange(20)}")
    elif what == "compact":
        DeltaTable(place).optimize.compact()
    elif what == "crash":
        Path(place, f"part-{drawn.randrange(10**9)}.parquet").write_bytes(b"half")
    else:
        write_deltalake(place, rows, mode=what)


def age(place: str) -> None:
    for path in Path(place).rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))


def remove(warehouse: Warehouse) -> None:
    for path in outdated(warehouse, TABLE, [READER], 0).paths:
        warehouse.store.remove(f"{warehouse.table_path(TABLE)}/{path}")


def there(place: str) -> set[str]:
    return {
        path.relative_to(place).as_posix() for path in Path(place).rglob("*.parquet") if "_delta_log" not in str(path)
    }


def live(place: str, version: int | None = None) -> set[str]:
    return {str(path) for path in DeltaTable(place, version=version).get_add_actions()["path"].to_pylist()}


@pytest.mark.parametrize("seed", range(25))
def test_what_a_stage_has_still_to_read_stays_and_nothing_else(warehouse: Warehouse, seed: int) -> None:
    drawn = random.Random(seed)
    place = warehouse.location(TABLE)
    write_deltalake(place, pa.table({"number": [1, 2, 3]}), configuration=dict(PROPERTIES))
    for _ in range(drawn.randrange(4, 12)):
        change(place, drawn)
    age(place)
    last = DeltaTable(place).version()
    start = drawn.choice((None, *range(last + 1)))
    end = drawn.randrange(start or 0, last + 1)
    is_pending = drawn.random() < 0.6
    own_id = drawn.random() < 0.9
    reading = Reading(warehouse.table_id(TABLE) if own_id else "another", start)  # type: ignore[arg-type]
    pending = {TABLE: Batch(start, end)} if is_pending else {}
    progress.save(warehouse, READER.table, Progress(inputs={TABLE: reading}, pending=pending))
    needed = live(place)
    begins = start if start is not None or not is_pending else end
    if own_id:
        needed |= live(place, end) if is_pending else set()
        for version in range((last if begins is None else begins) + 1, last + 1):
            actions = warehouse.commit(TABLE, version)
            of_changes = {action["cdc"]["path"] for action in actions if "cdc" in action}
            of_rows = (action[kind] for action in actions for kind in ("add", "remove") if kind in action)
            needed |= of_changes or {file["path"] for file in of_rows if file["dataChange"]}
    before = there(place)

    remove(warehouse)

    assert there(place) == before & needed
    assert needed <= there(place)
    assert DeltaTable(place).version() == last
    DeltaTable(place).to_pyarrow_table()
    remove(warehouse)
    assert there(place) == needed


def test_files_of_the_last_days_stay(warehouse: Warehouse) -> None:
    place = warehouse.location(TABLE)
    write_deltalake(place, pa.table({"number": [1]}), configuration=dict(PROPERTIES))
    write_deltalake(place, pa.table({"number": [2]}), mode="overwrite")
    Path(place, "part-of-a-write-that-goes-on.parquet").write_bytes(b"half")
    assert not outdated(warehouse, TABLE, [], 7).paths
    assert len(outdated(warehouse, TABLE, [], 0).files) == 2


def test_where_a_commit_is_gone_that_a_stage_has_still_to_read_nothing_goes(warehouse: Warehouse) -> None:
    place = warehouse.location(TABLE)
    write_deltalake(place, pa.table({"number": [1]}), configuration=dict(PROPERTIES))
    for number in (2, 3):
        write_deltalake(place, pa.table({"number": [number]}), mode="overwrite")
    DeltaTable(place).create_checkpoint()
    Path(place, "_delta_log", f"{1:020}.json").unlink()
    reading = Reading(str(DeltaTable(place).metadata().id), 0)
    progress.save(warehouse, READER.table, Progress(inputs={TABLE: reading}))
    found = outdated(warehouse, TABLE, [READER], 0)
    assert (found.unread, found.readers, found.paths) == (1, (READER.table,), {})


def logged(place: str, versions: int, every: int, aged: int) -> Path:
    """Make versions of a table with checkpoints; the first versions become old, ten of them a day."""
    log = Path(place, "_delta_log")
    write_deltalake(place, pa.table({"number": [0]}), configuration=dict(PROPERTIES))
    for number in range(1, versions + 1):
        write_deltalake(place, pa.table({"number": [number]}), mode="append")
        if number % every == 0:
            DeltaTable(place).create_checkpoint()
    for path in log.glob("0*"):
        if (number := int(path.name[:20])) < aged:
            os.utime(path, (at := LONG_AGO + number // 10 * 86_400, at))
    return log


def test_commits_before_the_last_days_go_with_their_checkpoints(warehouse: Warehouse) -> None:
    place = warehouse.location(TABLE)
    log = logged(place, versions=20, every=4, aged=15)
    (log / f"{3:020}.crc").write_text("{}", encoding="utf-8")
    os.utime(log / f"{3:020}.crc", (LONG_AGO, LONG_AGO))
    rows = {version: DeltaTable(place, version=version).count() for version in range(12, 21)}

    found = outdated(warehouse, TABLE, [READER], 7).log_files

    gone = {f"{number:020}.json" for number in range(12)} | {f"{number:020}.checkpoint.parquet" for number in (4, 8)}
    assert {*found} == {f"_delta_log/{name}" for name in (*gone, f"{3:020}.crc")}
    for path in found:
        warehouse.store.remove(f"{warehouse.table_path(TABLE)}/{path}")
    assert {version: DeltaTable(place, version=version).count() for version in range(12, 21)} == rows
    assert not outdated(warehouse, TABLE, [READER], 7).log_files


@pytest.mark.parametrize(
    ("known", "first"),
    [
        pytest.param({"inputs": 9}, 8, id="read up to 9"),
        pytest.param({"inputs": 8}, 8, id="read up to the checkpoint"),
        pytest.param({"inputs": 14, "pending": Batch(7, 14)}, 4, id="within a batch behind 7"),
        pytest.param({"inputs": None, "pending": Batch(None, 9)}, 8, id="within a batch of all rows"),
        pytest.param({"inputs": 20}, 12, id="all read"),
        pytest.param({"inputs": 2}, 0, id="read up to before the first checkpoint"),
    ],
)
def test_commits_that_a_stage_has_still_to_read_stay(warehouse: Warehouse, known: dict[str, Any], first: int) -> None:
    place = warehouse.location(TABLE)
    logged(place, versions=20, every=4, aged=15)
    reading = Reading(warehouse.table_id(TABLE), known["inputs"])  # type: ignore[arg-type]
    pending = {TABLE: known["pending"]} if "pending" in known else {}
    progress.save(warehouse, READER.table, Progress(inputs={TABLE: reading}, pending=pending))
    found = outdated(warehouse, TABLE, [READER], 7).log_files
    assert {int(path[11:31]) for path in found if path.endswith(".json")} == {*range(first)}


def test_commits_behind_the_last_write_of_a_stage_stay(warehouse: Warehouse) -> None:
    logged(warehouse.location(TABLE), versions=20, every=4, aged=15)
    progress.save(warehouse, LANDS.table, Progress(target_version=6))
    found = outdated(warehouse, TABLE, [LANDS], 7).log_files
    assert {int(path[11:31]) for path in found if path.endswith(".json")} == {*range(4)}


def test_two_checkpoints_stay_if_all_is_old(warehouse: Warehouse) -> None:
    place = warehouse.location(TABLE)
    logged(place, versions=20, every=4, aged=21)
    for path in outdated(warehouse, TABLE, [READER], 7).log_files:
        warehouse.store.remove(f"{warehouse.table_path(TABLE)}/{path}")
    Path(place, "_delta_log", f"{20:020}.checkpoint.parquet").unlink()
    Path(place, "_delta_log", "_last_checkpoint").unlink()
    assert DeltaTable(place).count() == 21


def test_checkpoints_of_the_last_days_go_but_each_of_their_versions_can_be_read(warehouse: Warehouse) -> None:
    place = warehouse.location(TABLE)
    log = logged(place, versions=30, every=3, aged=31)
    Path(log, f"{0:020}.json").unlink()  # Delta has removed what is before the first checkpoint
    rows: dict[int, Any] = {version: DeltaTable(place, version=version).count() for version in range(3, 31)}

    found = outdated(warehouse, TABLE, [], 60).log_files

    stay = {3, 9, 18, 27, 30}  # the first, the last one of each day, the newest two
    assert set(found) == {
        f"_delta_log/{number:020}.checkpoint.parquet" for number in range(3, 31, 3) if number not in stay
    }
    for path in found:
        warehouse.store.remove(f"{warehouse.table_path(TABLE)}/{path}")
    assert {version: DeltaTable(place, version=version).count() for version in range(3, 31)} == rows


def test_a_checkpoint_is_due_every_ten_commits_of_a_plain_table(warehouse: Warehouse) -> None:
    place = warehouse.location(TABLE)
    logged(place, versions=8, every=100, aged=0)
    assert not outdated(warehouse, TABLE, [], 7).lacks_checkpoint
    write_deltalake(place, pa.table({"number": [9]}), mode="append")
    assert outdated(warehouse, TABLE, [], 7).lacks_checkpoint
    DeltaTable(place).create_checkpoint()
    assert not outdated(warehouse, TABLE, [], 7).lacks_checkpoint
    for number in range(10):
        write_deltalake(place, pa.table({"number": [number]}), mode="append")
    DeltaTable(place).alter.add_constraint({"small": "number < 100"})
    assert not outdated(warehouse, TABLE, [], 7).lacks_checkpoint  # only Spark surely knows all of its log
