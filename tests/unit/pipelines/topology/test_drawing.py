"""Topologies as text, Mermaid and SVG: exact output, every name, and hostile names; `test_printed.py` has more text."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from itertools import combinations
from time import perf_counter
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings

from expectations.text import visible
from pipelines.text import columns, elided
from pipelines.topology.drawing import mermaid, svg, text
from pipelines.topology.drawing.chart import Chart, Link, charted, joined
from pipelines.topology.drawing.placement import Drawing, crowded, drawn, flowing
from pipelines.topology.model import GlobalStore, Node, Subtopology, Topology
from tests.testing.examples import at_most
from tests.testing.topologies import HOSTILE, captured, chain, ring, topologies

SVG = "{http://www.w3.org/2000/svg}"


def hostile(name: str) -> Topology:
    """A topology with this name in every place that holds a name."""
    nodes = (Node(name, 1, (name,), None, (), (name + "2",)), Node(name + "2", 2, (), None, (name,), (name + "3",)))
    part = Subtopology(name, (*nodes, Node(name + "3", 3, (), name + "out"), Node("x", 9, successors=(name + "?",))))
    return Topology((part,), (GlobalStore(*nodes),))


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        pytest.param(Topology(), "Topologies:\n", id="empty"),
        pytest.param(
            Topology((Subtopology("0", (Node("x", 9), Node("y", 9, ("t",), "o", ("s",), ("x", "y")))),)),
            "Topologies:\n"
            "   Sub-topology: 0\n"
            "    Unknown (type 9): x (topics: [], stores: [], topic: null)\n"
            "      --> none\n"
            "      <-- y\n"
            "    Unknown (type 9): y (topics: [t], stores: [s], topic: o)\n"
            "      --> x, y\n"
            "      <-- y\n"
            "\n",
            id="a type that Kafka's tool refuses",
        ),
    ],
)
def test_text(topology: Topology, expected: str) -> None:
    assert text(topology) == expected


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        pytest.param("a\nb\r\t", r"a\nb\r\t", id="lines"),
        pytest.param("\x1b[2J\x9b", r"\u001b[2J\u009b", id="terminal"),
        pytest.param("\u202ex\u2066\u200b\u2028\u00a0", r"\u202ex\u2066\u200b\u2028\u00a0", id="bidirectional"),
        pytest.param("\ud800\U000e0041", r"\ud800\udb40\udc41", id="surrogate and tag"),
        pytest.param("orders.v1-日本 é", "orders.v1-日本 é", id="harmless"),
    ],
)
def test_what_a_terminal_would_obey_is_written_out(name: str, shown: str) -> None:
    assert visible(name) == shown
    drawings = (text(hostile(name)), mermaid(hostile(name)), svg(hostile(name), name))
    assert all(item.isprintable() for drawing in drawings for item in drawing.replace("\n", ""))


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names_make_no_lines_of_text(name: str) -> None:
    harmless = text(hostile("harmless")).splitlines()
    lines = text(hostile(name)).splitlines()
    assert [line[: len(line) - len(line.lstrip())] for line in lines] == [
        line[: len(line) - len(line.lstrip())] for line in harmless
    ]
    assert [line.split()[:1] for line in lines] == [line.split()[:1] for line in harmless]


@pytest.mark.parametrize(
    ("name", "most", "shown"),
    [
        pytest.param("KSTREAM-SINK-0000000002", 23, "KSTREAM-SINK-0000000002", id="fits"),
        pytest.param("KSTREAM-SINK-0000000002", 11, "KSTRE…00002", id="middle"),
        pytest.param("KSTREAM-SINK-0000000002", 10, "KSTRE…0002", id="even"),
        pytest.param("日本語日本語", 8, "日本…語", id="wide characters"),
        pytest.param("\n" * 9, 9, r"\n\n…\n\n", id="escapes"),
    ],
)
def test_long_names_are_elided_in_the_middle(name: str, most: int, shown: str) -> None:
    assert elided(name, most) == shown
    assert columns(elided(name, most)) <= most


@at_most(100)
@given(topologies)
def test_every_node_is_named(topology: Topology) -> None:
    names = {node.name for node in topology.nodes}
    as_text, as_json = text(topology), json.loads(json.dumps(topology.wire()))
    assert all(visible(name) in as_text for name in names)
    assert {node["name"] for part in as_json["subtopologies"] for node in part["nodes"]} | {
        node["name"] for store in as_json["globalStores"] for node in store.values()
    } == names
    # An empty name shows as a blank, because Mermaid has no empty labels.
    shown = Counter(label.strip() for label in labels(mermaid(topology)))
    assert Counter(visible(node.name).strip() for node in topology.nodes) <= shown
    assert Counter(visible(node.name) for node in topology.nodes) <= Counter(tooltips(svg(topology, "")))


# Mermaid


def test_mermaid() -> None:
    topology = Topology(
        (
            Subtopology(
                "0",
                (
                    Node("source", 1, ("orders",), None, (), ("count", "lost")),
                    Node("count", 2, (), None, ("counts",), ("sink",)),
                    Node("sink", 3, (), "counted-orders"),
                    Node("odd", 9),
                ),
            ),
            Subtopology("1", (Node("again", 1, ("counted-orders",)),)),
            Subtopology("2"),
        ),
        (GlobalStore(Node("all", 1, ("rates",), None, (), ("fill",)), Node("fill", 2, (), None, ("rates",))),),
    )
    assert mermaid(topology) == (
        "flowchart TB\n"
        '  subgraph s0["Sub-topology: 0"]\n'
        '    n0(["source"])\n'
        '    n1["count"]\n'
        '    n2[["sink"]]\n'
        '    n3{{"odd, unknown (type 9)"}}\n'
        '    n4["lost, no such node"]:::absent\n'
        '    n5[("counts")]\n'
        "  end\n"
        '  subgraph s1["Sub-topology: 1"]\n'
        '    n6(["again"])\n'
        "  end\n"
        '  subgraph s2["Sub-topology: 2"]\n'
        '    n7["no nodes"]:::absent\n'
        "  end\n"
        '  subgraph s3["Global store"]\n'
        '    n8(["all"])\n'
        '    n9["fill"]\n'
        '    n10[("rates")]\n'
        "  end\n"
        '  n11[/"orders"/]\n'
        '  n12[/"counted-orders"/]\n'
        '  n13[/"rates"/]\n'
        "  n0 --> n1\n"
        "  n0 --> n4\n"
        "  n1 --> n2\n"
        "  n1 -.- n5\n"
        "  n8 --> n9\n"
        "  n9 -.- n10\n"
        "  n11 --> n0\n"
        "  n2 --> n12\n"
        "  n12 --> n6\n"
        "  n13 --> n8\n"
        "  classDef absent stroke-dasharray: 4 4\n"
    )


LABEL = r'"((?:[\w .,:\-]|#\d+;)+(?:unknown \(type 9\))?)"'
MERMAID = re.compile(
    rf"flowchart TB|  subgraph s\d+\[{LABEL}\]|  end|  n\d+ (?:-->|-\.-) n\d+|  classDef absent stroke-dasharray: 4 4"
    rf"|  (?:  )?n\d+(?:\(\[|\[\[|\[\(|\[/|\[|{{{{){LABEL}(?:\]\)|\]\]|\)\]|/\]|\]|}}}})(?::::absent)?"
)


def labels(diagram: str) -> list[str]:
    """The names that a diagram shows, without our remarks; fails on a line that our code does not write."""
    found = []
    for line in diagram.splitlines():
        matched = MERMAID.fullmatch(line)
        assert matched, line
        if label := matched[2]:
            label = re.sub(r", (no such node|unknown \(type 9\))$", "", label)
            found.append(re.sub(r"#(\d+);", lambda code: chr(int(code[1])), label))
    return found


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names_are_only_labels_in_mermaid(name: str) -> None:
    assert {visible(name) or " ", visible(name + "2"), visible(name + "?"), "x"} <= set(labels(mermaid(hostile(name))))


# Charts


def test_chart_of_what_is_malformed() -> None:
    part = Subtopology(
        "0",
        (Node("a", 2, (), "t", ("s",), ("b", "gone", "b")), Node("b", 3, ("t",), None, ("s",), ("a",)), Node("b", 1)),
    )
    chart = charted([part, Subtopology("0", (Node("c", 1, ("t", "t"), None, ("s",), ("gone",)),))])
    assert [(shape.kind, shape.name) for shape in chart.shapes] == [
        ("processor", "a"),
        ("sink", "b"),
        ("source", "b"),
        ("absent", "gone"),
        ("store", "s"),
        ("source", "c"),
        ("absent", "gone"),
        ("store", "s"),
        ("topic", "t"),
    ]
    assert chart.links == [
        Link(0, 1, "flow"),
        Link(0, 3, "flow"),
        Link(0, 4, "store"),
        Link(1, 0, "flow"),
        Link(1, 4, "store"),
        Link(5, 6, "flow"),
        Link(5, 7, "store"),
        Link(0, 8, "topic"),
        Link(8, 1, "topic"),
        Link(8, 5, "topic"),
    ]
    assert [(frame.title, frame.name, list(frame.shapes)) for frame in chart.frames] == [
        ("Sub-topology: ", "0", [0, 1, 2, 3, 4]),
        ("Sub-topology: ", "0", [5, 6, 7]),
    ]


def test_captions_say_what_is_chosen_at_run_time() -> None:
    chart = charted(captured("router-app").parts)
    assert [shape.caption for shape in chart.shapes] == [
        "sink, topic chosen at run time",
        "source, topics chosen at run time",
    ]


def test_parts_are_drawn_together_where_they_share_topics() -> None:
    orders, payments, counts, customers = captured("orders-app").parts
    assert joined(captured("orders-app").parts) == [[orders, payments, counts], [customers]]
    assert joined([counts, customers, payments]) == [[counts], [customers], [payments]]
    assert joined([counts, payments, customers, orders]) == [[counts, payments, orders], [customers]]


# SVG


def tooltips(drawing: str) -> list[str]:
    """The names in a picture's tooltips; fails if the picture has elements or attributes that are not allowed."""
    root = ElementTree.fromstring(drawing)
    allowed = {
        "svg": {"class", "role", "width", "height", "viewBox"},
        "title": set(),
        "style": set(),
        "g": {"class"},
        "rect": {"class", "x", "y", "width", "height", "rx"},
        "path": {"class", "d"},
        "text": {"class", "x", "y"},
    }
    for element in root.iter():
        assert set(element.attrib) <= allowed[element.tag.removeprefix(SVG)]
        assert len(element) == 0 or element.tag in (f"{SVG}svg", f"{SVG}g")
    return [
        title.text.partition(": ")[2]
        for group in root.iter(f"{SVG}g")
        if (title := group.find(f"{SVG}title")) is not None and title.text
    ]


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_hostile_names_are_only_text_in_pictures(name: str) -> None:
    picture = svg(hostile(name), name)
    assert {visible(name), visible(name + "2"), visible(name + "?"), visible(name + "out"), "x"} <= set(
        tooltips(picture)
    )
    root = ElementTree.fromstring(picture)
    assert (root.findtext(f"{SVG}title") or "") == visible(name)
    style = root.findtext(f"{SVG}style") or ""
    assert style == ElementTree.fromstring(svg(Topology(), "")).findtext(f"{SVG}style")
    assert "prefers-color-scheme:dark" in style
    assert not re.search(r"url\(|@import|href|https?:", picture.replace("http://www.w3.org/2000/svg", ""))


def test_picture_of_a_real_topology() -> None:
    root = ElementTree.fromstring(svg(captured("orders-app"), "orders-app, revision 3"))
    assert [item.text for item in root.findall(f"{SVG}text")] == ["orders-app, revision 3"]
    shown = [element.text for group in root.findall(f"{SVG}g") for element in group.findall(f"{SVG}text")]
    for expected in ("Sub-topology: 0", "Sub-topology: 2", "Sub-topology: 3", "Global store", "by-currency", "orders"):
        assert expected in shown
    assert "orders-app-KSTREAM…00008-repartition" in shown
    kinds = Counter(group.get("class") for group in root.findall(f"{SVG}g"))
    assert kinds == {None: 4, "source": 5, "processor": 11, "sink": 5, "topic": 8, "store": 3}


@pytest.mark.parametrize(
    ("topology", "said"),
    [(Topology(), "no sub-topologies"), (Topology((Subtopology("0"),)), "no nodes")],
    ids=["empty", "empty sub-topology"],
)
def test_a_picture_of_nothing_says_so(topology: Topology, said: str) -> None:
    assert f">{said}</text>" in svg(topology, "t")


def sizes(chart: Chart) -> list[tuple[float, float]]:
    return [(100.0 + 20 * (index % 3), 40.0 + 6 * (index % 2)) for index in range(len(chart.shapes))]


def check(drawing: Drawing, given_sizes: list[tuple[float, float]]) -> None:
    """Check that shapes keep their size, stay apart and within their frame, and that links connect their shapes."""
    assert [(boxe.width, boxe.height) for boxe in drawing.boxes] == given_sizes
    for item, other in combinations(drawing.boxes, 2):
        aside = item.x + item.width <= other.x or other.x + other.width <= item.x
        assert aside or item.y + item.height <= other.y or other.y + other.height <= item.y
    for frame, around in zip(drawing.chart.frames, drawing.frames, strict=True):
        for box in (drawing.boxes[place] for place in frame.shapes):
            assert around.x <= box.x < box.x + box.width <= around.x + around.width
            assert around.y + 20 <= box.y < box.y + box.height <= around.y + around.height
        assert -0.1 <= around.x < around.x + around.width <= drawing.width + 0.1
        assert -0.1 <= around.y < around.y + around.height <= drawing.height + 0.1
    for link, curve in zip(drawing.chart.links, drawing.curves, strict=True):
        assert len(curve.points) % 3 == 1
        ends = ((link.tail, curve.points[0]), (link.head, curve.tip or curve.points[-1]))
        assert (curve.tip is None) == (link.kind == "store")
        for place, (x, y) in ends:
            box = drawing.boxes[place]
            assert box.x - 2 <= x <= box.x + box.width + 2
            assert box.y - 2 <= y <= box.y + box.height + 2


@at_most(100)
@given(topologies)
def test_graphviz_places_every_shape(topology: Topology) -> None:
    for group in joined(topology.parts):
        chart = charted(group)
        assert not crowded(chart)
        check(drawn(chart, sizes(chart)), sizes(chart))


@at_most(100)
@given(topologies)
def test_what_flows_places_every_shape(topology: Topology) -> None:
    for part in topology.parts:
        chart = charted([part])
        check(flowing(chart, sizes(chart)), sizes(chart))


def wide(width: int) -> Topology:
    sinks = tuple(Node(f"sink-{place}", 3, (), "out") for place in range(width))
    return Topology(
        (Subtopology("0", (Node("source", 1, ("in",), None, (), tuple(sink.name for sink in sinks)), *sinks)),)
    )


def dense(size: int) -> Topology:
    names = tuple(f"n{place}" for place in range(size))
    return Topology((Subtopology("0", tuple(Node(name, 2, successors=names) for name in names)),))


@pytest.mark.parametrize("topology", [chain(200), wide(200), dense(80)], ids=["deep", "wide", "dense"])
def test_what_nobody_takes_in_flows(topology: Topology) -> None:
    chart = charted(topology.parts)
    assert crowded(chart)
    drawing = flowing(chart, sizes(chart))
    check(drawing, sizes(chart))
    assert 0.5 < drawing.width / drawing.height < 4


def test_what_flows_is_untangled() -> None:
    """The nodes of each pair are named in opposite order, yet no link crosses another."""
    tails = tuple(Node(f"tail-{place}", 1, (), None, (), (f"head-{99 - place}",)) for place in range(100))
    heads = tuple(Node(f"head-{place}", 3) for place in range(100))
    chart = charted([Subtopology("0", (*tails, *heads))])
    boxes = flowing(chart, [(100.0, 40.0)] * 200).boxes
    row = sorted(range(100), key=lambda place: (boxes[place].y, boxes[place].x))
    assert [199 - place for place in row] == sorted(range(100, 200), key=lambda place: (boxes[place].y, boxes[place].x))


def test_drawings_that_share_no_topic_fill_a_page() -> None:
    parts = tuple(Subtopology(str(number), (Node("a", 1, (f"t{number}",)),)) for number in range(40))
    root = ElementTree.fromstring(svg(Topology(parts), "t"))
    assert 0.5 < float(root.attrib["width"]) / float(root.attrib["height"]) < 3


def test_a_wide_chart_is_drawn_to_the_right() -> None:
    chart = charted(wide(60).parts)
    drawing = drawn(chart, sizes(chart))
    assert drawing.height > drawing.width
    assert drawing.width < 1_600


def test_parts_of_a_crowded_topology_flow_one_by_one() -> None:
    parts = tuple(
        Subtopology(str(number), (Node("a", 1, (f"t{number}",), None, (), ("b",)), Node("b", 3, (), f"t{number + 1}")))
        for number in range(80)
    )
    assert crowded(charted(parts))
    picture = svg(Topology(parts), "t")
    assert tooltips(picture).count("t40") == 2
    assert Counter(tooltips(picture))["a"] == 80


@pytest.mark.parametrize("topology", [chain(10_000), ring(10_000), wide(10_000)], ids=["chain", "ring", "wide"])
def test_ten_thousand_nodes(topology: Topology) -> None:
    start = perf_counter()
    drawings = (text(topology), mermaid(topology), svg(topology, "t"))
    assert perf_counter() - start < 20
    assert len(tooltips(drawings[2])) >= 10_000
    assert all(topology.nodes[-1].name in drawing for drawing in drawings)


@hypothesis_settings(max_examples=20)
@given(topologies)
def test_pictures_are_reproducible(topology: Topology) -> None:
    assert svg(topology, "t") == svg(topology, "t")


def test_the_layout_library_waits_for_a_picture() -> None:
    code = "import sys; from pipelines.topology.drawing import svg; from pipelines.topology.model import Topology; "
    code += "assert 'pygraphviz' not in sys.modules and 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_boxes_of_topics_lead_to_addresses_and_one_can_be_marked() -> None:
    picture = svg(
        captured("orders-app"), "", link=lambda topic: f'a"<&{topic}' if topic == "orders" else None, marked="orders"
    )
    root = ElementTree.fromstring(picture)
    (link,) = root.iter(f"{SVG}a")
    assert link.get("href") == 'a"<&orders'
    assert [item.get("class") for item in root.iter(f"{SVG}g") if "marked" in (item.get("class") or "")] == [
        "topic marked"
    ]
    assert root.get("role") == "group"
    assert "<a " not in svg(captured("orders-app"), "")
