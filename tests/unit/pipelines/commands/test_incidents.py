"""``afterlog top``, ``incidents`` and ``incident``: states, ids, actions, and what they print, without a JVM."""

from __future__ import annotations

import json
import shutil
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from pipelines import moments
from pipelines.alerts import sender
from pipelines.cli import app
from pipelines.commands.findings import findings_of
from pipelines.commands.incidents import acting, front, listing, reading, story
from pipelines.errors import UsageError, WriterBusy
from pipelines.incidents.state import sparkline, state_of
from pipelines.run import newest
from pipelines.run.freshness import freshness
from pipelines.settings import Settings
from pipelines.settings.runs import Report
from pipelines.stores import lock
from pipelines.warehouse import actions, progress
from pipelines.warehouse.actions import Action
from pipelines.warehouse.progress import Held, Progress
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.builders import kip_1191, land, line, needed_by, run, warehouse_of
from tests.testing.deliveries import store

LAST = datetime(2026, 11, 21, 2, tzinfo=UTC)
ROW = {
    "first_at": LAST - timedelta(hours=2),
    "last_at": LAST,
    "pause_seconds": 1800,
    "dlq_topics": [{"dlq_topic": "dlq.a"}, {"dlq_topic": "dlq.b"}],
    "predecessor_id": None,
}
HOUR = timedelta(hours=1)


def action(kind: str, at: datetime, until: datetime | None = None) -> Action:
    return Action("1", "i", kind, at, "ann", until)


@pytest.mark.parametrize(
    ("values", "read", "after", "acted", "name"),
    [
        pytest.param({"first_at": LAST}, 0, 0.5, [], "NEW", id="new"),
        pytest.param({}, 0, 0.1, [], "ONGOING", id="ongoing"),
        pytest.param({}, 0, 50, [], "ONGOING", id="silence proves nothing"),
        pytest.param({}, 1, 50, [], "RESOLVED", id="both topics were read past the pause"),
        pytest.param({}, None, 50, [], "ONGOING", id="one topic was not"),
        pytest.param({"predecessor_id": "x"}, 0, 0.1, [], "REGRESSED", id="back"),
        pytest.param({"predecessor_id": "x"}, 1, 50, [], "RESOLVED", id="back and over"),
        pytest.param({}, 0, 3, [action("resolve", LAST + HOUR)], "RESOLVED", id="a person"),
        pytest.param({}, 0, 3, [action("resolve", LAST - HOUR)], "REGRESSED", id="a person, too early"),
    ],
)
def test_a_state_follows_from_times(
    values: dict[str, Any], read: float | None, after: float, acted: list[Action], name: str
) -> None:
    until = {"dlq.a": LAST + HOUR} | ({} if read is None else {"dlq.b": LAST + read * HOUR})
    assert state_of(ROW | values, until, LAST + after * HOUR, acted).name == name


def test_a_mute_ends() -> None:
    muted = [action("mute", LAST, LAST + HOUR)]
    assert state_of(ROW, {}, LAST + HOUR / 2, muted).muted_until == LAST + HOUR
    assert state_of(ROW, {}, LAST + 2 * HOUR, muted).muted_until is None


def test_a_sparkline_shows_times_without_records() -> None:
    half_hour = 1_800_000_000
    line = [{"half_hour": place * half_hour, "record_count": count} for place, count in ((0, 8), (1, 1), (3, 4))]
    assert sparkline(line) == "█▁ ▄"
    assert len(sparkline([*line, {"half_hour": 1000 * half_hour, "record_count": 1}])) <= 32
    assert sparkline([]) == sparkline(line[:1]) == ""


@pytest.fixture(scope="module")
def filled(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return settings of a warehouse with a poison pill, a systemic failure and a hostile group's name."""
    settings = warehouse_of(empty_warehouse, tmp_path_factory.mktemp("incidents"))
    pill = [line(number, headers=kip_1191(offset="58")) for number in range(12)]
    wide = [line(number, headers=kip_1191(offset=str(number), group="fraud-workers")) for number in range(100, 160)]
    hostile = [line(200, headers=kip_1191(offset="9", group="evil\x1b[31m\u202e"))]
    land(settings, {"a.jsonl": [*pill, *wide, *hostile]})
    run(spark, settings)
    return settings


def known(settings: Settings) -> list[dict[str, Any]]:
    return [json.loads(line) for line in listing.listed(Warehouse(settings), "json").result.splitlines()]


def test_incidents_are_listed_most_urgent_first(filled: Settings) -> None:
    found = known(filled)
    assert {(incident["consumer_group"], incident["record_count"]) for incident in found} == {
        ("orders-workers", 12),
        ("fraud-workers", 60),
        ("evil\x1b[31m\u202e", 1),
    }
    assert next(incident for incident in found if incident["record_count"] == 12)["verdict"] == "POISON_PILL"
    text = listing.listed(Warehouse(filled)).result
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert len(listing.listed(Warehouse(filled), "json", group="fraud-workers").result.splitlines()) == 1
    assert len(listing.listed(Warehouse(filled), "json", topic="dlq.orders").result.splitlines()) == 3
    assert listing.listed(Warehouse(filled), "json", since="1s").result == ""
    assert listing.listed(Warehouse(filled), "json", at="2000-01-01T00:00:00Z").result == ""
    for wrong, meant in ({"topic": "dlq.order"}, "dlq.orders"), ({"group": "fraud-worker"}, "fraud-workers"):
        (said,) = listing.listed(Warehouse(filled), **wrong).remarks
        assert said == f"No incident matches; 3 incidents in all. Did you mean '{meant}'?"


def test_an_incident_tells_its_place_samples_and_next_commands(filled: Settings) -> None:
    (pill,) = (incident for incident in known(filled) if incident["record_count"] == 12)
    text = story.one(Warehouse(filled), pill["incident_id"].lower().replace("-", "")).result
    for part in (
        "POISON_PILL",
        "orders:0:58",
        "afterlog show dlq.orders:0:",
        "afterlog trace orders:0:58",
        pill["fingerprint"],
    ):
        assert part in text
    facts = json.loads(story.one(Warehouse(filled), pill["incident_id"], "json").result)
    assert (facts["state"], len(facts["samples"]), facts["suspects"]) == ("ONGOING", 1, [])
    assert (facts["page"], "Page  " in text) == (None, False)
    with pytest.raises(UsageError, match="had not begun at 2000-01-01 00:00:00 UTC: its first record is of 20"):
        story.one(Warehouse(filled), pill["incident_id"], at="2000-01-01T00:00:00Z")
    for wrong in ("ZZZZ-ZZZZ", "not an id", ""):
        with pytest.raises(UsageError):
            story.one(Warehouse(filled), wrong)


def test_an_incident_tells_the_address_of_its_page(filled: Settings) -> None:
    name = known(filled)[0]["incident_id"]
    with_url = Warehouse(filled.model_copy(update={"report": Report(url="https://a.example/x")}))
    address = f"https://a.example/x/incidents/{name}.html"
    assert story.one(with_url, name).result.endswith(f"Page  {address}")
    assert json.loads(story.one(with_url, name, "json").result)["page"] == address
    assert json.loads(listing.listed(with_url, "json").result.splitlines()[0])["page"] == address
    assert json.loads(front.top(with_url, "json").result)["incidents"][0]["page"] == address


def test_runs_send_what_is_due_and_their_exit_code_stays(
    filled: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run without news sends, and so does one that another writer keeps from its work."""
    shutil.copytree(filled.warehouse, tmp_path / "warehouse")
    settings = filled.model_copy(update={"warehouse": str(tmp_path / "warehouse")})
    monkeypatch.setattr(sender, "FIRST_PAUSE", timedelta(seconds=1))
    got: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(503 if len(got) == 1 else 204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        routes = [{"name": "hook", "url": f"http://127.0.0.1:{server.server_address[1]}/x", "storm_from": 2}]
        command = ["run", "--feed", "dlq", "--warehouse", settings.warehouse, "--landing", settings.landing]
        environment = {"AFTERLOG_ALERTS": json.dumps({"route": routes})}
        first = CliRunner().invoke(app, command, env=environment)
        assert (first.exit_code, "Route hook did not take an alert: HTTP 503." in first.output) == (0, True)
        time.sleep(1.1)
        second = CliRunner().invoke(app, command, env=environment)
        assert (second.exit_code, "Route" in second.output) == (0, False)
        opened = {row["incident_id"] for row in known(settings) if row["state"] != "RESOLVED"}
        over = min(opened)
        acting.acted(Warehouse(settings), over, resolve=True)
        with lock.writer(settings, "another writer"):
            third = CliRunner().invoke(app, command, env=environment | {"AFTERLOG_LOCK__WAIT_SECONDS": "0"})
        assert isinstance(third.exception, WriterBusy)
        server.shutdown()
    assert got[0]["id"] == got[1]["id"]
    assert {change["key"] for change in got[1]["alerts"] if change["kind"] in ("opened", "regressed")} == opened
    assert [(change["kind"], change["key"]) for body in got[2:] for change in body["alerts"]] == [("resolved", over)]


def test_top_says_in_one_line_whether_anything_is_wrong(filled: Settings) -> None:
    text = front.top(Warehouse(filled)).result
    assert text.startswith("3 incidents open")
    summary = json.loads(front.top(Warehouse(filled), "json").result)
    assert len(summary["incidents"]) == 3
    before = front.top(Warehouse(filled), at="2000-01-01T00:00:00Z").result
    assert "0 incidents open" in before


def test_top_shows_settings_that_lose_dead_letters_and_how_to_repair_them(
    empty_warehouse: Path, tmp_path: Path
) -> None:
    settings = warehouse_of(empty_warehouse, tmp_path)
    mistake = {
        "kind": "DLQ_MISSING",
        "group_id": "workers\x1b[2J",
        "dlq_topic": "dlq.orders",
        "severity": "critical",
        "since": LAST,
        "last_seen_at": LAST + HOUR,
        "evidence": "It does not exist.",
        "remedy": "kafka-topics.sh --create --topic 'dlq.orders'",
    }
    low = mistake | {"kind": "READS_UNCOMMITTED", "severity": "low"}
    for row in (low, mistake, mistake | {"cluster": "another"}):
        store(settings, "gold.dlq_misconfigurations", {"cluster": "default", **row})
    tables = Warehouse(settings)
    text = front.top(tables, at=(LAST + 3 * HOUR).isoformat()).result
    assert text.startswith("0 incidents open, 1 urgent finding;")
    lines = text.splitlines()
    begin = lines.index("Settings that lose dead letters or make them useless")
    assert [line.split()[:2] for line in lines[begin + 1 : begin + 5 : 2]] == [
        ["critical", "DLQ_MISSING"],
        ["low", "READS_UNCOMMITTED"],
    ]
    assert lines[begin + 2].strip() == "`kafka-topics.sh --create --topic 'dlq.orders'`"
    assert lines[begin + 5] == "  as the cluster said 2 hours ago; `afterlog collect` asks again"
    assert "\x1b" not in text
    front_page = json.loads(front.top(tables, "json").result)
    assert [setting["kind"] for setting in front_page["misconfigurations"]] == ["DLQ_MISSING", "READS_UNCOMMITTED"]
    assert "Settings that" not in front.top(tables, at=(LAST - HOUR).isoformat()).result


def test_a_topic_that_was_read_to_its_end_past_the_pause_resolves(filled: Settings) -> None:
    tables = Warehouse(filled)
    place = Path(filled.warehouse) / "_progress"
    (pill,) = (incident for incident in known(filled) if incident["record_count"] == 12)

    def state(at: datetime) -> str:
        answer = story.one(tables, pill["incident_id"], "json", at.isoformat()).result
        return str(json.loads(answer)["state"])

    last = datetime.fromisoformat(pill["last_at"])
    assert state(last + 48 * HOUR) == "ONGOING"
    progress.note_read(tables, "bronze.dlq_records", ["dlq.orders"], last + HOUR / 4)
    assert state(last + 48 * HOUR) == "ONGOING"  # not past the pause
    progress.note_read(tables, "bronze.dlq_records", ["dlq.orders", "dlq.other"], last + 47 * HOUR)
    assert state(last + 48 * HOUR) == "RESOLVED"
    assert state(last + HOUR / 4) != "RESOLVED"  # at that time it was not read
    file = place / "silver.dlq_records.json"
    text = file.read_text(encoding="utf-8")
    kept = json.loads(text)
    held = {"since": "2026-11-21", "message": "", "rows": 1, "under": ""}
    file.write_text(json.dumps(kept | {"held": {"cluster:second/dlq.orders": held}}), encoding="utf-8")
    assert state(last + 48 * HOUR) == "RESOLVED"
    for changes in (
        {"held": {"dlq.orders": held}},
        {"held": {"cluster:default/dlq.orders": held}, "home": "second"},
        {"pending": {"bronze.dlq_records": {"start": 1, "end": 2}}},
        {"inputs": {}},
    ):
        file.write_text(json.dumps(kept | changes), encoding="utf-8")
        assert state(last + 48 * HOUR) == "ONGOING", changes  # what was read has not reached the incident
    file.write_text(text, encoding="utf-8")
    (place / "bronze.dlq_records.read.json").write_text('["damaged"]', encoding="utf-8")
    assert state(last + 48 * HOUR) == "ONGOING"


def test_actions_are_kept_and_respected(filled: Settings, spark: SparkSession) -> None:
    tables = Warehouse(filled)
    (wide,) = (incident for incident in known(filled) if incident["record_count"] == 60)
    name = wide["incident_id"]
    with pytest.raises(UsageError, match="not in the future"):
        acting.acted(tables, name, mute_until="2020-01-01T00:00:00Z")
    acting.acted(tables, name, mute_until="2999-01-01T00:00:00Z", note="known")
    assert front.top(tables).result.startswith("2 incidents open (2 quiet), 1 muted")
    assert "known" in story.one(tables, name).result
    acting.acted(tables, name, resolve=True)
    assert name not in listing.listed(tables, only_open=True).result
    before = actions.actions(tables)
    land(filled, {"b.jsonl": [line(300, headers=kip_1191(offset="300", group="other"))]})
    run(spark, filled, *(stage.table for stage in needed_by("gold.dlq_incidents", within="dlq")))
    assert not actions.waiting(tables)
    assert [(acted.action, acted.acted_at) for acted in actions.actions(tables)] == [
        (acted.action, acted.acted_at) for acted in before
    ]
    assert name in {incident["incident_id"] for incident in known(filled)}


def test_actions_count_in_their_order_though_the_clock_went_back(
    filled: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables, at = Warehouse(filled), moments.now()
    (pill,) = (incident for incident in known(filled) if incident["record_count"] == 12)
    acting.acted(tables, pill["incident_id"], mute_until="2999-01-01T00:00:00Z")
    monkeypatch.setattr(moments, "now", lambda: at - timedelta(hours=1))
    assert ", 1 muted" in front.top(tables).result
    acting.acted(tables, pill["incident_id"], resolve=True)
    acting.acted(tables, pill["incident_id"], note="after that")
    own = [acted.action for acted in actions.actions(tables) if acted.incident_id == pill["incident_id"]]
    assert own == ["mute", "resolve", "note"]
    assert pill["incident_id"] not in listing.listed(tables, only_open=True).result
    before = reading.Incidents(tables, at - timedelta(hours=2))
    assert not any(cluster_known.actions for cluster_known in before.known)  # nobody had acted


def test_a_held_topic_is_told_of_the_cluster_whose_rows_wait(settings: Settings) -> None:
    second = settings.model_copy(update={"cluster": "second"})
    held = Held("2026-11-21T02:00:00+00:00", "It broke.", 20, "")
    progress.save(Warehouse(settings), "silver.dlq_records", Progress(held={"dlq.orders": held}))

    def scopes(settings: Settings) -> list[str]:
        return [finding["topic"] for finding in findings_of(Warehouse(settings), []) if finding["kind"] == "HELD"]

    assert scopes(settings) == scopes(second) == ["dlq.orders"]  # nothing tells whose rows they are
    store(settings, "held.dlq_records", {"scope": "dlq.orders", "cluster": "default", "dlq_topic": "dlq.orders"})
    assert (scopes(settings), scopes(second)) == (["dlq.orders"], [])
    blocked = {entry.table: entry for entry in freshness(Warehouse(second))}["silver.dlq_records"]
    assert (blocked.held_scopes, blocked.blocked_since, blocked.message) == ((), None, None)
    store(settings, "held.dlq_records", {"scope": "dlq.orders", "cluster": "second", "dlq_topic": "dlq.orders"})
    assert scopes(settings) == scopes(second) == ["dlq.orders"]
    more = {"scope": "dlq.orders", "cluster": "second", "dlq_topic": "dlq.orders", "_bronze_id": "b"}
    store(settings, "held.dlq_records", more)
    amounts = [
        [(finding["amount"], finding["evidence"].partition(",")[0]) for finding in findings_of(Warehouse(place), [])]
        for place in (settings, second)
    ]
    assert amounts == [[(1, "1 row waits")], [(2, "2 rows wait")]]
    entries = [{entry.table: entry for entry in freshness(Warehouse(place))} for place in (settings, second)]
    said = [entry["silver.dlq_records"].message or "" for entry in entries]
    assert [entry.partition(" of ")[0] for entry in said] == ["1 row", "2 rows"]


def test_each_cluster_is_told_of_its_own_held_topics(settings: Settings) -> None:
    second = settings.model_copy(update={"cluster": "second"})
    held = {name: Held("2026-11-21T02:00:00+00:00", "It broke.", 20, "") for name in ("dlq.a", "cluster:second/dlq.b")}
    progress.save(Warehouse(settings), "silver.dlq_records", Progress(held=held, home="default"))
    for where, name in ((settings, "dlq.a"), (second, "cluster:second/dlq.b")):
        findings = findings_of(Warehouse(where), [])
        assert [finding["topic"] for finding in findings if finding["kind"] == "HELD"] == [
            name.removeprefix("cluster:second/")
        ]
        fresh = {entry.table: entry.held_scopes for entry in freshness(Warehouse(where))}
        assert fresh["silver.dlq_records"] == (name,)


def test_a_resolution_counts_although_the_last_record_is_ahead_of_the_clock(settings: Settings) -> None:
    Path(settings.warehouse).mkdir()
    begin, last = datetime.now(UTC) - HOUR, datetime.now(UTC) + 48 * HOUR
    store(settings, "gold.dlq_incidents", sites.incident(1, first_at=begin, last_at=last))
    acting.acted(Warehouse(settings), sites.incident_id(1), resolve=True)

    assert [incident["state"] for incident in known(settings)] == ["RESOLVED"]

    shutil.rmtree(Path(settings.warehouse) / "gold")
    store(settings, "gold.dlq_incidents", sites.incident(1, first_at=begin, last_at=last + HOUR))
    assert [incident["state"] for incident in known(settings)] == ["REGRESSED"]


def test_an_incident_whose_source_topic_is_not_known_is_told(settings: Settings) -> None:
    Path(settings.warehouse).mkdir()
    store(settings, "gold.dlq_incidents", sites.incident(0, original_topic=None), sites.incident(1))
    store(settings, "silver.dlq_records", sites.letter(5), sites.letter(6, original_topic=None))
    for number, letter in enumerate((6, 5)):
        text = story.one(Warehouse(settings), sites.incident_id(number)).result
        assert f"afterlog show dlq.orders:0:{letter}\n" in text
        assert ("?:4:58  12 times" in text, "afterlog trace" in text) == (not number, bool(number))
        (sample,) = json.loads(story.one(Warehouse(settings), sites.incident_id(number), "json").result)["samples"]
        assert sample["dlq_offset"] == letter


def test_an_escalation_is_told_from_its_time_on(settings: Settings) -> None:
    times = {"first_at": LAST - HOUR, "last_at": LAST + HOUR, "pause_seconds": 7200}
    escalations = [{"at": int(LAST.timestamp() * 1_000_000), "before_per_hour": 1.25, "after_per_hour": 1600.0}]
    store(settings, "gold.dlq_incidents", sites.incident(1, escalations=escalations, **times))
    store(settings, "silver.dlq_records", sites.letter())
    found = Warehouse(settings)
    stories = {
        at: (story.one(found, "0000", at=at).result, json.loads(story.one(found, "0000", "json", at).result))
        for at in ("2026-11-21T01:59:00Z", "2026-11-21T02:01:00Z")
    }
    (before, told_before), (after, told_after) = stories.values()
    words = "It escalated at 2026-11-21 02:00:00 UTC: 1.2 -> 1,600 an hour."
    assert words not in before
    assert words in after
    assert "It ends after 2 hours without a record, as known now." in after
    assert told_before["escalations"] == []
    assert told_after["escalations"] == [
        {"at": "2026-11-21T02:00:00.000Z", "before_per_hour": 1.25, "after_per_hour": 1600.0}
    ]
    assert all(event["half_hour"].endswith("Z") for event in told_after["timeline"])


def test_what_goes_on_leads_and_what_was_not_read_on_is_a_finding(settings: Settings) -> None:
    Path(settings.warehouse).mkdir()
    quiet = {"severity": "critical", "last_at": LAST - 7 * 24 * HOUR}
    over = {"dlq_topics": [{"dlq_topic": "dlq.read", "last_at": 0}]}
    store(
        settings,
        "gold.dlq_incidents",
        sites.incident(1, **quiet),
        sites.incident(2, **quiet, **over),
        sites.incident(3, severity="low", last_at=LAST),
    )
    hour = {"cluster": "default", "hour": LAST, "dlq_topic": "dlq.read", "last_routed_at": LAST, "record_count": 1}
    store(settings, "gold.dlq_summary", hour)
    tables = Warehouse(settings)
    top = front.top(tables, at=(LAST + HOUR / 6).isoformat()).result.splitlines()
    assert top[0].startswith("2 incidents open (1 quiet)")
    leads = [line.split()[0] for line in top if line.startswith("0000-")]
    assert leads == [sites.incident_id(3), sites.incident_id(1)]  # the second is over: its topic was read on
    assert top.index("Open incidents") < top.index("Quiet incidents, which are not known to be over")
    assert top[-1] == f"Next: afterlog incident {sites.incident_id(3)}"
    (finding,) = (line for line in top if "NOT_READ_ON" in line)
    assert finding.endswith(
        "dlq.orders: nothing tells that dlq.orders was read on after 1 quiet incident (of landed files only the last "
        "record is known)"
    )


def test_before_the_first_dead_letter_nobody_says_that_none_has_landed(settings: Settings) -> None:
    store(settings, "gold.dlq_incidents", sites.incident(0, last_at=LAST))
    store(settings, "bronze.dlq_records", {"cluster": "default", "timestamp": LAST, "_ingested_at": LAST + HOUR})
    sentence = front.top(Warehouse(settings), at=(LAST - 30 * HOUR).isoformat()).result.splitlines()[0]
    assert sentence.endswith("; no record tells a time before 2026-11-19 20:00:00 UTC.")
    assert "no dead letter has landed" in front.front([], [], [], LAST)


def test_an_incident_that_is_stamped_ahead_is_listed_once_it_landed(settings: Settings) -> None:
    ahead = {"first_at": LAST + 57 * HOUR / 60, "last_at": LAST + 58 * HOUR / 60}
    store(settings, "gold.dlq_incidents", sites.incident(1, **ahead))
    store(settings, "silver.dlq_records", sites.letter())
    store(settings, "bronze.dlq_records", {"cluster": "default", "timestamp": LAST, "_ingested_at": LAST - HOUR / 60})
    found = Warehouse(settings)
    assert "0000-0001" in listing.listed(found, at=LAST.isoformat()).result
    assert "stamped 58 minutes ahead: check the clock of orders-workers." in (
        story.one(found, "0000", at=LAST.isoformat()).result
    )
    assert "last 58 minutes ahead" in listing.listed(found, at=LAST.isoformat()).result
    assert "(57 minutes ahead), last 2026" in story.one(found, "0000", at=LAST.isoformat()).result
    before = (LAST - HOUR).isoformat()  # it had not landed
    assert "0000-0001" not in listing.listed(found, at=before).result


def test_the_front_tells_no_landing_time_as_that_of_the_newest_dead_letter(settings: Settings) -> None:
    store(settings, "gold.dlq_incidents", sites.incident(1))
    times = {"timestamp": LAST + 2 * HOUR, "_ingested_at": LAST - HOUR / 60}
    store(settings, "bronze.dlq_records", {"cluster": "default", **times})
    tables = Warehouse(settings)
    sentence = front.top(tables, at=LAST.isoformat()).result.splitlines()[0]
    assert front.newest_at(newest.of_feeds(tables, LAST)) is None
    assert sentence == (
        "1 incident open; the last record landed 60 seconds ago, and one is stamped 2 hours ahead: check the clock of "
        "what wrote it."
    )


def test_a_mute_that_is_given_in_another_zone_is_told_in_utc(settings: Settings) -> None:
    Path(settings.warehouse).mkdir()
    store(settings, "gold.dlq_incidents", sites.incident(0))
    tables = Warehouse(settings)
    said = acting.acted(tables, "0000", mute_until="2999-01-01T01:30:00+05:30").result
    assert said == "0000-0000 is muted until 2998-12-31 20:00:00 UTC."
    assert "muted until 2998-12-31 20:00:00 UTC" in listing.listed(tables).result
    assert known(settings)[0]["muted_until"] == "2998-12-31T20:00:00.000Z"
    for none in ("9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"):  # no time of UTC
        with pytest.raises(UsageError, match="is no time"):
            acting.acted(tables, "0000", mute_until=none)
        with pytest.raises(UsageError, match="is no time"):
            front.top(tables, at=none)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--note", " "], "--note needs a text."),
        (["--mute-until", "2999-01-01", "--note", ""], "--note needs a text."),
        (["--resolve", "--mute-until", "2h"], "Give --resolve or --mute-until"),
        (["--resolve", "--format", "json"], "act now and print text: omit --at and --format."),
        (["--note", "a", "--at", "2026-11-21"], "act now and print text: omit --at and --format."),
    ],
    ids=str,
)
def test_actions_that_make_no_sense_are_refused(settings: Settings, arguments: list[str], sentence: str) -> None:
    Path(settings.warehouse).mkdir()
    Path(settings.landing).mkdir()
    store(settings, "gold.dlq_incidents", sites.incident(0))
    places = ["--warehouse", settings.warehouse, "--landing", settings.landing]
    refused = CliRunner().invoke(app, ["incident", "0000-0000", *arguments, *places]).exception
    assert isinstance(refused, UsageError)
    assert sentence in str(refused)
    assert actions.actions(Warehouse(settings)) == []


@pytest.mark.parametrize("asked", [{"mute_until": "2999-01-01"}, {"resolve": True}, {"note": "ticket 7"}], ids=str)
def test_what_people_did_about_an_incident_counts_for_the_one_that_takes_it_in(
    settings: Settings, asked: dict[str, Any]
) -> None:
    first, second = sites.incident_id(1), sites.incident_id(2)
    merged = {"record_count": 0, "merged_into": first}
    begin, last = datetime.now(UTC) - 5 * HOUR, datetime.now(UTC) - HOUR
    Path(settings.warehouse).mkdir()
    store(
        settings,
        "gold.dlq_incidents",
        sites.incident(1, first_at=begin, last_at=begin + HOUR),
        sites.incident(2, first_at=last - HOUR, last_at=last, predecessor_id=first),
    )
    acting.acted(Warehouse(settings), second, **asked)
    (before,) = (incident for incident in known(settings) if incident["incident_id"] == second)

    shutil.rmtree(Path(settings.warehouse) / "gold")
    store(
        settings,
        "gold.dlq_incidents",
        sites.incident(1, first_at=begin, last_at=last),
        sites.incident(2) | merged,
    )
    (after,) = known(settings)

    assert after["incident_id"] == first
    for name in ("actions", "muted_until", "resolved_by"):
        assert after[name] == before[name]
    assert after["actions"]


def test_an_incident_that_came_back_says_who_had_resolved_it(settings: Settings) -> None:
    Path(settings.warehouse).mkdir()
    now = datetime.now(UTC)
    store(settings, "gold.dlq_incidents", sites.incident(0, last_at=now - HOUR))
    tables = Warehouse(settings)
    acting.acted(tables, "0000", resolve=True)
    (resolved,) = actions.actions(tables)
    shutil.rmtree(Path(settings.warehouse) / "gold")
    store(settings, "gold.dlq_incidents", sites.incident(0, last_at=datetime.now(UTC)))
    store(settings, reading.RECORDS)
    said = story.one(tables, "0000").result
    assert "  REGRESSED  " in said
    assert (
        f"{resolved.acted_by} resolved it at {resolved.acted_at:%Y-%m-%d %H:%M:%S} UTC, and records came since." in said
    )


def test_open_incidents_name_the_muted_ones_beside_them(settings: Settings) -> None:
    Path(settings.warehouse).mkdir()
    store(settings, "gold.dlq_incidents", sites.incident(0), sites.incident(1))
    tables = Warehouse(settings)
    assert listing.listed(tables, only_open=True).remarks == ()
    acting.acted(tables, sites.incident_id(1), mute_until="2h")
    assert listing.listed(tables, only_open=True).remarks == ("1 incident open, 1 muted.",)


def test_an_incident_without_source_records_says_so(settings: Settings) -> None:
    Path(settings.warehouse).mkdir()
    nothing: dict[str, Any] = {"original_topic": None, "partitions": [], "top_records": []}
    writer = {"consumer_group": None, "owner": "unknown writer on dlq.orders"}
    store(settings, "gold.dlq_incidents", sites.incident(0, source_record_count=12, **nothing, **writer))
    for table in (story.NODES, story.REVISIONS, story.CURRENT):
        store(settings, table)
    sites.application(settings, "reader")
    said = story.one(Warehouse(settings), "0000").result
    assert "12 records of at most 12 unnamed source records" in said
    assert "Where\n  No header names a source record.\n" in said
    assert "Blast radius\n  Its dead letters name no source topic, so that no topology tells what it reaches.\n" in said
    assert "unknown writer on dlq.orders from an unknown topic" in listing.listed(Warehouse(settings)).result


def test_counts_in_words_are_written_as_other_counts(settings: Settings) -> None:
    Path(settings.warehouse).mkdir()
    store(settings, "gold.dlq_incidents", sites.incident(0))
    finding = {"cluster": "default", "kind": "MISSING_DLQ_OFFSETS", "topic": "dlq.2026", "severity": "high"}
    words = {"amount": 17357, "evidence": "offsets that never landed: 17357", "remedy": "afterlog top"}
    store(settings, "gold.trust_findings", finding | words)
    assert "dlq.2026: offsets that never landed: 17,357" in front.top(Warehouse(settings)).result


def test_the_usual_rate_is_the_mean_of_the_weeks_before(settings: Settings) -> None:
    for place in (settings.warehouse, settings.landing):
        Path(place).mkdir()
    begin = (sites.NOW - 3 * HOUR).replace(minute=0)  # the hour in which incidents begin
    weeks = [begin - number * timedelta(days=7) for number in range(11)]
    nobody = {"consumer_group": None}
    store(
        settings,
        "gold.dlq_summary",
        *(sites.hour(at, 2 * number + 1) for number, at in enumerate(weeks)),
        *(sites.hour(at, 3, dlq_topic="dlq.other") for at in weeks[1:]),
        *(sites.hour(at, 100, **nobody) for at in weeks[1:2]),
        *(sites.hour(at + hours * HOUR, 1000) for at in weeks[1:] for hours in (-1, 1, 24)),
    )
    starts = {0: begin, 1: weeks[7] + HOUR / 2, 2: weeks[10] - 2 * HOUR}
    several = [sites.incident(number, first_at=at) for number, at in starts.items()]
    store(settings, "gold.dlq_incidents", *several, sites.incident(3, first_at=begin, **nobody))
    expected = {0: sum(2 * number + 4 for number in range(1, 9)) / 8, 1: (20 + 22 + 24) / 3, 2: None, 3: 100 / 8}
    at_once = reading.Incidents(Warehouse(settings), sites.NOW)
    at_once.learn_usual_rates(at_once.known)
    for number, rate in expected.items():
        assert at_once.usual_rate(at_once.of(sites.incident_id(number))) == rate
        alone = reading.Incidents(Warehouse(settings), sites.NOW)
        assert alone.usual_rate(alone.of(sites.incident_id(number))) == rate
