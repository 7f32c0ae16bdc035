"""The feed ``topology`` on real Delta tables: request log to pushes, revisions, health, changes, edges."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.catalog import stages
from pipelines.columns import descriptions
from pipelines.commands import describe as describe_command
from pipelines.run import runner
from pipelines.settings import ROOT, Settings
from pipelines.stores import lock
from pipelines.topology.diff import diff
from pipelines.topology.model import Topology
from pipelines.warehouse import jvmless
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse
from tests.testing import engines
from tests.testing.builders import land, rows, warehouse_of
from tests.testing.requests import (
    at,
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
from tests.testing.topologies import tiny_topologies

DATA = ROOT / "tests" / "data"
FEED = "streams-requests"
APIS = (
    "STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE",
    "STREAMS_GROUP_HEARTBEAT",
    "STREAMS_GROUP_DESCRIBE",
    "DELETE_GROUPS",
)


def landed(settings: Settings, **files: Iterable[str]) -> None:
    land(settings, {f"{name}.log": lines for name, lines in files.items()}, FEED)


def run(spark: SparkSession, settings: Settings, *tables: str) -> dict[str, StageRun]:
    """Run the feed's stages, or those of some tables, once."""
    wanted = [stage for stage in stages("topology") if not tables or stage.table in tables]
    with lock.writer(settings, "test"):
        return {one.table: one for one in runner.run(Warehouse(settings, spark), wanted)}


def current(spark: SparkSession, settings: Settings) -> dict[str, dict[str, Any]]:
    return {row["group_id"]: row for row in rows(spark, settings, "gold.topology_current")}


def revisions(spark: SparkSession, settings: Settings, group: str = "app") -> list[tuple[int, str, str]]:
    found = rows(spark, settings, "gold.topology_revisions")
    return [
        (row["revision"], row["member_id"], f"{row['accepted_at']:%M:%S}")
        for row in sorted(found, key=lambda row: row["revision"])
        if row["group_id"] == group
    ]


# --- the captures --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def captured(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    settings = warehouse_of(empty_warehouse, tmp_path_factory.mktemp("captured"))
    shutil.copytree(DATA / "streams-requests", settings.landing_of(FEED))
    done = run(spark, settings)
    # Without incidents the blast radius has no news.
    assert {table: one.status for table, one in done.items() if one.status != "passed"} == {"gold.blast_radius": "idle"}
    return settings


@pytest.fixture(scope="module")
def truth() -> list[dict[str, Any]]:
    with gzip.open(DATA / "topology" / "exchanges.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_pushes_are_those_that_the_client_sent(
    spark: SparkSession, captured: Settings, truth: list[dict[str, Any]]
) -> None:
    sent = [
        (
            one["correlationId"],
            one["clientId"],
            one["request"]["groupId"],
            one["request"]["memberId"],
            one["request"]["topologyEpoch"],
            one["response"]["errorCode"],
            one["error"],
            one["response"]["errorMessage"],
            one["request"]["topologyDescription"],
        )
        for one in truth
        if one["apiName"] == APIS[0]
    ]
    found = [
        (
            *(row[name] for name in ("correlation_id", "client_id", "group_id", "member_id", "topology_epoch")),
            *(row[name] for name in ("error_code", "error_name", "error_message")),
            json.loads(row["description"]),
        )
        for row in rows(spark, captured, "silver.topology_pushes")
    ]
    assert len(sent) == 51
    assert sorted(found, key=repr) == sorted(sent, key=repr)


def test_statuses_are_those_that_the_broker_answered(
    spark: SparkSession, captured: Settings, truth: list[dict[str, Any]]
) -> None:
    answered = [
        (
            one["correlationId"],
            group["groupId"],
            group["errorCode"],
            group["groupState"] or None,
            None if group["topology"] is None else group["topology"]["epoch"],
            group.get("topologyDescriptionStatus", 0),
            group.get("topologyDescription"),
        )
        for one in truth
        if one["apiName"] == "STREAMS_GROUP_DESCRIBE"
        for group in one["response"]["groups"]
    ]
    found = [
        (
            *(row[name] for name in ("correlation_id", "group_id", "error_code", "group_state")),
            *(row[name] for name in ("topology_epoch", "status")),
            None if row["description"] is None else json.loads(row["description"]),
        )
        for row in rows(spark, captured, "silver.topology_statuses")
    ]
    assert sorted(found, key=repr) == sorted(answered, key=repr)


def test_solicitations_and_deletions_are_those_of_the_broker(
    spark: SparkSession, captured: Settings, truth: list[dict[str, Any]]
) -> None:
    asked = [
        (one["correlationId"], one["request"]["groupId"], one["request"]["memberId"])
        for one in truth
        if one["apiName"] == APIS[1] and one["response"].get("topologyDescriptionRequired")
    ]
    found = rows(spark, captured, "silver.topology_solicitations")
    assert sorted((row["correlation_id"], row["group_id"], row["member_id"]) for row in found) == sorted(asked)
    assert [(row["group_id"], row["error_code"]) for row in rows(spark, captured, "silver.group_deletions")] == [
        ("passthrough-app", 0)
    ]


def test_every_captured_group_has_the_health_that_its_requests_tell(spark: SparkSession, captured: Settings) -> None:
    health = {group: (row["health"], row["status_name"]) for group, row in current(spark, captured).items()}
    apart = {
        "getfails-app": ("PLUGIN_ERROR", "ERROR"),
        "getthrows-app": ("PLUGIN_ERROR", "ERROR"),
        "hops-app": ("LOST", "NOT_STORED"),
        "orders-app": ("LOST", "NOT_STORED"),
        "passthrough-app": ("DELETED", "NOT_STORED"),
        **dict.fromkeys(
            (
                *("no-such-group", "orders-workers", "router-app"),
                *("permanent-app", "throws-app", "transient-app"),
            ),
            ("REJECTED", "NOT_STORED"),
        ),
    }
    assert {group: found for group, found in health.items() if found != ("OK", "AVAILABLE")} == apart
    assert len(health) == 24


def test_each_revision_is_a_change_of_the_accepted_description(spark: SparkSession, captured: Settings) -> None:
    found = [row for row in rows(spark, captured, "gold.topology_revisions") if row["group_id"] == "orders-app"]
    found.sort(key=lambda row: row["revision"])
    topologies = [Topology.parsed(row["description"]) for row in found]
    assert [(row["revision"], row["push_count"], row["node_count"]) for row in found] == [
        (1, 2, 21),
        (2, 1, len(list(topologies[1].nodes))),
        (3, 1, 0),
        (4, 1, len(list(topologies[3].nodes))),
        (5, 0, 3),
        (6, 1, 21),
    ]
    assert found[0]["topology_hash"] == found[5]["topology_hash"]
    # brokers keep less of a malformed description, so a describe shows something else than was pushed
    assert [row["source"] for row in found] == ["pushed"] * 4 + ["observed", "pushed"]
    assert found[3]["topology_hash"] != found[4]["topology_hash"]
    assert found[2]["defects"] == ["empty_description"]
    assert set(found[3]["defects"]) >= {"dangling_successor", "duplicate_node_name", "stores_outside_processor"}


def test_changes_are_what_the_diff_of_the_descriptions_says(spark: SparkSession, captured: Settings) -> None:
    described_ = {
        (row["group_id"], row["revision"]): Topology.parsed(row["description"])
        for row in rows(spark, captured, "gold.topology_revisions")
    }
    changes = rows(spark, captured, "gold.topology_changes")
    assert sorted((row["group_id"], row["revision"]) for row in changes) == sorted(
        (group, revision) for group, revision in described_ if revision > 1
    )
    for row in changes:
        group, revision = row["group_id"], row["revision"]
        told = diff(described_[group, revision - 1], described_[group, revision]).as_json()
        for kind in ("stores", "topics"):
            for way in ("added", "removed"):
                assert row[f"{kind}_{way}"] == sorted(told[kind][way]), (revision, kind, way)


def test_predecessors_in_spark_are_those_in_python(spark: SparkSession, captured: Settings) -> None:
    topologies = {
        (row["group_id"], row["topology_hash"]): Topology.parsed(row["description"])
        for row in rows(spark, captured, "gold.topology_revisions")
    }
    found: dict[Any, dict[str, list[str]]] = {}
    for row in rows(spark, captured, "silver.topology_nodes"):
        key = (row["group_id"], row["topology_hash"], row["part"], row["part_place"])
        found.setdefault(key, {})[row["node"]] = row["predecessors"]
    for (group, hash_), topology in topologies.items():
        for place, subtopology in enumerate(topology.subtopologies):
            inverted: dict[str, set[str]] = {}
            for one in subtopology.nodes:
                for successor in one.successors:
                    inverted.setdefault(successor, set()).add(one.name)
            wanted = {one.name: sorted(inverted.get(one.name, ())) for one in subtopology.nodes}
            assert found.get((group, hash_, "subtopology", place), {}) == wanted


def test_describe_answers_what_spark_sql_would(
    spark: SparkSession, captured: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = sorted(current(spark, captured))
    asked = [
        (group, form, revision)
        for group in groups
        for form, revision in (("text", None), ("json", None), ("text", 1), ("mermaid", 1))
    ]

    now = datetime.now(UTC).isoformat()

    def answers() -> list[describe_command.Answer]:
        return [
            *(
                describe_command.answer(Warehouse(captured), group, form=form, revision=revision)
                for group, form, revision in asked
            ),
            *(describe_command.answer(Warehouse(captured), group, at=now) for group in groups),
        ]

    without_a_jvm = answers()
    by_spark: dict[str, list[dict[str, Any]]] = {}

    def through_spark(
        warehouse: Warehouse, table: str, equal: dict[str, Any], columns: list[str] | None = None
    ) -> list[dict[str, Any]]:
        if table not in by_spark:
            by_spark[table] = jvmless.rows_by_spark(Warehouse(warehouse.settings, spark), table, {})
        found = [row for row in by_spark[table] if all(row[name] == value for name, value in equal.items())]
        return [{name: row[name] for name in columns or row} for row in found]

    monkeypatch.setattr(describe_command, "rows", through_spark)

    assert answers() == without_a_jvm
    assert by_spark.keys() == {
        *("gold.topology_current", "gold.topology_revisions"),
        *("silver.topology_pushes", "silver.topology_statuses", "silver.group_deletions"),
    }
    assert {one.exit_code for one in without_a_jvm} == {0, 1}


@given(st.lists(tiny_topologies, min_size=30, max_size=60))
@hypothesis_settings(max_examples=3, deadline=None)
def test_hashes_are_equal_exactly_where_topologies_are(spark: SparkSession, drawn: list[Topology]) -> None:
    wires = [json.dumps(one.wire()) for one in drawn]
    wires += [json.dumps(one.canonical().wire()) for one in drawn]
    texts = spark.range(1).select(F.explode(F.from_json(F.lit(json.dumps(wires)), "array<string>")).alias("wire"))
    hashed = texts.select(F.from_json("wire", descriptions.SCHEMA).alias("topology")).select(
        descriptions.topology_hash(F.col("topology"))
    )
    hashes = [row[0] for row in hashed.collect()]

    canonical = [one.canonical() for one in drawn] * 2
    assert len(hashes) == len(canonical)
    by_hash, by_form = defaultdict(set), defaultdict(set)
    for place, (found, form) in enumerate(zip(hashes, canonical, strict=True)):
        by_hash[found].add(place)
        by_form[form].add(place)
    assert sorted(map(sorted, by_hash.values())) == sorted(map(sorted, by_form.values()))


def test_applications_meet_at_topics(spark: SparkSession, captured: Settings) -> None:
    edges = [row for row in rows(spark, captured, "gold.topology_edges") if row["kind"] == "topic"]
    written = {(row["group_id"], row["topic"]) for row in edges if row["direction"] == "written"}
    read = {(row["group_id"], row["topic"]) for row in edges if row["direction"] == "read"}
    assert ("orders-app", "valid-orders") in written
    assert ("orders-app", "orders") in read
    assert {row["topic_role"] for row in edges if row["topic"] == "orders-app-by-currency-repartition"} == {
        "repartition"
    }


def test_pushed_topologies_have_roles_and_the_text_of_kafkas_tool(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    printed = sorted((DATA / "topology" / "printed").glob("*.json"))
    settings = warehouse_of(empty_warehouse, tmp_path)
    pushes = [
        push(number, file.stem, topology=json.loads(file.read_text(encoding="utf-8")))
        for number, file in enumerate(printed)
    ]
    landed(settings, requests=pushes)

    run(spark, settings)

    answers = {file.stem: describe_command.answer(Warehouse(settings), file.stem) for file in printed}
    expected = {file.stem: file.with_suffix(".txt").read_text(encoding="utf-8") for file in printed}
    assert {name: one.result for name, one in answers.items()} == expected
    edges = rows(spark, settings, "gold.topology_edges")
    roles = {(row["group_id"], row["topic"]): row["topic_role"] for row in edges if row["kind"] == "topic"}
    external = (("external-suffix-app", "crm.customers-changelog"), ("audit-reader", "audit-repartition"))
    assert {roles[place] for place in external} == {"external"}
    assert {group for (group, _), role in roles.items() if role == "internal"} == {"fk-join-app"}


# --- landing, silver, gold: many scenarios, each with groups of its own, in one run ---------------------------------

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
    return [push(2000, group, error=135), *(steady(2000 + at_, group) for at_ in range(0, until + 1, every)), *after]


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
LARGE = [push(700, "chain", topology=chain(10_000, False)), push(701, "ring", topology=chain(2_000, True))]


@pytest.fixture(scope="module")
def mixed(
    spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Settings, dict[str, StageRun]]:
    settings = warehouse_of(empty_warehouse, tmp_path_factory.mktemp("mixed"))
    defective = [push(520 + at_, defect, topology=wire) for at_, (defect, wire) in enumerate(DEFECTIVE.items())]
    histories = [line.replace('"app"', json.dumps(name)) for name, (_, told) in HISTORIES.items() for line in told]
    landed(settings, a=[*TWICE, *UNREADABLE, *FOREIGN, *ODD, *defective], b=[*TWICE, EQUAL, EQUAL])
    landed(settings, c=[*REVISED, *ASKED, *LARGE, *histories], d=[*SEEN, *STEADY, *HELD_AGAINST, *FAILING])
    return settings, run(spark, settings)


def test_other_lines_are_skipped_and_counted(mixed: tuple[Settings, dict[str, StageRun]]) -> None:
    bronze = mixed[1]["bronze.streams_requests"]
    assert bronze.skipped == len(FOREIGN)
    assert bronze.message == (
        "4 new or changed files; skipped SHARE_GROUP_COMMIT_TRANSACTION 2, METADATA 1, lines of no API 1"
    )
    assert bronze.read == bronze.accepted + bronze.skipped
    assert all(
        one.read == one.accepted + one.quarantined + one.duplicates + one.skipped
        for table, one in mixed[1].items()
        if table.startswith("silver") and one.verdict is not None and "solicit" not in table and "nodes" not in table
    )


def test_unreadable_lines_are_kept_with_the_api_that_they_mention(
    spark: SparkSession, mixed: tuple[Settings, dict[str, StageRun]]
) -> None:
    errors = [(row["api"], row["error"]) for row in rows(spark, mixed[0], "bronze.streams_requests") if row["error"]]
    broken = "the JSON of the request is cut off or not valid"
    assert sorted(errors) == sorted(
        [
            (APIS[0], broken),
            (APIS[0], broken),
            (APIS[0], broken if "}" in EQUAL else CUT),
            (APIS[0], broken if "}" in EQUAL else CUT),
            (APIS[0], "the line does not begin with a date and a time"),
            ("DELETE_GROUPS", CUT),
            ("DELETE_GROUPS", "the time of the line is in no year in which a broker can have logged"),
        ]
    )
    assert [row["violations"] for row in rows(spark, mixed[0], "quarantine.group_deletions")] == [
        ["error.readable"]
    ] * 2
    readable = [row["violations"] for row in rows(spark, mixed[0], "quarantine.topology_pushes") if row["error"]]
    assert readable == [["error.readable"]] * 5


def test_the_same_exchange_in_two_files_is_one(
    spark: SparkSession, mixed: tuple[Settings, dict[str, StageRun]]
) -> None:
    settings, done = mixed
    assert [row["group_id"] for row in rows(spark, settings, "silver.topology_pushes")].count("twice") == 1
    described_ = [row["group_id"] for row in rows(spark, settings, "silver.topology_statuses")]
    assert (described_.count("twice"), described_.count("too")) == (1, 1)
    assert done["silver.topology_pushes"].duplicates == 1
    assert done["silver.topology_statuses"].duplicates == 2
    assert done["silver.group_heartbeats"].duplicates == 1


def test_equal_lines_of_a_file_are_numbered_and_a_grown_file_keeps_their_ids(
    spark: SparkSession, settings: Settings
) -> None:
    table = "bronze.streams_requests"
    cut = push(1)[:400]
    landed(settings, a=[cut, cut])
    run(spark, settings, table)
    before = {row["_bronze_id"] for row in rows(spark, settings, table)}
    landed(settings, a=[cut, cut, push(2), cut])
    done = run(spark, settings, table)[table]
    after = {row["_bronze_id"] for row in rows(spark, settings, table)}
    assert len(before) == 2
    assert before < after
    assert (done.read, done.accepted, done.duplicates) == (4, 2, 2)


def test_timestamps_are_read_in_the_settings_time_zone(spark: SparkSession, settings: Settings) -> None:
    table = "bronze.streams_requests"
    zoned = settings.model_copy(
        update={"streams_requests": settings.streams_requests.model_copy(update={"timezone": "Europe/Berlin"})}
    )
    landed(zoned, a=[push(0), push(0, "stated").replace(",000]", ",000Z]")])
    run(spark, zoned, table)
    assert sorted(row["logged_at"].hour for row in rows(spark, zoned, table)) == [1, 2]


def test_a_time_zone_that_the_line_states_counts(
    spark: SparkSession, mixed: tuple[Settings, dict[str, StageRun]]
) -> None:
    times = {row["group_id"]: row["pushed_at"].hour for row in rows(spark, mixed[0], "silver.topology_pushes")}
    assert (times["zone stated"], times["twice"]) == (0, 2)


def test_an_unknown_code_is_kept_and_counted_but_not_quarantined(
    spark: SparkSession, mixed: tuple[Settings, dict[str, StageRun]]
) -> None:
    settings, done = mixed
    found = {row["group_id"]: row for row in rows(spark, settings, "silver.topology_pushes")}
    assert (found["unknown code"]["error_code"], found["unknown code"]["error_name"]) == (999, None)
    assert found["refused"]["error_name"] == "GROUP_ID_NOT_FOUND"
    verdict = done["silver.topology_pushes"].verdict
    assert verdict is not None
    assert {outcome.code: outcome.failing for outcome in verdict.outcomes}["error_code.of_the_api"] == 1
    statuses = {row["group_id"]: row["status"] for row in rows(spark, settings, "silver.topology_statuses")}
    assert (statuses["unknown status"], statuses["no status"]) == (7, 0)


def test_many_unknown_codes_break_the_gate(spark: SparkSession, settings: Settings) -> None:
    landed(settings, a=[push(second, error=999) for second in range(12)])
    run(spark, settings, "bronze.streams_requests")
    done = run(spark, settings, "silver.topology_pushes")
    pushes = done["silver.topology_pushes"]
    assert pushes.status == "broken"
    assert pushes.verdict is not None
    assert "error_code.of_the_api" in {one.code for one in pushes.verdict.failed}
    assert rows(spark, settings, "silver.topology_pushes") == []


def test_an_accepted_push_without_group_member_or_epoch_is_quarantined(
    spark: SparkSession, mixed: tuple[Settings, dict[str, StageRun]]
) -> None:
    found = rows(spark, mixed[0], "quarantine.topology_pushes")
    assert sorted(row["violations"] for row in found if row["error"] is None) == [
        ["group_id.named"],
        ["member_id.named"],
        ["topology_epoch.at_least_0"],
        ["topology_hash.not_null"],
    ]


def test_malformed_descriptions_stay_with_their_defects(
    spark: SparkSession, mixed: tuple[Settings, dict[str, StageRun]]
) -> None:
    found = {row["group_id"]: row["defects"] for row in rows(spark, mixed[0], "silver.topology_pushes")}
    assert {defect: found[defect] for defect in DEFECTIVE} == {defect: [defect] for defect in DEFECTIVE}
    assert found["twice"] == []
    health = current(spark, mixed[0])
    assert {health[defect]["health"] for defect in DEFECTIVE} == {"OK"}
    assert all(defect in health[defect]["sentence"] for defect in DEFECTIVE)


def test_the_last_of_a_run_of_steady_heartbeats_stands_for_all(
    spark: SparkSession, mixed: tuple[Settings, dict[str, StageRun]]
) -> None:
    beats = rows(spark, mixed[0], "silver.group_heartbeats")
    assert [row["steady_since"] for row in beats if row["group_id"] == "asked"].count(None) == 5
    kept = [
        (row["member_id"], row["statuses"], row["steady_since"], row["heartbeat_at"])
        for row in beats
        if row["group_id"] == "steady" and row["steady_since"] is not None
    ]
    assert sorted(kept, key=repr) == sorted(
        [
            ("m1", None, *(at(second).replace(tzinfo=None) for second in (800, 920))),
            ("m1", None, *[at(981).replace(tzinfo=None)] * 2),
            ("m1", ["STALE_TOPOLOGY"], *[at(890).replace(tzinfo=None)] * 2),
            ("m2", None, *[at(805).replace(tzinfo=None)] * 2),
        ],
        key=repr,
    )
    statuses = {row["group_id"]: row["statuses"] for row in beats}
    assert statuses["a member of an older epoch joins"] == ["STALE_TOPOLOGY"]


def test_a_revision_is_a_change_whatever_the_order_or_a_deletion(
    spark: SparkSession, mixed: tuple[Settings, dict[str, StageRun]]
) -> None:
    assert revisions(spark, mixed[0], "revised") == [
        (1, "a", "10:01"),
        (2, "c", "10:03"),
        (3, "d", "10:04"),
        (4, "g", "10:08"),
    ]
    found = rows(spark, mixed[0], "gold.topology_revisions")
    epochs = {row["revision"]: row["topology_epochs"] for row in found if row["group_id"] == "revised"}
    assert epochs == {1: [0], 2: [0], 3: [0, 3], 4: [3]}


def test_questions_are_counted_in_rows_and_held_against_the_back_off(
    spark: SparkSession, mixed: tuple[Settings, dict[str, StageRun]]
) -> None:
    found = [row for row in rows(spark, mixed[0], "silver.topology_solicitations") if row["group_id"] == "asked"]
    found.sort(key=lambda row: row["solicited_at"])
    assert [(row["attempt"], row["seconds_since_previous"], row["too_early"]) for row in found] == [
        (1, None, False),
        (2, 30.0, False),
        (3, 50.0, False),
        (4, 20.0, True),
        (1, None, False),
    ]
    assert [row["least_back_off_seconds"] for row in found] == [None, 24.0, 48.0, 96.0, None]
    assert [(row["followed"], row["seconds_to_push"]) for row in found] == [
        *[(False, None)] * 3,
        (True, 1.0),
        (False, None),
    ]
    (health,) = [row for row in rows(spark, mixed[0], "gold.push_health") if row["group_id"] == "asked"]
    assert (health["solicitation_count"], health["followed_count"], health["too_early_count"]) == (5, 1, 1)
    assert (health["push_count"], health["accepted_count"], health["median_ms"]) == (1, 1, 4.5)


def test_a_description_that_a_describe_shows_is_a_revision(
    spark: SparkSession, mixed: tuple[Settings, dict[str, StageRun]]
) -> None:
    settings = mixed[0]
    found = {
        row["revision"]: row for row in rows(spark, settings, "gold.topology_revisions") if row["group_id"] == "seen"
    }
    assert [
        (found[one]["source"], found[one]["member_id"], found[one]["topology_epochs"], found[one]["observed_count"])
        for one in sorted(found)
    ] == [
        ("observed", None, [0, 2], 2),
        ("pushed", "b", [2], 0),
        ("observed", None, [1], 1),
        ("observed", None, [0], 1),
    ]
    now = current(spark, settings)["seen"]
    assert (now["revision"], now["source"], now["node_count"], now["topology_epoch"]) == (4, "observed", 0, 0)
    changes = [row for row in rows(spark, settings, "gold.topology_changes") if row["group_id"] == "seen"]
    assert sorted((row["revision"], row["topics_added"], row["topics_removed"]) for row in changes) == [
        (2, ["elsewhere"], ["out"]),
        (3, ["out"], ["elsewhere"]),
        (4, [], ["in", "out"]),
    ]
    edges = [row for row in rows(spark, settings, "gold.topology_edges") if row["group_id"] == "seen"]
    assert {(row["topology_hash"], row["is_current"]) for row in edges} == {
        (found[1]["topology_hash"], False),
        (found[2]["topology_hash"], False),
    }

    def shown(**selector: Any) -> str:
        answer = describe_command.answer(Warehouse(settings), "seen", "json", **selector)
        assert answer.exit_code == 0, answer
        return str(json.loads(answer.result).get("topologyDescription") == FIRST)

    for selector in ({"revision": 1}, {"epoch": 1}, {"at": at(650.5).isoformat()}, {"revision": 3}):
        assert shown(**selector) == "True"
    (remark,) = describe_command.answer(Warehouse(settings), "seen", revision=1).remarks
    assert remark.startswith(
        "Revision 1: first shown by a describe at 2026-11-21T02:10:50.000Z under epoch 0, replaced"
    )
    assert "elsewhere" in describe_command.answer(Warehouse(settings), "seen", diff=(1, 2)).result


def test_questions_are_held_against_the_broker(
    spark: SparkSession, mixed: tuple[Settings, dict[str, StageRun]]
) -> None:
    found = [row for row in rows(spark, mixed[0], "silver.topology_solicitations") if row["group_id"] == "held against"]
    found.sort(key=lambda row: row["solicited_at"])
    names = ("topology_epoch", "attempt", "too_early", "although_stored", "although_stale")
    assert [tuple(row[name] for name in names) for row in found] == [
        (0, 1, False, True, False),  # a second after the broker accepted a push
        (0, 2, False, False, False),  # after a describe said that nothing is stored
        (3, 1, False, False, False),  # the epoch has advanced, which clears the back-off
        (3, 2, True, False, True),  # within the back-off, from a member with a stale topology
    ]
    (health,) = [row for row in rows(spark, mixed[0], "gold.push_health") if row["group_id"] == "held against"]
    assert (health["although_stored_count"], health["although_stale_count"], health["too_early_count"]) == (1, 1, 1)
    assert (health["throttled_count"], health["max_throttle_time_ms"]) == (1, 700)


def test_a_plugin_s_failure_is_told_by_what_the_broker_asks_later(
    spark: SparkSession, mixed: tuple[Settings, dict[str, StageRun]]
) -> None:
    found = {row["group_id"]: row for row in rows(spark, mixed[0], "gold.push_health")}
    names = (
        "permanent",
        "too soon to tell",
        "with a gap",
        "transient",
        "deleted and asked",
        "asked under another epoch",
    )
    told = {name: found[name]["last_failure"] for name in (*names, "accepted later")}
    assert told == {
        "permanent": "permanent",
        "too soon to tell": "unknown",
        "with a gap": "unknown",
        "transient": "transient",
        "deleted and asked": "unknown",
        "asked under another epoch": "unknown",
        "accepted later": "unknown",
    }
    assert [
        found["permanent"][f"{kind}_failure_count"] for kind in ("plugin", "permanent", "transient", "unknown")
    ] == [
        1,
        1,
        0,
        0,
    ]


def test_what_the_specification_does_not_know_is_counted(mixed: tuple[Settings, dict[str, StageRun]]) -> None:
    def failing_rows(table: str, code: str) -> int:
        verdict = mixed[1][table].verdict
        assert verdict is not None
        return {outcome.code: outcome.failing for outcome in verdict.outcomes}[code]

    assert failing_rows("silver.group_deletions", "error_code.of_the_api") == 1  # -1, but to a request of version 3
    assert failing_rows("silver.topology_statuses", "status.answered") == 1
    assert failing_rows("silver.topology_statuses", "topology_hash.not_null") == 2


def test_a_long_chain_and_a_cycle_take_seconds(
    spark: SparkSession, mixed: tuple[Settings, dict[str, StageRun]]
) -> None:
    settings, done = mixed
    nodes = Warehouse(settings, spark).read("silver.topology_nodes").where("group_id IN ('chain', 'ring')")
    assert nodes.where("size(predecessors) = 1 OR node = 'node-00000'").count() == 12_000
    assert done["silver.topology_nodes"].seconds < 60  # quadratic work on 10,000 nodes would take far longer
    assert {row["health"] for group, row in current(spark, settings).items() if group in ("chain", "ring")} == {"OK"}


# --- revisions -----------------------------------------------------------------------------------------------------


def test_a_log_file_that_lands_late_gives_the_numbers_of_one_in_time(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    early = [push(1, member="a", topology=FIRST), push(2, "other"), heartbeat(3, member_epoch=-1, topology_epoch=None)]
    late = [push(4, member="b", topology=SECOND), push(5, member="c", topology=FIRST), describe(6, described())]
    tables = []
    for name, runs in (("in time", [{"early": early, "late": late}]), ("late", [{"late": late}, {"early": early}])):
        settings = warehouse_of(empty_warehouse, tmp_path / name)
        for files in runs:
            landed(settings, **files)
            run(spark, settings, *HISTORICAL)
        tables.append({table: rows(spark, settings, table) for table in HISTORICAL})
    assert tables[0] == tables[1]
    assert revisions(spark, settings) == [(1, "a", "00:01"), (2, "b", "00:04"), (3, "c", "00:05")]


# --- health --------------------------------------------------------------------------------------------------------

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


@pytest.fixture(scope="module")
def histories(spark: SparkSession, mixed: tuple[Settings, dict[str, StageRun]]) -> dict[str, dict[str, Any]]:
    return current(spark, mixed[0])


@pytest.mark.parametrize("name", HISTORIES, ids=str)
def test_health_follows_from_the_history(name: str, histories: dict[str, dict[str, Any]]) -> None:
    assert histories[name]["health"] == HISTORIES[name][0], histories[name]["sentence"]


def test_evidence_and_sentence_say_why(histories: dict[str, dict[str, Any]]) -> None:
    assert histories["two members differ"]["conflicting_members"] == ["m1", "m2"]
    assert "refused at 2026-11-21 02:00:02 UTC with 135" in histories["last push refused"]["sentence"]
    assert histories["stored, then not"]["lost_at"] == at(3).replace(tzinfo=None)
    assert histories["deleted"]["deleted_at"] == at(2).replace(tzinfo=None)
    assert "topology.description.push.enabled" in histories["asked, never pushed"]["sentence"]
    assert "no plugin" in histories["never asked"]["sentence"]
    assert (histories["behind the group"]["topology_epoch"], histories["behind the group"]["group_topology_epoch"]) == (
        0,
        4,
    )


# --- only new input causes work -----------------------------------------------------------------------------------


@engines.compared
def test_only_groups_with_news_are_refreshed(spark: SparkSession, settings: Settings) -> None:
    landed(settings, a=[push(second, f"app-{second}") for second in range(5)])
    run(spark, settings, *HISTORICAL)
    before = Warehouse(settings).last_version("gold.topology_current")
    landed(settings, b=[push(60, "app-3", topology=SECOND)])
    done = run(spark, settings, *HISTORICAL)
    assert done["gold.topology_revisions"].message == "2 rows refreshed"
    assert done["gold.topology_current"].message == "1 row refreshed"
    changes = (
        spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", (before or 0) + 1)
        .load(Warehouse(settings).location("gold.topology_current"))
    )
    assert {row["group_id"] for row in changes.select("group_id").collect()} == {"app-3"}
