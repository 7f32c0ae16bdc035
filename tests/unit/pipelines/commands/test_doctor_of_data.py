"""Findings of `afterlog doctor` and `afterlog report` about data: real Delta tables, written without Spark."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from arro3.core import Array, DataType, Table
from deltalake import write_deltalake

from pipelines import cli
from pipelines.catalog import CATALOG
from pipelines.commands import doctor
from pipelines.commands.check import Check
from pipelines.commands.doctor import landing, machine
from pipelines.run import newest
from pipelines.settings import LANDING_DIRECTORIES, Settings, load
from pipelines.site import report
from pipelines.sources.logs import unknown
from pipelines.warehouse import progress
from pipelines.warehouse.progress import Held, Progress
from pipelines.warehouse.tables import Warehouse
from tests.testing.deliveries import store

BRONZE, SILVER, QUARANTINE = "bronze.dlq_records", "silver.dlq_records", "quarantine.dlq_records"
NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)


class Said(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Said]


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Airflow, no AFTERLOG variables of the user; ages count from the test's start."""
    monkeypatch.setitem(globals(), "NOW", datetime.now(UTC))
    monkeypatch.setattr(machine, "AIRFLOW_HOME", tmp_path / "airflow")
    for name in [name for name in os.environ if name.startswith("AFTERLOG_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(machine, "check_airflow", lambda _: ())


@pytest.fixture
def settings(settings: Settings) -> Settings:
    for place in (settings.warehouse, settings.landing):
        Path(place).mkdir(exist_ok=True)
    return settings


@pytest.fixture
def afterlog(settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command in this process."""

    def run(*words: str) -> Said:
        places = ["--warehouse", settings.warehouse, "--landing", settings.landing]
        monkeypatch.setattr("sys.argv", ["afterlog", *words, *places])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int | None)
        return Said(ended.value.code or 0, *capsys.readouterr())

    return run


def checks(afterlog: Command) -> tuple[int, dict[str, Check]]:
    """The exit code of the doctor, and its findings about data by name."""
    said = afterlog("doctor", "--format", "json")
    found = [Check(**json.loads(text)) for text in said.out.splitlines()]
    named = {
        named.name: named
        for named in found
        if re.match(r"landing |files of |quarantine|cleanup|dead-letter|silver", named.name)
    }
    return said.code, named


def written(settings: Settings, table: str, *rows: dict[str, Any]) -> None:
    """Create a table, then append rows to it, as runs do."""
    store(settings, table)
    layer = table.partition(".")[0]
    known = {"cluster": settings.cluster} | ({"_ingested_at": NOW} if layer == "bronze" else {})
    store(settings, table, *(known | row for row in rows))


def dead_letters(settings: Settings, *ages: timedelta) -> None:
    written(settings, BRONZE, *({"timestamp": NOW - age} for age in ages))
    written(settings, SILVER, *({"routed_at": NOW - age} for age in ages))


def file(settings: Settings, feed: str, name: str, content: bytes) -> Path:
    path = settings.landing_of(feed) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_feeds_that_nobody_set_up_are_a_grey_line_each_and_all_is_well(
    settings: Settings, afterlog: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    said = afterlog("doctor")
    code, found = checks(afterlog)

    assert (said.code, code) == (0, 0)
    assert {item.state for name, item in found.items() if name.startswith("landing ")} == {"ok"}
    assert all(check.finding.startswith("not set up: put files of ") for check in found.values())
    assert re.search(r"^(All is ok|No errors; \d+ warnings?)\.$", said.out, re.MULTILINE)


def test_the_age_of_each_feed_in_use_is_told(settings: Settings, afterlog: Command) -> None:
    dead_letters(settings, 33 * HOUR, 32 * HOUR)
    file(settings, "broker-logs", "server.log", b"x")

    code, found = checks(afterlog)

    assert code == 0
    assert (found["landing dlq"].state, found["landing broker-logs"].state) == ("ok", "ok")
    at = newest.moment(NOW - 32 * HOUR)
    assert found["landing dlq"].finding.startswith(f"The newest record is 32 hours old ({at}); ")
    assert "No event yet; " in found["landing broker-logs"].finding
    assert "1 file, 1 byte, to be read." in found["landing broker-logs"].finding
    assert found["landing segments"].state == "ok"


def test_a_feed_that_fell_silent_needs_a_look(settings: Settings, afterlog: Command) -> None:
    dead_letters(settings, *(32 * HOUR + timedelta(minutes=10 * index) for index in range(40)))

    code, found = checks(afterlog)
    said = afterlog("doctor")

    check = found["landing dlq"]
    assert (code, check.state) == (1, "error")
    assert "It fell silent, and it never paused longer than 10 minutes before: the newest record" in check.finding
    assert "[silence] after_hours, such as dlq = 64." in (check.remedy or "")
    assert "Errors in landing dlq" in said.out
    told = load(warehouse=settings.warehouse, landing=settings.landing, silence={"after_hours": {"dlq": 64}})
    assert landing._feed(Warehouse(told), next(stage for stage in CATALOG if stage.table == BRONZE)).state == "ok"


def test_of_a_warehouse_by_uri_nothing_is_claimed_that_only_a_session_can_tell(settings: Settings) -> None:
    dead_letters(settings, HOUR)
    file(settings, "dlq", "a.jsonl", b"read long ago")
    by_uri = settings.model_copy(update={"warehouse": "hdfs://elsewhere/warehouse"})

    found = {named.name: named for named in doctor.diagnose(by_uri)}

    assert found["landing dlq"].finding.startswith(f"{settings.landing_of('dlq')}: 1 file, 13 bytes. Only a session")
    for feed in LANDING_DIRECTORIES:
        assert found[f"landing {feed}"].state == "ok"
        assert not re.search("not set up|no record|to be read", found[f"landing {feed}"].finding, re.IGNORECASE)


def test_a_landing_directory_that_cannot_be_read_hides_no_other_feed(settings: Settings, afterlog: Command) -> None:
    file(settings, "", "producers", b"")

    code, found = checks(afterlog)

    assert (code, found["landing producers"].state) == (3, "error")
    assert {f"landing {feed}" for feed in LANDING_DIRECTORIES} <= found.keys()


def test_quarantined_rows_need_a_look(settings: Settings, afterlog: Command) -> None:
    dead_letters(settings, HOUR)
    rules = ["error.readable", "disposition.one_of"]
    rows = [{"violations": rules[: 1 + place % 2], "_source": f"f{place % 5}\x1b[2J.jsonl"} for place in range(11)]
    written(settings, QUARANTINE, *rows, {"violations": rules, "cluster": "elsewhere", "_source": "x"})

    code, found = checks(afterlog)
    said = afterlog("doctor")

    check = found[QUARANTINE]
    assert (code, check.state) == (1, "error")
    assert check.finding.startswith(
        "11 rows in quarantine. By rule: error.readable 11, disposition.one_of 5. By source: "
    )
    assert check.finding.endswith(" and 2 more.")
    assert f"afterlog readmit {SILVER}" in (check.remedy or "")
    assert "\x1b" not in said.out
    assert f"Errors in {QUARANTINE}" in said.out


@pytest.mark.parametrize("content", [None, b"PAR1"])
def test_data_files_that_are_missing_or_damaged_are_told(
    content: bytes | None, settings: Settings, afterlog: Command
) -> None:
    dead_letters(settings, *(32 * HOUR + timedelta(minutes=10 * index) for index in range(40)))
    written(settings, QUARANTINE, {"violations": ["header_profile.not_null"], "_source": "a.jsonl"})
    tables = (BRONZE, SILVER, QUARANTINE)
    for table in tables:
        for path in Path(settings.warehouse, *table.split(".")).glob("*.parquet"):
            path.unlink()
            if content is not None:
                path.write_bytes(content)

    said = afterlog("doctor", "--format", "json")
    found = [Check(**json.loads(text)) for text in said.out.splitlines()]

    told = {named.name for named in found if named.state == "error" and "missing or damaged" in named.finding}
    assert told == set(tables)
    assert {item.newest.feed for item in report.feeds_of(Warehouse(settings))} == set(LANDING_DIRECTORIES)


def test_a_file_that_is_no_segment_is_not_called_damaged(settings: Settings, afterlog: Command) -> None:
    for name in ("dump.txt", "readme.txt", "_prices-0/0.log"):
        file(settings, "segments", name, b"x")
    wrong = {"dump.txt": "dump_text", "readme.txt": "not_a_segment", "_prices-0/0.log": "wrong_crc", "gone": "packed"}
    text, place = DataType.string(), Warehouse(settings).location("bronze.record_batches")
    rows = {"cluster": Array(["default"] * 4, text), "_source": Array([*wrong], text)}
    rows |= {"version": Array([1] * 4, DataType.int32()), "error": Array([*wrong.values()], text)}
    for rows_of_a_commit in (Table.from_pydict(rows).slice(0, 0), Table.from_pydict(rows)):
        write_deltalake(place, rows_of_a_commit, mode="append")

    code, found = checks(afterlog)

    check = found["files of segments"]
    assert (code, check.state) == (1, "error")
    assert check.finding == (
        "3 files cannot be read, or not to the end. _prices-0/0.log: wrong_crc. dump.txt: it is the text of"
        " kafka-dump-log. readme.txt: it is no segment by its path."
    )
    assert (check.remedy or "").startswith("Land each again from its source, under its name in")
    assert "Land the segment that the tool was asked about" in (check.remedy or "")


def test_a_truncated_file_needs_a_look_until_it_landed_whole(settings: Settings, afterlog: Command) -> None:
    whole = gzip.compress(b"".join(os.urandom(64).hex().encode() + b"\n" for _ in range(200)))
    torn = file(settings, "dlq", "torn.jsonl.gz", whole[: len(whole) // 2])
    file(settings, "dlq", "whole.jsonl.gz", whole)
    file(settings, "acknowledgements", "packed.bz2", b"BZ")
    damage = "The gzip file ends too early: land it again from its source."
    gone = {"_source": "gone.gz", "error": damage, "timestamp": NOW}
    unreadable = {"_source": "whole.jsonl.gz", "raw": b"secret", "error": "It is no JSON object."}
    written(settings, BRONZE, {"_source": "torn.jsonl.gz", "error": damage}, gone, unreadable)
    written(settings, "bronze.acknowledgements", {"_source": "packed.bz2", "error": "The file is compressed."})

    code, found = checks(afterlog)

    check = found["files of dlq"]
    assert (code, check.state) == (1, "error")
    assert check.finding == f"1 file cannot be read, or not to the end. torn.jsonl.gz: {damage}"
    assert str(settings.landing_of("dlq")) in (check.remedy or "")
    assert "packed.bz2: The file is compressed." in found["files of acknowledgements"].finding

    torn.write_bytes(whole)
    code, found = checks(afterlog)
    assert (code, "files of dlq" in found) == (1, False)
    (settings.landing_of("acknowledgements") / "packed.bz2").unlink()
    assert checks(afterlog)[0] == 0


def test_a_file_in_no_known_layout_needs_a_look_until_its_layout_is_known(
    settings: Settings, afterlog: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"21/11/2026 02:41:06 INFO said\n" * 3
    file(settings, "broker-logs", "server.log", content)
    file(settings, "broker-logs", "other.log", content.replace(b"21/11/2026", b"2026-11-21"))
    why = f"{unknown.FINDING}3 of 3: the line begins with a date whose day and month are not certain."
    written(
        settings, "bronze.broker_events", *({"_source": f"{item}.log", "error": why} for item in ("server", "other"))
    )

    code, found = checks(afterlog)

    check = found["files of broker-logs"]
    assert (code, check.state, check.finding) == (1, "error", f"1 file is in no known layout. server.log: {why}")
    monkeypatch.setenv("AFTERLOG_BROKER_LOGS__LAYOUT", "%d{dd/MM/yyyy HH:mm:ss} %p %m%n")
    assert checks(afterlog)[1].get("files of broker-logs") is None


def test_a_held_scope_and_what_waits_for_a_broken_table_need_a_look(settings: Settings, afterlog: Command) -> None:
    dead_letters(settings, HOUR)
    written(settings, "gold.message_ledger")
    written(settings, "gold.reconciliation")
    message = "disposition.not_null fails.\nFix the settings or the contract and run again, or accept the rows."
    held = Held(NOW.isoformat(), message, 20, "")
    progress.save(Warehouse(settings), SILVER, Progress(held={"dlq.orders": held}))
    blocked = Progress(blocked_since=NOW.isoformat(), message="It broke.")
    progress.save(Warehouse(settings), "gold.message_ledger", blocked)

    told = {
        row["name"]: row["finding"] for row in map(json.loads, afterlog("doctor", "--format", "json").out.splitlines())
    }
    said = afterlog("doctor")

    assert said.code == 1
    assert (
        told[SILVER] == f"20 rows of dlq.orders are held since {NOW:%Y-%m-%d %H:%M:%S} UTC. disposition.not_null fails."
    )
    assert said.out.count("Fix the settings or the contract") == 1
    assert told["gold.reconciliation"].startswith("Waits for gold.message_counts, gold.message_ledger")
    (summary,) = [text for text in said.out.splitlines() if text.startswith("Errors in ")]
    assert {SILVER, "gold.message_ledger", "gold.reconciliation"} <= set(
        summary.removeprefix("Errors in ").rstrip(".").partition(";")[0].split(", ")
    )


@pytest.mark.parametrize("is_compacted", [None, False])
def test_topics_of_unknown_policy_are_named_while_messages_are_absent(
    is_compacted: bool | None, settings: Settings, afterlog: Command
) -> None:
    written(settings, "silver.topic_policies", {"topic": "checkout", "is_compacted": is_compacted})
    absent = [{"topic": "checkout", "outcome": "ABSENT"}] * 2
    written(settings, "gold.message_ledger", *absent)

    code, found = checks(afterlog)

    assert code == 0
    assert ("cleanup policies" in found) == (is_compacted is None)
    if is_compacted is None:
        check = found["cleanup policies"]
        assert check.state == "warning"
        assert "2 acknowledged messages are absent" in check.finding
        assert "checkout 2" in check.finding
        assert "[[segments.cleanup_policy]]" in (check.remedy or "")


@pytest.mark.parametrize("severity", ["critical", "medium"])
def test_settings_that_would_lose_dead_letters_are_a_warning(
    severity: str, settings: Settings, afterlog: Command
) -> None:
    mistakes = [{"kind": "DLQ_MISSING", "severity": severity}, {"kind": "COPY_OFF", "severity": "medium"}]
    written(settings, "gold.dlq_misconfigurations", *mistakes)

    code, found = checks(afterlog)

    assert code == 0
    assert ("dead-letter settings" in found) == (severity == "critical")
    if severity == "critical":
        check = found["dead-letter settings"]
        assert check.state == "warning"
        assert check.finding.startswith("1 mistake in the settings of groups and topics would lose dead letters")
        assert check.finding.endswith(": DLQ_MISSING 1.")
        assert "`afterlog top`" in (check.remedy or "")


def test_a_damaged_table_does_not_end_the_examination(settings: Settings, afterlog: Command) -> None:
    dead_letters(settings, HOUR)
    table_id, version = Warehouse(settings).state("bronze.dlq_records")
    whole = Progress(target_id=table_id, target_version=version, directory=str(settings.landing_of("dlq")))
    progress.save(Warehouse(settings), "bronze.dlq_records", whole)
    assert [check.state for check in doctor.diagnose(settings) if check.name == "bronze.dlq_records"] == ["ok"]
    logs = sorted((Path(settings.warehouse) / "bronze" / "dlq_records" / "_delta_log").glob("*.json"))
    logs[-1].write_text("{")
    assert [check.state for check in doctor.diagnose(settings) if check.name == "bronze.dlq_records"] == ["error"]
    for log in (Path(settings.warehouse) / "bronze" / "dlq_records" / "_delta_log").glob("*.json"):
        log.write_text("{")
    code, found = checks(afterlog)
    assert code in (1, 3)
    assert found["landing dlq"].finding.startswith("Its tables cannot be read: see `afterlog doctor`; ")
    assert found["landing segments"].state == "ok"
    assert "dlq: its tables cannot be read" in afterlog("report").err


# --- the report ------------------------------------------------------------------------------------------------------


def test_the_report_tells_how_old_each_feed_is(settings: Settings, afterlog: Command) -> None:
    dead_letters(settings, *(32 * HOUR + timedelta(minutes=10 * index) for index in range(40)))

    said = afterlog("report")

    page = Path(said.out.strip()).with_name("quality.html").read_text(encoding="utf-8")
    words = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    at = newest.moment(NOW - 32 * HOUR)
    assert f"dlq silent the newest record is 32 hours old ({at}), it fell silent" in words
    assert f"dlq: the newest record is 32 hours old ({at}); it fell silent" in said.err
    for feed in ("segments", "producers"):
        assert words.count(f"{feed}: not set up: put files of") == 1
        assert f"{feed}: not set up: put files of" in said.err
    assert "silver.dlq_records" in words
    for table in ("gold.topology_current", "bronze.record_batches", "gold.message_ledger", "silver.acknowledgements"):
        assert table not in words
    assert "tables of feeds that are not set up are left out." in words


def test_a_page_that_says_less_of_the_age_than_it_should_is_built_again(settings: Settings) -> None:
    dead_letters(settings, 5 * HOUR)
    feeds = report.feeds_of(Warehouse(settings))
    report.build(Warehouse(settings), feeds=feeds)
    behind = report.freshness(Warehouse(settings))
    assert report.current(Warehouse(settings), behind, feeds)
    (dlq, *others) = feeds
    at = dlq.newest.at
    assert at is not None
    later = report.Feed(newest.Newest("dlq", True, "", at + 9 * HOUR, at, at, at))
    assert report.current(Warehouse(settings), behind, [later, *others]) is None


def test_a_table_that_was_only_created_is_not_behind(settings: Settings) -> None:
    for table in ("silver.producers", "silver.log_batches", "bronze.producers"):
        store(settings, table)
    assert {entry.table for entry in report.freshness(Warehouse(settings)) if entry.behind} == set()
