"""Spark's properties: the project's own, and those of a session for a warehouse on an object store."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pipelines.jvm import jars, log_store
from pipelines.settings import ROOT, s3

_S3A, _AZURE = "spark.hadoop.fs.s3a", "spark.hadoop.fs.azure"
_AZURE_SERVICES = "org.apache.hadoop.fs.azurebfs.services"
_KEY_OF_AZURE = "AZURE_STORAGE_ACCOUNT_KEY"


def defaults() -> dict[str, str]:
    """Return the properties of conf/spark-defaults.conf."""
    lines = (ROOT / "conf" / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    pairs = (line.split(None, 1) for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return {name: value.strip() for name, value in pairs}


def master(chosen: Mapping[str, str]) -> str:
    """Return Spark's master, given the properties of the settings; ``local[*]`` if nothing names one."""
    return chosen.get("spark.master") or defaults().get("spark.master") or "local[*]"


def for_store(warehouse: str) -> dict[str, str]:
    """Return the properties of a session for a warehouse on an object store; none for another one.

    Raises UsageError: the variables of S3 cannot be used.
    """
    match jars.of(warehouse):
        case "s3":
            return for_s3()
        case "gs":
            return {
                "spark.hadoop.fs.gs.auth.type": "APPLICATION_DEFAULT",  # GOOGLE_APPLICATION_CREDENTIALS, or a role
                # The connector reads several ranges at once by a method that Hadoop 3.4.2 no longer has.
                "spark.hadoop.parquet.hadoop.vectored.io.enabled": "false",
            }
        case "abfs" if os.environ.get(_KEY_OF_AZURE):
            # What a command prints is the key, so that no property has it; Hadoop splits the command at spaces.
            return {
                f"{_AZURE}.account.keyprovider": f"{_AZURE_SERVICES}.ShellDecryptionKeyProvider",
                f"{_AZURE}.shellkeyprovider.script": f"sh -c printenv\t{_KEY_OF_AZURE}",
                f"{_AZURE}.account.key": "none",
            }
    return {}


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
