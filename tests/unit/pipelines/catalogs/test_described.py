from __future__ import annotations

from pathlib import Path

import pytest

from expectations.contract import contract_of
from pipelines.catalog import CATALOG
from pipelines.catalogs import described
from pipelines.commands import register
from pipelines.errors import UsageError
from pipelines.settings import Settings, load
from pipelines.warehouse.tables import Warehouse

NAMES = ("silver.dlq_records", "gold.dlq_incidents")


def test_a_table_is_described_by_its_log_as_its_contract_says(settings: Settings) -> None:
    tables = Warehouse(settings)
    tables.ensure_all(map(contract_of, NAMES))
    found = described.described(tables, [*NAMES, "gold.blast_radius"])
    assert [named.name for named in found] == [*NAMES]
    for named in found:
        contract = contract_of(named.name)
        assert named.comment == contract.description
        told = [(field.name, field.sql_type, field.comment) for field in named.fields]
        wanted = [
            (column.name, column.type.lower().replace(" ", "").replace("`", ""), column.comment)
            for column in contract.stored
        ]
        assert told == wanted


def test_every_type_of_a_contract_is_written_in_sql() -> None:
    nested = {
        "type": "map",
        "keyType": "string",
        "valueType": {"type": "array", "elementType": "decimal(10,2)", "containsNull": True},
    }
    assert described.sql_type(nested) == "map<string,array<decimal(10,2)>>"
    assert described.sql_type("timestamp_ntz") == "timestamp_ntz"


@pytest.mark.parametrize(
    ("root", "on_hadoop", "on_stores", "uri"),
    [
        ("/srv/w h'#é", "file:///srv/w h'#é", "/srv/w h'#é", "file:///srv/w%20h%27%23%C3%A9"),
        ("/", "file://", "", "file://"),
        ("file:///srv/w", "file:///srv/w", "/srv/w", "file:///srv/w"),
        ("s3a://bucket/w h", "s3a://bucket/w h", "s3://bucket/w h", "s3://bucket/w h"),
        ("gs://bucket", "gs://bucket", "gs://bucket", "gs://bucket"),
        (
            "abfs://c@a.dfs.core.windows.net/w",
            "abfs://c@a.dfs.core.windows.net/w",
            *["abfss://c@a.dfs.core.windows.net/w"] * 2,
        ),
    ],
)
def test_a_location_has_the_form_that_a_tool_reads(root: str, on_hadoop: str, on_stores: str, uri: str) -> None:
    settings = load(warehouse=root)
    assert described.on_hadoop(settings.warehouse, "gold.x") == f"{on_hadoop}/gold/x"
    assert described.on_stores(settings.warehouse, "gold.x") == f"{on_stores}/gold/x"
    assert described.as_uri(settings.warehouse, "gold.x") == f"{uri}/gold/x"


@pytest.mark.parametrize(
    ("first", "other", "is_same"),
    [
        ("file:/srv/w/", "file:///srv/w", True),
        ("/srv/w", "file:/srv/w", True),
        ("s3a://b/w", "s3://b/w/", True),
        ("s3://b/w", "s3://b/W", False),
        ("/srv/w", "/srv/w2", False),
        ("/srv/a:b", "file:/srv/a:b", True),
        (None, "/srv/w", False),
    ],
)
def test_places_are_compared_in_all_their_forms(first: str | None, other: str, is_same: bool) -> None:
    assert described.is_same_location(first, other) is is_same


def test_a_path_that_would_hide_something_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"u001b\[31mw has a character that cannot be printed"):
        described.on_stores(f"{tmp_path}/\x1b[31mw", "gold.x")


def test_all_tables_with_files_can_be_registered() -> None:
    assert {stage.table for stage in CATALOG} < set(register.TABLES)
    assert "gold.replayed_records" in register.TABLES
    assert not {"quality.freshness", "quality.alerts"} & set(register.TABLES)
