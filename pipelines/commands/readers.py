"""Topologies, dead letters and collected groups -> who reads a topic, as far as these tell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from expectations.owners import owner_of
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

EDGES, SUMMARY, SETTINGS = "gold.topology_edges", "gold.dlq_summary", "silver.cluster_settings"
TOPOLOGY, DEAD_LETTERS, COLLECTED = "topology", "dead letters", "collected"
KINDS = (TOPOLOGY, DEAD_LETTERS, COLLECTED)
"""What tells that somebody reads a topic."""

Readers = dict[str, dict[str, tuple[str, ...]]]
"""For each topic its readers, groups or connectors, each with the `KINDS` that tell of it."""


def readers_of(warehouse: Warehouse, topics: Collection[str]) -> Readers:
    """Return who reads topics now, as far as the tables of the settings' cluster tell; a topic can have more readers.

    The current topologies tell it, dead letters that a reader ever gave up, and the topics of groups that
    ``afterlog collect`` described last.
    """
    found: dict[str, dict[str, set[str]]] = {topic: defaultdict(set) for topic in topics}
    cluster: dict[str, str | int] = {"cluster": warehouse.cluster}
    if warehouse.exists(EDGES):
        columns = ["group_id", "topic", "is_current"]
        for row in jvmless.rows(warehouse, EDGES, cluster | {"kind": "topic", "direction": "read"}, columns):
            if row["is_current"] and row["topic"] in found:
                found[row["topic"]][row["group_id"]].add(TOPOLOGY)
    if warehouse.exists(SUMMARY):
        distinct = "SELECT DISTINCT original_topic, consumer_group, owner FROM rows"
        for row in jvmless.query(warehouse, SUMMARY, distinct, cluster):
            name = owner_of(row)
            if name is not None and row["original_topic"] in found:
                found[row["original_topic"]][name].add(DEAD_LETTERS)
    if warehouse.exists(SETTINGS):
        columns = ["name", "state", "observed_at", "settings"]
        rows = jvmless.rows(warehouse, SETTINGS, cluster | {"kind": "group"}, columns)
        latest = {row["name"]: row for row in sorted(rows, key=lambda row: row["observed_at"])}
        for name, row in latest.items():
            sources = [
                setting["value"]
                for setting in row["settings"] or ()
                if setting["name"] == "sources" and setting["value"]
            ]
            for topic in sources[0].split(",") if sources and row["state"] == "present" else ():
                if topic in found:
                    found[topic][name].add(COLLECTED)
    return {
        topic: {name: tuple(kind for kind in KINDS if kind in kinds) for name, kinds in sorted(of_topic.items())}
        for topic, of_topic in found.items()
    }
