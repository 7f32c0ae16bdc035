"""Topologies, their changes and pushes, and cases -> Applications, those that need a look first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from pipelines.commands.incidents.story import CURRENT, REVISIONS
from pipelines.site.content import SETTLED, Application, Case, Revision, Row
from pipelines.site.tables import Tables

CHANGES, HEALTH, EDGES = "gold.topology_changes", "gold.push_health", "gold.topology_edges"

_CHANGES = {
    f"{thing}_{how}": f"{thing} {how}"
    for thing, ways in (
        ("nodes", ("added", "removed", "changed")),
        ("edges", ("added", "removed")),
        ("stores", ("added", "removed")),
        ("topics", ("added", "removed")),
    )
    for how in ways
}


def applications_of(tables: Tables, cases: Sequence[Case]) -> tuple[Application, ...]:
    """Return the applications, those whose topology needs a look first."""
    changes = {(row["group_id"], row["revision"]): row for row in tables[CHANGES]}
    revisions: dict[str, list[Row]] = defaultdict(list)
    for row in tables[REVISIONS]:
        revisions[row["group_id"]].append(row)
    pushes = {row["group_id"]: row for row in tables[HEALTH]}
    read, written = _edges(tables)
    before: dict[str, dict[str, int]] = defaultdict(dict)
    for case in cases:
        for suspect in case.suspects if case.is_open else ():
            if suspect.kind in ("topology", "writer_topology", "new_group") and suspect.changed_at is not None:
                seconds = int((case.first_at - suspect.changed_at).total_seconds())
                seconds_before = before[suspect.name]
                seconds_before[case.incident_id] = min(seconds, seconds_before.get(case.incident_id, seconds), key=abs)
    applications = []
    for row in tables[CURRENT]:
        name = row["group_id"]
        applications.append(
            Application(
                name,
                row["health"],
                row["sentence"],
                row["revision"],
                row["node_count"],
                row["last_seen_at"],
                row["last_pushed_at"],
                tuple(row["defects"] or ()),
                tuple(sorted(read[name])),
                tuple(sorted(written[name])),
                {key: value for key, value in pushes[name].items() if key not in ("cluster", "group_id")}
                if name in pushes
                else None,
                tuple(
                    Revision(
                        revision["revision"],
                        revision["accepted_at"],
                        revision["replaced_at"],
                        tuple(revision["topology_epochs"] or ()),
                        tuple(_changed(changes.get((name, revision["revision"])))),
                        revision["topology_hash"],
                        revision["description"],
                    )
                    for revision in sorted(revisions[name], key=lambda revision: -revision["revision"])
                ),
                tuple(sorted(before[name].items(), key=lambda incident: abs(incident[1]))),
                row["description"],
            )
        )
    return tuple(
        sorted(
            applications,
            key=lambda application: (
                not application.needs_a_look,
                application.health in SETTLED,
                application.health,
                application.name,
            ),
        )
    )


def _edges(tables: Tables) -> tuple[Mapping[str, set[str]], Mapping[str, set[str]]]:
    read: dict[str, set[str]] = defaultdict(set)
    written: dict[str, set[str]] = defaultdict(set)
    for row in tables[EDGES]:
        if row["is_current"] and row["topic"] is not None:
            (read if row["direction"] == "read" else written)[row["group_id"]].add(row["topic"])
    return read, written


def _changed(row: Row | None) -> Iterable[tuple[str, tuple[str, ...]]]:
    for column, words in _CHANGES.items():
        if row is not None and row[column]:
            names = [
                change if isinstance(change, str) else f"{change['from']} -> {change['to']}" for change in row[column]
            ]
            yield words, tuple(names)
