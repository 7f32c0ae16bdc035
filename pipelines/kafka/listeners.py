"""host:port -> what listens there: a Kafka broker or not, with TLS or not, and the SASL mechanisms that it offers.

Kafka's clients, Java's and librdkafka alike, report a wrong security protocol as a timeout. One SASL handshake over a
plain socket, and one over TLS, tell which protocol the listener speaks.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from dataclasses import dataclass

_SASL_HANDSHAKE, _VERSION, _CORRELATION = 17, 1, 7
_ILLEGAL_SASL_STATE = 34
_LONGEST_ANSWER = 1 << 16


@dataclass(frozen=True)
class Listener:
    """What answers at an address; ``mechanisms`` is empty for a listener without SASL, None if they are not known."""

    is_kafka: bool
    tls: bool
    mechanisms: tuple[str, ...] | None

    @property
    def protocol(self) -> str | None:
        """The security.protocol of the listener; None if it is not known."""
        if not self.is_kafka or self.mechanisms is None:
            return None
        return f"SASL_{'SSL' if self.tls else 'PLAINTEXT'}" if self.mechanisms else "SSL" if self.tls else "PLAINTEXT"


def listener(host: str, port: int, timeout: float) -> Listener:
    """Ask what listens at an address, at first without TLS.

    Raises OSError: nothing listens there, or the address cannot be reached.
    """
    with socket.create_connection((host, port), timeout=timeout) as plain:
        mechanisms = _asked(plain)
    if mechanisms is not None:
        return Listener(True, False, mechanisms)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the request holds no secret, so any certificate will do
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection((host, port), timeout=timeout) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=host) as secured:
                mechanisms = _asked(secured)
        except OSError:  # ssl.SSLError is one
            return Listener(False, False, None)
    # A broker that requires a client certificate closes the connection without an answer: mechanisms is None.
    return Listener(True, True, mechanisms)


def _asked(connection: socket.socket) -> tuple[str, ...] | None:
    """Send a SASL handshake; return the mechanisms offered, () for a broker without SASL, None if no broker answers."""
    body = struct.pack(">hhih", _SASL_HANDSHAKE, _VERSION, _CORRELATION, -1) + struct.pack(">h4s", 4, b"NONE")
    with contextlib.suppress(OSError, struct.error, UnicodeDecodeError):
        connection.sendall(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", _received(connection, 4))
        if not 10 <= size <= _LONGEST_ANSWER:
            return None
        answer = _received(connection, size)
        correlation, error, count = struct.unpack_from(">ihi", answer)
        if correlation != _CORRELATION:
            return None
        if error == _ILLEGAL_SASL_STATE:
            return ()
        mechanisms, at = [], 10
        for _ in range(count):
            (length,) = struct.unpack_from(">h", answer, at)
            mechanisms.append(answer[at + 2 : at + 2 + length].decode("ascii"))
            at += 2 + length
        return tuple(mechanisms) or None
    return None


def _received(connection: socket.socket, size: int) -> bytes:
    """Return exactly ``size`` bytes; raises OSError if the other side closes the connection before."""
    received = b""
    while len(received) < size:
        if not (part := connection.recv(size - len(received))):
            raise ConnectionResetError
        received += part
    return received
