"""Random bytes of random data files change: a page with a checksum is never read as other rows than were written."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.settings import Settings
from pipelines.warehouse import damage, few_rows, rewriting
from pipelines.warehouse.tables import Warehouse

TABLE = "silver.dlq_records"


def rows_of(chance: random.Random) -> pa.Table:
    """Rows of several types, with nulls, repeated and random values."""
    count = chance.choice((1, 30, 3_000))

    def column(value: object) -> list[object]:
        return [None if chance.random() < 0.1 else value() for _ in range(count)]  # type: ignore[operator]

    return pa.table(
        {
            "number": pa.array(column(lambda: chance.randrange(1 << 40)), pa.int64()),
            "name": pa.array(column(lambda: chance.choice(("orders", "payments", "refunds"))), pa.string()),
            "text": pa.array(column(lambda: chance.randbytes(chance.randrange(90)).hex()), pa.string()),
            "bytes": pa.array(column(lambda: chance.randbytes(chance.randrange(40))), pa.binary()),
            "flag": pa.array(column(lambda: chance.random() < 0.5), pa.bool_()),
            "list": pa.array(column(lambda: [chance.randrange(9) for _ in range(3)]), pa.list_(pa.int32())),
        }
    )


def flipped(path: Path, chance: random.Random) -> None:
    """Flip a bit before the footer."""
    content = bytearray(path.read_bytes())
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    content[chance.randrange(4, footer)] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("with_checksums", [True, False], ids=["checksums", "none"])
def test_what_is_not_found_reads_as_before(tmp_path: Path, seed: int, with_checksums: bool) -> None:
    chance = random.Random(seed)
    warehouse = Warehouse(Settings(warehouse=str(tmp_path)))
    rows, place = rows_of(chance), warehouse.location(TABLE)
    write_deltalake(place, rows, writer_properties=few_rows._compressed())
    (path,) = Path(place).glob("*.parquet")
    if with_checksums:  # as `afterlog maintain` and `erase` write files, and Spark does
        version = DeltaTable(place).version()
        old = {path.name: path.stat().st_size}
        path = Path(place, rewriting.written(warehouse, TABLE, rows).path)
        new = rewriting.Written(path.name, path.stat().st_size, f'{{"numRecords": {rows.num_rows}}}')
        rewriting.replace_files(warehouse, TABLE, version, old, [new], "TEST")
    content, before = path.read_bytes(), pq.read_table(path)
    assert damage.unreadable_files(warehouse, TABLE) == []
    found = wrong = 0
    for _ in range(60):
        flipped(path, chance)
        if damage.unreadable_files(warehouse, TABLE):
            found += 1
        else:
            wrong += pq.read_table(path) != before
        path.write_bytes(content)
    assert found
    assert wrong == 0 or not with_checksums


def test_a_file_with_other_rows_than_the_log_counts_is_found(tmp_path: Path) -> None:
    warehouse = Warehouse(Settings(warehouse=str(tmp_path)))
    place = warehouse.location(TABLE)
    write_deltalake(place, pa.table({"number": [1, 2, 3]}))
    (path,) = Path(place).glob("*.parquet")
    pq.write_table(pa.table({"number": [1, 2]}), path)
    assert damage.unreadable_files(warehouse, TABLE) == [path.name]
