"""E-mail, ``kind = "email"``: plain text over SMTP, encrypted by TLS or STARTTLS, never in the clear.

Facts: RFC 5321 (an answer of 4yz means again later, 5yz means no), RFC 8314 (ports), RFC 3834 (Auto-Submitted).
"""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Mapping
from contextlib import closing, suppress
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Any

from expectations.text import visible
from pipelines.alerts.channels.base import Channel, Frame
from pipelines.alerts.delivery import Outcome, Post, late, within
from pipelines.alerts.messages import MOST_LISTED, Alert, headline, line, more
from pipelines.settings.alerts import Route
from pipelines.text import cut, utf8

MOST_OF_SUBJECT, MOST_OF_TEXT = 150, 2_000  # characters
PORTS = {"starttls": 587, "tls": 465}


class Email(Channel):
    """Takes a message for each alert, and one for a storm."""

    kind = "email"
    key_setting = "password_env"

    def where(self, route: Route) -> str:
        """Return server, account and mailboxes: they are one receiver."""
        return " ".join((route.host or "", route.user or "", route.sender or "", *route.to))

    def body(self, alert: Alert, frame: Frame) -> Mapping[str, Any]:
        """Return the subject and the text; names in them are visible, so that none has a line end."""
        parts = []
        for change in alert.news[:MOST_LISTED]:
            texts = (line(change), cut(change.text, MOST_OF_TEXT), change.page or "")
            parts.append("\n".join(visible(text) for text in texts if text))
        parts += more(alert)
        facts = (f"cluster {frame.cluster}", frame.route.owner, frame.front, alert.id)
        parts.append("\n".join(visible(fact) for fact in facts if fact))
        subject = cut(visible(headline(alert)), MOST_OF_SUBJECT)
        return {"subject": utf8(subject), "text": utf8("\n\n".join(parts)) + "\n"}

    def send(self, alert: Alert, frame: Frame, address: str, seconds: float, post: Post) -> Outcome:
        """Send a mail to all mailboxes of a route; its id is that of the alert."""
        body, route = self.body(alert, frame), frame.route
        mail = EmailMessage(policy=SMTP)
        mail["From"], mail["To"], mail["Subject"] = route.sender, ", ".join(route.to), body["subject"]
        mail["Date"] = format_datetime(frame.now)
        mail["Message-ID"] = f"<{alert.id}@{(route.sender or '').rpartition('@')[2]}>"
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(body["text"])
        return within(seconds, lambda: _sent(mail, route, frame.key, seconds))


def _sent(mail: EmailMessage, route: Route, password: str, seconds: float) -> Outcome:
    """Send a mail; no word about it has what the server said, which could name mailboxes or secrets."""
    try:
        with closing(_connected(route, seconds)) as server:
            if route.user is not None:
                server.login(route.user, password)
            refused = server.send_message(mail, route.sender, route.to)
            with suppress(OSError):  # the server has the mail, whatever it answers now
                server.putcmd("QUIT")
    except smtplib.SMTPRecipientsRefused as error:
        return _answered(min(code for code, _ in error.recipients.values()))  # one that may take it later counts
    except smtplib.SMTPResponseException as error:
        return _answered(error.smtp_code)
    except smtplib.SMTPServerDisconnected as error:
        if isinstance(error.__context__, TimeoutError):  # smtplib words a late answer as a lost connection
            return late(seconds)
        return Outcome(False, "no connection")
    except smtplib.SMTPException:
        return Outcome(False, "it offers no STARTTLS, or no way to log in", is_refused=True)
    except ssl.SSLCertVerificationError:
        return Outcome(False, "its certificate is not trusted")
    except TimeoutError:
        return late(seconds)
    except UnicodeError:  # smtplib takes ASCII only
        return Outcome(False, "its host, user or password cannot be used", is_refused=True)
    except OSError:
        return Outcome(False, "no connection")
    except Exception as error:  # whatever it is: its text could name a secret
        return Outcome(False, type(error).__name__)
    refusals = f", {len(refused)} of {len(route.to)} mailboxes refused" if refused else ""
    return Outcome(True, f"SMTP 250{refusals}")


def _connected(route: Route, seconds: float) -> smtplib.SMTP:
    host, _, port = (route.host or "").partition(":")
    encryption = route.encryption or "starttls"
    at, trusted = int(port or PORTS[encryption]), ssl.create_default_context()
    if encryption == "tls":
        return smtplib.SMTP_SSL(host, at, timeout=seconds, context=trusted)
    server = smtplib.SMTP(host, at, timeout=seconds)
    try:
        code, _ = server.starttls(context=trusted)
        if code != 220:
            raise smtplib.SMTPResponseException(code, b"")
    except BaseException:
        server.close()
        raise
    return server


def _answered(code: int) -> Outcome:
    return Outcome(False, f"SMTP {code}", is_refused=code >= 500)
