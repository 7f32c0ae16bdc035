"""Replays where something is lost or doubtful: journals, tables, targets, topics that were created anew."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from expectations.contract import contract_of
from local.kafka_client import Message
from pipelines.backup import backup
from pipelines.broker import Broker
from pipelines.errors import AfterlogError, EnvironmentLacking, UsageError
from pipelines.replay import actions, store
from pipelines.replay.accepted import RECORDS, REPLAYED, REPLAYS
from pipelines.replay.choice import Choice
from pipelines.replay.journal import NAME, Journal, journal_store
from pipelines.replay.judge import DOUBTS, Options
from pipelines.replay.states import State
from pipelines.restore import restore
from pipelines.settings import Settings, load
from pipelines.warehouse import append
from pipelines.warehouse.tables import Warehouse
from tests.testing.deliveries import store as put
from tests.testing.kafka import KafkaAdmin
from tests.testing.replays import Died, letters_in, letters_of, standing

ALL = Choice(where="true")
DAY = timedelta(days=1)


@pytest.fixture
def settings(tmp_path: Path, broker: Broker) -> Settings:
    return load(
        warehouse=str(tmp_path / "warehouse"),
        kafka={"bootstrap_servers": broker.bootstrap_servers, "timeout_seconds": 30},
        replay={"rules": str(rules_in(tmp_path))},
    )


def rules_in(directory: Path, text: str = "") -> Path:
    file = directory / "rules.toml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture
def names() -> Iterator[str]:
    return (f"doubts-{random.getrandbits(40):010x}" for _ in range(100))


def constant(**values: Any) -> dict[str, Callable[[int], Any]]:
    return {name: lambda _, value=value: value for name, value in values.items()}  # type: ignore[misc]


def letters(settings: Settings, topic: str, count: int, **more: Callable[[int], Any]) -> Warehouse:
    """Dead letters of the records of partition 0 of a topic, written now by somebody who copied all."""
    now = datetime.now(UTC)
    known = constant(
        original_topic=topic, original_partition=0, original_timestamp=None, routed_at=now, _ingested_at=now
    )
    known |= constant(dlq_topic=f"dlq.{topic}", dlq_partition=0)
    known |= {name: lambda number: number for name in ("original_offset", "dlq_offset")}
    return letters_in(settings, count, **{**known, **more})


def failed(
    settings: Settings, kafka: KafkaAdmin, names: Iterator[str], count: int, **more: Callable[[int], Any]
) -> tuple[str, Warehouse]:
    """A new topic with so many records, of which each has a dead letter."""
    topic = next(names)
    kafka.create_topic(topic)
    kafka.produce(topic, [Message(b"x", b"k")] * count)
    return topic, letters(settings, topic, count, **more)


BARE = constant(header_profile="kip-1191", payload_copied=False, key=None, value=None, user_headers=[])


def reasons(warehouse: Warehouse, choice: Choice = ALL, options: Options = Options()) -> list[list[str]]:  # noqa: B008
    draft = actions.drawn(warehouse, choice, options)
    return [entry.reasons for entry in sorted(draft.entries, key=lambda entry: entry.letter)]


def planned(warehouse: Warehouse, choice: Choice = ALL, options: Options = Options()) -> str:  # noqa: B008
    draft = actions.drawn(warehouse, choice, options)
    store.keep(warehouse, draft)
    return draft.plan.plan_id


def run_partly(warehouse: Warehouse, plan_id: str, batches: int) -> None:
    """Run some batches of three records, and die."""
    left = batches

    def die(self: Journal, *given: Any, **named: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Died
        confirm(self, *given, **named)

    confirm = Journal.confirm
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "confirm", die)
        with pytest.raises(Died):
            actions.run(warehouse, plan_id, batch=3)


# A record that never failed


@pytest.mark.parametrize("is_older", [False, True], ids=["a time after the failure", "a time before it"])
def test_a_record_at_the_place_of_one_that_failed_is_not_replayed(
    is_older: bool, settings: Settings, kafka: KafkaAdmin, names: Iterator[str]
) -> None:
    topic = next(names)
    kafka.create_topic(topic)
    kafka.produce(topic, [Message(b"failed", b"k")] * 2)
    old_id = kafka.topic_id(topic)
    died = datetime.now(UTC)
    kafka.delete_topics(topic)
    kafka.create_topic(topic)
    at = round((died - DAY).timestamp() * 1000) if is_older else None
    kafka.produce(topic, [Message(b"another", b"k", timestamp=at)] * 2)
    warehouse = letters(settings, topic, 2, **BARE, **constant(routed_at=died))
    if is_older:  # only the ids of the topic tell
        put(
            settings,
            "silver.log_batches",
            {"cluster": "default", "segment": "s", "version": 1, "topic": topic}
            | {"topic_id": old_id, "max_timestamp": died - DAY},
        )
        assert reasons(warehouse) == [["other_record_possible"]] * 2
        assert reasons(warehouse, options=Options(allowed=("other_record_possible",))) == [[], []]
        kafka_settings = {
            "cluster": "default",
            "kind": "topic",
            "name": topic,
            "observed_at": died + timedelta(hours=1),
        }
        kafka_settings |= {"settings": [{"name": "topic_id", "value": old_id, "source": None}], "_bronze_id": "b"}
        put(settings, "silver.cluster_settings", kafka_settings)
    assert reasons(warehouse) == [["other_record"]] * 2
    assert reasons(warehouse, options=Options(allowed=DOUBTS)) == [["other_record"]] * 2


def test_the_timestamp_and_the_sizes_of_a_record_decide(
    settings: Settings, kafka: KafkaAdmin, names: Iterator[str]
) -> None:
    topic = next(names)
    kafka.create_topic(topic)
    at = round((datetime.now(UTC) - DAY).timestamp() * 1000)
    kafka.produce(topic, [Message(b"value", b"k", timestamp=at)] * 6)
    moment = append.moment(at)
    assert moment is not None
    told = {
        0: (moment, None),
        1: (moment + timedelta(milliseconds=1), None),
        2: (None, (at, 1, 5)),
        3: (None, (at - 1, 1, 5)),
        4: (None, (at, 1, 6)),
        5: (None, None),
    }
    warehouse = letters(settings, topic, 6, **BARE, original_timestamp=lambda number: told[number][0])
    for number, (_, of) in told.items():
        if of is not None:
            row = {"cluster": "default", "_source": "s", "_bronze_id": f"{number}", "topic": topic, "partition": 0}
            row |= {"offset": number, "timestamp": append.moment(of[0]), "key_size": of[1], "value_size": of[2]}
            row |= {"outcome": "ACKNOWLEDGED", "slice": f"{0:016}:0:{topic}"}
            put(settings, "silver.acknowledgements", row)
    other = ["other_record"]
    assert reasons(warehouse) == [[], other, [], other, other, []]


def test_a_clock_that_is_ahead_is_no_other_record_where_the_topic_is_known(
    settings: Settings, kafka: KafkaAdmin, names: Iterator[str]
) -> None:
    topic = next(names)
    kafka.create_topic(topic)
    now = datetime.now(UTC)
    kafka.produce(topic, [Message(b"v", b"k", timestamp=round((now + timedelta(seconds=3)).timestamp() * 1000))])
    warehouse = letters(settings, topic, 1, **BARE, **constant(routed_at=now))
    assert reasons(warehouse) == [["other_record"]]
    seen = {"cluster": "default", "kind": "topic", "name": topic, "observed_at": now - DAY, "_bronze_id": "b"}
    seen |= {"settings": [{"name": "topic_id", "value": kafka.topic_id(topic), "source": None}]}
    put(settings, "silver.cluster_settings", seen)
    assert reasons(warehouse) == [[]]


def test_without_any_time_nothing_decides(settings: Settings, kafka: KafkaAdmin, names: Iterator[str]) -> None:
    topic = next(names)
    kafka.create_topic(topic)
    kafka.produce(topic, [Message(b"value", b"k")])
    warehouse = letters(settings, topic, 1, **BARE, **constant(routed_at=None, dlq_timestamp=None))
    assert reasons(warehouse) == [["other_record_possible"]]
    said = actions.plan(warehouse, ALL, Options()).result
    assert "1  other_record_possible: another record may stand at its place" in said
    allowed = Options(allowed=("other_record_possible",))
    assert json.loads(actions.run(warehouse, planned(warehouse, options=allowed), form="json").result)["replayed"] == 1


def test_what_is_no_doubt_cannot_be_allowed() -> None:
    with pytest.raises(UsageError, match=r"--allow takes other_record_possible, commit_unknown or replay_unknown"):
        Options(allowed=("other_record",))


# Lost journals, warehouses and targets


@pytest.mark.parametrize("lost", ["journal", "tables", "both"])
@pytest.mark.parametrize("target", ["original", "another"])
def test_a_dead_letter_goes_back_once_although_something_is_lost(
    lost: str, target: str, settings: Settings, kafka: KafkaAdmin, names: Iterator[str]
) -> None:
    """A run is killed, something is lost, and plans of other conditions take the same dead letters."""
    topic, other = next(names), next(names)
    kafka.create_topic(topic)
    kafka.create_topic(other, 3)
    kafka.produce(topic, [Message(b"first", b"k")] * 20)
    warehouse = letters(settings, topic, 20)
    to = other if target == "another" else None
    run_partly(warehouse, planned(warehouse, options=Options(to=to)), 3)
    if lost != "tables":
        shutil.rmtree(journal_store(warehouse.settings).root)
    if lost != "journal":
        for table in (REPLAYED, REPLAYS, "gold.replay_plans"):
            shutil.rmtree(warehouse.location(table), ignore_errors=True)
    for condition in ("dlq_offset >= 5", "dlq_offset < 12", "true"):
        choice = Choice(where=condition)
        draft = actions.drawn(warehouse, choice, Options(to=to))
        store.keep(warehouse, draft)
        actions.run(warehouse, draft.plan.plan_id)
    seen = letters_of(standing(settings, to or topic))
    assert seen == sorted((f"dlq.{topic}:0:{number}" for number in range(20)), key=lambda place: (len(place), place))


@pytest.mark.parametrize("target", ["original", "another"])
def test_a_plan_from_before_the_loss_leaves_out_what_another_plan_replayed(
    target: str, settings: Settings, kafka: KafkaAdmin, names: Iterator[str]
) -> None:
    other = next(names)
    kafka.create_topic(other)
    topic, warehouse = failed(settings, kafka, names, 9)
    waits = planned(warehouse)
    to = other if target == "another" else None
    run_partly(warehouse, planned(warehouse, Choice(where="dlq_offset < 99"), Options(to=to)), 2)
    shutil.rmtree(journal_store(warehouse.settings).root)
    shutil.rmtree(warehouse.location(REPLAYED))
    said = json.loads(actions.run(warehouse, waits, form="json").result)
    seen = letters_of(standing(settings, topic)) + letters_of(standing(settings, other))
    assert sorted(seen) == [f"dlq.{topic}:0:{number}" for number in range(9)]
    assert (said["status"], said["skipped"]) == ("FINISHED", 9)


def test_a_lost_journal_is_learned_from_the_targets_of_other_plans(
    settings: Settings, kafka: KafkaAdmin, names: Iterator[str]
) -> None:
    other = next(names)
    kafka.create_topic(other)
    _topic, warehouse = failed(settings, kafka, names, 9)
    run_partly(warehouse, planned(warehouse, options=Options(to=other)), 1)
    shutil.rmtree(journal_store(warehouse.settings).root)
    shutil.rmtree(warehouse.location(REPLAYED), ignore_errors=True)
    found = reasons(warehouse)
    assert found.count(["replayed_before"]) == 6  # the second batch was committed, and nobody wrote it down
    assert found.count([]) == 3
    kafka.delete_topics(other)
    assert reasons(warehouse) == [["replay_unknown"]] * 9
    assert reasons(warehouse, options=Options(allowed=("replay_unknown",))) == [[]] * 9


def test_a_target_that_cannot_be_read_so_far_back_is_refused(
    settings: Settings, kafka: KafkaAdmin, names: Iterator[str]
) -> None:
    """Only of records that can stand in what is gone: each record and each partition is judged by itself."""
    topic, other = next(names), next(names)
    kafka.create_topic(topic, 2)
    kafka.create_topic(other, 2)
    now = datetime.now(UTC)
    for name in (topic, other):
        kafka.produce(name, [Message(b"x", b"k", partition=at % 2) for at in range(10)])
    died = {0: now - 30 * DAY, 1: now, 2: now + timedelta(minutes=20), 3: None, 4: now}
    landed = constant(_ingested_at=now + timedelta(hours=1), dlq_timestamp=None)
    warehouse = letters(settings, topic, 5, routed_at=died.get, **landed)
    assert reasons(warehouse) == [[]] * 5
    assert reasons(warehouse, options=Options(to=other)) == [[]] * 5
    kafka.delete_records(other, 1, 2)
    unknown = ["replay_unknown"]
    found = reasons(warehouse, options=Options(to=other))  # the third died later, and the fourth landed later
    assert found == [unknown, unknown, [], [], unknown]
    assert reasons(warehouse) == [[]] * 5
    kafka.delete_records(topic, 1, 5)  # all of another partition
    kafka.delete_records(topic, 0, 2)
    assert reasons(warehouse) == [unknown, unknown, [], [], []]  # a replay stands behind what failed
    shutil.rmtree(journal_store(warehouse.settings).root)
    with Journal(journal_store(warehouse.settings), "default"):
        pass  # as a run that lands dead letters does, before they die
    later = datetime.now(UTC) + timedelta(hours=1)
    shutil.rmtree(settings.warehouse + "/silver")
    warehouse = letters(settings, topic, 2, **constant(routed_at=None, dlq_timestamp=None, _ingested_at=later))
    assert reasons(warehouse) == [[], []]


def test_a_replay_is_known_again_whatever_is_learned_of_its_first_place(
    settings: Settings, kafka: KafkaAdmin, names: Iterator[str]
) -> None:
    other = next(names)
    kafka.create_topic(other)
    topic, warehouse = failed(settings, kafka, names, 3)
    run_partly(warehouse, planned(warehouse, options=Options(to=other)), 0)
    hops = [
        {"cluster": "default", "topic": topic, "partition": 0, "offset": at, "original_topic": "orders"}
        | {"original_partition": 0, "original_offset": at, "slice": "s"}
        for at in range(3)
    ]
    put(settings, "silver.dlq_hops", *hops)
    shutil.rmtree(journal_store(warehouse.settings).root)
    shutil.rmtree(warehouse.location(REPLAYED), ignore_errors=True)
    choice = Choice(where="dlq_offset < 99")
    assert reasons(warehouse, choice, Options(to=other)) == [["replayed_before"]] * 3


def test_a_journal_that_was_restored_is_not_believed(
    settings: Settings, kafka: KafkaAdmin, names: Iterator[str], tmp_path: Path
) -> None:
    topic = next(names)
    kafka.create_topic(topic)
    kafka.produce(topic, [Message(b"first", b"k")] * 4)
    warehouse = Warehouse(settings)
    with Journal(journal_store(warehouse.settings), "default"):
        pass
    shutil.copytree(settings.warehouse, tmp_path / "backup")
    warehouse = letters(settings, topic, 4)
    shutil.copytree(settings.warehouse, tmp_path / "backup", dirs_exist_ok=True)
    actions.run(warehouse, planned(warehouse))
    shutil.rmtree(settings.warehouse)
    shutil.copytree(tmp_path / "backup", settings.warehouse)
    assert reasons(warehouse, Choice(where="dlq_offset < 99")) == [["replayed_before"]] * 4


@pytest.mark.parametrize("backed_up", ["before the plan", "before the run", "within the run"])
def test_the_rest_of_a_plan_goes_out_once_over_a_backup_and_a_restore(
    backed_up: str, settings: Settings, kafka: KafkaAdmin, names: Iterator[str], tmp_path: Path
) -> None:
    copies, said = str(tmp_path / "backups"), list[str]()
    with Journal(journal_store(settings), "default"):
        pass
    topic, warehouse = failed(settings, kafka, names, 12)
    if backed_up == "before the plan":
        backup(settings, copies, None, False, said.append)
    plan_id = planned(warehouse)
    if backed_up == "before the run":
        backup(settings, copies, None, False, said.append)
    run_partly(warehouse, plan_id, 1)
    if backed_up == "within the run":
        backup(settings, copies, None, False, said.append)
    run_partly(warehouse, plan_id, 1)
    gone_out = len(letters_of(standing(settings, topic)))
    assert 3 < gone_out < 12
    shutil.rmtree(settings.warehouse)
    restore(settings, copies, None)

    is_there = backed_up != "before the plan"
    found = reasons(warehouse, Choice(where="dlq_offset < 99"))
    refused = {"replayed_before"} if backed_up != "within the run" else {"replayed_before", "claimed"}
    assert all(set(item) <= refused and item for item in found[:gone_out])
    assert found[gone_out:] == [[]] * (12 - gone_out)
    if is_there:
        assert json.loads(actions.run(warehouse, plan_id, form="json").result)["status"] == "FINISHED"
    else:
        with pytest.raises(UsageError, match="no plan"):
            actions.run(warehouse, plan_id)
        rest = planned(warehouse)
        assert json.loads(actions.run(warehouse, rest, form="json").result)["replayed"] == 12 - gone_out
    letters_there = letters_of(standing(settings, topic))
    assert len(letters_there) == len({*letters_there}) == 12
    assert reasons(warehouse) == [["replayed_before"]] * 12


def test_a_target_of_another_plan_that_was_created_again_tells_nothing(
    settings: Settings, kafka: KafkaAdmin, names: Iterator[str]
) -> None:
    other = next(names)
    kafka.create_topic(other)
    _topic, warehouse = failed(settings, kafka, names, 3)
    run_partly(warehouse, planned(warehouse, options=Options(to=other)), 0)
    kafka.delete_topics(other)
    kafka.create_topic(other)
    shutil.rmtree(journal_store(warehouse.settings).root)
    shutil.rmtree(warehouse.location(REPLAYED), ignore_errors=True)
    assert reasons(warehouse) == [["replay_unknown"]] * 3


def test_a_plan_of_a_lost_journal_is_refused_where_its_target_was_cut(
    settings: Settings, kafka: KafkaAdmin, names: Iterator[str]
) -> None:
    topic = next(names)
    kafka.create_topic(topic)
    warehouse = letters(settings, topic, 6)
    kafka.produce(topic, [Message(b"x", b"k")] * 8)
    plan_id = planned(warehouse)
    kafka.produce(topic, [Message(b"x", b"k")] * 4)
    kafka.delete_records(topic, 0, 10)
    shutil.rmtree(journal_store(warehouse.settings).root)
    with pytest.raises(AfterlogError, match="nobody can tell") as refused:
        actions.run(warehouse, plan_id)
    assert refused.value.exit_code == 2
    told = actions.status(warehouse, plan_id)
    assert (told.exit_code, "FAILED" in told.result, "nobody can tell" in told.result) == (2, True, True)


def test_a_journal_that_is_removed_under_a_run_stops_it(
    settings: Settings, kafka: KafkaAdmin, names: Iterator[str]
) -> None:
    topic, warehouse = failed(settings, kafka, names, 9)
    plan_id = planned(warehouse)

    def remove(*_: Any) -> None:
        Path(journal_store(warehouse.settings).root, NAME).unlink(missing_ok=True)

    with pytest.raises(EnvironmentLacking, match="was removed while plan"):
        actions.run(warehouse, plan_id, batch=3, progress=remove)
    assert json.loads(actions.run(warehouse, plan_id, form="json").result)["status"] == "FINISHED"
    assert len(letters_of(standing(settings, topic))) == 9


# First places and times


KEEPS = ("spring-kafka", "kafka-connect")
WRITERS = (*KEEPS, "kip-1191", "kip-1191 copied", "drops all")


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (2, 3))])
def test_the_first_place_and_time_survive_every_round(
    seed: int, settings: Settings, kafka: KafkaAdmin, names: Iterator[str]
) -> None:
    chance = random.Random(seed)
    topic, count, rounds = next(names), 12, 4
    kafka.create_topic(topic)
    first_at = [1_700_000_000_000 + chance.randrange(10**9) for _ in range(count)]
    kafka.produce(topic, [Message(b"%d" % number, b"k", timestamp=at) for number, at in enumerate(first_at)])
    origins = {number: (f"{topic}:0:{number}", first_at[number]) for number in range(count)}
    places = {number: number for number in range(count)}  # where each record stands now
    headers: dict[int, Any] = {number: () for number in range(count)}
    warehouse = Warehouse(settings)
    for number_of_round in range(rounds):
        now = datetime.now(UTC)
        written = {number: chance.choice(WRITERS) for number in range(count)}
        is_timed = {number: number_of_round == 0 or chance.random() < 0.3 for number in range(count)}
        share = {number for number, writer in written.items() if writer.startswith("kip")}
        bare = {number for number, writer in written.items() if writer == "kip-1191"}
        times = {record.offset: record.timestamp for record in standing(settings, topic)}
        directory = Path(settings.warehouse) / "silver" / "dlq_records"
        rows = letters_row(settings, topic, count, number_of_round, now)
        for number, row in enumerate(rows):
            row["original_offset"] = places[number]
            if is_timed[number] and number not in share:
                row["original_timestamp"] = append.moment(times[places[number]])
            row["header_profile"] = "kip-1191" if number in share else written[number].split()[0]
            row["user_headers"] = headers[number] if written[number] in KEEPS else ()
            row["value"] = b"%d" % number
            row["key"] = b"k"
            if number in bare:
                row |= {"payload_copied": False, "key": None, "value": None}
        if not directory.exists():
            letters_in(settings, 0)
        append.append(warehouse, contract_of(RECORDS), rows)
        choice = Choice(where=f"dlq_topic = 'dlq.{topic}.{number_of_round}'")
        plan_id = planned(warehouse, choice, Options(max_replays=99))
        assert json.loads(actions.run(warehouse, plan_id, form="json").result)["replayed"] == count
        for item in standing(settings, topic):
            told = dict(item.headers)
            if told.get("afterlog.replay.plan") != plan_id.encode():
                continue
            number = int(item.value or b"")
            assert (told["afterlog.replay.original"] or b"").decode() == origins[number][0]
            assert told.get("afterlog.replay.attempt") == b"%d" % (number_of_round + 1)
            if number_of_round or is_timed[number] or number in share:
                assert int(told["afterlog.replay.timestamp"] or b"") == origins[number][1]
            else:
                origins[number] = (origins[number][0], origins[number][1])
            places[number], headers[number] = item.offset, item.headers


def letters_row(settings: Settings, topic: str, count: int, number: int, now: datetime) -> list[dict[str, Any]]:
    """Rows of dead letters of a round, in a dead-letter topic of their own."""
    columns = dict.fromkeys(column.name for column in contract_of(RECORDS).stored)
    known = {
        **{"_source": "a test", "_run_id": "a test", "_ingested_at": now, "cluster": settings.cluster},
        **{"dlq_topic": f"dlq.{topic}.{number}", "dlq_topic_id": "AAAAAAAAAAAAAAAAAAAAAQ", "dlq_partition": 0},
        **{"original_topic": topic, "original_partition": 0, "consumer_group": "billing", "routed_at": now},
        **{"routed_at_source": "header", "payload_copied": True, "control_marker_suspected": False},
        **{"exception_class": "com.acme.TimeoutException", "error_message": "no answer", "lossy_encoding": False},
    }
    return [columns | known | {"dlq_offset": at, "_bronze_id": f"{number}-{at}"} for at in range(count)]


def test_the_replayed_record_itself_tells_its_first_place_when_tables_are_lost(
    settings: Settings, kafka: KafkaAdmin, names: Iterator[str]
) -> None:
    topic = next(names)
    kafka.create_topic(topic)
    kafka.produce(topic, [Message(b"0", b"k", timestamp=1_700_000_000_000)])
    warehouse = letters(settings, topic, 1, **BARE)
    actions.run(warehouse, planned(warehouse))
    (first,) = [record for record in standing(settings, topic) if record.letter]
    shutil.rmtree(settings.warehouse)
    again = constant(original_offset=first.offset, dlq_offset=1, _bronze_id="again")
    warehouse = letters(settings, topic, 1, **BARE, **again)
    actions.run(warehouse, planned(warehouse))
    found = [dict(record.headers) for record in standing(settings, topic) if record.letter.endswith(":1")]
    assert [row["afterlog.replay.original"] for row in found] == [f"{topic}:0:0".encode()]
    assert [row["afterlog.replay.timestamp"] for row in found] == [b"1700000000000"]


def test_an_older_version_s_replay_tells_where_its_record_came_from(
    settings: Settings, kafka: KafkaAdmin, names: Iterator[str]
) -> None:
    topic = next(names)
    kafka.create_topic(topic)
    kafka.produce(topic, [Message(b"0", b"k")])
    warehouse = letters(settings, topic, 1, **constant(user_headers=[]))
    row = {"cluster": "default", "plan_id": "AAAA-AAAA", "dlq_topic": "dlq.of-old", "dlq_topic_id": None}
    row |= {"dlq_partition": 0, "dlq_offset": 3, "original_topic": "orders", "original_partition": 1, "attempt": 1}
    row |= {"original_offset": 5, "consumer_group": "billing", "target_topic": topic, "target_partition": 0}
    row |= {"target_topic_id": kafka.topic_id(topic), "target_offset": 0, "replayed_at": datetime.now(UTC) - DAY}
    append.append(warehouse, contract_of(REPLAYED), [row])
    draft = actions.drawn(warehouse, ALL, Options())
    assert [record.origin.coordinate for record in draft.plan.records] == ["orders:1:5"]


def test_the_oldest_hop_is_the_first_place(settings: Settings, kafka: KafkaAdmin, names: Iterator[str]) -> None:
    topic = next(names)
    kafka.create_topic(topic)
    kafka.produce(topic, [Message(b"0", b"key 0")])
    hop = {"profile": "spring-kafka", "topic": "orders", "partition": 2, "offset": 7, "consumer_group": "billing"}
    warehouse = letters(settings, topic, 1, **constant(earlier_hops=[hop]))
    at = datetime(2026, 11, 20, tzinfo=UTC)
    row = {"cluster": "default", "_source": "s", "_bronze_id": "a", "topic": "orders", "partition": 2, "offset": 7}
    row |= {"timestamp": at, "outcome": "ACKNOWLEDGED", "slice": f"{0:016}:2:orders"}
    put(settings, "silver.acknowledgements", row)
    actions.run(warehouse, planned(warehouse))
    (found,) = [dict(record.headers) for record in standing(settings, topic) if record.letter]
    assert found["afterlog.replay.original"] == b"orders:2:7"
    assert found["afterlog.replay.timestamp"] == b"%d" % round(at.timestamp() * 1000)


# Transactions of dead letters


def test_a_dead_letter_of_an_aborted_transaction_is_not_replayed(
    settings: Settings, kafka: KafkaAdmin, names: Iterator[str]
) -> None:
    """A file has what a reader of uncommitted records saw; the cluster tells which were committed."""
    topic = next(names)
    kafka.create_topic(topic)
    kafka.create_topic(f"dlq.{topic}")
    with kafka.transaction(f"{topic}-1") as item:
        item.send(f"dlq.{topic}", [Message(b"0", b"key 0")])
        item.abort()
    kafka.produce(f"dlq.{topic}", [Message(b"2", b"key 2"), Message(b"3", b"key 3"), Message(b"4", b"key 4")])
    kafka.produce(topic, [Message(b"x", b"k")] * 9)
    kafka.delete_records(f"dlq.{topic}", 0, 0)
    with kafka.transaction(f"{topic}-2") as two:
        two.send(f"dlq.{topic}", [Message(b"5", b"key 5")])
        warehouse = letters(settings, topic, 7, **constant(dlq_topic_id=None), value=lambda number: b"%d" % number)
        found = reasons(warehouse)
    unknown = ["commit_unknown"]
    assert found == [["rolled_back"], unknown, [], [], [], ["open_transaction"], unknown]
    assert reasons(warehouse, options=Options(allowed=("commit_unknown",)))[6] == []
    batch = {"cluster": "default", "segment": "s", "version": 1, "topic": f"dlq.{topic}", "partition": 0}
    batch |= {"base_offset": 6, "last_offset": 6, "record_count": 1, "is_transactional": False, "topic_id": None}
    put(settings, "silver.log_batches", batch)
    assert reasons(warehouse)[6] == []


# States and words


def test_a_plan_says_the_same_in_each_place(
    settings: Settings, kafka: KafkaAdmin, names: Iterator[str], tmp_path: Path
) -> None:
    _topic, warehouse = failed(settings, kafka, names, 3)
    plan_id = planned(warehouse)

    def said() -> tuple[str, int]:
        told = actions.status(warehouse, plan_id, "json")
        (listed,) = [json.loads(line) for line in actions.plans(warehouse, "json").result.splitlines()]
        assert listed["status"] == json.loads(told.result)["status"]
        assert actions.status(warehouse, plan_id).exit_code == told.exit_code
        return listed["status"], told.exit_code

    assert said() == ("READY", 0)
    rules_in(tmp_path, '[[rule]]\nname = "r"\nthen = "HOLD"\n')
    assert said() == ("EXPIRED", 2)
    assert actions.left(warehouse, plan_id).exit_code == 2
    with pytest.raises(UsageError, match="has expired: the remediation rules changed"):
        actions.run(warehouse, plan_id)
    rules_in(tmp_path)
    actions.run(warehouse, plan_id)
    assert said() == ("FINISHED", 0)
    shutil.rmtree(journal_store(warehouse.settings).root)
    assert said() == ("FINISHED", 0)  # and not READY, 3 of 3


def test_a_lost_journal_is_said(settings: Settings, kafka: KafkaAdmin, names: Iterator[str]) -> None:
    _topic, warehouse = failed(settings, kafka, names, 9)
    plan_id = planned(warehouse)
    run_partly(warehouse, plan_id, 1)
    shutil.rmtree(journal_store(warehouse.settings).root)
    told = actions.status(warehouse, plan_id).result
    assert "READY: the journal of its runs is lost, so a run learns from the target what was replayed" in told


def test_a_compacted_target_takes_no_record_without_a_key(
    settings: Settings, kafka: KafkaAdmin, names: Iterator[str]
) -> None:
    topic = next(names)
    kafka.create_topic(topic, settings={"cleanup.policy": "compact"})
    warehouse = letters(settings, topic, 2, key=lambda number: None if number else b"k")
    kafka.produce(topic, [Message(b"x", b"k")] * 2)
    found = reasons(warehouse, options=Options(allowed=("replay_unknown",)))
    assert found == [[], ["needs_key"]]


def test_headers_that_are_left_out_are_told(settings: Settings, kafka: KafkaAdmin, names: Iterator[str]) -> None:
    topic = next(names)
    kafka.create_topic(topic)
    own = [("__dlq.errors.message", b"mine"), ("afterlog.replay.note", b"mine too"), ("trace", b"t")]
    kafka.produce(topic, [Message(b"x", b"k", own)])
    warehouse = letters(settings, topic, 1, **BARE)
    draft = actions.drawn(warehouse, ALL, Options())
    assert [name for name, _ in draft.plan.records[0].headers] == ["__dlq.errors.message", "trace"]
    said = actions.plan(warehouse, ALL, Options()).result
    assert "1 record without own headers whose names begin with afterlog.replay., which Afterlog reserves" in said


def test_what_to_know_before_a_run_is_said(settings: Settings, kafka: KafkaAdmin, names: Iterator[str]) -> None:
    topic, warehouse = failed(settings, kafka, names, 2)
    alone = f"{topic} has no other reader that topologies, dead letters or `afterlog collect` tell of."
    assert alone in actions.plan(warehouse, ALL, Options()).result
    summary = {"cluster": "default", "original_topic": topic, "dlq_topic": "d", "record_count": 1}
    put(settings, "gold.dlq_summary", summary | {"consumer_group": "billing"}, summary | {"consumer_group": "fraud"})
    group = {"cluster": "default", "kind": "group", "name": "shipping", "state": "present", "_bronze_id": "b"}
    group |= {
        "observed_at": datetime.now(UTC),
        "settings": [{"name": "sources", "value": f"a,{topic}", "source": None}],
    }
    put(settings, "silver.cluster_settings", group)
    edge = {"cluster": "default", "group_id": "shipping", "kind": "topic", "direction": "read", "topic": topic}
    put(settings, "gold.topology_edges", edge | {"is_current": True}, edge | {"group_id": "old", "is_current": False})
    said = actions.plan(warehouse, ALL, Options()).result
    others = "fraud (dead letters), shipping (topology, collected)"
    assert f"{topic} is also read by {others}: these get the records again." in said
    told = json.loads(actions.plan(warehouse, ALL, Options(), form="json").result)
    assert told["readers"] == {
        topic: {"billing": ["dead letters"], "fraud": ["dead letters"], "shipping": ["topology", "collected"]}
    }
    warehouse = letters_of_two(settings, topic)
    said = actions.plan(warehouse, Choice(where="dlq_topic = 'dlq.two'"), Options()).result
    assert f"{topic} is also read by billing (dead letters), fraud (dead letters), shipping" in said


def letters_of_two(settings: Settings, topic: str) -> Warehouse:
    """Add dead letters of two groups: each of them gets those of the other one again."""
    rows = letters_row(settings, topic, 2, 0, datetime.now(UTC))
    for number, row in enumerate(rows):
        row |= {"dlq_topic": "dlq.two", "original_offset": number, "consumer_group": ("billing", "fraud")[number]}
        row |= {"header_profile": "spring-kafka", "key": b"k", "value": b"x", "user_headers": ()}
    append.append(Warehouse(settings), contract_of(RECORDS), rows)
    return Warehouse(settings)


def test_a_pause_after_a_failure_is_a_pause(settings: Settings, kafka: KafkaAdmin, names: Iterator[str]) -> None:
    _topic, warehouse = failed(settings, kafka, names, 1)
    plan_id = planned(warehouse)
    with Journal(journal_store(warehouse.settings), "default") as journal:
        journal.begin(plan_id, "a runner")
        journal.end(plan_id, "a runner", State.FAILED, "The brokers do not answer.", 3)
    assert actions.status(warehouse, plan_id).exit_code == 3
    actions.ask_pause(warehouse, plan_id)
    told = actions.status(warehouse, plan_id)
    assert (told.exit_code, "do not answer" in told.result) == (0, False)
