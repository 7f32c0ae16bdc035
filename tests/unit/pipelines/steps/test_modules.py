"""The module of each table has the functions that its stage calls, with the right parameters."""

from __future__ import annotations

import inspect
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from expectations.verdict import Verdict
from pipelines.catalog import CATALOG, stages_of_type
from pipelines.stage import Land, LookUp, Split, Stage, Summarise
from pipelines.steps import modules
from pipelines.steps.modules import LandModule, LookUpModule, ReaderModule, SplitModule

MUST: dict[type[Stage], set[str]] = {Land: {"parse"}, Split: {"transform"}, LookUp: {"refresh"}}
PROTOCOLS: dict[type[Stage], Any] = {Land: LandModule, Split: SplitModule, LookUp: LookUpModule}
OF_FUNCTIONS = {  # properties in the protocol
    "parse_records": ["records", "settings"],
    "read_files": ["spark", "files", "damaged", "settings"],
    "transform_in": ["bronze", "warehouse"],
}


def parameters(protocol: Any, name: str) -> list[str]:
    return OF_FUNCTIONS.get(name) or [*inspect.signature(getattr(protocol, name)).parameters][1:]


def functions(module: ModuleType, protocol: Any) -> dict[str, Any]:
    """The functions of a module that its stage calls."""
    return {name: part for name, part in vars(module).items() if name in vars(protocol) and callable(part)}


@pytest.mark.parametrize(
    "stage", [stage for stage in CATALOG if not isinstance(stage, Summarise)], ids=lambda stage: stage.table
)
def test_a_module_fulfils_the_protocol_of_its_stage(stage: Stage) -> None:
    protocol = PROTOCOLS[type(stage)]
    given = functions(import_module(f"pipelines.{stage.table}"), protocol)
    assert given.keys() >= MUST[type(stage)]
    for name, function in given.items():
        taken = [*inspect.signature(function).parameters]
        # Only the number counts, because a module names a batch after its content.
        assert len(taken) == len(parameters(protocol, name)), name


def test_a_reader_fulfils_its_protocol() -> None:
    readers = [stage.reader for stage in stages_of_type(Land) if stage.reader]
    assert readers
    for reader in readers:
        given = functions(import_module(f"pipelines.sources.{reader}"), ReaderModule)
        assert given.keys() == {"unread", "read", "listing", "passed_over"}
        for name, function in given.items():
            assert [*inspect.signature(function).parameters] == parameters(ReaderModule, name)


def test_what_a_module_leaves_out_has_a_default() -> None:
    (dlq,) = [stage for stage in stages_of_type(Land) if stage.table == "bronze.dlq_records"]
    module = modules.land_module(dlq)
    assert module.read_files is None
    assert module.parse_records is import_module("pipelines.bronze.dlq_records").parse_records
    (pushes,) = [stage for stage in stages_of_type(Split) if stage.table == "silver.topology_pushes"]
    verdict = Verdict(pushes.table, "a run", 0, ())
    assert modules.split_module(pushes).explain(None, None, verdict, None) is verdict  # type: ignore[arg-type]
    (acknowledged,) = [stage for stage in stages_of_type(LookUp) if stage.table == "silver.acknowledged_topics"]
    assert modules.look_up_module(acknowledged).is_stale(None) is False  # type: ignore[arg-type]
