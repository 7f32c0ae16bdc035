"""What else fails on the topic of an incident: noise around it, other incidents under way with it, and its return."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from bench.scenarios.deaths import Incident
from bench.scenarios.errors import Consumer
from bench.scenarios.labels import CHANGES, TOPIC_WIDE, Suspect, Undecidable
from bench.scenarios.times import DAY, HOUR, MINUTE, SECOND, is_over, pause_limit, times_of
from bench.scenarios.topics import Trait
from pipelines.commands.generated_letters import WITH_HEADERS

if TYPE_CHECKING:
    from bench.scenarios.plans import Plan


def noise(plan: Plan, end: int) -> None:
    """Add dead letters of other errors: long before the main incident, and around it.

    A group that is not new shows up at least 26 hours before. A new group shows up with the incident; another group
    of the topic is the one that is known.
    """
    r = plan.random
    is_new = plan.suspect_kind == "new_group"
    known = plan.other() if is_new else plan.main_consumer
    times = _noise_of(plan, known, plan.start - r.randrange(52 * HOUR, 92 * HOUR), must_scatter=plan.suspect_kind)
    if times[-1] > plan.start - 26 * HOUR:
        raise Undecidable
    before, during, soon = plan.shape.noise
    if r.random() < before:
        consumer = known if r.random() < 0.5 else plan.other()
        _noise_of(plan, consumer, plan.start - r.randrange(80 * HOUR, 96 * HOUR))
    mixes = plan.suspect_kind == "client"  # no figure tells whose client it was if a group has two errors at once
    if r.random() < during:  # under way when the main incident begins
        consumer = known if r.random() < 0.6 and not mixes else plan.other()
        begin = plan.start - r.randrange(2 * HOUR, 5 * HOUR)
        _noise_of(plan, consumer, begin, until=min(plan.start + 2 * HOUR, max(end, plan.start + HOUR)))
    if r.random() < soon:
        _noise_of(plan, plan.other() if mixes else plan.main_consumer, plan.start + r.randrange(2 * MINUTE, HOUR))


def _noise_of(
    plan: Plan,
    consumer: Consumer,
    start: int,
    until: int | None = None,
    must_scatter: str | None = None,
) -> list[int]:
    """Add a thin scatter or a poison pill of an unused error, or of one whose last incident ended long before."""
    r = plan.random
    error = plan.error(consumer)
    predecessor = None
    if error is None:
        earlier = [incident for incident in plan.incidents if incident.noise and incident.consumer is consumer]
        if not earlier:
            return []
        predecessor = max(earlier, key=lambda incident: incident.times[-1])
        error = predecessor.error
        if not is_over(predecessor.times, [start, start + 11 * MINUTE]):
            return []
    incident = Incident(consumer, error, "POISON_PILL", noise=True, predecessor=predecessor)
    thinnest = 1 / (0.015 * plan.topic.rate)  # ms between dead letters if 1.5 % of the log die
    count = r.randrange(max(36, 3 * plan.topic.partitions), max(36, 3 * plan.topic.partitions) + 25)
    longest = (until - start) / count if until else 11 * MINUTE
    can_scatter = thinnest < min(longest, 11 * MINUTE)
    if must_scatter in ("header", "schema_id", "key_prefix") and not can_scatter:
        raise Undecidable
    if can_scatter and (must_scatter or until or r.random() < 0.5):
        incident.verdict = "UNDETERMINED"
        gap = longest if until else math.exp(r.uniform(math.log(thinnest), math.log(11 * MINUTE)))
        times = times_of(r, start, count, min(gap, 11 * MINUTE))
    else:
        count = r.choice((1, 1, 2, r.randrange(4, 16), r.randrange(4, 16)))
        count = max(count, 4) if predecessor else count  # a lone record would go with the one or the other
        times = times_of(r, start, count, r.uniform(1, 9) * MINUTE)
    plan.strike(incident, times)
    return times


def overlap(plan: Plan, main: Incident, times: list[int]) -> None:
    """Add one or two incidents of other errors on the topic that are under way together with the main one.

    They begin before the first change, or after it; then they share its suspect.
    """
    for _ in range(plan.random.choice(plan.shape.overlaps)):
        _overlap_once(plan, main, times)


def _overlap_once(plan: Plan, main: Incident, times: list[int]) -> None:
    r = plan.random
    shares_cause = r.random() < 0.5
    is_new = plan.suspect_kind == "new_group"
    is_alone = plan.suspect_kind == "client" or (is_new and not shares_cause)
    consumer = main.consumer if r.random() < 0.6 and not is_alone else plan.other()
    if is_new and shares_cause:
        consumer = main.consumer
    if not (is_new and shares_cause):
        _make_known(plan, consumer)
    error = plan.error(consumer)
    if error is None:
        return
    length = times[-1] - times[0]
    if shares_cause:
        start = plan.start + r.randrange(1, max(2, min(5 * MINUTE, length // 2)))
        span = max(10 * SECOND, length) * r.uniform(0.3, 1)
    else:
        start = plan.start - r.randrange(90 * MINUTE, 3 * HOUR)
        span = plan.start - start + min(length, HOUR) * r.uniform(0.1, 1) + SECOND
    other = Incident(consumer, error, "POISON_PILL", noise=False)
    if shares_cause and (plan.suspect_kind in TOPIC_WIDE or consumer is main.consumer):
        other.suspect = main.suspect if plan.suspect_kind in CHANGES else None
    count, gap, share = _fitting(plan, other, main, span)
    other_times = times_of(r, start, count, gap)
    if other_times[-1] <= plan.start:  # it must overlap
        raise Undecidable
    plan.strike(other, other_times, share)


def _make_known(plan: Plan, consumer: Consumer) -> None:
    """Add noise of a consumer long before, if it has none: otherwise its group looked new."""
    long_before = plan.start - 30 * HOUR
    if not any(incident.consumer is consumer and incident.times[0] < long_before for incident in plan.incidents):
        _noise_of(plan, consumer, plan.start - plan.random.randrange(52 * HOUR, 92 * HOUR))


def _fitting(plan: Plan, other: Incident, main: Incident, span: float) -> tuple[int, float, float]:
    """Choose a verdict for a second incident that the flow of the topic allows within a span of time in ms.

    Return the records that die, their mean gap and their share of the log.
    """
    r, topic = plan.random, plan.topic
    partitions = topic.partitions
    flow = span * topic.rate
    with_change = other.suspect is not None
    rivals = [
        incident for incident in (main, *plan.incidents) if incident.consumer is other.consumer and not incident.noise
    ]
    choices = ["POISON_PILL", "UNDETERMINED", "KEY_LOCAL", "PARTITION_LOCAL", "PRODUCER_LOCAL", "SYSTEMIC"]
    if any(rival.verdict in ("SYSTEMIC", "FLOOD", "PARTITION_LOCAL") for rival in rivals):
        choices = choices[:3]  # a record dies of one error only: little is left for another dense incident
    elif rivals:
        choices = choices[:5]
    for verdict in r.sample(choices, len(choices)):
        count = r.randrange(max(50, 10 * partitions), max(50, 10 * partitions) + 200)
        other.verdict, share = verdict, 0.0
        if verdict == "POISON_PILL":
            count = max(r.randrange(8, 60), round(span / (15 * MINUTE)))
            return count, span / count, share
        if span / count > 15 * MINUTE:
            continue
        if verdict == "UNDETERMINED":
            count = r.randrange(max(36, 3 * partitions), max(36, 3 * partitions) + 30)
            if count < 0.012 * flow:
                return count, span / count, share
            continue
        if verdict == "KEY_LOCAL" and other.consumer.copied and topic.key_style not in (None, "tenant"):
            other.keys = topic.failing_keys(1, False)
            other.trait = Trait(keys=other.keys)
            share = count / (flow / partitions)
            if share < 0.3 and main.verdict != "KEY_LOCAL":
                return count, span / count, share
        if verdict == "PARTITION_LOCAL":
            other.partition = r.randrange(partitions)
            share = count / (flow / partitions)
            if share <= 1 and topic.key_style and (other.consumer.copied or share > 0.9):
                return count, span / count, share
        if verdict == "PRODUCER_LOCAL" and not with_change and main.suspect is None and topic.key_style:
            share = count / flow
            if share < 0.3 and topic.unused and _has_shown_headers(plan, other.consumer):
                header = plan.shared_header()
                other.trait, other.suspect = Trait(header=header), Suspect("header", "=".join(header))
                return count, span / count, share
        if verdict == "SYSTEMIC" and 50 < 0.8 * flow < 1_500 and flow > 15 * partitions and not main.trait:
            share = 0.95 if topic.step in (1, 2) else r.uniform(0.75, 0.97)
            count = int(share * flow)
            if span / count < 15 * MINUTE:
                return count, span / count, share
        other.trait, other.keys = Trait(), ()
    raise Undecidable


def _has_shown_headers(plan: Plan, consumer: Consumer) -> bool:
    """Tell whether earlier dead letters of the consumer, with other errors, show the headers that are usual."""
    scatters = [incident for incident in plan.incidents if incident.noise and incident.verdict == "UNDETERMINED"]
    ended = [incident for incident in scatters if incident.times[-1] < plan.start - 26 * HOUR]
    return consumer.profile in WITH_HEADERS and any(incident.consumer is consumer for incident in ended)


def regress(plan: Plan, main: Incident, count: int, gap: float, share: float) -> None:
    """Let the main incident come back after a pause that ends it, sometimes after another change."""
    r = plan.random
    pause = pause_limit(main.times) * r.uniform(2, 4)
    start = int(main.times[-1] + max(pause, 2 * HOUR))
    again = replace(main, dead=[], predecessor=main, suspect=None if plan.suspect_kind in CHANGES else main.suspect)
    if plan.suspect_kind in CHANGES:
        start = max(start, plan.start + r.randrange(30 * HOUR, 40 * HOUR))
        if plan.suspect_kind in ("topology", "writer_topology") and r.random() < 0.5:
            again.suspect = main.suspect
    if start > plan.start + 4 * DAY:
        return
    fewer = {"POISON_PILL": r.randrange(5, 40), "UNDETERMINED": count}
    least = max(50, 10 * plan.topic.partitions)
    again_count = fewer.get(main.verdict, r.randrange(least, max(least, count) + 1))
    times = times_of(r, start, again_count, gap)
    if not is_over(main.times, times):
        raise Undecidable
    plan.strike(again, times, share)
