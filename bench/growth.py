"""``growth``: what a run of 1,000 new rows costs on top of more and more rows of history."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from pipelines.warehouse.tables import Warehouse

WIDTH, HEIGHT, MARGIN = 640, 320, 48
COLOURS = ("#1f6feb", "#bf3989", "#1a7f37", "#9a6700")


@dataclass(frozen=True)
class Cost:
    """What one run of new rows took: seconds, bytes and files that it wrote, and the size of the Delta logs after it.

    ``slowest`` are the seconds of the slowest tables.
    """

    feed: str
    history: int
    partitions: int
    new: int
    seconds: float
    written_bytes: int
    written_files: int
    removed_files: int
    log_bytes: int
    slowest: dict[str, float]


def versions(warehouse: Warehouse, tables: list[str]) -> dict[str, int]:
    """Return the latest version of each table."""
    return {table: warehouse.local_version(table) or 0 for table in tables}


def written(warehouse: Warehouse, since: dict[str, int]) -> tuple[int, int, int]:
    """Return the bytes and files that later commits added to the tables, and how many files they removed."""
    size = added = removed = 0
    for table, version in since.items():
        log = Path(warehouse.location(table)) / "_delta_log"
        for number in range(version + 1, (warehouse.local_version(table) or 0) + 1):
            for line in (log / f"{number:020}.json").read_text(encoding="utf-8").splitlines():
                action = json.loads(line)
                if "add" in action:
                    size, added = size + int(action["add"]["size"]), added + 1
                removed += "remove" in action
    return size, added, removed


def log_bytes(warehouse: Warehouse, tables: list[str]) -> int:
    """Return the size of the tables' Delta logs."""
    logs = (Path(warehouse.location(table)) / "_delta_log" for table in tables)
    return sum(file.stat().st_size for log in logs for file in log.iterdir())


def draw(costs: list[Cost], path: Path) -> None:
    """Write a picture, as SVG: the seconds of a run against the rows of history, a line for each feed."""
    names = list(dict.fromkeys((cost.feed, cost.partitions) for cost in costs))
    most = max(cost.history for cost in costs) or 1
    slowest = max(cost.seconds for cost in costs)

    def at(cost: Cost) -> tuple[float, float]:
        x = MARGIN + (WIDTH - 2 * MARGIN) * cost.history / most
        return x, HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * cost.seconds / slowest

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
        ' font-size="12" role="img"><title>Seconds of a run of new rows against the rows of history</title>',
        f'<path d="M{MARGIN} {MARGIN}V{HEIGHT - MARGIN}H{WIDTH - MARGIN}" fill="none" stroke="#888"/>',
        f'<text x="{MARGIN}" y="{MARGIN - 12}">{slowest:.0f} s</text>',
        f'<text x="{WIDTH - MARGIN}" y="{HEIGHT - MARGIN + 18}" text-anchor="end">{most:,} rows of history</text>',
    ]
    for number, (feed, partitions) in enumerate(names):
        colour = COLOURS[number % len(COLOURS)]
        points = [at(cost) for cost in costs if (cost.feed, cost.partitions) == (feed, partitions)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        label = escape(f"{feed}, {partitions} partitions")
        parts.append(
            f'<text x="{WIDTH - MARGIN}" y="{MARGIN + 16 * number}" text-anchor="end" fill="{colour}">{label}</text>'
        )
    path.write_text("\n".join([*parts, "</svg>", ""]), encoding="utf-8")


def as_parts(costs: list[Cost]) -> list[dict[str, Any]]:
    """Return the costs as JSON-ready objects."""
    return [asdict(cost) for cost in costs]
