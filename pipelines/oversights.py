"""Typing mistakes that would pass unnoticed: places that do not exist, variables and directories that nothing reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from pipelines.catalog import CATALOG
from pipelines.errors import UsageError
from pipelines.settings import Settings
from pipelines.storage import is_local

PREFIX = "AFTERLOG_"
# Variables that are no settings: of set-up, of the command line, of the DAGs.
OTHER_VARIABLES = ("SETTINGS", "CACHE", "MAVEN", "DEBUG", "PORT", "COMMAND", "ON_FAILURE")
MOST_NAMES = 5

Place = Literal["warehouse", "landing"]


def require_places(settings: Settings, flags: dict[Place, str | None], *, creates: bool) -> None:
    """Check that places which a flag or a variable names are there; a command that ``creates`` can make a warehouse.

    Raises UsageError: such a place does not exist.
    """
    for name, flag in flags.items():
        place = getattr(settings, name)
        explicit = flag is not None or f"{PREFIX}{name.upper()}" in os.environ
        if not explicit or not is_local(place) or Path(place).is_dir():
            continue
        if name == "landing" and (not creates or any(settings.topics_of(stage.directory) for stage in CATALOG)):
            continue  # only a run needs it, and whoever reads topics may have no files
        if Path(place).exists():
            raise UsageError(f"The {name} {place} is not a directory.")
        if name == "landing":
            raise UsageError(
                f"The landing directory {place} does not exist: create it, or name another with --landing."
            )
        if not creates:
            raise UsageError(f"The warehouse {place} does not exist: `afterlog run` creates one.")
        if not Path(place).parent.is_dir():
            raise UsageError(f"The warehouse {place} cannot be created: {Path(place).parent} does not exist.")


def unknown_variables() -> Iterator[tuple[str, str]]:
    """Yield each variable with our prefix that has no effect, and a sentence about it."""
    known = [f"{PREFIX}{name.upper()}" for name in (*Settings.model_fields, *OTHER_VARIABLES)]
    for variable in sorted(os.environ):
        top = variable.removeprefix(PREFIX).partition("__")[0]
        if not variable.startswith(PREFIX) or top in OTHER_VARIABLES:
            continue
        if top.lower() in ("gates", "spark"):
            yield variable, f"{variable} has no effect: set it in the settings file."
        elif top.lower() not in Settings.model_fields:
            close = get_close_matches(f"{PREFIX}{top}", known, n=1)
            meant = f"; did you mean {close[0]}?" if close else "."
            yield variable, f"{variable} is not a setting and has no effect{meant}"


def stray_places(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield what lies in the landing directory where no feed reads it: its name, and a sentence about it.

    Names that begin with ``.`` or ``_`` are left alone, as they are within the feeds' directories.
    """
    known = sorted({stage.directory for stage in CATALOG if stage.directory})
    directories = ", ".join(f"{name}/" for name in known)
    landing = Path(settings.landing)
    try:
        found = sorted(landing.iterdir())
    except OSError:
        return
    for path in found:
        if path.name.startswith((".", "_")) or path.name.endswith(".tmp") or path.name in known:
            continue
        close = get_close_matches(path.name, known, n=1) if path.is_dir() else []
        meant = f"; did you mean {close[0]}/?" if close else f". Feeds land in {directories}."
        yield path.name, f"Nothing reads {path.name!r} in {landing}{meant}"


def remarks(settings: Settings) -> list[str]:
    """Return a sentence for each oversight, a few of each kind by name."""
    variables = [sentence for _, sentence in unknown_variables()]
    strays = [sentence for _, sentence in stray_places(settings)]
    if len(strays) > MOST_NAMES:
        strays[MOST_NAMES:] = [f"Nothing reads {len(strays) - MOST_NAMES:,} more entries of {settings.landing}."]
    return variables + strays
