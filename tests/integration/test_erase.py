"""`afterlog erase`: a person with a marker goes through every feature, is erased, and never comes back."""

from __future__ import annotations

import base64
import json
import re
import secrets
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from pipelines import backup
from pipelines.cli import app
from pipelines.commands import show, trace
from pipelines.commands.erase import erase, plan
from pipelines.commands.erasures import UNDER_WAY, checks
from pipelines.commands.selection import Selector, selector_of
from pipelines.errors import UsageError, WriterBusy
from pipelines.replay import store
from pipelines.replay.actions import drawn, expiries
from pipelines.replay.choice import Choice
from pipelines.replay.judge import Options
from pipelines.run.summaries import rebuild
from pipelines.settings import Settings, load
from pipelines.silver.acknowledgements import RECORD
from pipelines.stage import Summarise
from pipelines.stores import lock
from pipelines.warehouse import backups, jvmless
from pipelines.warehouse.redaction import FIELDS, hash_of
from pipelines.warehouse.tables import Warehouse
from tests.testing import examples, s3
from tests.testing.all_features import WHO, of, places, scanned
from tests.testing.builders import kip_1191, land, line, needed_by, run, tables
from tests.testing.canaries import MARKER, with_marker
from tests.testing.deliveries import acknowledgement

KEY = Selector("key", MARKER.encode())


class Killed(BaseException):
    """Stands for a process that is killed."""


def its_fingerprint(settings: Settings) -> str:
    """The name of the error whose message, and its pattern, name the person: a hash that tells who guesses."""
    found = {
        row["fingerprint"] for row in scanned(settings, "gold.dlq_incidents") if MARKER in (row["error_pattern"] or "")
    }
    (fingerprint,) = found
    assert any("/_alerts/" in name for name in with_marker(places(settings), fingerprint))
    return str(fingerprint)


def counts(settings: Settings) -> dict[str, Any]:
    """How many rows there are, and all numbers, times and flags in gold, but for hashes of values."""
    found: dict[str, Any] = {}
    for table, content in tables(settings).items():
        found[table] = len(content)
        if table.startswith("gold.") and table != "gold.replays":
            facts = ({name: value for name, value in row.items() if is_counted(name, value)} for row in content)
            found[table] = sorted(map(repr, facts))
    return found


def is_counted(name: str, value: object) -> bool:
    return isinstance(value, int | float | datetime) and not name.startswith("attribute")


@pytest.fixture
def settings(all_features: Path, tmp_path: Path) -> Settings:
    shutil.copytree(all_features, tmp_path, dirs_exist_ok=True)
    return of(tmp_path)


def test_a_person_is_in_no_file_and_all_counts_stay(spark: SparkSession, settings: Settings) -> None:
    run(spark, settings, feed=None)  # the copy of the landing directory is a new one
    before = counts(settings)
    fingerprint = its_fingerprint(settings)
    assert {hash_of(WHO)} & {*numbers(tables(settings))}
    planned = plan(settings, KEY)
    assert {table.table for table in planned.tables} >= {"bronze.dlq_records", "silver.dlq_records", "held.dlq_records"}
    assert counts(settings) == before

    done = erase(settings, KEY)

    assert with_marker(places(settings)) == []
    assert with_marker(places(settings), fingerprint) == []
    assert not {hash_of(WHO)} & {*numbers(tables(settings))}
    assert b"Hillside" not in b"".join(map(repr_of, tables(settings).values()))
    assert done.is_done, done.left
    assert (done.records, done.landed) == (4 + 3 + 12, 4)
    assert {(table.table, table.rows) for table in done.tables} == {
        (table.table, table.rows) for table in planned.tables
    }
    assert counts(settings) == before
    assert not Path(settings.warehouse, UNDER_WAY).exists()
    told = jvmless.rows(Warehouse(settings), "quality.erasures", {"erasure_id": done.erasure_id})
    assert {row["table"] for row in told} == {None, *(table.table for table in done.tables)}

    warehouse = Warehouse(settings)
    versions = {table: warehouse.last_version(table) for table in tables(settings)}
    found = run(spark, settings, feed=None)  # nothing is new, and nothing is read again
    assert {stage_run.status for stage_run in found.values()} <= {"held", "idle"}
    assert {table: warehouse.last_version(table) for table in tables(settings)} == versions
    assert counts(settings) == before


def numbers(value: Any) -> Iterator[int]:
    """All whole numbers in nested values."""
    if isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from numbers(item)
    elif isinstance(value, int):
        yield value


def repr_of(content: object) -> bytes:
    return repr(content).encode()


def test_it_never_comes_back(spark: SparkSession, settings: Settings, tmp_path: Path) -> None:
    """New data in the same hours, the same files again, in another form, lost progress, and tables made again."""
    shutil.copytree(settings.warehouse, tmp_path / "control" / "warehouse")
    shutil.copytree(settings.landing, tmp_path / "control" / "landing")
    control = of(tmp_path / "control")
    # As a file under another name, the progress of landing lost, and a record in another form.
    again = Path(settings.landing_of("dlq"), "a.jsonl").read_text().splitlines()
    other_form = json.loads(again[13])  # with blanks, so that it is another line
    for each in (settings, control):
        if each is settings:
            assert erase(each, KEY).is_done
            land(each, {"again.jsonl": [*again[12:19], *again[20:]], "other.jsonl": [json.dumps(other_form)]})
        land(
            each,
            {
                "new.jsonl": [
                    line(40 + number, key=b"k-1", headers=[*kip_1191(offset=40 + number), ("kind", b"order")])
                    for number in range(5)
                ]
            },
        )
        run(spark, each, feed=None)
    assert with_marker(places(settings)) == []
    assert counts(settings) == counts(control)

    for name in ("bronze.dlq_records", "silver.dlq_records"):
        Path(settings.warehouse, "_progress", f"{name}.json").unlink()
    run(spark, settings)
    assert counts(settings) == counts(control)
    with lock.writer(settings, "test"):
        for stage in needed_by("gold.dlq_incidents", "gold.dlq_summary"):
            if isinstance(stage, Summarise):
                rebuild(Warehouse(settings, spark), stage)
    assert with_marker(places(settings)) == []
    assert counts(settings) == counts(control)


def steps_of(settings: Settings) -> list[str]:
    said: list[str] = []
    erase(settings, KEY, said.append)
    return said


LEAST_STEPS = (
    "bronze.dlq_records is ready",
    "progress follows bronze.dlq_records",
    "bronze.dlq_records is committed",
    "others",
    "audited",
)
"""Steps after which an erasure is killed, of each kind, also where the tests that take long do not run."""


def test_a_killed_erasure_is_completed(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after a step, a rerun ends in the state of an undisturbed erasure."""
    monkeypatch.setattr(secrets, "token_hex", lambda size=16: "0f" * size)
    shutil.copytree(settings.warehouse, tmp_path / "whole" / "warehouse")
    whole = of(tmp_path / "whole")
    steps = steps_of(whole)
    expected = tables(whole), erased_by(whole)
    known = {"bronze.dlq_records", "silver.dlq_errors"}
    of_tables = [step for step in steps if "." in step]
    chosen = [step for step in steps if step not in of_tables or known & {*step.split()}]
    assert {*LEAST_STEPS} <= {*chosen}
    chosen = chosen if examples.are_many() else [*LEAST_STEPS]
    for number, step in enumerate(chosen):
        shutil.copytree(settings.warehouse, tmp_path / f"killed-{number}" / "warehouse")
        killed = of(tmp_path / f"killed-{number}")

        def die(said: str, at: str = step) -> None:
            if said == at:
                raise Killed

        with pytest.raises(Killed):
            erase(killed, KEY, die)
        assert ["not done" in check.finding for check in checks(killed)] == [True], step
        with pytest.raises(UsageError):
            erase(killed, Selector("key", b"another"))
        done = erase(killed, KEY)
        assert [*checks(killed)] == []
        assert done.is_done, step
        assert with_marker(places(killed)) == [], step
        assert (tables(killed), erased_by(killed)) == expected, step
        assert not Path(killed.warehouse, UNDER_WAY).exists()


def erased_by(settings: Settings) -> list[Any]:
    """What is noted of the erasure, without times."""
    noted = scanned(settings, "quality.erased_records")
    audited = scanned(settings, "quality.erasures")
    dropped = ("erased_at", "began_at", "finished_at", "file_count")
    return [
        sorted(({name: item for name, item in row.items() if name not in dropped} for row in each), key=repr)
        for each in (noted, audited)
    ]


def test_nothing_is_erased_while_a_backup_copies_it(settings: Settings) -> None:
    before = tables(settings)
    with Warehouse(settings).store.lock(backups.LOCK, "a backup") as is_held:
        assert is_held
        with pytest.raises(WriterBusy, match="backup"):
            erase(settings, KEY)
    assert tables(settings) == before


def test_it_is_gone_from_backups_that_are_named(settings: Settings, tmp_path: Path) -> None:
    place = tmp_path / "backups"

    def back_up(name: str | Path, keep: int | None = 1) -> None:
        backup.backup(settings, str(name), keep=keep, is_dry_run=False, say=print)

    back_up(place, keep=None)
    assert with_marker([place])
    done = erase(settings, KEY, copies=[str(place)])  # of a place where nothing is made anew the proof tells
    assert not done.is_done
    assert all(name.startswith(f"{place}/files/") for name in done.left)
    done = erase(settings, KEY, copies=[str(place)], back_up=back_up)
    assert done.is_done
    assert not with_marker([place])
    assert len([*(place / "manifests").iterdir()]) == 1


def test_a_stage_that_has_still_to_read_is_named(spark: SparkSession, settings: Settings) -> None:
    land(settings, {"late.jsonl": [line(60)]})
    run(spark, settings, "bronze.dlq_records")
    before = tables(settings)
    with pytest.raises(UsageError, match=r"silver.dlq_records has still to read .*bronze.dlq_records.*afterlog run"):
        erase(settings, KEY)
    assert tables(settings) == before


@pytest.mark.parametrize(
    ("selector", "records"),
    [
        (selector_of(None, f"user={MARKER}", None, None), 1),
        (selector_of(None, None, "dlq_offset BETWEEN 12 AND 15 AND dlq_topic = 'dlq.orders'", None), 4),
        (selector_of(None, None, None, "dlq.orders:0:12"), 1),
        (selector_of(None, None, None, "dlq.held:0:3"), 1),
    ],
    ids=["header", "where", "message", "held message"],
)
def test_other_ways_to_name_records(settings: Settings, selector: Selector, records: int) -> None:
    before = counts(settings)
    done = erase(settings, selector)
    assert done.is_done, done.left
    assert done.records == records
    assert counts(settings) == before
    erased = [row for row in scanned(settings, "bronze.dlq_records") if row["value"] == b"erased"]
    assert len(erased) == records


def test_what_producers_were_told_of_a_record_goes_with_it(spark: SparkSession, settings: Settings) -> None:
    """One message is only acknowledged, another is named by its dead letter."""
    messages = {"orders:0:70": "Quarry Lane 70", "dlq.orders:0:72": "Chapel Street 72"}

    def told(offset: int, street: str, **more: str) -> str:
        pairs = {"street": street, "kind": "order"}
        headers = [{"key": name, "value": base64.b64encode(text.encode()).decode()} for name, text in pairs.items()]
        return acknowledgement(
            offset=offset, seconds=offset, headers=[*headers, {"key": "none", "value": None}], **more
        )

    lines = [told(int(street[-2:]), street, note=f"of {street}") for street in (*messages.values(), "Mill Road 71")]
    land(settings, {"more.jsonl": lines}, feed="acknowledgements")
    land(settings, {"more.jsonl": [line(72, value=b"v-72")]})
    run(spark, settings, feed=None)
    before = counts(settings)
    for named, street in messages.items():
        assert hash_of(street.encode()) in {*numbers(scanned(settings, "silver.message_attributes"))}

        done = erase(settings, selector_of(None, None, None, named))

        assert done.is_done, done.left
        assert (done.records, done.acknowledgements) == (int(named.startswith("dlq")), 1)
        assert with_marker(places(settings), street) == []
        assert hash_of(street.encode()) not in {*numbers(tables(settings))}
        (row,) = [row for row in scanned(settings, "silver.acknowledgements") if row["offset"] == int(street[-2:])]
        headers = [(header["key"], header["value"]) for header in row["headers"]]
        assert headers[1:] == [("kind", b"order"), ("none", None)]
        assert with_marker(places(settings), "Mill Road 71") != []
        assert counts(settings) == before

    Path(settings.warehouse, "_progress", "silver.acknowledgements.json").unlink()
    run(spark, settings, feed=None)
    assert counts(settings) == before
    land(settings, {"again.jsonl": lines[:2]}, feed="acknowledgements")
    run(spark, settings, feed=None)
    for street in messages.values():
        assert with_marker(places(settings), street) == []
    assert counts(settings)["silver.acknowledgements"] == before["silver.acknowledgements"]


def test_the_line_of_an_acknowledgement_keeps_what_is_read_of_it() -> None:
    names = set(re.findall(r"(\w+):", RECORD.replace("struct<key: string, value: binary>", "binary")))
    assert {"headers", *FIELDS} == names


def test_plans_and_answers_say_that_a_record_was_erased(settings: Settings) -> None:
    assert erase(settings, KEY).is_done
    warehouse = Warehouse(settings)
    (row,) = store.plans(warehouse)
    assert "were erased" in (expiries(warehouse, [row])[row["plan_id"]] or "")
    draft = drawn(warehouse, Choice(where="dlq_offset BETWEEN 11 AND 12"), Options(again=True), dry_run=True)
    assert {entry.letter.offset: "erased" in entry.reasons for entry in draft.entries} == {11: False, 12: True}
    told = show.answer(warehouse, "dlq.orders:0:12").result
    assert "erased" in told
    assert "its content is gone" in told
    assert "Hillside" not in told
    assert json.loads(show.answer(warehouse, "dlq.orders:0:12", "json").result)["erased_at"]
    assert json.loads(show.answer(warehouse, "dlq.orders:0:11", "json").result)["erased_at"] is None
    assert "erased" in trace.answer(warehouse, "orders:0:12").result


@pytest.mark.parametrize(
    "step",
    [
        *(pytest.param(step, marks=pytest.mark.thorough) for step in (None, "silver.dlq_records is ready")),
        "bronze.dlq_records is committed",
    ],
)
def test_it_is_gone_from_an_object_store(
    all_features: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str | None
) -> None:
    """The same warehouse as objects, also if the erasure is killed and another process goes on."""
    with s3.server("lakehouse") as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AFTERLOG_LOCK__LEASE_SECONDS", "3")
        bucket = s3.store("lakehouse", variables)
        s3.upload(all_features / "warehouse", bucket, "w")
        settings = load(warehouse="s3://lakehouse/w", report={"directory": str(tmp_path / "reports")})
        before = counts(of(all_features))

        def die(said: str) -> None:
            if said == step:
                raise Killed

        if step is not None:
            with pytest.raises(Killed):
                erase(settings, KEY, die)
        done = erase(settings, KEY)

        assert done.is_done, done.left
        s3.download(bucket, tmp_path / "copied")
        assert counts(load(warehouse=str(tmp_path / "copied" / "w"))) == before
        assert with_marker([tmp_path / "copied"]) == []
        assert len([*(tmp_path / "copied").rglob("*.json")]) > 10


def test_the_command_shows_nothing_of_what_it_erases(settings: Settings, tmp_path: Path) -> None:
    place = ["--warehouse", settings.warehouse, "--landing", settings.landing]
    secret = tmp_path / "key.txt"
    secret.write_text(f"{MARKER}\n")
    before = tables(settings)
    would = CliRunner().invoke(app, ["erase", "--key", f"@{secret}", "--dry-run", *place])
    assert (would.exit_code, tables(settings) == before) == (0, True)
    refused = CliRunner().invoke(app, ["erase", "--key", "-", *place], input=f"{MARKER}\n")  # nobody answers
    assert (refused.exit_code != 0, tables(settings) == before) == (True, True)
    twice = CliRunner().invoke(app, ["erase", "--key", MARKER, "--message", "dlq.orders:0:1", *place])
    assert isinstance(twice.exception, UsageError)
    wrong = CliRunner().invoke(app, ["erase", "--where", f"no_column = '{MARKER}'", "--yes", *place])
    assert isinstance(wrong.exception, UsageError)
    name = CliRunner().invoke(app, ["erase", "--header", "kind=orders", "--yes", *place])  # a topic has that name
    assert "name of a topic" in str(name.exception)
    assert tables(settings) == before
    monkeyed = Path(settings.warehouse, UNDER_WAY)
    assert not monkeyed.exists()
    done = CliRunner().invoke(app, ["erase", "--key", "-", "--yes", "--format", "json", *place], input=f"{MARKER}\n")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["left"] == []
    again = CliRunner().invoke(app, ["erase", "--key", f"@{secret}", "--yes", *place])
    assert "0 records" in again.stdout
    for item in (would, refused, twice, wrong, name, done, again):
        assert MARKER not in f"{item.output}{item.exception}"
