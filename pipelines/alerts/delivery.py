"""One request to a webhook, with a deadline for all of it; no word about it names the address, which is a secret."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

from pipelines import moments
from pipelines.settings.alerts import PAGERDUTY, Route


@dataclass(frozen=True)
class Outcome:
    """What became of a request: taken by the receiver or not, in words; ``retry_after`` in seconds if it said so."""

    is_taken: bool
    words: str
    is_refused: bool = False
    retry_after: float | None = None


def address(route: Route, environment: Mapping[str, str] = os.environ) -> tuple[str | None, str]:
    """Return the address of a route and PagerDuty's routing key; None and the reason if one is not known."""
    values = {}
    for name in (route.url_env, route.routing_key_env):
        values[name] = environment.get(name or "", "").strip()  # files of secrets often end with a line end
        if name is not None and not values[name]:
            return None, f"the environment variable {name} is not set"
    key = values[route.routing_key_env] if route.routing_key_env else ""
    if route.url is not None:
        return route.url.get_secret_value(), key
    return (values[route.url_env] if route.url_env else PAGERDUTY), key


def post(url: str, body: Mapping[str, Any], alert_id: str, timeout_seconds: float) -> Outcome:
    """Post a body as JSON; an answer of 200 to 299 takes it. Redirects are not followed.

    The deadline holds also for a receiver that answers a byte at a time: the request is left alone then.
    """
    outcome = [Outcome(False, f"no answer within {timeout_seconds:g} s")]
    worker = threading.Thread(target=lambda: outcome.append(_posted(url, body, alert_id, timeout_seconds)), daemon=True)
    worker.start()
    worker.join(timeout_seconds)
    return outcome[-1]


def _posted(url: str, body: Mapping[str, Any], alert_id: str, timeout_seconds: float) -> Outcome:
    import requests
    from urllib3.exceptions import LocationValueError

    headers = {"Idempotency-Key": alert_id, "User-Agent": "Afterlog"}
    try:
        with requests.post(
            url, json=body, headers=headers, timeout=timeout_seconds, allow_redirects=False, stream=True
        ) as answer:
            code = answer.status_code
            after = _seconds(answer.headers.get("Retry-After"))
    except requests.exceptions.SSLError:
        return Outcome(False, "its certificate is not trusted")
    except requests.Timeout:
        return Outcome(False, f"no answer within {timeout_seconds:g} s")
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
