"""Settings of an Airflow that exists: where its tasks run the command, if not beside its workers."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from pipelines.settings.section import Section

Name = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
"""The name of an object of Kubernetes."""
Connection = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,200}$")]


class Pod(Section):
    """The pod of a task, which KubernetesPodOperator starts in the cluster of an Airflow ``connection``.

    ``config_map`` has the settings, as its key ``afterlog.toml``; the keys of ``secret`` become environment variables.
    ``template`` is a file of the worker with a pod in YAML, for everything else.
    """

    image: Annotated[str, Field(min_length=1)]
    namespace: Name
    service_account: Name | None = None
    config_map: Name | None = None
    secret: Name | None = None
    connection: Connection = "kubernetes_default"
    template: Annotated[str, Field(min_length=1)] | None = None


class Ssh(Section):
    """The host of an Airflow ``connection``: its ``command``, with arguments if it has any, starts in ``directory``."""

    connection: Connection
    command: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$")] = "afterlog"
    directory: Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$")] | None = None


class Airflow(Section):
    """Where tasks run the command: in a ``pod``, on another host over ``ssh``, or beside the worker."""

    pod: Pod | None = None
    ssh: Ssh | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if self.pod and self.ssh:
            raise ValueError("tasks run in a pod or on another host: leave out one of [airflow.pod] and [airflow.ssh]")
        return self
