"""gold.topology_current: the health of each group, which follows from its history."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.settings import Settings
from tests.testing.requests import at
from tests.testing.topology_feed import DEFECTIVE, HISTORIES, Ran, current


def test_every_captured_group_has_the_health_that_its_requests_tell(
    spark: SparkSession, captured_requests: Settings
) -> None:
    health = {group: (row["health"], row["status_name"]) for group, row in current(spark, captured_requests).items()}
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


@pytest.fixture(scope="module")
def histories(spark: SparkSession, mixed_requests: Ran) -> dict[str, dict[str, Any]]:
    return current(spark, mixed_requests[0])


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


def test_a_malformed_description_is_stored_and_its_sentence_says_why(histories: dict[str, dict[str, Any]]) -> None:
    assert {histories[defect]["health"] for defect in DEFECTIVE} == {"OK"}
    assert all(defect in histories[defect]["sentence"] for defect in DEFECTIVE)


def test_a_long_chain_and_a_cycle_have_a_health(histories: dict[str, dict[str, Any]]) -> None:
    assert [histories[group]["health"] for group in ("chain", "ring")] == ["OK", "OK"]
