"""A table that is opened is the one in the warehouse, in its present state."""

from __future__ import annotations

from pathlib import Path

import pyarrow as arrow  # type: ignore[import-untyped]
from deltalake import write_deltalake

from pipelines.settings import Settings, load
from pipelines.warehouse.tables import Warehouse

TABLE = "gold.a"


def commit(directory: Path, number: int) -> None:
    write_deltalake(directory, arrow.table({"n": [number]}), mode="append")


def test_a_log_whose_last_commit_is_taken_back_is_read_as_it_is(settings: Settings, tmp_path: Path) -> None:
    warehouse = Warehouse(settings)
    directory = Path(warehouse.location(TABLE))
    commit(directory, 1)
    write_deltalake(warehouse.opened_table(TABLE), arrow.table({"n": [2]}), mode="append")
    assert warehouse.state(TABLE)[1] == 1
    (directory / "_delta_log" / f"{1:020}.json").rename(tmp_path / "away")
    assert warehouse.state(TABLE)[1] == 0


def test_a_warehouse_above_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "there" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "there" / "deep")
    warehouse = Warehouse(load(warehouse=str(tmp_path / "link" / ".." / "warehouse")))
    commit(tmp_path / "there" / "warehouse" / "gold" / "a", 1)
    assert warehouse.exists(TABLE)
    assert warehouse.state(TABLE)[1] == 0
