"""seed -> labelled incident scenarios: landing files of dead letters and of what changed, with the truth about each.

The labels follow the public definition of an incident only: one error of one group on one topic, until it pauses. A
scenario simulates the log of a topic, so that offsets, times, keys and headers of all its dead letters agree.

A verdict must be decidable from what lands. Keys and headers decide it only where they land, a thin scatter stays far
below a full log, and pauses stay clear of the limit that ends an episode. A first suspect is unique: at most one thing
changed in the day before the incident, or the dead records share one value that earlier dead letters lack.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from bench.scenarios.labels import SHAPES, Scenario, Shape, Undecidable
from bench.scenarios.plans import Plan

# How many of the scenarios in a deck have a verdict with a first suspect.
DECK: tuple[tuple[str, str | None, int], ...] = (
    ("POISON_PILL", None, 3),
    ("POISON_PILL", "topology", 1),
    ("POISON_PILL", "writer_topology", 1),
    ("POISON_PILL", "new_group", 1),
    ("POISON_PILL", "missing_headers", 1),
    ("KEY_LOCAL", None, 2),
    ("KEY_LOCAL", "key_prefix", 3),
    ("KEY_LOCAL", "topology", 1),
    ("KEY_LOCAL", "producer", 1),
    ("PARTITION_LOCAL", None, 3),
    ("PARTITION_LOCAL", "topology", 1),
    ("PARTITION_LOCAL", "writer_topology", 1),
    ("PARTITION_LOCAL", "producer", 1),
    ("PARTITION_LOCAL", "new_client", 1),
    ("PRODUCER_LOCAL", "header", 4),
    ("PRODUCER_LOCAL", "schema_id", 3),
    ("PRODUCER_LOCAL", "client", 3),
    ("SYSTEMIC", None, 3),
    ("SYSTEMIC", "topology", 2),
    ("SYSTEMIC", "writer_topology", 2),
    ("SYSTEMIC", "new_group", 2),
    ("SYSTEMIC", "producer", 1),
    ("SYSTEMIC", "new_client", 1),
    ("SYSTEMIC", "broker_restart", 2),
    ("SYSTEMIC", "missing_headers", 1),
    ("SYSTEMIC", "schema_id", 1),
    ("SYSTEMIC", "header", 1),
    ("FLOOD", None, 2),
    ("FLOOD", "new_group", 1),
    ("FLOOD", "writer_topology", 1),
    ("FLOOD", "broker_restart", 1),
    ("UNDETERMINED", None, 2),
    ("UNDETERMINED", "topology", 1),
    ("UNDETERMINED", "broker_restart", 1),
)


def scenarios(seed: int, count: int, shape: Shape = SHAPES["usual"]) -> Iterator[Scenario]:
    """Yield scenarios with unique topics and groups; seed and shape decide about each, whatever the count."""
    size = sum(weight for *_, weight in DECK)
    deck: list[tuple[str, str | None]] = []
    for number in range(count):
        if number % size == 0:
            deck = [(verdict, suspect) for verdict, suspect, weight in DECK for _ in range(weight)]
            random.Random(f"{seed}/deck/{number // size}").shuffle(deck)
        yield _scenario(seed, number, *deck[number % size], shape)


def _scenario(seed: int, number: int, verdict: str, suspect: str | None, shape: Shape) -> Scenario:
    """Return the first attempt whose incidents obey the public definition; most first attempts do."""
    for attempt in range(200):
        try:
            return Plan(f"s{seed}-{number:04}", f"{seed}/{number}/{attempt}", verdict, suspect, shape).scenario()
        except Undecidable:
            continue
    raise AssertionError(f"no scenario {number} of seed {seed} is decidable")
