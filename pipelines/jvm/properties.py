"""Spark's properties: the project's own, for this machine or a cluster, and those of a warehouse on an object store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

from expectations.text import visible
from pipelines.errors import UsageError
from pipelines.jvm import jars, log_store
from pipelines.settings import ROOT, Settings, s3

LOCAL = "local[*]"
OTHERS = ("local", "yarn")
KINDS = ("local[", "local-cluster[", "spark://", "k8s://")

_S3A, _AZURE = "spark.hadoop.fs.s3a", "spark.hadoop.fs.azure"
_AZURE_SERVICES = "org.apache.hadoop.fs.azurebfs.services"
_KEY_OF_AZURE = "AZURE_STORAGE_ACCOUNT_KEY"


def master(chosen: Mapping[str, str]) -> str:
    """Return Spark's master, given the properties of the settings; ``local[*]`` if they name none.

    Raises UsageError: there is no such kind of master.
    """
    named = chosen.get("spark.master", LOCAL)
    if named not in OTHERS and not named.startswith(KINDS):
        raise UsageError(
            f"Spark knows no master {visible(named)!r}: "
            "write local[2], spark://host:7077, k8s://https://host:443 or yarn."
        )
    return named


def is_cluster(chosen: Mapping[str, str]) -> bool:
    """Tell whether executors are processes of a cluster, given the properties of the settings; raises as ``master``."""
    named = master(chosen)
    return named != "local" and not named.startswith("local[")


def defaults(chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the project's own properties for the master that the settings name; raises as ``master``."""
    return _of_file("spark-defaults") | _of_file("spark-cluster" if is_cluster(chosen) else "spark-local")


def _of_file(name: str) -> dict[str, str]:
    lines = (ROOT / "conf" / f"{name}.conf").read_text(encoding="utf-8").splitlines()
    pairs = (line.split(None, 1) for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return {name: value.strip() for name, value in pairs}


def check_reachable(settings: Settings, *names: Literal["warehouse", "landing"]) -> None:
    """Check that executors reach the warehouse or the landing directory.

    Raises UsageError: one is a directory, the master is a cluster's, and the settings do not say that it is shared.
    """
    if settings.shared_directories or not is_cluster(settings.spark) or master(settings.spark).startswith("local-"):
        return
    for name in names:
        root: str = getattr(settings, name)
        if "://" in root and not root.lower().startswith("file:"):
            continue
        uri = " or name one on an object store" if name == "warehouse" else ""
        raise UsageError(
            f"The {name} {root} is a directory, which executors of {master(settings.spark)} may not reach: put it on "
            f"storage that has the same path on all machines and set shared_directories = true{uri}."
        )


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
