from __future__ import annotations

from datetime import UTC, datetime

from pipelines.replay.model import Plan, Source
from pipelines.replay.run import _batches
from pipelines.replay.sender import headers_of
from tests.testing.replays import numbered, record

PLAN = Plan("p1", "0" * 64, "c", "id", datetime(2026, 1, 1, tzinfo=UTC), (), ())


def test_headers_of_older_replays_are_replaced() -> None:
    old = (("a", None), ("afterlog.replay.plan", b"p0"), ("a", b"2"), ("afterlog.replay.unheard-of", b"x"))
    found = headers_of(PLAN, record(7, "t", headers=old, source=Source("t", 0, 5, None)))
    assert found == (
        ("a", None),
        ("a", b"2"),
        ("afterlog.replay.plan", b"p1"),
        ("afterlog.replay.record", b"dlq.of-tests:0:7"),
        ("afterlog.replay.attempt", b"1"),
        ("afterlog.replay.original", b"t:0:5"),
    )


def test_batches_have_a_limit_of_records_and_of_bytes() -> None:
    sizes = [len(batch) for batch in _batches(numbered(25, "t"), 10)]
    assert sizes == [10, 10, 5]
    heavy = numbered(5, "t", size=3_000_000)
    batches = list(_batches(heavy, 10))
    assert [len(batch) for batch in batches] == [2, 2, 1]
    assert [item for batch in batches for item in batch] == heavy
    assert [len(batch) for batch in _batches(numbered(2, "t", size=20_000_000), 10)] == [1, 1]
    assert list(_batches([], 10)) == []
