"""What a run of a feed's DAG says about its tables."""

from __future__ import annotations

from typing import Any

from pipelines.catalog import LAYERS

OF_A_BROKEN_GATE = {
    "bronze": ("success", 1),
    "silver": ("failed", 1),
    "gold": ("success", 1),
    "reports": ("success", 1),
    "outcome": ("failed", 1),
}
"""The tasks of a run whose gate of silver broke: none is tried again, and those behind it run."""


def states(run: dict[str, Any]) -> dict[str, tuple[str, int]]:
    """The state and the number of tries of each task."""
    return {task: (found["state"], found["tries"]) for task, found in run["tasks"].items()}


def tables(run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Counts and verdict by table, from the XComs of the layers."""
    return {
        table: counts
        for layer in LAYERS
        if layer in run["xcoms"]
        for table, counts in run["xcoms"][layer]["tables"].items()
    }


def counts(run: dict[str, Any], table: str) -> list[int]:
    """The numbers of rows read, accepted, quarantined, duplicates and skipped."""
    return [tables(run)[table][name] for name in ("read", "accepted", "quarantined", "duplicates", "skipped")]


def told_by_assets(run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The extras that the assets of a successful run must have: the XComs' counts with the run id of the layer."""
    return {
        table: {"run_id": run["xcoms"][table.partition(".")[0]]["run_id"], **found}
        for table, found in tables(run).items()
    }
