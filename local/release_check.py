"""The project -> whether it is ready for a release of the version that ``pyproject.toml`` names, point by point."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from pipelines.settings import ROOT

_DUTIES = re.compile(r"\bmust (be done|do)\b")
_ENTRY = re.compile(r"^## \[(?P<version>[^\]]+)\](?:: \S+| - (?P<day>\d{4}-\d{2}-\d{2}))?$", re.MULTILINE)
_DECISION = re.compile(r"\d{4}-[a-z0-9-]+\.md")


def main(project: Path = ROOT) -> int:
    """Print each point of the checklist with what is left to do; return 1 if something is."""
    version = str(tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
    left = 0
    for point, look in CHECKS.items():
        to_do = look(project, version)
        left += bool(to_do)
        print(f"{'left' if to_do else 'ok  '}  {point}{': ' + to_do if to_do else ''}")
    print(f"{version} is ready." if not left else f"{version} is not ready.")
    return 1 if left else 0


def _entry(project: Path, version: str) -> str:
    entries = list(_ENTRY.finditer((project / "CHANGELOG.md").read_text(encoding="utf-8")))
    written = next((entry for entry in entries if entry["version"] == version), None)
    if written is None:
        return f"write `## [{version}] - <day>` above what CHANGELOG.md has of [Unreleased]"
    return "" if written["day"] else f"write the day behind ## [{version}] in CHANGELOG.md"


def _unreleased(project: Path, version: str) -> str:
    is_empty = not _section(project, "Unreleased").strip()
    return "" if is_empty else "what is under [Unreleased] in CHANGELOG.md belongs to this version"


def _duties(project: Path, version: str) -> str:
    has = _DUTIES.search(_section(project, version))
    return "" if has else "say in its entry what people must do, even if it is nothing"


def _warehouse(project: Path, version: str) -> str:
    kept = project / "tests" / "data" / "warehouses" / f"{version}.tar.xz"
    return "" if kept.is_file() else "run `make keep-warehouse`, and commit what it writes"


def _decisions(project: Path, version: str) -> str:
    directory = project / "docs" / "decisions"
    index = (directory / "README.md").read_text(encoding="utf-8")
    lacking = [path.name for path in sorted(directory.iterdir()) if _DECISION.fullmatch(path.name)]
    return ", ".join(f"docs/decisions/README.md lacks {name}" for name in lacking if name not in index)


def _images(project: Path, version: str) -> str:
    """Return which files name an image of another version: people copy them."""
    image = re.compile(r"/afterlog:(?P<version>\d+\.\d+\.\d+)")
    files = [project / "conf" / "afterlog.toml", *(project / "docs").glob("*.md"), *(project / "examples").rglob("*")]
    others = [
        path.relative_to(project).as_posix()
        for path in files
        if path.suffix in (".toml", ".md", ".yaml")
        and {match["version"] for match in image.finditer(path.read_text(encoding="utf-8"))} - {version}
    ]
    return f"name the image of {version} in {', '.join(sorted(others))}" if others else ""


def _section(project: Path, version: str) -> str:
    """Return what CHANGELOG.md says of a version; nothing if it has no entry."""
    text = (project / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = [*_ENTRY.finditer(text)]
    for entry, following in zip(entries, [*entries[1:], None], strict=True):
        if entry["version"] == version:
            return text[entry.end() : following.start() if following else None]
    return ""


CHECKS: dict[str, Callable[[Path, str], str]] = {
    "CHANGELOG.md has an entry of the version": _entry,
    "nothing is left that is not in a version": _unreleased,
    "the entry says what people must do": _duties,
    "a warehouse of the version is kept": _warehouse,
    "every decision is in the index": _decisions,
    "docs and examples name images of the version": _images,
}


if __name__ == "__main__":
    sys.exit(main())
