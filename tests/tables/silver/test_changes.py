"""Lines about changes -> silver.changes: our own form, GitHub's and Argo CD's; what cannot be used is in quarantine."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.settings import ROOT, Settings
from tests.testing.builders import land, rows, run, warehouse_of

TABLES = ("bronze.changes", "silver.changes")
TIME = "2026-11-21T12:34:00Z"
AT = datetime(2026, 11, 21, 12, 34)
SHA = "f95f852bd8fca8fcc58a9a2d6c842781e32a215e"
NOTHING = dict.fromkeys(("application", "what", "commit", "link", "environment"))


@pytest.fixture
def settings(empty_warehouse: Path, tmp_path: Path) -> Settings:
    return warehouse_of(empty_warehouse, tmp_path, tolerance=1.0)


def change(**values: Any) -> str:
    return json.dumps({"time": TIME, **values})


def github(state: str = "success", ref: str = "v1.14", **status: Any) -> str:
    """The fields of octokit/webhooks, payload-examples/api.github.com/deployment_status/payload.json, that matter."""
    told = {"state": state, "environment": "production", "description": "", "target_url": "", "created_at": TIME}
    deployment = {"id": 145988746, "sha": SHA, "ref": ref, "payload": {}, "environment": "production"}
    repository = {"id": 186853002, "name": "checkout", "full_name": "Codertocat/checkout", "private": False}
    return json.dumps(
        {
            "action": "created",
            "deployment_status": told | status,
            "deployment": deployment | {"description": None, "created_at": "2026-11-21T12:33:58Z"},
            "repository": repository,
            "workflow": None,
        }
    )


def argo_cd(phase: str = "Succeeded", images: list[str] | None = None, at: str | None = TIME, **synced: Any) -> str:
    """The body `{"app": {{toJson .app}}}` of a webhook: argoproj/argo-cd, notifications/services/webhook.md.

    The resource is that of pkg/apis/application/v1alpha1/types.go: Application, OperationState, SyncOperationResult.
    """
    state = {"phase": phase, "startedAt": "2026-11-21T12:33:40Z", "finishedAt": at, "syncResult": synced}
    status = {"health": {"status": "Healthy"}, "operationState": state, "sync": {"status": "Synced"}}
    summary = {} if images is None else {"images": images}
    metadata = {"name": "checkout", "namespace": "argocd", "labels": {"team": "shop"}}
    return json.dumps({"app": {"kind": "Application", "metadata": metadata, "status": status | {"summary": summary}}})


TOLD = {
    "all": (
        change(application=" checkout ", what="1.14", commit="ab12cd3", link="https://ci/7", environment="production"),
        {"application": "checkout", "what": "1.14", "commit": "ab12cd3", "link": "https://ci/7"}
        | {"environment": "production"},
    ),
    "everything": (change(what="Moved to new disks", application=None), {"what": "Moved to new disks"}),
    "commit alone": (change(application="a", commit=SHA), {"application": "a", "commit": SHA}),
    "empty is not told": (change(what="1", commit="", link=" ", environment=""), {"what": "1"}),
    "fields of others": (change(what="1", status="done", sender={"login": "a"}), {"what": "1"}),
    "github": (
        github(log_url="https://github.com/Codertocat/checkout/runs/7"),
        {"application": "checkout", "what": "v1.14", "commit": SHA, "environment": "production"}
        | {"link": "https://github.com/Codertocat/checkout/runs/7"},
    ),
    "github by its commit": (
        github(ref=SHA),
        {"application": "checkout", "commit": SHA, "environment": "production"},
    ),
    "argo cd": (
        argo_cd(images=["shop/checkout:1.14"], revision=SHA),
        {"application": "checkout", "what": "shop/checkout:1.14", "commit": SHA},
    ),
    "argo cd without images": (argo_cd(revision=SHA), {"application": "checkout", "commit": SHA}),
    "argo cd with a chart": (argo_cd(revision="4.2.0"), {"application": "checkout", "what": "4.2.0"}),
    "argo cd with sources": (
        argo_cd(images=[], revisions=["4.2.0", SHA]),
        {"application": "checkout", "what": f"4.2.0, {SHA}"},
    ),
}


def test_each_form_tells_what_was_deployed_when(spark: SparkSession, settings: Settings) -> None:
    for number, (line, _) in enumerate(TOLD.values()):
        land(settings, {f"{number}.jsonl": [line]}, "changes")
    assert run(spark, settings, *TABLES, feed="delivery")["silver.changes"].accepted == len(TOLD)
    found = {row.pop("_source"): row for row in rows(spark, settings, "silver.changes")}
    for number, (name, (_, told)) in enumerate(TOLD.items()):
        row = found[f"{number}.jsonl"]
        assert {key: row[key] for key in (*NOTHING, "changed_at")} == {**NOTHING, **told, "changed_at": AT}, name


def test_the_lines_that_the_document_shows_are_accepted(spark: SparkSession, settings: Settings) -> None:
    section = (ROOT / "docs" / "feeds.md").read_text(encoding="utf-8").partition("## Deployments and other changes")[2]
    shown = section.partition("```json\n")[2].partition("\n```")[0].splitlines()
    land(settings, {"a.jsonl": shown}, "changes")
    assert run(spark, settings, *TABLES, feed="delivery")["silver.changes"].accepted == len(shown) == 2
    assert {row["application"] for row in rows(spark, settings, "silver.changes")} == {"checkout", None}


def test_a_deployment_that_is_not_done_is_skipped(spark: SparkSession, settings: Settings) -> None:
    states = ("pending", "in_progress", "failure", "error", "inactive")
    unfinished = [*map(github, states), argo_cd("Running", at=None), argo_cd("Failed", revision=SHA)]
    land(settings, {"a.jsonl": [*unfinished, github()]}, "changes")
    done = run(spark, settings, *TABLES, feed="delivery")["silver.changes"]
    assert (done.skipped, done.accepted, done.quarantined) == (len(unfinished), 1, 0)


def test_times_have_a_zone(spark: SparkSession, settings: Settings) -> None:
    times = ("2026-11-21T12:34Z", "2026-11-21T13:34:00.000+01:00", "2026-11-21T12:34:00.000000123Z")
    land(settings, {"a.jsonl": [change(time=time, what="1") for time in times]}, "changes")
    run(spark, settings, *TABLES, feed="delivery")
    assert [row["changed_at"] for row in rows(spark, settings, "silver.changes")] == [AT] * len(times)


def test_changes_that_cannot_be_used_are_quarantined(spark: SparkSession, settings: Settings) -> None:
    bad = {
        change(what="1", time="2026-11-21 12:34"): ["changed_at.moment"],
        change(what="1", time="2026-11-21T12:34:00"): ["changed_at.moment"],
        change(what="1", time="2026-02-30T12:34:00Z"): ["changed_at.moment"],
        change(what="1", time=None): ["time.not_null"],
        change(application="a"): ["what.not_null"],
        change(application=" ", what="1"): ["application.named"],
        change(what="1", commit="main"): ["commit.hash"],
        change(what="1", app="checkout"): ["line_error.readable"],
        json.dumps({"zen": "Avoid.", "repository": {"name": "a"}}): ["what.not_null", "time.not_null"],
        "deployed": ["line_error.readable"],
    }
    land(settings, {"a.jsonl": [*bad, change(what="good")]}, "changes")
    run(spark, settings, *TABLES, feed="delivery")
    assert [row["what"] for row in rows(spark, settings, "silver.changes")] == ["good"]
    why = {bytes(row["line"]).decode(): row["violations"] for row in rows(spark, settings, "quarantine.changes")}
    assert why == bad
