"""Topologies for tests: real ones, random ones (also malformed), and hostile names."""

from __future__ import annotations

from pathlib import Path

from hypothesis import strategies as st

from pipelines.topology.model import GlobalStore, Node, Subtopology, Topology

CAPTURED = Path(__file__).parents[1] / "data" / "topology"

# None of our own texts contains HARM, so any HARM in a drawing comes from a name.
HOSTILE = {
    "markup": '"><script>HARM()</script>',
    "entity": "&amp;#quot;<b>HARM</b>",
    "link": "HARM --> n0",
    "quoted bracket": '"]\n  n0["HARM',
    "lines": "HARM\n   Sub-topology: 9\r\u2028x",
    "terminal": "\x1b[31mHARM\x07\x00",
    "bidirectional": "\u202eHARM\u2066",
    "markdown": "`**HARM**` _x_ $$y^2$$",
    "directive": '%%{init: {"HARM": 1}}%%',
    "icon": "fa:fa-HARM",
    "surrogate": "HARM\ud800",
    "backslash": "HARM\\n\\u0041",
    "long": "HARM" * 100,
    "empty": "",
    "wide": "日本語HARM" * 20,
}

names = st.sampled_from(["a", "b", "c", "d", "KSTREAM-SOURCE-0000000000", *HOSTILE.values()]) | st.text(max_size=3)
few_names = st.lists(names, max_size=3).map(tuple)
nodes = st.builds(Node, names, st.sampled_from([1, 2, 3, 9]), few_names, st.none() | names, few_names, few_names)
subtopologies = st.builds(Subtopology, st.sampled_from("0125x") | names, st.lists(nodes, max_size=5).map(tuple))
topologies = st.builds(
    Topology,
    st.lists(subtopologies, max_size=4).map(tuple),
    st.lists(st.builds(GlobalStore, nodes, nodes), max_size=2).map(tuple),
)

# Few values, so that two topologies are often equal.
FIELDS = {
    "name": st.sampled_from("ab"),
    "node_type": st.sampled_from([1, 2]),
    "source_topics": st.sampled_from([(), ("t",), ("t", "t")]),
    "sink_topic": st.sampled_from([None, "", "t"]),
    "stores": st.sampled_from([(), ("s",), ("s", "s")]),
    "successors": st.sampled_from([(), ("a",), ("a", "b"), ("b", "a")]),
}
tiny_nodes = st.builds(Node, **FIELDS)
tiny_topologies = st.builds(
    Topology,
    st.lists(
        st.builds(Subtopology, st.sampled_from("01"), st.lists(tiny_nodes, max_size=2).map(tuple)), max_size=2
    ).map(tuple),
    st.lists(st.builds(GlobalStore, tiny_nodes, tiny_nodes), max_size=1).map(tuple),
)


def captured(name: str) -> Topology:
    """A description that an application pushed to a real broker."""
    return Topology.parsed((CAPTURED / f"{name}.json").read_text())


def chain(length: int) -> Topology:
    """A source, processors and a sink in one line."""
    nodes = [Node(f"node-{place}", 2, (), None, (), (f"node-{place + 1}",)) for place in range(1, length - 1)]
    source = Node("node-0", 1, ("in",), None, (), ("node-1",))
    return Topology((Subtopology("0", (source, *nodes, Node(f"node-{length - 1}", 3, (), "out"))),))


def ring(length: int) -> Topology:
    """Processors in a circle."""
    nodes = (Node(f"node-{place}", 2, (), None, (), (f"node-{(place + 1) % length}",)) for place in range(length))
    return Topology((Subtopology("0", tuple(nodes)),))


@st.composite
def shuffled(draw: st.DrawFn, topology: Topology) -> Topology:
    """The same topology in another order, with some names in lists repeated."""

    def mixed(values: tuple[str, ...]) -> tuple[str, ...]:
        again = draw(st.lists(st.sampled_from(values), max_size=2)) if values else []
        return tuple(draw(st.permutations([*values, *again])))

    def again(node: Node) -> Node:
        lists = (mixed(node.source_topics), mixed(node.stores), mixed(node.successors))
        return Node(node.name, node.node_type, lists[0], node.sink_topic, lists[1], lists[2])

    parts = (
        Subtopology(subtopology.subtopology_id, tuple(map(again, draw(st.permutations(subtopology.nodes)))))
        for subtopology in draw(st.permutations(topology.subtopologies))
    )
    stores = (
        GlobalStore(again(store.source), again(store.processor))
        for store in draw(st.permutations(topology.global_stores))
    )
    return Topology(tuple(parts), tuple(stores))
