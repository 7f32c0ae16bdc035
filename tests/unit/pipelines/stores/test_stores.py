"""What each store does with files, lists and locks: the same, whether it is a directory, Hadoop's or of objects."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
import pytest
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from pipelines.errors import EnvironmentLacking, UsageError, WriterBusy
from pipelines.stores import connection, directory, hadoop, lease, locations, objects
from pipelines.stores.base import Store
from pipelines.stores.objects import Objects
from tests.integration.killed import Killed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "_progress/silver.dlq_records.json"
KINDS = ["directory", "hadoop", "objects"]


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store of a kind; objects are held in memory, whose times are not rounded."""
    place = tmp_path / "a 'warehouse'"
    if request.param == "hadoop":
        request.getfixturevalue("spark")
        return locations.of(place.as_uri().replace("%20", " ").replace("%27", "'"))
    if request.param == "objects":
        memory = MemoryStore()
        monkeypatch.setattr(connection, "opened", lambda root: memory)
        monkeypatch.setattr(lease, "GRAIN", 0.0)
        return locations.of("s3a://b/w")
    return locations.of(str(place))


def kinds(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("store", names or KINDS, indirect=True)


@kinds()
def test_a_file_is_read_as_it_was_written_last_and_absent_ones_are_none(store: Store) -> None:
    assert store.is_empty()
    assert (store.read(NAME), store.text(NAME), store.has(NAME)) == (None, None, False)
    assert store.names("_progress") == []
    for text in ("{}", '{"text": "\u00e4 \U0001f600"}', ""):
        store.write(NAME, text.encode())
        assert store.text(NAME) == text
    assert store.has(NAME)
    assert not store.is_empty()
    store.remove(NAME)
    store.remove(NAME)
    assert store.read(NAME) is None


@kinds()
def test_a_list_has_what_is_directly_in_a_directory_in_order(store: Store) -> None:
    for name in ("b", "a", "below/c", "below/deeper/d"):
        store.write(f"t/{name}", b"123")
    store.write("t-other/e", b"")
    assert store.names("t") == ["a", "b", "below"]
    assert [(file.name, file.size) for file in store.files("t")] == [("a", 3), ("b", 3)]
    assert store.names("t/below") == ["c", "deeper"]


@kinds("directory", "hadoop")
def test_a_file_whose_writing_is_cut_off_keeps_its_text(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write(NAME, b"old")

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(hadoop, "bytearray", killed, raising=False)
        patched.setattr(directory.os, "fsync", killed)
        with pytest.raises(Killed):
            store.write(NAME, b"new")
    assert store.text(NAME) == "old"
    store.write(NAME, b"new")
    assert store.text(NAME) == "new"


@kinds("directory", "objects")
def test_a_lock_is_held_by_one_and_free_when_it_ends(store: Store) -> None:
    assert not store.is_locked("x/.lock")
    with store.lock("x/.lock", "a test") as is_first:
        assert is_first
        assert store.is_locked("x/.lock")
        with store.lock("x/.lock", "another") as is_second:
            assert not is_second
        with store.lock("y/.lock", "elsewhere") as is_other:
            assert is_other
        assert store.is_locked("x/.lock")
    assert not store.is_locked("x/.lock")
    with store.lock("x/.lock", "a test") as is_first:
        assert is_first


@kinds("directory", "objects")
def test_who_waits_gets_a_lock_when_its_holder_ends(store: Store) -> None:
    taken, ended = threading.Event(), threading.Event()

    def hold() -> None:
        with store.lock(".lock", "the first"):
            taken.set()
            ended.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    assert taken.wait(20)
    threading.Timer(0.3, ended.set).start()
    with store.lock(".lock", "the second", wait_seconds=20) as is_held:
        assert is_held
        assert ended.is_set()
    holder.join()


@kinds("objects")
def test_who_lost_a_lock_writes_nothing_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "LEASE_SECONDS", 0.2)
    monkeypatch.setattr(lease.Lease, "_renew", lambda self: None)
    with store.lock("x/.lock", "the first") as is_first:
        store.write("x/state", b"1")
        time.sleep(0.3)
        with store.lock("x/.lock", "the second") as is_second:
            assert (is_first, is_second) == (True, True)
        with pytest.raises(WriterBusy, match="was not renewed in time"):
            store.write("x/state", b"2")
        with pytest.raises(WriterBusy):
            store.checked()
    store.write("x/state", b"3")
    assert store.read("x/state") == b"3"


@kinds("hadoop")
def test_what_only_spark_opens_has_no_locks(store: Store) -> None:
    with pytest.raises(UsageError, match="has no locks"), store.lock(".lock", "a test"):
        pass


@kinds("directory", "objects")
def test_a_fingerprint_changes_with_each_commit_and_when_one_is_written_anew(store: Store) -> None:
    log = "silver/x/_delta_log"
    assert store.fingerprint(log) == ()
    seen = set()
    for name, content in ((f"{0:020}.json", b"1"), (f"{1:020}.json", b"1"), (f"{1:020}.json", b"22")):
        store.write(f"{log}/{name}", content)
        assert store.fingerprint(log) == store.fingerprint(log)
        seen.add(store.fingerprint(log))
    assert len(seen) == 3


@kinds("objects")
def test_pinned_lists_stay_as_they_were_and_end_with_the_block(store: Store) -> None:
    store.write("t/a", b"")
    with store.pinned():
        assert store.names("t") == ["a"]
        store.write("t/b", b"")
        assert store.names("t") == ["a"]
        with store.pinned():
            assert store.names("t") == ["a", "b"]
        assert store.names("t") == ["a"]
    assert store.names("t") == ["a", "b"]


@kinds("objects")
def test_an_object_is_replaced_over_the_version_that_was_read_and_no_other(store: Store) -> None:
    assert isinstance(store, Objects)
    assert store.versioned("x") is None
    first = store.replace("x", b"1", None)
    assert first is not None
    assert store.replace("x", b"2", None) is None
    second = store.replace("x", b"2", first)
    assert second is not None
    assert store.replace("x", b"3", first) is None
    found = store.versioned("x")
    assert found is not None
    assert (found.content, found.version) == (b"2", second)


@kinds("objects")
def test_a_store_that_does_not_answer_is_one_sentence_without_its_words(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise GenericError("the key is hunter2")

    asked: list[Callable[[], object]] = [
        lambda: store.read("x"),
        lambda: store.write("x", b""),
        lambda: store.remove("x"),
        lambda: store.names("x"),
        lambda: store.has("x"),
    ]
    for name in ("get", "put", "delete", "list_with_delimiter", "head"):
        monkeypatch.setattr(obstore, name, fails)
    for ask in asked:
        with pytest.raises(EnvironmentLacking, match=r"^s3://b/w cannot be read and written, as S3 .*") as error:
            ask()
        assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("root", "opens"),
    [
        ("w", True),
        ("s3://b/w", True),
        ("S3A://b/w", True),
        ("gs://b/w", True),
        ("abfss://c@a.dfs.core.windows.net/w", True),
        ("hdfs://n/w", False),
        ("file:///w", False),
    ],
)
def test_a_root_names_its_store(root: str, opens: bool) -> None:
    assert locations.of(root).opens_tables is opens


def test_spark_is_needed_by_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    store = locations.of(tmp_path.as_uri())
    (tmp_path / "silver" / "x" / "_delta_log" / "_staged_commits").mkdir(parents=True)
    assert isinstance(store, hadoop.Hadoop)
    store.remove_empty("silver/x/_delta_log/_staged_commits", "silver/x/_delta_log", "absent")
    assert not (tmp_path / "silver" / "x" / "_delta_log").exists()
