"""Request logs -> silver.topology_pushes: pushed descriptions, their hashes and defects, and what is quarantined."""

from __future__ import annotations

import json
from collections import defaultdict

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipelines.columns import descriptions
from pipelines.settings import Settings
from pipelines.topology.model import Topology
from tests.testing.builders import rows
from tests.testing.requests import push
from tests.testing.topologies import tiny_topologies
from tests.testing.topology_feed import APIS, DEFECTIVE, Ran, exchanges, failing_rows, landed, run


def test_pushes_are_those_that_the_client_sent(spark: SparkSession, captured_requests: Settings) -> None:
    sent = [
        (
            exchange["correlationId"],
            exchange["clientId"],
            exchange["request"]["groupId"],
            exchange["request"]["memberId"],
            exchange["request"]["topologyEpoch"],
            exchange["response"]["errorCode"],
            exchange["error"],
            exchange["response"]["errorMessage"],
            exchange["request"]["topologyDescription"],
        )
        for exchange in exchanges()
        if exchange["apiName"] == APIS[0]
    ]
    found = [
        (
            *(row[name] for name in ("correlation_id", "client_id", "group_id", "member_id", "topology_epoch")),
            *(row[name] for name in ("error_code", "error_name", "error_message")),
            json.loads(row["description"]),
        )
        for row in rows(spark, captured_requests, "silver.topology_pushes")
    ]
    assert len(sent) == 51
    assert sorted(found, key=repr) == sorted(sent, key=repr)


@given(st.lists(tiny_topologies, min_size=30, max_size=60))
@hypothesis_settings(max_examples=3, deadline=None)
def test_hashes_are_equal_exactly_where_topologies_are(spark: SparkSession, drawn: list[Topology]) -> None:
    wires = [json.dumps(topology.wire()) for topology in drawn]
    wires += [json.dumps(topology.canonical().wire()) for topology in drawn]
    texts = spark.range(1).select(F.explode(F.from_json(F.lit(json.dumps(wires)), "array<string>")).alias("wire"))
    hashed = texts.select(F.from_json("wire", descriptions.SCHEMA).alias("topology")).select(
        descriptions.topology_hash(F.col("topology"))
    )
    hashes = [row[0] for row in hashed.collect()]

    canonical = [topology.canonical() for topology in drawn] * 2
    assert len(hashes) == len(canonical)
    by_hash, by_form = defaultdict(set), defaultdict(set)
    for number, (found, form) in enumerate(zip(hashes, canonical, strict=True)):
        by_hash[found].add(number)
        by_form[form].add(number)
    assert sorted(map(sorted, by_hash.values())) == sorted(map(sorted, by_form.values()))


def test_a_time_zone_that_the_line_states_counts(spark: SparkSession, mixed_requests: Ran) -> None:
    times = {row["group_id"]: row["pushed_at"].hour for row in rows(spark, mixed_requests[0], "silver.topology_pushes")}
    assert (times["zone stated"], times["twice"]) == (0, 2)


def test_an_unknown_code_is_kept_and_counted_but_not_quarantined(spark: SparkSession, mixed_requests: Ran) -> None:
    found = {row["group_id"]: row for row in rows(spark, mixed_requests[0], "silver.topology_pushes")}
    assert (found["unknown code"]["error_code"], found["unknown code"]["error_name"]) == (999, None)
    assert found["refused"]["error_name"] == "GROUP_ID_NOT_FOUND"
    assert failing_rows(mixed_requests, "silver.topology_pushes", "error_code.of_the_api") == 1


def test_many_unknown_codes_break_the_gate(spark: SparkSession, settings: Settings) -> None:
    landed(settings, a=[push(second, error=999) for second in range(12)])
    run(spark, settings, "bronze.streams_requests")
    done = run(spark, settings, "silver.topology_pushes")
    pushes = done["silver.topology_pushes"]
    assert pushes.status == "broken"
    assert pushes.verdict is not None
    assert "error_code.of_the_api" in {outcome.code for outcome in pushes.verdict.failed}
    assert rows(spark, settings, "silver.topology_pushes") == []


def test_an_accepted_push_without_group_member_or_epoch_is_quarantined(
    spark: SparkSession, mixed_requests: Ran
) -> None:
    found = rows(spark, mixed_requests[0], "quarantine.topology_pushes")
    assert sorted(row["violations"] for row in found if row["error"] is None) == [
        ["group_id.named"],
        ["member_id.named"],
        ["topology_epoch.at_least_0"],
        ["topology_hash.not_null"],
    ]


def test_malformed_descriptions_stay_with_their_defects(spark: SparkSession, mixed_requests: Ran) -> None:
    found = {row["group_id"]: row["defects"] for row in rows(spark, mixed_requests[0], "silver.topology_pushes")}
    assert {defect: found[defect] for defect in DEFECTIVE} == {defect: [defect] for defect in DEFECTIVE}
    assert found["twice"] == []


def test_lines_that_cannot_be_read_are_quarantined(spark: SparkSession, mixed_requests: Ran) -> None:
    found = [row for row in rows(spark, mixed_requests[0], "quarantine.topology_pushes") if row["error"]]
    assert [row["violations"] for row in found] == [["error.readable"]] * 5
