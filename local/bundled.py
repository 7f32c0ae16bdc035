"""Bundled captures, and a week of a shop -> landing directories."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from local import moved
from local.week import END, files, week
from pipelines.errors import EnvironmentLacking
from pipelines.settings import ROOT, Settings
from pipelines.sources.log_dirs import TOPIC_PROPERTIES

CAPTURED = ROOT / "tests" / "data"
PLANTED = ROOT / "demo"
BUNDLED = {
    "dlq": {"dlq": ("dlq", "*.jsonl*")},
    "topology": {"streams-requests": ("streams-requests", "*.log*")},
    "delivery": {
        "acknowledgements": ("acknowledgements", "*.jsonl*"),
        "segments": ("*segments", "*/*.log"),
        "producers": ("producers", "*.jsonl"),
        "broker-logs": ("broker-logs", "*.log*"),
    },
}
"""By feed and landing directory: the directories of files below ``CAPTURED`` and ``PLANTED``, and the files' names."""
RECENT = frozenset(
    ("planted-checkout.jsonl", "planted-refunds.jsonl", "planted-repeated.jsonl", "planted-requests.log")
) | {"checkout-0", "refunds-0"}
"""Planted files and logs that the demo lands as of yesterday; all others, with the captures, are older than its week.

What a file says about another one is in the same of the two groups.
"""
CAPTURED_AT = datetime(2026, 11, 21, 2, 50, tzinfo=UTC)
"""When the last capture ended."""
OLD, YESTERDAY = timedelta(days=8), timedelta(hours=20)
"""How long before the end of its week the demo lets captures, and recent files, happen."""
PREFIX = "demo-"
"""Of the names of landed files; segments keep theirs, which are their partition's and base offset."""
CLEANUP_POLICY = [{"topic": "checkout", "policy": "delete"}]
"""What is known of the planted topic whose log lacks messages: compaction did not remove them.

It lands beside the topic's segments, so that later runs without the demo's settings know it, too.
"""


def land(settings: Settings, ends: datetime | None = None) -> dict[str, int]:
    """Put the bundled files into the landing directories, each renamed into place when it is complete.

    With ``ends`` they land as if all of it had happened before the week, or in the week, that ends then. A file that is
    there already with the same content stays, so that runs do not read it again. Returns the number of files by landing
    directory.
    """
    landed = {
        name: _land(*bundled, settings.landing_of(name), ends)
        for directories in BUNDLED.values()
        for name, bundled in directories.items()
    }
    for known in CLEANUP_POLICY:
        for directory in settings.landing_of("segments").glob(f"{known['topic']}-*"):
            if not (properties := directory / TOPIC_PROPERTIES).exists():
                put(properties, f"cleanup.policy={known['policy']}\n".encode())
    return landed


def land_week(settings: Settings, ends: datetime) -> int:
    """Put the week of a shop that ends then into the landing directories; return the number of files."""
    lines_of = files(week(ends - END))
    for path, lines in lines_of.items():
        name, _, file = path.partition("/")
        content = "".join(f"{line}\n" for line in lines).encode()
        put(settings.landing_of(name) / f"{PREFIX}{file}", moved.text(content, ends - END))
    return len(lines_of)


def _land(directories: str, names: str, landing: Path, ends: datetime | None) -> int:
    sources = [
        (file, file.relative_to(directory))
        for root in (CAPTURED, PLANTED)
        for directory in root.glob(directories)
        for file in directory.glob(names)
    ]
    if not sources:
        raise EnvironmentLacking(
            f"The bundled files are missing in {CAPTURED / directories}; get the whole project again."
        )
    for source, name in sources:
        before = YESTERDAY if RECENT & {source.name, source.parent.name} else OLD
        by = ends - before - CAPTURED_AT if ends else timedelta(0)
        put(landing / (name if name.parent.name else f"{PREFIX}{name}"), moved.content(source, by))
    return len(sources)


def put(target: Path, content: bytes) -> None:
    """Write a file under a temporary name, then rename it into place; leave it alone if it has this content already."""
    unfinished = target.with_name(f".{target.name}.tmp")
    try:
        if target.exists() and target.read_bytes() == content:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(content)
        unfinished.replace(target)
    except OSError as error:
        raise EnvironmentLacking(f"Nothing can be landed in {target.parent}: {error.strerror}.") from None
