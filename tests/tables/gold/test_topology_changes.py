"""gold.topology_changes: what differs between a revision and the one before."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pipelines.settings import Settings
from pipelines.topology.diff import diff
from pipelines.topology.model import Topology
from tests.testing.builders import rows


def test_changes_are_what_the_diff_of_the_descriptions_says(spark: SparkSession, captured_requests: Settings) -> None:
    described_ = {
        (row["group_id"], row["revision"]): Topology.parsed(row["description"])
        for row in rows(spark, captured_requests, "gold.topology_revisions")
    }
    changes = rows(spark, captured_requests, "gold.topology_changes")
    assert sorted((row["group_id"], row["revision"]) for row in changes) == sorted(
        (group, revision) for group, revision in described_ if revision > 1
    )
    for row in changes:
        group, revision = row["group_id"], row["revision"]
        difference = diff(described_[group, revision - 1], described_[group, revision]).as_json()
        for kind in ("stores", "topics"):
            for way in ("added", "removed"):
                assert row[f"{kind}_{way}"] == sorted(difference[kind][way]), (revision, kind, way)
