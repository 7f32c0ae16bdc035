"""A directory -> afterlog.toml in it: the shipped settings, commented, for people to edit."""

from __future__ import annotations

import os
from pathlib import Path

from pipelines.errors import UsageError
from pipelines.settings import ROOT


def init(directory: Path) -> Path:
    """Write the file and return its path.

    Raises UsageError: a file of that name is there, or it cannot be written.
    """
    file = directory.expanduser().absolute() / "afterlog.toml"
    if os.path.lexists(file):
        raise UsageError(f"{file} is there already: edit it, or name another directory.")
    text = (ROOT / "conf" / "afterlog.toml").read_text(encoding="utf-8")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}; name another directory.") from None
    return file
