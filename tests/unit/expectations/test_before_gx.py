"""Modules that Great Expectations does not need, and that are imported when they are first used."""

from __future__ import annotations

import subprocess
import sys


def told(code: str) -> list[str]:
    """Return the lines that a fresh Python prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    return done.stdout.splitlines()


def test_a_gate_imports_no_module_that_only_charts_and_statistics_need() -> None:
    names = "'scipy.stats._distn_infrastructure', 'altair.vegalite'"
    code = f"import sys; from expectations import suite; print([one for one in ({names}) if one in sys.modules])"
    assert told(code) == ["[]"]


def test_a_deferred_module_is_the_module_itself_from_its_first_use_on() -> None:
    code = """
import sys
from expectations import before_gx
for name in ("json.tool", "wave", "json.decoder"):
    before_gx.defer(name)
import json, wave
from json import tool
print("argparse" in sys.modules)
print(tool.main.__module__, wave.Error.__module__)
import json.tool
print(type(sys.modules["wave"]).__name__, type(json.tool).__name__, json.tool is sys.modules["json.tool"])
from json import decoder
print(decoder.JSONDecoder.__module__)
"""
    assert told(code) == ["False", "json.tool wave", "module module True", "json.decoder"]
