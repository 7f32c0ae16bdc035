"""What Great Expectations must find when it is imported: import this module before.

It sends no analytics. Two modules are imported when they are first used: scipy's statistics and Altair are for
expectations that no contract has, and for charts that nobody draws. They took more than a third of the import, which
each command that judges rows waits for.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any


class _Deferred(ModuleType):
    """Stands for a module until something asks it for a name; then the module itself takes its place."""

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def defer(name: str) -> None:
    """Defer the import of a module, by its full name, unless it is imported already.

    Raises ModuleNotFoundError: the module's package is not installed.
    """
    if name in sys.modules:
        return
    package, _, own = name.rpartition(".")
    module = _Deferred(name)
    module.__spec__ = importlib.util.find_spec(name)
    sys.modules[name] = module
    if package:
        setattr(sys.modules[package], own, module)


os.environ["GX_ANALYTICS_ENABLED"] = "false"
defer("scipy.stats")
defer("altair")
