"""A mail server on this machine, with TLS or STARTTLS and accounts, that takes mails or answers as a test tells it."""

from __future__ import annotations

import base64
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path

from tests.testing.broker import certificates


class MailServer(socketserver.ThreadingTCPServer):
    """Keeps the mails that it takes, and what was said in the clear; ``answers`` are given instead of 250, by verb."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, directory: Path, encryption: str, account: tuple[str, str] | None) -> None:
        super().__init__(("127.0.0.1", 0), Session)
        authority, server = certificates()
        self.authority = directory / "authority.pem"
        self.authority.write_bytes(authority)
        (directory / "server.pem").write_bytes(server)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(directory / "server.pem")
        self.encryption, self.account = encryption, account
        self.offers_starttls = True
        self.answers: dict[str, list[str]] = {}
        self.got: list[tuple[list[str], EmailMessage]] = []
        self.in_the_clear: list[str] = []

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients may refuse a certificate, or go."""

    @property
    def host(self) -> str:
        return f"localhost:{self.server_address[1]}"


class Session(socketserver.StreamRequestHandler):
    server: MailServer

    def setup(self) -> None:
        self.is_secret = self.server.encryption == "tls"
        if self.is_secret:
            self.request = self.server.context.wrap_socket(self.request, server_side=True)
        super().setup()

    def handle(self) -> None:
        self._say("220 localhost")
        recipients: list[str] = []
        while line := self.rfile.readline().decode().rstrip("\r\n"):
            verb = line.split(" ")[0].split(":")[0].upper()
            if not self.is_secret:
                self.server.in_the_clear.append(verb)
            queued = self.server.answers.get(verb, [])
            if queued and (answer := queued.pop(0) if len(queued) > 1 else queued[0]) != "250":
                if answer == "close":
                    return
                self._say(f"{answer} secret words of the server")
            elif verb == "EHLO":
                offers = ["STARTTLS"] if self.server.offers_starttls and not self.is_secret else []
                offers += ["AUTH PLAIN"] if self.server.account and self.is_secret else []
                self._say("\r\n".join(["250-localhost", *(f"250-{offer}" for offer in offers), "250 8BITMIME"]))
            elif verb == "STARTTLS":
                self._say("220 go on")
                self.request = self.server.context.wrap_socket(self.request, server_side=True)
                self.is_secret = True
                super().setup()  # streams over the encrypted socket
            elif verb == "AUTH":
                _, user, password = base64.b64decode(line.split(" ")[2]).decode().split("\0")
                self._say("235 welcome" if (user, password) == self.server.account else "535 no")
            elif verb == "DATA":
                self._say("354 go on")
                lines = []
                while (text := self.rfile.readline()) not in (b".\r\n", b""):
                    lines.append(text.removeprefix(b"."))
                self.server.got.append((recipients, message_from_bytes(b"".join(lines), policy=default)))  # type: ignore[arg-type]
                recipients = []
                self._say("250 taken")
            else:
                recipients += [line.split("<")[1].split(">")[0]] if verb == "RCPT" else []
                self._say("221 bye" if verb == "QUIT" else "250 well")

    def finish(self) -> None:
        super().finish()
        self.request.close()

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@contextmanager
def mail_server(
    directory: Path, encryption: str = "starttls", account: tuple[str, str] | None = None
) -> Iterator[MailServer]:
    """Yield a mail server that answers while the context lasts."""
    server = MailServer(directory, encryption, account)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
