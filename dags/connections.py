"""Airflow connection -> settings of a cluster: its extra holds keys of Kafka's clients, as in ``kafka_default``.

No provider is needed, not even Kafka's: a connection of type ``generic`` works as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr, ValidationError

from pipelines.errors import UsageError
from pipelines.settings import Kafka, first_mistake

# Keys of librdkafka and of Kafka's Java clients that have a setting of ours.
_SETTINGS = {
    "metadata.broker.list": "bootstrap_servers",
    "bootstrap.servers": "bootstrap_servers",
    "security.protocol": "security_protocol",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.username": "username",
    "sasl.password": "password",
    "ssl.ca.location": "ca_file",
    "ssl.certificate.location": "certificate_file",
    "ssl.key.location": "key_file",
}
# Keys of librdkafka that hold the text of a file -> the names in the Java clients.
_TEXTS = {
    "ssl.ca.pem": ("ssl.truststore.type", "ssl.truststore.certificates"),
    "ssl.certificate.pem": ("ssl.keystore.type", "ssl.keystore.certificate.chain"),
    "ssl.key.pem": ("ssl.keystore.type", "ssl.keystore.key"),
}
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_OPTION = re.compile(r"(ssl|sasl|client|connections|reconnect|retry|fetch|socket\.connection)\.[a-z0-9.]+")
_SECRET = re.compile(r"password|secret|token|jaas|certificate|keystore\.key")
_HARMLESS = 4  # masking a shorter secret would hide its text everywhere in the log


@dataclass(frozen=True)
class Cluster:
    """The settings of a cluster, secrets included, and the keys that were left out."""

    kafka: Kafka
    left_out: tuple[str, ...]

    def environment(self, variable: str = "AFTERLOG_KAFKA") -> dict[str, str]:
        """Return the environment variable that gives exactly these settings to a process.

        That of one of several clusters gives all keys, as each that it left out would come from ``[kafka]``.
        """
        is_whole = variable != "AFTERLOG_KAFKA"
        return {variable: json.dumps(_plain(self.kafka.model_dump(exclude_defaults=not is_whole)))}

    def secrets(self) -> list[str]:
        """Return the texts that no log may show."""
        held = [self.kafka.password, self.kafka.key_password]
        held += [value for name, value in self.kafka.options.items() if _SECRET.search(name)]
        texts = (secret.get_secret_value() for secret in held if secret is not None)
        return [text for text in texts if len(text) >= _HARMLESS]


def named(connection_id: str) -> Cluster:
    """Return the cluster of a connection, and let Airflow mask its secrets in the task's log.

    Raises UsageError: there is no such connection, or it cannot be used.
    """
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException
    from airflow.sdk.log import mask_secret

    try:
        connection = BaseHook.get_connection(connection_id)
    except AirflowNotFoundException:
        raise UsageError(
            f"There is no Airflow connection {connection_id}: add it, or name another one as kafka_connection."
        ) from None
    try:
        extra = json.loads(connection.extra or "{}")
    except ValueError:
        raise UsageError(f"The Airflow connection {connection_id} cannot be used: its extra is no JSON.") from None
    cluster = cluster_of(connection_id, extra, connection.host, connection.port, connection.login, connection.password)
    for secret in cluster.secrets():
        mask_secret(secret)
    return cluster


def cluster_of(
    connection_id: str,
    extra: object,
    host: str | None = None,
    port: int | None = None,
    login: str | None = None,
    password: str | None = None,
) -> Cluster:
    """Return the cluster of a connection's extra; host, port, login and password fill what the extra lacks.

    Keys that concern only a consumer of the user's own, such as ``group.id``, are left out.

    Raises UsageError: it cannot be used; the message quotes no value.
    """
    unusable = f"The Airflow connection {connection_id} cannot be used"
    if not isinstance(extra, dict):
        raise UsageError(f"{unusable}: its extra is no JSON object.")
    given = {name.strip(): _text(value) for name, value in extra.items() if value is not None}
    if nested := sorted(name for name, text in given.items() if text is None):
        raise UsageError(f"{unusable}: {nested[0]} in its extra is neither text nor a number.")
    texts = {name: text for name, text in given.items() if text is not None}
    if texts.pop("enable.ssl.certificate.verification", "true").lower() in ("false", "f", "0"):
        raise UsageError(f"{unusable}: Afterlog checks certificates; name their authority in ssl.ca.location instead.")
    values: dict[str, Any] = {}
    options: dict[str, str] = {}
    left_out = []
    for name, text in texts.items():
        if setting := _SETTINGS.get(name):
            values[setting] = text
        elif java := _TEXTS.get(name):
            options |= {java[0]: "PEM", java[1]: text}
        elif name == "ssl.endpoint.identification.algorithm":
            options[name] = "" if text.lower() == "none" else text
        elif _OPTION.fullmatch(name):
            options[name] = text
        else:
            left_out.append(name)
    if host and "bootstrap_servers" not in values:
        values["bootstrap_servers"] = f"{host}:{port}" if port else host
    if not values.get("bootstrap_servers"):
        raise UsageError(f"{unusable}: its extra names no bootstrap.servers.")
    values["security_protocol"] = values.get("security_protocol", "PLAINTEXT").upper()
    mechanism = values.pop("sasl_mechanism", "").upper()
    if values["security_protocol"].startswith("SASL_"):
        if not mechanism:
            raise UsageError(f"{unusable}: its extra names no sasl.mechanism.")
        values = {"username": login, "password": password} | values
        if mechanism not in _MECHANISMS or "sasl.jaas.config" in options:
            options["sasl.mechanism"] = mechanism
        elif values["username"] and values["password"]:
            values["sasl_mechanism"] = mechanism
        else:
            raise UsageError(f"{unusable}: {mechanism} needs sasl.username and sasl.password in its extra.")
    if "key_file" in values and "ssl.key.password" in options:
        values["key_password"] = options.pop("ssl.key.password")
    try:
        kafka = Kafka.model_validate({name: value for name, value in values.items() if value} | {"options": options})
    except ValidationError as error:
        raise UsageError(f"{unusable}: {first_mistake(error)}") from None
    return Cluster(kafka, tuple(sorted(left_out)))


def _text(value: object) -> str | None:
    """Return a JSON value as Kafka's clients take it, or None if they cannot take it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (str, int, float)) else None


def _plain(value: Any) -> Any:
    """Return settings with readable secrets."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return {name: _plain(member) for name, member in value.items()} if isinstance(value, Mapping) else value
