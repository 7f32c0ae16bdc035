"""Errors of Kafka's Java clients -> one sentence that says what to do.

A client's message can quote settings, so nothing of it is shown but names of topics and settings.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

from pipelines.errors import AfterlogError, EnvironmentLacking, UsageError
from pipelines.kafka import listeners
from pipelines.kafka.records import GROUP_PREFIX
from pipelines.settings import Kafka
from pipelines.text import first_names

MOST_NAMES = 5


class NoTopics(UsageError):
    """The cluster lists no wanted topic: somebody can still create one, or grant access."""


class Refused(UsageError):
    """ACLs forbid Afterlog to read some of the wanted topics; the others are read."""


class Changed(Exception):
    """A topic was deleted or created again between the plan and the read."""


def is_kafkas(error: Exception) -> bool:
    """Tell whether Kafka's clients or Spark's Kafka source failed, and not the machine."""
    text = str(error)
    machine_failed = "OutOfMemoryError" in text or "No space left on device" in text
    return not machine_failed and ("org.apache.kafka." in text or "org.apache.spark.sql.kafka010" in text)


def sentence_of(error: Exception, kafka: Kafka) -> AfterlogError:
    """Return one sentence for an error of Kafka's clients, raised here or in a task of Spark."""
    classes, text = kinds(error), _java_text(error)
    servers = kafka.bootstrap_servers
    if "TopicAuthorizationException" in classes:
        names = re.search(r"Not authorized to access topics: \[([\w., -]+)\]", text)
        topics = named(sorted(names[1].split(", "))) if names else "the topics"
        return UsageError(f"Afterlog is not allowed to see {topics}: grant it the operations Describe and Read there.")
    if "GroupAuthorizationException" in classes:
        return UsageError(
            "Afterlog is not allowed to read with its consumer group: grant it the operation Read on groups that begin "
            f"with {GROUP_PREFIX}."
        )
    if "ClusterAuthorizationException" in classes:
        return describing_refused(kafka)
    if classes & {"UnsupportedSaslMechanismException", "IllegalSaslStateException"}:
        return probed(kafka) or UsageError(
            f"The brokers at {servers} do not speak {kafka.security_protocol} with {kafka.sasl_mechanism}: fix "
            "security_protocol or sasl_mechanism under [kafka]."
        )
    if "SaslAuthenticationException" in classes:
        return user_refused(kafka)
    if "SslAuthenticationException" in classes:
        return probed(kafka) or tls_failed(kafka, text)
    if "UnsupportedVersionException" in classes:
        return EnvironmentLacking(f"The brokers at {servers} are too old for Afterlog: it reads from Kafka 2.8 on.")
    if damaged := re.search(r"fetching the next record from ([a-zA-Z0-9._-]+)-([0-9]+)\.", text):
        return EnvironmentLacking(
            f"A record of topic {damaged[1]}, partition {damaged[2]}, is damaged at its broker, so that nothing behind "
            "it can be read: repair the broker's log, or delete the records up to it."
        )
    if "No resolvable bootstrap urls" in text or "Couldn't resolve server" in text:
        return EnvironmentLacking(f"No host of bootstrap_servers can be resolved ({servers}): fix it under [kafka].")
    if (
        classes & {"ConfigException", "InvalidConfigurationException"}
        or "Failed to create new KafkaAdminClient" in text
    ):
        setting = re.search(r"for configuration ([a-z.]+)", text)
        which = f" ({setting[1]})" if setting else ""
        return UsageError(f"Kafka's client cannot use the settings of [kafka]{which}: fix them.")
    return probed(kafka) or unanswered(kafka, kafka.timeout_seconds)


def describing_refused(kafka: Kafka) -> UsageError:
    """Return the sentence about brokers that do not let Afterlog describe the cluster."""
    return UsageError(
        f"Afterlog is not allowed to describe the cluster at {kafka.bootstrap_servers}: grant it the operation "
        "Describe."
    )


def user_refused(kafka: Kafka) -> UsageError:
    """Return the sentence about brokers that do not know the user or the password."""
    return UsageError(
        f"The brokers at {kafka.bootstrap_servers} refuse the user of [kafka] ({kafka.sasl_mechanism or 'SASL'}): "
        "fix username and password."
    )


def tls_failed(kafka: Kafka, text: str) -> UsageError:
    """Return the sentence about TLS that failed, as the ``text`` of Java or OpenSSL tells it."""
    return UsageError(f"TLS with the brokers at {kafka.bootstrap_servers} fails: {_tls_reason(text)}.")


def unanswered(kafka: Kafka, seconds: float) -> EnvironmentLacking:
    """Return the sentence about brokers that can be reached and do not answer in time."""
    return EnvironmentLacking(
        f"The brokers at {kafka.bootstrap_servers} answer, but not within {seconds:g} s: check that this machine "
        "reaches the addresses that they advertise, or raise timeout_seconds of [kafka]."
    )


def probed(kafka: Kafka) -> AfterlogError | None:
    """Ask the bootstrap servers over plain sockets what is wrong; return None if the first that answers is as set.

    Kafka's clients report a wrong protocol, a closed port and a slow broker as the same timeout.
    """
    wait = min(5.0, kafka.timeout_seconds)
    away = []
    for host, port in kafka.addresses:
        address = f"{host}:{port}"
        try:
            listener = listeners.listener(host, port, wait)
        except OSError as error:
            away.append(f"{address}: {_reason(error)}")
            continue
        if not listener.is_kafka:
            return EnvironmentLacking(f"What listens at {address} is no Kafka broker: fix bootstrap_servers.")
        if listener.protocol and listener.protocol != kafka.security_protocol:
            return UsageError(
                f"{address} speaks {listener.protocol}, but security_protocol of [kafka] is {kafka.security_protocol}: "
                f"set it to {listener.protocol}."
            )
        if listener.tls != kafka.security_protocol.endswith("SSL"):
            spoken = "speaks TLS" if listener.tls else "does not speak TLS"
            return UsageError(f"{address} {spoken}, but security_protocol of [kafka] is {kafka.security_protocol}.")
        if listener.mechanisms and kafka.sasl_mechanism and kafka.sasl_mechanism not in listener.mechanisms:
            return UsageError(
                f"{address} does not offer {kafka.sasl_mechanism}: set sasl_mechanism of [kafka] to one of "
                f"{', '.join(listener.mechanisms)}."
            )
        return None
    return EnvironmentLacking(
        f"No broker can be reached ({'; '.join(away)}): start it, or fix bootstrap_servers of [kafka]."
    )


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer"
    return (error.strerror or type(error).__name__).lower()


def _tls_reason(text: str) -> str:
    if "PKIX" in text or "unable to find valid certification path" in text:
        return "this machine does not know the authority that signed their certificate; name it in ca_file of [kafka]"
    if re.search(r"No subject alternative|No name matching", text):
        return "their certificate is for another host name; use that one in bootstrap_servers"
    if "certificate verify failed" in text or "verification failed" in text:  # OpenSSL does not tell which
        return (
            "their certificate is for another host name, or this machine does not know the authority that signed it; "
            "name the authority in ca_file of [kafka]"
        )
    if re.search(r"(?:alert|bad)[ _]certificate|certificate[ _](?:required|unknown)|handshake[ _]failure", text):
        return "they want a client certificate that they know; set certificate_file and key_file of [kafka]"
    return "the two sides do not agree; look at the certificates and at security_protocol"


def kinds(error: BaseException) -> set[str]:
    """Return the class names of Kafka's exceptions among an error's causes.

    They are read from its text: an error of a Spark task carries its causes as text only.
    """
    return set(re.findall(r"org\.apache\.kafka\.(?:[a-z]+\.)+(\w+Exception)\b", _java_text(error)))


def _java_text(error: BaseException) -> str:
    """Return the text of a Java error and its causes; it can quote secrets, so do not show it."""
    throwable = getattr(error, "java_exception", None)
    if throwable is None:
        return str(error)
    texts: list[str] = []
    while throwable is not None and len(texts) < 12:
        texts.append(str(throwable.toString()))
        throwable = throwable.getCause()
    return "\n".join(texts)


@contextlib.contextmanager
def as_sentence(kafka: Kafka) -> Iterator[None]:
    """Turn a Java exception into an AfterlogError with one sentence."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        yield
    except Py4JError as error:
        raise sentence_of(error, kafka) from None


def named(names: Sequence[str]) -> str:
    """Return "topic a", or "topics a, b and 3 more" with at most MOST_NAMES names."""
    return f"topic{'' if len(names) == 1 else 's'} {first_names(names, MOST_NAMES)}"
