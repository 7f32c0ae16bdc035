"""Files that nobody reads any more go; what a stage has still to read, and every version's log, stays."""

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
from pipelines.stage import Summarise
from pipelines.warehouse import progress
from pipelines.warehouse.outdated import outdated
from pipelines.warehouse.progress import Batch, Progress, Reading
from pipelines.warehouse.tables import PROPERTIES, Warehouse

TABLE = "bronze.dlq_records"
READER = Summarise("silver.dlq_records", feed="dlq", inputs=(TABLE,))
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
        warehouse.store.remove(f"{warehouse.place(TABLE)}/{path}")


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


def test_checkpoints_go_but_each_version_can_be_read(warehouse: Warehouse) -> None:
    place = warehouse.location(TABLE)
    log = Path(place, "_delta_log")
    write_deltalake(place, pa.table({"number": [0]}), configuration=dict(PROPERTIES))
    for number in range(1, 31):
        write_deltalake(place, pa.table({"number": [number]}), mode="append")
        if number % 3 == 0:
            DeltaTable(place).create_checkpoint()
        for path in log.glob(f"{number:020}.*"):
            at = LONG_AGO + number // 10 * 86_400
            os.utime(path, (at, at))
    Path(log, f"{0:020}.json").unlink()  # Delta has removed what is before the first checkpoint
    rows: dict[int, Any] = {version: DeltaTable(place, version=version).count() for version in range(3, 31)}

    found = outdated(warehouse, TABLE, [], 7).checkpoints

    stay = {3, 9, 18, 27, 30}  # the first, the last one of each day, the newest two
    assert set(found) == {
        f"_delta_log/{number:020}.checkpoint.parquet" for number in range(3, 31, 3) if number not in stay
    }
    for path in found:
        warehouse.store.remove(f"{warehouse.place(TABLE)}/{path}")
    assert {version: DeltaTable(place, version=version).count() for version in range(3, 31)} == rows
