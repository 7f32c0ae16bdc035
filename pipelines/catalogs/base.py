"""What a catalog can do that Afterlog writes to, and how a table stands in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from expectations.text import visible
from pipelines.catalogs.described import Described

ITSELF = "the comment"
"""What stands for a table's own comment among its columns."""


def differing(here: Mapping[str, object], there: Mapping[str, object]) -> str:
    """Name what differs between a table's parts and those of its entry, or say that their order does; "" if nothing."""
    changed = [name for name in {**here, **there} if here.get(name) != there.get(name)]
    if not changed and list(here) != list(there):
        changed = ["the order of columns"]
    return ", ".join(map(visible, changed))


@dataclass(frozen=True)
class Entry:
    """What a catalog has under a table's name.

    ``location`` is None for what is no Delta table outside the catalog, such as a view; ``differs`` says in what the
    entry is not as the Delta log describes the table, "" if it is.
    """

    location: str | None
    differs: str = ""


class Catalog(Protocol):
    """A catalog that can be reached. All methods raise EnvironmentLacking if it does not answer, or refuses."""

    @property
    def words(self) -> str:
        """The catalog's name for people."""

    def location(self, root: str, table: str) -> str:
        """Return a table's location below the root of a warehouse, as the catalog keeps it."""

    def entry(self, table: Described) -> Entry | None:
        """Return what is there under the table's name; None if nothing is."""

    def prepare(self, layers: list[str]) -> None:
        """Create what has to be there before tables of these layers can be created; raises UsageError."""

    def create(self, table: Described) -> None:
        """Make a table known."""

    def change(self, table: Described) -> None:
        """Bring an entry up to date that is a table of this warehouse, or of the location from which it moved."""

    @property
    def replaces(self) -> bool:
        """Tell whether the catalog can only drop an entry and create it again, which loses what was granted on it."""
