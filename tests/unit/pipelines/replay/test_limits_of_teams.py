"""What teams allow of replays holds for each of their dead letters, whoever plans it, and only tightens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import UsageError
from pipelines.replay import actions, eligibility, store
from pipelines.replay.choice import Choice
from pipelines.replay.judge import Options
from pipelines.replay.model import ATTEMPT, PLAN
from pipelines.settings import Settings, load
from pipelines.warehouse.tables import Warehouse
from tests.testing.examples import at_most
from tests.unit.pipelines.replay.test_eligibility import NAME, with_incident

ALL = Choice(incident=NAME)


def of(directory: Path, *teams: dict[str, Any], **replay: Any) -> Settings:
    file = directory / "rules.toml"
    file.write_text("", encoding="utf-8")
    places = {"warehouse": str(directory / "warehouse"), "landing": str(directory)}
    return load(**places, replay={"rules": str(file), **replay}, team=teams)


def team(name: str, group: str, **limits: Any) -> dict[str, Any]:
    return {"name": name, "groups": [group], "replay": limits}


def planned(warehouse: Warehouse, choice: Choice = ALL, **options: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(
        actions.plan(warehouse, choice, Options(**options), dry_run=True, form="json").result
    )
    return told


@pytest.mark.parametrize(
    ("limits", "options", "reasons"),
    [
        ({}, {}, {}),
        ({"most_records": 4}, {}, {"team_most": 2}),
        ({"most_records": 6}, {}, {}),
        ({"never_to": ["man?"]}, {}, {"team_never": 6}),
        ({"never_to": ["man?"]}, {"to": "other"}, {}),
        ({"never_to": ["oth*"]}, {"to": "other"}, {"team_never": 6}),
        ({"max_replays": 0}, {"max_replays": 1000}, {"died_after_replay": 2}),
        ({"max_replays": 1000}, {"max_replays": 0}, {"died_after_replay": 2}),
    ],
    ids=str,
)
def test_a_limit_of_a_team_is_a_reason(
    limits: dict[str, Any], options: dict[str, Any], reasons: dict[str, int], tmp_path: Path
) -> None:
    again = [(PLAN, b"P1AN-0001"), (ATTEMPT, b"1")]
    headers = {"user_headers": lambda number: again if number < 2 else []}
    warehouse = with_incident(of(tmp_path, team("billing", "billing", **limits)), 6, **headers)
    told = planned(warehouse, **options)
    assert told["reasons"] == reasons
    assert told["eligible"] == 6 - sum(reasons.values())
    others = with_incident(of(_beside(tmp_path), team("shipping", "shipping", **limits)), 6, **headers)
    of_nobody = {"died_after_replay": 2} if options.get("max_replays") == 0 else {}
    assert planned(others, **options)["reasons"] == of_nobody


def _beside(directory: Path) -> Path:
    place = directory / "beside"
    place.mkdir()
    return place


def test_of_several_teams_the_lowest_limit_holds(tmp_path: Path) -> None:
    teams = [team("a", "billing", most_records=3), team("b", "bill*", most_records=2), team("c", "x", most_records=1)]
    warehouse = with_incident(of(tmp_path, *teams), 6)
    draft = actions.drawn(warehouse, ALL, Options(), dry_run=True)
    assert [entry.source.offset for entry in draft.eligible] == [0, 1]  # the first ones in the plan's order
    assert {entry.source.partition for entry in draft.eligible} == {0}


def test_records_of_other_teams_go_on(tmp_path: Path) -> None:
    groups = {"consumer_group": lambda number: "billing" if number % 2 else "shipping"}
    warehouse = with_incident(of(tmp_path, team("a", "billing", most_records=1)), 6, **groups)
    letters = tuple(f"dlq.many:{number % 3}:{number // 3}" for number in range(6))
    told = planned(warehouse, Choice(records=letters))
    assert (told["eligible"], told["reasons"]) == (4, {"team_most": 2})


def test_a_team_plans_its_own_records(tmp_path: Path) -> None:
    groups = {"consumer_group": lambda number: "billing" if number % 2 else "shipping"}
    settings = of(tmp_path, team("a", "billing"), team("b", "nobody"))
    warehouse = with_incident(settings, 6, **groups)
    where = "dlq_topic = 'dlq.many'"
    found = {name: planned(warehouse, Choice(where=where, team=name)) for name in (None, "a", "b", "no team")}
    assert [row["records"] for row in found.values()] == [6, 3, 0, 3]
    assert planned(warehouse, Choice(where=where, team="a", limit=2))["records"] == 2
    assert found["a"]["choice"] == f"where {where}, of team a"
    assert planned(warehouse, Choice(incident=NAME, team="a"))["records"] == 3
    assert planned(warehouse, Choice(records=("dlq.many:1:0",), team="a"))["records"] == 1
    with pytest.raises(UsageError, match=r"The dead letter at dlq\.many:0:0 is of no team, not of team a\."):
        planned(warehouse, Choice(records=("dlq.many:1:0", "dlq.many:0:0"), team="a"))


def test_rules_replay_only_what_is_of_the_team_that_asks(tmp_path: Path) -> None:
    groups = {"consumer_group": lambda number: "billing" if number % 2 else "shipping"}
    settings = of(tmp_path, team("a", "billing"))
    warehouse = with_incident(settings, 6, **groups)
    assert settings.replay.rules
    Path(settings.replay.rules).write_text('[[rule]]\nname = "r"\ntopic = "many"\nthen = "REPLAY"\n', encoding="utf-8")
    chosen = {name: planned(warehouse, Choice(by_rules=True, team=name)) for name in (None, "a", "no team")}
    assert [row["records"] for row in chosen.values()] == [6, 3, 3]
    assert chosen["a"]["choice"] == "the rules, of team a"


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({}, None),
        ({"most_records": 2}, "it has 3 records of team a, which allows 2 in one plan."),
        ({"never_to": ["many"]}, "dlq.many:0:0 is not eligible any more, as its team never lets it go to its target."),
    ],
    ids=str,
)
def test_a_plan_expires_when_a_limit_is_tightened(limits: dict[str, Any], why: str | None, tmp_path: Path) -> None:
    warehouse = with_incident(of(tmp_path), 3)
    assert store.keep(warehouse, actions.drawn(warehouse, ALL, Options(), dry_run=True))
    (row,) = store.plans(warehouse)
    tightened = Warehouse(of(tmp_path, team("a", "billing", **limits)))
    assert actions.why_expired(warehouse, row) is None
    assert actions.why_expired(tightened, row) == why


@at_most(12)
@given(
    groups=st.lists(st.sampled_from(["a-1", "a-2", "b-1", "c"]), min_size=1, max_size=8),
    most=st.tuples(*[st.one_of(st.none(), st.integers(1, 4))] * 2),
)
def test_no_plan_has_more_of_a_team_than_it_allows_and_no_limit_adds_a_record(
    groups: list[str], most: tuple[int | None, int | None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("limits")
    patterns = {"a": "a-*", "one": "*-1"}
    limits = dict(zip(patterns, most, strict=True))
    settings = of(place, *(team(name, patterns[name], most_records=limits[name]) for name in patterns))
    warehouse = with_incident(settings, len(groups), consumer_group=lambda number: groups[number])
    letters = tuple(f"dlq.many:{number % 3}:{number // 3}" for number in range(len(groups)))
    without = actions.drawn(Warehouse(of(place)), Choice(records=letters), Options(), dry_run=True)
    draft = actions.drawn(warehouse, Choice(records=letters), Options(), dry_run=True)
    chosen = [entry.letter for entry in draft.eligible]
    assert {*chosen} <= {entry.letter for entry in without.eligible}
    for name, allowed in limits.items():
        own = [entry for entry in draft.eligible if name in entry.candidate.teams]
        assert allowed is None or len(own) <= allowed
    if not any(most):
        assert chosen == [entry.letter for entry in without.eligible]
    else:  # what is left out has a team whose limit is reached
        full = {name for name, allowed in limits.items() if allowed}
        assert all(full & {*entry.candidate.teams} for entry in draft.entries if entry.reasons)


def test_an_incident_tells_what_its_plan_would_do(tmp_path: Path) -> None:
    warehouse = with_incident(of(tmp_path, team("a", "billing", most_records=2)), 5)
    told = eligibility.of_incident(warehouse, NAME)
    plan = planned(warehouse)
    assert (told.chosen, told.eligible, told.reasons) == (5, 2, {"team_most": 3})
    assert (plan["records"], plan["eligible"], plan["reasons"]) == (5, 2, {"team_most": 3})
