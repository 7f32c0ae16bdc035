"""Which offsets to read next and which are gone, from a cluster's log offsets and the progress."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipelines.kafka.offsets import (
    Log,
    OffsetRange,
    TopicPosition,
    TopicProgress,
    batch,
    doubted,
    follow,
    is_doubtful,
    mark_of,
    passed,
    unread,
)

ID, OTHER = "bvpWvblvQLKULzhDKq4URw", "316lR1zJRN6b3Vm2RMD1Wg"
LOG = Log("dlq.orders", ID, 0, 0, 100)
HERE, REPLACED = {"dlq.orders": ID}, {"dlq.orders": OTHER}
KNOWN = TopicProgress({ID: TopicPosition("dlq.orders", {0: 40})})


def span(start: int, end: int, partition: int = 0, topic_id: str = ID) -> OffsetRange:
    return OffsetRange("dlq.orders", topic_id, partition, start, end)


def test_a_topic_met_for_the_first_time_is_read_from_where_it_begins_now() -> None:
    found = follow(TopicProgress(), [replace(LOG, start=30)], HERE)
    assert found.gaps == ()
    assert unread(found.followed, [LOG]) == (span(30, 100),)


def test_what_is_met_for_the_first_time_may_be_in_the_table() -> None:
    found = follow(TopicProgress(), [LOG], HERE)
    assert is_doubtful(found.followed, [span(0, 50)])
    halfway = passed(found.followed, [span(0, 50)])
    assert is_doubtful(halfway, [span(50, 100)])
    assert passed(halfway, [span(50, 100)]) == {ID: TopicPosition("dlq.orders", {0: 100})}


def test_a_followed_topic_is_read_on() -> None:
    found = follow(KNOWN, [LOG], HERE)
    assert (found.followed[ID].next, found.gaps) == ({0: 40}, ())
    assert unread(found.followed, [LOG]) == (span(40, 100),)
    assert not is_doubtful(found.followed, [span(40, 100)])


def test_what_was_removed_before_it_was_read_is_a_gap_once() -> None:
    removed = replace(LOG, start=70)
    found = follow(KNOWN, [removed], HERE)
    assert found.gaps == (span(40, 70),)
    assert unread(found.followed, [removed]) == (span(70, 100),)
    assert follow(TopicProgress(found.followed), [removed], HERE).gaps == ()


def test_all_of_it_removed_is_a_gap_and_nothing_to_read() -> None:
    emptied = replace(LOG, start=100)
    found = follow(KNOWN, [emptied], HERE)
    assert found.gaps == (span(40, 100),)
    assert unread(found.followed, [emptied]) == ()


def test_removal_of_what_was_read_is_no_gap() -> None:
    assert follow(KNOWN, [replace(LOG, start=40)], HERE).gaps == ()


def test_a_new_partition_begins_at_its_beginning() -> None:
    new = Log("dlq.orders", ID, 1, 0, 5)
    assert unread(follow(KNOWN, [LOG, new], HERE).followed, [new]) == (span(0, 5, partition=1),)
    found = follow(KNOWN, [LOG, replace(new, start=3)], HERE)
    assert found.gaps == (span(0, 3, partition=1),)


def test_a_topic_created_again_is_another_and_read_from_its_beginning() -> None:
    successor = Log("dlq.orders", OTHER, 0, 0, 10)
    found = follow(KNOWN, [successor], REPLACED)
    assert unread(found.followed, [successor]) == (span(0, 10, topic_id=OTHER),)
    assert found.followed[ID] == KNOWN.followed[ID]
    assert found.gaps == ()
    assert follow(KNOWN, [replace(successor, start=2)], REPLACED).gaps == (span(0, 2, topic_id=OTHER),)


def test_a_truncated_log_is_read_again_and_its_rows_are_doubtful() -> None:
    truncated = replace(LOG, start=10, end=30, truncated=True)
    found = follow(KNOWN, [truncated], HERE)
    assert found.gaps == ()
    assert unread(found.followed, [truncated]) == (span(10, 30),)
    assert is_doubtful(found.followed, [span(10, 30)])


def test_what_a_truncated_log_loses_later_is_a_gap_again() -> None:
    written = doubted(replace(KNOWN, pending=(span(40, 60),)), written=True)
    found = follow(written, [replace(LOG, end=30, truncated=True)], HERE)
    assert (found.followed[ID].written, found.followed[ID].next, found.pending) == ({}, {0: 0}, ())
    assert follow(TopicProgress(found.followed), [replace(LOG, start=10)], HERE).gaps == (span(0, 10),)


def test_an_end_before_what_was_read_leaves_nothing_to_read() -> None:
    """A change of the isolation level to read_committed moves the end back to the last stable offset."""
    found = follow(KNOWN, [replace(LOG, end=35)], HERE)
    assert (unread(found.followed, [replace(LOG, end=35)]), found.followed) == ((), KNOWN.followed)


def test_a_pending_batch_stays_what_it_is() -> None:
    pending = replace(KNOWN, pending=(span(40, 60),))
    assert follow(pending, [LOG], HERE).pending == (span(40, 60),)


def test_a_pending_batch_that_was_not_written_and_is_gone_in_part_leaves_a_gap() -> None:
    pending = replace(KNOWN, pending=(span(40, 60),))
    found = follow(pending, [replace(LOG, start=50)], HERE)
    assert (found.gaps, found.pending) == ((span(40, 50),), (span(50, 60),))


def test_a_pending_batch_that_was_written_leaves_none() -> None:
    written = doubted(replace(KNOWN, pending=(span(40, 60),)), written=True)
    found = follow(written, [replace(LOG, start=50)], HERE)
    assert (found.gaps, found.pending) == ((), (span(50, 60),))
    assert is_doubtful(found.followed, found.pending)
    assert follow(written, [replace(LOG, start=75)], HERE).gaps == (span(60, 75),)


def test_a_pending_batch_that_was_not_written_to_a_table_that_changed_leaves_a_gap() -> None:
    tidied = doubted(replace(KNOWN, pending=(span(40, 60),)), written=False)
    assert follow(tidied, [replace(LOG, start=50)], HERE).gaps == (span(40, 50),)


def test_a_pending_batch_of_a_topic_created_again_is_a_gap_unless_it_was_written() -> None:
    pending = replace(KNOWN, pending=(span(40, 60),))
    found = follow(pending, [], REPLACED)
    assert (found.gaps, found.pending, found.followed[ID].next) == ((span(40, 60),), (), {0: 60})
    assert follow(doubted(pending, written=True), [], REPLACED).gaps == ()


def test_what_was_seen_of_a_topic_and_not_read_is_a_gap_once_its_name_is_that_of_another() -> None:
    seen = TopicProgress(follow(KNOWN, [LOG], HERE).followed)
    hidden = follow(seen, [], {})
    assert (hidden.gaps, hidden.followed) == ((), seen.followed)
    found = follow(TopicProgress(hidden.followed), [], REPLACED)
    assert (found.gaps, found.followed[ID]) == ((span(40, 100),), TopicPosition("dlq.orders", {0: 100}))
    assert follow(TopicProgress(found.followed), [], REPLACED).gaps == ()


def test_a_batch_that_was_written_is_no_part_of_the_gap_of_a_replaced_topic() -> None:
    seen = TopicProgress(follow(KNOWN, [LOG], HERE).followed, pending=(span(40, 60),))
    assert follow(doubted(seen, written=True), [], REPLACED).gaps == (span(60, 100),)
    assert follow(doubted(seen, written=False), [], REPLACED).gaps == (span(40, 100),)


def test_what_was_seen_and_read_is_forgotten() -> None:
    seen = follow(KNOWN, [LOG], HERE).followed
    assert seen[ID].seen == {0: 100}
    assert passed(seen, [span(40, 99)])[ID].seen == {0: 100}
    assert passed(seen, [span(40, 100)])[ID] == TopicPosition("dlq.orders", {0: 100})


def test_a_pending_batch_of_a_topic_that_is_not_shown_is_read_once_it_is() -> None:
    pending = replace(KNOWN, pending=(span(40, 60),))
    found = follow(pending, [], {})
    assert (found.gaps, found.pending, found.followed) == ((), (), KNOWN.followed)
    assert unread(follow(TopicProgress(found.followed), [LOG], HERE).followed, [LOG]) == (span(40, 100),)


def test_the_mark_of_a_batch_is_that_of_its_cluster_and_offsets() -> None:
    marks = {mark_of("a", [span(0, 9)]), mark_of("b", [span(0, 9)]), mark_of("a", [span(0, 8)]), mark_of("a", [])}
    assert len(marks) == 4
    assert mark_of("a", [span(0, 9)]) in marks


def test_a_batch_that_was_written_is_no_gap_either_when_its_leader_was_away() -> None:
    written = doubted(replace(KNOWN, pending=(span(40, 60),)), written=True)
    away = follow(written, [], HERE)
    assert follow(TopicProgress(away.followed), [replace(LOG, start=80)], HERE).gaps == (span(60, 80),)


def test_a_pending_batch_of_a_partition_without_a_leader_waits() -> None:
    pending = replace(KNOWN, pending=(span(40, 60),))
    found = follow(pending, [], HERE)
    assert (found.gaps, found.pending, found.followed) == ((), (), KNOWN.followed)


def test_after_a_doubt_the_table_is_asked_up_to_where_the_log_ends() -> None:
    found = follow(doubted(KNOWN, written=False), [LOG], HERE)
    assert found.followed[ID].doubtful == {0: 100}
    assert not is_doubtful(passed(found.followed, [span(40, 100)]), [span(100, 120)])


@pytest.mark.parametrize(
    ("lengths", "most", "taken"),
    [
        pytest.param([10, 20], 30, [10, 20], id="all of it"),
        pytest.param([100, 300], 40, [10, 30], id="shares"),
        pytest.param([1, 999], 100, [1, 99], id="at least one"),
        pytest.param([1, 1, 1], 2, [1, 1], id="fewer than partitions"),
        pytest.param([0], 5, [0], id="nothing"),
    ],
)
def test_a_batch_is_bounded_and_none_starves(lengths: list[int], most: int, taken: list[int]) -> None:
    waiting = [span(7, 7 + length, partition=at) for at, length in enumerate(lengths)]
    chosen = batch(waiting, most)
    assert [candidate.length for candidate in chosen] == taken
    assert all(candidate.start == 7 for candidate in chosen)


def test_batches_reach_the_end() -> None:
    logs = [LOG, Log("dlq.orders", ID, 1, 0, 3), Log("dlq.billing", OTHER, 0, 50, 1_000)]
    followed = follow(KNOWN, logs, HERE | {"dlq.billing": OTHER}).followed
    read = []
    while chosen := batch(unread(followed, logs), 64):
        assert sum(candidate.length for candidate in chosen) <= 64
        read += [
            (candidate.topic_id, candidate.partition, at)
            for candidate in chosen
            for at in range(candidate.start, candidate.end)
        ]
        followed = passed(followed, chosen)
    assert len(read) == len(set(read)) == 60 + 3 + 950
    assert all(not topic.doubtful for topic in followed.values())


def test_the_source_of_a_span_names_the_topic_and_its_id() -> None:
    assert span(0, 1).source == f"kafka:dlq.orders/{ID}/0"
    assert span(0, 1).in_words == "Offsets 0 to 0 of topic dlq.orders, partition 0,"
