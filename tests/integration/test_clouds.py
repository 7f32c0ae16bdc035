"""Warehouses on Google Cloud Storage and Azure, against servers of both, where these are installed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import obstore
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake

from pipelines.commands import show, trace
from pipelines.commands.incidents import listing
from pipelines.errors import EnvironmentLacking, WriterBusy
from pipelines.jvm import jars
from pipelines.settings import Lock as LockSettings
from pipelines.settings import Settings
from pipelines.stores import connection, lease, locations, lock
from pipelines.stores.objects import Objects
from pipelines.warehouse import few_rows
from pipelines.warehouse.tables import Warehouse
from tests.integration.test_s3 import DRIVER, SECONDS, numbers, patient, started
from tests.integration.test_uri_warehouses import fill
from tests.testing import clouds
from tests.testing.deliveries import store as stored
from tests.testing.replays import claimed_at_once, numbered
from tests.testing.sites import incident

BUCKET = "lakehouse"
# A writer that is told when to write a file.
WRITER = """
import sys
from pipelines.errors import WriterBusy
from pipelines.settings import load
from pipelines.stores import lock, locations
settings = load(warehouse=sys.argv[1])
with lock.writer(settings, "the first one"):
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        locations.of(settings.warehouse).write("_progress/x", b"late")
    except WriterBusy as error:
        print(error, flush=True)
"""
LOG_STORES = {"gs": "io.delta.storage.GCSLogStore", "abfs": "io.delta.storage.AzureLogStore"}


@pytest.fixture(scope="module", params=["gs", "abfs"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[str, dict[str, str]]]:
    """A scheme, and the variables that name its server."""
    with clouds.google(BUCKET) if request.param == "gs" else clouds.azure(BUCKET) as variables:
        yield request.param, variables


@pytest.fixture
def place(server: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A warehouse of a test's own; its server is in the environment."""
    scheme, variables = server
    for name in [name for name in os.environ if name.startswith(("AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AFTERLOG_LOCK__LEASE_SECONDS", str(SECONDS))
    host = BUCKET if scheme == "gs" else f"{BUCKET}@{clouds.ACCOUNT}.dfs.core.windows.net"
    return f"{scheme}://{host}/{tmp_path.name}"


@pytest.fixture
def for_spark(server: tuple[str, dict[str, str]], place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The name of Delta's log store; the settings tell Spark where the server is, and that it lacks encryption."""
    scheme, variables = server
    if (reason := jars.fault()) or (reason := jars.fault_of(scheme)):
        pytest.skip(f"{reason}: `make setup-{scheme}` fetches them")
    if scheme == "gs":
        told = {"gs.storage.root.url": variables["JSON_API"], "gs.auth.type": "UNAUTHENTICATED"}
    else:  # Azurite has the blob endpoint only
        address = variables["AZURE_STORAGE_ENDPOINT"].removeprefix("http://").partition("/")[0]
        blobs = dict.fromkeys(("azure.fns.account.service.type", "azure.ingress.service.type"), "BLOB")
        not_so = dict.fromkeys(("azure.account.hns.enabled", "azure.always.use.https"), "false")
        told = {"azure.abfs.endpoint": address, **blobs, **not_so}
    file = tmp_path / "afterlog.toml"
    file.write_text("[spark]\n" + "".join(f'"spark.hadoop.fs.{name}" = "{value}"\n' for name, value in told.items()))
    monkeypatch.setenv("AFTERLOG_SETTINGS", str(file))
    return LOG_STORES[scheme]


def objects(place: str) -> Objects:
    store = locations.of(place)
    assert isinstance(store, Objects)
    return store


def opened(place: str) -> DeltaTable:
    return DeltaTable(place, storage_options=objects(place).options())


def test_an_object_is_created_once_and_replaced_only_as_it_was_read(place: str) -> None:
    store, name = objects(place), "silver/a table/day=2026-11-29/\u00e4 1.json"
    assert (store.read(name), store.is_empty()) == (None, True)
    first = store.replace(name, b"1", None)
    assert first is not None
    assert store.replace(name, b"2", None) is None
    second = store.replace(name, b"3", first)
    assert second is not None
    assert store.replace(name, b"4", first) is None
    found = store.versioned(name)
    assert found is not None
    assert (found.content, found.version) == (b"3", second)
    assert (store.names("silver"), store.names("silver/a table")) == (["a table"], ["day=2026-11-29"])
    assert [(file.name, file.size) for file in store.files("silver/a table/day=2026-11-29")] == [("\u00e4 1.json", 1)]
    store.remove(name)
    store.remove(name)
    assert (store.replace(name, b"5", second), store.has(name)) == (None, False)


def test_a_stopped_writer_is_taken_over_and_writes_nothing_more(place: str) -> None:
    at_once = Settings(warehouse=place, lock=LockSettings(wait_seconds=0))
    with started(WRITER, place) as first:
        assert first.said() == "ready"
        with pytest.raises(WriterBusy, match="the first one"), lock.writer(at_once, "at once"):
            pass
        first.popen.send_signal(signal.SIGSTOP)
        with lock.writer(patient(place), "the second one"):
            seen = lease.seen(place)
            assert seen is not None
            assert seen.state.epoch == 2
            first.popen.send_signal(signal.SIGCONT)
            first.tell("write")
            assert "(the second one)" in first.said()
    assert (objects(place).read("_progress/x"), lock.holder(place)) == (None, None)


def test_of_two_commits_over_one_version_one_fails(place: str) -> None:
    write_deltalake(place, pa.table({"n": pa.array([1])}), storage_options=objects(place).options())
    item, other = opened(place), opened(place)
    few_rows.append(item, pa.table({"n": pa.array([2])}), few_rows.Turn("one", is_shared=True))
    with pytest.raises(WriterBusy):
        few_rows.append(other, pa.table({"n": pa.array([3])}), few_rows.Turn("other", is_shared=True))
    assert (numbers(opened(place)), opened(place).version()) == ([1, 2], 1)


def test_a_journal_is_changed_by_one_writer_at_a_time(place: str) -> None:
    records = numbered(40, "orders")
    kept = objects(f"{place}/_replay")
    assert claimed_at_once(kept, records) == sorted(record.letter.coordinate for record in records)


def test_answers_are_those_of_a_directory(place: str, settings: Settings) -> None:
    fill(settings)
    stored(settings, "gold.dlq_incidents", incident(1))
    root = Path(settings.warehouse)
    for file in root.rglob("*"):
        if file.is_file() and file.suffix != ".crc":
            obstore.put(connection.opened(place), file.relative_to(root).as_posix(), file.read_bytes())
    here, there = Warehouse(settings), Warehouse(settings.model_copy(update={"warehouse": place}))
    at = "2099-01-01T00:00:00Z"
    assert show.answer(there, "dlq.orders:0:1") == show.answer(here, "dlq.orders:0:1")
    assert trace.answer(there, "orders:0:7") == trace.answer(here, "orders:0:7")
    listed = listing.listed(there, "json", at=at)
    assert listed == listing.listed(here, "json", at=at)
    assert listed.result.strip()


def test_drivers_of_spark_that_append_to_a_table_lose_nothing(place: str, for_spark: str) -> None:
    times = 3
    write_deltalake(place, pa.table({"n": pa.array([-1])}), storage_options=objects(place).options())
    program = DRIVER.replace("afterlog.S3LogStore", for_spark)
    with started(program, "0", str(times), place) as item, started(program, "100", str(times), place) as other:
        both = (item, other)
        assert [driver.said() for driver in both] == ["ready", "ready"]
        for driver in both:
            driver.tell("go")
        assert [driver.said() for driver in both] == ["appended", "appended"]
        assert [driver.said() for driver in both] == ["[None, True, True, None, True]"] * 2
    assert numbers(opened(place)) == [-1, *range(times), *range(100, 100 + times)]
    assert opened(place).version() == 2 * times


def test_an_absent_container_is_one_sentence_without_keys(
    place: str, server: tuple[str, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    if server[0] == "gs":
        pytest.skip("fake-gcs-server makes a bucket that is absent")
    absent = objects(place.replace(BUCKET, "absent"))
    for ask in (lambda: absent.write("x", b""), lambda: absent.names("x")):
        with pytest.raises(EnvironmentLacking, match="there is no such bucket or container"):
            ask()
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmcga2V5")
    for ask in (lambda: absent.write("x", b""), lambda: absent.names("x")):
        with pytest.raises(EnvironmentLacking, match="the store refuses it") as refused:
            ask()
        assert "d3Jvbmcga2V5" not in str(refused.value)
