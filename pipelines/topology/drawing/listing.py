"""Topology -> text: the format of KIP-1331's command-line section, as ``kafka-streams-groups.sh`` prints it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from expectations.text import visible
from pipelines.topology.model import PROCESSOR, SINK, SOURCE, Node, Part, Topology, predecessors

OWN = {SOURCE: "topics", PROCESSOR: "stores", SINK: "topic"}


def text(topology: Topology) -> str:
    """Return the lines of a topology, each with its line end, nodes in the order of the description.

    If a malformed description gives a node what its type must not have, the text shows that too.
    """
    return "".join(f"{line}\n" for line in _lines(topology))


def _lines(topology: Topology) -> Iterator[str]:
    yield "Topologies:"
    for subtopology in topology.subtopologies:
        yield f"   Sub-topology: {visible(subtopology.subtopology_id)}"
        yield from _nodes(subtopology)
    if topology.global_stores:
        yield "   Global Stores:"
    for store in topology.global_stores:
        yield from _nodes(store)


def _nodes(part: Part) -> Iterator[str]:
    before = predecessors(part.nodes)
    for node in part.nodes:
        # The specification's example has two spaces after ``Source:`` only.
        gap = "  " if node.node_type == SOURCE else " "
        details = _details(node)
        yield f"     {node.kind}:{gap}{visible(node.name)}{f' ({details})' if details else ''}"
        yield from _edges(node, before)


def _details(node: Node) -> str:
    """Return first the detail that the node's type has, then details that its type must not have."""
    own = OWN.get(node.node_type)
    facts = {
        "topics": (node.source_topics, _listed(node.source_topics)),
        "stores": (node.stores, _listed(node.stores)),
        "topic": (node.sink_topic is not None, "null" if node.sink_topic is None else visible(node.sink_topic)),
    }
    shown = [name for name, (there, _) in facts.items() if there or name == own]
    return ", ".join(f"{name}: {facts[name][1]}" for name in sorted(shown, key=lambda name: name != own))


def _edges(node: Node, before: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    sources, successors = before.get(node.name, ()), node.successors
    if sources or node.node_type in (PROCESSOR, SINK):
        yield f"       <-- {_joined(sources) or 'none'}"
    if successors or node.node_type in (SOURCE, PROCESSOR):
        yield f"       --> {_joined(successors) or 'none'}"


def _listed(names: Iterable[str]) -> str:
    return f"[{_joined(names)}]"


def _joined(names: Iterable[str]) -> str:
    return ", ".join(map(visible, sorted(set(names))))
