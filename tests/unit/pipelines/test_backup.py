"""Backups and restores of a small warehouse, on a directory and on S3: kills, damage, random histories."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines import backup, moments, restore
from pipelines.catalog import CATALOG
from pipelines.commands import doctor
from pipelines.commands.maintain import maintain
from pipelines.errors import AfterlogError, EnvironmentLacking, UsageError, WriterBusy
from pipelines.replay.journal import Journal
from pipelines.settings import PROJECT, Settings, load
from pipelines.settings.backups import Backup
from pipelines.stores import locations, lock, restored
from pipelines.stores.base import Store
from pipelines.stores.directory import Directory
from pipelines.warehouse import backups
from pipelines.warehouse.outdated import outdated
from pipelines.warehouse.tables import Warehouse
from tests.testing import s3
from tests.testing.backups import (
    INPUT,
    OUTBOX,
    TABLES,
    Killed,
    change,
    filled,
    killed_at,
    lose,
    read_on,
    readable,
    work,
)

BUCKET = "lakehouse"
LONG_AGO = 1_000_000_000


@dataclass(frozen=True)
class Places:
    """A warehouse and a place of backups, each with nothing in it."""

    settings: Settings
    place: str

    @property
    def store(self) -> Store:
        return locations.of(self.settings.warehouse)

    @property
    def backups(self) -> Store:
        return locations.of(self.place)

    def backup(self, keep: int | None = None) -> backup.BackedUp:
        return backup.backup(self.settings, self.place, keep, False, said.append)

    def restore(self, wanted: str | None = None) -> restore.WasRestored:
        return restore.restore(self.settings, self.place, wanted)

    def lose(self) -> None:
        lose(self.store)


said: list[str] = []


@pytest.fixture(autouse=True)
def nothing_said() -> None:
    said.clear()


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with s3.server(BUCKET) as variables:
        yield variables


@pytest.fixture
def here(tmp_path: Path) -> Places:
    return Places(load(warehouse=str(tmp_path / "warehouse"), landing=str(tmp_path)), str(tmp_path / "backups"))


@pytest.fixture(params=["directory to S3", "S3 to directory", "S3 to S3"])
def abroad(
    request: pytest.FixtureRequest, server: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Places:
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    item, other = (
        f"s3://{BUCKET}/{tmp_path.name}/{name}" if kind == "S3" else str(tmp_path / name)
        for kind, name in zip(request.param.split(" to "), ("warehouse", "backups"), strict=True)
    )
    return Places(load(warehouse=item, landing=str(tmp_path)), other)


def test_a_lost_warehouse_comes_back(here: Places) -> None:
    before = readable(filled(here.settings))
    made = here.backup()
    here.lose()
    done = here.restore()
    assert (done.backup, done.files, done.kept_files) == (made.backup, made.files, 0)
    assert readable(Warehouse(here.settings)) == before
    mark = restored.found(here.store)
    assert mark is not None
    assert not mark.is_half
    last = backups.last_of(here.store)
    assert last is not None
    assert (last.backup, last.place) == (made.backup, here.place)


def test_it_comes_back_from_and_to_other_kinds_of_stores(abroad: Places, tmp_path: Path) -> None:
    before = readable(filled(abroad.settings))
    assert not lock.holder(abroad.settings.warehouse)
    first = abroad.backup()
    assert first.copied_files
    assert abroad.backup(keep=1).copied_files == 0
    assert len(backups.known(abroad.backups)) == 1
    abroad.lose()
    abroad.restore()
    assert readable(Warehouse(abroad.settings)) == before
    elsewhere = replace(abroad, settings=load(warehouse=str(tmp_path / "elsewhere"), landing=str(tmp_path)))
    elsewhere.restore()
    assert readable(Warehouse(elsewhere.settings)) == before
    broken = backups.sizes(abroad.backups).popitem()[0]
    abroad.backups.write(f"{backups.FILES}/{broken}", b"")
    abroad.lose()
    with pytest.raises(UsageError, match=broken):
        abroad.restore()


def test_all_that_a_warehouse_keeps_belongs_to_the_backup(here: Places) -> None:
    warehouse = filled(here.settings)
    warehouse.store.write("_progress/follow.json", b"{}")
    warehouse.store.write("_staged/silver.dlq_records/part.parquet", b"rows")
    warehouse.store.write("_reports/index.html", b"page")
    warehouse.store.write("_of_tomorrow/deep/within.json", b"{}")
    here.backup()
    (name,) = backups.known(here.backups)
    kept = backups.read(here.backups, name).files
    root = Path(here.settings.warehouse)
    there = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    live = set(kept)
    left = {path for path in there - live if not path.endswith(".lock")}
    old = {path for path in left if path.endswith(".parquet") and path.split("/")[0] != "_staged"}
    assert left - old == {
        "_progress/follow.json",
        "_staged/silver.dlq_records/part.parquet",
        "_reports/index.html",
        backups.NOTE,
    }
    assert "_of_tomorrow/deep/within.json" in kept
    assert OUTBOX in kept
    for table in TABLES:  # old versions' files alone are left out
        place = f"{warehouse.table_path(table)}/"
        of_table = {path.removeprefix(place) for path in old if path.startswith(place)}
        assert of_table <= {*outdated(warehouse, table, CATALOG, 0).paths}


def test_a_second_backup_copies_only_what_is_new(here: Places) -> None:
    warehouse = filled(here.settings)
    first = here.backup()
    count = len(backups.sizes(here.backups))
    assert first.copied_files == count
    again = here.backup()
    assert (again.copied_files, again.files) == (0, first.files)
    change(warehouse, INPUT, "append", [7])
    dry = backup.backup(here.settings, here.place, None, True, said.append)
    assert (dry.backup, dry.copied_files) == (None, 2)  # a data file and a commit
    assert len(backups.known(here.backups)) == 2
    assert here.backup().copied_files == 2
    assert len(backups.sizes(here.backups)) == count + 2


def test_the_newest_backup_is_the_last_one_though_the_clock_went_back(
    here: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(here.settings)
    here.backup()
    at = moments.now()
    names = []
    for hours in (1, 9_000, 5, -1):
        monkeypatch.setattr(moments, "now", lambda hours=hours: at - timedelta(hours=hours))
        work(Warehouse(here.settings), random.Random(hours), 3)
        names.append(here.backup(keep=2).backup)
        assert backups.known(here.backups)[-1:] == names[-1:]
        assert backups.named(here.backups, None) == names[-1]
        assert backups.read(here.backups, names[-1]).taken_at == moments.now()
    assert backups.known(here.backups) == names[-2:]


def test_unchanged_files_are_not_read_again(here: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(here.settings)
    here.backup()
    read: list[str] = []
    of_directory = Directory.read

    def reading(store: Directory, name: str) -> bytes | None:
        if store.root == here.settings.warehouse:
            read.append(name)
        return of_directory(store, name)

    monkeypatch.setattr(Directory, "read", reading)
    here.backup()
    assert not [name for name in read if name.endswith(".parquet")]


def test_files_that_no_backup_names_go(here: Places) -> None:
    warehouse = filled(here.settings)
    item = here.backup().backup
    change(warehouse, INPUT, "overwrite", [1])
    change(warehouse, INPUT, "overwrite", [2])
    before = readable(warehouse)
    elsewhere = replace(here, settings=here.settings.model_copy(update={"warehouse": f"{here.settings.warehouse}-2"}))
    filled(elsewhere.settings, 5)
    other = elsewhere.backup().backup
    here.backups.write(f"{backups.FILES}/.half.1.tmp", b"half")
    last = here.backup(keep=1)
    assert last.removed_backups == (item,)
    assert {*backups.known(here.backups)} == {other, last.backup}
    named = [backups.read(here.backups, name) for name in backups.known(here.backups)]
    assert not backups.unnamed(here.backups, named)
    assert not [path for item in named for path in backups.damaged(here.backups, item.files)]
    for place, name in ((here, last.backup), (elsewhere, other)):
        place.lose()
        place.restore(name)
    assert readable(Warehouse(here.settings)) == before


@pytest.mark.parametrize(
    ("asked", "place", "result"),
    [
        (("s3://a/b", None), "s3://c/d", ("s3://a/b", None)),
        (("s3://a/b", 2), None, ("s3://a/b", 2)),
        ((None, None), "s3://c/d", ("s3://c/d", 3)),
        ((None, 1), "/backups", ("/backups", 1)),
        ((None, None), "backups", (str(PROJECT / "backups"), 3)),
    ],
)
def test_the_settings_name_a_place(
    asked: tuple[str | None, int | None], place: str | None, result: tuple[str, int | None]
) -> None:
    assert backup.chosen(load(backup={"to": place, "keep": 3}), *asked) == result


def test_without_a_place_or_a_backup_that_stays_it_says_so(settings: Settings) -> None:
    for asked, said in (((None, None), r"under \[backup\]"), (("a", 0), "--keep 0 is refused")):
        with pytest.raises(UsageError, match=said):
            backup.chosen(settings, *asked)


def test_the_doctor_warns_of_a_last_backup_that_is_too_old(here: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = here.settings.model_copy(update={"backup": Backup(to=here.place, every_hours=6)})
    filled(wanted)

    def states(settings: Settings) -> list[tuple[str, str]]:
        found = doctor.diagnose(settings)
        return [(named.state, named.finding[:21]) for named in found if named.name == "backups"]

    assert (states(here.settings), states(wanted)) == ([], [("warning", "There is none yet in ")])
    here.backup()
    assert states(wanted) == [("ok", "The last one was take")]
    at = moments.now()
    for hours, state in ((11, "ok"), (13, "warning")):
        monkeypatch.setattr(moments, "now", lambda hours=hours: at + timedelta(hours=hours))
        assert [item for item, _ in states(wanted)] == [state]
        assert [item for item, _ in states(here.settings)] == ["ok"]


def test_a_kill_at_any_step_leaves_a_backup_that_a_rerun_completes(here: Places) -> None:
    warehouse = filled(here.settings)
    change(warehouse, "gold.dlq_summary", "overwrite", [77])  # a file that no other table has
    first = here.backup()
    change(warehouse, INPUT, "append", [4, 5])
    change(warehouse, "gold.dlq_summary", "overwrite", [6])  # files of the first backup go with it
    before = readable(warehouse)
    steps = 0
    while True:
        trial = replace(here, place=f"{here.place}-{steps}")
        shutil.copytree(here.place, trial.place)
        with killed_at(steps) as written:
            try:
                trial.backup(keep=1)
                break
            except Killed:
                steps += 1
        known = backups.known(trial.backups)
        assert known  # an older or the new one can be restored
        for name in known:
            assert not backups.damaged(trial.backups, backups.read(trial.backups, name).files)
        was_made = any(path.startswith(backups.MANIFESTS) for path in written)
        assert was_made == (known != [first.backup])
        done = trial.backup(keep=1)
        assert backups.known(trial.backups) == [done.backup]
        assert not backups.unnamed(trial.backups, [backups.read(trial.backups, str(done.backup))])
    assert steps > 4
    here.backup()
    here.lose()
    here.restore()
    assert readable(Warehouse(here.settings)) == before


def test_a_kill_at_any_step_of_a_restore_is_gone_on_with(here: Places) -> None:
    before = readable(filled(here.settings))
    older = here.backup().backup
    newer = here.backup().backup
    here.lose()
    steps = 0
    while True:
        with killed_at(steps):
            try:
                here.restore(older)
                break
            except Killed:
                steps += 1
        if steps > 1:  # the mark is there
            with pytest.raises(EnvironmentLacking, match=str(older)):
                restored.refuse_half(here.store)
            with pytest.raises(EnvironmentLacking), lock.writer(here.settings, "afterlog run"):
                raise AssertionError
            with pytest.raises(UsageError, match=str(older)):
                here.restore(newer)
            found = [check for check in doctor.diagnose(here.settings) if check.name == "backups"]
            assert [check.state for check in found] == ["error"]
            half = here.settings.model_copy(update={"warehouse": f"{here.settings.warehouse}-{steps}"})
            shutil.copytree(here.settings.warehouse, half.warehouse)
            assert restore.restore(half, here.place, None).backup == older
            assert readable(Warehouse(half)) == before
            shutil.rmtree(half.warehouse)
    assert steps > 5  # an attempt goes on with what the ones before it wrote
    assert readable(Warehouse(here.settings)) == before


def test_nothing_is_restored_over_another_warehouse(here: Places) -> None:
    filled(here.settings)
    here.backup()
    before = readable(Warehouse(here.settings))
    with pytest.raises(UsageError, match="is not empty"):
        here.restore()
    assert readable(Warehouse(here.settings)) == before
    assert restored.found(here.store) is None
    here.lose()
    here.restore()
    with pytest.raises(UsageError, match="is not empty"):
        here.restore()


@pytest.mark.parametrize("damage", ["missing", "cut off", "flipped", "manifest", "no backup", "unknown"])
def test_a_damaged_backup_is_told_by_file(here: Places, damage: str) -> None:
    filled(here.settings)
    made = here.backup()
    here.lose()
    name = max((size, name) for name, size in backups.sizes(here.backups).items())[1]
    path = f"{backups.FILES}/{name}"
    content = here.backups.read(path) or b""
    if damage == "missing":
        here.backups.remove(path)
    elif damage == "cut off":
        here.backups.write(path, content[:-1])
    elif damage == "flipped":
        here.backups.write(path, content[:9] + bytes([content[9] ^ 1]) + content[10:])
    elif damage == "no backup":
        here.backups.remove(backups.file_of(str(made.backup)))
        path = "no backup"
    elif damage == "manifest":
        path = backups.file_of(str(made.backup))
        here.backups.write(path, (here.backups.read(path) or b"").replace(b"gold", b"bold", 1))
    wanted = "2020" if damage == "unknown" else None
    with pytest.raises(UsageError) as raised:
        here.restore(wanted)
    assert raised.value.exit_code == 2
    assert {"unknown": str(made.backup)}.get(damage, path) in str(raised.value)
    assert not [name for name in here.store.names("") if name in {table.partition(".")[0] for table in TABLES}] or (
        damage == "flipped"
    )
    if damage == "flipped":  # what is there is not worked on, and a repaired backup is gone on with
        with pytest.raises(EnvironmentLacking):
            restored.refuse_half(here.store)
        here.backups.write(path, content)
        here.restore()


def test_a_backup_copies_again_what_is_cut_off(here: Places) -> None:
    before = readable(filled(here.settings))
    here.backup()
    name = next(iter(backups.sizes(here.backups)))
    here.backups.write(f"{backups.FILES}/{name}", b"")
    assert here.backup().copied_files == 1
    here.lose()
    here.restore()
    assert readable(Warehouse(here.settings)) == before


def test_a_damaged_manifest_keeps_its_files(here: Places) -> None:
    warehouse = filled(here.settings)
    damaged = str(here.backup().backup)
    here.backups.write(backups.file_of(damaged), b"{}")
    change(warehouse, INPUT, "overwrite", [1])
    count = len(backups.sizes(here.backups))
    with pytest.raises(UsageError, match=damaged):
        here.backup(keep=1)
    assert len(backups.sizes(here.backups)) >= count
    assert here.backup().backup
    assert [sentence for sentence in said if damaged in sentence]


def test_a_path_never_leaves_the_warehouse(here: Places) -> None:
    filled(here.settings)
    made = backups.read(here.backups, str(here.backup().backup))
    kept = next(iter(made.files.values()))
    for path in ("../outside", "gold/../../outside", "/outside", "gold//x", "."):
        hostile = replace(made, files={path: kept})
        here.backups.write(backups.file_of(backups.id_of(hostile, ())), hostile.content())
        with pytest.raises(UsageError, match="damaged"):
            backups.read(here.backups, backups.id_of(hostile, ()))


def test_a_backup_of_a_later_afterlog_is_refused(here: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(here.settings)
    with monkeypatch.context() as patched:
        patched.setattr(backups, "FORMAT", 2)
        here.backup()
    here.lose()
    with pytest.raises(UsageError, match="in format 2"):
        here.restore()


def test_nothing_goes_that_is_still_to_copy(here: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = filled(here.settings)
    for path in Path(here.settings.warehouse).rglob("*.parquet"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    taken = backup._taken
    tried: list[AfterlogError] = []

    def taking(of: Warehouse) -> Any:
        found = taken(of)
        with pytest.raises(WriterBusy) as busy:
            list(maintain(of.settings, 0, False, said.append))
        tried.append(busy.value)
        with lock.writer(of.settings, "afterlog run"):  # a writer goes on
            change(warehouse, INPUT, "overwrite", [9])
        return found

    before = readable(warehouse)
    monkeypatch.setattr(backup, "_taken", taking)
    assert here.backup().files
    assert len(tried) == 1
    after = readable(warehouse)
    assert after != before
    here.lose()
    here.restore()
    assert readable(Warehouse(here.settings)) == before


def test_what_would_be_copied_is_told_while_a_writer_works(here: Places) -> None:
    settings = here.settings.model_copy(update={"lock": here.settings.lock.model_copy(update={"wait_seconds": 0.1})})
    filled(settings)
    with lock.writer(settings, "afterlog run"):
        would = backup.backup(settings, here.place, None, True, said.append)
        with pytest.raises(WriterBusy):
            backup.backup(settings, here.place, None, False, said.append)
    made = here.backup()
    assert (would.backup, would.tables, would.files, would.bytes) == (None, made.tables, made.files, made.bytes)


def test_a_file_that_went_meanwhile_is_told_and_the_backup_begins_anew(
    here: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = filled(here.settings)
    taken, times = backup._taken, iter(range(9))

    def taking(of: Warehouse) -> Any:
        found = taken(of)
        if next(times) == 0:
            change(warehouse, INPUT, "overwrite", [9])
            for _ in range(4):  # the stage reads all that is new
                read_on(warehouse)
            for path in outdated(warehouse, INPUT, CATALOG, 0).paths:
                warehouse.store.remove(f"{warehouse.table_path(INPUT)}/{path}")
        return found

    monkeypatch.setattr(backup, "_taken", taking)
    here.backup()
    assert len(said) == 1
    assert said[0].endswith("begins anew with what is there now.")
    (missing,) = (file.name for file in warehouse.store.files("bronze/dlq_records") if file.name.endswith("parquet"))
    warehouse.store.remove(f"bronze/dlq_records/{missing}")
    with pytest.raises(EnvironmentLacking, match=missing):
        here.backup()


def test_two_backups_at_once_are_refused(here: Places) -> None:
    settings = here.settings.model_copy(update={"lock": here.settings.lock.model_copy(update={"wait_seconds": 0.1})})
    filled(settings)
    for store in (here.backups, here.store):
        with store.lock(backups.LOCK, "another"), pytest.raises(WriterBusy):
            backup.backup(settings, here.place, None, False, said.append)


@pytest.mark.parametrize(
    "place", ["{warehouse}", "{warehouse}/backups", "{warehouse}/../absent/b", "hdfs://n/b", "{file}"]
)
def test_a_place_that_cannot_be_one_is_refused(here: Places, place: str, tmp_path: Path) -> None:
    filled(here.settings)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UsageError):
        replace(here, place=place.format(warehouse=here.settings.warehouse, file=file)).backup()


def test_a_journal_does_not_claim_to_know_what_happened_since(here: Places) -> None:
    filled(here.settings)
    with Journal.of(here.settings) as journal:
        knew_since = journal.since
        untouched = journal.status("untouched")
    assert untouched is not None
    assert untouched.is_untouched
    here.backup()
    content = here.store.read("_replay/journal.db")
    here.lose()
    here.restore()
    mark = restored.found(here.store)
    assert mark is not None
    with Journal.of(here.settings) as journal:
        assert knew_since < mark.began_at <= journal.since
        plan = journal.status("untouched")
        assert plan is not None
        assert not plan.is_untouched
        assert journal.claims([]) == {}
    assert content


@pytest.mark.parametrize("seed", range(12))
def test_any_history_comes_back_as_it_was(here: Places, seed: int) -> None:
    drawn = random.Random(seed)
    warehouse = filled(here.settings, seed)
    known: dict[str, dict[str, Any]] = {}
    for _ in range(drawn.randrange(8, 20)):
        what = drawn.choice(("work", "work", "maintain", "backup", "backup", "restore"))
        if what == "work":
            work(warehouse, drawn, drawn.randrange(1, 4))
        elif what == "maintain":
            for path in Path(here.settings.warehouse).rglob("*.parquet"):
                os.utime(path, (LONG_AGO, LONG_AGO))
            before = readable(warehouse)
            list(maintain(here.settings, 0, False, said.append))
            assert readable(warehouse) == before
        elif what == "backup":
            made = here.backup(keep=drawn.choice((None, 1, 2)))
            known[str(made.backup)] = readable(warehouse)
        elif known:
            here.lose()
            wanted = drawn.choice(backups.known(here.backups))
            here.restore(wanted)
            assert readable(warehouse) == known[wanted]
    assert not said or all("still to read" in sentence for sentence in said)
    assert json.loads(json.dumps(sorted(known)))[-1:] == backups.known(here.backups)[-1:]
