"""examples/kubernetes: what Kustomize makes of it follows the published schemas, and Afterlog's settings and flags."""

from __future__ import annotations

import contextlib
import copy
import gzip
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from typer.main import get_command

from pipelines.catalog import FEEDS
from pipelines.cli import app
from pipelines.installation import COMMAND
from pipelines.jvm import properties
from pipelines.settings import ROOT, Settings

EXAMPLES = ROOT / "examples" / "kubernetes"
WAYS = ("base", "schedule", "follow", "spark-operator", "airflow")
RELEASES = ("1.34", "1.37")
"""The oldest and the newest release whose schemas are tried."""
Object = dict[str, Any]

pytestmark = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl, which has Kustomize, is not installed"
)


def made(directory: Path) -> list[Object]:
    text = subprocess.run(["kubectl", "kustomize", directory], check=True, capture_output=True, text=True).stdout
    return list(yaml.safe_load_all(text))


@pytest.fixture(scope="module")
def objects() -> dict[str, list[Object]]:
    return {way: made(EXAMPLES / way) for way in WAYS}


def closed(schema: Any) -> Any:
    """Return the schema of a custom resource, which refuses fields that it does not name, as ``kubectl`` does."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: closed(value) for name, value in schema.items()}
    is_open = "additionalProperties" in inner or inner.get("x-kubernetes-preserve-unknown-fields")
    if isinstance(inner.get("properties"), dict) and inner.get("type") == "object" and not is_open:
        inner["additionalProperties"] = False
    if inner.get("x-kubernetes-int-or-string"):
        inner.pop("type", None)
    return inner


def of_spark() -> Any:
    """The schema of the Kubeflow operator; tests/data/README.md says where it is from."""
    packed = ROOT / "tests" / "data" / "kubernetes" / "sparkapplication-v1beta2.json.gz"
    schema = closed(json.loads(gzip.decompress(packed.read_bytes())))
    schema["properties"]["metadata"] = {"type": "object"}
    return schema


SPARK = of_spark()


def check(row: Object, release: str = RELEASES[-1]) -> None:
    """Check an object by its published schema.

    Raises jsonschema.ValidationError.
    """
    if row["kind"] == "SparkApplication":
        jsonschema.Draft202012Validator(SPARK).validate(row)
    else:
        kubernetes_validate.validate(row, release, strict=True)


@pytest.fixture(scope="module", autouse=True)
def schemas() -> Iterator[None]:
    """Let the library read each schema once."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(kubernetes_validate.utils, "schema_contents", cache(kubernetes_validate.utils.schema_contents))
        yield


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("way", WAYS)
def test_each_object_follows_its_published_schema(objects: dict[str, list[Object]], way: str, release: str) -> None:
    for object_ in objects[way]:
        check(object_, release)


FREE = ("labels", "matchLabels", "annotations", "data", "sparkConf", "limits", "requests", "metadata")
"""Fields whose content has names of one's own; metadata is checked where labels are."""


def fields(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each field whose name the schema gives."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in inside:
        if isinstance(name, str) and path and "/" not in name:  # the name of a label has a slash
            yield (*path, name)
        if name not in FREE:
            yield from fields(inner, (*path, name))


@pytest.mark.parametrize("way", WAYS)
def test_a_misspelled_field_is_refused_wherever_it_is(objects: dict[str, list[Object]], way: str) -> None:
    paths = {
        (row["kind"], tuple(step for step in path if isinstance(step, str))): (row, path)
        for row in objects[way]
        for path in fields(row)
    }
    assert len(paths) > 50
    for row, (*place, name) in paths.values():
        wrong = copy.deepcopy(row)
        inside = wrong
        for step in place:
            inside = inside[step]
        inside[f"{name}z"] = inside.pop(name)
        with pytest.raises(jsonschema.ValidationError):
            check(wrong)


def test_settings_are_those_of_afterlog(objects: dict[str, list[Object]]) -> None:
    (settings,) = (row["data"] for row in objects["base"] if row["kind"] == "ConfigMap")
    found = Settings.model_validate(tomllib.loads(settings["afterlog.toml"]))
    assert (found.warehouse, found.dlq.source) == ("s3a://lakehouse/afterlog", "kafka")
    on_cluster = found.model_copy(update={"spark": {"spark.master": "k8s://https://kubernetes.default.svc"}})
    properties.check_reachable(on_cluster, "warehouse", "landing")  # raises UsageError


def pods(row: Object) -> Iterator[Object]:
    """Yield the specification of each pod that an object describes, those of Spark's too."""
    spec = row.get("spec", {})
    if row["kind"] == "SparkApplication":
        for role in ("driver", "executor"):
            yield {"containers": [spec[role]], "securityContext": spec[role]["podSecurityContext"]}
    elif row["kind"] == "CronJob":
        yield spec["jobTemplate"]["spec"]["template"]["spec"]
    elif "template" in spec:
        yield spec["template"]["spec"]


def test_commands_are_those_of_afterlog(objects: dict[str, list[Object]]) -> None:
    told = [row["spec"]["arguments"] for row in objects["spark-operator"] if row["kind"] == "SparkApplication"]
    for row in (*objects["schedule"], *objects["follow"]):
        for pod in pods(row):
            for container in pod["containers"]:
                told += [container["args"]] if "args" in container else []
                shell = container.get("command", ["", "", ""])[2]
                told += [shlex.split(line) for line in re.findall(r"afterlog ([^&]*)", shell)]
    assert {words[0] for words in told} == {"run", "report", "collect"}
    for words in told:
        group: Any = get_command(app)
        context = group.make_context("afterlog", list(words))
        name, command, rest = group.resolve_command(context, list(words))
        assert command is not None
        command.make_context(name, rest, parent=context)  # raises UsageError


def test_each_feed_has_a_job_as_often_as_its_dag_runs(objects: dict[str, list[Object]]) -> None:
    jobs = {row["metadata"]["name"]: row["spec"]["schedule"] for row in objects["schedule"] if row["kind"] == "CronJob"}
    assert jobs == {feed: importlib.import_module(f"dags.{feed}").dag.schedule for feed in FEEDS}


@pytest.mark.parametrize("way", WAYS)
def test_pods_can_do_little_and_hold_no_secret(objects: dict[str, list[Object]], way: str) -> None:
    assert "Secret" not in {row["kind"] for row in objects[way]}
    found = [pod for object_ in objects[way] for pod in pods(object_)]
    assert found
    for pod in found:
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            }
            assert {"/tmp", "/var/lib/afterlog", "/etc/afterlog", "/srv/landing"} == {
                mount["mountPath"] for mount in container["volumeMounts"]
            }
            assert "env" not in container


def test_probes_tell_a_follower_that_works_fails_or_hangs(objects: dict[str, list[Object]], tmp_path: Path) -> None:
    (deployment,) = (row for row in objects["follow"] if row["metadata"]["name"] == "follower")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    health = tmp_path / "follow.json"

    def passes(probe: str) -> bool:
        command = [word.replace("/tmp/follow.json", str(health)) for word in container[probe]["exec"]["command"]]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    arguments = [word.replace("/tmp/follow.json", str(health)) for word in container["args"]]
    arguments = ["0" if word == "9464" else word for word in arguments]
    variables = {
        **os.environ,
        "AFTERLOG_WAREHOUSE": str(tmp_path / "warehouse"),
        "AFTERLOG_LANDING": str(tmp_path / "landing"),
    }
    (tmp_path / "landing" / "dlq").mkdir(parents=True)
    assert (passes("livenessProbe"), passes("readinessProbe")) == (False, False)
    with following(arguments, variables):
        until(lambda: passes("readinessProbe"))
        assert passes("livenessProbe")
    os.utime(health, (0, 0))
    assert not passes("livenessProbe")
    kafka = {"bootstrap_servers": "127.0.0.1:9", "timeout_seconds": 1}
    away = {"AFTERLOG_DLQ__SOURCE": "kafka", "AFTERLOG_KAFKA": json.dumps(kafka)}
    with following(arguments, {**variables, **away}):
        until(lambda: passes("livenessProbe") and not passes("readinessProbe"))


@contextlib.contextmanager
def following(arguments: list[str], variables: Mapping[str, str]) -> Iterator[None]:
    process = subprocess.Popen([COMMAND, *arguments], cwd=ROOT, env=variables, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.2)
