"""Cluster by cluster and team by team, answers are together the whole answer, over random dead letters of two clusters.

Both clusters have the same topics and groups, so that what shows in the wrong place is of the wrong cluster.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines import cli
from pipelines.metrics.families import families, of_several
from pipelines.settings import Settings, load
from pipelines.settings.teams import NO_TEAM
from pipelines.site import addresses, pages, reading
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.deliveries import store
from tests.testing.examples import at_most
from tests.testing.sites import NOW

CLUSTERS = ("eu", "us-1")
TOPICS = ("orders", "orders[1]", "<b>orders</b>", "../orders", "or\x1b[31mders", "pay'; --")
GROUPS = ("workers", "<i>workers</i>", 'a "group"', "connector billing")
PATTERNS = (*TOPICS, *GROUPS, "*", "orders?1?", "or*", "*/*", "[a-z]*", "connector *", "dlq.orders", "dlq.*[1]")
NAMES = ("payments", "<b>bold</b>", "../up", "a b", "eu")
QUESTIONS = ("top_groups", "incidents_of_the_day", "dispositions_by_hour")
FINDING = "QUARANTINED"

Letters = Counter[tuple[str, str, str]]  # by cluster, source topic and group


@dataclass(frozen=True)
class Told:
    """What the command says under settings of two clusters and some teams."""

    settings: Settings

    def said(self, *arguments: str) -> list[Any]:
        """Return the lines of JSON of a command."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            assert not cli.app([*arguments, "--format", "json"], standalone_mode=False)
        return [json.loads(line) for line in out.getvalue().splitlines()]

    def listed(self, *narrowed: str) -> list[Any]:
        return self.said("incidents", "--at", NOW.isoformat(), *narrowed)

    def top(self, *narrowed: str) -> list[Any]:
        return self.said("top", "--at", NOW.isoformat(), *narrowed)

    def asked(self, question: str, *narrowed: str) -> list[Any]:
        return self.said("ask", question, "--param", f"now={NOW.isoformat()}", *narrowed)


@contextlib.contextmanager
def world(place: Path, letters: Letters, teams: list[dict[str, Any]]) -> Iterator[Told]:
    """Store dead letters of two clusters, and what runs make of them: an hour, an incident and a finding of each."""
    with pytest.MonkeyPatch.context() as changed:
        for name in ("warehouse", "landing"):
            (place / name).mkdir()
            changed.setenv(f"AFTERLOG_{name.upper()}", str(place / name))
        changed.setenv("AFTERLOG_CLUSTER", json.dumps([{"name": name} for name in CLUSTERS]))
        changed.setenv("AFTERLOG_TEAM", json.dumps(teams))
        settings = load()
        tables: dict[str, list[dict[str, Any]]] = {
            name: []
            for name in (
                *("bronze.dlq_records", "silver.dlq_records", "silver.dlq_control_markers", "gold.dlq_summary"),
                *("gold.dlq_incidents", "gold.incident_suspects", "gold.blast_radius", "gold.trust_findings"),
            )
        }
        for number, ((cluster, topic, group), count) in enumerate(letters.items()):
            at, dead = NOW - timedelta(minutes=number + 1), f"dlq.{topic}"
            of = {"cluster": cluster, "original_topic": topic, "consumer_group": group}
            tables["silver.dlq_records"] += [
                sites.letter(100 * number + item, dlq_topic=dead, routed_at=at, disposition="CLIENT_REJECTED", **of)
                for item in range(count)
            ]
            tables["gold.dlq_summary"].append(sites.hour(at, count, dlq_topic=dead, **of))
            its = [{"dlq_topic": dead, "last_at": sites.micros(at)}]
            row = sites.incident(number, last_at=at, dlq_topics=its, record_count=count, **of)
            tables["gold.dlq_incidents"].append(row)
            finding = {"cluster": cluster, "kind": FINDING, "topic": topic, "name": group, "severity": "high"}
            words = {"evidence": "it is so", "remedy": "afterlog top", "since": at}
            tables["gold.trust_findings"].append(finding | words | {"amount": count})
        for table, rows in tables.items():
            store(settings, table, *rows)
        yield Told(settings)


def fits(pattern: str, name: str) -> bool:
    """Tell whether a glob fits: only * and ? are special."""
    parts = {"*": ".*", "?": "."}
    return bool(re.fullmatch("".join(parts.get(item, re.escape(item)) for item in pattern), name, re.DOTALL))


def teams_of(teams: list[dict[str, Any]], topics: Iterable[str], group: str) -> list[str]:
    """Return the teams of what has some topics and a group: told in another way than Afterlog does."""
    found = [
        team["name"]
        for team in teams
        if any(fits(pattern, name) for pattern in team["topics"] for name in topics)
        or any(fits(pattern, group) for pattern in team["groups"])
    ]
    return found or [NO_TEAM]


def together(whole: list[Any], parts: dict[tuple[str, str], list[Any]]) -> None:
    """Assert that each line of an answer is in a part, and that no part has anything else."""
    lines = {json.dumps(item, sort_keys=True) for item in whole}
    assert {json.dumps(item, sort_keys=True) for part in parts.values() for item in part} == lines
    assert len(lines) == len(whole)


KEYS = st.tuples(st.sampled_from(CLUSTERS), st.sampled_from(TOPICS), st.sampled_from(GROUPS))
TEAMS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(NAMES),
            "topics": st.lists(st.sampled_from(PATTERNS), max_size=2, unique=True),
            "groups": st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2, unique=True),
        }
    ),
    min_size=1,
    max_size=2,
    unique_by=lambda team: team["name"],
)


@pytest.mark.thorough  # beside test_teams_in_all_places and test_several_clusters
@at_most(8)
@given(letters=st.dictionaries(KEYS, st.integers(1, 9), min_size=1, max_size=8).map(Counter), teams=TEAMS)
def test_clusters_and_teams_are_together_the_whole_and_none_shows_what_is_of_another(
    letters: Letters, teams: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    names = [*(row["name"] for row in teams), NO_TEAM]
    pairs = [(cluster, team) for cluster in CLUSTERS for team in names]
    owned: dict[tuple[str, str], Letters] = {
        (cluster, team): Counter(
            {
                key: count
                for key, count in letters.items()
                if key[0] == cluster and team in teams_of(teams, [key[1], f"dlq.{key[1]}"], key[2])
            }
        )
        for cluster, team in pairs
    }
    with world(tmp_path_factory.mktemp("teams"), letters, teams) as told:
        of_pair = {pair: ("--cluster", pair[0], "--team", pair[1]) for pair in pairs}

        listed = {pair: told.listed(*narrowed) for pair, narrowed in of_pair.items()}
        together(told.listed(), listed)
        tops = {pair: told.top(*narrowed)[0] for pair, narrowed in of_pair.items()}
        wholes = told.top()
        assert len(wholes) == len(CLUSTERS)
        for kind in ("incidents", "findings"):
            for cluster, whole in zip(CLUSTERS, wholes, strict=True):
                together(whole[kind], {pair: own[kind] for pair, own in tops.items() if pair[0] == cluster})
        for pair, own in owned.items():
            its = Counter({(row["owner"], row["original_topic"]): row["record_count"] for row in listed[pair]})
            assert its == {(group, topic): count for (_, topic, group), count in own.items()}
            assert [row["incident_id"] for row in tops[pair]["incidents"]] == [
                row["incident_id"] for row in listed[pair]
            ]
            found = {(row["name"], row["topic"], row["amount"]) for row in tops[pair]["findings"]}
            of_letters = {
                (group, topic, count)
                for (cluster, topic, group), count in letters.items()
                if cluster == pair[0] and pair[1] in teams_of(teams, [topic], group)
            }
            assert {item for item in found if item[0] is not None} == of_letters

        for question in QUESTIONS:
            answers = {team: told.asked(question, "--team", team) for team in names}
            parts = {
                (cluster, team): [row for row in answers[team] if row["cluster"] == cluster] for cluster, team in pairs
            }
            together(told.asked(question), parts)
            for pair, rows in parts.items():
                places = {(row["dlq_topic"], row["consumer_group"]) for row in rows if "dlq_topic" in row}
                if question == "top_groups":  # a row is whose its columns say; it has no source topic
                    of_rows = {
                        (f"dlq.{topic}", group): count
                        for (cluster, topic, group), count in letters.items()
                        if cluster == pair[0] and pair[1] in teams_of(teams, [f"dlq.{topic}"], group)
                    }
                    assert places == of_rows.keys()
                    assert sum(row["record_count"] for row in rows) == sum(of_rows.values())

        assert_metrics(told.settings, letters, owned, tops)
        assert_fronts(told.settings, listed)


def assert_metrics(
    settings: Settings, letters: Letters, owned: dict[tuple[str, str], Letters], tops: dict[tuple[str, str], Any]
) -> None:
    whole = Warehouse(settings)
    of_all = {named.name: named.samples for named in of_several(whole)}
    by_cluster: Counter[str] = Counter()
    for letter in of_all["afterlog_dead_letters"]:
        by_cluster[letter.labels["cluster"]] += int(letter.value)
    assert by_cluster == Counter(cluster for cluster, _, _ in letters.elements())
    of_pairs = {
        (letter.labels["cluster"], letter.labels["team"]): letter.value
        for letter in of_all["afterlog_team_dead_letters"]
    }
    assert of_pairs == {pair: own.total() for pair, own in owned.items()}
    at_that_time = [family for own in whole.of_clusters() for family in families(own, NOW)]
    for gauge, kind in (("open_incidents", "incidents"), ("findings", "findings")):
        measured = Counter[tuple[str, str]]()
        for family in at_that_time:
            for letter in family.samples if family.name == f"afterlog_team_{gauge}" else ():
                measured[letter.labels["cluster"], letter.labels["team"]] += int(letter.value)
        assert measured == {pair: len(own[kind]) for pair, own in tops.items()}


def assert_fronts(settings: Settings, listed: dict[tuple[str, str], list[Any]]) -> None:
    every = {row["incident_id"] for rows in listed.values() for row in rows}
    for own in Warehouse(settings).of_clusters():
        page = reading.gather(own, now=NOW)
        texts = {page_of_these.path: page_of_these.text() for page_of_these in pages.pages(page)}
        of_it = {
            team: {row["incident_id"] for row in rows}
            for (cluster, team), rows in listed.items()
            if cluster == own.cluster
        }
        known = set().union(*of_it.values())
        for text in texts.values():
            assert {item for item in every - known if item in text} == set()
        for team, ids in of_it.items():
            assert {incident.incident_id for incident in page.fronts[team].incidents} == ids
            assert {item for item in every if item in texts[addresses.team(team)]} == ids
