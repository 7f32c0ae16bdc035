"""Settings of a cluster -> properties of clients of librdkafka."""

from __future__ import annotations

import logging
import os
import re
from typing import Any

from pipelines.errors import UsageError
from pipelines.kafka import properties as java
from pipelines.settings import Kafka, located

# librdkafka would print on standard error what the error callback tells, too, and more than that.
_UNHEARD = logging.getLogger("afterlog.librdkafka")
_UNHEARD.addHandler(logging.NullHandler())
_UNHEARD.propagate = False

NAMES = {
    **{
        name: name
        for name in (
            *("bootstrap.servers", "security.protocol", "client.id", "client.rack", "metadata.max.age.ms"),
            *("reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms", "retry.backoff.max.ms"),
            *("connections.max.idle.ms", "socket.connection.setup.timeout.ms", "sasl.mechanism", "ssl.key.password"),
        )
    },
    "request.timeout.ms": "socket.timeout.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
}
"""Properties of Kafka's Java clients that librdkafka has too, and their names there."""

OF_CONSUMERS = {
    "check.crcs": "check.crcs",
    "fetch.min.bytes": "fetch.min.bytes",
    "fetch.max.bytes": "fetch.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "max.partition.fetch.bytes",
}
"""Those that only consumers have."""

_TIMEOUT = "default.api.timeout.ms"  # a client of librdkafka has no such property: Answers waits so long
_PEM = {
    "ssl.truststore.certificates": ("ssl.ca.pem", "ca_file"),
    "ssl.keystore.certificate.chain": ("ssl.certificate.pem", "certificate_file and key_file"),
    "ssl.keystore.key": ("ssl.key.pem", "certificate_file and key_file"),
}
_STORES = ("ssl.truststore.type", "ssl.truststore.location", "ssl.keystore.type", "ssl.keystore.location")
_JAAS = re.compile(
    r"\s*org\.apache\.kafka\.common\.security\.(?:plain\.Plain|scram\.Scram)LoginModule\s+required\b(.*);\s*", re.DOTALL
)
_JAAS_VALUE = re.compile(r'\s*(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


def properties(kafka: Kafka, *, of_consumer: bool = False) -> dict[str, Any]:
    """Return the properties of librdkafka's clients, with secrets: do not print them.

    Raises UsageError: a file cannot be read, a secret is missing, or an option has no equivalent in librdkafka.
    """
    wanted = java.properties(kafka)
    options: dict[str, Any] = {
        "client.id": "afterlog",
        "logger": _UNHEARD,
    }
    options |= _tls(kafka, wanted)
    login, known = wanted.pop("sasl.jaas.config", None), java.credentials(kafka)
    if known is not None:
        options |= dict(zip(("sasl.username", "sasl.password"), known, strict=True))
    elif login is not None:
        options |= _login(login)
    algorithm = wanted.pop("ssl.endpoint.identification.algorithm", None)
    if algorithm is not None:
        options["ssl.endpoint.identification.algorithm"] = algorithm or "none"
    wanted.pop(_TIMEOUT, None)
    for name, value in wanted.items():
        if name in OF_CONSUMERS:
            options |= {OF_CONSUMERS[name]: value} if of_consumer else {}
        elif name in NAMES:
            options[NAMES[name]] = value
        else:
            raise _refused(name)
    return options


def timeout_of(kafka: Kafka) -> float:
    """Return how many seconds a request may take."""
    text = java.properties(kafka)[_TIMEOUT]
    return int(text) / 1000 if text.isdigit() else kafka.timeout_seconds


def _refused(name: str, why: str = "") -> UsageError:
    return UsageError(
        f"Replays cannot use the option {name} of [kafka], which their client (librdkafka) does not have"
        f"{why or ': set what it sets in the other keys of [kafka], or leave it out'}."
    )


def _tls(kafka: Kafka, wanted: dict[str, str]) -> dict[str, Any]:
    """Take the properties of certificates out of Java's and return librdkafka's."""
    options: dict[str, Any] = {}
    given = {name: value.get_secret_value() for name, value in kafka.options.items()}
    if kafka.ca_file is not None and "ssl.truststore.certificates" in wanted:
        options["ssl.ca.location"] = os.fspath(located(kafka.ca_file))
    if kafka.certificate_file is not None and "ssl.keystore.certificate.chain" in wanted:
        options["ssl.certificate.location"] = os.fspath(located(kafka.certificate_file))
    for name, (own, key) in _PEM.items():
        text = wanted.pop(name, None)
        if text is None or (name not in given and name != "ssl.keystore.key"):
            continue
        if text.count("-----BEGIN CERTIFICATE-----") > 1:
            raise _refused(name, f" for several certificates: name their file in {key}")
        options.pop(own.replace(".pem", ".location"), None)
        options[own] = text
    truststore, where, keystore, whose = (wanted.pop(name, None) for name in _STORES)
    if where is not None:
        if (truststore or "JKS").upper() != "PEM":
            raise _refused("ssl.truststore.location", " for other types than PEM: name a PEM file in ca_file")
        options["ssl.ca.location"] = where
    if whose is not None:
        kind = (keystore or "JKS").upper()
        if kind == "PKCS12":
            options |= {
                "ssl.keystore.location": whose,
                "ssl.keystore.password": wanted.pop("ssl.keystore.password", ""),
            }
        elif kind == "PEM":
            options |= {"ssl.certificate.location": whose, "ssl.key.location": whose}
        else:
            raise _refused(
                "ssl.keystore.location",
                " for other types than PEM and PKCS12: name PEM files in certificate_file and key_file",
            )
    return options


def _login(text: str) -> dict[str, str]:
    """Return the user and password of a JAAS login entry that a user wrote."""
    module = _JAAS.fullmatch(text)
    values = dict(_JAAS_VALUE.findall(module[1])) if module else {}
    if not module or set(values) != {"username", "password"} or _JAAS_VALUE.sub("", module[1]).strip():
        raise _refused("sasl.jaas.config", " for other logins than PLAIN and SCRAM: set username and password")
    return {
        f"sasl.{name}": re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), value, flags=re.DOTALL)
        for name, value in values.items()
    }
