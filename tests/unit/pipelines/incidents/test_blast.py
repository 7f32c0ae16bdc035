"""What a topic reaches: against a naive closure over random graphs with cycles, revisions and unknown edges."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pipelines.incidents.blast import DOWNSTREAM, UPSTREAM, Blast, Graph, Revisions

START = datetime(2026, 11, 21, tzinfo=UTC)
TOPICS = [f"t{number}" for number in range(6)]


def node(group: str, name: str, kind: int, part: int = 0, topology: str = "1", **values: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "topology_hash": topology,
        "part": "subtopology",
        "part_place": part,
        "subtopology_id": str(part),
        "node": name,
        "node_type": kind,
        "source_topics": [],
        "sink_topic": None,
        "stores": [],
        "successors": [],
        **values,
    }


def revision(group: str, number: int, hours: float, topology: str) -> dict[str, Any]:
    return {
        "group_id": group,
        "revision": number,
        "accepted_at": START + timedelta(hours=hours),
        "topology_hash": topology,
    }


def random_nodes(chance: random.Random) -> list[dict[str, Any]]:
    rows = []
    for group in range(chance.randint(1, 5)):
        for part in range(chance.randint(1, 2)):
            names = [f"n{number}" for number in range(chance.randint(1, 6))]
            for name in names:
                kind = chance.choice((1, 2, 3))
                rows.append(
                    node(
                        f"g{group}",
                        name,
                        kind,
                        part,
                        source_topics=chance.sample(TOPICS, chance.randint(0, 2)) if kind == 1 else [],
                        sink_topic=chance.choice([*TOPICS, None]) if kind == 3 else None,
                        stores=[f"s-{name}"] if kind == 2 else [],
                        successors=chance.sample([*names, "nowhere"], chance.randint(0, 2)),
                    )
                )
    return rows


def closure(rows: list[dict[str, Any]], topic: str, forward: bool) -> tuple[set[str], set[tuple[str, int, str]]]:
    """Return all topics and nodes that are reached, by going on until nothing is new."""
    topics, nodes = {topic}, set()
    while True:
        before = len(topics), len(nodes)
        for row in rows:
            key = (row["group_id"], row["part_place"], row["node"])
            touches = set(row["source_topics"]) if forward else {row["sink_topic"]}
            near = any(
                (other["group_id"], other["part_place"], other["node"]) in nodes
                and (row["node"] in other["successors"] if forward else other["node"] in row["successors"])
                for other in rows
                if (other["group_id"], other["part_place"]) == key[:2]
            )
            if touches & topics or near:
                nodes.add(key)
                topics |= {row["sink_topic"]} - {None} if forward else set(row["source_topics"])
        if before == (len(topics), len(nodes)):
            return topics, nodes


@pytest.mark.parametrize("seed", range(200))
def test_all_that_is_connected_is_reached_and_nothing_else(seed: int) -> None:
    rows = random_nodes(random.Random(seed))
    groups = {row["group_id"] for row in rows}
    graph = Graph(rows, Revisions(revision(group, 1, 0, "1") for group in groups).at(START))
    for direction in (DOWNSTREAM, UPSTREAM):
        topics, nodes = closure(rows, "t0", direction == DOWNSTREAM)
        blast = graph.blast("t0")
        found = blast.towards(direction)
        assert {item.topic for item in found} | {topic for item in found for topic in item.topics} | {"t0"} == topics
        reached = {(item.group_id, int(item.subtopology_id or 0), each.name) for item in found for each in item.nodes}
        assert reached == nodes
        assert [item.hop for item in found] == sorted(item.hop for item in found)
        if any(item.unknown_edges for item in found if direction == DOWNSTREAM):
            assert blast.is_lower_bound
        for form in ("mermaid", "svg"):
            assert blast.drawn(form)


def test_the_revision_at_the_time_counts() -> None:
    rows = [
        node("app", "in", 1, topology="1", source_topics=["orders"], successors=["out"]),
        node("app", "out", 3, topology="1", sink_topic="old"),
        node("app", "in", 1, topology="2", source_topics=["orders"], successors=["out"]),
        node("app", "out", 3, topology="2", sink_topic="new"),
    ]
    revisions = [revision("app", 2, 5, "2"), revision("app", 1, 1, "1")]
    for hours, topic, is_later in ((0, "old", True), (1, "old", False), (4.9, "old", False), (5, "new", False)):
        (item,) = (
            Graph(rows, Revisions(revisions).at(START + timedelta(hours=hours))).blast("orders").towards(DOWNSTREAM)
        )
        assert (item.topics, item.is_later) == ((topic,), is_later)


def test_what_only_later_topologies_reach_is_named_as_later_and_does_not_count() -> None:
    """A later application leads to another one that was there: its records cannot have come that way then."""
    rows = [
        node("there", "in", 1, source_topics=["orders"]),
        node("later", "in", 1, source_topics=["orders"], successors=["out"]),
        node("later", "out", 3, sink_topic="paid"),
        node("behind", "in", 1, source_topics=["paid"], successors=["out"]),
        node("behind", "out", 3),
        node("pattern", "in", 1),
    ]
    accepted = {"there": 0, "behind": 0, "later": 24 * 7, "pattern": 24 * 7}
    known = Revisions([revision(group, 1, hours, "1") for group, hours in accepted.items()])

    def told(hours: float, group: str | None = None) -> Blast:
        return Graph(rows, known.at(START + timedelta(hours=hours), group)).blast("orders", group)

    then, now = told(1), told(24 * 8)
    assert [(toward.group_id, toward.hop, toward.is_later) for toward in then.towards(DOWNSTREAM)] == [
        ("there", 1, False),
        ("later", 1, True),
        ("behind", 2, True),
    ]
    assert (then.groups, now.groups) == (["there"], ["later", "there", "behind"])
    assert then.reasons == ("the first known topology of later came later", "behind can write any topic")
    assert ["(revision 1, accepted later)" in line for line in then.reach] == [False, True, True]
    assert not [line for line in now.as_lines() if "(revision 1, accepted later)" in line]
    assert [why for why in now.reasons if "pattern" in why] == ["pattern reads topics by a pattern"]
    assert told(1, "pattern").reasons[-1] == "no topology of pattern was known then"
    nobody = Graph(rows, Revisions([revision("later", 1, 9, "1")]).at(START)).blast("paid")
    assert (nobody.groups, nobody.reach[0]) == ([], "No topology that was known then read paid.")
    assert nobody.is_lower_bound
    assert Graph([], {}).blast("orders").reasons == ("no topology was known then",)


@pytest.mark.parametrize("seed", range(100))
def test_what_counts_is_what_is_reached_as_if_nothing_came_later(seed: int) -> None:
    chance = random.Random(seed)
    rows = random_nodes(chance)
    hours = {row["group_id"]: chance.choice((0, 0, 5)) for row in rows}
    revisions = [revision(group, 1, at, "1") for group, at in hours.items()]
    both = Graph(rows, Revisions(revisions).at(START)).blast("t0")
    before = [row for row in rows if not hours[row["group_id"]]]
    only = Graph(before, Revisions(row for row in revisions if row["accepted_at"] <= START).at(START)).blast("t0")
    after = Graph(rows, Revisions(revisions).at(START + timedelta(hours=5))).blast("t0")

    def places(blast: Blast) -> set[tuple[str, str, str | None, str]]:
        return {(item.direction, item.group_id, item.subtopology_id, item.topic) for item in blast.reached}

    assert tuple(item for item in both.reached if not item.is_later and item.direction == DOWNSTREAM) == tuple(
        only.towards(DOWNSTREAM)
    )
    assert places(both) == places(after)
    assert {item.group_id for item in both.reached if item.group_id in both.groups} <= {
        row["group_id"] for row in before
    }


def test_a_group_that_was_deleted_before_is_not_reached() -> None:
    rows = [node(group, "in", 1, source_topics=["orders"]) for group in ("gone", "there")]
    known = Revisions(
        [revision(group, 1, 0, "1") for group in ("gone", "there")],
        [
            {"group_id": "gone", "deleted_at": START + timedelta(hours=2)},
            {"group_id": "there", "deleted_at": None},
            {"group_id": "of-no-topology", "deleted_at": START},
        ],
    )

    def reached(hours: float, group: str | None = None) -> set[str]:
        valid = known.at(START + timedelta(hours=hours), group)
        return {item.group_id for item in Graph(rows, valid).blast("orders", group).reached}

    assert reached(1) == {"gone", "there"}
    assert reached(2) == reached(3) == {"there"}
    assert reached(3, "there") == {"there"}
    assert reached(3, "gone") == {"gone", "there"}  # its dead letters show that it is there again
    assert known.times == [START, START, START, START + timedelta(hours=2)]


@pytest.mark.parametrize(
    ("rows", "group", "why"),
    [
        (
            [node("app", "in", 1, source_topics=["orders"], successors=["out"]), node("app", "out", 3)],
            None,
            "for each record",
        ),
        ([node("app", "in", 1)], None, "by a pattern"),
        ([node("app", "out", 3)], None, "can write any topic"),
        ([], "share-group", "no topology of share-group"),
    ],
)
def test_what_is_unknown_makes_it_a_lower_bound(rows: list[dict[str, Any]], group: str | None, why: str) -> None:
    blast = Graph(rows, Revisions([revision("app", 1, 0, "1")]).at(START)).blast("orders", group)
    assert blast.is_lower_bound
    assert any(why in line for line in blast.as_lines())


def test_names_are_escaped() -> None:
    rows = [node("evil\x1b[31m", "in<b>", 1, source_topics=["orders"], stores=["s\u202e"])]
    blast = Graph(rows, Revisions([revision("evil\x1b[31m", 1, 0, "1")]).at(START)).blast("orders")
    for text in ("\n".join(blast.as_lines()), blast.drawn("mermaid"), blast.drawn("svg")):
        assert not {"\x1b", "\u202e"} & set(text)
    assert "<b>" not in blast.drawn("svg")


def test_many_applications_take_little_time() -> None:
    rows, revisions = [], []
    for number in range(500):
        group = f"g{number}"
        revisions.append(revision(group, 1, 0, "1"))
        rows.append(node(group, "n0", 1, source_topics=[f"x{number}"], successors=["n1"]))
        rows += [node(group, f"n{place}", 2, successors=[f"n{place + 1}"]) for place in range(1, 49)]
        rows.append(node(group, "n49", 3, sink_topic=f"x{(number + 1) % 500}"))
    began = time.perf_counter()
    blast = Graph(rows, Revisions(revisions).at(START)).blast("x0")
    assert len(blast.towards(DOWNSTREAM)) == 500
    assert time.perf_counter() - began < 60  # a hang, not a figure
