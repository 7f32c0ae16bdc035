"""Catalogs that are reached over HTTP: Unity Catalog and Glue. Hive's metastore needs a session: test_register.py."""

from __future__ import annotations

import json
import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, Field

from expectations.contract import contract_of
from pipelines.catalogs import glue
from pipelines.cli import main
from pipelines.settings import load
from pipelines.warehouse.tables import Warehouse
from tests.testing import s3, unity

NAMES = ("silver.dlq_records", "gold.dlq_incidents", "gold.dlq_counts")
INCIDENTS = "gold.dlq_incidents"
HOSTILE = "we ird'`#é\"x; --"


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """A warehouse with a few tables, at a path that has to be quoted everywhere."""
    place = tmp_path / HOSTILE
    Warehouse(load(warehouse=str(place))).ensure_all(map(contract_of, NAMES))
    return place


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `afterlog register`; return its exit code, standard output and standard error."""

    def told(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["afterlog", "register", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return told


class OfUnity:
    """Unity Catalog as its clients see it, in a catalog of our own."""

    def __init__(self, url: str) -> None:
        self.url, self.catalog = url, f"ours-{uuid.uuid4().hex[:8]}"
        self.options = ("unity", "--server", url, "--catalog", self.catalog)

    def asked(self, path: str, **parameters: str) -> Any:
        import requests

        return requests.get(f"{self.url}{unity.API}{path}", params=parameters, timeout=30).json()

    def table(self, name: str) -> dict[str, Any]:
        """A table without the times at which it was looked at."""
        return dict(self.asked(f"tables/{self.catalog}.{name}"))

    def tables(self) -> dict[str, dict[str, Any]]:
        return {name: self.table(name) for name in NAMES}


@pytest.fixture
def catalog() -> Iterator[OfUnity]:
    if url := unity.real():
        yield OfUnity(url)
    else:
        with unity.server() as (url, _):
            yield OfUnity(url)


def test_unity_knows_tables_with_columns_and_comments(warehouse: Path, catalog: OfUnity, run: Any) -> None:
    code, out, err = run(*catalog.options, "--warehouse", warehouse)
    assert (code, out.splitlines()[-1], err) == (0, "3 tables registered.", "")
    found = catalog.table(INCIDENTS)
    contract = contract_of(INCIDENTS)
    assert found["storage_location"] == f"{warehouse.as_uri()}/gold/dlq_incidents"
    assert (found["table_type"], found["data_source_format"]) == ("EXTERNAL", "DELTA")
    assert found["comment"] == contract.description
    assert [(row["name"], row["comment"]) for row in found["columns"]] == [
        (column.name, column.comment) for column in contract.stored
    ]
    logged = json.loads(DeltaTable(warehouse / "gold" / "dlq_incidents").schema().to_json())["fields"]
    assert [json.loads(row["type_json"]) for row in found["columns"]] == logged


def test_a_rerun_changes_nothing_in_unity(warehouse: Path, catalog: OfUnity, run: Any) -> None:
    run(*catalog.options, "--warehouse", warehouse)
    before = catalog.tables()
    code, out, err = run(*catalog.options, "--warehouse", warehouse)
    assert (code, out, err) == (0, "3 tables are registered already.\n", "")
    assert catalog.tables() == before


def test_a_dry_run_creates_nothing_in_unity(warehouse: Path, catalog: OfUnity, run: Any) -> None:
    code, out, _ = run(*catalog.options, "--warehouse", warehouse, "--dry-run", "--layer", "gold")
    assert (code, out.splitlines()[-1]) == (0, "2 tables would be registered.")
    assert catalog.asked(f"catalogs/{catalog.catalog}")["error_code"] == "CATALOG_NOT_FOUND"


def test_a_new_column_is_told_and_taken_on_demand(warehouse: Path, catalog: OfUnity, run: Any) -> None:
    run(*catalog.options, "--warehouse", warehouse)
    before = catalog.tables()
    DeltaTable(warehouse / "gold" / "dlq_incidents").alter.add_columns([Field("new", "long")])
    code, out, err = run(*catalog.options, "--warehouse", warehouse)
    assert (code, out) == (2, "")
    assert f"{INCIDENTS} differs (other than its Delta log: new): --recreate" in err
    assert catalog.tables() == before
    code, out, err = run(*catalog.options, "--warehouse", warehouse, "--recreate", "--format", "json")
    assert (code, err) == (0, "")
    told = {row["table"]: (row["status"], row["was"]) for row in map(json.loads, out.splitlines())}
    assert told[INCIDENTS] == ("updated", "other than its Delta log: new")
    assert told["gold.dlq_counts"] == ("unchanged", "")
    assert catalog.table(INCIDENTS)["columns"][-1]["name"] == "new"
    assert catalog.table("gold.dlq_counts") == before["gold.dlq_counts"]


def test_a_table_of_somebody_else_stays(warehouse: Path, catalog: OfUnity, run: Any, tmp_path: Path) -> None:
    run(*catalog.options, "--warehouse", warehouse, "--layer", "gold")
    before = {name: catalog.table(name) for name in NAMES[1:]}
    other = tmp_path / "other"
    shutil.copytree(warehouse, other)
    code, out, err = run(*catalog.options, "--warehouse", other, "--recreate")
    assert (code, out) == (2, "")
    assert f"other tables under the names gold.dlq_counts, {INCIDENTS} (the first is at " in err
    assert "nothing was changed" in err
    assert len(err.splitlines()) == 1
    assert {name: catalog.table(name) for name in NAMES[1:]} == before
    assert catalog.table("silver.dlq_records")["error_code"] == "SCHEMA_NOT_FOUND"
    code, *_ = run(*catalog.options, "--warehouse", other, "--prefix", "other_")
    assert code == 0
    assert catalog.table("other_gold.dlq_counts")["storage_location"] == f"{other.as_uri()}/gold/dlq_counts"


def test_a_warehouse_that_moved_is_followed(warehouse: Path, catalog: OfUnity, run: Any, tmp_path: Path) -> None:
    run(*catalog.options, "--warehouse", warehouse)
    moved = tmp_path / "moved"
    shutil.move(warehouse, moved)
    options = (*catalog.options, "--warehouse", moved, "--moved-from", warehouse)
    code, _, err = run(*options)
    assert code == 2
    assert "--recreate drops and creates" in err
    code, out, _ = run(*options, "--recreate")
    assert (code, out.splitlines()[-1]) == (0, "3 tables updated.")
    assert f"{INCIDENTS}: updated (was at file://" in out.replace("(was at /", "(was at file:///")
    assert catalog.table(INCIDENTS)["storage_location"] == f"{moved.as_uri()}/gold/dlq_incidents"
    assert run(*catalog.options, "--warehouse", moved)[1] == "3 tables are registered already.\n"


def test_unity_gets_the_token_of_the_environment(warehouse: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with unity.server(token="hush") as (url, _):
        code, _, err = run("unity", "--server", url, "--warehouse", warehouse)
        assert (code, "refuses (HTTP 401): put a token" in err) == (3, True)
        monkeypatch.setenv("UNITY_CATALOG_TOKEN", "hush")
        code, out, err = run("unity", "--server", url, "--warehouse", warehouse)
        assert (code, err) == (0, "")
        assert "hush" not in out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "Name a catalog"),
        (("hive", "--print", "trino"), 2, "Name a catalog"),
        (("hive", "--server", "http://x"), 2, "--server is for unity, not for hive."),
        (("--print", "spark", "--dry-run"), 2, "--dry-run is for hive, unity, glue, not for spark."),
        (("unity",), 2, "needs --server"),
        (("unity", "--server", "localhost:8080"), 2, "takes the URL of a server"),
        (("unity", "--server", "http://user:hush@localhost"), 2, "takes the URL of a server"),
        (("unity", "--server", "http://127.0.0.1:9", "--catalog", "a.b"), 2, "has a space, a dot or a slash"),
        (("unity", "--server", "http://127.0.0.1:9"), 3, "No Unity Catalog answers at http://127.0.0.1:9 (Conn"),
        (("glue",), 2, "Glue does not read"),
        (("--print", "duckdb", "--layer", "golf"), 2, "There is no layer 'golf'"),
        (("--print", "duckdb", "--layer", "held"), 2, "There is no table of held in"),
        (("--print", "duckdb", "--prefix", "a'b"), 2, "--prefix takes"),
        (("--print", "trino", "--catalog", ""), 2, "--catalog takes"),
        (("--print", "duckdb", "--warehouse", "/nowhere/at/all"), 2, "does not exist"),
    ],
)
def test_a_mistake_is_one_sentence(words: tuple[str, ...], code: int, said: str, warehouse: Path, run: Any) -> None:
    ended, out, err = run(*(() if "--warehouse" in words else ("--warehouse", warehouse)), *words)
    assert (ended, out) == (code, "")
    assert said in err
    assert "hush" not in err
    assert len(err.splitlines()) == 1


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server of S3 and Glue, named by AWS's variables, and a client for it."""
    from botocore.session import get_session  # type: ignore[import-untyped]

    with s3.server("lake") as variables:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        Warehouse(load(warehouse="s3://lake/w")).ensure_all(map(contract_of, NAMES))
        yield get_session().create_client("glue", region_name=variables["AWS_REGION"])


def glued(aws: Any, *layers: str) -> dict[str, dict[str, Any]]:
    found = [aws.get_tables(DatabaseName=layer)["TableList"] for layer in layers or ("gold", "silver")]
    return {f"{row['DatabaseName']}.{row['Name']}": row for many in found for row in many}


def test_glue_knows_tables_as_athena_and_trino_read_them(aws: Any, run: Any) -> None:
    code, out, err = run("glue", "--warehouse", "s3://lake/w")
    assert (code, out.splitlines()[-1], err) == (0, "3 tables registered.", "")
    found = glued(aws)[INCIDENTS]
    contract = contract_of(INCIDENTS)
    assert found["TableType"] == "EXTERNAL_TABLE"
    assert found["Parameters"] == glue.PROPERTIES
    assert found["Description"] == contract.description
    storage = found["StorageDescriptor"]
    assert storage["Location"] == storage["SerdeInfo"]["Parameters"]["path"] == "s3://lake/w/gold/dlq_incidents"
    told = [(row["Name"], row["Type"]) for row in storage["Columns"]]
    assert told[:2] == [("cluster", "string"), ("incident_id", "string")]
    assert [name for name, _ in told] == [column.name for column in contract.stored]
    for row, column in zip(storage["Columns"], contract.stored, strict=True):
        assert len(row["Comment"]) <= 255
        assert row["Comment"].removesuffix("…") == column.comment[: len(row["Comment"].removesuffix("…"))]


def test_a_rerun_changes_nothing_in_glue(aws: Any, run: Any) -> None:
    run("glue", "--warehouse", "s3://lake/w")
    before = glued(aws)
    code, out, err = run("glue", "--warehouse", "s3://lake/w")
    assert (code, out, err) == (0, "3 tables are registered already.\n", "")
    assert glued(aws) == before
    assert len(aws.get_table_versions(DatabaseName="gold", TableName="dlq_incidents")["TableVersions"]) == 1


def test_glue_takes_a_new_column_and_a_new_place_and_keeps_what_others_say(aws: Any, run: Any) -> None:
    run("glue", "--warehouse", "s3://lake/w", "--layer", "gold")
    kept = {name: value for name, value in glued(aws, "gold")[INCIDENTS].items() if name in glue.KEPT}
    kept["Parameters"]["owner"] = "team payments"
    aws.update_table(DatabaseName="gold", TableInput={"Name": "dlq_incidents", "Owner": "them", **kept})
    options = Warehouse(load(warehouse="s3://lake/w")).store.options()
    DeltaTable("s3://lake/w/gold/dlq_incidents", storage_options=options).alter.add_columns([Field("new", "long")])
    code, out, _ = run("glue", "--warehouse", "s3://lake/w", "--layer", "gold", "--dry-run")
    assert (code, out.splitlines()[0]) == (0, f"{INCIDENTS}: updated (other than its Delta log: new)")
    assert glued(aws, "gold")[INCIDENTS]["StorageDescriptor"]["Columns"][-1]["Name"] != "new"
    code, out, _ = run("glue", "--warehouse", "s3://lake/w", "--layer", "gold")
    assert (code, out.splitlines()[-1]) == (0, "1 table updated, 1 table is registered already.")
    found = glued(aws, "gold")[INCIDENTS]
    assert found["StorageDescriptor"]["Columns"][-1] == {"Name": "new", "Type": "bigint", "Comment": ""}
    assert (found["Owner"], found["Parameters"]["owner"]) == ("them", "team payments")

    Warehouse(load(warehouse="s3://lake/moved")).ensure(contract_of(INCIDENTS))
    code, _, err = run("glue", "--warehouse", "s3://lake/moved")
    assert code == 2
    assert f"Glue has other tables under the names {INCIDENTS} (at s3://lake/w/gold/dlq_incidents)" in err
    assert glued(aws, "gold")[INCIDENTS] == found
    code, out, _ = run("glue", "--warehouse", "s3://lake/moved", "--moved-from", "s3://lake/w/")
    assert (code, out.splitlines()[0]) == (0, f"{INCIDENTS}: updated (was at s3://lake/w/gold/dlq_incidents)")
    found = glued(aws, "gold")[INCIDENTS]["StorageDescriptor"]
    assert found["Location"] == found["SerdeInfo"]["Parameters"]["path"] == "s3://lake/moved/gold/dlq_incidents"


def test_a_view_in_glue_belongs_to_somebody_else(aws: Any, run: Any) -> None:
    aws.create_database(DatabaseInput={"Name": "gold"})
    aws.create_table(DatabaseName="gold", TableInput={"Name": "dlq_counts", "TableType": "VIRTUAL_VIEW"})
    before = glued(aws, "gold")
    code, _, err = run("glue", "--warehouse", "s3://lake/w")
    assert code == 2
    assert "gold.dlq_counts (no Delta table at a place of its own)" in err
    assert glued(aws, "gold") == before


def test_glue_that_does_not_answer_is_one_sentence(aws: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", "http://127.0.0.1:9")
    code, out, err = run("glue", "--warehouse", "s3://lake/w")
    assert (code, out) == (3, "")
    assert "Glue cannot be asked (EndpointConnectionError)" in err
