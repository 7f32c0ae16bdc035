"""``make torture-replay``: kill runs of replays with -9, again and again, and count what a reader then sees.

Plans are replayed on a broker of our own. Runs are killed at named points and at random moments, some of them beside
another run of the same plan without the lock between them. Sometimes the journal is lost, and a plan of some of the
same dead letters is made and run. Each plan is then run to its end. Prints figures; ends with exit code 1 if a record
is lost, stands twice, or out of its key's order, which two plans cannot keep.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from pipelines.broker import Broker
from pipelines.errors import AfterlogError
from pipelines.replay import earlier
from pipelines.replay.client import Admin, admin
from pipelines.replay.journal import Journal, journal_store
from pipelines.replay.model import Plan
from pipelines.replay.run import run
from pipelines.replay.states import State
from pipelines.settings import Settings, load
from tests.testing.replays import (
    POINTS,
    context,
    in_order_of_keys,
    letters_of,
    numbered,
    plan_of,
    planned_letters,
    run_to_its_death,
    run_without_lock,
    standing,
)

_RECORDS, _BATCH, _KILLS_OF_A_PLAN = 1500, 10, 12
_LONGEST = 1.2  # seconds after which a run is killed
_BESIDE = 0.15  # of the runs have another one beside them


class Torture:
    """Plans, the deaths of their runs, and what was found."""

    def __init__(self, settings: Settings, asked: Admin, seed: int) -> None:
        """Take the settings of a broker."""
        self.settings = settings
        self.asked = asked
        self.store = journal_store(settings)
        self.chance = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.mixed: set[str] = set()

    def plan(self, number: int) -> Plan:
        """Create a target, a topic of dead letters, and a plan."""
        name = f"torture-{number}"
        topics = [NewTopic(name, self.chance.randint(1, 4), 1), NewTopic(f"dlq.{name}", 1, 1)]
        for created in self.asked.client.create_topics(topics).values():
            created.result()
        records = numbered(_RECORDS, name, keys=self.chance.randint(1, 20), size=self.chance.choice([0, 100, 2000]))
        with Journal(self.store, self.settings.cluster) as journal:
            journal.add(name)
        return plan_of(name, self.settings, records)

    def kill(self, plan: Plan) -> None:
        """Start a run of a plan and kill it."""
        point = self.chance.choice(list(POINTS)) if self.chance.random() < 0.5 else None
        beside: Any = None
        made = context()
        if self.chance.random() < _BESIDE:
            ready, reports = made.Barrier(1), made.Queue()
            arguments = (plan, self.store, self.settings, _BATCH, None, ready, reports)
            beside = made.Process(target=run_without_lock, args=arguments)
            beside.start()
        process = made.Process(target=run_to_its_death, args=(plan, self.store, self.settings, point, _BATCH))
        process.start()
        process.join(self.chance.uniform(0.02, _LONGEST) if point is None else 60)
        for started in (process, *([beside] if beside is not None else [])):
            if started.is_alive():
                started.kill()
            started.join()
            if started.exitcode == -9:
                self.counts["kills"] += 1
                self.counts["kills at named points"] += started is process and point is not None
                self.counts["kills beside another run"] += beside is not None
        if self.chance.random() < 0.15:
            for file in Path(self.store.root).glob("journal.db*"):
                file.unlink()
            self.counts["lost journals"] += 1
            if self.chance.random() < 0.5:
                self.replay_some(plan)

    def replay_some(self, plan: Plan) -> None:
        """Make a plan of some of the same dead letters, as another condition does, and run it to its end."""
        records = self.chance.sample(plan.records, self.chance.randint(1, len(plan.records)))
        replayed = earlier.look(self.settings, self.asked, records, {})
        eligible = sorted(
            (record for record in records if record.letter not in replayed.letters), key=lambda record: record.position
        )
        self.counts["plans of the same dead letters"] += 1
        name = f"{plan.plan_id}-{self.counts['plans of the same dead letters']}"
        with Journal(self.store, self.settings.cluster) as journal:
            journal.add(name)
        if eligible:
            self.mixed.add(plan.plan_id)
            run(plan_of(name, self.settings, eligible), self.store, self.settings, batch=100)

    def finish(self, plan: Plan) -> None:
        """Run a plan to its end and compare what a reader sees."""
        ended = run(plan, self.store, self.settings, batch=100)
        seen = standing(self.settings, plan.targets[0].topic)
        hidden = len(standing(self.settings, plan.targets[0].topic, committed=False)) - len(seen)
        letters, wanted = Counter(letters_of(seen)), Counter(planned_letters(plan))
        self.counts["plans"] += 1
        self.counts["records"] += len(plan.records)
        self.counts["records of aborted transactions"] += hidden
        self.counts["lost"] += sum((wanted - letters).values())
        self.counts["twice"] += sum((letters - wanted).values())
        is_in_order = plan.plan_id in self.mixed or in_order_of_keys(seen)
        self.counts["plans out of order"] += not is_in_order
        if letters != wanted or not is_in_order or ended.status is not State.FINISHED:
            self.faults.append(plan.plan_id)


def main() -> int:
    """Torture, print the figures, and return the exit code."""
    parser = argparse.ArgumentParser(prog="torture-replay", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="default: 1000")
    parser.add_argument("--seed", type=int, default=19, help="default: 19")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="afterlog-torture-") as scratch, Broker(Path(scratch) / "broker") as broker:
        settings = load(
            warehouse=f"{scratch}/warehouse",
            kafka={"bootstrap_servers": broker.bootstrap_servers, "timeout_seconds": 60.0},
        )
        torture = Torture(settings, admin(settings), given.seed)
        number = 0
        while torture.counts["kills"] < given.kills:
            plan = torture.plan(number)
            most = torture.counts["kills"] + _KILLS_OF_A_PLAN
            tries = 0
            while torture.counts["kills"] < min(most, given.kills) and tries < 2 * _KILLS_OF_A_PLAN:
                torture.kill(plan)
                tries += 1
            try:
                torture.finish(plan)
            except AfterlogError as error:
                torture.faults.append(f"{plan.plan_id}: {error}")
            number += 1
            counts = torture.counts
            print(
                f"\r{counts['kills']:,} of {given.kills:,} kills, {counts['lost']} lost, {counts['twice']} twice",
                end="",
                file=sys.stderr,
            )
    print(file=sys.stderr)
    figures = {"seed": given.seed, "seconds": round(time.monotonic() - began), **torture.counts}
    for name, value in figures.items():
        print(f"{name:35}{value:>12,}")
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    for fault in torture.faults:
        print(f"wrong: {fault}")
    return 1 if torture.faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
