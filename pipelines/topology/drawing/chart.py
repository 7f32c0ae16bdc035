"""Topology -> shapes, frames and links: what a picture of it shows, in any format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pipelines.topology.model import PROCESSOR, SINK, SOURCE, Node, Part, Subtopology

ShapeKind = Literal["source", "processor", "sink", "unknown", "absent", "topic", "store", "empty"]
LinkKind = Literal["flow", "topic", "store"]

KINDS: dict[int, ShapeKind] = {SOURCE: "source", PROCESSOR: "processor", SINK: "sink"}
AT_RUN_TIME = "topic chosen at run time"


@dataclass(frozen=True)
class Shape:
    """A node, or a topic or store that nodes use; ``caption`` is Afterlog's text, ``name`` is the application's."""

    kind: ShapeKind
    name: str
    caption: str


@dataclass(frozen=True)
class Frame:
    """A sub-topology or global store and the indexes of its shapes; topics are outside.

    ``title`` is Afterlog's text, ``name`` is the application's.
    """

    title: str
    name: str
    shapes: Sequence[int]


@dataclass(frozen=True)
class Link:
    """A line from one shape to another, by their indexes; a line to a store has no direction."""

    tail: int
    head: int
    kind: LinkKind


@dataclass(frozen=True)
class Chart:
    """All shapes, frames and links of a picture."""

    shapes: list[Shape] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)


def charted(parts: Sequence[Part]) -> Chart:
    """Return the chart of parts; a topic that several nodes use is one shape.

    If nodes of a part have the same name, links to that name lead to the first of them. A successor that is not a node
    becomes a shape of its own.
    """
    chart = Chart()
    topics: dict[str, int] = {}
    uses: list[tuple[int, Node]] = []
    for part in parts:
        uses += _framed(chart, part)
    for index, node in uses:
        for topic in dict.fromkeys(node.source_topics):
            chart.links.append(Link(_topic(chart, topics, topic), index, "topic"))
        if node.sink_topic is not None:
            chart.links.append(Link(index, _topic(chart, topics, node.sink_topic), "topic"))
    return chart


def joined(parts: Sequence[Part]) -> list[list[Part]]:
    """Return the parts in groups that share no topic, in the order of each group's first part."""
    first: dict[str, int] = {}
    group = list(range(len(parts)))

    def root(index: int) -> int:
        while group[index] != index:
            group[index] = group[group[index]]
            index = group[index]
        return index

    for index, part in enumerate(parts):
        for topic in (topic for node in part.nodes for topic in node.topics):
            group[root(index)] = root(first.setdefault(topic, index))
    groups: dict[int, list[Part]] = {}
    for index, part in enumerate(parts):
        groups.setdefault(root(index), []).append(part)
    return list(groups.values())


def _framed(chart: Chart, part: Part) -> list[tuple[int, Node]]:
    """Add a part's frame, nodes and stores to the chart; return each node with the index of its shape."""
    start = len(chart.shapes)
    chart.shapes.extend(Shape(KINDS.get(node.node_type, "unknown"), node.name, _caption(node)) for node in part.nodes)
    nodes = list(enumerate(part.nodes, start))
    shape_of: dict[str, int] = {}
    for index, node in nodes:
        shape_of.setdefault(node.name, index)
    stores: dict[str, int] = {}
    for index, node in nodes:
        for successor in dict.fromkeys(node.successors):
            if successor not in shape_of:
                shape_of[successor] = _added(chart, Shape("absent", successor, "no such node"))
            chart.links.append(Link(index, shape_of[successor], "flow"))
        for store in dict.fromkeys(node.stores):
            if store not in stores:
                stores[store] = _added(chart, Shape("store", store, "store"))
            chart.links.append(Link(index, stores[store], "store"))
    if not nodes:
        _added(chart, Shape("empty", "no nodes", ""))
    indexes = range(start, len(chart.shapes))
    if isinstance(part, Subtopology):
        chart.frames.append(Frame("Sub-topology: ", part.subtopology_id, indexes))
    else:
        chart.frames.append(Frame("Global store", "", indexes))
    return nodes


def _topic(chart: Chart, topics: dict[str, int], name: str) -> int:
    if name not in topics:
        topics[name] = _added(chart, Shape("topic", name, "topic"))
    return topics[name]


def _added(chart: Chart, shape: Shape) -> int:
    chart.shapes.append(shape)
    return len(chart.shapes) - 1


def _caption(node: Node) -> str:
    if node.node_type == SOURCE and not node.source_topics:
        return f"source, {AT_RUN_TIME.replace('topic', 'topics')}"
    if node.node_type == SINK and node.sink_topic is None:
        return f"sink, {AT_RUN_TIME}"
    return node.kind.lower()
