"""Mistakes in settings that lose dead letters: each kind, its severity, its age and its command; repaired ones end."""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from expectations.gold.dlq_misconfigurations import SEVERITIES
from pipelines.collect.asking import BROKER, GROUP, PRESENT, TOPIC, Subject
from pipelines.collect.landing import line_of
from pipelines.settings import Settings
from tests.testing import engines
from tests.testing.builders import land, rows, run, warehouse_of, without_the_run
from tests.testing.deliveries import store
from tests.testing.statements import CLUSTERS, DLQ_TOPIC, at, broker, cluster, group, statement, topic

TABLE = "gold.dlq_misconfigurations"
COPY = "errors.deadletterqueue.copy.record.enable"
PREFIX = "errors.deadletterqueue.topic.name.prefix"
CREATES = "errors.deadletterqueue.auto.create.topics.enable"
ENABLED = "errors.deadletterqueue.group.enable"
FOREVER = "-1"


def found(spark: SparkSession, settings: Settings, *lines: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Land lines and run; return the findings by group and kind."""
    number = sum(1 for _ in settings.landing_of("cluster-settings").glob("*"))
    land(settings, {f"{number}.jsonl": lines}, "cluster-settings")
    done = run(spark, settings, feed="collect")
    assert {ran.status for ran in done.values()} <= {"passed", "idle"}
    return {(row["group_id"], row["kind"]): row for row in rows(spark, settings, TABLE)}


def ages(mistakes: dict[tuple[str, str], dict[str, Any]]) -> dict[tuple[str, str], float]:
    """The minutes after the test's beginning since when each mistake lasts, by group and kind."""
    return {
        key: (row["since"] - at(0).replace(tzinfo=None)).total_seconds() / 60 for key, row in sorted(mistakes.items())
    }


def add(row: dict[str, Any]) -> tuple[str, str, str]:
    """What a command of kafka-configs changes: the type and the name of the entity, and the setting."""
    words = shlex.split(row["remedy"])
    assert words[:4] == ["kafka-configs.sh", "--bootstrap-server", "broker:9092", "--alter"]
    options = dict(zip(words[4::2], words[5::2], strict=True))
    return options["--entity-type"], options["--entity-name"], options["--add-config"]


@engines.compared
def test_each_mistake_is_found_and_ends_with_its_repair(spark: SparkSession, settings: Settings) -> None:
    odd = 'it\'s; $(x) "odd"'
    wrong = [
        cluster(0),
        broker(0),
        topic("orders", 0),
        topic("big", 0, {"max.message.bytes": "5000000", "partitions": "6"}),
        topic("long", 0, {"retention.ms": FOREVER}),
        topic("dlq.fine", 0),
        group("fine", "dlq.fine", 0),
        group("without", "", 0, {COPY: "false"}),
        group("gone", "dlq.gone", 0, state="missing"),
        group("missing", "dlq.missing", 0, {"sources": "orders,big"}),
        topic("dlq.missing", 0, state="missing"),
        group(odd, "dlq.closed", 3),
        topic("dlq.closed", 1, {"errors.deadletterqueue.group.enable": "false"}),
        group("prefixless", "other.x", 0),
        topic("other.x", 0),
        group("compacted", "dlq.compacted", 0, {COPY: "false"}),
        topic("dlq.compacted", 4, {"cleanup.policy": "compact,delete"}),
        group("keyed", "dlq.keyed", 0),
        topic("dlq.keyed", 0, {"cleanup.policy": "compact"}),
        group("small", "dlq.fine", 0, {"sources": "big,orders"}),
        group("without values", "dlq.fine", 0, {COPY: "false", "sources": "big"}),
        group("looped", "dlq.loop", 0, {"sources": "dlq.loop,orders"}),
        topic("dlq.loop", 0),
        group("short", "dlq.short", 0, {"sources": "orders,long"}),
        topic("dlq.short", 0, {"retention.ms": "3600000"}),
        group("outrun", "dlq.outrun", 0),
        topic("dlq.outrun", 0, {"is_outrun": "true"}),
        group("few", "dlq.few", 0),
        topic("dlq.few", 0, {"min.insync.replicas": "2", "replicas": "3"}),
        group("streams", "dlq.fine", 0, {"group_type": "STREAMS"}),
        group("hopping", "dlq.fine", 0, {"sources": "dlq.keyed"}),
        group("uncommitted", "dlq.fine", 0, {"share.isolation.level": "read_uncommitted"}),
    ]
    mistakes = found(spark, settings, *wrong)

    assert {key: row["severity"] for key, row in mistakes.items()} == {
        ("missing", "DLQ_MISSING"): "critical",
        (odd, "DLQ_NOT_ENABLED"): "critical",
        ("prefixless", "WRONG_PREFIX"): "critical",
        ("compacted", "COMPACTED_DLQ"): "critical",
        ("compacted", "COPY_OFF"): "medium",
        ("keyed", "COMPACTED_DLQ"): "high",
        ("small", "SMALLER_MESSAGES"): "high",
        ("without values", "COPY_OFF"): "medium",
        ("looped", "OWN_INPUT"): "critical",
        ("short", "SHORTER_RETENTION"): "medium",
        ("outrun", "NOT_LANDED_IN_TIME"): "high",
        ("few", "TOO_FEW_IN_SYNC"): "high",
        ("streams", "NOT_A_SHARE_GROUP"): "high",
        ("hopping", "READS_A_DLQ"): "low",
        ("uncommitted", "READS_UNCOMMITTED"): "low",
    }
    assert all(row["severity"] in SEVERITIES[row["kind"]] for row in mistakes.values())
    sources = {key[0]: row["source_topic"] for key, row in mistakes.items() if row["source_topic"] is not None}
    assert sources == {"small": "big", "looped": "dlq.loop", "short": "long", "hopping": "dlq.keyed"}
    assert ages(mistakes) == dict.fromkeys(mistakes, 0) | {
        (odd, "DLQ_NOT_ENABLED"): 3,
        ("compacted", "COMPACTED_DLQ"): 4,
    }
    assert add(mistakes[odd, "DLQ_NOT_ENABLED"]) == (
        "topics",
        "dlq.closed",
        "errors.deadletterqueue.group.enable=true",
    )
    assert add(mistakes["looped", "OWN_INPUT"]) == ("groups", "looped", "errors.deadletterqueue.topic.name=dlq.looped")
    assert add(mistakes["prefixless", "WRONG_PREFIX"])[2] == "errors.deadletterqueue.topic.name=dlq.other.x"
    assert add(mistakes["small", "SMALLER_MESSAGES"]) == ("topics", "dlq.fine", "max.message.bytes=5000000")
    assert add(mistakes["short", "SHORTER_RETENTION"]) == ("topics", "dlq.short", "retention.ms=-1")
    assert add(mistakes["without values", "COPY_OFF"]) == ("groups", "without values", f"{COPY}=true")
    assert shlex.split(mistakes["missing", "DLQ_MISSING"]["remedy"])[3:] == [
        *("--create", "--topic", "dlq.missing", "--partitions", "6"),
        *("--config", "errors.deadletterqueue.group.enable=true", "--config", "max.message.bytes=5000000"),
    ]

    repaired = [
        cluster(10),
        topic("dlq.missing", 10, {"max.message.bytes": "5000000"}),
        topic("dlq.closed", 10),
        group("prefixless", "dlq.fine", 10),
        group("compacted", "dlq.compacted", 10),
        *(topic(name, 10) for name in ("dlq.compacted", "dlq.loop", "dlq.outrun", "dlq.few")),
        topic("dlq.keyed", 10, {"retention.ms": FOREVER}),
        topic("dlq.fine", 10, {"max.message.bytes": "5000000"}),
        group("without values", "dlq.fine", 10, {"sources": "big"}),
        group("looped", "dlq.fine", 10, {"sources": "dlq.loop,orders"}),
        topic("dlq.short", 10, {"retention.ms": FOREVER}),
        group("streams", "", 10, {"group_type": "STREAMS"}),
        group("uncommitted", "dlq.fine", 10),
    ]
    assert found(spark, settings, *repaired) == {}


def test_statements_that_are_nonsense_break_no_run(spark: SparkSession, settings: Settings) -> None:
    hostile = "'; rm -rf /; '"
    values = ("partitions", "replicas", "in_sync_replicas", "min.insync.replicas", "max.message.bytes", "retention.ms")
    lines = [
        cluster(0, {"share.version": "two", "bootstrap_servers": "broker:9092"}),
        broker(0, changes={"errors.deadletterqueue.auto.create.topics.enable": "perhaps"}),
        broker(0, "2", {"errors.deadletterqueue.topic.name.prefix": f"{hostile}dlq."}),
        topic(hostile, 0, dict.fromkeys(values, "many; $(x)")),
        topic("orders", 0, dict.fromkeys(values, "many; $(x)")),
        group(hostile, hostile, 0, {"sources": f"orders,,{hostile}", COPY: "false"}),
    ]
    mistakes = found(spark, settings, *lines)
    assert {kind for _, kind in mistakes} == {"WRONG_PREFIX", "OWN_INPUT", "COPY_OFF"}
    for row in mistakes.values():
        kind, name, change = add(row)
        assert (kind, name) == ("groups", hostile)
        assert "'" not in change


def test_names_of_servers_are_one_word_of_a_shell(spark: SparkSession, settings: Settings) -> None:
    servers = "broker:9092; echo it's $(x)"
    lines = [cluster(0, {**CLUSTERS, "bootstrap_servers": servers}), broker(0), topic("orders", 0), topic("dlq.a", 0)]
    lines += [group("copies nothing", "dlq.a", 0, {COPY: "false"}), group("closed", "dlq.b", 0)]
    lines += [topic("dlq.b", 0, {ENABLED: "false"}), topic("dlq.c", 0, state="missing"), group("gone", "dlq.c", 0)]
    mistakes = found(spark, settings, *lines)
    assert {kind for _, kind in mistakes} == {"COPY_OFF", "DLQ_NOT_ENABLED", "DLQ_MISSING"}
    for row in mistakes.values():
        assert shlex.split(row["remedy"])[1:3] == ["--bootstrap-server", servers]


# --- histories at which one run looks ------------------------------------------------------------------------------

BIG, LONG = {"max.message.bytes": "5000000"}, {"retention.ms": FOREVER}
SHORT = {"cleanup.policy": "compact", "retention.ms": "3600000", "is_outrun": "true"}
HISTORIES: dict[str, list[list[str]]] = {
    "unknown": [
        [
            cluster(0, {**CLUSTERS, "bootstrap_servers": None}),
            broker(0, "1", {PREFIX: None}),
            broker(0, "2", {CREATES: None}),
            topic("dlq.hidden", 0, state="unknown"),
            group("hidden", "dlq.hidden", 0, {COPY: None, "sources": None, "group_type": None}),
            group("unsaid", None, 0),
        ],
        [
            cluster(5, {**CLUSTERS, "share.version": "1"}),
            broker(5, "1", {CREATES: "true"}),
            topic("dlq.absent", 5, state="missing"),
            group("hopeful", "dlq.absent", 5),
        ],
        [cluster(9), broker(9, "1", {CREATES: None}), broker(9, "2", {CREATES: None})],
        [cluster(1500)],
    ],
    "age": [
        [
            *(cluster(0), broker(0), broker(0, "2"), topic("orders", 0), topic("big", 0, BIG), topic("long", 0, LONG)),
            *(topic("dlq.fine", 0), topic("other", 0), topic("dlq.absent", 0, state="missing")),
            *(group("prefixless", "other", 0), group("absent", "dlq.absent", 0)),
            *(group("larger later", "dlq.fine", 0), group("larger later", "dlq.fine", 10, {"sources": "big"})),
            group("copies later", "dlq.fine", 0, {"sources": "big", COPY: "false"}),
            group("copies later", "dlq.fine", 15, {"sources": "big"}),
            *(group("longer later", "dlq.fine", 0), group("longer later", "dlq.fine", 20, {"sources": "long,orders"})),
            *(group("looped", "dlq.loop", 0, {"sources": "dlq.loop"}), topic("dlq.loop", 0)),
            group("looped", "dlq.loop", 25, {"sources": "dlq.loop,orders"}),
            *(topic("dlq.first", 0), group("hopping", "dlq.fine", 0, {"sources": "dlq.first"})),
            *(group("first", "", 0), group("first", "dlq.first", 30)),
            group("default", "dlq.fine", 0, {COPY: "false"}),
            line_of(
                Subject(
                    GROUP, "default", PRESENT, {DLQ_TOPIC: ("dlq.fine", None), COPY: ("false", "DYNAMIC_GROUP_CONFIG")}
                ),
                at(35),
            ),
            statement(BROKER, "2", 40, dict.fromkeys((PREFIX, CREATES)), state="missing"),
            broker(45, "3"),
        ]
    ],
    "another setting": [
        [
            *(cluster(0), broker(0), topic("orders", 0), topic("big", 0, BIG)),
            *(topic("dlq.compact", 0, SHORT), group("kept", "dlq.compact", 0)),  # retention.ms does not count
            *(topic("dlq.fine", 0), group("unsaid", "dlq.fine", 0, {"sources": "big", COPY: None})),
        ],
        [topic("dlq.compact", 10, {**SHORT, "cleanup.policy": "delete"})],
    ],
    "gone": [
        [
            *(cluster(0), broker(0), broker(0, "2", {PREFIX: "x."}), topic("orders", 0)),
            *(topic("dlq.closed", 0, {ENABLED: "false"}), group("g", "dlq.closed", 0)),
        ],
        [
            statement(BROKER, "2", 10, {}, state="missing"),  # a script need not repeat settings
            statement(TOPIC, "dlq.closed", 10, {}, state="missing"),
        ],
        [statement(TOPIC, "dlq.closed", 20, {ENABLED: "false"})],
    ],
}
Mistakes = dict[tuple[str, str], dict[str, Any]]


def in_silver(cluster: str, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The rows of silver.cluster_settings that lines become."""
    for number, row in enumerate(map(json.loads, lines)):
        observed_at = datetime.fromtimestamp(row["observed_at"] / 1000, UTC)
        yield {**row, "cluster": cluster, "observed_at": observed_at, "_bronze_id": str(number)}


@pytest.fixture(scope="module")
def after(
    spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Mistakes]]:
    """The findings after each step of each history, by group and kind: each step is a cluster of its own."""
    settings = warehouse_of(empty_warehouse, tmp_path_factory.mktemp("histories"))
    found: dict[str, Mistakes] = {}
    stated: list[dict[str, Any]] = []
    for name, steps in HISTORIES.items():
        for number in range(len(steps)):
            found[f"{name} {number}"] = {}
            stated += in_silver(f"{name} {number}", chain(*steps[: number + 1]))
    store(settings, "silver.cluster_settings", *stated)
    done = run(spark, settings, "silver.dlq_settings", TABLE, feed="collect")
    assert {ran.status for ran in done.values()} == {"passed"}
    for row in rows(spark, settings, TABLE):
        found[row["cluster"]][row["group_id"], row["kind"]] = row
    return {name: [found[f"{name} {number}"] for number in range(len(steps))] for name, steps in HISTORIES.items()}


def test_what_is_unknown_is_no_mistake_and_what_every_group_lacks_is_one_of_each(
    after: dict[str, list[Mistakes]],
) -> None:
    unknown, new, secret, later = after["unknown"]
    assert unknown == {}
    assert {key: row["remedy"] for key, row in new.items()} == dict.fromkeys(
        [("hidden", "SHARE_VERSION"), ("hopeful", "SHARE_VERSION")],
        "kafka-features.sh --bootstrap-server broker:9092 upgrade --feature share.version=2",
    )
    assert {row["since"] for row in new.values()} == {at(5).replace(tzinfo=None)}
    assert {key: row["severity"] for key, row in secret.items()} == {("hopeful", "DLQ_MISSING"): "high"}
    assert {row["last_seen_at"] for row in later.values()} == {at(1500).replace(tzinfo=None)}


def test_a_mistake_is_as_old_as_the_settings_that_it_consists_of(after: dict[str, list[Mistakes]]) -> None:
    assert ages(after["age"][0]) == {
        ("absent", "DLQ_MISSING"): 0,  # brokers leave and come, and those that stay do not create topics
        ("copies later", "SMALLER_MESSAGES"): 15,
        ("default", "COPY_OFF"): 0,  # then it is set to what it was by default
        ("hopping", "READS_A_DLQ"): 30,
        ("larger later", "SMALLER_MESSAGES"): 10,
        ("longer later", "SHORTER_RETENTION"): 20,
        ("looped", "OWN_INPUT"): 0,
        ("prefixless", "WRONG_PREFIX"): 0,
    }


def test_what_does_not_hold_with_another_setting_is_no_mistake(after: dict[str, list[Mistakes]]) -> None:
    compacted, deleted = after["another setting"]
    assert set(compacted) == {("kept", "COMPACTED_DLQ")}
    assert ages(deleted) == {("kept", "NOT_LANDED_IN_TIME"): 10, ("kept", "SHORTER_RETENTION"): 10}


def test_what_is_gone_has_no_settings(after: dict[str, list[Mistakes]]) -> None:
    there, gone, again = after["gone"]
    assert set(there) == {("g", "WRONG_PREFIX"), ("g", "DLQ_NOT_ENABLED")}
    assert ages(gone) == {("g", "DLQ_MISSING"): 10}
    assert ages(again) == {("g", "DLQ_NOT_ENABLED"): 20}


# --- histories in steps --------------------------------------------------------------------------------------------

Statement = tuple[int, str, str, str, dict[str, str | None]]


def random_statements(dice: random.Random) -> list[Statement]:
    """What brokers, topics and groups are said to be at random minutes, some settings left out, some unknown."""
    dlqs = ("dlq.1", "dlq.2", "x.3")
    choices: dict[str, dict[str, tuple[str | None, ...]]] = {
        BROKER: {PREFIX: ("dlq.", "dlq.", "x.", None)},
        TOPIC: {ENABLED: ("true", "false", "false", None)},
        GROUP: {
            DLQ_TOPIC: (*dlqs, *dlqs[:1] * 5, None),
            COPY: ("true", "false", "false", None),
            "sources": ("orders", "dlq.1", "dlq.1,orders", "orders,dlq.2", None),
        },
    }
    names = {BROKER: ("1", "2"), TOPIC: dlqs, GROUP: tuple(f"g{number}" for number in range(20))}
    said = []
    for kind, name in ((kind, name) for kind, some in names.items() for name in some):
        for minute in sorted(dice.sample(range(100), dice.randrange(1, 9))):
            state = dice.choice((PRESENT, PRESENT, PRESENT, PRESENT, "missing", "unknown"))
            values = {part: dice.choice(of) for part, of in choices[kind].items() if dice.random() < 0.8}
            said.append((minute, kind, name, state, values))
    return said


def modelled(said: list[Statement]) -> dict[tuple[str, str], float]:
    """The age of each mistake: the world is looked at after each minute, and what holds is as old as it held on end."""
    world: dict[tuple[str, str], tuple[str, dict[str, str | None]]] = {}
    begun: dict[Any, tuple[Any, int]] = {}  # by what holds: how, and since when

    def since(what: Any, how: Any, minute: int) -> int:
        if what not in begun or begun[what][0] != how:
            begun[what] = (how, minute)
        return begun[what][1]

    found: dict[tuple[str, str], float] = {}
    for minute in sorted({row[0] for row in said}):
        for _, kind, name, state, values in (row for row in said if row[0] == minute):
            world[kind, name] = (state, {**world.get((kind, name), ("", {}))[1], **values})
        known = {key: values if state == PRESENT else {} for key, (state, values) in world.items()}
        prefixes = {key[1]: values.get(PREFIX) for key, values in known.items() if key[0] == BROKER}
        of_prefix = {part: (prefix, since(part, prefix, minute)) for part, prefix in prefixes.items()}
        found = {}
        for group_id, values in ((key[1], values) for key, values in known.items() if key[0] == GROUP):
            dlq = values.get(DLQ_TOPIC)
            enabled = known.get((TOPIC, dlq or ""), {}).get(ENABLED)
            named_since = since((group_id, "dlq"), dlq, minute)
            holds = {
                "COPY_OFF": values.get(COPY) == "false",
                "DLQ_NOT_ENABLED": enabled == "false",
                "OWN_INPUT": dlq in (values.get("sources") or "").split(","),
            }
            ages = {kind: since((group_id, kind), (dlq, is_so), minute) for kind, is_so in holds.items()}
            if dlq is None:
                continue
            found |= {(group_id, kind): ages[kind] for kind, is_so in holds.items() if is_so}
            broken = [at for prefix, at in of_prefix.values() if prefix and not dlq.startswith(prefix)]
            if broken:
                found[group_id, "WRONG_PREFIX"] = max(named_since, min(broken))
    return found


def test_random_histories_in_any_order_give_what_a_model_says(
    spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    dice = random.Random(1191)
    said = random_statements(dice)
    lines = [statement(kind, name, minute, values, state) for minute, kind, name, state, values in said]
    at_once, at_random = (warehouse_of(empty_warehouse, tmp_path / name) for name in ("at-once", "at-random"))
    mistakes = found(spark, at_once, *lines)
    compared = {"COPY_OFF", "DLQ_NOT_ENABLED", "OWN_INPUT", "WRONG_PREFIX"}
    ages_found = {key: age for key, age in ages(mistakes).items() if key[1] in compared}
    assert ages_found == modelled(said)
    assert {kind for _, kind in ages_found} == compared

    shuffled = dice.sample(lines, len(lines))
    half = len(lines) // 2
    found(spark, at_random, *shuffled[:half])
    again = found(spark, at_random, *shuffled[half:], *dice.sample(shuffled, 10))
    assert {key: without_the_run(row) for key, row in again.items()} == {
        key: without_the_run(row) for key, row in mistakes.items()
    }
