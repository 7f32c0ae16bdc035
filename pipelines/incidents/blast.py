"""Topologies of applications -> what a topic's records reach, and which applications write the topic.

Records of a topic reach the nodes behind each source that reads it, their stores, and the topics of their sinks; those
are followed in turn. Upstream is the same in reverse. A topic is followed once, so that cycles end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

from expectations.text import visible
from pipelines.text import first_names
from pipelines.topology import drawing
from pipelines.topology.model import PROCESSOR, SINK, SOURCE, Node, Subtopology, Topology

DOWNSTREAM, UPSTREAM = "downstream", "upstream"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Valid:
    """The topology of a group at a moment; ``is_later``: the first that is known was accepted after it."""

    topology_hash: str
    revision: int
    is_later: bool


@dataclass(frozen=True)
class Reached:
    """A sub-topology that is reached through a topic, at a number of hops from the first topic, which is hop 1.

    ``is_later``: only topologies that were accepted after the moment reach it. ``unknown_edges`` counts sinks whose
    topic is chosen for each record (downstream), and sources whose topics a pattern chooses (upstream): where these
    lead is not known.
    """

    direction: str
    hop: int
    topic: str
    group_id: str
    subtopology_id: str | None
    revision: int
    is_later: bool
    nodes: tuple[Node, ...] = field(repr=False)
    stores: tuple[str, ...]
    topics: tuple[str, ...]
    unknown_edges: int

    def as_json(self) -> dict[str, Any]:
        """Return all but the nodes."""
        return {name: value for name, value in vars(self).items() if name != "nodes"}


@dataclass(frozen=True)
class Blast:
    """What is reached from a topic; ``reasons`` say why there may be more, empty if this is all."""

    topic: str | None
    reached: tuple[Reached, ...]
    reasons: tuple[str, ...]

    @property
    def is_lower_bound(self) -> bool:
        """True if more can be reached than is known."""
        return bool(self.reasons)

    def towards(self, direction: str) -> list[Reached]:
        """Return what is reached in a direction, nearest first, and what only later topologies reach."""
        return [reached for reached in self.reached if reached.direction == direction]

    @property
    def counted(self) -> list[Reached]:
        """What the topologies of the moment reach: later ones do not count."""
        return [reached for reached in self.reached if not reached.is_later]

    @property
    def groups(self) -> list[str]:
        """The applications that records of the topic reached, nearest first."""
        return list(dict.fromkeys(reached.group_id for reached in self.counted if reached.direction == DOWNSTREAM))

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "topic": self.topic,
            "is_lower_bound": self.is_lower_bound,
            "reasons": list(self.reasons),
            "reached": [reached.as_json() for reached in self.reached],
        }

    def as_lines(self) -> list[str]:
        """Return it for a terminal, indented by hops, and why there may be more."""
        return [*self.reach, *self.doubts]

    @property
    def doubts(self) -> list[str]:
        """Why there may be more, each a sentence; none if the source topic is not known, which `reach` says."""
        return [f"There may be more: {why}." for why in self.reasons] if self.topic is not None else []

    @property
    def reach(self) -> list[str]:
        """What is known to be reached, indented by hops."""
        if self.topic is None:
            return ["Its dead letters name no source topic, so that no topology tells what it reaches."]
        lines = []
        for direction, word in ((DOWNSTREAM, "is read by"), (UPSTREAM, "is written by")):
            for reached in self.towards(direction):
                part = f" sub-topology {visible(reached.subtopology_id)}" if reached.subtopology_id is not None else ""
                stores = f", stores {', '.join(map(visible, reached.stores))}" if reached.stores else ""
                leads = ", ".join(map(visible, reached.topics))
                later = ", accepted later" if reached.is_later else ""
                onward = f" {'->' if direction == DOWNSTREAM else '<-'} {leads}" if leads else ""
                unknown = f", {reached.unknown_edges} unknown" if reached.unknown_edges else ""
                lines.append(
                    f"{'  ' * (reached.hop - 1)}{visible(reached.topic)} {word} {visible(reached.group_id)}{part} "
                    f"(revision {reached.revision}{later}){stores}{onward}{unknown}"
                )
        if not self.groups:
            lines.insert(0, f"No topology that was known then read {visible(self.topic)}.")
        return lines

    def drawn(self, form: str) -> str:
        """Return a picture, ``mermaid`` or ``svg``, of the nodes that are reached by what counts."""
        topology = self.topology()
        return drawing.mermaid(topology) if form == "mermaid" else drawing.svg(topology, f"What {self.topic} reaches")

    def part_name(self, reached: Reached) -> str:
        """Return the id of what is reached in the topology of `topology`."""
        return _part_name(reached.group_id, reached.subtopology_id)

    def topology(self) -> Topology:
        """Return the nodes that are reached as one topology; its parts are those of all applications."""
        parts: dict[tuple[str, str | None], dict[str, Node]] = defaultdict(dict)
        for reached in self.counted:
            parts[reached.group_id, reached.subtopology_id].update({node.name: node for node in reached.nodes})
        return Topology(
            tuple(
                Subtopology(_part_name(group, part), _within(nodes))
                for (group, part), nodes in sorted(parts.items(), key=lambda item: (item[0][0], item[0][1] or ""))
            )
        )


def _part_name(group: str, part: str | None) -> str:
    return f"{group} {part or 'global store'}"


def _within(nodes: Mapping[str, Node]) -> tuple[Node, ...]:
    """Return nodes without edges to nodes that are not among them."""
    return tuple(
        replace(node, successors=tuple(name for name in node.successors if name in nodes))
        for _, node in sorted(nodes.items())
    )


class Revisions:
    """The topologies of each group in the order in which brokers accepted them."""

    def __init__(self, revisions: Iterable[Row], groups: Iterable[Row] = ()) -> None:
        """Take rows of gold.topology_revisions and gold.topology_current; their times can be of any one type."""
        self._known: dict[str, list[tuple[Any, int, str]]] = defaultdict(list)
        for row in revisions:
            if row["accepted_at"] is not None:
                self._known[row["group_id"]].append((row["accepted_at"], row["revision"], row["topology_hash"]))
        for known in self._known.values():
            known.sort()
        self._deleted = {row["group_id"]: row["deleted_at"] for row in groups if row["deleted_at"] is not None}

    @property
    def times(self) -> list[Any]:
        """The times at which something else becomes valid, in order."""
        return sorted([*(at for known in self._known.values() for at, _, _ in known), *self._deleted.values()])

    def at(self, at: Any, group: str | None = None) -> dict[str, Valid]:
        """Return each group's topology that was valid at a time, the latest accepted until then, or else its first.

        The latter is marked as later: nothing tells whether the group was there with it. A group that was deleted
        before, and gave no sign of life since, has none. ``group`` had dead letters at that time, so that it was there.
        """
        valid = {}
        for name, known in self._known.items():
            if name in self._deleted and self._deleted[name] <= at and name != group:
                continue
            before = bisect_right(known, at, key=itemgetter(0))
            _, revision, topology_hash = known[max(before - 1, 0)]
            valid[name] = Valid(topology_hash, revision, not before)
        return valid


@dataclass(frozen=True, eq=False)
class _Part:
    """A sub-topology or global store of a topology."""

    key: tuple[str, str]
    subtopology_id: str | None
    nodes: list[Node] = field(default_factory=list)
    followed: dict[tuple[str, str], _Followed] = field(default_factory=dict)

    def through(self, topic: str, direction: str) -> _Followed:
        """Return what a topic reaches in it."""
        if (topic, direction) not in self.followed:
            self.followed[topic, direction] = _through(self.nodes, topic, direction)
        return self.followed[topic, direction]


@dataclass(frozen=True)
class _Followed:
    nodes: tuple[Node, ...]
    stores: tuple[str, ...]
    topics: tuple[str, ...]
    unknown_edges: int


class Graph:
    """The nodes of the topologies that are valid, by what they read and write."""

    def __init__(self, nodes: Iterable[Row], valid: Mapping[str, Valid]) -> None:
        """Take rows of silver.topology_nodes; those of topologies that are not valid do not count."""
        self._known: dict[tuple[str, str], dict[tuple[str, str | None], _Part]] = defaultdict(dict)
        for row in nodes:
            part_key = f"{row['part']}:{row['part_place']}"
            parts = self._known[row["group_id"], row["topology_hash"]]
            part = parts.setdefault(
                (part_key, row["subtopology_id"]), _Part((row["group_id"], part_key), row["subtopology_id"])
            )
            part.nodes.append(
                Node(
                    row["node"],
                    row["node_type"] or 0,
                    tuple(row["source_topics"] or ()),
                    row["sink_topic"],
                    tuple(row["stores"] or ()),
                    tuple(row["successors"] or ()),
                )
            )
        self.valid: Mapping[str, Valid] = {}
        self.later: set[str] = set()
        self.readers: dict[str, set[_Part]] = defaultdict(set)
        self.writers: dict[str, set[_Part]] = defaultdict(set)
        self.by_pattern: set[str] = set()
        self.dynamic: set[str] = set()
        self.turn(valid)

    def turn(self, valid: Mapping[str, Valid]) -> None:
        """Go to another time, at which other topologies are valid."""
        for group in self.valid.keys() | valid.keys():
            before, now = (known[group].topology_hash if group in known else None for known in (self.valid, valid))
            if before != now:
                self._leave(group, before)
                self._enter(group, now)
        self.valid = valid
        self.later = {group for group, topology in valid.items() if topology.is_later}

    def _leave(self, group: str, topology_hash: str | None) -> None:
        self.by_pattern.discard(group)
        self.dynamic.discard(group)
        for part in self._parts(group, topology_hash):
            for node in part.nodes:
                for topic in node.source_topics:
                    self.readers[topic].discard(part)
                if node.sink_topic is not None:
                    self.writers[node.sink_topic].discard(part)

    def _enter(self, group: str, topology_hash: str | None) -> None:
        for part in self._parts(group, topology_hash):
            for node in part.nodes:
                for topic in node.source_topics:
                    self.readers[topic].add(part)
                if node.sink_topic is not None:
                    self.writers[node.sink_topic].add(part)
                if node.node_type == SOURCE and not node.source_topics:
                    self.by_pattern.add(group)
                if node.node_type == SINK and node.sink_topic is None:
                    self.dynamic.add(group)

    def _parts(self, group: str, topology_hash: str | None) -> Iterable[_Part]:
        return () if topology_hash is None else self._known.get((group, topology_hash), {}).values()

    def blast(self, topic: str | None, group: str | None = None) -> Blast:
        """Follow a topic in both directions; ``group`` is the one that could not consume its records."""
        if topic is None:
            return Blast(None, (), ("the source topic is not known",))
        down = list(self._followed(topic, DOWNSTREAM))
        up = list(self._followed(topic, UPSTREAM))
        reasons = []
        later = sorted({reached.group_id for reached in (*down, *up)} & self.later)
        if later:
            reasons.append(f"the first known topology of {_named(later)} came later")
        if unknown := sorted({reached.group_id for reached in down if reached.unknown_edges and not reached.is_later}):
            reasons.append(f"{_named(unknown)} chooses the topic of a sink for each record")
        if by_pattern := self._then(self.by_pattern):
            reasons.append(f"{_named(by_pattern)} reads topics by a pattern")
        if dynamic := self._then(self.dynamic):
            reasons.append(f"{_named(dynamic)} can write any topic")
        if group is not None and group not in later and (group not in self.valid or group in self.later):
            reasons.append(f"no topology of {visible(group)} was known then")
        elif not later and len(self.later) == len(self.valid):
            reasons.append("no topology was known then")
        return Blast(topic, (*down, *up), tuple(reasons))

    def _then(self, groups: Iterable[str]) -> list[str]:
        """Return those of some groups that had a topology at the moment."""
        return sorted(group for group in groups if group not in self.later)

    def _followed(self, topic: str, direction: str) -> Iterable[Reached]:
        """Yield what is reached: first without later topologies, then what these add."""
        yielded = set()
        for with_later in (False, True) if self.later else (False,):
            for reached, part in self._waves(topic, direction, with_later):
                if (reached.topic, part) not in yielded:
                    yielded.add((reached.topic, part))
                    yield reached

    def _waves(self, topic: str, direction: str, with_later: bool) -> Iterable[tuple[Reached, _Part]]:
        """Yield what is reached, breadth first; each topic is followed once."""
        parts = self.readers if direction == DOWNSTREAM else self.writers
        seen, wave, hop = {topic}, [topic], 1
        while wave:
            following: list[str] = []
            for name in wave:
                for part in sorted(parts.get(name, ()), key=lambda part: (part.key, part.subtopology_id or "")):
                    group = part.key[0]
                    if group in self.later and not with_later:
                        continue
                    followed = part.through(name, direction)
                    reached = Reached(
                        *(direction, hop, name, group, part.subtopology_id, self.valid[group].revision, with_later),
                        *(followed.nodes, followed.stores, followed.topics, followed.unknown_edges),
                    )
                    yield reached, part
                    for next_topic in followed.topics:
                        if next_topic not in seen:
                            seen.add(next_topic)
                            following.append(next_topic)
            wave, hop = following, hop + 1


def _through(nodes: Sequence[Node], topic: str, direction: str) -> _Followed:
    """Return what a topic reaches within a sub-topology."""
    by_name: dict[str, list[Node]] = defaultdict(list)
    before: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        by_name[node.name].append(node)
        for name in node.successors:
            before[name].append(node)
    if direction == DOWNSTREAM:
        first = [node for node in nodes if topic in node.source_topics]
    else:
        first = [node for node in nodes if node.sink_topic == topic]
    by_id: dict[int, Node] = {id(node): node for node in first}
    wave = first
    while wave:
        around = [
            other
            for node in wave
            for other in (
                [successor for name in node.successors for successor in by_name.get(name, ())]
                if direction == DOWNSTREAM
                else before.get(node.name, ())
            )
        ]
        wave = [node for node in {id(other): other for other in around}.values() if id(node) not in by_id]
        by_id.update({id(node): node for node in wave})
    reached = list(by_id.values())
    if direction == DOWNSTREAM:
        topics = {node.sink_topic for node in reached if node.sink_topic is not None}
        unknown = sum(node.node_type == SINK and node.sink_topic is None for node in reached)
    else:
        topics = {name for node in reached for name in node.source_topics}
        unknown = sum(node.node_type == SOURCE and not node.source_topics for node in reached)
    stores = {store for node in reached if node.node_type in (PROCESSOR, SOURCE) for store in node.stores}
    return _Followed(tuple(reached), tuple(sorted(stores)), tuple(sorted(topics)), unknown)


def _named(groups: Sequence[str]) -> str:
    return first_names([*map(visible, groups)], 3)
