"""Spark's properties: the project's own, and those of a session for a warehouse on S3."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.jvm import log_store
from pipelines.settings import ROOT, s3

_S3A = "spark.hadoop.fs.s3a"


def defaults() -> dict[str, str]:
    """Return the properties of conf/spark-defaults.conf."""
    lines = (ROOT / "conf" / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    pairs = (line.split(None, 1) for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return {name: value.strip() for name, value in pairs}


def master(chosen: Mapping[str, str]) -> str:
    """Return Spark's master, given the properties of the settings; ``local[*]`` if nothing names one."""
    return chosen.get("spark.master") or defaults().get("spark.master") or "local[*]"


def for_s3() -> dict[str, str]:
    """Return the properties of a session for a warehouse on S3.

    Keys are not among them: the SDK's own chain takes them from the environment, a profile, or the role of the machine.

    Raises UsageError: the variables of S3 cannot be used.
    """
    found = s3.connection()
    return {
        "spark.delta.logStore.s3a.impl": log_store.CLASS,
        f"{_S3A}.aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
        **({f"{_S3A}.endpoint.region": found.region} if found.region else {}),
        **({f"{_S3A}.endpoint": found.endpoint, f"{_S3A}.path.style.access": "true"} if found.endpoint else {}),
    }
