"""The teams' answers are together the whole answer, and all places count the same for each team, over random tables."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.alerts import news
from pipelines.alerts.routes import wants
from pipelines.commands import ask, findings
from pipelines.commands import rows as printed
from pipelines.commands.findings import NOT_READ_ON, key_of
from pipelines.commands.incidents import front, listing
from pipelines.commands.of_team import narrowed
from pipelines.errors import UsageError
from pipelines.metrics.families import families
from pipelines.settings import Settings, load
from pipelines.settings.alerts import Route
from pipelines.settings.teams import NO_TEAM
from pipelines.site import addresses, pages, reading
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing.examples import at_most
from tests.testing.sites import NOW
from tests.unit.pipelines.test_one_voice import GROUPS, Drawn, client_of, drawn, fill

NARROWED = (
    *("dispositions_by_hour", "incidents_of_the_day", "lost_messages", "messages_by_outcome", "misconfigured_dlqs"),
    *("top_groups", "topology_health"),
)
REFUSED = ("volume_by_hour", "gate_history")
LETTERS = "consumer_group, owner, original_topic, dlq_topic"

PATTERNS = {
    "topics": ["orders", "pay*", "*ments", "dlq.*", "dlq.orders", "?rders", "nothing"],
    "groups": [*GROUPS, "orders-*", "*sink*", "billing*", "application-?"],
    "applications": ["application-0", "application-*", "*workers"],
}
NAMES = ("payments", "<b>bold</b>", "../up", "a b")


@st.composite
def teams(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Some teams, whose patterns match some, all or none of what is drawn, and overlap."""
    found = []
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)):
        kinds = draw(st.lists(st.sampled_from(sorted(PATTERNS)), min_size=1, unique=True))
        patterns = {
            kind: draw(st.lists(st.sampled_from(PATTERNS[kind]), min_size=1, max_size=2, unique=True)) for kind in kinds
        }
        found.append({"name": name, **patterns})
    return found


def owners(
    teams: list[dict[str, Any]], topics: Iterable[Any], names: Iterable[Any] = (), clients: Iterable[Any] = ()
) -> list[str]:
    """Return the teams of what has some topics, and groups or applications: told in another way than Afterlog does."""
    found = []
    for team in teams:
        pairs = [(pattern, name) for pattern in team.get("topics", ()) for name in topics]
        both = (*team.get("groups", ()), *team.get("applications", ()))
        pairs += [(pattern, name) for pattern in both for name in names]
        pairs += [(pattern, name) for pattern in team.get("applications", ()) for name in clients]
        if any(name is not None and fnmatchcase(name, pattern) for pattern, name in pairs):
            found.append(team["name"])
    return found or [NO_TEAM]


def asked(settings: Settings, question: str, team: str | None = None) -> list[str]:
    tables = Warehouse(settings)
    rows = ask.rows_without_jvm(tables, ask.find(question).text, {"now": NOW})
    out = io.StringIO()
    printed.write(rows if team is None else narrowed(rows, settings, team, question, None), "json", out)
    return out.getvalue().splitlines()


def named(findings: Iterable[Any]) -> dict[str, tuple[str, int]]:
    return {key_of(row): (row["severity"], row["amount"]) for row in findings}


@at_most(12)
@given(given=drawn(), of=teams())
def test_the_answers_of_teams_are_together_the_whole_answer(
    given: Drawn, of: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("teams")
    (place / "landing").mkdir()
    settings = load(warehouse=str(place / "warehouse"), landing=str(place / "landing"), team=of)
    fill(settings, given)
    tables, at = Warehouse(settings), NOW.isoformat()
    names = [*(row["name"] for row in of), NO_TEAM]

    whole = [json.loads(line) for line in listing.listed(tables, "json", at=at).result.splitlines()]
    listed = {
        name: [json.loads(line) for line in listing.listed(tables, "json", team=name, at=at).result.splitlines()]
        for name in names
    }
    for values in whole:
        its = owners(of, [values["original_topic"], *values["dlq_topics"]], [values["owner"]])
        assert values["teams"] == its
        for name in names:
            assert (values in listed[name]) is (name in its)
    assert [item for item in whole if any(item in its for its in listed.values())] == whole

    top = json.loads(front.top(tables, "json", at).result)
    tops = {name: json.loads(front.top(tables, "json", at, name).result) for name in names}
    for values in top["findings"]:
        if values["kind"] == NOT_READ_ON:
            continue
        names_of = [values["name"]] if values["kind"] != "WOULD_FAIL" else []
        outcome = findings.OF_MESSAGES.get(values["kind"])
        sent = [client_of(at) for at, message in enumerate(given.messages) if message == (values["topic"], outcome)]
        its = owners(of, [values["topic"]], names_of, sent)
        assert values["teams"] == its
        for name in names:
            assert (values in tops[name]["findings"]) is (name in its)
    for values in top["misconfigurations"]:
        its = owners(of, [values["dlq_topic"]], [values["group_id"]])
        assert [name for name in names if values in tops[name]["misconfigurations"]] == its

    page = reading.gather(tables, now=NOW)
    told = news.snapshot(tables, NOW)
    gauges = {family.name: family.samples for family in families(tables, NOW)}
    texts = {
        page_of_these.path: page_of_these.text()
        for page_of_these in pages.pages(page)
        if page_of_these.path.startswith(addresses.TEAM)
    }
    for name in names:
        own, own_front = tops[name], page.fronts[name]
        opened = [row["incident_id"] for row in listed[name] if row["state"] != "RESOLVED"]
        assert (
            [row["incident_id"] for row in own["incidents"]]
            == opened
            == [incident.incident_id for incident in own_front.open]
        )
        assert [incident.incident_id for incident in own_front.incidents] == [
            row["incident_id"] for row in listed[name]
        ]
        assert own["sentence"] == own_front.light.sentence
        assert named(own["findings"]) == named(own_front.findings)
        shown = {row["incident_id"] for row in whole if row["incident_id"] in texts[addresses.team(name)]}
        assert shown == {*opened}

        route = Route(name="r", url="http://127.0.0.1:9/", team=name)
        heard = {
            incident.news.key
            for incident in told.incidents or ()
            if wants(route, incident.news, told.teams[incident.news.key])
        }
        assert heard == {row["incident_id"] for row in listed[name]}
        heard = {
            finding.news.key for finding in told.findings if wants(route, finding.news, told.teams[finding.news.key])
        }
        assert heard == {key_of(row) for row in own["findings"] if row["kind"] != NOT_READ_ON}

        loud = Counter(row["severity"] for row in own["incidents"] if row["muted_until"] is None)
        assert measured(gauges, "team_open_incidents", name) == loud
        assert measured(gauges, "team_findings", name) == Counter(row["severity"] for row in own["findings"])
        rows = jvmless.query(
            tables, "gold.dlq_summary", f"SELECT {LETTERS}, record_count FROM rows", {"cluster": "default"}
        )
        letters = sum(
            row["record_count"]
            for row in rows
            if name in owners(of, [row["original_topic"], row["dlq_topic"]], [row["consumer_group"] or row["owner"]])
        )
        assert (
            sum(letter.value for letter in gauges["afterlog_team_dead_letters"] if letter.labels["team"] == name)
            == letters
        )

    for question in NARROWED:
        lines = asked(settings, question)
        own_lines = {name: asked(settings, question, name) for name in names}
        assert [line for line in lines if any(line in its for its in own_lines.values())] == lines
        for line in lines:
            row = json.loads(line)
            topics = [row.get("original_topic"), row.get("topic"), row.get("dlq_topic")]
            names_of = [row.get("consumer_group"), row.get("owner"), row.get("group_id")]
            its = owners(of, topics, names_of, row.get("client_ids") or ())
            assert [name for name in names if line in own_lines[name]] == its, question
    for question in REFUSED:
        with pytest.raises(UsageError, match="ask it without --team"):
            asked(settings, question, names[0])


def measured(gauges: dict[str, Any], gauge: str, team: str) -> Counter[str]:
    samples = [gauge_ for gauge_ in gauges[f"afterlog_{gauge}"] if gauge_.labels["team"] == team]
    return Counter({sample.labels["severity"]: int(sample.value) for sample in samples if sample.value})
