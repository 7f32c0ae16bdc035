"""Several writers of one warehouse on S3, each a process of its own, against a real server."""

from __future__ import annotations

import contextlib
import contextvars
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake

from expectations.contract import Column, Contract
from pipelines import moments
from pipelines.commands import maintain
from pipelines.errors import EnvironmentLacking, UsageError, WriterBusy
from pipelines.settings import ROOT, Settings, load
from pipelines.settings import Lock as LockSettings
from pipelines.settings.retention import Retention
from pipelines.stores import connection, lease, locations, lock
from pipelines.stores.objects import Objects
from pipelines.warehouse import append, few_rows, rewriting
from pipelines.warehouse.tables import Warehouse
from tests.testing import s3
from tests.testing.replays import claimed_at_once, numbered

if TYPE_CHECKING:
    from obstore.store import ObjectStore

BUCKET = "lakehouse"
NUMBERS = Contract("silver.numbers", "Numbers.", (Column("n", "bigint", "A number."),), grain=("n",))
SUMMARY = replace(NUMBERS, table="gold.dlq_summary")
SECONDS = 3  # a lease's life
# A writer that inserts the numbers that it reads. After "deaf" it does not look at the lease: only its log store does.
WRITER = """
import sys
from expectations.contract import Column, Contract
from pipelines.errors import AfterlogError
from pipelines.jvm import session
from pipelines.settings import load
from pipelines.stores import lease, lock
from pipelines.warehouse.tables import Warehouse

contract = Contract("silver.numbers", "Numbers.", (Column("n", "bigint", "A number."),), grain=("n",))
settings = load(warehouse=sys.argv[1])
looks = lease.checked
try:
    with lock.writer(settings, "the first one"), session.spark_session(settings, short_lived=True) as spark:
        warehouse = Warehouse(settings, spark)
        warehouse.ensure(contract)
        print("ready", flush=True)
        for line in sys.stdin:
            *deaf, number = line.split()
            held = looks(settings.warehouse) if not deaf else lease._held[settings.warehouse]
            lease.checked = (lambda root: held) if deaf else looks
            try:
                warehouse.insert(spark.sql(f"SELECT {number}L AS n"), contract)
                print("inserted", flush=True)
            except Exception as error:
                print("taken over" in str(error), flush=True)
except AfterlogError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""
HOLDER = """
import sys, time
from pipelines.settings import load
from pipelines.stores import lock
with lock.writer(load(warehouse=sys.argv[1]), "the killed one"):
    print("ready", flush=True)
    time.sleep(600)
"""
# A process that follows: for each number that it reads it takes the lease, inserts the number and gives the lease back.
FOLLOWER = """
import sys
import pyarrow
from dataclasses import replace
from pipelines.settings import Lock, load
from pipelines.stores import lock
from pipelines.warehouse.tables import Warehouse
from tests.integration.test_s3 import SUMMARY

settings = load(warehouse=sys.argv[1], lock=Lock(wait_seconds=60, lease_seconds=3))
warehouse = Warehouse(settings)
for line in sys.stdin:
    with lock.writer(settings, "the follower"), warehouse.store.remembering():
        warehouse.insert(pyarrow.table({"n": [int(line)]}), SUMMARY)
    print(warehouse.last_version(SUMMARY.table), flush=True)
"""
# A driver that appends numbers to a table without a lease, and then tries what the log store promises.
DRIVER = """
import sys
from pipelines.jvm import session
from pipelines.settings import load
first, times, table = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
with session.spark_session(load(warehouse=table), short_lived=True) as spark:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(first, first + times):
        spark.sql(f"SELECT {number}L AS n").coalesce(1).write.format("delta").mode("append").save(table)
    print("appended", flush=True)
    jvm, conf = spark.sparkContext._jvm, spark._jsparkSession.sessionState().newHadoopConf()
    store = jvm.afterlog.S3LogStore(conf)
    path = jvm.org.apache.hadoop.fs.Path(f"{table}/by hand {first}")
    def write(text, overwrite=False):
        try:
            store.write(path, jvm.java.util.List.of(text).iterator(), overwrite, conf)
        except Exception as error:
            return "FileAlreadyExistsException" in str(error)
    print([write("a"), write("a"), write("b"), write("b", True), write("b")], flush=True)
"""


@pytest.fixture(scope="module")
def variables() -> Iterator[dict[str, str]]:
    with s3.server(BUCKET) as variables:
        yield variables | {"AFTERLOG_LOCK__LEASE_SECONDS": str(SECONDS)}


@pytest.fixture
def place(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A warehouse of a test's own; its server is in the environment."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    return f"s3a://{BUCKET}/{tmp_path.name}"


@pytest.fixture
def by_profile(place: str, tmp_path: Path) -> dict[str, str]:
    """An environment whose keys are those of a profile."""
    keys = "aws_access_key_id = afterlog\naws_secret_access_key = a-secret-key\n"
    (tmp_path / "credentials").write_text(f"[team]\n{keys}")
    env = {name: value for name, value in os.environ.items() if not name.endswith("ACCESS_KEY_ID")}
    del env["AWS_SECRET_ACCESS_KEY"]
    return {**env, "AWS_PROFILE": "team", "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials")}


@dataclass
class Process:
    popen: subprocess.Popen[str]

    def said(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()

    def tell(self, line: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(f"{line}\n")
        self.popen.stdin.flush()


@contextlib.contextmanager
def started(program: str, *arguments: str, env: dict[str, str] | None = None) -> Iterator[Process]:
    popen = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield Process(popen)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(popen.pid, signal.SIGKILL)
        popen.communicate()


def patient(place: str) -> Settings:
    return load(warehouse=place, lock=LockSettings(wait_seconds=60, lease_seconds=SECONDS))


def opened(place: str) -> DeltaTable:
    return DeltaTable(place.replace("s3a://", "s3://"))


def numbers(table: DeltaTable) -> list[int]:
    return sorted(row["n"] for row in table.to_pyarrow_table().to_pylist())


def test_one_writer_works_at_a_time_and_stops_when_it_is_taken_over(place: str, tmp_path: Path) -> None:
    with started(WRITER, place) as first:
        assert first.said() == "ready"
        by_other_name = place.replace("s3a://", "s3://")
        refused = subprocess.run(
            [sys.executable, "-m", "pipelines.start", "run", "--warehouse", by_other_name, "--landing", str(tmp_path)],
            cwd=ROOT,
            env={**os.environ, "AFTERLOG_LOCK__WAIT_SECONDS": "0"},
            capture_output=True,
            text=True,
        )
        assert refused.returncode == 4
        assert f"process {first.popen.pid} on " in refused.stderr
        assert "(the first one), since " in refused.stderr
        s3.lose_an_answer(os.environ["AWS_ENDPOINT_URL"], "/silver/numbers/_delta_log/")
        s3.change_after_a_look(os.environ["AWS_ENDPOINT_URL"], lease.LEASE)  # as a renewal does
        first.tell("1")
        assert first.said() == "inserted"
        commits = opened(f"{place}/silver/numbers").history()
        said = [commit["userMetadata"].split()[-1] for commit in commits]
        assert said == ["afterlog-lease-1"] * 2  # created, inserted once

        first.popen.send_signal(signal.SIGSTOP)
        with lock.writer(patient(place), "the second one"):
            first.popen.send_signal(signal.SIGCONT)
            first.tell("deaf 2")
            assert first.said() == "True"
            first.tell("3")
            assert first.popen.wait(60) == 4
            assert first.popen.stderr is not None
            said = first.popen.stderr.read()
            assert f"process {os.getpid()} on " in said
            assert "(the second one)" in said
        assert numbers(opened(f"{place}/silver/numbers")) == [1]


def test_a_killed_holder_is_taken_over_when_its_lease_has_ended(place: str, by_profile: dict[str, str]) -> None:
    s3.lose_an_answer(os.environ["AWS_ENDPOINT_URL"], lease.LEASE)
    with started(HOLDER, place, env=by_profile) as killed:
        assert killed.said() == "ready"
        time.sleep(SECONDS + 2)  # it renews its lease
        assert f"process {killed.popen.pid} " in (lock.holder(place) or "")
        killed.popen.kill()
        began = time.monotonic()
        with lock.writer(patient(place), "the second one"):
            assert SECONDS * (1 - 1 / lease.RENEWED_IN) - lease.GRAIN < time.monotonic() - began < 30
            seen = lease.seen(place)
            assert seen is not None
            assert (seen.state.epoch, seen.state.holder and seen.state.holder["pid"]) == (2, os.getpid())
    assert lock.holder(place) is None


def test_a_commit_whose_answer_is_lost_is_made_once(place: str) -> None:
    at = place.replace("s3a://", "s3://")
    write_deltalake(at, pa.table({"n": pa.array([-1])}))
    table = DeltaTable(at)
    s3.lose_an_answer(os.environ["AWS_ENDPOINT_URL"], f"{1:020}.json")
    few_rows.append(table, pa.table({"n": pa.array([1])}), few_rows.Turn("a mark", is_shared=True))
    assert (numbers(opened(place)), opened(place).version(), table.version()) == ([-1, 1], 1, 1)
    few_rows.append(table, pa.table({"n": pa.array([2])}), few_rows.Turn("a mark", is_shared=True))
    assert numbers(opened(place)) == [-1, 1, 2]


def test_a_journal_on_s3_is_changed_by_one_process_at_a_time(place: str) -> None:
    records = numbered(40, "orders")
    kept = locations.of(f"{place}/_replay")
    assert isinstance(kept, Objects)

    def lose_an_answer() -> None:
        s3.lose_an_answer(os.environ["AWS_ENDPOINT_URL"], "journal.db")

    assert claimed_at_once(kept, records, lose_an_answer) == sorted(record.letter.coordinate for record in records)


def test_in_a_run_a_log_is_listed_again_only_after_a_commit(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import obstore

    listed: list[str] = []
    ask = obstore.list_with_delimiter

    def counting(store: ObjectStore, prefix: str) -> Any:
        listed.append(prefix)
        return ask(store, prefix=prefix)

    monkeypatch.setattr(obstore, "list_with_delimiter", counting)
    warehouse, others = Warehouse(load(warehouse=place)), Warehouse(load(warehouse=place))
    with warehouse.store.remembering():
        warehouse.ensure_all([NUMBERS])
        for number in range(3):
            assert warehouse.last_version(NUMBERS.table) == number
            listed.clear()
            assert warehouse.insert(pa.table({"n": [number]}), NUMBERS) == 1
            for _ in range(3):
                assert (warehouse.last_version(NUMBERS.table), warehouse.state(NUMBERS.table)[1]) == (number + 1,) * 2
            assert listed == ["silver/numbers/_delta_log/"]
        write_deltalake(opened(f"{place}/silver/numbers"), pa.table({"n": [3]}), mode="append")
        assert warehouse.last_version(NUMBERS.table) == 3
        append.append(warehouse, NUMBERS, [{"n": 4}])  # the way of commands that write beside a run
        assert warehouse.last_version(NUMBERS.table) == 5
    assert others.last_version(NUMBERS.table) == 5
    assert numbers(warehouse.opened_table(NUMBERS.table)) == [0, 1, 2, 3, 4]


def test_who_commits_to_a_log_that_changed_unseen_is_told(place: str) -> None:
    warehouse = Warehouse(load(warehouse=place))
    with warehouse.store.remembering():
        warehouse.ensure_all([NUMBERS])
        assert warehouse.state(NUMBERS.table)[1] == 0
        few_rows.append(opened(f"{place}/silver/numbers"), pa.table({"n": [1]}), few_rows.Turn("", is_shared=True))
        with pytest.raises(WriterBusy):
            warehouse.insert(pa.table({"n": [2]}), NUMBERS)
        assert warehouse.insert(pa.table({"n": [3]}), NUMBERS) == 1
    assert numbers(warehouse.opened_table(NUMBERS.table)) == [1, 3]


def test_maintenance_removes_old_objects_under_the_lease(place: str) -> None:
    settings, hasty = patient(place), load(warehouse=place, lock=LockSettings(wait_seconds=0))
    warehouse = Warehouse(settings)
    warehouse.ensure_all([SUMMARY])
    for number in range(3):
        write_deltalake(opened(f"{place}/gold/dlq_summary"), pa.table({"n": [number]}), mode="overwrite")
    with lock.writer(settings, "the test"), pytest.raises(WriterBusy):
        list(maintain.maintain(hasty, 0, False, print))
    (gone,) = maintain.maintain(settings, 0, False, print)
    assert (gone.table, gone.files) == (SUMMARY.table, 2)
    assert len([file for file in warehouse.store.files("gold/dlq_summary") if file.name.endswith(".parquet")]) == 1
    assert numbers(opened(f"{place}/gold/dlq_summary")) == [2]


def test_a_log_is_cut_beside_readers_and_a_process_that_follows(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = Warehouse(patient(place))
    warehouse.ensure_all([SUMMARY])
    address, written = f"{place}/gold/dlq_summary", iter(range(100))

    def write(times: int) -> None:
        for _ in range(times):
            write_deltalake(opened(address), pa.table({"n": [next(written)]}), mode="append")

    def commits() -> list[int]:
        files = warehouse.store.files(warehouse.log(SUMMARY.table))
        return [int(file.name[:20]) for file in files if file.name.endswith(".json")]

    def maintained() -> None:
        list(maintain.maintain(warehouse.settings, 7, False, print))

    with started(FOLLOWER, place) as follower:
        follower.tell("1000")
        assert follower.said() == "1"
        reader = opened(address)
        write(11)
        maintained()  # makes a checkpoint
        write(11)
        now = moments.now
        with monkeypatch.context() as patched:
            patched.setattr(moments, "now", lambda: now() + timedelta(days=8))  # all sleep for eight days
            maintained()
            assert commits()[0] == 0  # a checkpoint alone could be damaged
            maintained()
            assert commits()[0] == 12
            for number in range(1001, 1006):
                follower.tell(str(number))
            for _ in range(3):
                maintained()
        assert [follower.said() for _ in range(5)] == ["24", "25", "26", "27", "28"]
    assert numbers(reader) == [1000]
    assert numbers(opened(address)) == [*range(22), *range(1000, 1006)]


def test_rows_go_by_their_age_under_the_lease(place: str) -> None:
    impatient = load(warehouse=place, lock=LockSettings(wait_seconds=0))
    short = {"retention": Retention(quality="30 days")}
    settings, hasty = (item.model_copy(update=short) for item in (patient(place), impatient))
    times = Column("started_at", "timestamp", "A time.")
    runs = replace(NUMBERS, table="quality.stage_runs", columns=(*NUMBERS.columns, times))
    warehouse = Warehouse(settings)
    warehouse.ensure_all([runs])
    new, old = datetime.now(UTC), datetime.now(UTC) - timedelta(days=40)
    for ages in ([old], [new, old, new, None], [new]):
        given = pa.table({"n": [*range(len(ages))], "started_at": pa.array(ages, pa.timestamp("us", "UTC"))})
        write_deltalake(opened(f"{place}/quality/stage_runs"), given, mode="append")
    with lock.writer(settings, "the test"), pytest.raises(WriterBusy):
        list(maintain.maintain(hasty, 7, False, print))
    (gone,) = maintain.maintain(settings, 7, False, print)
    assert (gone.rows, gone.row_files) == (2, 2)
    assert numbers(opened(f"{place}/quality/stage_runs")) == [0, 0, 2, 3]
    last = warehouse.commit(runs.table, 4)
    assert "afterlog-lease-" in last[0]["commitInfo"]["userMetadata"]
    assert [action["txn"]["version"] for action in last if "txn" in action] == [4]
    with lock.writer(settings, "the test"), pytest.raises(WriterBusy):
        rewriting.replace_files(warehouse, runs.table, 3, {}, [], "RETENTION")  # that version is another writer's
    assert [maintained_table.rows for maintained_table in maintain.maintain(settings, 7, False, print)] == [0]


def test_a_command_sees_files_as_it_first_read_them_but_for_its_own(place: str) -> None:
    store = locations.of(place)
    store.write("_progress/a.json", b"1")
    with store.pinned():
        assert (store.read("_progress/a.json"), store.read("_progress/b.json")) == (b"1", None)
        contextvars.Context().run(store.write, "_progress/a.json", b"2")
        contextvars.Context().run(store.write, "_progress/b.json", b"2")
        assert (store.read("_progress/a.json"), store.read("_progress/b.json")) == (b"1", None)
        store.write("_progress/a.json", b"3")
        store.remove("_progress/b.json")
        assert (store.read("_progress/a.json"), store.read("_progress/b.json")) == (b"3", None)
    assert store.read("_progress/b.json") is None


def test_two_drivers_that_append_to_a_table_lose_nothing(place: str, by_profile: dict[str, str]) -> None:
    times = 3
    write_deltalake(place.replace("s3a://", "s3://"), pa.table({"n": pa.array([-1])}))
    other_driver = started(DRIVER, "100", str(times), place, env=by_profile)
    with started(DRIVER, "0", str(times), place) as item, other_driver as other:
        both = (item, other)
        assert [driver.said() for driver in both] == ["ready", "ready"]
        for driver in both:
            driver.tell("go")
        assert [driver.said() for driver in both] == ["appended", "appended"]
        assert [driver.said() for driver in both] == ["[None, None, True, None, None]"] * 2
    table = opened(place)
    assert numbers(table) == [-1, *range(times), *range(100, 100 + times)]
    assert table.version() == 2 * times


def test_what_s3_refuses_is_one_sentence_without_keys(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = place.replace(BUCKET, "another-bucket")
    with pytest.raises(EnvironmentLacking, match="no such bucket") as refused, lock.writer(patient(absent), "a test"):
        pass
    assert "a-secret-key" not in str(refused.value)
    monkeypatch.setattr(connection, "PATIENCE", connection.timedelta(seconds=1))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(EnvironmentLacking, match=r"cannot be read and written, as S3 at 127\.0\.0\.1 does not answer"):
        lock.holder(place)
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    with pytest.raises(UsageError, match="set AWS_ALLOW_HTTP=true"):
        lock.holder(place)
