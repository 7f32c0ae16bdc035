"""Commands, questions, pages, alerts and metrics tell the same of the same incidents, over random tables."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from pipelines.alerts import news
from pipelines.commands import ask
from pipelines.commands.incidents import front, listing, story
from pipelines.commands.incidents.reading import Incidents
from pipelines.gold import blast_radius
from pipelines.incidents.severity import LEVELS
from pipelines.incidents.verdict import VERDICTS
from pipelines.metrics import families
from pipelines.settings import Settings
from pipelines.site import pages, reading
from pipelines.warehouse.tables import Warehouse
from tests.testing import sites
from tests.testing.deliveries import store
from tests.testing.sites import HOSTILE, NOW

HOUR = timedelta(hours=1)
OURS = {"cluster": "default"}
TOPICS = ("orders", "paid", "sent", HOSTILE[0])


def drawn(chance: random.Random, settings: Settings) -> None:
    """Store incidents that are new, go on, are quiet or are over, and topologies from before and after them."""
    Path(settings.warehouse).mkdir()
    rows, facts = [], []
    for number in range(24):
        last = NOW - chance.choice((0.2, 0.6, 5, 30, 24 * 8)) * HOUR
        first = last - chance.choice((0, 0.5, 40)) * HOUR
        count = chance.randint(1, 2000)
        row = sites.incident(number, original_topic=chance.choice(TOPICS), last_at=last, first_at=first)
        row |= {"verdict": chance.choice(VERDICTS), "severity": chance.choice(LEVELS), "pause_seconds": 1800}
        row |= {"record_count": count, "source_record_count": chance.randint(1, count)}
        rows.append(row | {"dlq_topics": [{"dlq_topic": f"dlq.{chance.choice('ab')}", "last_at": sites.micros(last)}]})
    store(settings, "gold.dlq_incidents", *rows)
    store(settings, "silver.dlq_records", sites.letter())
    store(settings, "gold.incident_suspects", {**OURS, "incident_id": "none", "rank": 1})
    read = {**OURS, "hour": NOW, "dlq_topic": "dlq.a", "last_routed_at": NOW, "record_count": 1}
    store(settings, "gold.dlq_summary", read)
    for number in range(6):
        key = {**OURS, "group_id": f"app-{number}", "topology_hash": f"hash-{number}"}
        accepted = NOW - chance.choice((1, 20, 24 * 9)) * HOUR
        facts.append({"revision": {**key, "revision": 1, "accepted_at": accepted}})
        place = {"part": "subtopology", "part_place": 0, "subtopology_id": "0", "occurrence": 1}
        source = {
            "node": "in",
            "node_type": 1,
            "source_topics": chance.sample(TOPICS, 2),
            "sink_topic": None,
            "successors": ["out"],
        }
        sink = {"node": "out", "node_type": 3, "sink_topic": chance.choice(TOPICS), "source_topics": []}
        facts += [{"node": {**key, **place, "stores": [], "successors": [], **item}} for item in (source, sink)]
    store(settings, "gold.topology_revisions", *(row["revision"] for row in facts if "revision" in row))
    store(settings, "silver.topology_nodes", *(row["node"] for row in facts if "node" in row))
    shared = [{**OURS, "revision": None, "node": None, "deletion": None} | fact for fact in facts]
    derive = blast_radius.deriver(shared)
    asked = [{**OURS, "incident_id": row["incident_id"], "incident": row} for row in rows]
    store(settings, "gold.blast_radius", *derive(asked, ()))


def answers(settings: Settings, question: str, now: datetime = NOW) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a question by incident."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in ask.rows_without_jvm(Warehouse(settings), ask.find(question).text, {"now": now}).objects():
        told = json.loads(row)
        found.setdefault(told["incident_id"], []).append(told)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_each_place_tells_the_same_of_an_incident(settings: Settings, seed: int) -> None:
    drawn(random.Random(seed), settings)
    tables, at = Warehouse(settings), NOW.isoformat()
    listed = [json.loads(line) for line in listing.listed(tables, "json", at=at).result.splitlines()]
    by_id = {row["incident_id"]: row for row in listed}
    open_ones = [row["incident_id"] for row in listed if row["state"] != "RESOLVED"]
    content = reading.gather(tables, now=NOW)
    alerts = {incident.news.key: incident for incident in news.snapshot(tables, NOW).incidents or ()}
    assert by_id.keys() == alerts.keys() == {incident.incident_id for incident in content.incidents}
    assert [incident.incident_id for incident in content.incidents] == [row["incident_id"] for row in listed]

    top = json.loads(front.top(tables, "json", at).result)
    assert [row["incident_id"] for row in top["incidents"]] == open_ones
    assert top["sentence"] == content.light.sentence
    assert [row["kind"] for row in top["findings"]] == [row["kind"] for row in content.findings]
    for case in content.incidents:
        told, alert = by_id[case.incident_id], alerts[case.incident_id]
        values = json.loads(story.one(tables, case.incident_id, "json", at).result)
        for name, (of_page, of_alert) in {
            "verdict": (case.verdict, alert.news.verdict),
            "severity": (case.severity, alert.news.severity),
            "record_count": (case.records, alert.news.about["record_count"]),
            "state": (case.state, alert.news.about["state"]),
            "sentence": (case.sentence, None),
        }.items():
            assert told[name] == values[name] == of_page, name
            assert of_alert in (None, told[name]), name
        assert case.is_open is alert.is_open is (case.incident_id in open_ones)
        reached = [each["group_id"] for each in values["blast_radius"]["reached"] if each["direction"] == "downstream"]
        assert {*case.downstream} <= {*reached}

    opened = Counter(
        sample.labels["severity"] for sample in _gauge(tables, "open_incidents") for _ in range(int(sample.value))
    )
    assert opened == Counter(by_id[name]["severity"] for name in open_ones)
    kinds = Counter({sample.labels["kind"]: int(sample.value) for sample in _gauge(tables, "findings")})
    assert kinds == Counter(row["kind"] for row in top["findings"])

    verdicts, of_the_day = answers(settings, "poison_pill_or_systemic"), answers(settings, "incidents_of_the_day")
    touched = answers(settings, "applications_touched")
    recent = {name for name, row in by_id.items() if NOW - datetime.fromisoformat(row["last_at"]) < 24 * HOUR}
    assert verdicts.keys() == of_the_day.keys() == recent
    assert touched.keys() <= recent
    cases = {incident.incident_id: incident for incident in content.incidents}
    for name in recent:
        for (row,) in (verdicts[name], of_the_day[name]):
            for column in ("verdict", "severity", "sentence", "record_count", "source_record_count"):
                assert row[column] == by_id[name][column], column
        groups = {row["group_id"] for row in touched.get(name, ()) if not row["is_later"]}
        assert groups == {*cases[name].downstream}
        assert (of_the_day[name][0]["applications_reached"] or 0) == len(groups)
        assert all(row["is_later"] for row in touched.get(name, ()) if row["group_id"] not in groups)
    assert any(row["is_later"] for rows in touched.values() for row in rows)


def _gauge(tables: Warehouse, name: str) -> Any:
    (family,) = (family for family in families.families(tables, NOW) if family.name == f"afterlog_{name}")
    return family.samples


def test_what_goes_on_leads_each_list(settings: Settings) -> None:
    drawn(random.Random(7), settings)
    tables = Warehouse(settings)
    content = reading.gather(tables, now=NOW)
    known = {incident.row["incident_id"]: incident.state for incident in Incidents(tables, NOW).known}
    quiet = [known[incident.incident_id].is_quiet for incident in content.incidents if incident.is_open]
    assert quiet == sorted(quiet)
    assert {*quiet} == {True, False}
    front = next(page.text() for page in pages.pages(content) if page.path == "index.html")
    assert escape(story.no_change(knows_deployments=False)) in front
