"""Topology, Topology -> Diff: the complete difference between two topologies.

Order and repetition within lists are not differences (``Topology.canonical``); everything else is.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import Any, TypeVar

from expectations.text import visible
from pipelines.topology.model import GlobalStore, Node, Topology

T = TypeVar("T")
Fact = tuple[str, str]  # a label and a name
WIDTH = 80


@dataclass(frozen=True)
class SubtopologyKey:
    """A sub-topology: its id and, as ids can repeat, its number among those with the same id, from 0."""

    subtopology_id: str
    number: int = 0

    @property
    def rank(self) -> tuple[Any, ...]:
        """The sort key of sub-topologies: numeric ids by their number, then all other ids."""
        is_number = self.subtopology_id.isascii() and self.subtopology_id.isdecimal() and len(self.subtopology_id) < 10
        return (not is_number, int(self.subtopology_id) if is_number else 0, self.subtopology_id, self.number)

    def wire(self) -> dict[str, Any]:
        """Return the id, and the number if it is not 0."""
        return {"subtopologyId": self.subtopology_id, **({"number": self.number} if self.number else {})}

    def __str__(self) -> str:
        """Return the heading of a sub-topology."""
        return visible(self.subtopology_id) + (f" (number {self.number + 1} of this id)" if self.number else "")


@dataclass(frozen=True)
class Member:
    """A canonical node and the sub-topology that it is in."""

    subtopology: SubtopologyKey
    node: Node

    @property
    def rank(self) -> tuple[Any, ...]:
        """The sort key of nodes: sub-topology, then name."""
        return (self.subtopology.rank, self.node.rank())

    def wire(self) -> dict[str, Any]:
        """Return the sub-topology and the wire schema's node."""
        return {**self.subtopology.wire(), "node": self.node.wire()}


@dataclass(frozen=True)
class NodeChange:
    """A changed node that keeps its name: before and after."""

    before: Member
    after: Member

    @property
    def rank(self) -> tuple[Any, ...]:
        """The sort key of changes: that of the node after the change."""
        return self.after.rank

    @property
    def is_of_edges(self) -> bool:
        """Whether only its successors differ, which edges tell, too."""
        node = replace(self.before.node, successors=self.after.node.successors)
        return replace(self.before, node=node) == self.after

    def wire(self) -> dict[str, Any]:
        """Return the name and both sides."""
        return {"name": self.after.node.name, "before": self.before.wire(), "after": self.after.wire()}


@dataclass(frozen=True)
class GlobalStoreChange:
    """A changed global store that keeps the names of its nodes, or its stores: before and after."""

    before: GlobalStore
    after: GlobalStore

    def wire(self) -> dict[str, Any]:
        """Return both sides."""
        return {"before": self.before.wire(), "after": self.after.wire()}


@dataclass(frozen=True)
class Diff:
    """What was added, removed and changed, each in order.

    Sub-topologies, nodes and global stores are the whole difference. Edges (pairs of node names, in any part), stores
    and topics repeat which of them are new or gone in the topology as a whole.
    """

    subtopologies_added: tuple[SubtopologyKey, ...] = ()
    subtopologies_removed: tuple[SubtopologyKey, ...] = ()
    nodes_added: tuple[Member, ...] = ()
    nodes_removed: tuple[Member, ...] = ()
    nodes_changed: tuple[NodeChange, ...] = ()
    global_stores_added: tuple[GlobalStore, ...] = ()
    global_stores_removed: tuple[GlobalStore, ...] = ()
    global_stores_changed: tuple[GlobalStoreChange, ...] = ()
    edges_added: tuple[tuple[str, str], ...] = ()
    edges_removed: tuple[tuple[str, str], ...] = ()
    stores_added: tuple[str, ...] = ()
    stores_removed: tuple[str, ...] = ()
    topics_added: tuple[str, ...] = ()
    topics_removed: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether the topologies are the same."""
        return not any(getattr(self, part.name) for part in fields(self))

    def as_json(self) -> dict[str, Any]:
        """Return the difference as JSON values; nodes and global stores are in the wire schema."""

        def listed(*ends: Iterable[Any]) -> dict[str, Any]:
            return dict(
                zip(("added", "removed", "changed"), ([item.wire() for item in end] for end in ends), strict=False)
            )

        def edges(pairs: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
            return [{"from": start, "to": end} for start, end in pairs]

        return {
            "subtopologies": listed(self.subtopologies_added, self.subtopologies_removed),
            "nodes": listed(self.nodes_added, self.nodes_removed, self.nodes_changed),
            "globalStores": listed(self.global_stores_added, self.global_stores_removed, self.global_stores_changed),
            "edges": {"added": edges(self.edges_added), "removed": edges(self.edges_removed)},
            "stores": {"added": list(self.stores_added), "removed": list(self.stores_removed)},
            "topics": {"added": list(self.topics_added), "removed": list(self.topics_removed)},
        }

    def as_text(self) -> str:
        """Return lines for a terminal, each with its line end: ``+`` added, ``-`` removed, ``~`` changed.

        Nodes stand under their sub-topology, and what they gained and lost stands under them. A line is longer than 80
        columns only if a name in it is: names stay whole.
        """
        if self.empty:
            return "There is no difference.\n"
        return "".join(
            f"{line}\n" for line in (*_summary(self), *_subtopologies(self), *_global_stores(self), *_uses(self))
        )


def diff(a: Topology, b: Topology) -> Diff:
    """Return the difference from ``a`` to ``b``.

    A node that differs is changed if its name is in both. If names repeat, nodes of the same sub-topology are paired
    first.
    """
    former, latter = _nodes_by_subtopology(a), _nodes_by_subtopology(b)
    gone, new = _unequal(_nodes(former), _nodes(latter))
    stayed, gone, new = _paired(gone, new, lambda member: (member.subtopology, member.node.name))
    moved, gone, new = _paired(gone, new, lambda member: member.node.name)
    stores_gone, stores_new = _unequal(a.canonical().global_stores, b.canonical().global_stores)
    kept, stores_gone, stores_new = _paired(
        stores_gone, stores_new, lambda store: (store.source.name, store.processor.name)
    )
    renamed, stores_gone, stores_new = _paired(stores_gone, stores_new, lambda store: store.processor.stores)
    edges, stores, topics = (
        (_sorted(used(b) - used(a)), _sorted(used(a) - used(b))) for used in (_edges, _stores, _topics)
    )
    return Diff(
        tuple(sorted(latter.keys() - former.keys(), key=lambda subtopology: subtopology.rank)),
        tuple(sorted(former.keys() - latter.keys(), key=lambda subtopology: subtopology.rank)),
        tuple(sorted(new, key=lambda member: member.rank)),
        tuple(sorted(gone, key=lambda member: member.rank)),
        tuple(sorted((NodeChange(*pair) for pair in stayed + moved), key=lambda change: change.rank)),
        tuple(stores_new),
        tuple(stores_gone),
        tuple(GlobalStoreChange(*pair) for pair in kept + renamed),
        *edges,
        *stores,
        *topics,
    )


def _nodes_by_subtopology(topology: Topology) -> dict[SubtopologyKey, tuple[Node, ...]]:
    seen: Counter[str] = Counter()
    nodes: dict[SubtopologyKey, tuple[Node, ...]] = {}
    for subtopology in topology.canonical().subtopologies:
        nodes[SubtopologyKey(subtopology.subtopology_id, seen[subtopology.subtopology_id])] = subtopology.nodes
        seen[subtopology.subtopology_id] += 1
    return nodes


def _nodes(subtopologies: dict[SubtopologyKey, tuple[Node, ...]]) -> list[Member]:
    return [Member(subtopology, node) for subtopology, nodes in subtopologies.items() for node in nodes]


def _unequal(a: Iterable[T], b: Iterable[T]) -> tuple[list[T], list[T]]:
    """Return the items that only one side has, counting repetitions."""
    former, latter = Counter(a), Counter(b)
    return list((former - latter).elements()), list((latter - former).elements())


def _paired(gone: list[T], new: list[T], key: Callable[[T], Any]) -> tuple[list[tuple[T, T]], list[T], list[T]]:
    """Return pairs with the same key, then the items of either side that have no partner."""
    waiting: dict[Any, list[T]] = {}
    for item in reversed(new):
        waiting.setdefault(key(item), []).append(item)
    pairs, left = [], []
    for item in gone:
        if candidates := waiting.get(key(item)):
            pairs.append((item, candidates.pop()))
        else:
            left.append(item)
    return pairs, left, [item for candidates in waiting.values() for item in reversed(candidates)]


def _edges(topology: Topology) -> set[tuple[str, str]]:
    return {(node.name, successor) for node in topology.nodes for successor in node.successors}


def _stores(topology: Topology) -> set[str]:
    return {store for node in topology.nodes for store in node.stores}


def _topics(topology: Topology) -> set[str]:
    return {topic for node in topology.nodes for topic in node.topics}


def _sorted(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(sorted(values))


def _summary(difference: Diff) -> Iterator[str]:
    """Yield the counts; a node of which only edges changed counts among the edges."""
    signs = {"added": "+", "removed": "-", "changed": "~"}
    counts: dict[str, list[str]] = {}
    shown = difference
    if difference.edges_added or difference.edges_removed:
        shown = replace(
            difference, nodes_changed=tuple(change for change in shown.nodes_changed if not change.is_of_edges)
        )
    for name, items in shown.as_json().items():
        counts[name] = [f"{signs[end]}{len(changes)}" for end, changes in items.items() if changes]
    words = {"subtopologies": "sub-topologies", "globalStores": "global stores"}
    summary = ", ".join(f"{words.get(name, name)} {' '.join(changes)}" for name, changes in counts.items() if changes)
    yield from textwrap.wrap(summary[0].upper() + summary[1:] + ".", WIDTH)


def _subtopologies(difference: Diff) -> Iterator[str]:
    """Yield a heading for each sub-topology with differences, and the lines of its nodes."""
    blocks: list[tuple[tuple[Any, ...], SubtopologyKey, list[str]]] = []
    for member in difference.nodes_added:
        blocks.append((member.rank, member.subtopology, list(_whole("+", member.node))))
    for member in difference.nodes_removed:
        blocks.append((member.rank, member.subtopology, list(_whole("-", member.node))))
    for change in difference.nodes_changed:
        blocks.append((change.rank, change.after.subtopology, list(_changed(change))))
    for subtopology in (*difference.subtopologies_added, *difference.subtopologies_removed):
        blocks.append(((subtopology.rank,), subtopology, []))
    signs = dict.fromkeys(difference.subtopologies_added, "+") | dict.fromkeys(difference.subtopologies_removed, "-")
    blocks.sort(key=lambda block: block[0])
    for subtopology, blocks_there in groupby(blocks, key=lambda block: block[1]):
        yield f"{signs.get(subtopology, ' ')} Sub-topology: {subtopology}"
        yield from (line for _, _, lines in blocks_there for line in lines)


def _global_stores(difference: Diff) -> Iterator[str]:
    if difference.global_stores_added or difference.global_stores_removed or difference.global_stores_changed:
        yield "  Global Stores:"
    for sign, stores in (("-", difference.global_stores_removed), ("+", difference.global_stores_added)):
        yield from (line for store in stores for node in store.nodes for line in _whole(sign, node))
    for change in difference.global_stores_changed:
        for before, after in zip(change.before.nodes, change.after.nodes, strict=True):
            if before != after:
                yield from _headed(before, after, _facts(before), _facts(after))


def _uses(difference: Diff) -> Iterator[str]:
    for heading, gone, new in (
        ("Stores", difference.stores_removed, difference.stores_added),
        ("Topics", difference.topics_removed, difference.topics_added),
    ):
        if gone or new:
            yield f"  {heading}:"
        yield from (f"-   {visible(name)}" for name in gone)
        yield from (f"+   {visible(name)}" for name in new)


def _whole(sign: str, node: Node) -> Iterator[str]:
    yield f"{sign}   {node.kind}: {visible(node.name)}"
    yield from (f"{sign}     {_fact(fact)}" for fact in _facts(node))


def _changed(change: NodeChange) -> Iterator[str]:
    labels = [("sub-topology: ", str(side.subtopology)) for side in (change.before, change.after)]
    before, after = (_facts(side.node) for side in (change.before, change.after))
    yield from _headed(change.before.node, change.after.node, [labels[0], *before], [labels[1], *after])


def _headed(was: Node, now: Node, before: list[Fact], after: list[Fact]) -> Iterator[str]:
    names = [[("name: ", node.name), ("type: ", node.kind)] for node in (was, now)]
    former, latter = dict.fromkeys([*names[0], *before]), dict.fromkeys([*names[1], *after])
    yield f"~   {now.kind}: {visible(now.name)}"
    yield from (f"-     {_fact(fact)}" for fact in former if fact not in latter)
    yield from (f"+     {_fact(fact)}" for fact in latter if fact not in former)


def _facts(node: Node) -> list[Fact]:
    """Return the facts of a canonical node, each for a line of its own."""
    return [
        *(("source topic: ", topic) for topic in node.source_topics),
        *(("sink topic: ", topic) for topic in (node.sink_topic,) if topic is not None),
        *(("store: ", store) for store in node.stores),
        *(("--> ", successor) for successor in node.successors),
    ]


def _fact(fact: Fact) -> str:
    return f"{fact[0]}{visible(fact[1])}"
