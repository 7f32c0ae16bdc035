"""Topology -> SVG: a picture for browsers; it loads nothing, runs nothing, and is readable in light and dark mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from xml.sax.saxutils import escape

from expectations.text import visible
from pipelines.text import columns, elided
from pipelines.topology.drawing.chart import Shape, ShapeKind, charted, joined
from pipelines.topology.drawing.placement import Curve, Drawing, Rectangle, Size, crowded, drawn, flowing, packed
from pipelines.topology.model import Part, Topology

LONGEST = 36  # columns of a name in a box
COLUMN = 7.25  # pixels of a column in the 12-pixel font of names; captions have a 10-pixel font
PADDING, NARROWEST, HEIGHT, LID = 12.0, 96.0, 40.0, 6.0
MARGIN, HEADING, SMALLEST = 16.0, 36.0, 240.0

# Colours of fill and line, in light mode and in dark mode.
COLOURS: dict[ShapeKind, tuple[str, str, str, str]] = {
    "source": ("#e6f4ea", "#2e7d46", "#12331e", "#5bb67a"),
    "processor": ("#e8f0fb", "#3465a8", "#152a47", "#7aa7e6"),
    "sink": ("#fdeee0", "#b45f16", "#40240c", "#e39b5a"),
    "unknown": ("#f6e8f8", "#8a3f96", "#381a3e", "#cf8bda"),
    "absent": ("#fdeaea", "#b3261e", "#431614", "#f08a83"),
    "topic": ("#f1f1f4", "#6a6a78", "#2b2b33", "#a3a3b2"),
    "store": ("#e3f3f4", "#1f7a82", "#0f3437", "#5cbac3"),
    "empty": ("#f1f1f4", "#6a6a78", "#2b2b33", "#a3a3b2"),
}


Address = Callable[[str], str | None]
"""A name -> the address that it leads to, None if none."""


def svg(
    topology: Topology,
    title: str,
    link: Address | None = None,
    marked: str | None = None,
    part_link: Address | None = None,
) -> str:
    """Return a picture under a title; long names are elided in the middle, and tooltips show them whole.

    ``link`` returns the address that a topic's box leads to, None if none, and ``part_link`` that of a part's frame,
    given the part's id; the topic ``marked`` has the class of that name.

    Parts that are too much for one drawing (hundreds of layers or of shapes in a layer, or thousands of shapes) are
    drawn one by one, each with the topics that it uses. A part that is still too much flows in rows.
    """
    drawings, (width, height) = packed([box for group in joined(topology.parts) for box in _drawings(group)])
    width = max(width, SMALLEST) + 2 * MARGIN
    height += HEADING + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="topology" role="{"img" if link is None else "group"}"'
        f' width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">',
        f"<title>{_text(title)}</title>",
        f"<style>{''.join(_styles())}</style>",
        f'<rect class="paper" width="{width:.0f}" height="{height:.0f}"/>',
        f'<text class="heading" x="{MARGIN:g}" y="{MARGIN + 14:g}">{_elided(title, width - 2 * MARGIN, 9.7)}</text>',
    ]
    if not drawings:
        lines.append(f'<text class="caption" x="{MARGIN:g}" y="{MARGIN + 40:g}">no sub-topologies</text>')
    for box in drawings:
        lines += _lines(box.moved(MARGIN, MARGIN + HEADING), link, marked, part_link)
    return "\n".join([*lines, "</svg>", ""])


def _drawings(group: list[Part]) -> Iterator[Drawing]:
    """Lay out a group of parts as one drawing or, if that is too much, each part as one."""
    chart = charted(group)
    if not crowded(chart):
        yield drawn(chart, [_size(shape) for shape in chart.shapes])
    elif len(group) > 1:
        for part in group:
            yield from _drawings([part])
    else:
        yield flowing(chart, [_size(shape) for shape in chart.shapes])


def _size(shape: Shape) -> Size:
    wide = max(columns(elided(shape.name, LONGEST)) * COLUMN, len(shape.caption) * 6.1)
    return max(NARROWEST, wide + 2 * PADDING), HEIGHT + (LID if shape.kind == "store" else 0)


def _lines(drawing: Drawing, link: Address | None, marked: str | None, part_link: Address | None) -> Iterator[str]:
    links = list(zip(drawing.chart.links, drawing.curves, strict=True))
    frames = list(zip(drawing.chart.frames, drawing.frames, strict=True))
    yield from (f'<rect class="frame" {_at(box)} rx="10"/>' for _, box in frames)
    for kind in ("flow", "topic", "store"):
        if curves := [curve for link, curve in links if link.kind == kind]:
            yield f'<path class="link {kind}" d="{"".join(map(_path, curves))}"/>'
            yield f'<path class="arrow" d="{"".join(map(_arrow, curves))}"/>'
    for frame, box in frames:
        name = _elided(frame.name, box.width - 20 - len(frame.title) * COLUMN, COLUMN) if frame.name else ""
        yield _linked(
            f"<g><title>{frame.title}{_text(frame.name)}</title>"
            f'<text class="name" x="{box.x + 10:.1f}" y="{box.y + 16:.1f}">{frame.title}{name}</text></g>',
            part_link(frame.name) if part_link is not None else None,
        )
    for shape, box in zip(drawing.chart.shapes, drawing.boxes, strict=True):
        drawn = _shape(shape, box, " marked" if shape.kind == "topic" and shape.name == marked else "")
        yield _linked(drawn, link(shape.name) if link is not None and shape.kind == "topic" else None)


def _linked(drawn: str, address: str | None) -> str:
    return drawn if address is None else f'<a href="{_attribute(address)}">{drawn}</a>'


def _shape(shape: Shape, box: Rectangle, mark: str = "") -> str:
    middle, top = box.x + box.width / 2, box.y + (LID + 1.5 if shape.kind == "store" else 0)
    if shape.kind == "empty":
        outline, names = "", f'<text class="caption" x="{middle:.1f}" y="{top + 24:.1f}">{shape.name}</text>'
    else:
        outline = _outline(shape.kind, box)
        names = (
            f'<text class="caption" x="{middle:.1f}" y="{top + 14:.1f}">{shape.caption}</text>'
            f'<text x="{middle:.1f}" y="{top + 30:.1f}">{escape(elided(shape.name, LONGEST))}</text>'
        )
    title = f"<title>{_text(f'{shape.caption}: ')}{_text(shape.name)}</title>"
    return f'<g class="{shape.kind}{mark}">{title}{outline}{names}</g>'


def _outline(kind: ShapeKind, box: Rectangle) -> str:
    if kind != "store":
        return f'<rect {_at(box)} rx="{HEIGHT / 2 if kind == "topic" else 5:g}"/>'
    x, y, right, bottom = box.x, box.y + LID, box.x + box.width, box.y + box.height - LID
    arc = f"A{box.width / 2:.1f} {LID:g} 0 0"
    side = f"M{x:.1f} {y:.1f}{arc} 1 {right:.1f} {y:.1f}V{bottom:.1f}{arc} 1 {x:.1f} {bottom:.1f}Z"
    return f'<path d="{side}M{x:.1f} {y:.1f}{arc} 0 {right:.1f} {y:.1f}"/>'


def _path(curve: Curve) -> str:
    start, *rest = (f"{x:.1f} {y:.1f}" for x, y in curve.points)
    return f"M{start}C{' '.join(rest)}"


def _arrow(curve: Curve) -> str:
    if curve.tip is None:
        return ""
    (x, y), (to_x, to_y) = curve.points[-1], curve.tip
    along = ((to_x - x) * 0.4, (to_y - y) * 0.4)
    return f"M{to_x:.1f} {to_y:.1f}L{x - along[1]:.1f} {y + along[0]:.1f} {x + along[1]:.1f} {y - along[0]:.1f}Z"


def _at(box: Rectangle) -> str:
    return f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'


def _text(name: str) -> str:
    return escape(visible(name))


def _attribute(text: str) -> str:
    return escape(text, {'"': "&quot;"})


def _elided(name: str, width: float, column: float) -> str:
    return escape(elided(name, max(5, int(width / column))))


def _styles() -> Iterator[str]:
    """Yield the styles: colours for light mode, then for dark; no CSS variables, as not every viewer knows them."""
    yield ".topology{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
    yield ".topology text{text-anchor:middle}.topology .caption{font-size:10px}.topology .heading{font-size:16px}"
    yield ".topology .heading,.topology .name{text-anchor:start;font-weight:600}"
    yield ".topology .name{paint-order:stroke;stroke-width:4}"
    yield ".topology g path,.topology rect,.topology .link{stroke-width:1.2}.topology .paper{stroke:none}"
    yield ".topology .link{fill:none}.topology .link.store,.topology .absent rect{stroke-dasharray:4 3}"
    yield from _colours(0, "#ffffff", "#1d1d23", "#63636f", "#fafafc", "#c9c9d3")
    yield "@media screen and (prefers-color-scheme:dark){"
    yield from _colours(2, "#17171b", "#ececf1", "#a8a8b5", "#1e1e24", "#4a4a56")
    yield "}"


def _colours(shade: int, paper: str, ink: str, muted: str, frame: str, border: str) -> Iterator[str]:
    yield f".topology .paper{{fill:{paper}}}.topology text{{fill:{ink}}}.topology .caption{{fill:{muted}}}"
    yield f".topology .frame{{fill:{frame};stroke:{border}}}.topology .name{{stroke:{frame}}}"
    yield f".topology .link{{stroke:{muted}}}.topology .arrow{{fill:{muted}}}"
    for kind, colours in COLOURS.items():
        fill, line = colours[shade : shade + 2]
        yield f".topology g.{kind} rect,.topology g.{kind} path{{fill:{fill};stroke:{line}}}"
