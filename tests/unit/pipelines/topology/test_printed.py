"""Topologies as text: byte for byte what Kafka's own client and formatter print, stored, and asked here and now."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import EnvironmentLacking
from pipelines.jvm import jars, java
from pipelines.topology.drawing import text
from pipelines.topology.model import GlobalStore, Node, Subtopology, Topology
from tests.testing.topologies import CAPTURED

PRINTED = CAPTURED / "printed"
REFERENCE = Path(__file__).parents[3] / "testing" / "AsTheToolPrints.java"
IVY = """<ivy-module version="2.0"><info organisation="afterlog" module="tool"/>
<configurations><conf name="spark"/><conf name="broker"/></configurations><dependencies>
<dependency org="org.apache.kafka" name="kafka-tools" rev="4.4.0" conf="spark,broker->default" transitive="false"/>
</dependencies></ivy-module>"""

# Java orders names by UTF-16 units: the last comes before the one before it.
NAMES = ("a", "b", "B", "a-1", "KSTREAM-SINK-0000000010", "KSTREAM-SINK-000000002", "none", "é", "日本", "｡", "🜁")


def random_topology(chance: random.Random) -> Topology:
    """A topology that the tool prints, often malformed: edges that lead nowhere or back, repeated names and ids."""

    def few() -> tuple[str, ...]:
        return tuple(chance.choices(NAMES, k=chance.choice((0, 0, 1, 2, 4))))

    def node(kind: int) -> Node:
        return Node(chance.choice(NAMES), kind, few(), chance.choice((None, *NAMES)), few(), few())

    def nodes() -> tuple[Node, ...]:
        return tuple(node(chance.choice((1, 2, 3))) for _ in range(chance.choice((0, 1, 3, 6))))

    parts = tuple(Subtopology(chance.choice("0127x"), nodes()) for _ in range(chance.choice((0, 1, 2, 4))))
    stores = tuple(GlobalStore(node(1), node(2)) for _ in range(chance.choice((0, 0, 1, 3))))
    return Topology(parts, stores)


def printed_by_the_tool(topologies: list[Topology], directory: Path) -> list[str]:
    """What Kafka's tool prints.

    Raises EnvironmentLacking: its jar, or a Java that compiles, cannot be had.
    """
    (directory / "ivy.xml").write_text(IVY)
    jars.fetch(directory / "jars", directory / "ivy.xml")
    class_path = f"{jars.class_path('broker')}{os.pathsep}{directory / 'jars' / 'broker' / '*'}"
    wires = json.dumps([topology.wire() for topology in topologies])
    if not (java.java_home() / "bin" / "javac").exists():
        raise EnvironmentLacking("This Java compiles nothing.")
    executable = os.fspath(java.java_home() / "bin" / "java")
    command = [executable, "-Dfile.encoding=UTF-8", "-cp", class_path, os.fspath(REFERENCE)]
    run = subprocess.run(command, input=wires.encode(), stdout=subprocess.PIPE, check=True)
    texts: list[str] = json.loads(run.stdout)
    return texts


@pytest.mark.parametrize("name", sorted(file.stem for file in PRINTED.glob("*.txt")))
def test_a_topology_is_printed_as_the_tool_prints_it(name: str) -> None:
    description = (PRINTED / f"{name}.json").read_text(encoding="utf-8")
    assert text(Topology.parsed(description)) == (PRINTED / f"{name}.txt").read_text(encoding="utf-8")


def test_random_topologies_are_printed_as_the_tool_printed_them() -> None:
    with gzip.open(PRINTED / "random.jsonl.gz", "rt", encoding="utf-8") as lines:
        kept: list[dict[str, Any]] = [json.loads(line) for line in lines]
    assert len(kept) == 200
    for row in kept:
        assert text(Topology.parsed(json.dumps(row["description"]))) == row["text"]


@pytest.mark.thorough
def test_random_topologies_are_printed_as_the_tool_prints_them_now(tmp_path: Path) -> None:
    topologies = [random_topology(random.Random(seed)) for seed in random.SystemRandom().sample(range(10**9), 500)]
    try:
        expected = printed_by_the_tool(topologies, tmp_path)
    except EnvironmentLacking as error:
        pytest.skip(str(error))
    for topology, printed in zip(topologies, expected, strict=True):
        assert text(topology) == printed, topology.wire()
