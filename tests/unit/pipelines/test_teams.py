"""Teams: whose something is, what settings refuse, which commands narrow their answer and which refuse to."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from pipelines.alerts import listing, sender
from pipelines.cli import app
from pipelines.commands import ask, known
from pipelines.commands.coordinate import Coordinate
from pipelines.commands.incidents import front, story
from pipelines.commands.incidents.listing import listed
from pipelines.commands.of_team import unlimited
from pipelines.errors import UsageError
from pipelines.metrics import families
from pipelines.run import contracts
from pipelines.settings import Settings, load
from pipelines.settings.teams import NO_TEAM
from pipelines.site import addresses, pages, reading, report
from pipelines.teams import Teams, in_words
from pipelines.warehouse import append
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.deliveries import store
from tests.testing.sites import HOSTILE, NOW

PAYMENTS = {"name": "payments", "topics": ["pay*", "dlq.pay*"], "groups": ["connector b?lling"]}
CHECKOUT = {"name": "checkout", "applications": ["checkout-*"]}
TEAMS = [PAYMENTS, CHECKOUT]
ID = sites.incident_id(0)
TEAM = re.compile(r"\bteams?\b")  # as a word
ROUTE = {"name": "on-call", "url": "http://127.0.0.1:9/"}


@pytest.mark.parametrize(
    ("row", "teams"),
    [
        ({"original_topic": "payments"}, ["payments"]),
        ({"original_topic": "orders", "dlq_topics": [{"dlq_topic": "dlq.payments", "last_at": 1}]}, ["payments"]),
        ({"dlq_topics": ["dlq.orders", "dlq.payments"]}, ["payments"]),
        ({"consumer_group": None, "owner": "connector billing"}, ["payments"]),
        ({"consumer_group": "pay"}, [NO_TEAM]),
        ({"consumer_group": "checkout-api"}, ["checkout"]),
        ({"owner": "application checkout-api"}, ["checkout"]),
        ({"client_id": "checkout-1", "topic": "payments"}, ["payments", "checkout"]),
        ({"client_ids": ["x", "checkout-1"]}, ["checkout"]),
        ({"dead_letters": [{"consumer_group": "checkout-1", "dlq_topic": "d"}], "topic": "t"}, ["checkout"]),
        ({"source_topic": "payments", "group_id": "g"}, [NO_TEAM]),
        ({"topic": None, "consumer_group": None}, [NO_TEAM]),
        ({"sentence": "payments", "dlq_topic_count": 3}, [NO_TEAM]),
    ],
    ids=str,
)
def test_something_is_of_each_team_that_has_a_pattern_for_a_name(row: dict[str, Any], teams: list[str]) -> None:
    assert list(Teams.of_settings(load(team=TEAMS)).of_row(row)) == teams
    assert Teams.of_settings(load()).of_row(row) == ()


def test_teams_in_words() -> None:
    assert [in_words(teams) for teams in ((), (NO_TEAM,), ("a",), ("a", "b\x1b"))] == [
        "",
        "no team",
        "team a",
        "teams a, b\\u001b",
    ]


@pytest.mark.parametrize(
    ("teams", "said"),
    [
        ([{"name": "a"}], "team.0 cannot be used: give topics, groups or applications."),
        ([{"topics": ["a"]}], "team.0.name cannot be used: it must be there."),
        ([{"name": "", "topics": ["a"]}], "team.0.name cannot be used: it must not be empty"),
        ([{"name": "a\x1b[31m", "topics": ["a"]}], "characters that can be seen"),
        ([{"name": " a", "topics": ["a"]}], "without spaces around it"),
        ([{"name": "No Team", "topics": ["a"]}], "'no team' stands for what is of no team"),
        ([{"name": "a", "topics": [""]}], "team.0.topics.0 cannot be used: it must not be empty"),
        ([{"name": "a", "topics": "a"}], "team.0.topics cannot be used: write it as an array"),
        ([{"name": "a", "owner": ["a"]}], "team.0.owner cannot be used: there is no such key"),
        ([PAYMENTS, PAYMENTS | {"name": "Payments"}], "two teams have the name 'payments'"),
        ([PAYMENTS | {"replay": {"most_records": 0}}], "team.0.replay.most_records cannot be used"),
        ([PAYMENTS | {"replay": {"rate": 1}}], "team.0.replay.rate cannot be used: there is no such key"),
        ([PAYMENTS | {"quiet_hours": {"begin": "22:00"}}], "team.0.quiet_hours.end cannot be used: it must be there"),
    ],
    ids=str,
)
def test_settings_refuse_what_is_no_team(teams: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        load(team=teams)
    assert said in str(refused.value)
    assert str(refused.value).startswith("The setting ")


def test_a_route_names_a_team_and_has_its_quiet_hours() -> None:
    night, noon = ({"begin": begin, "end": end} for begin, end in (("22:00", "07:00"), ("12:00", "13:00")))
    teams = [PAYMENTS | {"quiet_hours": night}, CHECKOUT]
    routes = [
        ROUTE | {"name": name} | more
        for name, more in {
            "of-a-team": {"team": "payments"},
            "with-its-own": {"team": "payments", "quiet_hours": noon},
            "of-another": {"team": "checkout"},
            "of-none": {"team": NO_TEAM},
            "of-all": {},
        }.items()
    ]
    loaded = load(team=teams, alerts={"route": routes}).alerts.route
    hours = [item.quiet_hours and f"{item.quiet_hours.begin}" for item in loaded]
    assert hours == ["22:00:00", "12:00:00", None, None, None]


@pytest.mark.parametrize(
    ("team", "teams", "hint"),
    [("paymnets", TEAMS, "Did you mean 'payments'?"), ("payments", [], ""), (NO_TEAM, [], "")],
)
def test_a_route_of_a_team_that_there_is_not_is_refused(team: str, teams: list[Any], hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        load(team=teams, alerts={"route": [ROUTE | {"team": team}]})
    assert str(refused.value).startswith("[[alerts.route]] on-call names a team that no [[team]] is: ")
    assert str(refused.value).endswith(hint)


# ------------------------------------------------------------------------------------------------------- commands


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse with all tables and a landing directory, which a test copies."""
    place = tmp_path_factory.mktemp("site")
    its = sites.filled(load(warehouse=str(place / "warehouse"), landing=str(place / "landing")))
    place_of = Coordinate("orders", 4, 52)
    traced = {"cluster": "default", "outcome": "ACKNOWLEDGED", "slice": place_of.slice, **place_of._asdict()}
    store(its, "gold.message_ledger", traced)
    for contract in contracts.contracts():
        if not contract.table.startswith("quality.") and not Warehouse(its).exists(contract.table):
            append.append(Warehouse(its), contract, [])
    return place


@pytest.fixture
def settings(site: Path, tmp_path: Path) -> Settings:
    shutil.copytree(site, tmp_path, dirs_exist_ok=True)
    return load(warehouse=str(tmp_path / "warehouse"), landing=str(tmp_path / "landing"))


@pytest.fixture
def filled(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    return with_teams(settings, TEAMS, monkeypatch)


def with_teams(settings: Settings, teams: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("AFTERLOG_TEAM", json.dumps(teams))
    monkeypatch.setenv("AFTERLOG_WAREHOUSE", settings.warehouse)
    monkeypatch.setenv("AFTERLOG_LANDING", settings.landing)
    monkeypatch.setenv("COLUMNS", "200")
    return load()


def ran(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def refused(*words: str) -> str:
    ended = ran(*words)
    assert ended.exception is not None, words
    return str(ended.exception) if isinstance(ended.exception, UsageError) else ended.output


NARROW = {
    "top": (),
    "incidents": (),
    "incident": (ID,),
    "ask": ("top_groups",),
    "show": ("dlq.orders:0:5",),
    "trace": ("orders:4:7",),
    "report": (),
    "alerts": (),
    "replay plan": ("--incident", ID, "--dry-run"),
}


def commands(group: Any, name: str = "") -> list[str]:
    """The names of all commands below a group, and of groups that are commands themselves."""
    found = []
    for word, command in group.commands.items():
        its = f"{name} {word}".strip()
        if hasattr(command, "commands"):
            found += [*([its] if command.invoke_without_command else []), *commands(command, its)]
        else:
            found.append(its)
    return found


def test_each_command_narrows_its_answer_or_refuses_a_team(filled: Settings) -> None:
    there = commands(typer.main.get_command(app))
    assert NARROW.keys() <= {*there}
    for name in there:
        words = name.split()
        if name in NARROW:
            ended = ran(*words, *NARROW[name], "--team", "paymnets")
            assert isinstance(ended.exception, UsageError), (name, ended.output)
            assert str(ended.exception) == (
                "--team 'paymnets' names no team; there are 'payments', 'checkout', 'no team'. Did you mean 'payments'?"
            )
        else:
            assert "No such option: --team" in ran(*words, "--team", "payments").output, name


@pytest.mark.parametrize("name", NARROW)
def test_without_teams_no_team_can_be_asked_for(name: str, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with_teams(settings, [], monkeypatch)
    said = refused(*name.split(), *NARROW[name], "--team", "payments")
    assert said == "--team 'payments' names no team, as the settings have no [[team]]."


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ask", "--team", "payments"], "--team needs a question: afterlog ask QUESTION --team TEAM."),
        (["ask", "volume_by_hour", "--team", "payments"], "The answer to volume_by_hour names no topic, group or app"),
        (["alerts", "--team", "payments", "send"], "--team is for the list of alerts, not for send."),
        (["report", "--serve", "--team", "payments"], "--serve shows the fronts of all teams; --team is"),
        (["incident", ID, "--team", "payments"], f"Incident {ID} is of no team, not of team payments."),
        (["incident", ID, "--resolve", "--team", "checkout"], f"Incident {ID} is of no team, not of team checkout."),
        (["show", "dlq.orders:0:5", "--team", "payments"], "The dead letter at dlq.orders:0:5 is of no team, not of"),
        (["trace", "orders:4:52", "--team", "payments"], "Message orders:4:52 is of no team, not of team payments."),
        (
            ["replay", "plan", "--record", "dlq.orders:0:5", "--dry-run", "--team", "payments"],
            "The dead letter at dlq.orders:0:5 is of no team, not of team payments.",
        ),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_what_cannot_be_narrowed_is_refused(words: list[str], said: str, filled: Settings) -> None:
    assert refused(*words).startswith(said)


def test_what_is_of_the_team_that_asks_is_told(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with_teams(settings, [{"name": "orders", "topics": ["orders"]}], monkeypatch)
    for words in (
        ["incident", ID],
        ["show", "dlq.orders:0:5"],
        ["trace", "orders:4:52"],
        ["ask", "lost_messages"],
    ):
        whole, own = ran(*words), ran(*words, "--team", "orders")
        assert (own.exit_code, own.stdout) == (0, whole.stdout), words
    assert "It is of team orders." in ran("incident", ID).stdout
    assert ran("ask", "lost_messages", "--team", NO_TEAM, "--format", "json").stdout == ""


def test_a_trace_tells_how_many_messages_of_other_teams_it_leaves_out(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"cluster": "default", "outcome": "ACKNOWLEDGED", "slice": "a", "trace_id": "t-1", "partition": 0}
    messages = [row | {"topic": topic, "offset": offset} for offset, topic in enumerate(("payments", "orders", "pay"))]
    store(settings, "gold.message_ledger", *messages)
    with_teams(settings, TEAMS, monkeypatch)
    ended = ran("trace", "t-1", "--team", "payments", "--format", "json")
    assert [json.loads(line)["topic"] for line in ended.stdout.splitlines()] == ["pay", "payments"]
    assert "1 message of other teams is not told." in ended.stderr
    said = refused("trace", "t-1", "--team", "checkout")
    assert said == "No message of trace 't-1' is of team checkout, but of others."


def test_the_first_rows_of_a_team_are_those_behind_the_limit_of_all(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = [
        sites.letter(100 + 30 * group + index, consumer_group=f"{'own' if group > 24 else 'other'}-{group:02}")
        for group in range(50)
        for index in range(2 if group < 25 else 1)
    ]
    store(settings, "silver.dlq_records", *letters)
    with_teams(settings, [{"name": "own", "groups": ["own-*"]}], monkeypatch)
    now = ("--param", f"now={NOW.isoformat()}", "--format", "json")
    whole = ran("ask", "top_groups", *now).stdout.splitlines()
    own = [json.loads(line) for line in ran("ask", "top_groups", "--team", "own", *now).stdout.splitlines()]
    assert not any("own-" in line for line in whole)
    assert [row["consumer_group"] for row in own] == [f"own-{group}" for group in range(25, 45)]
    as_table = ran("ask", "top_groups", "--team", "own", *now[:2])
    assert as_table.stdout.count("own-") == 2 * 20
    assert "20 rows" in as_table.stderr


def test_only_the_end_of_a_question_is_a_limit() -> None:
    text = "SELECT 1\nLIMIT 20\n"
    assert unlimited(text) == ("SELECT 1", 20)
    assert unlimited(f"SELECT * FROM (\n{text})") == (f"SELECT * FROM (\n{text})", None)
    assert {name for name, question in ask.questions().items() if unlimited(question.text)[1]} == {"top_groups"}


def test_a_team_is_told_of_the_alerts_of_its_routes(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with_teams(settings, TEAMS, monkeypatch)
    teams = ("payments", "checkout", None)
    routes = [ROUTE | {"name": f"r{number}", "team": team} for number, team in enumerate(teams)]
    monkeypatch.setenv("AFTERLOG_ALERTS", json.dumps({"route": routes}))
    sender.send(load(), lambda: NOW)
    told = {team: listing.listed(load(), "json", team).splitlines() for team in (None, "payments", "checkout", NO_TEAM)}
    assert sorted(told[None]) == sorted([*told["payments"], *told["checkout"], *told[NO_TEAM]])
    assert {json.loads(line)["route"] for line in told[NO_TEAM]} == {"r2"}
    assert told["payments"] == told["checkout"] == []


# ---------------------------------------------------------------------------------------------------------- doctor


def test_patterns_of_teams_that_match_nothing_are_told(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    fits = {"topics": ["orders", "totals"], "groups": ["orders-*", "totals-app"], "applications": ["totals*"]}
    fails = {"topics": ["ordres", "orders"], "groups": ["oders-workers"], "applications": ["total-app"]}
    teams = [{"name": "fits"} | fits, {"name": "fails"} | fails]
    tables = Warehouse(with_teams(settings, teams, monkeypatch))
    findings = [*known.unmatched_of_teams(tables)]
    assert findings == [
        (f"[[team]] fails {kind} matches nothing that landed: no {item} fits '{pattern}'.", remedy)
        for kind, item, pattern, meant in (
            ("topics", "topic", "ordres", "dlq.orders' or 'orders"),
            ("groups", "group", "oders-workers", "orders-workers"),
            ("applications", "application", "total-app", "totals-app"),
        )
        for remedy in [f"Correct it, unless that is still to come. Did you mean '{meant}'?"]
    ]
    assert "[[team]] fails topics matches nothing" in " ".join(ran("doctor", "--format", "json").stdout.split())


def test_of_an_empty_warehouse_nothing_is_said_about_patterns(tmp_path: Path) -> None:
    its = load(warehouse=str(tmp_path / "none"), landing=str(tmp_path), team=TEAMS)
    assert [*known.unmatched_of_teams(Warehouse(its))] == []


# ------------------------------------------------------------------------------------------------------------ pages

NAMES = (
    *("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "../../etc/passwd", "</script><b>{{ 7 * 7 }}</b>"),
    *("con", "index", "x" * 64, "a/b", "a b", "a-b", "ä", "日本"),
)


def test_hostile_names_of_teams_are_text_and_files_of_their_own(settings: Settings) -> None:
    teams = [{"name": name, "topics": ["orders", *HOSTILE[:2]]} for name in NAMES]
    its = load(warehouse=settings.warehouse, landing=settings.landing, team=teams)
    content = reading.gather(Warehouse(its), now=NOW)
    texts = {page.path: page.text() for page in pages.pages(content)}
    fronts = [addresses.team(name) for name in (*NAMES, NO_TEAM)]
    assert len({*fronts}) == len(NAMES) + 1
    assert {path.lower() for path in texts if path.startswith("team-")} == {*fronts}
    for path, text in texts.items():
        if path.endswith(".html"):
            assert "<script>alert" not in text, path
            assert "<img" not in text, path
            assert "<b>{{" not in text, path
    for path in ("index.html", *fronts):
        for path_of in fronts:
            assert f'href="{path_of}"' in texts[path]


def test_the_front_of_a_team_tells_only_what_is_its_own(settings: Settings) -> None:
    its = load(
        warehouse=settings.warehouse,
        landing=settings.landing,
        team=[{"name": "orders", "topics": ["orders"]}, {"name": "idle", "groups": ["idle"]}],
    )
    content = reading.gather(Warehouse(its), now=NOW)
    texts = {page.path: page.text() for page in pages.pages(content)}
    own, idle, rest = (texts[addresses.team(name)] for name in ("orders", "idle", NO_TEAM))
    ids = [incident.incident_id for incident in content.open]
    assert ID in own
    assert sum(name in own for name in ids) == 1
    assert sum(name in rest for name in ids) == len(ids) - 1
    assert sum(name in idle for name in ids) == 0
    assert "3 messages of orders were acknowledged" in own
    assert "3 messages of orders were acknowledged" not in rest
    for text in (own, idle, rest):
        assert 'id="timeline"' not in text
        assert 'id="quarantine"' not in text
    page = texts[addresses.incident(ID)]
    assert f'<dt>Team</dt><dd><a href="../{addresses.team("orders")}">orders</a></dd>' in page
    assert "Nothing is wrong as far as the data tells" in idle
    site = pages._Site(content, None)
    assert {(item.names[-1], item.kinds[-1]) for item in (*site.subjects(), site.incidents())} == {("Team", "text")}
    of = {row[0][0]: row[-1] for item in (*site.subjects(), site.incidents()) for row in item.rows}
    assert (of["orders"], of["totals"], of["totals-app"], of[ID]) == ("orders", NO_TEAM, NO_TEAM, "orders")


def test_the_front_of_a_team_that_is_gone_says_so(settings: Settings) -> None:
    place = {"warehouse": settings.warehouse, "landing": settings.landing}
    for teams in (TEAMS, TEAMS[:1]):
        its = load(**place, team=teams)
        report.write(its.reports(), reading.gather(Warehouse(its), now=NOW))
        gone = (its.reports() / addresses.team("checkout")).read_text(encoding="utf-8")
        assert ("This team is gone" in gone) is (len(teams) == 1)
    assert "This team is gone" not in (its.reports() / addresses.team("payments")).read_text(encoding="utf-8")


def test_the_report_tells_where_the_front_of_a_team_is(filled: Settings) -> None:
    for form in ("table", "json"):
        ended = ran("report", "--team", "payments", "--format", form)
        assert ended.exit_code == 0, ended.output
        page = Path(ended.stdout.strip() if form == "table" else json.loads(ended.stdout)["page"])
        assert page.name == addresses.team("payments")
        assert page.exists()
    told = json.loads(ended.stdout)
    assert (told["team"], told["incidents"], told["findings"]) == ("payments", [], [])
    assert not {"pipeline", "timeline", "delivery", "fronts"} & told.keys()


def test_a_site_is_built_again_when_teams_change(filled: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ran("report")
    assert first.exit_code == 0, first.output
    with_teams(filled, [*TEAMS, {"name": "new", "topics": ["orders"]}], monkeypatch)
    assert ran("report").exit_code == 0
    assert (filled.reports() / addresses.team("new")).exists()


def test_without_teams_nothing_tells_of_any(settings: Settings) -> None:
    tables = Warehouse(settings)
    content = reading.gather(tables, now=NOW)
    for page in pages.pages(content):
        if page.path.endswith(".html"):
            assert not TEAM.search(page.text().lower()), page.path
    assert not TEAM.search(json.dumps(content.as_json()))
    for form in ("json", "text"):
        assert not TEAM.search(front.top(tables, form, NOW.isoformat()).result)
        assert not TEAM.search(story.one(tables, ID, form, NOW.isoformat()).result)
    assert not TEAM.search(listed(tables, at=NOW.isoformat()).result)
    assert not [family.name for family in families.families(tables, NOW) if "team" in family.name]
