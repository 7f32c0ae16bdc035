"""A name of an incident, group, topic, application or team -> the path of its page, which never changes."""

from __future__ import annotations

import hashlib
import re

from pipelines.incidents import ids

FRONT, INCIDENTS, DELIVERY, QUALITY = "index.html", "incidents.html", "delivery.html", "quality.html"
TEAM = "team-"  # how the paths of their fronts begin
_ID = re.compile(r"[0-9A-Z]{4}-[0-9A-Z]{4}")


def incident(name: str) -> str:
    """Return the path of an incident's page: its id is the file's name."""
    return ids.page(name if _ID.fullmatch(name) else _safe(name))


def group(name: str | None) -> str:
    """Return the path of the page of a consumer group or another owner; dead letters without either share one."""
    return f"groups/{_safe(name)}.html"


def topic(name: str | None) -> str:
    """Return the path of a topic's page."""
    return f"topics/{_safe(name)}.html"


def application(name: str) -> str:
    """Return the path of the page of an application of Kafka Streams."""
    return f"applications/{_safe(name)}.html"


def team(name: str) -> str:
    """Return the path of the front of a team."""
    return f"{TEAM}{_safe(name)}.html"


def _safe(name: str | None) -> str:
    """Return a file's name without its suffix: what is readable in the name, and a hash that tells names apart.

    File systems can ignore case, and reserve names such as ``..`` and ``con``; the hash at the end prevents both.
    """
    if name is None:
        return "none"
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower())[:40].strip("-")
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{readable}-{digest}" if readable else digest
