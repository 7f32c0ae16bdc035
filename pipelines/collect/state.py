"""``.collected.json`` in landing/cluster-settings: what has landed, by cluster, and when the cluster was asked last."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipelines.settings import Settings

DIRECTORY, FILE = "cluster-settings", ".collected.json"


def asked_at(settings: Settings) -> datetime | None:
    """Return when the cluster of the settings last answered; None if it never did."""
    landed = known(settings.landing_of(DIRECTORY)).get(settings.cluster, {})
    at = landed.get("asked_at")
    return datetime.fromtimestamp(at / 1000, UTC) if isinstance(at, int) else None


def known(directory: Path) -> dict[str, Any]:
    """Return what has landed, by cluster; empty if nothing has, or if the file cannot be read."""
    try:
        landed = json.loads((directory / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return landed if isinstance(landed, dict) else {}
