"""Incidents over random batches, late and repeated ones too, are those of all records at once; told ids stay."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.catalog import stages
from pipelines.run import runner
from pipelines.settings import Settings
from pipelines.stores import lock
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing import engines, segments
from tests.testing.builders import kip_1191, land, line, run_needed, warehouse_of, without_the_run
from tests.testing.deliveries import acknowledgement, store

INCIDENTS, SUSPECTS, BLAST = "gold.dlq_incidents", "gold.incident_suspects", "gold.blast_radius"
DAY = int(datetime(2026, 11, 18, tzinfo=UTC).timestamp() * 1000)
MINUTE = 60_000
ERRORS = ("Offset rejected by client.", "Delivery count limit reached.")


def letters(chance: random.Random, number: int) -> list[str]:
    """Return dead letters of a few errors, in clusters of minutes with pauses of hours between."""
    found = []
    at = DAY
    for offset in range(number):
        at += chance.choice((1, 2, 5, 10, 15, 20, 300)) * MINUTE * chance.choice((0, 1, 1))
        topic, group = chance.choice((("orders", "orders-workers"), ("paid", "paid-app")))
        where = (chance.randrange(3), chance.choice((offset, 7, 8)))
        headers = kip_1191(topic, *where, group, chance.randint(1, 3), chance.choice(ERRORS))
        found.append(line(offset, timestamp=at, headers=headers, key=chance.choice((b"a", b"b", None))))
    return found


def topologies(settings: Settings) -> None:
    """Store an application that reads one of the topics, with two revisions during the days."""
    key = {"cluster": "default", "group_id": "paid-app"}
    for number, hours in ((1, 3), (2, 40)):
        accepted = datetime.fromtimestamp(DAY / 1000 + hours * 3600, UTC)
        revision = {"revision": number, "topology_hash": f"hash-{number}", "accepted_at": accepted}
        store(settings, "gold.topology_revisions", key | revision)
        place = {"part": "subtopology", "part_place": 0, "subtopology_id": str(number), "occurrence": 1}
        node = {"node": "in", "node_type": 1, "source_topics": ["paid"], "stores": [], "successors": []}
        store(settings, "silver.topology_nodes", key | {"topology_hash": f"hash-{number}"} | place | node)


def run_feeds(spark: SparkSession, settings: Settings, *feeds: str) -> None:
    """Run the stages of feeds once; none may break."""
    wanted = [stage for stage in stages() if {stage.feed, *stage.also} & {*feeds}]
    with lock.writer(settings, "test"):
        done = runner.run(Warehouse(settings, spark), wanted)
    assert {ran.status for ran in done} <= {"passed", "idle"}, done


def land_logs(settings: Settings) -> None:
    """Land the log of each partition of one topic: two transactions and their markers."""
    for partition in range(3):
        flags, directory = {"flags": 0x10, "producer": (7, 0, 0)}, settings.landing_of("segments") / f"paid-{partition}"
        parts = (segments.batch(0, 39, **flags), segments.marker(39, True))
        more = (segments.batch(40, 60, **flags), segments.marker(100, True))
        directory.mkdir(parents=True)
        (directory / f"{0:020}.log").write_bytes(b"".join((*parts, *more)))


def of_incidents(settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """Return the tables of incidents; an incident is named by its fingerprint and its first record."""
    rows = {
        table: jvmless.rows(Warehouse(settings), table, {"cluster": "default"})
        for table in (INCIDENTS, SUSPECTS, BLAST)
    }
    names = {
        row["incident_id"]: f"{row['fingerprint']} {row['first_at']}" for row in rows[INCIDENTS] if row["record_count"]
    }
    assert {row["incident_id"] for table in (SUSPECTS, BLAST) for row in rows[table]} <= names.keys()
    found = {
        table: [
            {
                **{name: value for name, value in row.items() if name not in ("anchor_at", "merged_into")},
                **{name: names.get(row[name]) for name in ("incident_id", "predecessor_id") if name in row},
            }
            for row in of
            if row["incident_id"] in names
        ]
        for table, of in rows.items()
    }
    return {table: sorted(map(without_the_run, of), key=repr) for table, of in found.items()}


def ids(settings: Settings) -> dict[str, str | None]:
    rows = jvmless.rows(Warehouse(settings), INCIDENTS, {"cluster": "default"})
    assert all(bool(row["record_count"]) is (row["merged_into"] is None) for row in rows)
    return {row["incident_id"]: row["merged_into"] for row in rows}


@engines.compared
@pytest.mark.thorough  # test_dlq_episodes.py has the same property for episodes, their merges and their ids
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_batches_in_any_order_give_the_incidents_of_all_records(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    everything = letters(chance, 90)
    shuffled = chance.sample(everything, len(everything))
    batches = [shuffled[:45], [*shuffled[45:], *shuffled[:10]]]
    sent = [acknowledgement("orders", place % 3, place // 3, client_id=f"shop-{place % 5}") for place in range(300)]
    chance.shuffle(sent)
    piecewise = warehouse_of(empty_warehouse, tmp_path / "piecewise")
    whole = warehouse_of(empty_warehouse, tmp_path / "whole")
    for settings in (piecewise, whole):
        topologies(settings)
    known: dict[str, str | None] = {}
    land(piecewise, {"before.jsonl": sent[:100]}, "acknowledgements")
    run_feeds(spark, piecewise, "delivery")
    for number, batch in enumerate(batches):
        land(piecewise, {f"{number}.jsonl": batch})
        if number == 1:
            land(piecewise, {"with.jsonl": sent[100:200]}, "acknowledgements")
            land_logs(piecewise)
        run_feeds(spark, piecewise, "dlq", *(("delivery",) if number else ()))
        now = ids(piecewise)
        assert known.keys() <= now.keys()  # an id that was written never goes
        known = now
    assert any(known.values())  # late records merged incidents
    land(piecewise, {"after.jsonl": [*sent[200:], *sent[:50]]}, "acknowledgements")
    run_feeds(spark, piecewise, "delivery")
    land(whole, {"all.jsonl": everything})
    land(whole, {"all.jsonl": sent}, "acknowledgements")
    land_logs(whole)
    run_feeds(spark, whole, "dlq", "delivery")
    assert of_incidents(piecewise) == of_incidents(whole)
    shares_of = {row["offset_share_of"] for row in of_incidents(whole)[INCIDENTS]}
    assert shares_of >= {"acknowledged records", "records in landed segments"}
    assert {row["group_id"] for row in of_incidents(whole)[BLAST]} == {None, "paid-app"}
    assert all(into is None or known[into] is None for into in known.values())  # a chain of merges ends at once


def test_acknowledgements_tell_the_client_that_wrote_the_dead_records(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    """The clients land after the dead letters; what a share group rejects names neither its client nor its headers."""
    settings = warehouse_of(empty_warehouse, tmp_path)
    dead = range(0, 400, 13)
    land(
        settings,
        {
            "dead.jsonl": [
                line(
                    place,
                    timestamp=DAY + place * 1000,
                    key=str(place).encode(),
                    headers=kip_1191("orders", place % 3, place, "workers", 1, ERRORS[0]),
                )
                for place in dead
            ],
            "pill.jsonl": [line(999, timestamp=DAY, headers=kip_1191("orders", 2, 200, "others", 1, ERRORS[1]))],
        },
    )

    def of(group: str) -> dict[str, Any]:
        (row,) = jvmless.rows(Warehouse(settings), INCIDENTS, {"cluster": "default", "consumer_group": group})
        return row

    run_needed(spark, settings, INCIDENTS, within="dlq")
    before = of("workers")
    assert (before["verdict"], before["attribute_kind"]) == ("REJECTION", None)
    sent = [
        acknowledgement("orders", place % 3, place, client_id="batch" if place in dead else f"shop-{place % 5}")
        for place in range(400)
    ]
    land(settings, {"sent.jsonl": sent}, "acknowledgements")
    run_needed(spark, settings, SUSPECTS, within="delivery")
    after, pill = of("workers"), of("others")
    assert (pill["window_record_count"], pill["offset_share_of"]) == (133, "acknowledged records")
    assert pill["sentence"].endswith("was dead-lettered once; 1 of the 133 acknowledged records around it died of it.")
    assert (after["incident_id"], after["verdict"]) == (before["incident_id"], "PRODUCER_LOCAL")
    assert after["sentence"].endswith(
        "100 % of the source records were produced by client batch, and 0 % of delivered messages."
    )
    equal: dict[str, str | int] = {"cluster": "default", "incident_id": after["incident_id"]}
    (suspect,) = jvmless.rows(Warehouse(settings), SUSPECTS, equal)
    assert (suspect["kind"], suspect["name"], suspect["share"], suspect["share_elsewhere"]) == ("client", "batch", 1, 0)
    assert suspect["sentence"] == (
        "100 % of the source records were produced by client batch, and 0 % of delivered messages"
    )
