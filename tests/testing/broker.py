"""A broker with users, for tests of TLS, SASL and permissions."""

from __future__ import annotations

import ipaddress
import os
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipelines.broker import HOST, Broker
from pipelines.errors import EnvironmentLacking
from pipelines.kafka.properties import login
from tests.testing.kafka import KafkaAdmin

_SECURED = {
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "keys/server.pem",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",  # of the plain listener; users of the secured listener may do what ACLs allow
}

SOON_BACK = {"broker.session.timeout.ms": "3000"}
"""Options of a broker that is killed and started again: the cluster waits so long before it takes the node back."""


class SecuredBroker(Broker):
    """A broker with ``users`` (name to password), who have a listener with SASL_SSL and SCRAM-SHA-512.

    The listener allows only what ACLs allow.
    """

    def __init__(self, directory: Path, users: Mapping[str, str], options: Mapping[str, str] | None = None) -> None:
        """Describe a broker; `start` starts it, makes its keys and creates its users."""
        super().__init__(directory, options={**_SECURED, **(options or {})})
        self.authority = self.directory / "keys" / "authority.pem"
        self._users = dict(users)

    def start(self, timeout_seconds: float = 90.0) -> bool:
        """Start the broker and create its users; return False if it runs already."""
        self.make_keys()
        is_new = super().start(timeout_seconds)
        with KafkaAdmin(self.bootstrap_servers) as admin:
            for name, password in self._users.items():
                admin.create_user(name, password)
        return is_new

    def _listeners(self) -> list[str]:
        return [*super()._listeners(), "SASL_SSL"]

    @property
    def secured_servers(self) -> str:
        """The address of the listener with SASL_SSL; raises EnvironmentLacking: no broker runs, or it has no users."""
        if secured := self._found().secured_servers:
            return secured
        raise EnvironmentLacking(f"The broker in {self.directory} has no secured listener; start it with users.")

    def options_of(self, user: str) -> dict[str, str]:
        """Return the settings of a Java client for a user, password included."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": os.fspath(self.authority),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": login("SCRAM-SHA-512", user, self._users[user]),
        }

    def make_keys(self) -> None:
        """Create, once, a certificate authority and the broker's key and certificate."""
        keys = self.authority.parent
        if keys.exists():
            return
        unfinished = keys.with_name("keys.arriving")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700, parents=True)
        authority, server = certificates()
        (unfinished / self.authority.name).write_bytes(authority)
        (unfinished / "server.pem").write_bytes(server)
        unfinished.rename(keys)


def certificates() -> tuple[bytes, bytes]:
    """Return in PEM an authority's certificate, and the key and certificate of a server at `HOST`."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import NameOID

    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Afterlog's broker for tests")])
    began = datetime.now(UTC) - timedelta(days=1)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.IPAddress(ipaddress.ip_address(HOST)), x509.DNSName("localhost")]
    certificates = [
        x509.CertificateBuilder()
        .subject_name(issuer if is_authority else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(began)
        .not_valid_after(began + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(keys[0], hashes.SHA256())
        for key, is_authority in zip(keys, (True, False), strict=True)
    ]
    authority, server = (certificate.public_bytes(Encoding.PEM) for certificate in certificates)
    return authority, keys[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + server
