"""Mistakes that would pass unnoticed: missing directories; variables, gates and directories without effect."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from expectations.text import visible
from pipelines.catalog import stages_of_type
from pipelines.errors import UsageError
from pipelines.settings import Settings, located, settings_file
from pipelines.settings.layers import entry_of, fields_of, read_layers
from pipelines.stage import Land, Split
from pipelines.stores.locations import scheme_of

PREFIX = "AFTERLOG_"
# Variables that are not settings: set-up, the command line and the DAGs read them.
OTHER_VARIABLES = ("SETTINGS", "CACHE", "MAVEN", "DEBUG", "PORT", "COMMAND", "ON_FAILURE")
MOST_NAMES = 5

Location = Literal["warehouse", "landing"]


def require_locations(
    settings: Settings, flags: dict[Location, str | None], *, creates: bool, lands: bool | None = None
) -> None:
    """Check that the warehouse and the landing directory exist that a flag, a variable or the settings file names.

    The settings' own defaults need not exist. A command that ``creates`` can create a warehouse if its parent exists.
    The landing directory is checked if ``lands`` is true or, if ``lands`` is None, if the command creates.

    Raises UsageError: one of them does not exist, or is not a directory.
    """
    for name, flag in flags.items():
        if name == "landing" and not (creates if lands is None else lands):
            continue
        if name == "landing" and settings.has_entries:
            _require_landings(settings)
            continue
        location = getattr(settings, name)
        variable = f"{PREFIX}{name.upper()}"
        default = str(located(Settings.model_fields[name].default))
        explicit = flag is not None or variable in os.environ or location != default
        if scheme_of(location) or _is_directory(location):
            continue
        if _exists(location):
            raise UsageError(f"The {name} {location} is not a directory.")
        if not explicit:
            continue
        if name == "landing":
            if any(settings.topics_of(stage.directory) for stage in stages_of_type(Land)):
                continue  # a user who reads topics can have no files
            raise UsageError(
                f"The landing directory {location} does not exist: create it, or name another with --landing."
            )
        if not creates:
            raise UsageError(f"The warehouse {location} does not exist: `afterlog run` creates one.")
        parent = Path(location).parent
        if not _is_directory(parent):
            why = "is not a directory" if _exists(parent) else "does not exist"
            raise UsageError(f"The warehouse {location} cannot be created: {parent} {why}.")


def _require_landings(settings: Settings) -> None:
    """Check the landing directories of several clusters; those that only have their defaults need not exist.

    Raises UsageError: a directory that is named for a cluster does not exist, and the cluster reads no topics.
    """
    for own in settings.of_clusters():
        reads = any(own.topics_of(stage.directory) for stage in stages_of_type(Land))
        if _exists(own.landing) and not _is_directory(own.landing):
            raise UsageError(f"The landing directory {own.landing} of cluster {own.cluster} is not a directory.")
        if own.landing != str(Path(settings.landing) / own.cluster) and not _exists(own.landing) and not reads:
            raise UsageError(f"The landing directory {own.landing} of cluster {own.cluster} does not exist: create it.")


def _is_directory(location: str | Path) -> bool:
    try:
        return Path(location).is_dir()
    except OSError as error:
        raise UsageError(f"{location} cannot be looked at: {error.strerror}.") from None


def _exists(location: str | Path) -> bool:
    return os.path.lexists(location)


def unknown_variables() -> Iterator[tuple[str, str]]:
    """Yield each variable with our prefix that has no effect, and a sentence about it."""
    names = fields_of(Settings)
    known = [f"{PREFIX}{name.upper()}" for name in (*names, *OTHER_VARIABLES)]
    for variable in sorted(os.environ):
        top = variable.removeprefix(PREFIX).partition("__")[0]
        if not variable.startswith(PREFIX):
            if variable.upper().startswith(PREFIX):
                yield variable, f"{variable} has no effect: write {PREFIX} in capitals."
            continue
        if top in OTHER_VARIABLES:
            continue
        if top == "CLUSTER" and (part := variable.removeprefix(f"{PREFIX}CLUSTER__")) != variable:
            named = part.partition("__")[0]
            if "__" not in part or entry_of(read_layers(settings_file(), Settings), named.lower()) is None:
                yield variable, f"{variable} has no effect: no [[cluster]] has a name like {named}."
            continue
        if top.lower() in ("gates", "spark"):
            yield variable, f"{variable} has no effect: set it in the settings file."
        elif top.lower() not in names:
            yield variable, f"{variable} is not a setting and has no effect{_meant(f'{PREFIX}{top}', known)}"


def gates_without_effect(settings: Settings) -> Iterator[str]:
    """Yield a sentence about each table under ``[gates]`` whose gate has no tolerance, or that has no gate."""
    gated = [stage.table for stage in stages_of_type(Split)]
    for table in sorted(settings.gates.keys() - set(gated)):
        meant = _meant(table, gated)
        yield f'[gates."{visible(table)}"] has no effect: no gate of that name has a tolerance{meant}'


def _meant(name: str, known: Sequence[str]) -> str:
    """Return the end of a sentence about an unknown name: the known name that may be meant."""
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else "."


def stray_entries(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield each entry of the landing directories that nothing reads: its name, and a sentence about it.

    With ``[[cluster]]`` the shared landing directory has those of clusters. Names that begin with ``.`` or ``_``, or
    end in ``.tmp``, are ignored, as within the feeds' directories.
    """
    feeds = sorted({stage.directory for stage in stages_of_type(Land)})
    if settings.has_entries:
        landings = [Path(own.landing) for own in settings.of_every_cluster()]
        shared = Path(settings.landing)
        if shared not in landings:
            names = sorted(
                {landing.relative_to(shared).parts[0] for landing in landings if landing.is_relative_to(shared)}
            )
            yield from _strays_in(shared, names, "Clusters have their landing directories in")
    for own in settings.of_clusters():
        yield from _strays_in(Path(own.landing), feeds, "Feeds land in")


def _strays_in(landing: Path, known: Sequence[str], what: str) -> Iterator[tuple[str, str]]:
    directories = ", ".join(f"{name}/" for name in known)
    end = f". {what} {directories}." if known else "."
    try:
        entries = sorted(landing.iterdir())
    except OSError:
        return
    for path in entries:
        if path.name.startswith((".", "_")) or path.name.endswith(".tmp"):
            continue
        if path.name in known:
            if not path.is_dir():
                yield path.name, f"{path.name!r} in {landing} is not a directory: files of the feed go into one."
            continue
        close = get_close_matches(path.name, known, n=1) if path.is_dir() else []
        meant = f"; did you mean {close[0]}/?" if close else end
        yield path.name, f"Nothing reads {path.name!r} in {landing}{meant}"


def remarks(settings: Settings) -> list[str]:
    """Return a sentence for each gate without effect, and for each entry of the landing directory that nothing reads.

    Beyond a few entries it tells only their number.
    """
    strays = [sentence for _, sentence in stray_entries(settings)]
    if len(strays) > MOST_NAMES:
        strays[MOST_NAMES:] = [f"Nothing reads {len(strays) - MOST_NAMES:,} more entries of {settings.landing}."]
    return [*gates_without_effect(settings), *strays]
