"""Topology -> text: byte for byte what ``kafka-streams-groups.sh --describe --topology`` of Kafka 4.4 prints.

This is the text of its ``TopologyDescriptionFormatter``, which differs from KIP-1331's example. Only what a terminal
obeys or hides is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import count

from expectations.text import visible
from pipelines.topology.model import PROCESSOR, SINK, SOURCE, Node, Topology, predecessors


def text(topology: Topology) -> str:
    """Return the lines of a topology, each with its line end, parts and nodes in the order of the description.

    Of a node the text shows what its type can have. Kafka's tool refuses other types: of such a node it shows all.
    """
    return "".join(f"{line}\n" for line in _lines(topology))


def _lines(topology: Topology) -> Iterator[str]:
    yield "Topologies:"
    for subtopology in topology.subtopologies:
        yield f"   Sub-topology: {visible(subtopology.subtopology_id)}"
        yield from _nodes(subtopology.nodes)
    # The tool numbers global stores after the sub-topologies, whatever ids these have.
    for number, store in zip(count(len(topology.subtopologies)), topology.global_stores, strict=False):
        yield f"   Sub-topology: {number} for global store (will not generate tasks)"
        yield from _nodes(store.nodes)


def _nodes(nodes: Iterable[Node]) -> Iterator[str]:
    before = predecessors(nodes)
    for node in nodes:
        yield f"    {node.kind}: {visible(node.name)}{_details(node)}"
        yield from _edges(node, before)
    yield ""


def _details(node: Node) -> str:
    if node.node_type == SOURCE:
        return f" (topics: [{_joined(node.source_topics)}])"
    if node.node_type == PROCESSOR:
        return f" (stores: [{_joined(node.stores)}])"
    topic = "null" if node.sink_topic is None else visible(node.sink_topic)
    if node.node_type == SINK:
        return f" (topic: {topic})"
    return f" (topics: [{_joined(node.source_topics)}], stores: [{_joined(node.stores)}], topic: {topic})"


def _edges(node: Node, before: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    if node.node_type != SINK:
        yield f"      --> {_joined(node.successors) or 'none'}"
    if node.node_type != SOURCE:
        yield f"      <-- {_joined(before.get(node.name, ())) or 'none'}"


def _joined(names: Iterable[str]) -> str:
    return ", ".join(map(visible, sorted(set(names), key=_java_order)))


def _java_order(name: str) -> bytes:
    """Return what orders names as Java does: by UTF-16 units, not by characters."""
    return name.encode("utf-16-be", "surrogatepass")
