"""Chart -> Drawing: the position of everything, in pixels from the top left.

Graphviz lays out charts that a person can take in; its time grows steeply with their size. Larger charts flow in rows
and bands, as text does, in linear time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipelines.topology.drawing.chart import Chart

if TYPE_CHECKING:
    from pygraphviz import AGraph  # type: ignore[import-untyped]

Point = tuple[float, float]
Size = tuple[float, float]

LONGEST = 150  # most layers, and most shapes in a layer, of a chart that Graphviz lays out
HEAVIEST = 5_000  # most shapes and crossings of layers by links, likewise
ASPECT = 1.4  # width to height of charts that flow
MARGIN, HEADER, GAP, ARROW = 20.0, 28.0, 32.0, 9.0


@dataclass(frozen=True)
class Rectangle:
    """A box, given by its top left corner and its size."""

    x: float
    y: float
    width: float
    height: float

    def moved(self, x: float, y: float) -> Rectangle:
        """Return it moved by ``x`` and ``y``."""
        return Rectangle(self.x + x, self.y + y, self.width, self.height)


@dataclass(frozen=True)
class Curve:
    """Bezier segments: a point, then three for each segment; ``tip`` is the end of the arrow, None without one."""

    points: Sequence[Point]
    tip: Point | None

    def moved(self, x: float, y: float) -> Curve:
        """Return it moved by ``x`` and ``y``."""
        tip = None if self.tip is None else (self.tip[0] + x, self.tip[1] + y)
        return Curve([(across + x, down + y) for across, down in self.points], tip)


@dataclass(frozen=True)
class Drawing:
    """A chart with positions: ``boxes``, ``frames`` and ``curves`` belong to its shapes, frames and links, in order."""

    chart: Chart
    width: float
    height: float
    boxes: list[Rectangle] = field(default_factory=list)
    frames: list[Rectangle] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)

    def moved(self, x: float, y: float) -> Drawing:
        """Return it moved by ``x`` and ``y``."""
        return Drawing(
            self.chart,
            self.width,
            self.height,
            [part.moved(x, y) for part in self.boxes],
            [part.moved(x, y) for part in self.frames],
            [part.moved(x, y) for part in self.curves],
        )


def crowded(chart: Chart) -> bool:
    """Tell whether a chart is too large for Graphviz to lay out in seconds, and for a person to take in."""
    layers = _layers(chart)
    depth = max(layers, default=0) + 1
    width = max((len(row) for row in _rows(layers)), default=0)
    crossings = sum(abs(layers[link.head] - layers[link.tail]) for link in chart.links)
    return max(depth, width) > LONGEST or len(chart.shapes) + crossings > HEAVIEST


def drawn(chart: Chart, sizes: Sequence[Size]) -> Drawing:
    """Lay out a chart with Graphviz: downwards, or to the right if that is narrower than a wide drawing downwards."""
    down = _graphviz(chart, sizes, "TB")
    if down.width <= 1_600:
        return down
    aside = _graphviz(chart, sizes, "LR")
    return aside if aside.width < down.width else down


def flowing(chart: Chart, sizes: Sequence[Size]) -> Drawing:
    """Lay out a chart of one part in rows, as many per layer as it needs, and the rows in bands side by side."""
    cell = (max(width for width, _ in sizes) + GAP / 2, max(height for _, height in sizes) + GAP)
    most = max(4, math.isqrt(int(len(sizes) * ASPECT * cell[1] / cell[0])))
    rows = [row[start : start + most] for row in _untangled(chart) for start in range(0, len(row), most)]
    bands = _bands(rows, cell)
    centres: dict[int, Point] = {}
    left = MARGIN
    for band in bands:
        width = max(map(len, band)) * cell[0]
        for down, row in enumerate(band):
            first = left + (width - (len(row) - 1) * cell[0]) / 2
            for aside, node in enumerate(row):
                centres[node] = (first + aside * cell[0], HEADER + (down + 0.5) * cell[1])
        left += width + GAP
    boxes = [_centred(centres[node], sizes[node]) for node in range(len(sizes))]
    width, height = left - GAP + MARGIN, HEADER + len(bands[0]) * cell[1]
    curves = [_drop(boxes[link.tail], boxes[link.head], link.kind != "store") for link in chart.links]
    return Drawing(chart, width, height, boxes, [Rectangle(0, 0, width, height) for _ in chart.frames], curves)


def packed(drawings: Sequence[Drawing]) -> tuple[list[Drawing], Size]:
    """Arrange charts side by side and in rows, in their order; return them and the total size."""
    area = sum((drawing.width + GAP) * (drawing.height + GAP) for drawing in drawings)
    most = max([*(drawing.width for drawing in drawings), math.sqrt(area * ASPECT)], default=0.0)
    moved: list[Drawing] = []
    x = y = height = width = 0.0
    for drawing in drawings:
        if x > 0 and x + drawing.width > most:
            x, y, height = 0.0, y + height + GAP, 0.0
        moved.append(drawing.moved(x, y))
        x += drawing.width + GAP
        width, height = max(width, x - GAP), max(height, drawing.height)
    return moved, (width, y + height)


def _layers(chart: Chart) -> list[int]:
    """Return each shape's layer: one below the lowest shape that links to it; each cycle is cut at one shape."""
    heads: list[list[int]] = [[] for _ in chart.shapes]
    waits = [0] * len(chart.shapes)
    for link in chart.links:
        if link.head != link.tail:
            heads[link.tail].append(link.head)
            waits[link.head] += 1
    layers = [0] * len(chart.shapes)
    done = [False] * len(chart.shapes)
    ready = deque(node for node, count in enumerate(waits) if count == 0)
    for cut in range(len(chart.shapes) + 1):
        while ready:
            node = ready.popleft()
            if done[node]:
                continue
            done[node] = True
            for head in heads[node]:
                if not done[head]:
                    layers[head] = max(layers[head], layers[node] + 1)
                    waits[head] -= 1
                    if waits[head] == 0:
                        ready.append(head)
        if cut < len(done) and not done[cut]:
            ready.append(cut)
    return layers


def _rows(layers: Sequence[int]) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in range(max(layers, default=-1) + 1)]
    for node, layer in enumerate(layers):
        rows[layer].append(node)
    return rows


def _untangled(chart: Chart) -> list[list[int]]:
    """Return the layers, each ordered by the mean position of the linked shapes; sorted down, up and down again."""
    rows = _rows(_layers(chart))
    before: list[list[int]] = [[] for _ in chart.shapes]
    after: list[list[int]] = [[] for _ in chart.shapes]
    for link in chart.links:
        before[link.head].append(link.tail)
        after[link.tail].append(link.head)
    positions = [0.0] * len(chart.shapes)

    def settle(row: list[int]) -> None:
        for number, node in enumerate(row):
            positions[node] = (number + 1) / (len(row) + 1)

    def mean(linked: list[list[int]]) -> Callable[[int], float]:
        return lambda node: math.fsum(positions[neighbour] for neighbour in linked[node]) / (len(linked[node]) or 1)

    for row in rows:
        settle(row)
    for sweep, linked in ((rows, before), (rows[::-1], after), (rows, before)):
        for row in sweep:
            row.sort(key=mean(linked))
            settle(row)
    return rows


def _bands(rows: Sequence[list[int]], cell: Size) -> list[list[list[int]]]:
    """Cut rows into bands, all but the last with the same number of rows, so that side by side they are near ASPECT."""

    def cut(tall: int) -> list[list[list[int]]]:
        return [list(rows[start : start + tall]) for start in range(0, len(rows), tall)]

    def strangeness(bands: list[list[list[int]]]) -> float:
        width = sum(max(map(len, band)) * cell[0] + GAP for band in bands)
        return abs(math.log(width / len(bands[0]) / cell[1] / ASPECT))

    count = math.isqrt(len(rows)) + 1
    return min((cut(math.ceil(len(rows) / number)) for number in range(1, count + 1)), key=strangeness)


def _drop(tail: Rectangle, head: Rectangle, arrow: bool) -> Curve:
    start, tip = (tail.x + tail.width / 2, tail.y + tail.height), (head.x + head.width / 2, head.y)
    end = (tip[0], tip[1] - ARROW) if arrow else tip
    bend = min(90.0, max(12.0, abs(end[1] - start[1]) / 2))
    return Curve([start, (start[0], start[1] + bend), (end[0], end[1] - bend), end], tip if arrow else None)


def _centred(centre: Point, size: Size) -> Rectangle:
    return Rectangle(centre[0] - size[0] / 2, centre[1] - size[1] / 2, *size)


def _graphviz(chart: Chart, sizes: Sequence[Size], direction: str) -> Drawing:
    """Lay out a chart with ``dot``, which receives numbers and sizes, no names."""
    # Imported here, as it is a compiled library of many megabytes that only pictures need.
    from pygraphviz import AGraph

    graph = AGraph(directed=True, strict=False)
    try:
        graph.graph_attr.update(rankdir=direction, ranksep="0.45", nodesep="0.25")
        graph.node_attr.update(shape="box", fixedsize="true", label="")
        for node, (width, height) in enumerate(sizes):
            graph.add_node(node, width=f"{width / 72:.4f}", height=f"{height / 72:.4f}")
        for number, frame in enumerate(chart.frames):
            graph.add_subgraph(list(frame.shapes), name=f"cluster{number}", margin=f"{HEADER:g}")
        for number, link in enumerate(chart.links):
            graph.add_edge(link.tail, link.head, key=number, dir="none" if link.kind == "store" else "forward")
        graph.layout("dot")
        return _read(graph, chart, sizes)
    finally:
        graph.close()


def _read(graph: AGraph, chart: Chart, sizes: Sequence[Size]) -> Drawing:
    _, _, width, height = _numbers(graph.graph_attr["bb"])

    def flipped(pair: str) -> Point:
        x, y = _numbers(pair)
        return x, height - y

    def curve(attributes: Any) -> Curve:
        words = str(attributes["pos"]).split()
        tips = [word for word in words if word.startswith("e,")]
        points = [flipped(word) for word in words if word[0] not in "es"]
        return Curve(points, flipped(tips[0][2:]) if tips else None)

    frames = []
    for number in range(len(chart.frames)):
        left, bottom, right, top = _numbers(graph.get_subgraph(f"cluster{number}").graph_attr["bb"])
        frames.append(Rectangle(left, height - top, right - left, top - bottom))
    boxes = [_centred(flipped(graph.get_node(node).attr["pos"]), size) for node, size in enumerate(sizes)]
    curves = [curve(graph.get_edge(link.tail, link.head, number).attr) for number, link in enumerate(chart.links)]
    return Drawing(chart, width, height, boxes, frames, curves)


def _numbers(text: str) -> Iterable[float]:
    return map(float, text.split(","))
