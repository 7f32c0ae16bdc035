"""A failed task -> one sentence in its note and at the end of its log, after one frame of the traceback."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import quote

from dags.command import printable

_MOST_OF_A_NOTE = 1000  # characters, the limit of Airflow's API
_SECONDS = 5
_UNTOLD = "See the log above, then clear this task or wait for the next run."


def cause_and_remedy(error: object) -> tuple[str, str]:
    """Return why a task failed and what to do next, with the path of the report if the error has it."""
    why = printable(str(error)) if error and str(error) else "it was ended from outside"
    way_on = getattr(error, "way_on", _UNTOLD)
    report = getattr(error, "report", None)
    return why, f"{way_on} The report: {printable(report)}" if report else way_on


def shorten_tracebacks(kinds: tuple[type[BaseException], ...]) -> None:
    """Let this process log errors of these kinds with the last frame of their traceback only.

    The message gives the reason. The other frames are Airflow's own and would push it out of sight.
    """
    import structlog

    processors: Any = structlog.get_config()["processors"]
    if not isinstance(processors, list) or any(getattr(processor, "kinds", None) == kinds for processor in processors):
        return

    def shorten(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        raised = event.get("exc_info")
        error = raised if isinstance(raised, BaseException) else raised[1] if isinstance(raised, tuple) else None
        if raised is True:
            error = sys.exc_info()[1]
        if isinstance(error, kinds) and (frame := error.__traceback__):
            while frame.tb_next:
                frame = frame.tb_next
            event["exc_info"] = (type(error), error, frame)
        return event

    shorten.kinds = kinds  # type: ignore[attr-defined]
    processors.insert(0, shorten)


def note(ti: Any, why: str, way_on: str) -> str | None:
    """Make two sentences the note of a task in Airflow's grid; return the reason if that fails, else None.

    Airflow limits the length of a note: if both together are longer, the first is cut.

    A task has no right of its own to write notes: the Task Execution API, which tasks use, has no call for them. The
    public API takes a note if it gives tokens without a login, as the API of `make up` does.
    """
    from airflow.sdk.configuration import conf

    base = (conf.get("api", "base_url", fallback="") or "").rstrip("/")
    if not base.startswith(("http://", "https://")):
        return None
    room = max(_MOST_OF_A_NOTE - len(way_on), 1)
    text = (why if len(why) <= room else f"{why[: room - 1]}…") + way_on
    path = f"dags/{quote(ti.dag_id, safe='')}/dagRuns/{quote(ti.run_id, safe='')}"
    try:
        token = json.loads(_asked(f"{base}/auth/token"))["access_token"]
        _asked(
            f"{base}/api/v2/{path}/taskInstances/{quote(ti.task_id, safe='')}?update_mask=note",
            json.dumps({"note": text[:_MOST_OF_A_NOTE]}).encode(),
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
    except urllib.error.HTTPError as error:
        return f"Airflow's API answers {error.code}, as it gives nobody a token without a login."
    except (OSError, ValueError, LookupError, TypeError):
        return "Airflow's API cannot be reached."
    return None


def _asked(url: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> bytes:
    request = urllib.request.Request(url, body, headers or {}, method="PATCH" if body else "GET")
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
        found: bytes = answer.read()
    return found
