"""How a topology description is read, and when two descriptions are the same."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import UsageError
from pipelines.topology.model import GlobalStore, Node, Subtopology, Topology, predecessors
from tests.testing.topologies import (
    CAPTURED,
    FIELDS,
    captured,
    chain,
    nodes,
    ring,
    shuffled,
    tiny_topologies,
    topologies,
)

# KIP-1331, appendix.
APPENDIX = """{
  "GroupId": "orders-app",
  "TopologyEpoch": 0,
  "TopologyDescription": {
    "Subtopologies": [
      {
        "SubtopologyId": "0",
        "Nodes": [
          {
            "Name": "KSTREAM-SOURCE-0000000000",
            "NodeType": 1,
            "SourceTopics": ["orders"],
            "SinkTopic": null,
            "Stores": [],
            "Successors": ["KSTREAM-FILTER-0000000001"]
          },
          {
            "Name": "KSTREAM-FILTER-0000000001",
            "NodeType": 2,
            "SourceTopics": [],
            "SinkTopic": null,
            "Stores": [],
            "Successors": ["KSTREAM-SINK-0000000002"]
          },
          {
            "Name": "KSTREAM-SINK-0000000002",
            "NodeType": 3,
            "SourceTopics": [],
            "SinkTopic": "valid-orders",
            "Stores": [],
            "Successors": []
          }
        ]
      }
    ],
    "GlobalStores": []
  }
}"""


def camel(value: Any) -> Any:
    if isinstance(value, dict):
        return {key[0].lower() + key[1:]: camel(inner) for key, inner in value.items()}
    return [camel(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("inner", [False, True], ids=["body of a push", "description"])
def test_payload_of_the_specification(inner: bool) -> None:
    body = json.loads(APPENDIX)
    topology = Topology.parsed(json.dumps(body["TopologyDescription"]) if inner else APPENDIX)
    assert topology == Topology(
        (
            Subtopology(
                "0",
                (
                    Node("KSTREAM-SOURCE-0000000000", 1, ("orders",), None, (), ("KSTREAM-FILTER-0000000001",)),
                    Node("KSTREAM-FILTER-0000000001", 2, (), None, (), ("KSTREAM-SINK-0000000002",)),
                    Node("KSTREAM-SINK-0000000002", 3, (), "valid-orders"),
                ),
            ),
        )
    )
    assert topology.wire() == camel(body["TopologyDescription"])


@pytest.mark.parametrize("name", sorted(path.stem for path in CAPTURED.glob("*.json")))
def test_wire_form_is_what_was_pushed_to_a_real_broker(name: str) -> None:
    pushed = (CAPTURED / f"{name}.json").read_text()
    assert json.dumps(captured(name).wire()) == pushed.strip()


@given(topologies)
def test_wire_form_is_read_back(topology: Topology) -> None:
    assert Topology.parsed(json.dumps(topology.wire())) == topology


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('{"subtopologies": null}', Topology(), id="null list"),
        pytest.param('{"GlobalStores": []}', Topology(), id="only one list"),
        pytest.param(
            '{"subtopologies": [{"subtopologyId": "0", "nodes": null}]}', Topology((Subtopology("0"),)), id="no nodes"
        ),
        pytest.param(
            '{"subtopologies": [{"subtopologyId": "0", "nodes": [{"name": "n", "nodeType": 2, "stores": null}]}]}',
            Topology((Subtopology("0", (Node("n", 2),)),)),
            id="node without lists",
        ),
        pytest.param('{"topologyDescription": {"subtopologies": []}, "groupId": "g"}', Topology(), id="body of a push"),
        pytest.param(
            '{"globalStores": [{"source": {"name": "s", "nodeType": 1}, "processor": {"name": "p", "nodeType": 2}}]}',
            Topology((), (GlobalStore(Node("s", 1), Node("p", 2)),)),
            id="global store",
        ),
    ],
)
def test_what_is_not_there_is_empty(text: str, expected: Topology) -> None:
    assert Topology.parsed(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("Topologies:\n", id="no JSON"),
        pytest.param("[" * 200_000, id="nested without end"),
        pytest.param("null", id="null"),
        pytest.param("[]", id="list"),
        pytest.param("{}", id="empty object"),
        pytest.param('{"groupId": "g", "topologyDescription": null}', id="push without a description"),
        pytest.param('{"subtopologies": {}}', id="object for a list"),
        pytest.param('{"subtopologies": ["0"]}', id="text for a sub-topology"),
        pytest.param('{"subtopologies": [{"nodes": []}]}', id="no sub-topology id"),
        pytest.param('{"subtopologies": [{"subtopologyId": "0", "nodes": [null]}]}', id="null node"),
        pytest.param('{"subtopologies": [{"subtopologyId": "0", "nodes": [{"nodeType": 1}]}]}', id="no name"),
        pytest.param(
            '{"subtopologies": [{"subtopologyId": "0", "nodes": [{"name": "n", "nodeType": "SOURCE"}]}]}', id="no type"
        ),
        pytest.param(
            '{"subtopologies": [{"subtopologyId": "0", "nodes": [{"name": "n", "nodeType": true}]}]}', id="true type"
        ),
        pytest.param(
            '{"subtopologies": [{"subtopologyId": "0", "nodes": [{"name": "n", "nodeType": 3, "sinkTopic": []}]}]}',
            id="list for a topic",
        ),
        pytest.param(
            '{"subtopologies": [{"subtopologyId": "0", "nodes": [{"name": "n", "nodeType": 2, "stores": [1]}]}]}',
            id="number for a store",
        ),
        pytest.param('{"globalStores": [{"source": {"name": "s", "nodeType": 1}}]}', id="half a global store"),
    ],
)
def test_what_is_no_description_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+topology description[^\n]+\.$") as refusal:
        Topology.parsed(text)
    assert isinstance(refusal.value, UsageError)


@given(st.lists(nodes, max_size=8))
def test_predecessors_are_the_inverse_of_successors(part: list[Node]) -> None:
    before = predecessors(part)
    assert {(item, name) for name, ones in before.items() for item in ones} == {
        (node.name, successor) for node in part for successor in node.successors
    }
    assert all(ones == tuple(sorted(set(ones))) for ones in before.values())


def test_predecessors_stay_within_a_part() -> None:
    first, second = captured("orders-app").parts[1:3]
    assert predecessors(first.nodes) == {
        "KSTREAM-SINK-0000000013": ("KSTREAM-JOIN-0000000012",),
        "KTABLE-SOURCE-0000000006": ("KSTREAM-SOURCE-0000000005",),
        "KSTREAM-JOIN-0000000012": ("KSTREAM-SOURCE-0000000011",),
    }
    assert "KSTREAM-AGGREGATE-0000000015" in predecessors(second.nodes)


@given(st.data(), topologies)
def test_order_and_repetition_in_lists_make_no_difference(data: st.DataObject, topology: Topology) -> None:
    assert data.draw(shuffled(topology)).canonical() == topology.canonical()


def bag(topology: Topology) -> Any:
    """The topology as a multiset of multisets, which is its meaning."""

    def content(node: Node) -> Any:
        sets = map(frozenset, (node.source_topics, node.stores, node.successors))
        return (node.name, node.node_type, node.sink_topic, *sets)

    parts = Counter(
        (subtopology.subtopology_id, frozenset(Counter(map(content, subtopology.nodes)).items()))
        for subtopology in topology.subtopologies
    )
    return parts, Counter((content(store.source), content(store.processor)) for store in topology.global_stores)


@given(st.data(), tiny_topologies)
def test_canonical_forms_are_equal_exactly_where_topologies_are(data: st.DataObject, a: Topology) -> None:
    wire = a.wire()
    places = [nodes for part in wire["subtopologies"] if (nodes := part["nodes"])]
    edit = data.draw(st.sampled_from(["field", "id", "twice", "less", "other"]))
    if edit == "field" and places:
        nodes, field = data.draw(st.sampled_from(places)), data.draw(st.sampled_from(sorted(FIELDS)))
        nodes[0] = replace(a_node(nodes[0]), **{field: data.draw(FIELDS[field])}).wire()
    elif edit == "id" and wire["subtopologies"]:
        wire["subtopologies"][0]["subtopologyId"] = data.draw(st.sampled_from("01"))
    elif edit == "twice" and places:
        places[0].append(places[0][0])
    elif edit == "less" and places:
        places[0].pop()
    elif edit == "other":
        wire = data.draw(tiny_topologies).wire()
    b = Topology.parsed(json.dumps(wire))

    assert (a.canonical() == b.canonical()) == (bag(a) == bag(b))
    assert a.canonical().canonical() == a.canonical()


def a_node(wire: dict[str, Any]) -> Node:
    return Topology.parsed(json.dumps({"subtopologies": [{"subtopologyId": "0", "nodes": [wire]}]})).nodes[0]


def test_canonical_order_and_repeated_nodes() -> None:
    topology = Topology(
        (
            Subtopology("1", (Node("b", 2), Node("a", 2, stores=("y", "x", "y")), Node("a", 2, stores=("y", "x")))),
            Subtopology("0"),
        )
    )
    assert topology.canonical() == Topology(
        (
            Subtopology("0"),
            Subtopology("1", (Node("a", 2, stores=("x", "y")), Node("a", 2, stores=("x", "y")), Node("b", 2))),
        )
    )


def test_no_sink_topic_is_not_an_empty_one() -> None:
    item, other = Node("n", 3, (), None), Node("n", 3, (), "")
    assert (
        Topology((Subtopology("0", (item, other)),)).canonical()
        == Topology((Subtopology("0", (other, item)),)).canonical()
    )
    assert Topology((Subtopology("0", (item,)),)).canonical() != Topology((Subtopology("0", (other,)),)).canonical()


@pytest.mark.parametrize("topology", [chain(10_000), ring(10_000)], ids=["chain", "ring"])
def test_ten_thousand_nodes(topology: Topology) -> None:
    assert Topology.parsed(json.dumps(topology.wire())).canonical() == topology.canonical()
    assert len(predecessors(topology.nodes)) in (9_999, 10_000)
