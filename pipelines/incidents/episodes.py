"""Times of dead letters -> episodes: stretches of time in which dead letters of one error keep coming.

A silence ends an episode if it is longer than half an hour, than ten times the gaps around it, and than twice the
longest silence that the episode survived. Longer than a day, it always does. The gaps around it are the median of the
ten before it, and the one after it. Gaps are those between minutes with records: a job that fails every hour, each time
with a hundred records, is one episode.

The gap after a silence is the last thing that decides about it. So newer records never split an episode; they can join
two. The result does not depend on the order in which records land.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low
from typing import NamedTuple

VERSION = 2
"""Of the algorithm. A record keeps the version at which it was accepted, and its fingerprint depends on it.

So a later version begins incidents of its own and never regroups old ones.
"""
SECOND = 1_000_000
LEAST_PAUSE = 30 * 60 * SECOND
MOST_PAUSE = 24 * 3600 * SECOND
GAPS_OF_A_PAUSE = 10
LATEST_GAPS = 10  # whose median is the usual gap
SURVIVED_OF_A_PAUSE = 2
HOUR = 3600 * SECOND
WINDOW = 600 * SECOND
TIMES_FASTER, LEAST_RECORDS = 10, 10  # of an escalation


class Minute(NamedTuple):
    """The records of one minute: the first and the last one's time in microseconds, and their number."""

    first_at: int
    last_at: int
    record_count: int


class Escalation(NamedTuple):
    """A change to ten times the rate: when it began, in microseconds, and the records an hour before and after."""

    at: int
    before_per_hour: float
    after_per_hour: float


@dataclass(frozen=True)
class Episode:
    """A stretch of time with records, in microseconds; ``pause`` is the silence after its last record that ends it."""

    first_at: int
    last_at: int
    record_count: int
    pause: int
    escalations: tuple[Escalation, ...] = ()


def merged(minutes: Iterable[tuple[int, Minute]]) -> list[Minute]:
    """Return the minutes in order; parts of one minute, named by its beginning, become one."""
    known: dict[int, Minute] = {}
    for begin, minute in minutes:
        other = known.get(begin)
        known[begin] = (
            minute
            if other is None
            else Minute(
                min(minute.first_at, other.first_at),
                max(minute.last_at, other.last_at),
                minute.record_count + other.record_count,
            )
        )
    return [known[begin] for begin in sorted(known)]


def episodes(minutes: Sequence[Minute], version: int = VERSION) -> list[Episode]:
    """Return the episodes of minutes that are in order, as a version of the algorithm finds them."""
    if version < 2:
        return _of_version_1(minutes)
    found_episodes: list[Episode] = []
    begin, gaps, survived = 0, deque[int](maxlen=LATEST_GAPS), 0
    for index in range(len(minutes)):
        silence = _gap_after(minutes, index)
        if silence is not None and (
            silence <= LEAST_PAUSE or silence <= _pause(gaps, survived, _gap_after(minutes, index + 1) or 0)
        ):
            gaps.append(silence)
            survived = max(survived, silence)
            continue
        part = minutes[begin : index + 1]
        count = sum(minute.record_count for minute in part)
        pause = _pause(gaps, survived)
        found_episodes.append(Episode(part[0].first_at, part[-1].last_at, count, pause, _escalations(part)))
        begin, survived = index + 1, 0
        gaps.clear()
    return found_episodes


def _pause(gaps: Collection[int], survived: int, next_gap: int = 0) -> int:
    """Return the longest silence that an episode survives, by its latest gaps and the gap after the silence."""
    usual = max(median_low(gaps) if gaps else 0, next_gap)
    return min(max(GAPS_OF_A_PAUSE * usual, SURVIVED_OF_A_PAUSE * survived, LEAST_PAUSE), MOST_PAUSE)


def _gap_after(minutes: Sequence[Minute], index: int) -> int | None:
    return minutes[index + 1].first_at - minutes[index].last_at if index + 1 < len(minutes) else None


def _of_version_1(minutes: Sequence[Minute]) -> list[Episode]:
    """Return the episodes of dead letters that were accepted by version 1: nothing regroups what was told.

    A stretch is cut at its longest gap if this gap is longer than a day, or longer than both half an hour and ten
    times the median of all gaps between its records. Then each part is looked at in the same way.
    """
    found_episodes: list[Episode] = []
    parts = [(0, len(minutes))]
    while parts:
        begin, end = parts.pop()
        part = minutes[begin:end]
        gaps = [after.first_at - before.last_at for before, after in pairwise(part)]
        within = sum(minute.record_count - 1 for minute in part)  # gaps whose exact lengths do not matter
        index = (within + len(gaps) - 1) // 2 - within  # of the lower median among the others
        usual = sorted(gaps)[index] if index >= 0 else 0
        pause = min(max(GAPS_OF_A_PAUSE * usual, LEAST_PAUSE), MOST_PAUSE)
        longest = max(gaps, default=0)
        if longest > pause:
            least = min(longest, MOST_PAUSE + 1)  # longer gaps than a day are cuts in any case
            cuts = [begin + number for number, gap in enumerate(gaps, 1) if gap >= least]
            parts += reversed(list(zip([begin, *cuts], [*cuts, end], strict=True)))
        elif part:
            count = sum(minute.record_count for minute in part)
            found_episodes.append(Episode(part[0].first_at, part[-1].last_at, count, pause, _escalations(part)))
    return found_episodes


def _escalations(minutes: Sequence[Minute]) -> tuple[Escalation, ...]:
    """Return when an episode with these minutes escalated.

    It escalates with a minute that has ten times the rate before, and from which on ten minutes have it, too, and at
    least ten records. The rate before is the mean since the first record, at least half an hour ago, or that of the
    last escalation if it is higher. So each tenfold rate is one escalation, however often it comes back.
    """
    escalations: list[Escalation] = []
    before, ahead, end, level = 0, 0, 0, 0.0
    for minute in minutes:
        while end < len(minutes) and minutes[end].first_at < minute.first_at + WINDOW:
            ahead += minutes[end].record_count
            end += 1
        lasted = minute.first_at - minutes[0].first_at
        if lasted >= LEAST_PAUSE and ahead >= LEAST_RECORDS:
            usual = max(before * HOUR / lasted, level)
            rate = ahead * HOUR / WINDOW
            if min(rate, minute.record_count * 60) >= TIMES_FASTER * usual:
                escalations.append(Escalation(minute.first_at, usual, rate))
                level = rate
        before += minute.record_count
        ahead -= minute.record_count
    return tuple(escalations)
