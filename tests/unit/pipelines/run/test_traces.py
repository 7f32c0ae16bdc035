"""Traces of runs and of cycles, as a collector gets them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from expectations.quality import QUALITY
from pipelines import moments
from pipelines.run.follow import Cycle, Result
from pipelines.run.traces import MOST_WAITING, Traces, traced
from pipelines.settings import Settings
from pipelines.text import iso
from pipelines.warehouse import quality
from pipelines.warehouse.quality import StageRun, Status
from pipelines.warehouse.tables import Warehouse
from tests.testing import collector
from tests.testing.receiver import Receiver

TABLE = "silver.dlq_records"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with collector.collecting() as found:
        for name, value in collector.variables(found).items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def warehouse(settings: Settings) -> Warehouse:
    found = Warehouse(settings)
    found.ensure_all(QUALITY)
    return found


def ran(run_id: str, status: Status = "passed", message: str | None = None, **ago: float) -> StageRun:
    at = moments.now() - timedelta(**ago)
    return StageRun(run_id, TABLE, status, at, at, 7, 7, message=message)


def cycle(result: Result, message: str | None = None) -> Cycle:
    now = iso(moments.now() - timedelta(seconds=1)).replace("Z", "+00:00")
    return Cycle(now, iso(moments.now()).replace("Z", "+00:00"), result, {}, message)


def say(sentence: str) -> None:
    raise AssertionError(sentence)


def test_rows_of_a_run_that_was_killed_are_a_trace_of_its_own(warehouse: Warehouse, server: Receiver) -> None:
    quality.note(warehouse, ran("run-1", "broken", "3 of 9 rows failed", hours=2))
    with traced("afterlog run", {}, say) as trace:
        quality.report(warehouse)
        quality.note(warehouse, ran("run-2"))
        quality.report(warehouse)
        trace.done = [ran("run-2")]
    found = collector.spans(server)
    roots = {item.attributes["afterlog.run_id"]: item for item in found if not item.parent_id}
    assert {run_id: item.attributes["afterlog.outcome"] for run_id, item in roots.items()} == {
        "run-1": "interrupted",
        "run-2": "read",
    }
    for child in (item for item in found if item.parent_id):
        root = roots[child.attributes["afterlog.run_id"]]
        assert (child.parent_id, child.trace_id, child.name) == (root.span_id, root.trace_id, TABLE)
        assert root.start <= child.start <= child.end <= root.end
    assert [item.message for item in found if item.is_error] == ["3 of 9 rows failed"]


def test_cycles_that_did_something_have_a_trace_each(warehouse: Warehouse, server: Receiver) -> None:
    traces = Traces({"afterlog.cluster": "default"})
    results: list[tuple[Result, str | None]] = [
        ("idle", None),
        ("failed", "The disk is full."),
        ("failed", "The disk is full."),
        ("skipped", None),
        ("read", None),
        ("broken", None),
    ]
    with traces.heard():
        for number, (result, message) in enumerate(results):
            done = [ran(str(number))] if result in ("read", "broken") else []
            for stage_run in done:
                quality.note(warehouse, stage_run)
                quality.report(warehouse)
            traces.cycle(cycle(result, message), done)
    assert traces.tell() == ()
    found = collector.spans(server)
    assert len({item.trace_id for item in found}) == 3
    roots = [item for item in found if not item.parent_id]
    assert [(root.attributes["afterlog.outcome"], root.is_error) for root in roots] == [
        ("failed", True),
        ("read", False),
        ("broken", True),
    ]
    assert roots[0].message == "The disk is full."
    assert [item.attributes["afterlog.run_id"] for item in found if item.parent_id] == ["4", "5"]
    assert traces.tell() == ()
    assert len(collector.spans(server)) == len(found)


def test_traces_wait_for_a_collector_that_refuses_and_are_sent_as_they_were(
    warehouse: Warehouse, server: Receiver
) -> None:
    traces = Traces({})
    server.behaviours = ["500", "500", "200"]
    for number in range(MOST_WAITING + 3):
        traces.cycle(cycle("failed", f"failure {number}"), [])
    assert len(traces.tell()) == 1
    before = collector.spans(server)
    assert [item.message for item in before] == [f"failure {number + 3}" for number in range(MOST_WAITING)]
    assert len(traces.tell()) == 1
    assert traces.tell() == ()
    assert collector.spans(server) == before * 3


def test_a_trace_that_its_parent_does_not_sample_is_not_sent(
    warehouse: Warehouse, server: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
    with traced("afterlog run", {}, say):
        pass
    assert server.got == []
    monkeypatch.setenv("TRACEPARENT", "nonsense")
    with traced("afterlog run", {}, say):
        pass
    assert [span.parent_id for span in collector.spans(server)] == [""]


def test_hostile_names_arrive(warehouse: Warehouse, server: Receiver) -> None:
    names: Any = {"a": "\ud800", "b": "<script>\x00\u202e", "c": "x" * 10_000}
    with traced("afterlog run", names, say):
        pass
    (root,) = collector.spans(server)
    assert {name: root.attributes[name] for name in names} == names | {"a": "?"}
