"""The JVM's log: hidden while all goes well, kept if a command fails, shown with ``--verbose``.

This module imports only the standard library, because the command line calls it before it starts anything.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

NAME = "jvm.log"

_to_terminal = False
_file: Path | None = None


def show() -> None:
    """Let the JVMs that this process starts log to standard error."""
    global _to_terminal
    _to_terminal = True


def is_shown() -> bool:
    """Tell whether JVMs log to standard error."""
    return _to_terminal


def options(scratch: Path) -> list[str]:
    """Return the Java options that say where a JVM logs: to a file in the scratch directory, or to standard error.

    Exception texts can quote a record, so they are logged only if AFTERLOG_DEBUG is set.
    """
    global _file
    _file = None if _to_terminal else scratch / NAME
    return [
        f"-Dafterlog.log={'stderr' if _to_terminal else 'file'}",
        f"-Dafterlog.log.file={scratch / NAME}",
        f"-Dafterlog.log.exceptions={'full' if os.environ.get('AFTERLOG_DEBUG') else 'none'}",
    ]


def kept() -> Path | None:
    """Copy the JVM's log to a file that outlives this process; return its path, or None if nothing is in the log."""
    if _file is None:
        return None
    with contextlib.suppress(OSError):
        if _file.stat().st_size:
            descriptor, name = tempfile.mkstemp(prefix="afterlog-jvm-", suffix=".log")
            with os.fdopen(descriptor, "wb") as copy, _file.open("rb") as logged:
                shutil.copyfileobj(logged, copy)
            return Path(name)
    return None
