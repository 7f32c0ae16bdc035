"""Commands that tests run in their own process: made once, as Typer would make all of them anew for each."""

from __future__ import annotations

from functools import cache

import typer.main
import typer.testing


def keep() -> None:
    """Keep what Typer makes of the command line; that takes ten times as long as a short command."""
    kept = cache(typer.main.get_command)
    setattr(typer.main, "get_command", kept)  # noqa: B010  # mypy takes no other function under the name
    setattr(typer.testing, "_get_command", kept)  # noqa: B010
