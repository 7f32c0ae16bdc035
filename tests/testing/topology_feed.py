"""The feed ``topology``: what lands, runs of it, and lines of many scenarios, each of groups of its own."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterable
from functools import cache, partial
from typing import Any

from pyspark.sql import SparkSession

from pipelines.settings import ROOT, Settings
from pipelines.warehouse.quality import StageRun
from tests.testing import builders
from tests.testing.builders import land, rows
from tests.testing.requests import (
    delete,
    describe,
    described,
    description,
    exchange,
    heartbeat,
    node,
    passing,
    push,
    steady,
)

DATA = ROOT / "tests" / "data"
FEED = "streams-requests"
APIS = (
    "STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE",
    "STREAMS_GROUP_HEARTBEAT",
    "STREAMS_GROUP_DESCRIBE",
    "DELETE_GROUPS",
)
Ran = tuple[Settings, dict[str, StageRun]]


def landed(settings: Settings, **files: Iterable[str]) -> None:
    land(settings, {f"{name}.log": lines for name, lines in files.items()}, FEED)


run = partial(builders.run, feed="topology")
"""Run the feed's stages, or those of some tables, once."""


def current(spark: SparkSession, settings: Settings) -> dict[str, dict[str, Any]]:
    return {row["group_id"]: row for row in rows(spark, settings, "gold.topology_current")}


def revisions(spark: SparkSession, settings: Settings, group: str = "app") -> list[tuple[int, str, str]]:
    found = rows(spark, settings, "gold.topology_revisions")
    return [
        (row["revision"], row["member_id"], f"{row['accepted_at']:%M:%S}")
        for row in sorted(found, key=lambda row: row["revision"])
        if row["group_id"] == group
    ]


@cache
def exchanges() -> list[dict[str, Any]]:
    """Return the captured exchanges as the client and the broker had them."""
    with gzip.open(DATA / "topology" / "exchanges.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


HISTORICAL = (
    "bronze.streams_requests",
    "silver.topology_pushes",
    "silver.topology_statuses",
    "silver.group_heartbeats",
    "gold.topology_revisions",
    "gold.topology_current",
)
CUT = "the line is not a completed request with its JSON: cut off, or logged at TRACE"
TWICE = [
    push(500, "twice"),
    heartbeat(501, "twice", required=True),
    describe(502, described("twice"), described("too")),
]
EQUAL = push(503, "equal")[:400]
UNREADABLE = [
    push(504, "cut")[:600],
    push(505, "cut in mid-object").replace('"connection"', '}} "connection"', 1),
    "[2026-11-21 02:00:04,000] TRACE Processor 1 received request: RequestHeader(apiKey=DELETE_GROUPS, apiVersion=3)"
    " -- {groupsNames=[x]}",
    push(506, "without a time").partition("] ")[2],
]
FOREIGN = [
    exchange("METADATA", 507, {"topics": [{"name": "DELETE_GROUPS"}]}, {}),
    "[2026-11-21 02:00:03,000] INFO Something else",
    *(exchange("SHARE_GROUP_COMMIT_TRANSACTION", second, {}, {}) for second in (508, 509)),  # an API of a newer broker
]
ODD = [
    push(510, "unknown code", error=999),
    push(511, "refused", error=69, member=""),
    describe(512, described("unknown status", status=7)),
    describe(513, described("no status", status=None), requested=False),
    push(514, ""),
    push(515, "nobody's", member=""),
    push(516, "negative", epoch=-1),
    push(517, "nameless node", topology=description([{**node("a"), "name": None}])),
    describe(518, described("no list", topologyDescription={})),
    '[0001-01-01 00:00:00,000] DEBUG Completed request:{"a":"DELETE_GROUPS"} (kafka.request.logger)',
    push(0, "zone stated").replace(",000]", ",000+02:00]"),
]
DEFECTIVE = {
    "empty_description": description(),
    "dangling_successor": description([node("a", 1, ["nowhere"], sourceTopics=["t"])]),
    "duplicate_node_name": description([node("a"), node("a")]),
    "unknown_node_type": description([node("a", 9)]),
    "sink_with_successors": description([node("a", 3, ["b"], sinkTopic="t"), node("b")]),
    "source_with_predecessors": description([node("a", 2, ["b"]), node("b", 1, sourceTopics=["t"])]),
    "stores_outside_processor": description([node("a", 3, sinkTopic="t", stores=["s"])]),
    "duplicate_subtopology_id": {
        "subtopologies": [{"subtopologyId": "0", "nodes": [node(name)]} for name in "ab"],
        "globalStores": [],
    },
}
FIRST, SECOND = passing("in", "out"), passing("in", "elsewhere")


def shuffled(wire: dict[str, Any]) -> dict[str, Any]:
    return {
        "subtopologies": [{**part, "nodes": part["nodes"][::-1]} for part in wire["subtopologies"][::-1]],
        "globalStores": wire["globalStores"][::-1],
    }


def chain(length: int, closed: bool) -> dict[str, Any]:
    names = [f"node-{place:05}" for place in range(length)]
    following = [*names[1:], *(names[:1] if closed else [])]
    nodes = [node(name, 2, [after]) for name, after in zip(names, following, strict=False)]
    return description(nodes if closed else [*nodes, node(names[-1])])


REVISED = [
    push(601, "revised", "a", topology=FIRST),
    push(602, "revised", "b", topology=shuffled(FIRST)),
    push(603, "revised", "c", topology=SECOND),
    push(604, "revised", "d", topology=FIRST),
    delete(605, "revised"),
    push(606, "revised", "e", topology=FIRST, epoch=3),
    push(607, "revised", "f", topology=SECOND, epoch=3, error=42),
    push(608, "revised", "g", topology=SECOND, epoch=3),
]
ASKED = [
    *(heartbeat(second, "asked", required=True, member_epoch=1) for second in (0, 30, 80, 100)),
    push(101, "asked"),
    heartbeat(200, "asked", required=True, member_epoch=1),
    heartbeat(205, "asked", member_epoch=2, topology_epoch=None),
]
SEEN = [
    describe(650, described("seen", topologyDescription=FIRST)),
    describe(651, described("seen", topologyDescription=FIRST, epoch=2)),
    push(652, "seen", "b", topology=SECOND, epoch=2),
    describe(653, described("seen", topologyDescription=FIRST, epoch=1)),
    delete(654, "seen"),
    describe(655, described("seen", topologyDescription=description(), epoch=0)),
]
STEADY = [
    *(steady(second, "steady") for second in (860, 800, 920, 981)),
    steady(890, "steady", statuses=[0]),
    steady(805, "steady", "m2"),
]
HELD_AGAINST = [
    push(1000, "held against", throttle=700),
    heartbeat(1001, "held against", required=True, member_epoch=2, topology_epoch=None),
    describe(1002, described("held against", status=1)),
    heartbeat(1040, "held against", required=True, member_epoch=2, topology_epoch=None),
    heartbeat(1041, "held against", "m2", topology_epoch=3, required=True, statuses=[]),
    heartbeat(1042, "held against", "m3", topology_epoch=1, required=True, statuses=[0]),
    describe(1043, described("held against", status=0)),
    delete(1044, "deleted by an old client", error=-1, version=2),
    delete(1045, "deleted by a new client", error=-1, version=3),
]


def failing(group: str, *after: str, every: int = 60, until: int = 0) -> list[str]:
    """A plugin that fails a push, and heartbeats every ``every`` seconds."""
    return [
        push(2000, group, error=135),
        *(steady(2000 + seconds, group) for seconds in range(0, until + 1, every)),
        *after,
    ]


FAILING = [
    *failing("permanent", until=4320),
    *failing("too soon to tell", until=4260),
    *failing("with a gap", until=8000, every=61),
    *failing("transient", heartbeat(2060, "transient", required=True, member_epoch=2), until=4320),
    *failing(
        "deleted and asked", delete(2050, "deleted and asked"), heartbeat(2060, "deleted and asked", required=True)
    ),
    *failing(
        "asked under another epoch",
        heartbeat(2060, "asked under another epoch", topology_epoch=1, required=True, statuses=[]),
    ),
    *failing("accepted later", push(4000, "accepted later"), until=4320),
]


HISTORIES: dict[str, tuple[str, list[str]]] = {
    "pushed and described": ("OK", [heartbeat(1, required=True), push(2), describe(3, described())]),
    "only described": ("OK", [describe(1, described())]),
    "asked, never pushed": ("NOT_PUSHED", [heartbeat(1, required=True), heartbeat(40, required=True, member_epoch=2)]),
    "never asked": ("NOT_PUSHED", [heartbeat(1), describe(2, described(status=1))]),
    "last push refused": ("REJECTED", [push(1), push(2, error=135, message="too large", epoch=0)]),
    "pushed again after a refusal": ("OK", [push(1, error=135), push(2)]),
    "stored, then not": ("LOST", [push(1), describe(2, described(status=3)), describe(3, described(status=1))]),
    "lost, then pushed again": ("OK", [push(1), describe(2, described(status=1)), push(3)]),
    "not stored before the push": ("OK", [describe(1, described(status=1)), push(2)]),
    "plugin cannot read": ("PLUGIN_ERROR", [push(1), describe(2, described(status=2))]),
    "plugin reads again": ("OK", [push(1), describe(2, described(status=2)), describe(3, described())]),
    "behind the group": ("STALE", [push(1), heartbeat(2, member="m2", topology_epoch=4)]),
    "deleted": ("DELETED", [push(1), delete(2)]),
    "deletion refused": ("OK", [push(1), delete(2, error=134)]),
    "deleted and back": ("OK", [push(1), delete(2), heartbeat(3, required=True), push(4)]),
    "deleted and back, asked": ("NOT_PUSHED", [push(1), delete(2), heartbeat(3, required=True)]),
    "gone without a deletion": ("DELETED", [push(1), describe(2, described(status=0, error=69))]),
    "deleted outranks a conflict": (
        "DELETED",
        [push(1, topology=FIRST), push(2, member="m2", topology=SECOND), delete(3)],
    ),
    "two members differ": ("CONFLICT", [push(1, topology=FIRST), push(2, member="m2", topology=SECOND)]),
    "conflict outranks a refusal": (
        "CONFLICT",
        [push(1, topology=FIRST), push(2, member="m2", topology=SECOND), push(3, error=42)],
    ),
    "one of two has left": (
        "OK",
        [
            push(1, topology=FIRST),
            push(2, member="m2", topology=SECOND),
            heartbeat(3, member_epoch=-1, topology_epoch=None),
        ],
    ),
    "one of two leaves for a while": (
        "OK",
        [
            push(1, topology=FIRST),
            push(2, member="m2", topology=SECOND),
            heartbeat(3, member_epoch=-2, topology_epoch=None),
        ],
    ),
    "one of two left and is back": (
        "CONFLICT",
        [
            push(1, topology=FIRST),
            push(2, member="m2", topology=SECOND),
            heartbeat(3, member_epoch=-2, topology_epoch=None),
            heartbeat(4),
        ],
    ),
    "a rollback": ("OK", [push(1, topology=FIRST), push(2, topology=SECOND), push(3, topology=FIRST)]),
    "members agree in another order": (
        "OK",
        [push(1, topology=FIRST), push(2, member="m2", topology=shuffled(FIRST))],
    ),
    "differs under an older epoch": (
        "OK",
        [push(1, topology=FIRST), push(2, member="m2", topology=SECOND, epoch=1)],
    ),
    "plugin cannot read, then pushed": ("OK", [describe(1, described(status=2)), push(2)]),
    "shown, then not stored": ("LOST", [describe(1, described()), describe(2, described(status=1))]),
    "shown, then not stored, unasked": (
        "LOST",
        [describe(1, described()), describe(2, described(status=1), requested=False)],
    ),
    "shown, then not stored, then shown": (
        "OK",
        [describe(1, described()), describe(2, described(status=1)), describe(3, described())],
    ),
    "not stored under a new epoch": ("STALE", [push(1), describe(2, described(status=1, epoch=4))]),
    "a coordinator that loads, moves, is away": (
        "OK",
        [push(1), push(2, error=14), push(3, error=16), push(4, error=15)],
    ),
    "never stored, the coordinator loads": ("REJECTED", [push(1, error=14)]),
    "refused, then the coordinator moves": ("REJECTED", [push(1), push(2, error=135), push(3, error=16)]),
    "refused, then shown": ("OK", [push(1), push(2, error=135), describe(3, described())]),
    "one of two is silent": (
        "OK",
        [push(1, topology=FIRST), push(2, member="m2", topology=SECOND), steady(61, member="m2")],
    ),
    "neither of two is silent": (
        "CONFLICT",
        [push(1, topology=FIRST), push(2, member="m2", topology=SECOND), steady(30), steady(89, member="m2")],
    ),
    "another epoch, after a group that was not seen to go": (
        "OK",
        [push(1, epoch=5, topology=FIRST), push(2, epoch=0, topology=SECOND)],
    ),
    "a member of an older epoch joins": (
        "OK",
        [push(1, epoch=5), heartbeat(2, member="m2", topology_epoch=3, statuses=[0])],
    ),
    "members join a group that was not seen to go": (
        "STALE",
        [push(1, epoch=5), heartbeat(2, topology_epoch=0, statuses=[5])],
    ),
    "gone before a deletion": ("DELETED", [push(1), delete(2, error=69)]),
    "leaves as the group is deleted": (
        "DELETED",
        [push(1), delete(2), heartbeat(2.001, member_epoch=-1, topology_epoch=None)],
    ),
    "stored, but not shown": ("NOT_PUSHED", [describe(1, described(topologyDescription=None))]),
    "stored, but shown without names": (
        "NOT_PUSHED",
        [describe(1, described(topologyDescription=description([{**node("a"), "name": None}])))],
    ),
}


def failing_rows(ran: Ran, table: str, code: str) -> int:
    """Return how many rows of a run's table fail an expectation."""
    verdict = ran[1][table].verdict
    assert verdict is not None
    return {outcome.code: outcome.failing for outcome in verdict.outcomes}[code]


def of_captures(spark: SparkSession, settings: Settings) -> Settings:
    """Land the captured request logs in an empty warehouse and run the feed."""
    shutil.copytree(DATA / "streams-requests", settings.landing_of(FEED))
    done = run(spark, settings)
    # Without incidents the blast radius has no news.
    assert {table: ran.status for table, ran in done.items() if ran.status != "passed"} == {"gold.blast_radius": "idle"}
    return settings


def of_scenarios(spark: SparkSession, settings: Settings) -> Ran:
    """Land all scenarios in an empty warehouse and run the feed once."""
    defective = [push(520 + number, defect, topology=wire) for number, (defect, wire) in enumerate(DEFECTIVE.items())]
    histories = [line.replace('"app"', json.dumps(name)) for name, (_, lines) in HISTORIES.items() for line in lines]
    large = [push(700, "chain", topology=chain(10_000, False)), push(701, "ring", topology=chain(2_000, True))]
    landed(settings, a=[*TWICE, *UNREADABLE, *FOREIGN, *ODD, *defective], b=[*TWICE, EQUAL, EQUAL])
    landed(settings, c=[*REVISED, *ASKED, *large, *histories], d=[*SEEN, *STEADY, *HELD_AGAINST, *FAILING])
    return settings, run(spark, settings)
