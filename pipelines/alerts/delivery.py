"""One request over HTTP, with a deadline for all of it; no word about it names the address, which is a secret."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any

from pipelines import moments


@dataclass(frozen=True)
class Outcome:
    """What became of a request: taken by the receiver or not, in words; ``retry_after`` in seconds if it said so."""

    is_taken: bool
    words: str
    is_refused: bool = False
    retry_after: float | None = None


Post = Callable[..., Outcome]
"""What `post` is: address, body, id of the alert and seconds; then headers and method, if a channel needs them."""


def post(
    url: str,
    body: Mapping[str, Any],
    alert_id: str,
    timeout_seconds: float,
    headers: Mapping[str, str] = MappingProxyType({}),
    method: str = "POST",
) -> Outcome:
    """Send a body as JSON; an answer of 200 to 299 takes it. Redirects are not followed."""
    all_headers = {"Idempotency-Key": alert_id, "User-Agent": "Afterlog", **headers}
    return within(timeout_seconds, lambda: _posted(method, url, body, all_headers, timeout_seconds))


def within(seconds: float, send: Callable[[], Outcome]) -> Outcome:
    """Return what ``send`` returns. It is left alone after so many seconds: a receiver may answer a byte at a time."""
    outcome = [late(seconds)]
    worker = threading.Thread(target=lambda: outcome.append(send()), daemon=True)
    worker.start()
    worker.join(seconds)
    return outcome[-1]


def late(seconds: float) -> Outcome:
    """Return what became of an alert whose receiver did not answer in time."""
    return Outcome(False, f"no answer within {seconds:g} s")


def _posted(
    method: str, url: str, body: Mapping[str, Any], headers: Mapping[str, str], timeout_seconds: float
) -> Outcome:
    import requests
    from urllib3.exceptions import LocationValueError

    try:
        with requests.request(
            method, url, json=body, headers=headers, timeout=timeout_seconds, allow_redirects=False, stream=True
        ) as answer:
            code = answer.status_code
            after = _seconds(answer.headers.get("Retry-After"))
    except requests.exceptions.SSLError:
        return Outcome(False, "its certificate is not trusted")
    except requests.Timeout:
        return late(timeout_seconds)
    except (requests.exceptions.ConnectionError, requests.exceptions.ChunkedEncodingError):
        return Outcome(False, "no connection")
    except (ValueError, LocationValueError):  # those of requests about addresses are ValueErrors, too
        return Outcome(False, "its address cannot be used")
    except Exception as error:  # whatever it is: its text could name the address
        return Outcome(False, type(error).__name__)
    if 200 <= code < 300:
        return Outcome(True, f"HTTP {code}")
    is_refused = 300 <= code < 500 and code not in (408, 425, 429)
    return Outcome(False, f"HTTP {code}", is_refused, after)


def _seconds(text: str | None) -> float | None:
    """Return the seconds that a header Retry-After tells, as a number or as a date."""
    if not text:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, ((at if at.tzinfo else at.replace(tzinfo=UTC)) - moments.now()).total_seconds())
