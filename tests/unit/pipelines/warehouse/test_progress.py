"""Progress, as it is written and read again."""

from __future__ import annotations

import json
from pathlib import Path

from pipelines.kafka.offsets import Gap, OffsetRange, TopicPosition, TopicProgress
from pipelines.settings import Settings
from pipelines.sources.landing import LandedFile
from pipelines.warehouse import progress
from pipelines.warehouse.progress import MOST_DIRECTORIES, Batch, Held, Progress, Reading
from pipelines.warehouse.tables import Warehouse

TABLE = "bronze.dlq_records"
SPAN = OffsetRange("dlq.orders", "bvpWvblvQLKULzhDKq4URw", 3, 40, 60)


def test_progress_is_read_as_it_was_written(settings: Settings) -> None:
    saved = Progress(
        target_id="a table",
        target_version=7,
        inputs={"bronze.x": Reading("its id", 5)},
        pending={"bronze.x": Batch(5, 9)},
        directory="/landing/dlq",
        files={"a.jsonl": LandedFile("a.jsonl", 10, 20)},
        elsewhere={"/second/dlq": {"b.jsonl": LandedFile("b.jsonl", 1, 2)}},
        topics={
            "default": TopicProgress(
                followed={SPAN.topic_id: TopicPosition("dlq.orders", {0: 1, 3: 2**62}, {3: 2**63 - 1}, {3: 9}, {0: 7})},
                pending=(SPAN,),
                gaps=(Gap(SPAN, "a run", "2026-11-21T02:00:00+00:00"),),
                cluster_id="AEkPlvTSRzGNyA9TcOw1Gg",
            )
        },
        again=("dlq.a",),
        decided={"held": ["dlq.a"], "accepted": []},
        held={"dlq.a": Held("2026-11-21T02:00:00+00:00", "It broke.", 30, "as it was", 3)},
        history={"dlq.b": [[[0, 3], [9, 9, 0, 20]]]},
        contract="a mark",
        home="default",
    )
    progress.save(Warehouse(settings), TABLE, saved)
    assert progress.load(Warehouse(settings), TABLE) == saved
    assert saved.within_a_batch("default")


def test_files_of_each_landing_directory_are_remembered() -> None:
    first, second = Path("/first/dlq"), Path("/second/dlq")
    item, other, later = (LandedFile(name, 1, 2) for name in ("a", "b", "c"))
    known = Progress().with_files(first, {"a": item}).with_files(second, {"a": other}).with_files(first, {"c": later})
    assert known.files_in(first) == {"a": item, "c": later}
    assert known.files_in(second) == {"a": other}
    assert known.files_in(Path("/third")) == {}
    for number in range(100):
        known = known.with_files(Path(f"/{number}"), {"a": item})
    assert len(known.elsewhere) == MOST_DIRECTORIES
    assert known.files_in(Path("/98")) == {"a": item}


def test_progress_without_topics_is_read_too(settings: Settings) -> None:
    saved = Progress(target_id="a table", files={"a.jsonl": LandedFile("a.jsonl", 10, 20)})
    progress.save(Warehouse(settings), TABLE, saved)
    file = Path(settings.warehouse) / "_progress" / f"{TABLE}.json"
    values = json.loads(file.read_text())
    for later in ("topics", "elsewhere", "home"):
        del values[later]
    file.write_text(json.dumps(values))
    assert progress.load(Warehouse(settings), TABLE) == saved
    assert not saved.within_a_batch("default")


def test_topics_are_read_from_progress_that_does_not_tell_what_was_seen(settings: Settings) -> None:
    position = TopicPosition("dlq.orders", {0: 1}, {0: 5}, {0: 3})
    saved = Progress(topics={"default": TopicProgress({SPAN.topic_id: position}, cluster_id="a cluster")})
    progress.save(Warehouse(settings), TABLE, saved)
    file = Path(settings.warehouse) / "_progress" / f"{TABLE}.json"
    values = json.loads(file.read_text())
    del values["topics"]["default"]["followed"][SPAN.topic_id]["seen"]
    file.write_text(json.dumps(values))
    assert progress.load(Warehouse(settings), TABLE) == saved


def test_a_batch_of_topics_waits_while_a_feed_reads_no_topics_but_a_gap_does_not() -> None:
    batch = Progress(topics={"east": TopicProgress(pending=(SPAN,))})
    assert batch.within_a_batch("east", reads_topics=True)
    assert not batch.within_a_batch("east", reads_topics=False)
    gap = Progress(topics={"east": TopicProgress(gaps=(Gap(SPAN, "a run", "2026-11-21T02:00:00+00:00"),))})
    assert gap.within_a_batch("east", reads_topics=False)


def test_a_batch_of_another_cluster_waits_for_that_cluster() -> None:
    saved = Progress(topics={"east": TopicProgress(pending=(SPAN,)), "west": TopicProgress()})
    assert saved.within_a_batch("east")
    assert not saved.within_a_batch("west")


def test_topics_that_cannot_be_understood_are_no_progress(settings: Settings) -> None:
    progress.save(Warehouse(settings), TABLE, Progress())
    file = Path(settings.warehouse) / "_progress" / f"{TABLE}.json"
    wrong: tuple[object, ...] = (
        {"default": {"followed": {}}},
        {"default": 5},
        [],
        {"default": {"followed": {"id": 1}}},
    )
    for topics in wrong:
        file.write_text(json.dumps(json.loads(file.read_text()) | {"topics": topics}))
        assert progress.load(Warehouse(settings), TABLE) is None
