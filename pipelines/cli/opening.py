"""What commands open: the settings under their flags, a warehouse to read, a session."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipelines.cli.output import say
from pipelines.commands import settings_checks
from pipelines.run import sessions
from pipelines.settings import Settings, load
from pipelines.stores import restored
from pipelines.teams import Teams
from pipelines.warehouse.tables import Warehouse

if TYPE_CHECKING:
    from pipelines.steps.watch import Watch


def settings_under(
    warehouse: str | None,
    landing: str | None,
    cluster: str | None = None,
    *,
    creates: bool = False,
    lands: bool | None = None,
    says: bool = True,
    whole: bool = True,
    team: str | None = None,
) -> Settings:
    """Return the settings under these flags; say which variables have no effect, unless the command does.

    Only a command that ``creates`` one, or looks before, can name a warehouse that is not there; the landing directory
    must be there for it, and for a command of which ``lands`` says that it looks into it. A ``team`` must be one. The
    warehouse must be ``whole``: not restored in part.
    """
    if says:
        for _, remark in settings_checks.unknown_variables():
            say(remark)
    settings = load(cluster, warehouse=warehouse, landing=landing)
    Teams.of_settings(settings).check(team)
    locations: dict[settings_checks.Location, str | None] = {"warehouse": warehouse, "landing": landing}
    settings_checks.require_locations(settings, locations, creates=creates, lands=lands)
    if whole:
        restored.refuse_half(Warehouse(settings).store)
    return settings


@contextlib.contextmanager
def readable_warehouse(settings: Settings, gates: bool = False) -> Iterator[Warehouse]:
    """Yield a warehouse whose tables can be read: one session for all reads of what only Spark opens, else none."""
    tables = Warehouse(settings)
    if tables.opens_tables:
        with tables.store.pinned():
            yield tables
    else:
        with display_of_start() as watch, sessions.session(settings, watch, gates) as spark:
            yield Warehouse(settings, spark)


@contextlib.contextmanager
def warehouse_with_session(settings: Settings) -> Iterator[Warehouse]:
    """Yield a warehouse with a session; a terminal shows that Spark starts."""
    with contextlib.ExitStack() as kept:
        with display_of_start() as watch:
            spark = kept.enter_context(sessions.session(settings, watch))
        yield Warehouse(settings, spark)


def display_of_start() -> contextlib.AbstractContextManager[Watch]:
    """Return what shows on a terminal that Spark starts; elsewhere it says nothing."""
    from pipelines.commands import display
    from pipelines.steps.watch import NOBODY

    return display.Display(sessions.STARTING) if display.on_terminal() else contextlib.nullcontext(NOBODY)
