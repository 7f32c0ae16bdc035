"""The demo: what it lands, what it shows about a run, and which warehouses it refuses."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from local import live
from local.bundled import land, land_week
from local.demo import (
    NO_TOPICS,
    NOTE,
    _check,
    _close_the_captures,
    _live_broker,
    _show_live,
    _show_unchanged,
    _table_of,
    _table_of_feeds,
    delta_log,
    week_ends,
)
from local.kafka_client import Record
from local.live import Happened
from pipelines.broker import Broker
from pipelines.commands.incidents import reading
from pipelines.errors import ContractBroken, EnvironmentLacking, UsageError
from pipelines.settings import Kafka, Settings, kafka_connections, load
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing.deliveries import store
from tests.testing.sites import incident, incident_id


def records(file: Path) -> int:
    content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return content.count(b"\n")


def commits(settings: Settings, table: str, versions: int) -> None:
    log = Path(settings.warehouse) / table.replace(".", "/") / "_delta_log"
    log.mkdir(parents=True)
    for version in range(versions):
        (log / f"{version:020}.json").touch()


def test_all_that_is_bundled_is_landed_under_names_of_their_own(settings: Settings) -> None:
    assert land(settings) == {
        "dlq": 11,
        "streams-requests": 5,
        "acknowledgements": 4,
        "segments": 12,
        "producers": 1,
        "broker-logs": 2,
    }
    landed = Path(settings.landing)
    assert {f"{file.relative_to(landed)}": records(file) for file in landed.glob("*/*") if file.is_file()} == {
        "dlq/demo-dlq.orders.jsonl": 916,
        "dlq/demo-dlq.billing.jsonl": 534,
        "dlq/demo-dlq.shipping.jsonl": 57,
        "dlq/demo-dlq.audit.jsonl": 56,
        "dlq/demo-dlq.second-hop.jsonl": 215,
        "dlq/demo-broker-edge-cases.jsonl.gz": 84,
        "dlq/demo-kcat.jsonl": 8,
        "dlq/demo-planted-other-writers.jsonl": 48,
        "dlq/demo-planted-bad.jsonl": 9,
        "dlq/demo-planted-again.jsonl": 4,
        "dlq/demo-planted-repeated.jsonl": 6,
        "streams-requests/demo-kafka-request-A.log.gz": 182,
        "streams-requests/demo-kafka-request-B.log.gz": 21,
        "streams-requests/demo-kafka-request-C.log.gz": 48,
        "streams-requests/demo-kafka-request-D.log.gz": 22,
        "streams-requests/demo-planted-requests.log": 4,
        "acknowledgements/demo-acknowledgements.jsonl": 25,
        "acknowledgements/demo-planted-acknowledgements.jsonl.gz": 1520,
        "acknowledgements/demo-planted-checkout.jsonl": 12,
        "acknowledgements/demo-planted-refunds.jsonl": 9,
        "producers/demo-planted-producers.jsonl": 5,
        "broker-logs/demo-broker-A.log.gz": 930,
        "broker-logs/demo-broker-D.log.gz": 134,
    }
    assert {file.parent.name for file in landed.glob("segments/*/00000000000000000000.log")} >= {
        "checkout-0",
        "refunds-0",
        "batches-0",
        "dlq.orders-2",
    }


def test_what_is_known_of_a_topic_lands_beside_its_segments(settings: Settings) -> None:
    land(settings)
    found = {path.parent.name: path for path in Path(settings.landing).glob("segments/*/topic.properties")}
    assert {log: path.read_text() for log, path in found.items()} == {"checkout-0": "cleanup.policy=delete\n"}
    found["checkout-0"].write_text("cleanup.policy=compact\n")
    land(settings)
    assert found["checkout-0"].read_text() == "cleanup.policy=compact\n"


def test_files_that_are_there_are_left_alone(settings: Settings) -> None:
    land(settings)
    mine = settings.landing_of("dlq") / "mine.jsonl"
    mine.write_text("mine")
    older = settings.landing_of("streams-requests") / "demo-planted-requests.log"
    before = {file: file.stat().st_mtime_ns for file in Path(settings.landing).glob("*/*")}
    older.write_text("older demo")
    land(settings)
    after = {file: file.stat().st_mtime_ns for file in Path(settings.landing).glob("*/*")}
    assert {file for file in after if after[file] != before.get(file)} == {older}
    assert mine.read_text() == "mine"


def test_a_landing_directory_that_is_a_file_is_one_sentence(settings: Settings) -> None:
    Path(settings.landing).write_text("")
    with pytest.raises(EnvironmentLacking, match="Nothing can be landed"):
        land(settings)


@pytest.mark.parametrize("table", ["bronze.dlq_records", "bronze.streams_requests"])
def test_somebody_elses_warehouse_is_refused(settings: Settings, table: str) -> None:
    commits(settings, table, 2)
    with pytest.raises(UsageError, match="not this demo's"):
        _check(settings)
    noted(settings, ENDS)
    _check(settings)


def test_a_warehouse_whose_tables_are_empty_is_taken(settings: Settings) -> None:
    commits(settings, "bronze.dlq_records", 1)
    _check(settings)


def test_a_warehouse_of_a_demo_without_a_week_is_refused(settings: Settings) -> None:
    commits(settings, "bronze.dlq_records", 2)
    land(settings)  # its records have other times, so that the same files would land as others again
    with pytest.raises(UsageError, match="not this demo's"):
        _check(settings)


def test_a_week_ends_when_it_first_landed_until_its_warehouse_is_gone(settings: Settings) -> None:
    assert week_ends(settings) is None
    noted(settings, ENDS)
    assert week_ends(settings) is None
    commits(settings, "bronze.dlq_records", 2)
    assert week_ends(settings) == ENDS


def test_all_that_lands_is_as_old_as_the_week_says_and_the_same_each_time(settings: Settings, tmp_path: Path) -> None:
    def landed(landing: Path) -> dict[str, bytes]:
        settings = load(landing=str(landing))
        assert sum(land(settings, ENDS).values()) + land_week(settings, ENDS) == sum(
            1 for path in landing.rglob("*") if path.is_file() and path.name != "topic.properties"
        )
        return {
            path.relative_to(landing).as_posix(): path.read_bytes() for path in landing.rglob("*") if path.is_file()
        }

    once = landed(tmp_path / "once")
    assert once == landed(tmp_path / "again")

    def times(name: str) -> list[datetime]:
        content = once[name] if not name.endswith(".gz") else gzip.decompress(once[name])
        found = re.findall(rb'"(?:timestamp|ts)":(\d{13})', content)
        assert found
        return [datetime.fromtimestamp(int(millis) / 1000, UTC) for millis in found]

    letters = [name for name in once if name.startswith("dlq/")]
    of_week = {
        name for name in letters if re.search(r"(orders|prices|payments|clicks|invoices|products)-\w+\.jsonl", name)
    }
    assert len(of_week) > 10
    for name in letters:
        begin, end = (timedelta(9), timedelta(7, hours=12))
        if name in of_week:
            begin, end = timedelta(7), timedelta(0)
        if name.endswith("planted-repeated.jsonl"):
            begin, end = timedelta(1), timedelta(hours=12)
        assert {ENDS - begin <= at <= ENDS - end for at in times(name)} == {True}, name
    assert max(at for name in of_week for at in times(name)) > ENDS - timedelta(minutes=5)
    deployed = [json.loads(line) for name in once if name.startswith("changes/") for line in once[name].splitlines()]
    assert {row["application"] for row in deployed} == {"order-enrichment", "pricing"}
    for row in deployed:
        assert ENDS - timedelta(5) < datetime.fromisoformat(row["time"]) < ENDS


def test_incidents_of_the_captures_are_resolved_and_those_of_the_week_are_not(settings: Settings) -> None:
    def states() -> dict[str, str]:
        known = reading.Incidents(Warehouse(settings), datetime.now(UTC)).known
        return {incident.row["incident_id"]: incident.state.name for incident in known}

    now = datetime.now(UTC)
    store(
        settings, "gold.dlq_incidents", *(incident(place, last_at=now - timedelta(days=8 - place)) for place in (0, 7))
    )
    assert states() == {incident_id(0): "ONGOING", incident_id(7): "ONGOING"}
    _close_the_captures(settings, now)
    assert states() == {incident_id(0): "RESOLVED", incident_id(7): "ONGOING"}


def noted(settings: Settings, ends: datetime) -> None:
    Path(settings.landing).mkdir(parents=True, exist_ok=True)
    (Path(settings.landing) / NOTE).write_text(ends.isoformat())


ENDS = datetime(2027, 3, 4, 8, 30, tzinfo=UTC)


def test_a_warehouse_on_an_object_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="local warehouse"):
        _check(load(warehouse="s3a://lake/warehouse", landing=str(tmp_path)))


def test_delta_log_counts_commits_by_table(settings: Settings) -> None:
    commits(settings, "silver.a", 2)
    commits(settings, "quality.b", 1)
    (Path(settings.warehouse) / "silver" / "a" / "_delta_log" / f"{0:020}.crc").touch()
    assert delta_log(Path(settings.warehouse)) == {"silver/a": 2, "quality/b": 1}


COUNTS = {"status": "passed", "read": 1931, "accepted": 1912, "quarantined": 16, "duplicates": 3}
COUNTS |= {"skipped": 0, "held": 0, "written": 35}


def printed_by(table: Table) -> list[str]:
    printed = io.StringIO()
    Console(file=printed, width=80).print(table)
    return [line.rstrip() for line in printed.getvalue().splitlines()]


def shown(run: dict[str, Any]) -> list[str]:
    return printed_by(_table_of("topology", run, "First run"))


def test_a_run_is_shown_by_task_and_table_within_80_columns() -> None:
    silver = {
        "silver.topology_solicitations": {**COUNTS, "seconds": 7.44},
        "silver.topology_pushes": {**COUNTS, "skipped": 12345, "seconds": 123.4},
    }
    run = {
        "state": "success",
        "tasks": {"silver": {"state": "success", "seconds": 140.04}, "reports": {"state": "success", "seconds": None}},
        "xcoms": {"silver": {"run_id": "r", "tables": silver}, "reports": {"report": "r.html", "tables": silver}},
    }
    assert shown(run) == [
        "First run: DAG topology, success",
        "task and tables           read written quarantined duplicates skipped seconds",
        "silver: success                                                         140.0",
        "  topology_solicitations 1,931      35          16          3       0     7.4",
        "  topology_pushes        1,931      35          16          3  12,345   123.4",
        "reports: success                                                          0.0",
    ]


def test_skipped_rows_are_shown_where_there_are_any() -> None:
    run = {
        "state": "failed",
        "tasks": {"bronze": {"state": "success", "seconds": 1.0}, "silver": {"state": "failed", "seconds": 2.0}},
        "xcoms": {"bronze": {"run_id": "r", "tables": {"bronze.dlq_records": {**COUNTS, "seconds": 1.0}}}},
    }
    assert shown(run) == [
        "First run: DAG topology, failed",
        "task and tables  read written quarantined duplicates seconds",
        "bronze: success                                          1.0",
        "  dlq_records   1,931      35          16          3     1.0",
        "silver: failed                                           2.0",
    ]


def test_runs_are_summed_up_by_feed_and_layer_within_80_columns() -> None:
    tables = {"silver.a": {**COUNTS, "seconds": 1.0}, "silver.b": {**COUNTS, "skipped": 12345, "seconds": 2.0}}
    run = {
        "state": "success",
        "tasks": {"bronze": {"state": "success", "seconds": None}, "silver": {"state": "success", "seconds": 40.6}},
        "xcoms": {"silver": {"run_id": "r", "tables": tables}, "reports": {"report": "r.html", "tables": tables}},
    }
    assert printed_by(_table_of_feeds({"topology": run, "dlq": {**run, "xcoms": {}}})) == [
        "The pipeline",
        "feed     layer  tables  read written quarantined duplicates skipped seconds",
        "topology bronze      0     0       0           0          0       0       0",
        "         silver      2 3,862      70          32          6  12,345      41",
        "         gold        0     0       0           0          0       0       0",
        "dlq      bronze      0     0       0           0          0       0       0",
        "         silver      0     0       0           0          0       0      41",
        "         gold        0     0       0           0          0       0       0",
    ]


RUN = {"xcoms": {"reports": {"tables": {"bronze.a": {"read": 0}, "silver.b": {"read": 0}}}}}


@pytest.mark.parametrize(
    ("second", "after"),
    [
        pytest.param({"xcoms": {"reports": {"tables": {"bronze.a": {"read": 1}}}}}, {"bronze/a": 2}, id="rows read"),
        pytest.param(RUN, {"bronze/a": 3}, id="a commit"),
        pytest.param(RUN, {"bronze/a": 2, "silver/b": 1}, id="a table"),
    ],
)
def test_a_second_run_that_changes_something_fails_the_demo(second: dict[str, Any], after: dict[str, int]) -> None:
    with pytest.raises(ContractBroken, match="should change nothing"):
        _show_unchanged([RUN, second], {"bronze/a": 2}, after, Console(file=io.StringIO()))


def test_a_second_run_that_changes_nothing_is_said_in_one_line() -> None:
    said = io.StringIO()
    _show_unchanged([RUN, RUN], {"bronze/a": 2, "b/c": 47}, {"b/c": 47, "bronze/a": 2}, Console(file=said, width=80))
    assert said.getvalue() == "Nothing changed: 0 rows read, all 2 tables stand at the same 49 Delta commits.\n"


def letter(offset: int, group: str = "live-packing", value: bytes | None = b"\xff") -> Record:
    headers = (("__dlq.errors.group", group.encode()),)
    return Record("dlq.live-orders", 0, offset, 1795228875344, 0, b"k", value, headers)


LETTERS = (letter(0), letter(1), letter(2, group="live-invoicing"))
HAPPENED = Happened("127.0.0.1:9092", LETTERS, {"dlq.live-orders": "id"}, {"live-orders-app": "OK"}, "a line\n")


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """The directories of the brokers that were stopped."""
    directories: list[Path] = []
    monkeypatch.setattr(live, "DIRECTORY", tmp_path / "broker")
    monkeypatch.setattr(Broker, "stop", lambda self: directories.append(self.directory))
    return directories


@pytest.mark.parametrize(
    ("error", "why"),
    [
        pytest.param(EnvironmentLacking("No Java is found; get one."), "No Java is found; get one.", id="lacking"),
        pytest.param(OSError(28, "No space left on device"), "No space left on device.", id="disk"),
    ],
)
def test_where_no_broker_can_start_the_demo_goes_on_with_the_captures(
    settings: Settings, stopped: list[Path], monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    def fails(_: Broker) -> Happened:
        raise error

    monkeypatch.setattr(live, "play", fails)
    said = io.StringIO()
    with _live_broker(settings, Console(file=said, width=80)) as happened:
        assert happened is None
    assert said.getvalue() == f"The demo goes on with the captures alone, without a live broker: {why}\n"
    assert len(stopped) == 1
    assert not Path(settings.landing).exists()


def test_the_broker_ends_with_the_demo_whatever_ends_that(
    settings: Settings, stopped: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "play", lambda _: HAPPENED)
    demo = ExitStack()
    assert demo.enter_context(_live_broker(settings, Console(file=io.StringIO()))) == HAPPENED
    assert stopped == []
    stop = KeyboardInterrupt()
    assert demo.__exit__(KeyboardInterrupt, stop, None) is False
    assert len(stopped) == 1
    (log,) = settings.landing_of("streams-requests").iterdir()
    assert log.name.startswith("demo-live-")
    assert log.read_text() == "a line\n"


def test_runs_read_no_topics_of_the_users_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "afterlog.toml").write_text(
        'kafka_connection = "kafka_default"\n'
        '[kafka]\nbootstrap_servers = "elsewhere:9092"\noptions = { "client.dns.lookup" = "odd" }\n'
        '[dlq]\nsource = "kafka"\n'
        '[acknowledgements]\nsource = "kafka"\ntopic = "a"\n[streams_requests]\nsource = "kafka"\ntopic = "b"\n'
    )
    monkeypatch.setenv("AFTERLOG_SETTINGS", str(tmp_path / "afterlog.toml"))
    for name, value in NO_TOPICS.items():
        monkeypatch.setenv(name, value)
    settings = load()
    assert not kafka_connections()
    assert settings.kafka == Kafka()
    (tmp_path / "afterlog.toml").write_text('[[cluster]]\nname = "eu"\nkafka_connection = "kafka_eu"\n')
    assert (load().cluster, load().has_entries, kafka_connections()) == ("default", False, {})
    assert {settings.topics_of(feed) for feed in ("dlq", "acknowledgements", "streams-requests")} == {None}


def tables_of(letters: tuple[Record, ...], health: str = "OK", silver: int | None = None) -> Any:
    """Return a reader of tables that hold these dead letters."""
    bronze = [
        {
            **{
                name: getattr(letter, name)
                for name in ("topic", "partition", "offset", "timestamp_type", "key", "value")
            },
            "timestamp": datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=letter.timestamp),
            "headers": [{"key": name, "value": value} for name, value in letter.headers],
        }
        for letter in letters
    ]
    accepted = [
        {"consumer_group": live.group_of(letter), "disposition": "CLIENT_REJECTED", "payload_copied": True}
        for letter in letters[:silver]
    ]
    current = [{"group_id": "live-orders-app", "health": health}, {"group_id": "orders-app", "health": "LOST"}]
    rows = {"bronze.dlq_records": bronze, "silver.dlq_records": accepted, "gold.topology_current": current}

    def read(_: Warehouse, table: str, equal: Mapping[str, str], columns: list[str] | None = None) -> list[Any]:
        return rows[table]

    return read


def test_what_happened_live_is_said_within_80_columns(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvmless, "rows", tables_of(LETTERS))
    said = io.StringIO()
    _show_live(settings, HAPPENED, Console(file=said, width=80))
    assert said.getvalue() == (
        "Live: byte by byte bronze holds what a plain consumer reads: 3 records.\n"
        "Share groups that dead-lettered them: 2; topologies pushed beside them: 1.\n"
    )


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        pytest.param(tables_of(LETTERS[:2]), "1 of 3 dead letters are not in it, 0 rows", id="lost"),
        pytest.param(tables_of((*LETTERS, LETTERS[0])), "0 of 3 dead letters are not in it, 1 row is none", id="twice"),
        pytest.param(tables_of((*LETTERS[:2], letter(2, "live-invoicing", b""))), "1 of 3 .*, 1 row is", id="a byte"),
        pytest.param(tables_of(LETTERS, silver=2), "Silver does not hold each dead letter once", id="silver"),
        pytest.param(tables_of(LETTERS, health="LOST"), "'live-orders-app': 'OK'", id="health"),
    ],
)
def test_what_did_not_land_as_it_happened_fails_the_demo(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tables: Any, said: str
) -> None:
    monkeypatch.setattr(jvmless, "rows", tables)
    with pytest.raises(ContractBroken, match=said):
        _show_live(settings, HAPPENED, Console(file=io.StringIO(), width=80))
