"""A table is opened once for each state of its Delta log, whoever changes the log."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as arrow  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.stores import locations
from pipelines.warehouse import opened_tables
from pipelines.warehouse.opened_tables import MOST_TABLES, MOST_VERSIONS, committed, once


def write(place: Path, number: int) -> None:
    write_deltalake(place, arrow.table({"n": [number]}), mode="append")


def opened(place: Path, version: int | None = None) -> DeltaTable:
    store = locations.of(str(place.parent))
    return once(store, place.name, version, lambda: DeltaTable(place, version=version))


def numbers(table: DeltaTable) -> list[int]:
    return sorted(table.to_pyarrow_table()["n"].to_pylist())


def test_a_table_is_opened_again_when_its_log_changes(tmp_path: Path) -> None:
    place = tmp_path / "table"
    write(place, 1)
    first = opened(place)
    assert opened(place) is first
    write(place, 2)
    second = opened(place)
    assert (numbers(first), numbers(second)) == ([1], [1, 2])
    assert opened(place, 0).version() == 0
    write_deltalake(second, arrow.table({"n": [3]}), mode="append")  # takes the opened table along
    assert (second.version(), opened(place).version(), opened(place, 1).version()) == (2, 2, 1)
    assert opened(place) is not second


def test_a_table_that_its_own_commit_took_along_is_not_opened_again(tmp_path: Path) -> None:
    place = tmp_path / "table"
    store = locations.of(str(tmp_path))
    write(place, 1)
    own = opened(place)
    write_deltalake(own, arrow.table({"n": [2]}), mode="append")
    committed(store, place.name, own)
    assert opened(place) is opened(place, 1) is own
    assert (numbers(own), numbers(opened(place, 0))) == ([1, 2], [1])
    write_deltalake(own, arrow.table({"n": [3]}), mode="append")
    write(place, 4)
    committed(store, place.name, own)
    assert (own.version(), opened(place).version()) == (2, 3)
    assert numbers(opened(place)) == [1, 2, 3, 4]
    assert opened(place).get_add_actions().num_rows == DeltaTable(place).get_add_actions().num_rows


def test_a_table_that_was_made_again_is_another(tmp_path: Path) -> None:
    place = tmp_path / "table"
    write(place, 1)
    before = opened(place)
    shutil.rmtree(place)
    write(place, 7)
    assert numbers(opened(place)) == [7]
    assert opened(place).metadata().id != before.metadata().id


def test_a_log_that_is_repaired_is_read(tmp_path: Path) -> None:
    place = tmp_path / "table"
    write(place, 1)
    commit = place / "_delta_log" / f"{0:020}.json"
    content = commit.read_bytes()
    commit.write_bytes(b"{" + content[1:-9])
    with pytest.raises(Exception, match="Json error"):
        opened(place)
    commit.write_bytes(content)
    assert numbers(opened(place)) == [1]


def test_few_versions_and_tables_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened_tables, "_kept", {})
    place = tmp_path / "table"
    for number in range(MOST_VERSIONS + 2):
        write(place, number)
    for version in range(MOST_VERSIONS + 2):
        assert opened(place, version).version() == version
    (kept,) = opened_tables._kept.values()
    assert len(kept.versions) <= MOST_VERSIONS
    for number in range(MOST_TABLES + 1):
        once(locations.of(str(tmp_path)), str(number), None, lambda: opened(place))
    assert len(opened_tables._kept) <= MOST_TABLES
