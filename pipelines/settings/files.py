"""Files that settings and arguments name -> their content, or one sentence that says why it cannot be read.

A file that is named and is not there is never taken as an empty one.
"""

from __future__ import annotations

from pathlib import Path

from expectations.text import visible
from pipelines.errors import UsageError


def bytes_of(file: Path, what: str) -> bytes:
    """Return the bytes of a file; ``what`` names it in messages, such as ``ca_file of [kafka]``.

    Raises UsageError: it is not there, or cannot be read.
    """
    try:
        return file.read_bytes()
    except OSError as error:
        raise _unreadable(file, what, error.strerror or type(error).__name__) from None


def text_of(file: Path, what: str) -> str:
    """Return the text of a file; raises UsageError also if it is not UTF-8."""
    try:
        return bytes_of(file, what).decode("utf-8")
    except UnicodeDecodeError:
        raise _unreadable(file, what, "it is not UTF-8 text") from None


def _unreadable(file: Path, what: str, why: str) -> UsageError:
    return UsageError(f"{what} cannot be read: {visible(str(file))}: {why}.")
