"""Replays to a real broker: every byte as it was, each record once, whatever happens to the run."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from local.kafka_client import Action, Message, Record
from pipelines.broker import Broker
from pipelines.errors import AfterlogError, EnvironmentLacking, UsageError, WriterBusy
from pipelines.replay import actions, store
from pipelines.replay.choice import Choice
from pipelines.replay.client import admin, cluster_id, describe
from pipelines.replay.deaths import Deaths
from pipelines.replay.fetch import ABORTED, ABSENT, OPEN, Fetched, fetch
from pipelines.replay.journal import journal_store
from pipelines.replay.judge import Options
from pipelines.replay.model import Plan, Replayed, Source
from pipelines.replay.run import Ended, Progress, cancel, run
from pipelines.replay.runners import alone
from pipelines.replay.states import State
from pipelines.run.stop import Stop
from pipelines.settings import Kafka, Settings, load
from tests.testing.broker import SecuredBroker
from tests.testing.kafka import KafkaAdmin
from tests.testing.replays import (
    POINTS,
    Replays,
    context,
    killed,
    letters_in,
    numbered,
    plan_of,
    record,
    run_without_lock,
    standing,
)

SECRET = 'a "secret" \\ of a reader'


@pytest.fixture
def settings(tmp_path: Path, broker: Broker) -> Settings:
    return load(
        warehouse=str(tmp_path / "warehouse"),
        kafka={"bootstrap_servers": broker.bootstrap_servers, "timeout_seconds": 30},
    )


def as_reader(secured_broker: SecuredBroker, tmp_path: Path, user: str = "reader", password: str = SECRET) -> Settings:
    """Settings of a user of the secured listener."""
    kafka = {
        "bootstrap_servers": secured_broker.secured_servers,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "username": user,
        "password": password,
        "ca_file": str(secured_broker.authority),
        "timeout_seconds": 30,
    }
    return load(warehouse=str(tmp_path / "warehouse"), kafka=kafka)


def test_describe(settings: Settings, kafka: KafkaAdmin) -> None:
    kafka.create_topic("described", 3, {"cleanup.policy": "delete, compact", "max.message.bytes": "12345"})
    kafka.create_dead_letter_topic("described.dlq")
    kafka.produce("described", [Message(b"a", key=b"k", partition=1), Message(b"b", key=b"k", partition=1)])
    kafka.delete_records("described", 1, 1)
    asked = admin(settings)
    found = describe(asked, ["described", "described.dlq", "no such name", "absent"])
    assert set(found) == {"described", "described.dlq"}
    topic = found["described"]
    assert topic.topic_id == kafka.topic_id("described")
    assert (topic.partitions, topic.starts, topic.ends) == (3, (0, 1, 0), (0, 2, 0))
    assert (topic.max_message_bytes, topic.cleanup_policy, topic.is_compacted) == (12345, "compact,delete", True)
    assert (topic.is_dead_letter_topic, found["described.dlq"].is_dead_letter_topic) == (False, True)
    assert (topic.may_read, topic.may_write) == (True, True)
    assert cluster_id(asked) == str(kafka.admin.describeCluster().clusterId().get())


def test_topic_ids_are_written_as_kafka_writes_them(settings: Settings, kafka: KafkaAdmin) -> None:
    names = [f"ids-{number}" for number in range(12)]  # most of 12 ids have a character of which alphabets differ
    for name in names:
        kafka.create_topic(name)
    found = describe(admin(settings), names)
    assert {name: topic.topic_id for name, topic in found.items()} == {name: kafka.topic_id(name) for name in names}


def test_fetch(settings: Settings, kafka: KafkaAdmin) -> None:
    kafka.create_topic("fetched", 2)
    odd = Message(b"\xff\x00", b"", [("a", None), ("a", b""), ("b", b"\xfe")], partition=0, timestamp=1_600_000_000_000)
    kafka.produce("fetched", [odd, Message(None, None, partition=0), Message(b"", b"x", partition=0)])
    with kafka.transaction("fetch-1") as item:
        item.send("fetched", [Message(b"aborted", partition=0)])
        item.abort()
    kafka.produce("fetched", [Message(b"deleted", partition=1), Message(b"kept", partition=1)])
    kafka.delete_records("fetched", 1, 1)
    with kafka.transaction("fetch-2") as two:
        two.send("fetched", [Message(b"open", partition=1)])
        places = [("fetched", 0, offset) for offset in range(6)] + [("fetched", 1, offset) for offset in range(4)]
        found = fetch(settings, [*places, ("fetched", 2, 0), ("absent", 0, 0)])
    in_order = [found[coordinate] for coordinate in places]
    assert in_order[0] == Fetched(b"", b"\xff\x00", (("a", None), ("a", b""), ("b", b"\xfe")), 1_600_000_000_000)
    assert [item.value for item in in_order[1:3] if isinstance(item, Fetched)] == [None, b""]
    assert [item.key for item in in_order[1:3] if isinstance(item, Fetched)] == [None, b"x"]
    assert in_order[3:6] == [ABORTED, ABSENT, ABSENT]  # the marker, and an offset behind the end
    assert in_order[6] is ABSENT
    assert isinstance(in_order[7], Fetched)
    assert in_order[8:] == [OPEN, ABSENT]
    assert found["fetched", 2, 0] is found["absent", 0, 0] is ABSENT


def test_fetch_of_places_far_apart(settings: Settings, kafka: KafkaAdmin, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka.create_topic("far", 3)
    kafka.produce("far", [Message(f"{at % 3}-{at // 3}".encode(), partition=at % 3) for at in range(900)])
    monkeypatch.setattr("pipelines.replay.fetch.GAP", 20)
    places = [("far", 0, offset) for offset in (0, 5, 100, 250, 299)] + [("far", 2, 299), ("far", 2, 7), ("far", 2, 8)]
    found = fetch(settings, places)
    assert [item.value for item in found.values() if isinstance(item, Fetched)] == [
        *(b"0-0", b"0-5", b"0-100", b"0-250", b"0-299", b"2-7", b"2-8", b"2-299")
    ]


def test_a_user_with_few_rights(secured_broker: SecuredBroker, secured_kafka: KafkaAdmin, tmp_path: Path) -> None:
    """Reading a topic takes Read on it and nothing on groups; a topic without rights is there, without its id."""
    for name in ("rights.shown", "rights.read", "rights.hidden"):
        secured_kafka.create_topic(name)
        secured_kafka.produce(name, [Message(b"x")])
    secured_kafka.allow("reader", "DESCRIBE", "TOPIC", "rights.shown")
    secured_kafka.allow("reader", "READ", "TOPIC", "rights.read")
    settings = as_reader(secured_broker, tmp_path)
    found = describe(admin(settings), ["rights.shown", "rights.read", "rights.hidden", "rights.absent"])
    assert {name: (topic.topic_id is not None, topic.may_read, topic.may_write) for name, topic in found.items()} == {
        "rights.shown": (True, False, False),
        "rights.read": (True, True, False),
        "rights.hidden": (False, False, False),
        "rights.absent": (False, False, False),
    }
    assert (found["rights.read"].ends, found["rights.read"].cleanup_policy) == ((1,), None)
    assert isinstance(fetch(settings, [("rights.read", 0, 0)])["rights.read", 0, 0], Fetched)
    with pytest.raises(UsageError, match=r"is not allowed to read topic rights\.shown.*grant it the operation Read"):
        fetch(settings, [("rights.shown", 0, 0)])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"password": "wrong"}, "refuse the user of [kafka] (SCRAM-SHA-512)"),
        ({"ca_file": None}, "name the authority in ca_file"),
        ({"security_protocol": "SSL"}, "speaks SASL_SSL"),
        ({"sasl_mechanism": "PLAIN"}, "does not offer PLAIN"),
        ({"bootstrap_servers": "127.0.0.1:1"}, "No broker can be reached"),
        ({"bootstrap_servers": "no-such-host.invalid:9092"}, "No broker can be reached"),
    ],
)
def test_wrong_settings(
    change: dict[str, object], sentence: str, secured_broker: SecuredBroker, tmp_path: Path
) -> None:
    right = as_reader(secured_broker, tmp_path)
    kafka = Kafka.model_validate(right.kafka.model_dump() | {"timeout_seconds": 2} | change)
    wrong = right.model_copy(update={"kafka": kafka})
    with pytest.raises(AfterlogError) as told:
        describe(admin(wrong), ["any"])
    assert sentence in str(told.value)
    assert isinstance(told.value, UsageError | EnvironmentLacking)
    assert SECRET not in str(told.value)


# Runs


@pytest.fixture
def replays(settings: Settings, kafka: KafkaAdmin) -> Replays:
    return Replays(settings, kafka)


def test_every_byte_and_header(replays: Replays) -> None:
    replays.kafka.create_topic("replayed-bytes", 3)
    ours = {"afterlog.replay.plan", "afterlog.replay.record", "afterlog.replay.attempt"}
    headers = (("a", b"1"), ("a", None), ("a", b""), ("\u00e4", b"\xff\xfe"), ("", b"x"))
    old = (("afterlog.replay.plan", b"an older one"), ("afterlog.replay.original", b"x:0:1"))
    planned = [
        record(0, "replayed-bytes", partition=2, key=None, value=None),
        record(1, "replayed-bytes", partition=2, key=b"", value=b""),
        record(2, "replayed-bytes", partition=0, key=b"\xff\x00", value=b"\x00\xfe" * 2000, headers=(*headers, *old)),
        record(3, "replayed-bytes", partition=1, value=b"v", source=Source(None, None, None)),
        record(4, "replayed-bytes", partition=2, value=b"v", source=Source("or\u00e4nge", 1, 2, None)),
    ]
    began = int(time.time() * 1000) - 60_000
    got: list[Replayed] = []
    ended = replays.run(plan_of("bytes", replays.settings, planned), confirmed=got.extend)
    assert (ended.status, ended.replayed, ended.skipped, ended.exit_code) == (State.FINISHED, 5, 0, 0)
    read = replays.kafka.read("replayed-bytes", committed=True, expected=5)
    seen = {(text.partition, text.offset): text for text in read}
    in_order = [seen[text.partition, text.offset] for text in got]
    assert [(text.partition, text.key, text.value) for text in in_order] == [
        (text.partition, text.key, text.value) for text in planned
    ]
    own = [[header for header in item.headers if not header[0].startswith("afterlog.")] for item in in_order]
    assert own == [[], [], list(headers), [], []]
    added = [dict(item.headers) for item in in_order]
    assert added[2] == dict(headers) | {
        "afterlog.replay.plan": b"bytes",
        "afterlog.replay.record": b"dlq.of-tests:0:2",
        "afterlog.replay.attempt": b"1",
        "afterlog.replay.original": b"orders:2:2",
        "afterlog.replay.timestamp": b"1600000000002",
    }
    assert set(added[3]) == ours
    assert added[4]["afterlog.replay.original"] == b"or\\xe4nge:1:2"
    assert [item.timestamp for item in in_order] == [item.timestamp for item in got]
    assert all(item.timestamp > began for item in got)


def test_keys_go_where_kafkas_own_producer_puts_them(replays: Replays) -> None:
    plan = replays.plan("placed", 0, partitions=7)
    keys = [bytes(random.Random(at).randbytes(at % 9)) for at in range(80)]
    replays.kafka.produce("placed", [Message(b"java", key=key) for key in keys])
    planned = [record(at, "placed", key=key, letters="dlq.placed") for at, key in enumerate(keys)]
    replays.run(plan_of("placed-by-key", replays.settings, planned))
    seen = replays.kafka.read("placed", committed=True, expected=160)
    by_java = {text.key: text.partition for text in seen if text.value == b"java"}
    assert {text.key: text.partition for text in seen if text.value != b"java"} == by_java
    assert plan.records == ()


def test_a_patient_user(replays: Replays) -> None:
    plan = replays.plan("patient")
    kafka = replays.settings.kafka.model_copy(update={"timeout_seconds": 300})
    replays.settings = replays.settings.model_copy(update={"kafka": kafka})
    assert replays.run(plan).replayed == 40


def test_a_plan_runs_once(replays: Replays) -> None:
    plan = replays.plan("once", 35)
    told: list[Progress] = []
    got: list[Replayed] = []
    assert replays.run(plan, progress=told.append, confirmed=got.extend).replayed == 35
    assert [item.replayed for item in told] == [0, 10, 20, 30, 35]
    assert [item.record.position for item in got] == list(range(35))
    assert replays.run(plan).status is State.FINISHED
    assert replays.is_replayed_once(plan)


def test_a_lost_journal(replays: Replays) -> None:
    plan = replays.plan("forgotten")
    first = replays.run_partly(plan)
    shutil.rmtree(replays.directory)
    again: list[Replayed] = []
    assert replays.run(plan, confirmed=again.extend).replayed == 40
    assert again[: len(first)] == first
    assert replays.is_replayed_once(plan)
    shutil.rmtree(replays.directory)
    assert replays.run(plan).replayed == 40
    assert replays.is_replayed_once(plan)


LIKE_ANOTHER = {
    "before the offsets are noted",  # since "after initTransactions" the run only read
    "after the first batch is claimed",  # a later batch is claimed, and no batch is committed, at other points
    "in a transaction without records",  # brokers hear of it with its first record: "after a batch is claimed"
    "after the journal knows of a batch",  # as `run_partly` leaves it
}
"""Points at which journal and target hold what they hold at another point, or in another test."""


@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=[pytest.mark.thorough] * (point in LIKE_ANOTHER)) for point in POINTS]
)
def test_a_kill_at_a_named_point(point: str, replays: Replays) -> None:
    plan = replays.plan(f"killed-{list(POINTS).index(point)}", 45)
    assert killed(plan, replays.place, replays.settings, point)
    assert replays.state(plan) is State.READY
    before = replays.replayed(plan)
    got: list[Replayed] = []
    assert replays.run(plan, confirmed=got.extend).replayed == 45
    assert [item.record.position for item in got] == list(range(45))
    assert replays.is_replayed_once(plan)
    assert before % 10 == 0 or before == 45
    aborted = 10 if point == "in a transaction with records" else 0
    assert len(standing(replays.settings, plan.plan_id, committed=False)) == 45 + aborted


def test_kills_at_random_moments(replays: Replays) -> None:
    plan = replays.plan("killed-at-random", 1500)
    moments = random.Random(19)
    deaths = [
        killed(plan, replays.place, replays.settings, seconds=moments.uniform(0.1, 0.5), batch=5) for _ in range(10)
    ]
    assert any(deaths)
    assert replays.run(plan, batch=500).replayed == 1500
    assert replays.is_replayed_once(plan)


def test_two_runners_at_once(replays: Replays) -> None:
    plan = replays.plan("two-runners")
    with alone(replays.place, plan.plan_id), pytest.raises(WriterBusy, match="Another process runs plan") as busy:
        replays.run(plan)
    assert busy.value.exit_code == 4
    assert replays.replayed(plan) == 0


@pytest.mark.parametrize("finishes", [True, False])
def test_a_runner_that_another_one_overtook(finishes: bool, replays: Replays, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka fences the runner that began first: it ends without another record."""
    plan = replays.plan(f"overtaken-{finishes}".lower())
    monkeypatch.setattr("pipelines.replay.runners.alone", lambda *_: contextlib.nullcontext())
    overtaken: list[object] = []

    def overtake(_: object) -> None:
        if not overtaken:
            overtaken.append(plan)
            if finishes:
                assert replays.run(plan).replayed == 40
            else:
                replays.run_partly(plan)

    with pytest.raises(WriterBusy, match="Another process took over plan overtaken") as fenced:
        replays.run(plan, confirmed=overtake)
    assert fenced.value.exit_code == 4
    assert replays.replayed(plan) == (40 if finishes else 20)
    assert replays.run(plan).replayed == 40
    assert replays.is_replayed_once(plan)


def test_two_runners_without_a_lock(replays: Replays) -> None:
    plan = replays.plan("two-fenced", 300)
    made = context()
    ready, told = made.Barrier(3), made.Queue()
    processes = [
        made.Process(target=run_without_lock, args=(plan, replays.place, replays.settings, 5, None, ready, told))
        for _ in range(3)
    ]
    for process in processes:
        process.start()
    ends = sorted(told.get(timeout=120) for _ in processes)
    for process in processes:
        process.join()
    assert all(end in (("FINISHED", 0), ("Fenced", 4)) for end in ends), ends
    assert ("FINISHED", 0) in ends
    assert replays.is_replayed_once(plan)


def test_records_deleted_from_the_target(replays: Replays) -> None:
    plan = replays.plan("deleted", partitions=1)
    replays.run_partly(plan)
    replays.kafka.delete_records("deleted", 0, 5)
    with pytest.raises(UsageError, match="from offset 0 on are deleted up to 5, so nobody can tell"):
        replays.run(plan)
    assert replays.state(plan) is State.FAILED
    assert replays.replayed(plan) == 15


def test_records_deleted_before_a_first_run(replays: Replays) -> None:
    plan = replays.plan("deleted-before", partitions=1)
    replays.kafka.produce("deleted-before", [Message(b"x") for _ in range(5)])
    replays.kafka.delete_records("deleted-before", 0, 5)
    shutil.copy(replays.directory / "journal.db", replays.directory / "kept.db")
    (replays.directory / "journal.db").unlink()
    with pytest.raises(UsageError, match="nobody can tell"):  # a run may have been forgotten
        replays.run(plan)
    shutil.copy(replays.directory / "kept.db", replays.directory / "journal.db")
    assert replays.run(plan).replayed == 40
    assert replays.is_replayed_once(plan)


def test_a_target_created_again(replays: Replays) -> None:
    plan = replays.plan("recreated")
    replays.kafka.delete_topics("recreated")
    with pytest.raises(UsageError, match=r"Topic recreated is gone: make a new plan|was deleted and created again"):
        replays.run(plan)
    create_again(replays.kafka, "recreated")
    with pytest.raises(UsageError, match="Topic recreated was deleted and created again since the plan"):
        replays.run(plan)
    assert replays.replayed(plan) == 0


def create_again(kafka: KafkaAdmin, topic: str) -> None:
    """Create a topic whose deletion may not have ended yet."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return kafka.create_topic(topic, 3)
        except EnvironmentLacking:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_a_target_deleted_while_the_plan_runs(replays: Replays) -> None:
    plan = replays.plan("deleted-meanwhile", 400)
    told: list[Progress] = []

    def delete_once(progress: Progress) -> None:
        told.append(progress)
        if len(told) == 2:
            replays.kafka.delete_topics("deleted-meanwhile")
            create_again(replays.kafka, "deleted-meanwhile")

    with pytest.raises(AfterlogError, match="topic deleted-meanwhile was deleted, and maybe created again"):
        replays.run(plan, progress=delete_once, rate=8, batch=1)
    assert told[-1].replayed < 400


def test_a_compacted_target(replays: Replays) -> None:
    plan = replays.plan("compacted", cleanup_policy="compact")
    assert replays.run(plan).replayed == 40
    other = replays.plan("compacted-partly", cleanup_policy="compact,delete")
    replays.run_partly(other)
    with pytest.raises(UsageError, match="Topic compacted-partly is compacted, so nobody can tell"):
        replays.run(other)
    assert replays.replayed(other) == 20


def test_a_compacted_target_takes_no_record_without_a_key(replays: Replays) -> None:
    replays.kafka.create_topic("keyless", 1, {"cleanup.policy": "compact"})
    plan = plan_of("keyless", replays.settings, [record(0, "keyless", letters="dlq.keyless")])
    with pytest.raises(UsageError, match=r"does not take dead letter dlq\.keyless:0:0 .*without a key"):
        replays.run(plan)


def test_a_transaction_of_another_producer(replays: Replays) -> None:
    plan = replays.plan("hidden", partitions=1)
    quick = replays.settings.model_copy(
        update={"kafka": replays.settings.kafka.model_copy(update={"timeout_seconds": 3.0})}
    )
    with replays.kafka.transaction("somebody") as theirs:
        theirs.send("hidden", [Message(b"theirs")])
        with pytest.raises(EnvironmentLacking, match=r"transaction is open on topic hidden.*nothing was replayed"):
            run(plan, replays.place, quick)
        assert len(standing(replays.settings, "hidden", committed=False)) == 1
    assert replays.run(plan).replayed == 40
    assert len(standing(replays.settings, "hidden")) == 41


def in_a_thread(replays: Replays, plan: Plan, **how: object) -> tuple[threading.Thread, list[Ended], threading.Event]:
    """Run a plan slowly in a thread; return it, how it ends, and what tells that a batch is replayed."""
    ends: list[Ended] = []
    replayed = threading.Event()

    def progress(told: Progress) -> None:
        if told.replayed:
            replayed.set()

    thread = threading.Thread(target=lambda: ends.append(replays.run(plan, progress=progress, rate=5, **how)))
    thread.start()
    assert replayed.wait(60)
    return thread, ends, replayed


def test_pause_and_resume(replays: Replays) -> None:
    plan = replays.plan("paused", 400)
    thread, ends, _ = in_a_thread(replays, plan)
    assert replays.state(plan) is State.RUNNING
    with replays.journal() as journal:
        journal.ask_pause(plan.plan_id)
        thread.join(60)
        assert (ends[0].status, ends[0].exit_code) == (State.PAUSED, 0)
        assert 0 < ends[0].replayed < 400
        assert replays.run(plan).status is State.PAUSED
        assert replays.replayed(plan) == ends[0].replayed
        journal.resume(plan.plan_id)
    assert replays.run(plan).replayed == 400
    assert replays.is_replayed_once(plan)


def test_cancel(replays: Replays) -> None:
    plan = replays.plan("cancelled", 400)
    thread, ends, _ = in_a_thread(replays, plan)
    told = cancel(plan, replays.place, replays.settings)
    thread.join(60)
    assert told is None or (told.status, told.exit_code) == (State.CANCELLED, 0)
    assert ends[0].status is State.CANCELLED
    assert 0 < replays.replayed(plan) == ends[0].replayed < 400
    assert replays.run(plan).status is State.CANCELLED
    other = plan_of("after-cancelled", replays.settings, plan.records)
    assert replays.run(other).skipped == ends[0].replayed
    assert len(standing(replays.settings, "cancelled")) == 400


def test_cancel_after_a_kill(replays: Replays) -> None:
    """Only what a batch that was cut off did not commit can be replayed by another plan."""
    plan = replays.plan("cancelled-dead", 45)
    assert killed(plan, replays.place, replays.settings, "after a commit")
    with replays.journal() as journal:
        assert len(journal.claims([record.letter for record in plan.records])) == 30
        journal.ask_cancel(plan.plan_id)
    assert replays.state(plan) is State.READY
    ended = replays.run(plan)
    assert (ended.status, ended.replayed) == (State.CANCELLED, 30)
    assert replays.replayed(plan) == 30
    other = replays.plan("cancelled-dead-2", 45)
    assert killed(other, replays.place, replays.settings, "in a transaction with records")
    ended_other = cancel(other, replays.place, replays.settings)
    assert ended_other is not None
    assert ended_other.replayed == replays.replayed(other) == 20
    with replays.journal() as journal:
        assert len(journal.claims([record.letter for record in other.records])) == 20


@pytest.mark.parametrize("point", ["after a commit", "after the journal knows of a batch"])
def test_what_a_cancelled_plan_replayed_is_written_down(point: str, settings: Settings, kafka: KafkaAdmin) -> None:
    """A run was killed before it wrote to the table what stands on the target."""
    target = point.replace(" ", "-")
    kafka.create_topic(target)
    warehouse = letters_in(settings, 45)
    draft = actions.drawn(warehouse, Choice(where="true"), Options(to=target))
    store.keep(warehouse, draft)
    assert killed(draft.plan, journal_store(warehouse.settings), settings, point)
    assert actions.ask_cancel(warehouse, draft.plan.plan_id).exit_code == 0
    stands = len(standing(settings, target))
    assert stands >= 20
    assert len(store.replayed(warehouse, draft.plan.plan_id)) == stands
    again = actions.drawn(warehouse, Choice(where="true"), Options(to=target), dry_run=True)
    assert again.reasons == {"replayed_before": stands}


def test_cancel_after_a_kill_when_the_target_is_gone(replays: Replays) -> None:
    """Nothing of the plan stands anywhere any more, so its records are free for other plans."""
    plan = replays.plan("cancelled-gone", 45)
    assert killed(plan, replays.place, replays.settings, "in a transaction with records")
    replays.kafka.delete_topics("cancelled-gone")
    ended = cancel(plan, replays.place, replays.settings)
    assert ended is not None
    assert (ended.status, ended.exit_code) == (State.CANCELLED, 0)
    with replays.journal() as journal:
        assert len(journal.claims([record.letter for record in plan.records])) == 20  # they stood there, and are known


def test_two_plans_with_the_same_records(replays: Replays) -> None:
    first = replays.plan("shared", 40)
    replays.run(first)
    records = [*numbered(30, "shared")[20:], *numbered(20, "shared", letters="dlq.shared-others")]
    ordered = [item.__class__(**{**item.__dict__, "position": at}) for at, item in enumerate(records)]
    second = plan_of("shared-2", replays.settings, ordered)
    ended = replays.run(second)
    assert (ended.replayed, ended.skipped) == (20, 10)
    again = plan_of("shared-3", replays.settings, ordered, again=True)
    assert (replays.run(again).replayed, again.again) == (30, True)
    with replays.journal() as journal:
        assert set(journal.claims([item.letter for item in ordered]).values()) <= {"shared", "shared-2", "shared-3"}
        status = journal.status("shared-2")
    assert status is not None
    assert (status.replayed, status.skipped) == (20, 10)


def test_a_record_that_is_too_large(replays: Replays) -> None:
    plan = replays.plan("small", 0, max_message_bytes="3000")
    planned = [record(at, "small", value=b"x" * 1000, letters="dlq.small") for at in range(50)]
    assert replays.run(plan_of("small-1", replays.settings, planned), batch=50).replayed == 50
    large = record(0, "small", value=random.Random(1).randbytes(9000), letters="dlq.small-2")
    with pytest.raises(UsageError, match=r"does not take dead letter dlq\.small-2:0:0, which has 9,000 bytes"):
        replays.run(plan_of("small-2", replays.settings, [large]))
    with replays.journal() as journal:
        assert journal.claims([large.letter]) == {}
    assert replays.replayed(plan_of("small", replays.settings, [large])) == 50
    assert plan.records == ()


def test_the_rate_is_kept(replays: Replays) -> None:
    plan = replays.plan("slow", 60)
    moments: list[float] = []
    replays.run(plan, rate=30, confirmed=lambda replayed: moments.extend(time.monotonic() for _ in replayed))
    assert (moments[-1] - moments[0]) / 57 >= 0.9 / 30  # a slow machine can only make it slower
    assert all(later - earlier < 30 for earlier, later in pairwise(moments))
    assert replays.is_replayed_once(plan)


def test_a_stop_after_the_batch(replays: Replays) -> None:
    plan = replays.plan("stopped", 400)

    def signalled(progress: Progress) -> None:
        if progress.replayed == 20:
            os.kill(os.getpid(), signal.SIGTERM)

    with Stop() as stop:
        ended = replays.run(plan, stop=stop, progress=signalled, rate=100)
    assert (ended.status, ended.exit_code) == (State.READY, 130)
    assert 20 <= ended.replayed < 400
    assert replays.state(plan) is State.READY
    assert replays.replayed(plan) == ended.replayed
    assert replays.run(plan).replayed == 400
    assert replays.is_replayed_once(plan)


def of_a_share_group(topic: str, text: Replayed) -> list[tuple[str, bytes | None]]:
    return [
        ("__dlq.errors.topic", topic.encode()),
        ("__dlq.errors.partition", str(text.partition).encode()),
        ("__dlq.errors.offset", str(text.offset).encode()),
    ]


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param(of_a_share_group, id="coordinates"),
        pytest.param(
            lambda topic, item: [
                ("afterlog.replay.plan", topic.encode()),
                ("afterlog.replay.record", item.record.letter.coordinate.encode()),
            ],
            id="kept headers",
        ),
    ],
)
def test_it_pauses_when_replayed_records_die_again(
    headers: Callable[[str, Replayed], list[tuple[str, bytes | None]]], replays: Replays, request: pytest.FixtureRequest
) -> None:
    name = "dying-" + re.sub(r"\W", "", request.node.callspec.id)
    replays.kafka.create_dead_letter_topic(f"dlq.{name}")
    replays.kafka.produce(f"dlq.{name}", [Message(b"before")])
    plan = replays.plan(name, 400)

    def dead_letter(replayed: object) -> None:
        letters = [Message(None, headers=headers(name, item)) for item in replayed]  # type: ignore[attr-defined]
        replays.kafka.produce(f"dlq.{name}", [*letters, *letters])

    ended = replays.run(plan, rate=20, confirmed=dead_letter)
    assert (ended.status, ended.exit_code) == (State.PAUSED, 1)
    assert 10 <= ended.replayed < 400
    assert re.search(r"\d+ of \d+ replayed records were dead-lettered again, more than 50%", ended.sentence)
    assert replays.run(plan).sentence == f"Plan {name} is paused: {ended.sentence}"
    with replays.journal() as journal:
        journal.resume(plan.plan_id)
    assert replays.run(plan, most_deaths=1.0).replayed == 400
    assert replays.is_replayed_once(plan)


def test_records_that_a_share_group_rejects_again(replays: Replays) -> None:
    plan = replays.plan("rejected", 12)
    replays.kafka.create_dead_letter_topic("dlq.rejected")
    got: list[Replayed] = []
    replays.run(plan, confirmed=got.extend)
    with Deaths(replays.settings, admin(replays.settings), plan) as deaths:
        deaths.replayed(got)
        assert deaths.look() == 0
        replays.kafka.dead_letter("rejects", "dlq.rejected")

        def decide(item: Record) -> Action:
            return Action.REJECT if int(item.value or b"") % 2 else Action.ACCEPT

        replays.kafka.share("rejects", ["rejected"], decide, expected=12)
        deadline = time.monotonic() + 60
        while deaths.look() < 6 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert deaths.died == {record.letter.coordinate for record in plan.records if record.position % 2}


@pytest.mark.parametrize("lacking", ["Read", "Write", "transactional id", None])
def test_missing_rights(
    lacking: str | None, secured_broker: SecuredBroker, secured_kafka: KafkaAdmin, tmp_path: Path
) -> None:
    name = f"allowed-{lacking or 'all'}".replace(" ", "-").lower()
    secured_kafka.create_topic(name, 2)
    for right in ("Read", "Write"):
        if right != lacking:
            secured_kafka.allow("reader", right.upper(), "TOPIC", name)
    if lacking != "transactional id":
        secured_kafka.allow("reader", "WRITE", "TRANSACTIONAL_ID", f"afterlog-replay-{name}", prefixed=True)
    settings = as_reader(secured_broker, tmp_path)
    boss_settings = settings.model_copy(
        update={"kafka": Kafka(bootstrap_servers=secured_broker.bootstrap_servers, timeout_seconds=30)}
    )
    plan = plan_of(name, boss_settings, numbered(20, name))
    if lacking is None:
        assert run(plan, journal_store(settings), settings).replayed == 20
        assert len(standing(boss_settings, name)) == 20
        return
    sentence = {
        "Read": f"is not allowed to read topic {name}: grant it the operation Read there",
        "Write": f"is not allowed to write topic {name}: grant it the operation Write there",
        "transactional id": "grant it the operation Write on transactional ids that begin with afterlog-replay-",
    }[lacking]
    with pytest.raises(UsageError, match=re.escape(sentence)):
        run(plan, journal_store(settings), settings)
    assert standing(boss_settings, name, committed=False) == []


def test_a_plan_for_another_cluster(replays: Replays) -> None:
    plan = replays.plan("elsewhere", 3)
    other = Plan(**{**plan.__dict__, "kafka_cluster_id": "AAAAAAAAAAAAAAAAAAAAAA"})
    with pytest.raises(UsageError, match="but plan elsewhere is for AAAAAAAAAAAAAAAAAAAAAA"):
        replays.run(other)
