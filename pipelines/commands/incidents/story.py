"""An incident and the tables beside it -> what is wrong, since when, why, and what to type next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from expectations.owners import OWNER, key_of, named
from expectations.rules import counted
from expectations.text import visible
from pipelines.commands.describe import Answer
from pipelines.commands.incidents.incident import Incident, ago, in_json
from pipelines.commands.incidents.reading import RECORDS, SUSPECTS, Incidents, now_of
from pipelines.incidents import ids
from pipelines.incidents.blast import Blast, Graph, Revisions
from pipelines.incidents.state import sparkline
from pipelines.incidents.words import (
    are_all_counted,
    at_least,
    at_offset,
    died_around,
    few_keys,
    key_percent,
    keys_of,
    of_all,
    percent,
    shared,
    sources_of,
)
from pipelines.run.newest import lasting, moment
from pipelines.teams import in_words
from pipelines.text import amount
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse

DEPLOYED = "silver.changes"
NODES, REVISIONS, CURRENT = "silver.topology_nodes", "gold.topology_revisions", "gold.topology_current"
MOST_SAMPLES = 3


class Replays(Protocol):
    """What a plan would replay of an incident, and what was replayed of it before."""

    @property
    def in_words(self) -> list[str]:
        """It in sentences."""

    def as_json(self) -> dict[str, Any]:
        """It as plain values."""


def one(
    warehouse: Warehouse,
    wanted: str,
    form: str = "text",
    at: str | None = None,
    replays: Callable[[str], Replays] | None = None,
    team: str | None = None,
) -> Answer:
    """Tell all about one incident; ``mermaid`` and ``svg`` draw what it touches.

    ``replays`` tells of a plan of it, always as of now; without it nothing is said of that.

    Raises UsageError: the id names no incident, or several, or one of other teams; or a table does not exist.
    """
    incidents = Incidents(warehouse, now_of(at))
    incident = incidents.of(wanted, team)
    name = incident.row["incident_id"]
    equal: dict[str, str | int] = {"cluster": warehouse.cluster, "incident_id": name}
    suspects = sorted(_rows(warehouse, SUSPECTS, equal), key=lambda row: row["rank"])
    suspects = [
        suspect for suspect in suspects if suspect["changed_at"] is None or suspect["changed_at"] <= incidents.now
    ]
    blast = _blast(warehouse, incident.row, incidents.now)
    if form in ("mermaid", "svg"):
        if blast is None or not blast.counted:
            return Answer("", (f"No topology that was known then touches the source topic of {name}.",), exit_code=1)
        return Answer(blast.drawn(form))
    if form == "json":
        facts = incident.as_json(warehouse.settings.report) | {
            "usual_records_an_hour": incidents.usual_rate(incident),
            "suspects": [{k: v for k, v in row.items() if k not in ("cluster", "incident_id")} for row in suspects],
            "samples": _samples(incidents, incident.row),
            "blast_radius": blast.as_json() if blast else None,
            "replay": replays(name).as_json() if replays is not None else None,
        }
        return Answer(in_json(facts))
    replay = replays(name).in_words if replays is not None else []
    if replay and at is not None:
        replay = ["As known now:", *replay]
    return Answer("\n".join(_story(incidents, incident, suspects, blast, replay)))


def _rows(warehouse: Warehouse, table: str, equal: Mapping[str, str | int]) -> list[dict[str, Any]]:
    return jvmless.rows(warehouse, table, equal) if warehouse.exists(table) else []


def _samples(incidents: Incidents, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the coordinates of some dead letters of an incident, for ``afterlog show``."""
    warehouse = incidents.warehouse
    columns = [
        "dlq_topic",
        "dlq_partition",
        "dlq_offset",
        "original_topic",
        "original_partition",
        "original_offset",
        "consumer_group",
        "routed_at",
        OWNER,
    ]
    samples: list[dict[str, Any]] = []
    for record in (row["top_records"] or [])[:MOST_SAMPLES]:
        topic = row["original_topic"]
        equal = {
            "cluster": warehouse.cluster,
            "original_partition": record["original_partition"],
            "original_offset": record["original_offset"],
        } | ({} if topic is None else {"original_topic": topic})
        letters = [
            letter
            for letter in jvmless.rows(warehouse, RECORDS, equal, columns)
            if (letter["original_topic"], key_of(letter)) == (topic, key_of(row))
            and (letter["routed_at"] is None or letter["routed_at"] <= incidents.now or incidents.knows_all)
        ]
        letters.sort(key=lambda letter: (letter["routed_at"] is None, letter["routed_at"], letter["dlq_offset"]))
        samples += letters[:1]
    return samples


def evidence(incidents: Incidents, incident: Incident) -> list[str]:
    """Return the figures behind an incident's verdict and severity as known now, each a sentence."""
    incident = replace(incident, row=incident.known or incident.row)
    row = incident.row
    parts = [f"{counted(row['record_count'], 'record')} of {sources_of(row)}"]
    if row["partitions"]:
        parts.append(counted(len(row["partitions"]), "partition"))
    if row["keyed_count"]:
        parts.append(keys_of(row))
    usual = incidents.usual_rate(incident)
    against = f"; usually {amount(usual)} at this hour of the week" if usual is not None else ""
    often = f"; {amount(incident.rate)} an hour{against}" if incident.rate is not None else ""
    lines = [f"{', '.join(parts)}{often}."]
    if died := died_around(row, row):
        known, offsets = row["window_record_count"], row["window_offset_count"]
        filled = f"; {known:,} of the {counted(offsets, 'offset')} hold records" if known and offsets else ""
        whole = of_all(row)
        lines.append(f"{died}{filled}{f'; {whole}' if whole else ''}.")
    if (share := row["partition_share"]) is not None:
        lines.append(f"{percent(share)} of the source records are of partition {row['partition']}.")
    if (share := row["key_share"]) is not None and (many := key_percent(row, share)):
        keys = few_keys(row)
        one_of = "" if keys == "one key" else "one of "
        lines.append(f"{many.capitalize()} of the records have {one_of}{keys}.")
    if (share := row["attribute_share"]) is not None:
        is_least = row["attribute_kind"] == "client"  # acknowledgements tell it
        many = f"{at_least(share).capitalize()} of the source records" if is_least else percent(share)
        lines.append(f"{many} {visible(shared(row['attribute_kind'], row['attribute_name']))}.")
    lines += [row["would_change"], f"Severity {row['severity']}: {visible('; '.join(row['severity_reasons']))}."]
    if payload := row["without_payload_count"]:
        lines.append(f"{counted(payload, 'record')} {'has' if payload == 1 else 'have'} no payload.")
    return lines


def _story(
    incidents: Incidents,
    incident: Incident,
    suspects: Sequence[Mapping[str, Any]],
    blast: Blast | None,
    replay: Sequence[str],
) -> list[str]:
    row, state, now = incident.row, incident.state, incidents.now
    known_now = ", as known now" if incident.known else ""
    lasted = f", for {lasting(row['last_at'] - row['first_at'])}" if not incident.untimed else ""
    lines = [
        f"{row['incident_id']}  {row['severity']}  {state.name}  {row['verdict']}{known_now}",
        f"  {'As known now: ' if incident.known else ''}{visible(row['sentence'])}",
        f"  S{incident.began()[1:]} ({ago(row['first_at'], now)}), {incident.ended(moment(row['last_at']))} "
        f"({ago(row['last_at'], now)}){lasted}.",
        *(f"  {line}  records by time" for line in [sparkline(row["timeline"])] if line),
    ]
    lines += [f"  {line}" for line in about_the_state(incident, incidents)]
    lines += ["", f"Evidence{known_now}", *(f"  {line}" for line in evidence(incidents, incident))]
    lines += ["", "Error", f"  {visible(row['error_pattern'] or row['disposition'] or 'unknown')}"]
    for label, name in (("class", "exception_class"), ("cause", "exception_cause_class"), ("frame", "error_frame")):
        if row[name]:
            lines.append(f"  {label} {visible(row[name])}")
    lines.append(f"  fingerprint {row['fingerprint']} {fingerprint_of(row)}")
    lines += ["", f"Where{known_now}"]
    if not row["top_records"]:
        lines.append("  No header names a source record.")
    least = "" if are_all_counted(row) else "at least "
    for record in (row["top_records"] or [])[:MOST_SAMPLES]:
        where = at_offset(row["original_topic"], record["original_partition"], record["original_offset"])
        lines.append(f"  {visible(where)}  {least}{counted(record['record_count'], 'time')}")
    samples = _samples(incidents, row)
    lines += ["", "Suspects", *(f"  {suspect['rank']}. {visible(suspect['sentence'])}" for suspect in suspects[:5])]
    if not any(suspect["changed_at"] for suspect in suspects):
        deployed_at = jvmless.greatest(incidents.warehouse, DEPLOYED, "changed_at", now)
        lines.append(f"  {no_change(deployed_at is not None)}")
    if blast is not None:
        lines += ["", "Blast radius", *(f"  {line}" for line in blast.as_lines())]
    if replay:
        lines += ["", "Replay", *(f"  {visible(line)}" for line in replay)]
    lines += ["", "Next"]
    for sample in samples:
        letter = f"{sample['dlq_topic']}:{sample['dlq_partition']}:{sample['dlq_offset']}"
        lines.append(f"  afterlog show {quoted(letter)}")
    for sample in samples[:1] if row["original_topic"] else ():
        source = at_offset(row["original_topic"], sample["original_partition"], sample["original_offset"])
        lines.append(f"  afterlog trace {quoted(source)}")
    for suspect in suspects[:3]:
        if suspect["kind"] in ("topology", "writer_topology"):
            equal: dict[str, str | int] = {"cluster": incidents.warehouse.cluster, "group_id": suspect["name"]}
            lines.append(f"  {diff_of(suspect, _rows(incidents.warehouse, REVISIONS, equal))}")
    if row["record_count"]:
        lines.append(f"  afterlog replay plan --incident {row['incident_id']} --dry-run")
    lines.append(f"  afterlog incident {row['incident_id']} --mute-until TIME | --resolve | --note TEXT")
    if address := incidents.warehouse.settings.report.address_of(ids.page(row["incident_id"])):
        lines += ["", f"Page  {address}"]
    return lines


def fingerprint_of(row: Mapping[str, Any]) -> str:
    """Return what an incident's fingerprint is made of."""
    return (
        f"(version {row['algorithm_version']}) of cluster, owner, source topic, disposition "
        f"{visible(row['disposition'] or 'unknown')}, class, message and frame"
    )


def no_change(knows_deployments: bool) -> str:
    """Return what is said of an incident of which no suspect is a change."""
    deployments = "deployments" if knows_deployments else "deployments that land in changes/, where none has landed"
    return f"Nothing known changed. Afterlog sees topologies, producers' settings, brokers' starts and {deployments}."


def about_the_state(incident: Incident, incidents: Incidents) -> list[str]:
    """Return what is to be said of an incident's state, each a sentence."""
    row, state = incident.row, incident.state
    pause = lasting(timedelta(seconds=row["pause_seconds"]))
    lines = [*([f"It is of {in_words(incident.teams)}."] if incident.teams else []), *incident.escalated]
    if incident.untimed:
        lines.append("Records without a time count at the moment when they were read; its suspects are of that time.")
    if incident.known:
        until_now = f"{counted(row['record_count'], 'record')} until {moment(incidents.now)}"
        known_until = (
            until_now
            if incident.is_told_until_now
            else f"No table tells how many records until {moment(incidents.now)}"
        )
        last = moment(incident.known["last_at"])
        lines.append(f"{known_until}; as known now {incident.known['record_count']:,}, the last at {last}.")
    elif row["last_at"] > incidents.now:
        ahead = lasting(row["last_at"] - incidents.now)
        lines.append(f"Its last record is stamped {ahead} ahead: check the clock of {named(*key_of(row))}.")
    if state.is_open:
        lines.append(f"It ends after {pause} without a record{', as known now' if incident.known else ''}.")
    if incidents.is_first(row):
        lines.append(f"It is the first incident of {named(*key_of(row))}; its source topic had others before.")
    lines += incident.came_back
    if state.resolved_by:
        lines.append(f"{visible(state.resolved_by)} resolved it.")
    elif state.is_quiet and state.is_open:
        until = f"was read until {moment(state.read_until)}" if state.read_until else "was not read since"
        lines.append(f"No record came for longer than {pause}, but its DLQ topic {until}: that does not prove an end.")
    if state.muted_until:
        lines.append(f"Muted until {moment(state.muted_until)}.")
    lines += [
        f"{moment(action.acted_at)} {visible(action.acted_by)}: {visible(action.note)}"
        for action in incident.actions
        if action.note
    ]
    merged = sorted(name for name, into in incidents.merged.items() if into == row["incident_id"])
    if merged:
        are = "is" if len(merged) == 1 else "are"
        lines.append(f"Records that came later showed that {', '.join(merged)} {are} the same incident.")
    return lines


def _blast(warehouse: Warehouse, row: Mapping[str, Any], now: datetime) -> Blast | None:
    """Return what an incident's source topic reaches by what is known until now: the revisions at its first record.

    None: no topology has landed.
    """
    if not warehouse.exists(NODES) or not warehouse.exists(REVISIONS):
        return None
    equal: dict[str, str | int] = {"cluster": warehouse.cluster}
    columns = ["group_id", "revision", "accepted_at", "topology_hash"]
    revisions = [
        row
        for row in jvmless.rows(warehouse, REVISIONS, equal, columns)
        if row["accepted_at"] is not None and row["accepted_at"] <= now
    ]
    groups = jvmless.rows(warehouse, CURRENT, equal, ["group_id", "deleted_at"]) if warehouse.exists(CURRENT) else []
    valid = Revisions(revisions, groups).at(row["first_at"], row["consumer_group"])
    columns = ["group_id", "topology_hash", "part", "part_place", "subtopology_id", "node", "node_type"]
    columns += ["source_topics", "sink_topic", "stores", "successors"]
    nodes = jvmless.rows(warehouse, NODES, equal, columns)
    return Graph(nodes, valid).blast(row["original_topic"], row["consumer_group"]) if nodes else None


def diff_of(suspect: Mapping[str, Any], revisions: Iterable[Mapping[str, Any]]) -> str:
    """Return the command that tells what changed in a suspected topology, given the group's revisions."""
    accepted = sorted(
        row["revision"]
        for row in revisions
        if row["accepted_at"] is not None and row["accepted_at"] <= suspect["changed_at"]
    )
    diff = f" --diff {accepted[-2]} {accepted[-1]}" if len(accepted) > 1 else ""
    return f"afterlog describe {quoted(suspect['name'])}{diff}"


def quoted(text: str) -> str:
    """Return text as a word of a shell, safe for a terminal."""
    import shlex

    return shlex.quote(visible(text))
