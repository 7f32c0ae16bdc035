"""Who may write to a warehouse: one process at a time on this machine and on S3, nobody if commits can be lost."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from pipelines import cli
from pipelines.errors import UsageError, WriterBusy
from pipelines.jvm import session
from pipelines.settings import Lock, load
from pipelines.stores import connection, lock


def no_session(*_: object) -> None:
    raise AssertionError("a session was started")


@pytest.mark.parametrize("warehouse", ["s3n://b/w", "OSS://b/w", "cosn://b/w"])
@pytest.mark.parametrize(
    "command", [["run"], ["run", "--only", "gold.dlq_summary"], ["run", "--follow"], ["readmit", "silver.dlq_records"]]
)
def test_commands_that_write_refuse_a_store_that_loses_commits(
    warehouse: str,
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(session, "start", no_session)
    health = ["--health", str(tmp_path / "health.json")] if "--follow" in command else []
    monkeypatch.setattr(sys, "argv", ["afterlog", *command, *health, "--warehouse", warehouse])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    scheme = warehouse.partition(":")[0].lower()
    assert f"{scheme}://" in said.err
    assert f"spark.delta.logStore.{scheme}.impl" in said.err


@pytest.mark.parametrize("warehouse", ["hdfs://name/w", "abfss://c@a.dfs.core.windows.net/w", "gs://b/w"])
def test_stores_that_arbitrate_between_writers_are_written_to(warehouse: str, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = MemoryStore()
    monkeypatch.setattr(connection, "opened", lambda root: memory)
    with lock.writer(load(warehouse=warehouse), "the test"):
        assert (lock.holder(warehouse) is None) is warehouse.startswith("hdfs")


@pytest.mark.parametrize("warehouse", ["abfss://b@c/w", "gs:///w"])
def test_a_place_that_its_store_cannot_have_is_one_sentence(warehouse: str) -> None:
    with pytest.raises(UsageError, match=r"cannot be used as a place on an object store: it has to be like gs://"):
        lock.writer(load(warehouse=warehouse), "the test").__enter__()


def test_a_log_store_that_the_settings_name_is_taken() -> None:
    with lock.writer(
        load(warehouse="oss://b/w", spark={"spark.delta.logStore.oss.impl": "org.example.CommitsOnce"}), "the test"
    ):
        pass


@pytest.mark.parametrize("warehouse", ["hdfs://name/w", "s3://b/w"])
def test_store_of_one_process_is_refused_wherever_it_is_configured(warehouse: str) -> None:
    of_one = {"spark.delta.logStore.class": "org.apache.spark.sql.delta.storage.S3SingleDriverLogStore"}
    with (
        pytest.raises(UsageError, match="S3SingleDriverLogStore"),
        lock.writer(load(warehouse=warehouse, spark=of_one), "the test"),
    ):
        pass


def test_uri_of_this_machine_shares_the_lock_of_its_directory(tmp_path: Path) -> None:
    impatient = Lock(wait_seconds=0)
    directory, uri = load(warehouse=str(tmp_path), lock=impatient), load(warehouse=tmp_path.as_uri(), lock=impatient)
    for first, second in ((directory, uri), (uri, directory)):
        with lock.writer(first, "the first one"):
            assert "the first one" in (lock.holder(second.warehouse) or "")
            with pytest.raises(WriterBusy), lock.writer(second, "the second one"):
                pass
