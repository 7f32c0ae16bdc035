"""The package that the wheel installs: it finds the code, which lies below it in ``_app``, and starts the command.

docs/decisions/0079-ship-the-folders-below-one-package.md says why the code is there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

CODE = Path(__file__).with_name("_app")


def find_code() -> None:
    """Put the code at the front of ``sys.path``; a checkout, which has no ``_app``, is there already."""
    if CODE.is_dir() and os.fspath(CODE) not in sys.path:
        sys.path.insert(0, os.fspath(CODE))


def main() -> None:
    """Run the command ``afterlog``."""
    find_code()
    from pipelines import start

    start.main()
