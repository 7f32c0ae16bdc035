"""Tables that the site reads, written without Spark: incidents, hours, topologies, messages; some names are hostile."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pipelines.settings import Settings
from tests.testing.deliveries import store

NOW = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)
CANARY = "canary-4711-secret"
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "../../etc/passwd",
    "evil\u202etxt.exe\u2066",
    "</script><b>{{ 7 * 7 }}</b>",
    "line\nbreak\x1b[31m\x00",
    "x" * 249,
)
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def incident_id(number: int) -> str:
    """Return the id of an incident by its number."""
    digits = "".join(_ALPHABET[number // 32**index % 32] for index in range(7, -1, -1))
    return f"{digits[:4]}-{digits[4:]}"


def micros(at: datetime) -> int:
    """Return microseconds since 1970."""
    return int(at.timestamp() * 1_000_000)


def incident(number: int, **more: Any) -> dict[str, Any]:
    """A row of gold.dlq_incidents: by default one that is open, with 12 records of one source record."""
    last = more.get("last_at", NOW - HOUR)
    topic, group = more.get("original_topic", "orders"), more.get("consumer_group", "orders-workers")
    return {
        "cluster": "default",
        "incident_id": incident_id(number),
        "fingerprint": f"{number:016x}",
        "consumer_group": group,
        "original_topic": topic,
        "disposition": "CLIENT_REJECTED",
        "exception_class": "org.example.Failure",
        "error_pattern": "Offset <*> rejected",
        "anchor_at": last - 2 * HOUR,
        "algorithm_version": 1,
        "first_at": last - 2 * HOUR,
        "last_at": last,
        "pause_seconds": 7200,
        "record_count": 12,
        "source_record_count": 1,
        "key_count": 1,
        "is_key_count_exact": True,
        "keyed_count": 12,
        "without_payload_count": 2,
        "inferred_count": 0,
        "suspected_count": 0,
        "partitions": [
            {
                "original_partition": 4,
                "record_count": 12,
                "source_record_count": 1,
                "first_offset": 58,
                "last_offset": 58,
            }
        ],
        "top_records": [{"original_partition": 4, "original_offset": 58, "record_count": 12}],
        "dlq_topics": [{"dlq_topic": "dlq.orders", "last_at": micros(last)}],
        "timeline": [
            {"half_hour": micros(last - 2 * HOUR), "record_count": 8},
            {"half_hour": micros(last), "record_count": 4},
        ],
        "verdict": "POISON_PILL",
        "sentence": f"Group {group} could not process 1 record of {topic}, 12 times.",
        "would_change": "Another source record would change it.",
        "severity": "medium",
        "severity_reasons": ["the same record is dead-lettered again and again"],
        "offset_share": 0.1,
        "partition": 4,
        "partition_share": 1.0,
        "partition_count": 5,
        "partition_count_hit": 1,
        "key_share": 1.0,
        "attribute_kind": None,
        "attribute_share": None,
        "is_rejection": True,
        **more,
    }


def hour(at: datetime, records: int = 12, **more: Any) -> dict[str, Any]:
    """A row of gold.dlq_summary."""
    return {
        "cluster": "default",
        "hour": at.replace(minute=0, second=0, microsecond=0),
        "dlq_topic": "dlq.orders",
        "original_topic": "orders",
        "consumer_group": "orders-workers",
        "disposition": "CLIENT_REJECTED",
        "record_count": records,
        "source_record_count": records,
        "without_payload_count": 0,
        "first_routed_at": at,
        "last_routed_at": at,
        **more,
    }


def letter(offset: int = 5, **more: Any) -> dict[str, Any]:
    """A row of silver.dlq_records whose payload, key and headers hold a canary."""
    return {
        "_source": "a.jsonl",
        "_bronze_id": f"{offset:064x}",
        "_ingested_at": NOW - HOUR,
        "cluster": "default",
        "dlq_topic": "dlq.orders",
        "dlq_partition": 0,
        "dlq_offset": offset,
        "consumer_group": "orders-workers",
        "original_topic": "orders",
        "original_partition": 4,
        "original_offset": 58,
        "header_profile": "kip-1191",
        "routed_at": NOW - HOUR,
        "key": CANARY.encode(),
        "value": CANARY.encode(),
        **more,
    }


def description(source: str = "orders", sink: str = "totals", node: str = "source") -> str:
    """A topology as KIP-1331 writes it: a source, a processor with a store, a sink."""
    nodes = [
        {
            "name": node,
            "nodeType": 1,
            "sourceTopics": [source],
            "sinkTopic": None,
            "stores": [],
            "successors": ["count"],
        },
        {
            "name": "count",
            "nodeType": 2,
            "sourceTopics": [],
            "sinkTopic": None,
            "stores": ["s"],
            "successors": ["sink"],
        },
        {"name": "sink", "nodeType": 3, "sourceTopics": [], "sinkTopic": sink, "stores": [], "successors": []},
    ]
    return json.dumps({"subtopologies": [{"subtopologyId": "0", "nodes": nodes}], "globalStores": []})


def application(settings: Settings, name: str, source: str = "orders", sink: str = "totals", **more: Any) -> None:
    """Store an application of Kafka Streams with two revisions, the second of which came before an incident."""
    for table, rows in rows_of_application(name, source, sink, **more).items():
        store(settings, table, *rows)


def rows_of_application(name: str, source: str, sink: str, **more: Any) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of an application, by table; ``more`` replaces values of its current topology."""
    told = description(source, sink)
    before = json.loads(told)
    before["subtopologies"][0]["nodes"].pop(1)
    before["subtopologies"][0]["nodes"][0]["successors"] = ["sink"]
    key = {"cluster": "default", "group_id": name}
    current = {
        "health": "OK",
        "sentence": f"The topology of {name} is known.",
        "revision": 2,
        "node_count": 3,
        "last_seen_at": NOW - HOUR,
        "last_pushed_at": NOW - 5 * HOUR,
        "defects": [],
        "description": told,
        **more,
    }
    revision = key | {"topology_hash": f"{name}-2", "source": "pushed", "description": told, "topology_epochs": [1]}
    first = {"revision": 1, "accepted_at": NOW - 30 * HOUR, "topology_hash": f"{name}-1"}
    replaced = {"replaced_at": NOW - 4 * HOUR, "description": json.dumps(before)}
    changed = {"nodes_added": ["count"], "edges_added": [{"from": "count", "to": "sink"}], "topics_removed": [sink]}
    times = {"first_pushed_at": NOW - 30 * HOUR, "last_pushed_at": NOW - 4 * HOUR}
    asked = {"solicitation_count": 3, "followed_count": 2, "unanswered_count": 1, "median_seconds_to_push": 0.25}
    pushes = {"push_count": 3, "accepted_count": 2, "refused_count": 1, "error_names": ["INVALID_REQUEST"]}
    took = {"median_ms": 3.5, "p95_ms": 12.0, "max_ms": 1234.0}
    at = key | {"topology_hash": f"{name}-2", "part": "subtopology", "part_place": 0, "subtopology_id": "0"}
    none: Sequence[str] = []
    edge = key | {"topology_hash": f"{name}-2", "kind": "topic", "topic_role": "external", "is_current": True}
    return {
        "gold.topology_current": [key | current],
        "gold.topology_revisions": [
            revision | first | replaced,
            revision | {"revision": 2, "accepted_at": NOW - 4 * HOUR},
        ],
        "gold.topology_changes": [key | {"revision": 2, "previous_revision": 1} | changed],
        "gold.push_health": [key | times | asked | pushes | took],
        "silver.topology_nodes": [
            at | {"node": "source", "node_type": 1, "source_topics": [source], "stores": none, "successors": ["count"]},
            at | {"node": "count", "node_type": 2, "source_topics": none, "stores": ["s"], "successors": ["sink"]},
            at | {"node": "sink", "node_type": 3, "source_topics": none, "sink_topic": sink, "stores": none},
        ],
        "gold.topology_edges": [
            edge | {"from": source, "to": "source", "direction": "read", "topic": source},
            edge | {"from": "sink", "to": sink, "direction": "written", "topic": sink},
        ],
    }


def suspect(number: int, name: str, **more: Any) -> dict[str, Any]:
    """A row of gold.incident_suspects: a topology that changed before an incident."""
    return {
        "cluster": "default",
        "incident_id": incident_id(number),
        "rank": 1,
        "kind": "topology",
        "name": name,
        "changed_at": NOW - 4 * HOUR,
        "distance_seconds": 3600,
        "score": 0.5,
        "sentence": f"revision 2 of the topology of {name} was accepted 60 minutes before",
        **more,
    }


def filled(settings: Settings) -> Settings:
    """Fill a warehouse with an ordinary incident, hostile ones, topologies, messages and quarantined rows."""
    for place in (settings.warehouse, settings.landing):
        Path(place).mkdir(parents=True, exist_ok=True)
    rows = [incident(0, severity="high"), incident(1, severity="low", last_at=NOW - 50 * HOUR)]
    hours = [hour(NOW - age * HOUR, 10 + age) for age in range(1, 190)]
    for number, name in enumerate(HOSTILE, 2):
        hostile = {"consumer_group": name, "original_topic": name, "exception_class": name, "error_pattern": name}
        more: dict[str, Any] = {"error_frame": name, "exception_cause_class": name, "sentence": f"It names {name}."}
        at = {"dlq_topics": [{"dlq_topic": name, "last_at": micros(NOW - HOUR)}]}
        rows.append(incident(number, **hostile, **more, **at))
        hours.append(hour(NOW - 2 * HOUR, consumer_group=name, original_topic=name, dlq_topic=name, disposition=name))
        application(settings, name, name, f"{name}-out", sentence=name, defects=[name], health="CONFLICT")
    store(settings, "gold.dlq_incidents", *rows)
    store(settings, "gold.dlq_summary", *hours)
    of_hostile = [letter(6 + at, original_topic=name, dlq_topic=name) for at, name in enumerate(HOSTILE)]
    store(settings, "silver.dlq_records", letter(), *of_hostile)
    landed = {"cluster": "default", "timestamp": NOW - HOUR, "_ingested_at": NOW - HOUR}
    store(settings, "bronze.dlq_records", landed)
    application(settings, "totals-app")
    store(settings, "gold.incident_suspects", suspect(0, "totals-app"), suspect(2, HOSTILE[0], sentence=HOSTILE[0]))
    counts = {"acknowledged_count": 1000, "lost_count": 3, "dead_lettered_count": 12, "absent_count": 1}
    at = {"cluster": "default", "hour": NOW - HOUR}
    store(
        settings,
        "gold.reconciliation",
        at | {"topic": "orders"} | counts,
        at | {"topic": HOSTILE[1], "aborted_count": 2, "dlq_write_failure_count": 5},
    )
    lost = {"cluster": "default", "topic": "orders", "partition": 4, "outcome": "LOST", "slice": "a"}
    store(settings, "gold.message_ledger", *(lost | {"offset": offset} for offset in (7, 8, 9)))
    guarantee = {"cluster": "default", "client_id": HOSTILE[0], "topic": "orders", "verdict": "WOULD_FAIL"}
    store(settings, "gold.delivery_guarantees", guarantee | {"sentence": HOSTILE[1]})
    finding = {"cluster": "default", "kind": "LOST_MESSAGES", "topic": "orders", "severity": "critical", "amount": 3}
    store(
        settings,
        "gold.trust_findings",
        finding | {"evidence": "messages that were acknowledged and are not in the log: 3", "remedy": "afterlog sql"},
        finding | {"kind": "X", "topic": HOSTILE[0], "name": HOSTILE[1], "evidence": HOSTILE[2], "remedy": HOSTILE[0]},
    )
    (Path(settings.landing) / "dlq").mkdir(exist_ok=True)
    refused = letter(9, violations=["original_offset.decimal_int64"]) | {"_source": "bad.jsonl"}
    store(settings, "quarantine.dlq_records", refused)
    return settings
