"""gold.topology_current, gold.topology_revisions -> the topology of one Streams group, now or at an earlier time.

Silver tells when a group was gone for a while.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from expectations.text import visible
from pipelines import moments
from pipelines.errors import UsageError
from pipelines.moments import moment_of
from pipelines.text import hint
from pipelines.topology import diff as topology_diff
from pipelines.topology import drawing
from pipelines.topology.model import NoTopology, Topology
from pipelines.warehouse.jvmless import rows
from pipelines.warehouse.tables import Warehouse

CURRENT, REVISIONS = "gold.topology_current", "gold.topology_revisions"
PUSHES, STATUSES, DELETIONS = "silver.topology_pushes", "silver.topology_statuses", "silver.group_deletions"
CONNECTION = ["connection", "correlation_id"]
NOT_STORED, ERROR, AVAILABLE = 1, 2, 3  # TopologyDescriptionStatus of KIP-1331
NOT_FOUND = 69  # GROUP_ID_NOT_FOUND
SHOWN = "Shown is the last topology that is known."
LATEST = datetime.max.replace(tzinfo=UTC)
FEED, DIRECTORY = "topology", "streams-requests"
FACTS = ["revision", "source", "topology_epoch", "topology_epochs", "accepted_at", "replaced_at", "defects"]


@dataclass(frozen=True)
class Answer:
    """The output of a command: the result for standard output, remarks for standard error, and the exit code."""

    result: str
    remarks: tuple[str, ...] = ()
    exit_code: int = 0


@dataclass(frozen=True)
class _Described:
    """A description (wire JSON), its epoch and revision, and remarks about it."""

    description: str
    topology_epoch: int | None
    revision: int | None
    remarks: tuple[str, ...] = ()


class _NothingToShow(Exception):
    """Raised if there is no topology to show; holds the reason and the last revision that can be shown instead."""

    def __init__(
        self, message: str, *, health: str | None = None, revision: int | None = None, sentence: str | None = None
    ) -> None:
        super().__init__(message)
        self.health = health
        self.revision = revision
        self.sentence = sentence


def answer(
    warehouse: Warehouse,
    group: str,
    form: str = "text",
    *,
    revision: int | None = None,
    epoch: int | None = None,
    at: str | None = None,
    diff: tuple[int, int] | None = None,
) -> Answer:
    """Describe a group's latest topology, the selected revision, or the difference between two revisions.

    ``text`` and its exit code are those of ``kafka-streams-groups.sh --describe --topology`` (KIP-1331, Command-Line
    Tool), but a description that was accepted stays after a later push was refused; ``json`` is the body of the push,
    ``{"groupId", "topologyEpoch", "topologyDescription"}``. If there is nothing to show, the exit code is 1 and the
    message is the result. As JSON, the result is an object with ``groupId``, ``topologyDescription`` null, ``message``,
    ``health`` (null if it was not looked up) and ``revision``, the last one that can be shown. For ``mermaid`` and
    ``svg`` the message is a remark, so that no drawing is written.

    Raises UsageError: selectors exclude each other, a time cannot be read, or a table does not exist.
    """
    if sum(given is not None for given in (revision, epoch, at, diff)) > 1:
        raise UsageError("Give one of --revision, --epoch, --at and --diff.")
    if diff is not None and form not in ("text", "json"):
        raise UsageError(f"--diff is printed as text or json, not as {form}.")
    moment = None if at is None else moment_of(at, "--at", moments.now())
    try:
        if diff is not None:
            return _difference(warehouse, group, diff, form)
        if revision is not None:
            selected = _described(warehouse, group, _numbered(group, _history(warehouse, group), revision))
        elif epoch is not None:
            selected = _under_epoch(warehouse, group, epoch)
        elif moment is not None:
            selected = _accepted_at(warehouse, group, moment)
        else:
            selected = _latest(warehouse, group)
        return Answer(_printed(group, selected, form), selected.remarks)
    except _NothingToShow as nothing:
        return _refusal(group, nothing, form)


def _latest(warehouse: Warehouse, group: str) -> _Described:
    """Return what the broker would answer now; its status decides (KIP-1331), unless the group or its data are gone.

    If a later push was refused, or none came under a new epoch, return the last description in the group's life.
    """
    now = _current(warehouse, group)
    name = visible(group)
    if now["health"] == "DELETED":
        raise _gone(group, now)
    if now["health"] == "LOST":
        raise _nothing(
            now,
            f"The broker has lost the topology description for group '{name}': "
            f"it was found missing at {_time(now['lost_at'])}.",
        )
    if now["status"] == ERROR:
        raise _nothing(
            now, f"The broker failed to retrieve the topology description for group '{name}' (check broker logs)."
        )
    if now["status"] == AVAILABLE and now["description"] is None:
        raise _nothing(now, f"The broker has a topology description for group '{name}', but none has landed here.")
    if now["status"] == NOT_STORED or now["description"] is None:
        is_of_life = now["revision"] is not None and now["health"] != "NOT_PUSHED"
        if not is_of_life or _ended_at(warehouse, group, LATEST) is not None:
            raise _nothing(now, f"No topology description has been recorded for group '{name}'.")
        accepted = _described(warehouse, group, _history(warehouse, group)[-1])
        return replace(accepted, remarks=(visible(now["sentence"]), SHOWN, *accepted.remarks))
    remarks = (visible(now["sentence"]),) if now["health"] != "OK" or now["defects"] else ()
    return _Described(now["description"], now["topology_epoch"], now["revision"], remarks)


def _under_epoch(warehouse: Warehouse, group: str, epoch: int) -> _Described:
    history = _history(warehouse, group)
    under = [revision for revision in history if epoch in revision["topology_epochs"]]
    if not under:
        epochs = sorted({known_epoch for revision in history for known_epoch in revision["topology_epochs"]})
        known = f"there {'is epoch' if len(epochs) == 1 else 'are epochs'} {', '.join(map(str, epochs))}"
        raise _NothingToShow(
            f"No topology of group '{visible(group)}' was accepted under epoch {epoch}: "
            f"{known if epochs else 'no epoch of the group is known'}.",
            revision=history[-1]["revision"],
        )
    return _described(warehouse, group, {**under[-1], "topology_epoch": epoch})


def _accepted_at(warehouse: Warehouse, group: str, moment: datetime) -> _Described:
    """Return the accepted revision at a moment; after a deletion of the group there is none until one is accepted."""
    history = _history(warehouse, group)
    before = [revision for revision in history if revision["accepted_at"] <= moment]
    if not before:
        first = history[0]
        raise _NothingToShow(
            f"At {_time(moment)} no topology of group '{visible(group)}' had been accepted: "
            f"the first, revision {first['revision']}, was at {_time(first['accepted_at'])}.",
            revision=history[-1]["revision"],
        )
    now = _current(warehouse, group)
    if now["health"] == "DELETED" and moment >= now["deleted_at"]:
        raise _gone(group, now)
    ended_at = _ended_at(warehouse, group, moment)
    if ended_at is not None:
        raise _NothingToShow(
            f"At {_time(moment)} no topology of group '{visible(group)}' had been accepted since it was deleted, or "
            f"found missing, at {_time(ended_at)}.",
            revision=before[-1]["revision"],
        )
    return _described(warehouse, group, before[-1])


def _ended_at(warehouse: Warehouse, group: str, moment: datetime) -> datetime | None:
    """Return when a group was first gone, if no topology of it was accepted or shown from then until a moment."""
    ends: list[tuple[datetime, str, int, str]] = []
    shown: list[tuple[datetime, str, int, str]] = []
    for table, kind, time, more in (
        (DELETIONS, "deletion", "deleted_at", []),
        (STATUSES, "describe", "described_at", ["status", "topology_hash"]),
        (PUSHES, "push", "pushed_at", []),
    ):
        columns = [time, "error_code", *CONNECTION, *more]
        for row in rows(warehouse, table, {"cluster": warehouse.cluster, "group_id": group}, columns):
            exchange = (row[time], row["connection"], row["correlation_id"], kind)
            if row[time] > moment:
                continue
            if row["error_code"] in {"deletion": (0, NOT_FOUND), "describe": (NOT_FOUND,), "push": ()}[kind]:
                ends.append(exchange)
            elif row["error_code"] == 0 and (
                kind == "push" or (row["status"] == AVAILABLE and row["topology_hash"] is not None)
            ):
                shown.append(exchange)
    last = max(shown, default=None)
    return min((end[0] for end in ends if last is None or end > last), default=None)


def _difference(warehouse: Warehouse, group: str, pair: tuple[int, int], form: str) -> Answer:
    history = _history(warehouse, group)
    former, latter = (_numbered(group, history, number) for number in pair)
    difference = topology_diff.diff(
        _topology(_described(warehouse, group, former)), _topology(_described(warehouse, group, latter))
    )
    return Answer(json.dumps(difference.as_json()) if form == "json" else difference.as_text())


def _current(warehouse: Warehouse, group: str) -> dict[str, Any]:
    current = rows(warehouse, CURRENT, {"cluster": warehouse.cluster, "group_id": group})
    if not current:
        raise _NothingToShow(
            f"Nothing is known of group '{visible(group)}' in cluster '{visible(warehouse.cluster)}': land the request "
            f"log of its brokers in {warehouse.settings.landing_of(DIRECTORY)}/ and run `afterlog run --feed {FEED}`."
            f"{hint(group, groups(warehouse))}"
        )
    return current[0]


def groups(warehouse: Warehouse) -> list[str]:
    """Return the groups that the warehouse knows; none if only a JVM can read it.

    Raises UsageError: the table does not exist.
    """
    if not warehouse.opens_tables:
        return []
    current = rows(warehouse, CURRENT, {"cluster": warehouse.cluster}, ["group_id"])
    return sorted({row["group_id"] for row in current if row["group_id"]})


def _history(warehouse: Warehouse, group: str) -> list[dict[str, Any]]:
    """Return the facts of a group's revisions in their order; there is at least one revision."""
    revisions = rows(warehouse, REVISIONS, {"cluster": warehouse.cluster, "group_id": group}, FACTS)
    if not revisions:
        message = f"No topology description of group '{visible(group)}' was ever accepted."
        raise _nothing(_current(warehouse, group), message)
    return sorted(revisions, key=lambda revision: revision["revision"])


def _numbered(group: str, history: Sequence[dict[str, Any]], revision: int) -> dict[str, Any]:
    for facts in history:
        if facts["revision"] == revision:
            return facts
    first, last = history[0]["revision"], history[-1]["revision"]
    revisions = f"there is revision {first}" if first == last else f"there are revisions {first} to {last}"
    raise _NothingToShow(f"Group '{visible(group)}' has no revision {revision}: {revisions}.", revision=last)


def _described(warehouse: Warehouse, group: str, facts: dict[str, Any]) -> _Described:
    key = {"cluster": warehouse.cluster, "group_id": group, "revision": facts["revision"]}
    ((description,),) = (row.values() for row in rows(warehouse, REVISIONS, key, ["description"]))
    until = f", replaced at {_time(facts['replaced_at'])}" if facts["replaced_at"] else ""
    seen = "accepted" if facts["source"] == "pushed" else "first shown by a describe"
    under = "" if facts["topology_epoch"] is None else f" under epoch {facts['topology_epoch']}"
    remarks = [f"Revision {facts['revision']}: {seen} at {_time(facts['accepted_at'])}{under}{until}."]
    if facts["defects"]:
        remarks.append(f"Its defects: {', '.join(facts['defects'])}.")
    return _Described(description, facts["topology_epoch"], facts["revision"], tuple(remarks))


def _nothing(now: dict[str, Any], message: str) -> _NothingToShow:
    sentence = visible(now["sentence"])
    return _NothingToShow(message, health=now["health"], revision=now["revision"], sentence=sentence)


def _gone(group: str, now: dict[str, Any]) -> _NothingToShow:
    at = _time(now["deleted_at"])
    return _nothing(now, f"Group '{visible(group)}' is gone: it was deleted, or found missing, at {at}.")


def _refusal(group: str, nothing: _NothingToShow, form: str) -> Answer:
    remarks = [nothing.sentence] if nothing.sentence else []
    if nothing.health is not None and nothing.revision is not None:
        remarks.append(f"--revision {nothing.revision} still shows what was accepted last.")
    message = str(nothing)
    if form == "json":
        facts = {"message": message, "health": nothing.health, "revision": nothing.revision}
        return Answer(json.dumps({"groupId": group, "topologyDescription": None, **facts}), tuple(remarks), 1)
    if form == "text":
        return Answer(message, tuple(remarks), 1)
    return Answer("", (message, *remarks), 1)


def _printed(group: str, described: _Described, form: str) -> str:
    topology = _topology(described)
    if form == "json":
        body = {"groupId": group, "topologyEpoch": described.topology_epoch, "topologyDescription": topology.wire()}
        return json.dumps(body)
    if form == "mermaid":
        return drawing.mermaid(topology)
    if form == "svg":
        return drawing.svg(topology, group if described.revision is None else f"{group}, revision {described.revision}")
    return drawing.text(topology)


def _topology(described: _Described) -> Topology:
    try:
        return Topology.parsed(described.description)
    except NoTopology as error:
        raise _NothingToShow(f"What has landed cannot be shown: {error}", revision=described.revision) from None


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
