"""Random histories of streams groups, landed in random order: no stage stops and no answer contradicts another."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.catalog import stages
from pipelines.commands import describe as describe_command
from pipelines.commands.describe import AVAILABLE, ERROR, NOT_STORED
from pipelines.settings import Settings
from pipelines.stage import Land
from pipelines.warehouse import jvmless
from pipelines.warehouse.tables import Warehouse
from tests.testing import requests
from tests.testing.builders import land, run, warehouse_of, without_the_run
from tests.testing.requests import described, description, node, passing

FEED, DIRECTORY = "topology", "streams-requests"
TOPOLOGIES = (passing("in", "out"), passing("in", "elsewhere"), description(), description([node("a", 1, ["nowhere"])]))
UNREADABLE = ({}, description([{**node("a"), "name": None}]), None)
STEPS = (0, 0, 0.001, 0.5, 3, 25, 59, 60, 61, 400, 4400)  # seconds between exchanges


@dataclass
class History:
    """The logged lines, and by group the descriptions that brokers accepted or showed, in order of time."""

    lines: list[str] = field(default_factory=list)
    seen: dict[str, list[tuple[float, int, dict[str, Any], int]]] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)  # groups that exist or had a push


def random_history(dice: random.Random, groups: int) -> History:
    """Random exchanges with groups: codes, statuses, epochs and members change, sometimes against the protocol."""
    history = History()
    for group in (f"group-{number}" for number in range(groups)):
        history.seen[group] = []
        seconds, epoch = dice.uniform(0, 5), dice.randrange(3)
        unlawful = dice.random() < 0.3
        for _ in range(dice.randrange(1, 22)):
            seconds = round(seconds + dice.choice(STEPS), 3)
            epoch = max(0, epoch + dice.choice((0, 0, 0, 0, 1, -1)))
            history.lines.append(_exchange(dice, history, group, seconds, epoch, unlawful))
    return history


def _exchange(dice: random.Random, history: History, group: str, seconds: float, epoch: int, unlawful: bool) -> str:
    member = dice.choice(("m1", "m2", "m3"))
    topology = dice.choice(TOPOLOGIES)
    number = next(requests._numbers)
    kind = dice.choices(("push", "describe", "steady", "join", "leave", "delete"), (6, 6, 4, 3, 1, 1))[0]
    if kind == "push":
        codes = (0, 0, 0, 0, 14, 15, 16, 25, 30, 35, 42, 69, 135, 135) + ((999,) if unlawful else ())
        error = dice.choice(codes)
        history.known.add(group)
        if not error:
            history.seen[group].append((seconds, number, topology, epoch))
        return requests.push(seconds, group, member, epoch, error, "why", topology, number)
    if kind == "describe":
        error = dice.choices((0, 69, 14, 16), (12, 1, 1, 1))[0]
        status = 0 if error else dice.choice((1, 2, 3, 3, 3) + ((0, 7) if unlawful else ()))
        shown = topology if status == 3 and dice.random() < 0.9 else None
        if unlawful and dice.random() < 0.3:
            shown = dice.choice((*UNREADABLE, topology))
        if not error:
            history.known.add(group)
            if status == 3 and shown in TOPOLOGIES:
                history.seen[group].append((seconds, number, shown, epoch))
        said = described(group, status, epoch, error, topologyDescription=shown)
        return requests.describe(seconds, said, requested=dice.random() < 0.8, number=number)
    if kind == "delete":
        return requests.delete(seconds, group, dice.choice((0, 0, 68, 69, 134, -1)))
    history.known.add(group)
    if kind == "leave":
        return requests.heartbeat(seconds, group, member, dice.choice((-1, -2)), None, statuses=[])
    statuses = dice.choice((None, [], [], [0], [5, 3], [77]))
    if kind == "steady":
        return requests.steady(seconds, group, member, statuses=statuses)
    return requests.heartbeat(
        seconds, group, member, dice.choice((0, 0, 3)), epoch, required=dice.random() < 0.6, statuses=statuses
    )


def contradictions(row: dict[str, Any], answer: describe_command.Answer) -> Iterator[str]:
    """Yield the contradictions within a row of gold.topology_current, and between it and the command's answer."""
    health, status, sentence, code = row["health"], row["status"], row["sentence"], answer.exit_code

    def unless(holds: bool, what: str) -> Iterator[str]:
        if not holds:
            yield what

    statuses = {
        "OK": {AVAILABLE},
        "DELETED": {NOT_STORED},
        "LOST": {NOT_STORED},
        "STALE": {NOT_STORED},
        "NOT_PUSHED": {NOT_STORED},
        "PLUGIN_ERROR": {ERROR},
        "REJECTED": {NOT_STORED, AVAILABLE},
        "CONFLICT": {NOT_STORED, ERROR, AVAILABLE},
    }
    yield from unless(status in statuses[health], "health and status")
    names = {NOT_STORED: "NOT_STORED", ERROR: "ERROR", AVAILABLE: "AVAILABLE"}
    yield from unless(row["status_name"] == names[status], "status and its name")
    is_kept = health in ("REJECTED", "STALE", "CONFLICT") and status == NOT_STORED and row["revision"] is not None
    yield from unless(status != AVAILABLE or code == 0, "AVAILABLE and refused")
    yield from unless(code != 0 or status == AVAILABLE or is_kept, "exit code and status")
    yield from unless(status != AVAILABLE or row["description"] is not None, "AVAILABLE and nothing to show")
    yield from unless((row["revision"] is None) == (row["description"] is None), "revision and description")
    yield from unless((row["deleted_at"] is not None) == (health == "DELETED"), "deleted and not DELETED")
    yield from unless((row["lost_at"] is not None) == (health == "LOST"), "lost and not LOST")
    conflict = len(row["conflicting_members"]) > 1
    yield from unless(conflict == (health == "CONFLICT"), "members in conflict and health")
    yield from unless(health == "DELETED" or not sentence.startswith("The group was deleted"), "deleted in words")
    says_stored = sentence.startswith(("The description is stored", "What was stored")) or "still is." in sentence
    yield from unless(not says_stored or status == AVAILABLE, "stored in words")
    yield from unless(health != "REJECTED" or says_stored == (status == AVAILABLE), "refused, and stored in words")
    yield from unless(
        health != "STALE" or f"is of epoch {row['group_topology_epoch']}," not in sentence, "stale and current"
    )
    yield from unless(
        status != AVAILABLE or row["topology_epoch"] == row["group_topology_epoch"], "AVAILABLE under another epoch"
    )
    later = [row[name] for name in ("last_pushed_at", "last_observed_at") if row[name] is not None]
    yield from unless(not later or row["last_seen_at"] >= max(later), "seen before it was last seen")
    shown = json.loads(answer.result)
    if code == 0:
        yield from unless(shown["topologyDescription"] == json.loads(row["description"]), "row and answer")
        yield from unless(bool(answer.remarks) == (health != "OK" or bool(row["defects"])), "a remark on what is OK")
    else:
        yield from unless((shown["health"], shown["revision"]) == (health, row["revision"]), "row and refusal")


def landed_at_random(dice: random.Random, spark: SparkSession, settings: Settings, lines: list[str], runs: int) -> None:
    """Land lines in files in random order over several runs; some lines land again, and a file grows."""
    lines = dice.sample(lines, len(lines))
    cuts = sorted(dice.sample(range(1, len(lines)), 2 * runs - 1))
    parts = [lines[start:end] for start, end in zip([0, *cuts], [*cuts, len(lines)], strict=True)]
    for number in range(runs):
        first, second = parts[2 * number], parts[2 * number + 1]
        before = parts[2 * number - 1] if number else []
        files = {f"{number}.log": first, "grown.log": [*before, *second], f"again-{number}.log": dice.sample(first, 1)}
        land(settings, files, DIRECTORY)
        goes_on(run(spark, settings, feed=FEED))


def goes_on(done: dict[str, Any]) -> None:
    assert {stage_run.status for stage_run in done.values()} <= {"passed", "idle"}, {
        table: stage_run.message for table, stage_run in done.items() if stage_run.status not in ("passed", "idle")
    }


def tables(settings: Settings) -> dict[str, list[dict[str, Any]]]:
    """All rows of silver and gold without what depends on the landing: the source, runs of steady heartbeats."""

    def plain(row: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in without_the_run(row).items() if name != "_source"}

    return {
        stage.table: sorted(
            (
                plain(row)
                for row in jvmless.rows(Warehouse(settings), stage.table, {"cluster": settings.cluster})
                if row.get("steady_since") is None
            ),
            key=repr,
        )
        for stage in stages(FEED)
        if not isinstance(stage, Land)
    }


def proves(spark: SparkSession, empty_warehouse: Path, place: Path, seed: int, groups: int, runs: int) -> None:
    dice = random.Random(seed)
    history = random_history(dice, groups)
    at_once, at_random = (
        warehouse_of(empty_warehouse, place / name, tolerance=1.0) for name in ("at-once", "at-random")
    )
    land(at_once, {"all.log": history.lines}, DIRECTORY)
    goes_on(run(spark, at_once, feed=FEED))
    landed_at_random(dice, spark, at_random, history.lines, runs)
    assert {stage_run.status for stage_run in run(spark, at_random, feed=FEED).values()} == {"idle"}
    found, expected = tables(at_random), tables(at_once)
    for table, rows in expected.items():
        assert found[table] == rows, table
    current = {row["group_id"]: row for row in expected["gold.topology_current"]}
    assert set(current) >= history.known
    wrong: Counter[str] = Counter()
    for group, row in current.items():
        seen = max(history.seen[group], key=lambda item: item[:2], default=None)
        shown = None if row["description"] is None else (json.loads(row["description"]), row["topology_epoch"])
        wrong["not the later one"] += shown != (None if seen is None else (seen[2], seen[3]))
        wrong.update(contradictions(row, describe_command.answer(Warehouse(at_once), group, "json")))
    assert not +wrong
    kinds = {row["health"] for row in current.values()}
    assert len(kinds) >= min(6, groups // 5)  # the histories are diverse enough
    shutil.rmtree(place)


def test_histories_in_any_order_and_split_give_the_tables_of_one_run_and_contradict_nothing(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    proves(spark, empty_warehouse, tmp_path / "histories", seed=1331, groups=60, runs=2)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(6))
def test_many_histories(spark: SparkSession, empty_warehouse: Path, tmp_path: Path, seed: int) -> None:
    proves(spark, empty_warehouse, tmp_path / "histories", seed=seed, groups=150, runs=4)
