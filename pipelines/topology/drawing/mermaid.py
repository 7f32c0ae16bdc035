"""Topology -> mermaid: a flowchart for Markdown, in which every name is plain text."""

from __future__ import annotations

from collections.abc import Iterator

from expectations.text import visible
from pipelines.topology.drawing.chart import Chart, ShapeKind, charted
from pipelines.topology.model import Topology

SHAPES: dict[ShapeKind, tuple[str, str]] = {
    "source": ("([", "])"),
    "processor": ("[", "]"),
    "sink": ("[[", "]]"),
    "unknown": ("{{", "}}"),
    "absent": ("[", "]:::absent"),
    "topic": ("[/", "/]"),
    "store": ("[(", ")]"),
    "empty": ("[", "]:::absent"),
}
ARROWS = {"flow": "-->", "topic": "-->", "store": "-.-"}
PLAIN = " -.,_"  # characters that mermaid leaves unchanged within quotes, besides letters and digits


def mermaid(topology: Topology) -> str:
    """Return a flowchart: a subgraph for each part, topics as slanted boxes between them, stores as cylinders.

    Mermaid draws at most 500 links and 50,000 characters unless the page that shows it raises ``maxEdges`` and
    ``maxTextSize``.
    """
    return "".join(f"{line}\n" for line in _lines(charted(topology.parts)))


def _lines(chart: Chart) -> Iterator[str]:
    yield "flowchart TB"
    framed: set[int] = set()
    for number, frame in enumerate(chart.frames):
        yield f'  subgraph s{number}["{frame.title}{_label(frame.name)}"]'
        yield from (f"    {_shape(chart, index)}" for index in frame.shapes)
        yield "  end"
        framed.update(frame.shapes)
    yield from (f"  {_shape(chart, index)}" for index in range(len(chart.shapes)) if index not in framed)
    yield from (f"  n{link.tail} {ARROWS[link.kind]} n{link.head}" for link in chart.links)
    if any(shape.kind in ("absent", "empty") for shape in chart.shapes):
        yield "  classDef absent stroke-dasharray: 4 4"


def _shape(chart: Chart, index: int) -> str:
    shape = chart.shapes[index]
    opened, closed = SHAPES[shape.kind]
    remark = f", {shape.caption}" if shape.kind in ("unknown", "absent") else ""
    label = f"{_label(shape.name)}{remark}" or " "  # an empty label is a syntax error
    return f'n{index}{opened}"{label}"{closed}'


def _label(name: str) -> str:
    """Write a name so that mermaid reads no markup in it: markdown, HTML, icons, formulae, directives, comments."""
    return "".join(
        character if character.isalnum() or character in PLAIN else f"#{ord(character)};" for character in visible(name)
    )
