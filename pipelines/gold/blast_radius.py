"""gold.dlq_incidents and the topologies -> gold.blast_radius: what the records of an incident's topic reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pipelines.incidents.blast import Blast, Graph, Revisions

ORIGIN = "origin"
Row = Mapping[str, Any]


def derive(rows: Sequence[Row], existing_rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Return the rows of an incident if no topology has landed."""
    return deriver(())(rows, existing_rows)


def deriver(shared: Sequence[Row]) -> Callable[[Sequence[Row], Sequence[Row]], Iterator[dict[str, Any]]]:
    """Return what makes an incident's rows; ``shared`` are the revisions and nodes of all topologies, and deletions."""
    clusters = {row["cluster"] for row in shared}
    revisions = {name: Revisions(_of(shared, name, "revision"), _of(shared, name, "deletion")) for name in clusters}
    graphs = {name: Graph(_of(shared, name, "node"), {}) for name in clusters}

    def derive(rows: Sequence[Row], existing_rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
        for row in rows:
            cluster, incident = row["cluster"], row["incident"]
            graph = graphs.setdefault(cluster, Graph((), {}))
            if cluster in revisions:
                graph.turn(revisions[cluster].at(incident["first_at"], incident["consumer_group"]))
            blast = graph.blast(incident["original_topic"], incident["consumer_group"])
            key = {"cluster": cluster, "incident_id": row["incident_id"]}
            for index, row_of_blast in enumerate(told_of(blast)):
                yield {**key, "place": index, **row_of_blast}

    return derive


def told_of(blast: Blast) -> Iterator[dict[str, Any]]:
    """Return the rows of a blast radius without their key: that of the topic itself, then those of what is reached."""
    bound = {"is_lower_bound": blast.is_lower_bound}
    yield {"direction": ORIGIN, "hop": 0, "topic": blast.topic, "reasons": list(blast.reasons), **bound}
    for node in blast.reached:
        yield {**node.as_json(), "stores": list(node.stores), "topics": list(node.topics), **bound}


def _of(shared: Sequence[Row], cluster: str, kind: str) -> Iterator[Row]:
    return (row[kind] for row in shared if row["cluster"] == cluster and row[kind] is not None)
