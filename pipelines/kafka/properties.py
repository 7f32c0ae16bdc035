"""Settings -> the properties of Kafka's Java clients."""

from __future__ import annotations

from pipelines.errors import UsageError
from pipelines.settings import Kafka, located
from pipelines.settings.files import text_of

_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def properties(kafka: Kafka) -> dict[str, str]:
    """Return the properties of Kafka's Java clients, with secrets: do not print them.

    Spark reads records with the same properties as the admin client asks with.

    Raises UsageError: a file cannot be read, or a secret is missing.
    """
    millis = str(round(kafka.timeout_seconds * 1000))
    found = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": kafka.security_protocol,
        "default.api.timeout.ms": millis,
        "request.timeout.ms": millis,
    }
    options = {name: value.get_secret_value() for name, value in kafka.options.items()}
    if kafka.security_protocol.startswith("SASL_"):
        if kafka.sasl_mechanism is not None:
            found["sasl.mechanism"] = kafka.sasl_mechanism
        if (known := credentials(kafka)) is not None and kafka.sasl_mechanism is not None:
            found["sasl.jaas.config"] = login(kafka.sasl_mechanism, *known)
    if kafka.security_protocol.endswith("SSL"):
        found |= _tls(kafka)
    return found | options


def credentials(kafka: Kafka) -> tuple[str, str] | None:
    """Return the user and the password of the settings' login; None if there is none, or if ``options`` have their own.

    Raises UsageError: a part of the login is missing, or the file with the password cannot be read.
    """
    if not kafka.security_protocol.startswith("SASL_") or "sasl.jaas.config" in kafka.options:
        return None
    if kafka.sasl_mechanism is None:
        if "sasl.mechanism" in kafka.options:
            return None
        raise UsageError(f"security_protocol is {kafka.security_protocol}: set sasl_mechanism under [kafka].")
    password = _password(kafka)
    if kafka.username is None or password is None:
        raise UsageError(
            f"sasl_mechanism {kafka.sasl_mechanism} needs username and password: set them under [kafka], the password "
            "in AFTERLOG_KAFKA__PASSWORD or in a file that password_file names."
        )
    return kafka.username, password


def login(mechanism: str, username: str, password: str) -> str:
    """Return a JAAS login entry for a user; it contains the password."""
    return f"{_LOGIN_MODULES[mechanism]} required username={_quoted(username)} password={_quoted(password)};"


def _password(kafka: Kafka) -> str | None:
    if kafka.password_file is not None:
        return text_of(located(kafka.password_file), "password_file of [kafka]").rstrip("\r\n")
    return kafka.password.get_secret_value() if kafka.password is not None else None


def _quoted(text: str) -> str:
    """Quote a value for JAAS, whose tokenizer knows the escapes of C."""
    for character, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(character, escape)
    return f'"{text}"'


def _tls(kafka: Kafka) -> dict[str, str]:
    found: dict[str, str] = {}
    if kafka.ca_file is not None:
        authorities = text_of(located(kafka.ca_file), "ca_file of [kafka]")
        if "-----BEGIN CERTIFICATE-----" not in authorities:
            raise UsageError(f"ca_file of [kafka] cannot be used: there is no PEM certificate in {kafka.ca_file}.")
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities}
    if kafka.certificate_file is not None and kafka.key_file is not None:
        chain = text_of(located(kafka.certificate_file), "certificate_file of [kafka]")
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": _key(kafka)}
    return found


def _key(kafka: Kafka) -> str:
    """Return the private key in PKCS #8 without a password; Kafka reads no other form of PEM key."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    password = kafka.key_password.get_secret_value().encode() if kafka.key_password is not None else None
    try:
        key = load_pem_private_key(text_of(located(kafka.key_file or ""), "key_file of [kafka]").encode(), password)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise UsageError(
            f"key_file of [kafka] cannot be used: {kafka.key_file} is no private key in PEM, or key_password is wrong."
        ) from None
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
