"""The pages of ``afterlog report`` -> pictures of the front and of the most urgent incident: ``make screenshots``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pipelines.commands.incidents import listing
from pipelines.errors import AfterlogError, EnvironmentLacking, UsageError
from pipelines.settings import ROOT, load
from pipelines.site import addresses
from pipelines.warehouse.tables import Warehouse

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PICTURES = ROOT / "docs" / "pictures"
_WIDTH = 1200  # of a window, in pixels
_HEIGHT = 1500
_SECONDS = 120


def browser() -> str | None:
    """Return the path of a Chromium on this machine; None if there is none."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def take(page: Path, picture: Path) -> None:
    """Write a PNG of the upper part of a page, in UTC.

    Raises EnvironmentLacking: there is no Chromium, or it makes no picture. Raises UsageError: there is no page.
    """
    if not page.is_file():
        raise UsageError(f"There is no page {page}; run `make demo` first, or `afterlog report`.")
    program = browser()
    if program is None:
        raise EnvironmentLacking("There is no Chromium here; install it, then run `make screenshots` again.")
    picture.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="afterlog-") as profile:
        made = Path(profile, "picture.png")
        command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        command += [f"--user-data-dir={profile}", f"--window-size={_WIDTH},{_HEIGHT}", f"--screenshot={made}"]
        try:
            ended = subprocess.run(
                [*command, page.as_uri()], env={**os.environ, "TZ": "UTC"}, capture_output=True, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise EnvironmentLacking(f"{program} made no picture of {page} in {_SECONDS} seconds.") from None
        if ended.returncode or not made.is_file():
            raise EnvironmentLacking(f"{program} made no picture of {page}; it ended with {ended.returncode}.")
        shutil.move(made, picture)


def main() -> int:
    """Write the pictures that README shows, from the default warehouse; return the exit code."""
    try:
        settings = load()
        take(settings.reports() / addresses.FRONT, PICTURES / "front.png")
        listed = listing.listed(Warehouse(settings), "json").result.splitlines()
        if listed:
            page = settings.reports() / addresses.incident(json.loads(listed[0])["incident_id"])
            take(page, PICTURES / "incident.png")
        print(f"The pictures are in {PICTURES}.")
    except AfterlogError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
