"""The difference between two topologies: complete, in JSON, and for people."""

from __future__ import annotations

import json
from collections import Counter
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expectations.text import visible
from pipelines.text import columns
from pipelines.topology.diff import Diff, Member, SubtopologyKey, _nodes, _nodes_by_subtopology, diff
from pipelines.topology.model import GlobalStore, Node, Subtopology, Topology
from tests.testing.examples import at_most
from tests.testing.topologies import HOSTILE, captured, chain, ring, shuffled, topologies


def applied(difference: Diff, a: Topology) -> Topology:
    """Return a topology with a difference applied, so that a test can show that a difference is complete."""
    before = _nodes_by_subtopology(a)
    nodes: Counter[Member] = Counter(_nodes(before))
    nodes.subtract([*difference.nodes_removed, *(change.before for change in difference.nodes_changed)])
    nodes.update([*difference.nodes_added, *(change.after for change in difference.nodes_changed)])
    stores = Counter(a.canonical().global_stores)
    stores.subtract(
        [*difference.global_stores_removed, *(change.before for change in difference.global_stores_changed)]
    )
    stores.update([*difference.global_stores_added, *(change.after for change in difference.global_stores_changed)])
    assert min([*nodes.values(), *stores.values()], default=0) >= 0
    keys = before.keys() - set(difference.subtopologies_removed) | set(difference.subtopologies_added)
    parts: dict[SubtopologyKey, list[Node]] = {key: [] for key in keys}
    for member in nodes.elements():
        parts[member.subtopology].append(member.node)
    subtopologies = tuple(Subtopology(key.subtopology_id, tuple(nodes)) for key, nodes in parts.items())
    return Topology(subtopologies, tuple(stores.elements())).canonical()


BEFORE = Topology(
    (
        Subtopology(
            "0",
            (
                Node("source", 1, ("orders",), None, (), ("filter", "old")),
                Node("filter", 2, (), None, ("seen",), ("sink",)),
                Node("old", 3, (), "rejects"),
                Node("sink", 3, (), "valid-orders"),
            ),
        ),
        Subtopology("1", (Node("moving", 1, ("valid-orders",)),)),
        Subtopology("2"),
    ),
    (GlobalStore(Node("all", 1, ("rates",), None, (), ("fill",)), Node("fill", 2, (), None, ("rates-store",))),),
)
AFTER = Topology(
    (
        Subtopology(
            "0",
            (
                Node("source", 1, ("orders", "orders-v2"), None, (), ("filter",)),
                Node("filter", 2, (), None, ("seen",), ("sink", "new")),
                Node("sink", 2),
                Node("new", 3),
            ),
        ),
        Subtopology("10", (Node("moving", 1, ("valid-orders",)),)),
        Subtopology("2"),
    ),
    (GlobalStore(Node("all", 1, ("rates",), None, (), ("fill-2",)), Node("fill-2", 2, (), None, ("rates-store",))),),
)


def test_as_json() -> None:
    def node(name: str, node_type: int, **fields: object) -> dict[str, object]:
        lists = {"sourceTopics": [], "sinkTopic": None, "stores": [], "successors": []}
        return {"name": name, "nodeType": node_type, **lists, **fields}

    def side(subtopology_id: str, node: dict[str, object]) -> dict[str, object]:
        return {"subtopologyId": subtopology_id, "node": node}

    found = diff(BEFORE, AFTER).as_json()
    assert found == {
        "subtopologies": {"added": [{"subtopologyId": "10"}], "removed": [{"subtopologyId": "1"}]},
        "nodes": {
            "added": [side("0", node("new", 3))],
            "removed": [side("0", node("old", 3, sinkTopic="rejects"))],
            "changed": [
                {
                    "name": "filter",
                    "before": side("0", node("filter", 2, stores=["seen"], successors=["sink"])),
                    "after": side("0", node("filter", 2, stores=["seen"], successors=["new", "sink"])),
                },
                {
                    "name": "sink",
                    "before": side("0", node("sink", 3, sinkTopic="valid-orders")),
                    "after": side("0", node("sink", 2)),
                },
                {
                    "name": "source",
                    "before": side("0", node("source", 1, sourceTopics=["orders"], successors=["filter", "old"])),
                    "after": side("0", node("source", 1, sourceTopics=["orders", "orders-v2"], successors=["filter"])),
                },
                {
                    "name": "moving",
                    "before": side("1", node("moving", 1, sourceTopics=["valid-orders"])),
                    "after": side("10", node("moving", 1, sourceTopics=["valid-orders"])),
                },
            ],
        },
        "globalStores": {
            "added": [],
            "removed": [],
            "changed": [{"before": BEFORE.global_stores[0].wire(), "after": AFTER.global_stores[0].wire()}],
        },
        "edges": {
            "added": [{"from": "all", "to": "fill-2"}, {"from": "filter", "to": "new"}],
            "removed": [{"from": "all", "to": "fill"}, {"from": "source", "to": "old"}],
        },
        "stores": {"added": [], "removed": []},
        "topics": {"added": ["orders-v2"], "removed": ["rejects"]},
    }
    assert json.loads(json.dumps(found)) == found


def test_as_text() -> None:
    assert diff(BEFORE, AFTER).as_text() == (
        "Sub-topologies +1 -1, nodes +1 -1 ~3, global stores ~1, edges +2 -2, topics +1\n"
        "-1.\n"
        "  Sub-topology: 0\n"
        "~   Processor: filter\n"
        "+     --> new\n"
        "+   Sink: new\n"
        "-   Sink: old\n"
        "-     sink topic: rejects\n"
        "~   Processor: sink\n"
        "-     type: Sink\n"
        "-     sink topic: valid-orders\n"
        "+     type: Processor\n"
        "~   Source: source\n"
        "-     --> old\n"
        "+     source topic: orders-v2\n"
        "- Sub-topology: 1\n"
        "+ Sub-topology: 10\n"
        "~   Source: moving\n"
        "-     sub-topology: 1\n"
        "+     sub-topology: 10\n"
        "  Global Stores:\n"
        "~   Source: all\n"
        "-     --> fill\n"
        "+     --> fill-2\n"
        "~   Processor: fill-2\n"
        "-     name: fill\n"
        "+     name: fill-2\n"
        "  Topics:\n"
        "-   rejects\n"
        "+   orders-v2\n"
    )


def test_whole_global_stores_and_sub_topologies_in_order() -> None:
    stores = (
        GlobalStore(Node("s", 1, ("t",), None, (), ("p",)), Node("p", 2, (), None, ("x",))),
        GlobalStore(Node("s", 1, ("t",), None, (), ("p",)), Node("p", 2, (), None, ("x",))),
    )
    ids = ("10", "9", "x", "9")
    parts = tuple(Subtopology(item) for item in ids)
    found = diff(Topology(), Topology(parts, stores))
    store = "+   Source: s\n+     source topic: t\n+     --> p\n+   Processor: p\n+     store: x\n"
    assert found.as_text() == (
        "Sub-topologies +4, global stores +2, edges +1, stores +1, topics +1.\n"
        "+ Sub-topology: 9\n"
        "+ Sub-topology: 9 (number 2 of this id)\n"
        "+ Sub-topology: 10\n"
        "+ Sub-topology: x\n"
        f"  Global Stores:\n{store}{store}"
        "  Stores:\n"
        "+   x\n"
        "  Topics:\n"
        "+   t\n"
    )
    assert found.as_json()["subtopologies"]["added"][1] == {"subtopologyId": "9", "number": 1}


def test_a_repeated_node_is_found_in_its_own_sub_topology_first() -> None:
    a = Topology((Subtopology("0", (Node("n", 1),)), Subtopology("1", (Node("n", 2), Node("n", 3)))))
    b = Topology((Subtopology("0"), Subtopology("1", (Node("n", 8), Node("n", 9)))))
    found = diff(a, b)
    assert [(item.before, item.after) for item in found.nodes_changed] == [
        (Member(SubtopologyKey("1"), Node("n", 2)), Member(SubtopologyKey("1"), Node("n", 8))),
        (Member(SubtopologyKey("1"), Node("n", 3)), Member(SubtopologyKey("1"), Node("n", 9))),
    ]
    assert found.nodes_removed == (Member(SubtopologyKey("0"), Node("n", 1)),)


@at_most(100)
@given(st.data(), topologies)
def test_nothing_differs_from_itself_in_any_order(data: st.DataObject, topology: Topology) -> None:
    found = diff(topology, data.draw(shuffled(topology)))
    assert found.empty
    assert found == Diff()
    assert found.as_text() == "There is no difference.\n"
    assert not any(items for ends in found.as_json().values() for items in ends.values())
    assert applied(found, topology) == topology.canonical()


@at_most(100)
@given(topologies, topologies)
def test_a_difference_makes_one_topology_of_the_other(a: Topology, b: Topology) -> None:
    found = diff(a, b)
    assert applied(found, a) == b.canonical()
    assert found.empty == (a.canonical() == b.canonical())


@at_most(100)
@given(topologies, st.lists(st.integers(0, 100), max_size=4))
def test_so_does_a_difference_between_neighbours(a: Topology, cuts: list[int]) -> None:
    """Random topologies share little; these two share most."""
    nodes = [
        [node for key, node in enumerate(part.nodes) if key + 7 * number not in cuts]
        for number, part in enumerate(a.subtopologies)
    ]
    b = Topology(
        tuple(Subtopology(part.subtopology_id, tuple(kept)) for part, kept in zip(a.subtopologies, nodes, strict=True)),
        a.global_stores[: len(cuts)],
    )
    assert applied(diff(a, b), a) == b.canonical()
    assert applied(diff(b, a), b) == a.canonical()


@at_most(100)
@given(topologies, topologies)
def test_what_is_said_of_edges_stores_and_topics_holds(a: Topology, b: Topology) -> None:
    found = diff(a, b)
    for new, gone, uses in (
        (found.stores_added, found.stores_removed, lambda node: node.stores),
        (found.topics_added, found.topics_removed, lambda node: node.topics),
        (found.edges_added, found.edges_removed, lambda node: [(node.name, to) for to in node.successors]),
    ):
        before, after = ({use for node in item.nodes for use in uses(node)} for item in (a, b))
        assert (set(new), set(gone)) == (after - before, before - after)
        assert list(new) == sorted(new)


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names_make_no_lines(name: str) -> None:
    nodes = (Node(name, 1, (name,), name, (name,), (name + "2",)), Node(name + "2", 2))
    after = Topology((Subtopology(name, nodes),), (GlobalStore(*nodes),))
    for found in (diff(Topology(), after), diff(after, Topology()), diff(after, Topology((Subtopology("0", nodes),)))):
        lines = found.as_text().splitlines()
        assert all(line.isprintable() for line in lines)
        assert all(line[:2] in ("+ ", "- ", "~ ", "  ") for line in lines[1:])
        assert visible(name) in found.as_text()


def test_a_name_that_shows_like_another_is_a_difference() -> None:
    a, b = (Topology((Subtopology("0", (Node("n", 2, stores=(name,)),)),)) for name in ("\n", "\\n"))
    assert diff(a, b).as_text().splitlines()[2:5] == [
        "~   Processor: n",
        r"-     store: \n",
        r"+     store: \n",
    ]


def test_lines_fit_a_terminal() -> None:
    lines = diff(captured("orders-app"), captured("hops-app")).as_text().splitlines()
    assert max(map(columns, lines)) <= 80
    assert lines[0].startswith("Nodes +") or lines[0].startswith("Sub-topologies +")


@pytest.mark.parametrize("other", [ring(10_000), Topology()], ids=["ring", "empty"])
def test_ten_thousand_nodes(other: Topology) -> None:
    start = perf_counter()
    found = diff(chain(10_000), other)
    assert applied(found, chain(10_000)) == other.canonical()
    assert len(found.as_text()) + len(json.dumps(found.as_json())) > 0
    assert perf_counter() - start < 20
