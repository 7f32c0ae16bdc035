"""The examples in docstrings of the functions that are used most are true."""

from __future__ import annotations

import doctest
import importlib
import re

import pytest

from pipelines.settings import ROOT

MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for room in ("expectations", "pipelines")
    for path in sorted((ROOT / room).rglob("*.py"))
    if re.search(r"^    >>> ", path.read_text(encoding="utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize("module", MODULES)
def test_examples_print_what_they_say(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted
    assert not result.failed


def test_twenty_functions_have_an_example() -> None:
    finder = doctest.DocTestFinder(recurse=True)
    tests = [test for module in MODULES for test in finder.find(importlib.import_module(module)) if test.examples]
    assert len(tests) >= 20
