"""A task's command in a pod: what KubernetesPodOperator asks the API for, and what comes back."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.sdk import Context

from dags.command import Ended, Unreachable
from dags.pods import PodCommand
from pipelines.settings.airflow import Pod
from tests.testing.kubernetes import Cluster, cluster

POD = Pod(image="registry.example.com/afterlog:0.1.0", namespace="afterlog")


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    (tmp_path / "bin").mkdir()
    with cluster(tmp_path, f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin") as (made, connection):
        monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", connection)
        yield made


def context() -> Context:
    pushed: dict[str, Any] = {}
    ti = SimpleNamespace(
        dag_id="dlq",
        task_id="silver",
        run_id="manual__2026-11-21",
        map_index=-1,
        try_number=1,
        xcom_push=lambda key, value: pushed.update({key: value}),
        pushed=pushed,
    )
    return cast(Context, {"ti": ti, "run_id": ti.run_id, "dag": SimpleNamespace(), "task_instance": ti})


def image(there: Cluster, text: str) -> None:
    """Let the image's command be a script."""
    command = there.directory / "bin" / "afterlog"
    command.write_text(f"#!/bin/sh\n{text}\n")
    command.chmod(0o755)


def ran(pod: Pod = POD, *arguments: str, **variables: str) -> Ended:
    return PodCommand(pod, arguments, variables, context()).run(print)


def test_output_log_and_exit_code_stay_apart(there: Cluster) -> None:
    image(there, r"""printf 'one\n\033[1mtwo\377\n' >&2; echo '{"tolerance": "'$AFTERLOG_TOLERANCE'"}'; exit 1""")
    assert ran(POD, "run", AFTERLOG_TOLERANCE="0.25") == Ended(1, '{"tolerance": "0.25"}', " [1mtwo\\xff")
    assert there.pods == {}
    image(there, "echo /var/lib/afterlog/reports/index.html")
    assert ran().answer == "/var/lib/afterlog/reports/index.html"
    image(there, "echo 'afterlog: There is no feed.' >&2; exit 2")
    assert ran() == Ended(2, "", "afterlog: There is no feed.")


def test_no_shell_reads_an_argument(there: Cluster) -> None:
    hostile = f"--accept=silver.dlq_records:a 'b\" $(touch {there.directory}/made) {{{{ x }}}} $(TERM) $$ ; \\"
    image(there, """printf '"%s"' "$#"; printf %s "$1" >&2""")
    assert ran(POD, hostile) == Ended(0, '"1"', hostile)
    assert not (there.directory / "made").exists()


def test_the_pod_has_what_the_settings_say(there: Cluster, tmp_path: Path) -> None:
    image(there, "exit 0")
    template = tmp_path / "pod.yaml"
    template.write_text(
        "apiVersion: v1\nkind: Pod\nspec:\n  tolerations: [{key: batch, operator: Exists}]\n  containers:\n"
        "    - name: base\n      volumeMounts: [{name: landing, mountPath: /srv/landing}]\n"
        "      resources: {requests: {memory: 3Gi}}\n"
        "  volumes: [{name: landing, persistentVolumeClaim: {claimName: landing}}]\n"
    )
    said = {"service_account": "tasks", "config_map": "settings", "secret": "keys", "template": str(template)}
    ran(POD.model_copy(update=said))
    (pod,) = there.asked
    spec = pod["spec"]
    base, beside = spec["containers"]
    assert (pod["metadata"]["namespace"], spec["serviceAccountName"], base["image"]) == ("afterlog", "tasks", POD.image)
    assert base["envFrom"] == [{"secretRef": {"name": "keys"}}]
    assert base["resources"] == {"requests": {"memory": "3Gi"}}
    assert spec["tolerations"] == [{"key": "batch", "operator": "Exists"}]
    mounts = {mount["mountPath"]: mount["name"] for mount in base["volumeMounts"]}
    volumes = {volume.pop("name"): volume for volume in spec["volumes"]}
    assert volumes[mounts["/etc/afterlog"]] == {"configMap": {"name": "settings"}}
    assert {volumes[mounts[path]].popitem()[0] for path in ("/tmp", "/var/lib/afterlog", "/airflow/xcom")} == {
        "emptyDir"
    }
    assert "/srv/landing" in mounts
    for container in (base, beside):
        security = container["securityContext"]
        assert (security["runAsNonRoot"], security["readOnlyRootFilesystem"]) == (True, True)
        assert (security["allowPrivilegeEscalation"], security["capabilities"]) == (False, {"drop": ["ALL"]})


def test_a_command_that_is_killed_ends_with_its_pod(there: Cluster) -> None:
    image(there, f"trap 'echo ended >{there.directory}/ended; exit' TERM; echo begun >&2; sleep 60 & wait")
    command = PodCommand(POD, ["run"], {}, context())
    threading.Timer(2, command.kill).start()
    with pytest.raises(Unreachable, match="The pod"):
        command.run(print)
    (process,) = there.processes.values()
    process.wait(timeout=10)
    assert (there.directory / "ended").exists()


def test_a_cluster_that_refuses_the_pod_says_so(there: Cluster) -> None:
    there.refuses = "no quota"
    with pytest.raises(Unreachable, match="The pod did not run to its end: 403 Forbidden"):
        ran()
