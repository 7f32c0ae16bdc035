"""description JSON -> Topology: the processing graph of a Streams application, in the wire schema of KIP-1331.

Brokers check only the node type, so any graph can arrive: successors that are not nodes, repeated names and ids,
cycles, no nodes at all. A Topology holds all of it. Apart from sorting, no function here takes more than linear time,
and none recurses.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pipelines.errors import UsageError

SOURCE, PROCESSOR, SINK = 1, 2, 3
KINDS = {SOURCE: "Source", PROCESSOR: "Processor", SINK: "Sink"}


class NoTopology(UsageError, ValueError):
    """Raised if a text is not a topology description."""


@dataclass(frozen=True)
class Node:
    """A source, processor or sink (``node_type`` 1, 2 or 3).

    The lists are as sent, and a node of any type can have any of them. If the application chooses topics at run time,
    ``sink_topic`` is null and ``source_topics`` is empty.
    """

    name: str
    node_type: int
    source_topics: tuple[str, ...] = ()
    sink_topic: str | None = None
    stores: tuple[str, ...] = ()
    successors: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The word that Kafka prints for the node's type."""
        return KINDS.get(self.node_type, f"Unknown (type {self.node_type})")

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics that the node reads or writes."""
        return self.source_topics if self.sink_topic is None else (*self.source_topics, self.sink_topic)

    def wire(self) -> dict[str, Any]:
        """Return the wire schema's struct TopologyDescriptionNode."""
        return {
            "name": self.name,
            "nodeType": self.node_type,
            "sourceTopics": list(self.source_topics),
            "sinkTopic": self.sink_topic,
            "stores": list(self.stores),
            "successors": list(self.successors),
        }

    def canonical(self) -> Node:
        """Return the node with its lists sorted and without duplicates."""
        return Node(
            self.name,
            self.node_type,
            _as_set(self.source_topics),
            self.sink_topic,
            _as_set(self.stores),
            _as_set(self.successors),
        )

    def rank(self) -> tuple[Any, ...]:
        """Return the sort key of canonical nodes: the name, then everything else."""
        sink = () if self.sink_topic is None else (self.sink_topic,)
        return (self.name, self.node_type, self.source_topics, sink, self.stores, self.successors)


@dataclass(frozen=True)
class Subtopology:
    """Nodes that run in one task; no edge leaves the sub-topology."""

    subtopology_id: str
    nodes: tuple[Node, ...] = ()

    def wire(self) -> dict[str, Any]:
        """Return the wire schema's struct TopologyDescriptionSubtopology."""
        return {"subtopologyId": self.subtopology_id, "nodes": [node.wire() for node in self.nodes]}

    def canonical(self) -> Subtopology:
        """Return the sub-topology with its nodes canonical and sorted; repeated nodes are kept."""
        return Subtopology(self.subtopology_id, tuple(sorted((node.canonical() for node in self.nodes), key=Node.rank)))

    def rank(self) -> tuple[Any, ...]:
        """Return the sort key of canonical sub-topologies."""
        return (self.subtopology_id, tuple(node.rank() for node in self.nodes))


@dataclass(frozen=True)
class GlobalStore:
    """A store that every instance fills from a whole topic."""

    source: Node
    processor: Node

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The two nodes, in the form of a sub-topology's nodes."""
        return (self.source, self.processor)

    def wire(self) -> dict[str, Any]:
        """Return the wire schema's struct TopologyDescriptionGlobalStore."""
        return {"source": self.source.wire(), "processor": self.processor.wire()}

    def canonical(self) -> GlobalStore:
        """Return the global store with canonical nodes."""
        return GlobalStore(self.source.canonical(), self.processor.canonical())

    def rank(self) -> tuple[Any, ...]:
        """Return the sort key of canonical global stores."""
        return (self.source.rank(), self.processor.rank())


Part = Subtopology | GlobalStore


@dataclass(frozen=True)
class Topology:
    """A whole description."""

    subtopologies: tuple[Subtopology, ...] = ()
    global_stores: tuple[GlobalStore, ...] = ()

    @classmethod
    def parsed(cls, text: str) -> Topology:
        """Read a description, or the body of a push that contains one; field names are in camelCase or PascalCase.

        A list that is null or missing is empty.

        Raises NoTopology: the text is not a topology description.
        """
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            raise NoTopology("A topology description is JSON, and this is not.") from None
        inner = _field(body, "topologyDescription") if isinstance(body, dict) else None
        description = body if inner is None else inner
        if not isinstance(description, dict) or not {"subtopologies", "globalStores"} & set(map(_camel, description)):
            raise NoTopology(
                "A topology description is an object with subtopologies and globalStores, and this is not."
            )
        return cls(
            tuple(_subtopology(part) for part in _items(description, "subtopologies")),
            tuple(
                GlobalStore(_node(_field(part, "source")), _node(_field(part, "processor")))
                for part in _items(description, "globalStores")
            ),
        )

    @property
    def parts(self) -> tuple[Part, ...]:
        """The sub-topologies, then the global stores; no edge leaves a part."""
        return (*self.subtopologies, *self.global_stores)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, in the order of the parts."""
        return tuple(node for part in self.parts for node in part.nodes)

    def wire(self) -> dict[str, Any]:
        """Return the wire schema's struct TopologyDescription, everything in the order as sent."""
        return {
            "subtopologies": [part.wire() for part in self.subtopologies],
            "globalStores": [part.wire() for part in self.global_stores],
        }

    def canonical(self) -> Topology:
        """Return the topology with everything canonical and sorted; topologies are the same if these are equal."""
        return Topology(
            tuple(sorted((part.canonical() for part in self.subtopologies), key=Subtopology.rank)),
            tuple(sorted((part.canonical() for part in self.global_stores), key=GlobalStore.rank)),
        )


def predecessors(nodes: Iterable[Node]) -> dict[str, tuple[str, ...]]:
    """Return, for each successor among the nodes of one part, the sorted names of the nodes that lead to it.

    The wire has successors only (KIP-1331). The result also contains successors that are not nodes.
    """
    inverted: dict[str, set[str]] = {}
    for node in nodes:
        for successor in node.successors:
            inverted.setdefault(successor, set()).add(node.name)
    return {name: tuple(sorted(names)) for name, names in inverted.items()}


def _as_set(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(values)))


def _subtopology(wire: Any) -> Subtopology:
    subtopology_id = _field(wire, "subtopologyId")
    if not isinstance(subtopology_id, str):
        raise NoTopology("A sub-topology of this topology description has no subtopologyId that is text.")
    return Subtopology(subtopology_id, tuple(map(_node, _items(wire, "nodes"))))


def _node(wire: Any) -> Node:
    name, node_type, sink_topic = (_field(wire, field) for field in ("name", "nodeType", "sinkTopic"))
    if not isinstance(name, str) or type(node_type) is not int:
        raise NoTopology(
            "A node of this topology description has no name that is text or no nodeType that is a number."
        )
    if not isinstance(sink_topic, str | None):
        raise NoTopology("A node of this topology description has a sinkTopic that is neither text nor null.")
    return Node(
        name, node_type, _names(wire, "sourceTopics"), sink_topic, _names(wire, "stores"), _names(wire, "successors")
    )


def _names(wire: Any, field: str) -> tuple[str, ...]:
    names = _items(wire, field)
    if not all(isinstance(name, str) for name in names):
        raise NoTopology(f"A node of this topology description has {field} that are not all text.")
    return tuple(names)


def _items(wire: Any, field: str) -> list[Any]:
    items = _field(wire, field)
    if not isinstance(items, list | None):
        raise NoTopology(f"A topology description has a list of {field}, and this has something else.")
    return items or []


def _field(wire: Any, field: str) -> Any:
    if not isinstance(wire, dict):
        raise NoTopology("A topology description is made of objects, and this has something else in their place.")
    return wire.get(field, wire.get(field[0].upper() + field[1:]))


def _camel(field: str) -> str:
    return field[:1].lower() + field[1:]
