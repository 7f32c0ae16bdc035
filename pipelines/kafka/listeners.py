"""host:port -> what listens there: a Kafka broker or not, with TLS or without, with SASL and which of its mechanisms.

Kafka's clients cannot tell a broker that is away from one that they speak to in the wrong way: both end in a time-out.
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
    """What answers at an address; ``mechanisms`` are those of SASL, empty where there is no SASL, None if not known."""

    is_kafka: bool
    tls: bool
    mechanisms: tuple[str, ...] | None

    @property
    def protocol(self) -> str | None:
        """Kafka's name for it, None where it is not known."""
        if not self.is_kafka or self.mechanisms is None:
            return None
        return f"SASL_{'SSL' if self.tls else 'PLAINTEXT'}" if self.mechanisms else "SSL" if self.tls else "PLAINTEXT"


def listener(host: str, port: int, timeout: float) -> Listener:
    """Ask what listens at an address.

    Raises OSError: nobody does, or the address cannot be reached.
    """
    with socket.create_connection((host, port), timeout=timeout) as plain:
        mechanisms = _asked(plain)
    if mechanisms is not None:
        return Listener(True, False, mechanisms)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # nothing is sent that is worth protecting: the question is what listens
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection((host, port), timeout=timeout) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=host) as secured:
                mechanisms = _asked(secured)
        except OSError:  # ssl.SSLError is one
            return Listener(False, False, None)
    # A broker that wants the client's certificate says nothing to one without.
    return Listener(True, True, mechanisms)


def _asked(connection: socket.socket) -> tuple[str, ...] | None:
    """Ask for SASL; return the mechanisms, none where the broker has no SASL, None where no broker answers."""
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
    """Return exactly so many bytes; raises OSError where the other side ends before."""
    received = b""
    while len(received) < size:
        if not (part := connection.recv(size - len(received))):
            raise ConnectionResetError
        received += part
    return received
