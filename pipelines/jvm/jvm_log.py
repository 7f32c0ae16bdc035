"""What the JVM logs: hidden while all goes well, kept where a command fails, shown with ``--verbose``.

Only the standard library is imported: the command line says here what it wants before it starts anything.
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
    """Return the Java options that say where a JVM logs: in a directory that ends with the process, or as shown.

    The texts of exceptions may quote a record, so they are logged only where AFTERLOG_DEBUG asks for everything.
    """
    global _file
    _file = None if _to_terminal else scratch / NAME
    return [
        f"-Dafterlog.log={'stderr' if _to_terminal else 'file'}",
        f"-Dafterlog.log.file={scratch / NAME}",
        f"-Dafterlog.log.exceptions={'full' if os.environ.get('AFTERLOG_DEBUG') else 'none'}",
    ]


def kept() -> Path | None:
    """Keep what the JVM has logged beyond the end of this process; return where, or None where it logged nothing."""
    if _file is None:
        return None
    with contextlib.suppress(OSError):
        if _file.stat().st_size:
            descriptor, name = tempfile.mkstemp(prefix="afterlog-jvm-", suffix=".log")
            with os.fdopen(descriptor, "wb") as copy, _file.open("rb") as logged:
                shutil.copyfileobj(logged, copy)
            return Path(name)
    return None
