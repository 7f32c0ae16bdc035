"""The clients' properties, and one sentence for each defect of a cluster, tested over real sockets."""

from __future__ import annotations

import contextlib
import datetime
import re
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from pipelines.errors import AfterlogError, EnvironmentLacking, UsageError
from pipelines.jvm import small
from pipelines.kafka import listeners
from pipelines.kafka.cluster import connected
from pipelines.kafka.errors import is_kafkas, sentence_of
from pipelines.kafka.offsets import TopicProgress
from pipelines.kafka.properties import properties
from pipelines.settings import Kafka

SECRET = 'canary "5d41402abc4b\\'
ERRORS = "org.apache.kafka.common.errors"


def settings(**values: Any) -> Kafka:
    return Kafka.model_validate({"bootstrap_servers": "127.0.0.1:1", "timeout_seconds": 1, **values})


# Properties


def test_properties_of_a_plain_cluster() -> None:
    assert properties(settings(timeout_seconds=2.5, options={"client.id": "me"})) == {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "PLAINTEXT",
        "default.api.timeout.ms": "2500",
        "request.timeout.ms": "2500",
        "client.id": "me",
    }


@pytest.mark.parametrize("by_file", [False, True], ids=["setting", "file"])
def test_a_password_is_quoted_as_java_reads_it(tmp_path: Path, by_file: bool) -> None:
    (tmp_path / "password").write_text(SECRET + "\n")
    password = {"password_file": str(tmp_path / "password")} if by_file else {"password": SECRET}
    found = properties(
        settings(security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-512", username="me", **password)
    )
    assert found["sasl.mechanism"] == "SCRAM-SHA-512"
    assert found["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="me" password="canary \\"5d41402abc4b\\\\";'
    )


def test_options_may_bring_their_own_login() -> None:
    options = {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": "a module required;"}
    found = properties(settings(security_protocol="SASL_SSL", options=options))
    assert options.items() <= found.items()


def test_certificates_are_given_as_text_and_the_key_without_its_password(tmp_path: Path) -> None:
    certificate, key = certified()
    (tmp_path / "ca.pem").write_bytes(certificate)
    private = load_pem_private_key(key, None)
    encrypted = private.private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(SECRET.encode())
    )
    (tmp_path / "key.pem").write_bytes(encrypted)
    places = {"ca_file": "ca.pem", "certificate_file": "ca.pem", "key_file": "key.pem"}
    found = properties(
        settings(
            security_protocol="SSL",
            key_password=SECRET,
            **{name: str(tmp_path / place) for name, place in places.items()},
        )
    )
    assert found["ssl.truststore.certificates"] == found["ssl.keystore.certificate.chain"] == certificate.decode()
    assert (found["ssl.truststore.type"], found["ssl.keystore.type"]) == ("PEM", "PEM")
    assert found["ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY-----")
    assert load_pem_private_key(found["ssl.keystore.key"].encode(), None)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        pytest.param({}, "security_protocol is SASL_SSL: set sasl_mechanism under [kafka].", id="no mechanism"),
        pytest.param({"sasl_mechanism": "PLAIN", "username": "me"}, "needs username and password", id="no password"),
        pytest.param(
            {"sasl_mechanism": "PLAIN", "username": "me", "password_file": "/nowhere/at/all"},
            "password_file of [kafka] cannot be read: /nowhere/at/all: No such file or directory.",
            id="no password file",
        ),
        pytest.param({"security_protocol": "SSL", "ca_file": __file__}, "there is no PEM certificate in", id="no ca"),
        pytest.param(
            {"security_protocol": "SSL", "certificate_file": __file__, "key_file": __file__},
            "is no private key in PEM, or key_password is wrong.",
            id="no key",
        ),
    ],
)
def test_what_is_missing_is_said_in_a_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        properties(settings(**{"security_protocol": "SASL_SSL", **values}))


# Listeners at an address


def certified() -> tuple[bytes, bytes]:
    """A self-signed certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def broker_says(error: int, *mechanisms: str) -> bytes:
    """Return a broker's response to a SASL handshake."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in mechanisms)
    body = struct.pack(">ihi", 7, error, len(mechanisms)) + names
    return struct.pack(">i", len(body)) + body


NO_SASL = broker_says(34)
SCRAM = broker_says(33, "SCRAM-SHA-256", "SCRAM-SHA-512")


@contextlib.contextmanager
def listening(answer: bytes, tls: Path | None = None) -> Iterator[int]:
    """Listen on a port and give every connection the same answer; ``tls`` is a directory for keys."""
    context = None
    if tls:
        certificate, key = certified()
        (tls / "both.pem").write_bytes(certificate + key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls / "both.pem")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        ended = threading.Event()

        def serve() -> None:
            while not ended.is_set():
                with contextlib.suppress(OSError):
                    taken, _ = server.accept()
                    taken.settimeout(2)
                    with context.wrap_socket(taken, server_side=True) if context else taken as connection:
                        if connection.recv(1024) and answer:
                            connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            ended.set()
            thread.join()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(
    ("answer", "sasl", "mechanisms"),
    [
        pytest.param(NO_SASL, "", (), id="no sasl"),
        pytest.param(SCRAM, "SASL_", ("SCRAM-SHA-256", "SCRAM-SHA-512"), id="sasl"),
    ],
)
def test_a_listener_tells_its_protocol(
    tmp_path: Path, tls: bool, answer: bytes, sasl: str, mechanisms: tuple[str, ...]
) -> None:
    with listening(answer, tmp_path if tls else None) as port:
        found = listeners.listener("127.0.0.1", port, 2)
    assert found == listeners.Listener(True, tls, mechanisms)
    plain = "SSL" if tls else "PLAINTEXT"
    assert found.protocol == sasl + plain


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", struct.pack(">i", 2**31 - 1), broker_says(33)[:-2]]
)
def test_what_is_no_broker_is_none(answer: bytes) -> None:
    with listening(answer) as port:
        assert listeners.listener("127.0.0.1", port, 1) == listeners.Listener(False, False, None)


def test_a_broker_that_wants_a_certificate_says_no_more_than_tls(tmp_path: Path) -> None:
    with listening(b"", tmp_path) as port:
        assert listeners.listener("127.0.0.1", port, 1) == listeners.Listener(True, True, None)


def said(text: str, **values: Any) -> AfterlogError:
    return sentence_of(RuntimeError(f"a task failed: {ERRORS}.{text} {SECRET}"), settings(**values))


@pytest.mark.parametrize(
    ("values", "answer", "tls", "sentence"),
    [
        pytest.param(
            {"security_protocol": "SSL"},
            NO_SASL,
            False,
            "speaks PLAINTEXT, but security_protocol of [kafka] is SSL: set it to PLAINTEXT.",
            id="tls to plain",
        ),
        pytest.param(
            {},
            SCRAM,
            True,
            "speaks SASL_SSL, but security_protocol of [kafka] is PLAINTEXT: set it to SASL_SSL.",
            id="plain to sasl and tls",
        ),
        pytest.param({}, b"", True, "speaks TLS, but security_protocol of [kafka] is PLAINTEXT.", id="client's key"),
        pytest.param(
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"},
            SCRAM,
            False,
            "does not offer PLAIN: set sasl_mechanism of [kafka] to one of SCRAM-SHA-256, SCRAM-SHA-512.",
            id="mechanism",
        ),
        pytest.param({}, b"SSH-2.0", False, "is no Kafka broker: fix bootstrap_servers.", id="no broker"),
        pytest.param({}, NO_SASL, False, "answer, but not within 1 s", id="slow, or other addresses"),
    ],
)
def test_a_time_out_is_looked_into(
    tmp_path: Path, values: dict[str, Any], answer: bytes, tls: bool, sentence: str
) -> None:
    with listening(answer, tmp_path if tls else None) as port:
        error = said("TimeoutException: Timed out", bootstrap_servers=f"127.0.0.1:{port}", **values)
    assert sentence in str(error)
    assert SECRET not in str(error)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    error = said("TimeoutException: Timed out", bootstrap_servers=f"127.0.0.1:{port}")
    assert isinstance(error, EnvironmentLacking)
    away = f"No broker can be reached (127.0.0.1:{port}: connection refused)"
    assert str(error) == f"{away}: start it, or fix bootstrap_servers of [kafka]."


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        pytest.param(
            "TopicAuthorizationException: Not authorized to access topics: [dlq.b, dlq.a]",
            UsageError,
            "Afterlog is not allowed to see topics dlq.a, dlq.b: grant it the operations Describe and Read there.",
            id="topic",
        ),
        pytest.param(
            "GroupAuthorizationException: Not authorized to access group: afterlog-1",
            UsageError,
            "grant it the operation Read on groups that begin with afterlog.",
            id="group",
        ),
        pytest.param("ClusterAuthorizationException: no", UsageError, "grant it the operation Describe.", id="cluster"),
        pytest.param(
            "SaslAuthenticationException: Authentication failed",
            UsageError,
            "refuse the user of [kafka] (SASL): fix username and password.",
            id="password",
        ),
        pytest.param(
            "UnsupportedVersionException: no",
            EnvironmentLacking,
            "too old for Afterlog: it reads from Kafka 2.8 on.",
            id="old",
        ),
    ],
)
def test_what_kafka_says_becomes_a_sentence(text: str, kind: type[AfterlogError], sentence: str) -> None:
    error = said(text)
    assert isinstance(error, kind)
    assert sentence in str(error)
    assert SECRET not in str(error)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("PKIX path building failed", "name it in ca_file of [kafka]"),
        ("No subject alternative names present", "their certificate is for another host name"),
        ("Received fatal alert: bad_certificate", "set certificate_file and key_file of [kafka]"),
        ("SSL routines::certificate verify failed", "name the authority in ca_file of [kafka]"),  # OpenSSL's words
        ("SSL routines::sslv3 alert bad certificate", "set certificate_file and key_file of [kafka]"),
    ],
)
def test_why_tls_fails(tmp_path: Path, text: str, sentence: str) -> None:
    with listening(NO_SASL, tmp_path) as port:
        error = said(
            f"SslAuthenticationException: {text}", bootstrap_servers=f"127.0.0.1:{port}", security_protocol="SSL"
        )
    assert sentence in str(error)


def test_an_error_of_another_kind_is_not_kafkas() -> None:
    assert is_kafkas(RuntimeError(f"{ERRORS}.TimeoutException"))
    assert is_kafkas(RuntimeError("at org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer"))
    assert not is_kafkas(RuntimeError("No space left on device"))


def test_a_cluster_that_is_away_is_said_in_a_sentence() -> None:
    """Kafka's own client asks, in this process's JVM or in a small one."""
    from pipelines.settings import load

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    away = load(kafka={"bootstrap_servers": address, "timeout_seconds": 1}, dlq={"source": "kafka"})
    topics = away.topics_of("dlq")
    assert topics is not None
    with pytest.raises(EnvironmentLacking, match="No broker can be reached"), connected(away) as cluster:
        cluster.snapshot(topics, TopicProgress())
    small.hang_up()
