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

DECK: dict[str, dict[str | None, int]] = {
    "POISON_PILL": {None: 3, "topology": 1, "writer_topology": 1, "new_group": 1, "missing_headers": 1},
    "KEY_LOCAL": {None: 2, "key_prefix": 3, "topology": 1, "producer": 1},
    "PARTITION_LOCAL": {None: 3, "topology": 1, "writer_topology": 1, "producer": 1, "new_client": 1},
    "PRODUCER_LOCAL": {"header": 4, "schema_id": 3, "client": 3},
    "SYSTEMIC": {None: 3, "topology": 2, "writer_topology": 2, "new_group": 2, "producer": 1, "new_client": 1}
    | {"broker_restart": 2, "missing_headers": 1, "schema_id": 1, "header": 1},
    "FLOOD": {None: 2, "new_group": 1, "writer_topology": 1, "broker_restart": 1},
    "UNDETERMINED": {None: 2, "topology": 1, "broker_restart": 1},
}
"""How many of the scenarios in a deck have a verdict with a first suspect."""


def scenarios(seed: int, count: int, shape: Shape = SHAPES["usual"]) -> Iterator[Scenario]:
    """Yield scenarios with unique topics and groups; seed and shape decide about each, whatever the count."""
    cards = [(verdict, kind) for verdict, kinds in DECK.items() for kind, many in kinds.items() for _ in range(many)]
    deck: list[tuple[str, str | None]] = []
    for number in range(count):
        if number % len(cards) == 0:
            deck = cards.copy()
            random.Random(f"{seed}/deck/{number // len(cards)}").shuffle(deck)
        yield _scenario(seed, number, *deck[number % len(cards)], shape)


def _scenario(seed: int, number: int, verdict: str, suspect: str | None, shape: Shape) -> Scenario:
    """Return the first attempt whose incidents obey the public definition; most first attempts do."""
    for attempt in range(200):
        try:
            return Plan(f"s{seed}-{number:04}", f"{seed}/{number}/{attempt}", verdict, suspect, shape).scenario()
        except Undecidable:
            continue
    raise AssertionError(f"no scenario {number} of seed {seed} is decidable")
