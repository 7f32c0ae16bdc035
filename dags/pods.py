"""Run the command line in a pod, by Airflow's KubernetesPodOperator: its last line of output comes through the XCom.

docs/decisions/0080-run-tasks-elsewhere-by-the-same-operators.md says why tasks are not such operators themselves.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException
from kubernetes.client import ApiException  # type: ignore[import-untyped]
from kubernetes.client import models as k8s

from dags.command import TOLD_PLAINLY, Ended, Unreachable, last_line, printable
from pipelines.settings.airflow import Pod

USER = 10001  # of the image, and of the container beside it, which hands the output over
START_SECONDS = 600  # a node that is to come, and an image that is to be pulled
GRACE_SECONDS = 20
_COMMAND = 'exec "$0" "$@" >/airflow/xcom/return.json'  # the command gets the signals of its container
_WRITABLE = {"tmp": "/tmp", "work": "/var/lib/afterlog"}
_CONTAINER = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


class PodCommand:
    """One run of the command line in a pod of its own, which is deleted when the task ends."""

    def __init__(self, pod: Pod, arguments: Sequence[str], variables: Mapping[str, str], context: Context) -> None:
        """Take the arguments after the program's name, and variables, which the pod's description shows."""
        self.argv = ["afterlog", *arguments]
        self._context = context
        self.operator = _Operator(
            task_id=context["ti"].task_id,
            name=f"afterlog-{context['ti'].task_id}",
            kubernetes_conn_id=pod.connection,
            namespace=pod.namespace,
            image=pod.image,
            service_account_name=pod.service_account,
            pod_template_file=pod.template,
            labels={"app.kubernetes.io/name": "afterlog"},
            cmds=["/bin/sh", "-c", _COMMAND],
            arguments=[word.replace("$", "$$") for word in self.argv],  # Kubernetes expands $(NAME)
            env_vars={**TOLD_PLAINLY, **variables},
            env_from=[k8s.V1EnvFromSource(secret_ref=k8s.V1SecretEnvSource(name=pod.secret))] if pod.secret else [],
            volumes=_volumes(pod),
            volume_mounts=_mounts(pod),
            container_security_context=_CONTAINER,
            xcom_sidecar_container_security_context={**_CONTAINER, "runAsUser": USER},
            startup_timeout_seconds=START_SECONDS,
            termination_grace_period=GRACE_SECONDS,
            do_xcom_push=True,
            log_pod_spec_on_failure=False,
        )

    def run(self, _log: Callable[[str], None]) -> Ended:
        """Run the command to its end; the operator passes on each line of its log as it comes.

        Raises Unreachable: the pod did not run to its end, or its output cannot be had.
        """
        operator = self.operator
        try:
            operator.execute_sync(self._context)
        except (AirflowException, ApiException, OSError) as error:
            raise Unreachable(f"The pod did not run to its end: {_in_one_line(error)}") from None
        if operator.code is None:
            raise Unreachable("The pod ended before the command did: it was deleted, or its node went away.")
        return Ended(operator.code, last_line(operator.answer.encode()), operator.complaint)

    def kill(self) -> None:
        """Delete the pod, which ends the command."""
        self.operator.on_kill()


class _Operator(KubernetesPodOperator):
    """Tells how the command ended, where Airflow's operator would fail, and takes output that is no JSON."""

    def __init__(self, **options: Any) -> None:
        super().__init__(log_formatter=self._told, **options)
        self.code: int | None = None
        self.answer = ""
        self.complaint = ""

    def extract_xcom(self, pod: k8s.V1Pod, **options: Any) -> None:
        """Take the output, as it is."""
        try:
            found = super().extract_xcom(pod, **options)
        except json.JSONDecodeError as error:  # such as the path of a report
            self.answer = error.doc
        else:
            self.answer = "" if found is None else json.dumps(found)

    def cleanup(
        self, pod: k8s.V1Pod, remote_pod: k8s.V1Pod, xcom_result: object = None, context: Context | None = None
    ) -> None:
        """Take the exit code and delete the pod."""
        statuses = (remote_pod.status.container_statuses if remote_pod and remote_pod.status else None) or ()
        for status in statuses:
            if status.name == self.base_container_name and status.state and status.state.terminated:
                self.code = status.state.terminated.exit_code
        with contextlib.suppress(AirflowException):
            super().cleanup(pod, remote_pod, None, context)

    def _told(self, _container: str, line: str) -> str:
        if text := printable(line).rstrip():
            self.complaint = text
        return text


def _volumes(pod: Pod) -> list[k8s.V1Volume]:
    volumes = [k8s.V1Volume(name=name, empty_dir=k8s.V1EmptyDirVolumeSource()) for name in _WRITABLE]
    if pod.config_map:
        source = k8s.V1ConfigMapVolumeSource(name=pod.config_map)
        volumes.append(k8s.V1Volume(name="settings", config_map=source))
    return volumes


def _mounts(pod: Pod) -> list[k8s.V1VolumeMount]:
    mounts = [k8s.V1VolumeMount(name=name, mount_path=path) for name, path in _WRITABLE.items()]
    if pod.config_map:
        mounts.append(k8s.V1VolumeMount(name="settings", mount_path="/etc/afterlog", read_only=True))
    return mounts


def _in_one_line(error: Exception) -> str:
    """Return what an error says; an answer of the API has its headers and body in further lines, which are left out."""
    text = f"{error.status} {error.reason}" if isinstance(error, ApiException) else str(error).partition("\n")[0]
    return printable(text)
