"""bronze.changes -> silver.changes: changes in our own form, GitHub's `deployment_status` and Argo CD's application."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from expectations.silver.changes import COMMIT, CONTRACT
from pipelines.columns import contract as columns
from pipelines.settings import Settings
from pipelines.sources import json_lines

# https://docs.github.com/en/webhooks/webhook-events-and-payloads#deployment_status
GITHUB = (
    "deployment_status: struct<state: string, created_at: string, log_url: string, target_url: string>,"
    " deployment: struct<ref: string, sha: string, environment: string>, repository: struct<name: string>"
)
# What a template of Argo CD's notifications sees as `app`: the resource Application.
ARGO_CD = (
    "app: struct<metadata: struct<name: string>, status: struct<summary: struct<images: array<string>>,"
    " operationState: struct<phase: string, finishedAt: string,"
    " syncResult: struct<revision: string, revisions: array<string>>>>>"
)
OWN = ("time", "application", "what", "commit", "link", "environment")
RECORD = f"struct<{', '.join(f'{name}: string' for name in OWN)}, {GITHUB}, {ARGO_CD}>"
DONE = {"deployment_status.state": "success", "app.status.operationState.phase": "Succeeded"}
"""The states in which something was deployed; statements on any other are skipped."""
ISO = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?(?:Z|[+-][0-9]{2}:[0-9]{2})\z"


def transform(bronze: DataFrame, settings: Settings) -> DataFrame:
    """Return one candidate for each bronze row, in the contract's columns; unreadable values are null."""

    def given(*paths: str) -> Column:
        """Return the first text of some paths that is not empty."""
        return F.coalesce(*(F.nullif(F.trim(F.col(f"_object.{path}")), F.lit("")) for path in paths))

    synced = "app.status.operationState.syncResult"
    revision = given(f"{synced}.revision")  # a commit, or the version of a Helm chart
    commit = F.coalesce(given("commit", "deployment.sha"), F.when(revision.rlike(COMMIT), revision))
    listed = (_listed(f"_object.{path}") for path in ("app.status.summary.images", f"{synced}.revisions"))
    read = json_lines.objects(bronze, RECORD).withColumns(
        {
            "time": given("time", "deployment_status.created_at", "app.status.operationState.finishedAt"),
            "application": F.trim(
                F.coalesce("_object.application", "_object.repository.name", "_object.app.metadata.name")
            ),
            "commit": commit,
            "what": F.nullif(F.coalesce(given("what", "deployment.ref"), next(listed), revision, next(listed)), commit),
            "link": given("link", "deployment_status.log_url", "deployment_status.target_url"),
            "environment": given("environment", "deployment.environment"),
        }
    )
    unfinished = [given(path) != state for path, state in DONE.items()]
    to_the_second = F.regexp_replace("time", r"\A(.{16})([Z+-])", "$1:00$2")  # Spark reads no time without seconds
    values = {"changed_at": F.when(F.col("time").rlike(ISO), to_the_second.try_cast("timestamp"))}
    return read.select(*columns.of_contract(CONTRACT, values), F.coalesce(*unfinished, F.lit(False)).alias("_skipped"))


def _listed(texts: str) -> Column:
    return F.nullif(F.array_join(texts, ", "), F.lit(""))
