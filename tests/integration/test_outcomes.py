"""Cleanup policies and control markers decide the outcomes of messages, whenever they arrive."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pipelines.commands import query, trace
from pipelines.run import idleness, runner
from pipelines.settings import ROOT, Segments, Settings
from pipelines.silver import topic_policies
from pipelines.stores import lock
from pipelines.warehouse.quality import StageRun
from pipelines.warehouse.tables import Warehouse
from tests.testing import segments
from tests.testing.builders import kip_1191, kip_1317, land, line, needed_by, rows, warehouse_of
from tests.testing.clients import ERRORS, NO_NUMBERS
from tests.testing.deliveries import acknowledgement, millis

MARKER = {"key": b"\0\0\0\1", "value": b"\0\0\0\0\0\0"}
IN_TRANSACTION = 0x10
LEDGER, POLICIES, LETTERS = "gold.message_ledger", "silver.topic_policies", "silver.dead_letters"
SUMMARY, MARKERS = "gold.dlq_summary", "silver.dlq_control_markers"


COMPARED = (LEDGER, LETTERS, MARKERS, SUMMARY, "silver.dlq_roots", "silver.dlq_gaps", "gold.reconciliation")


def run(spark: SparkSession, settings: Settings, *feeds: str, tables: Sequence[str] = COMPARED) -> dict[str, StageRun]:
    """Make tables, of the feeds at once or of some feeds one after the other; no stage may break."""
    with lock.writer(settings, "test"):
        chosen = [needed_by(*tables, within=feed) for feed in feeds or (None,)]
        done = [stage_run for stages_ in chosen for stage_run in runner.run(Warehouse(settings, spark), stages_)]
    assert {stage_run.status for stage_run in done} <= {"passed", "idle"}, done
    return {stage_run.table: stage_run for stage_run in done}


def with_policies(settings: Settings, *given: tuple[str, str], servers: str = "") -> Settings:
    said = [{"topic": topic, "policy": policy} for topic, policy in given]
    known = settings.model_copy(update={"segments": Segments.model_validate({"cleanup_policy": said})})
    return known.model_copy(update={"kafka": known.kafka.model_copy(update={"bootstrap_servers": servers})})


def land_segment(settings: Settings, log: str, base_offset: int, *batches: bytes) -> None:
    landed(settings, log, base_offset, batches)


def landed(settings: Settings, log: str, base_offset: int, batches: Sequence[bytes]) -> None:
    directory = settings.landing_of("segments") / log
    directory.mkdir(parents=True, exist_ok=True)
    scratch = directory / f".{base_offset:020}.log"
    scratch.write_bytes(b"".join(batches))
    scratch.rename(directory / f"{base_offset:020}.log")


def outcomes(spark: SparkSession, settings: Settings) -> dict[tuple[str, int], str]:
    return {(row["topic"], row["offset"]): row["outcome"] for row in rows(spark, settings, LEDGER)}


def absent(spark: SparkSession, settings: Settings, topic: str) -> set[str]:
    """The outcomes of messages that the topic's log lacks, without messages that a group dead-lettered."""
    found = (row for row in rows(spark, settings, LEDGER) if row["topic"] == topic and row["in_log"] is False)
    return {row["outcome"] for row in found if not row["dead_letters"]}


def letter(offset: int, source: int, topic: str = "orders", **more: Any) -> str:
    headers = more.pop("headers", None) or kip_1191(topic, 0, source, "g")
    return line(offset, timestamp=millis(offset), headers=headers, **more)


# --- acknowledgements that never land ---------------------------------------------------------------------------------


@pytest.mark.thorough
def test_nothing_lacks_an_acknowledgement_of_a_topic_of_which_none_ever_landed(
    spark: SparkSession, settings: Settings
) -> None:
    def counted() -> dict[str, int | None]:
        found = rows(spark, settings, "gold.reconciliation")
        return {row["topic"]: row["unacknowledged_count"] for row in found if row["consumer_group"]}

    def asked(question: str) -> list[dict[str, Any]]:
        text = (ROOT / "sql" / "questions" / f"{question}.sql").read_text(encoding="utf-8")
        return [row.asDict() for row in query.rows_of(Warehouse(settings, spark), text, {}).collect()]

    later = line(3, timestamp=millis(7200), headers=kip_1191("orders", 0, 9, "g"))
    land(settings, {"a.jsonl": [letter(0, 3), letter(1, 4), letter(2, 5, "payments"), later]})
    run(spark, settings)
    assert counted() == {"orders": None, "payments": None}
    assert asked("hours_that_do_not_add_up") == []
    told = asked("messages_by_outcome")
    assert {(row["without_acknowledgement_count"], row["in_landed_log_count"]) for row in told} == {(None, None)}

    # Another time and partition of the topic is enough: from now on missing acknowledgements of the topic count.
    land(settings, {"b.jsonl": [acknowledgement("orders", 1, 77, seconds=90_000)]}, "acknowledgements")
    run(spark, settings)
    told = asked("hours_that_do_not_add_up")
    assert sorted((row["topic"], row["unacknowledged_count"]) for row in told) == [("orders", 1), ("orders", 2)]
    assert counted()["payments"] is None
    told = asked("messages_by_outcome")
    assert [(row["topic"], row["outcome"], row["without_acknowledgement_count"]) for row in told] == [
        ("orders", "DEAD_LETTERED", 3),
        ("orders", "ACKNOWLEDGED", 0),
        ("payments", "DEAD_LETTERED", None),
    ]
    assert idleness.idle(Warehouse(settings), needed_by(*COMPARED))

    land(
        settings, {"c.jsonl": [acknowledgement("payments", 0, 5), acknowledgement("orders", 0, 3)]}, "acknowledgements"
    )
    assert run(spark, settings)["silver.acknowledged_topics"].accepted == 1
    told = asked("hours_that_do_not_add_up")
    assert sorted((row["topic"], row["unacknowledged_count"]) for row in told) == [("orders", 1), ("orders", 1)]
    assert counted()["payments"] == 0


# --- policies --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def holed(spark: SparkSession, empty_warehouse: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Four topics whose logs lack offsets 3 and 4; `orders` has a dead letter of 3, `thinned` a thinned batch."""
    settings = warehouse_of(empty_warehouse, tmp_path_factory.mktemp("holed"))
    told = []
    for topic in ("orders", "payments", "state", "thinned"):
        first = segments.batch(0, 3, record_count=2) if topic == "thinned" else segments.batch(0, 3)
        land_segment(settings, f"{topic}-0", 0, first, segments.batch(5, 2))
        told += [acknowledgement(topic, 0, offset) for offset in range(8)]
    land(settings, {"a.jsonl": told}, "acknowledgements")
    land(settings, {"a.jsonl": [letter(0, 3)]})
    run(spark, settings)
    return settings


def test_what_nothing_tells_to_be_uncompacted_is_absent(spark: SparkSession, holed: Settings) -> None:
    settings = with_policies(holed)
    run(spark, settings)

    found = outcomes(spark, settings)
    assert {place: what for place, what in found.items() if what not in ("ACKNOWLEDGED",)} == {
        ("orders", 3): "DEAD_LETTERED",
        ("orders", 4): "ABSENT",
        **{(topic, offset): "ABSENT" for topic in ("payments", "state") for offset in (3, 4)},
    }
    assert sum(row["absent_count"] for row in rows(spark, settings, "gold.reconciliation")) == 5
    assert sum(row["lost_count"] for row in rows(spark, settings, "gold.reconciliation")) == 0
    absent_, there = (json.loads(trace.answer(Warehouse(settings), f"payments:0:{n}", "json").result) for n in (3, 2))
    assert (absent_["outcome"], absent_["remark"] is not None) == ("ABSENT", True)
    assert (there["outcome"], there["remark"]) == ("ACKNOWLEDGED", None)


def test_a_setting_decides_what_is_in_the_ledger_already(spark: SparkSession, holed: Settings) -> None:
    run(spark, with_policies(holed))
    settings = with_policies(holed, ("state*", "compact,delete"), ("pay*", "delete"), ("*", ""))

    done = run(spark, settings)

    found = outcomes(spark, settings)
    assert {place for place, what in found.items() if what == "LOST"} == {
        *(("payments", offset) for offset in (3, 4)),
        *(("orders", offset) for offset in (3, 4)),  # including 3, which was dead-lettered before the log lost it
    }
    assert "ABSENT" not in found.values()
    assert (found["state", 3], found["thinned", 3]) == ("ACKNOWLEDGED", "ACKNOWLEDGED")
    assert done["silver.acknowledgements"].status == "idle"
    assert done["silver.log_ranges"].status == "idle"
    policies = {row["topic"]: (row["cleanup_policy"], row["source"]) for row in rows(spark, settings, POLICIES)}
    assert policies["state"] == ("compact,delete", "setting")
    assert policies["orders"] == ("", "setting")
    told = json.loads(trace.answer(Warehouse(settings), "payments:0:3", "json").result)
    assert told["events"][-1]["cleanup_policy"] == "delete"
    assert idleness.idle(Warehouse(settings), needed_by(*COMPARED))
    assert not idleness.idle(Warehouse(with_policies(holed)), needed_by(*COMPARED))


def test_only_the_topics_whose_policy_changed_are_decided_again(spark: SparkSession, holed: Settings) -> None:
    run(spark, with_policies(holed, ("*", "delete")))

    done = run(spark, with_policies(holed, ("state", "compact"), ("*", "delete")))

    assert done[LEDGER].read == 2  # the messages of `state` that its log lacks
    assert done[POLICIES].read == 1
    assert absent(spark, holed, "state") == {"ACKNOWLEDGED"}
    assert {
        stage_run.status
        for stage_run in run(spark, with_policies(holed, ("state", "compact"), ("*", "delete"))).values()
    } == {"idle"}


def test_a_cluster_that_is_away_is_no_error_and_what_it_said_stays(
    spark: SparkSession, holed: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    away = with_policies(holed, ("state", "delete"), servers="127.0.0.1:9")
    away = away.model_copy(update={"kafka": away.kafka.model_copy(update={"timeout_seconds": 1.0})})
    run(spark, away)
    said = "cluster_policy = 'delete', cleanup_policy = 'delete', source = 'cluster', is_compacted = false"
    spark.sql(f"UPDATE delta.`{Warehouse(away).location(POLICIES)}` SET {said} WHERE topic = 'payments'")

    run(spark, away)

    assert [absent(spark, away, topic) for topic in ("orders", "payments", "state")] == [{"ABSENT"}, {"LOST"}, {"LOST"}]
    assert caplog.text.count("what it said before stays") == 1  # not every stage waits for an unreachable cluster


def test_nothing_is_lost_from_a_log_that_shows_compaction(spark: SparkSession, settings: Settings) -> None:
    """The cleaner thinned one segment and removed whole batches of another; the setting for the topic is wrong."""
    told = with_policies(settings, ("*", "delete"))
    tables = (LEDGER, "gold.reconciliation")
    for topic in ("orders", "payments"):
        land_segment(told, f"{topic}-0", 10, segments.batch(10, 2), segments.batch(14, 1))
    land(told, {"a.jsonl": [acknowledgement(topic, 0, 12) for topic in ("orders", "payments")]}, "acknowledgements")
    run(spark, told, tables=tables)
    assert outcomes(spark, told) == {("orders", 12): "LOST", ("payments", 12): "LOST"}

    land_segment(told, "orders-1", 0, segments.batch(0, 3, record_count=2))
    run(spark, told, tables=tables)
    assert outcomes(spark, told) == {("orders", 12): "ACKNOWLEDGED", ("payments", 12): "LOST"}
    assert "as the log says" in trace.answer(Warehouse(told), "orders:0:12").result
    assert sum(row["lost_count"] for row in rows(spark, told, "gold.reconciliation")) == 1
    assert idleness.idle(Warehouse(told), needed_by(*tables))

    # The topic was created again, and nothing shows it any more.
    land_segment(told, "orders-1", 0, segments.batch(0, 4))
    run(spark, told, tables=tables)
    assert outcomes(spark, told) == {("orders", 12): "LOST", ("payments", 12): "LOST"}


# --- markers ---------------------------------------------------------------------------------------------------------


def of_letters(spark: SparkSession, settings: Settings) -> dict[int, tuple[bool, bool, bool]]:
    return {
        row["dlq_offset"]: (row["is_control_marker"], row["control_marker_suspected"], row["is_counted"])
        for row in rows(spark, settings, LETTERS)
    }


PROVED, SUSPECTED, DATA = (True, False, False), (False, True, True), (False, False, True)


@pytest.mark.parametrize(
    "feeds",
    [pytest.param((), id="at once", marks=pytest.mark.thorough), pytest.param(("dlq", "delivery"), id="by feeds")],
)
@pytest.mark.thorough
def test_the_landed_log_proves_a_marker_whenever_it_lands(
    feeds: Sequence[str], spark: SparkSession, settings: Settings
) -> None:
    silent = {"key": None, "value": None}
    draft = kip_1317(original_offset="2")
    letters = [
        letter(0, 2, **MARKER),  # a marker with a copied payload
        letter(1, 2, **silent),  # a marker without a copied payload
        letter(2, 1, **MARKER),  # data with the bytes of a marker
        letter(3, 0),
        letter(4, 7, **MARKER),  # after the end of the landed log
        letter(5, 2, headers=draft, **MARKER),
    ]
    land(settings, {"a.jsonl": letters})
    run(spark, settings, *feeds)
    assert of_letters(spark, settings) == {0: SUSPECTED, 1: DATA, 2: SUSPECTED, 3: DATA, 4: SUSPECTED, 5: SUSPECTED}
    assert sum(row["record_count"] for row in rows(spark, settings, SUMMARY)) == 6
    totals = rows(spark, settings, "gold.reconciliation")
    assert sum(row["suspected_marker_count"] for row in totals) == 4
    assert outcomes(spark, settings)["orders", 2] == "DEAD_LETTERED"
    assert "perhaps a transaction's marker" in trace.answer(Warehouse(settings), "orders:0:7").result

    of_transaction = segments.batch(0, 2, flags=IN_TRANSACTION, producer=(7, 0, 0))
    land_segment(settings, "orders-0", 0, of_transaction, segments.marker(2, commits=True), segments.batch(3, 2))
    run(spark, settings, *feeds)

    assert of_letters(spark, settings) == {0: PROVED, 1: PROVED, 2: DATA, 3: DATA, 4: SUSPECTED, 5: PROVED}
    assert sum(row["record_count"] for row in rows(spark, settings, SUMMARY)) == 3
    totals = rows(spark, settings, "gold.reconciliation")
    assert sum(row["control_marker_count"] for row in totals) == 3
    assert sum(row["suspected_marker_count"] for row in totals) == 1
    assert ("orders", 2) not in outcomes(spark, settings)
    assert outcomes(spark, settings)["orders", 7] == "DEAD_LETTERED"
    assert idleness.idle(Warehouse(settings), needed_by(*COMPARED))

    land(settings, {"b.jsonl": [letter(6, 2, **MARKER)]})  # a dead letter that lands after its proof
    run(spark, settings, *feeds)
    assert of_letters(spark, settings)[6] == PROVED
    assert sum(row["record_count"] for row in rows(spark, settings, SUMMARY)) == 3
    assert idleness.idle(Warehouse(settings), needed_by(*COMPARED))


@pytest.mark.thorough
def test_headers_that_share_groups_must_write_are_asked_of_share_groups_only(
    spark: SparkSession, settings: Settings
) -> None:
    connect = [(f"__connect.errors.{name}", value) for name, value in CONNECT.items()]
    land(settings, {"a.jsonl": [letter(0, 0), letter(1, 1, headers=connect), letter(2, 2, headers=kip_1317())]})
    land_segment(
        settings,
        "dlq.orders-0",
        0,
        segments.batch(0, 3, flags=IN_TRANSACTION, producer=(30, 0, 0)),
        segments.marker(3, commits=True, producer=(30, 0)),
    )

    run(spark, settings)

    found = {row["dlq_offset"]: row for row in rows(spark, settings, LETTERS)}
    assert [found[offset]["header_profile"] for offset in range(3)] == ["kip-1191", "kafka-connect", "kip-1317"]
    assert {row["write_state"] for row in found.values()} == {"COMMITTED"}
    assert [found[offset]["lacks_mandatory_headers"] for offset in range(3)] == [True, False, False]
    totals = rows(spark, settings, "gold.reconciliation")
    assert sum(row["committed_without_headers_count"] for row in totals) == 1


CONNECT = {
    "topic": b"orders",
    "partition": b"0",
    "offset": b"1",
    "connector.name": b"sink",
    "task.id": b"0",
    "stage": b"VALUE_CONVERTER",
    "class.name": b"C",
    "exception.class.name": b"E",
    "exception.message": b"m",
    "exception.stacktrace": b"s",
}


# --- believed as far as it goes: a model ---------------------------------------------------------------------------


class Told:
    """A topic with one segment whose batches were kept, thinned, emptied or removed, and what producers were told."""

    def __init__(self, topic: str, policy: str | None, chance: random.Random) -> None:
        self.topic, self.policy, self.chance = topic, policy, chance
        self.batches: list[bytes] = []
        self.lines: list[str] = []
        self.expected: dict[str, tuple[str, bool | None]] = {}
        fates: list[tuple[int, int, str, str | None]] = []
        offset = 0
        for number in range(chance.randint(1, 8)):
            count, ends = chance.randint(1, 5), chance.choice((None, None, "commit", "abort"))
            fate = chance.choice(("kept", "kept", "thinned", "emptied", "removed"))
            fate = "kept" if fate == "thinned" and count == 1 else fate
            fates.append((offset, count, fate, ends))
            left = {"kept": count, "thinned": chance.randint(1, max(1, count - 1)), "emptied": 0}.get(fate)
            if left is not None:
                in_transaction = {"flags": IN_TRANSACTION, "producer": (number, 0, 0)} if ends else {}
                records = [segments.record(delta) for delta in sorted(chance.sample(range(count), left))]
                self.batches.append(segments.batch(offset, count, records=records, record_count=left, **in_transaction))
            offset += count
            if ends:
                self.batches.append(segments.marker(offset, commits=ends == "commit", producer=(number, 0)))
                offset += 1
        self.batches.append(segments.batch(offset, 1))
        fates += [(offset, 1, "kept", None), (offset + 1, 2, "not landed", None)]
        cleaned = any(fate in ("thinned", "emptied") for _, _, fate, _ in fates)
        for base, count, fate, ends in fates:
            for at in range(base, base + count):
                self._acknowledge(at, fate, ends, cleaned)
        for _ in range(6):
            self._leave_open()

    def _acknowledge(self, at: int, fate: str, ends: str | None, cleaned: bool) -> None:
        in_log = {"kept": True, "emptied": False, "removed": False}.get(fate)
        outcome = "ACKNOWLEDGED"
        if fate == "removed" and not cleaned:
            outcome = {"delete": "LOST", "compact": "ACKNOWLEDGED", None: "ABSENT"}[self.policy]
        elif ends == "abort" and fate != "removed":
            outcome = "ABORTED"
        place = {"partition": self.chance.choice((0, "0")), "offset": self.chance.choice((at, f"{at}"))}
        self._tell(outcome, in_log, error=self.chance.choice((None, "")), **place)

    def _leave_open(self) -> None:
        """Tell a success without an offset, or an error, of a record that the log may have."""
        none = self.chance.choice(NO_NUMBERS)
        if self.chance.random() < 0.4:
            self._tell("UNKNOWN", None, offset=none, errorCode=self.chance.choice((None, 0, "0")))
            return
        outcome, error = self.chance.choice(ERRORS)
        partition = self.chance.choice((0, "0", None, -1, "-1"))
        refused = "FAILED" if partition in (-1, "-1") else outcome
        self._tell(refused, None, partition=partition, offset=none, error=error)

    def _tell(self, outcome: str, in_log: bool | None, **more: Any) -> None:
        client = f"{self.topic}/{len(self.lines)}"  # all have one trace: it does not make one message of them
        self.lines.append(acknowledgement(self.topic, client_id=client, **more))
        self.expected[client] = (outcome, in_log)


@pytest.mark.parametrize("seed", [46, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(4))])
def test_outcomes_claim_no_more_than_producers_and_logs_tell(
    seed: int, spark: SparkSession, settings: Settings
) -> None:
    chance = random.Random(seed)
    given = {f"t{number}": chance.choice(("delete", "compact", None)) for number in range(60)}
    topics = [Told(topic, policy, chance) for topic, policy in given.items()]
    for topic_of_these in topics:
        land_segment(settings, f"{topic_of_these.topic}-0", 0, *topic_of_these.batches)
    land(settings, {"a.jsonl": [line for topic in topics for line in topic.lines]}, "acknowledgements")

    run(
        spark,
        with_policies(settings, *((topic, policy) for topic, policy in given.items() if policy)),
        tables=(LEDGER, "gold.reconciliation"),
    )

    found = {row["client_id"]: (row["outcome"], row["in_log"]) for row in rows(spark, settings, LEDGER)}
    expected = {client: told for topic in topics for client, told in topic.expected.items()}
    assert found == expected
    outcomes_ = {outcome for outcome, _ in expected.values()}
    assert outcomes_ == {"LOST", "ABORTED", "ABSENT", "FAILED", "ACKNOWLEDGED", "UNKNOWN"}


# --- any order -------------------------------------------------------------------------------------------------------

TOPICS = ("orders", "state", "dlq.orders")


def history(chance: random.Random) -> list[Callable[[Settings], object]]:
    """Random landings: logs with holes, transactions and markers, acknowledgements, dead letters."""
    landings: list[Callable[[Settings], object]] = []
    for topic in TOPICS:
        for partition in range(2):
            base = 0
            for _ in range(chance.randint(0, 2)):
                offset, batches = base, []
                for _ in range(chance.randint(1, 6)):
                    kind, count = chance.random(), chance.randint(1, 3)
                    if kind < 0.25:
                        batches.append(segments.marker(offset, commits=chance.random() < 0.5, producer=(7, 0)))
                        count = 1
                    elif kind < 0.5:
                        flags, told = (IN_TRANSACTION, (7, 0, 0)) if chance.random() < 0.5 else (0, (-1, -1, -1))
                        batches.append(segments.batch(offset, count, flags=flags, producer=told))
                    elif kind < 0.65:
                        batches.append(segments.batch(offset, 3, record_count=2))
                        count = 3
                    elif kind < 0.8 or not batches:
                        batches.append(segments.batch(offset, count))
                    offset += count
                landings.append(partial(landed, log=f"{topic}-{partition}", base_offset=base, batches=batches))
                base = offset + chance.choice((0, 0, 3))
    places = [(topic, partition, offset) for topic in TOPICS[:2] for partition in range(2) for offset in range(24)]
    for number in range(3):
        told = [acknowledgement(*coordinate, seconds=60 * number) for coordinate in chance.sample(places, 40)]
        landings.append(partial(land, files={f"{number}.jsonl": told}, feed="acknowledgements"))
    letters = []
    for offset in range(24):
        topic, partition, source = chance.choice(places)
        more: dict[str, Any] = chance.choice(({}, MARKER, MARKER, {"key": None, "value": None}))
        headers = kip_1191(topic, partition, source, chance.choice("gh"))
        letters.append(line(offset, timestamp=millis(1800 * offset), headers=headers, **more))
    for number in range(3):
        landings.append(partial(land, files={f"{number}.jsonl": letters[number::3]}))
    return landings


def policies(chance: random.Random) -> list[tuple[str, str]]:
    return [(topic, chance.choice(("delete", "compact", ""))) for topic in TOPICS if chance.random() < 0.6]


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(918, id="918"),  # two runs; `state` shows only in the second that it was compacted
        *(pytest.param(seed, id=str(seed), marks=pytest.mark.thorough) for seed in range(1, 12)),
    ],
)
def test_whatever_comes_in_whatever_order_the_ledger_is_that_of_one_run(
    seed: int, spark: SparkSession, empty_warehouse: Path, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    landings = history(chance)
    last = policies(chance)
    settings = [warehouse_of(empty_warehouse, tmp_path / name) for name in ("once", "pieces")]
    for landing in landings:
        landing(settings[0])
    run(spark, with_policies(settings[0], *last))
    chance.shuffle(landings)
    runs = chance.randint(2, 4)
    for number in range(runs):
        for landing in landings[number::runs]:
            landing(settings[1])
        now = last if number == runs - 1 else policies(chance)
        run(spark, with_policies(settings[1], *now), *chance.choice(((), ("dlq", "delivery"), ("delivery", "dlq"))))
    if not idleness.idle(
        Warehouse(with_policies(settings[1], *last)), needed_by(*COMPARED)
    ):  # a feed that ran before the input of the other feed
        run(spark, with_policies(settings[1], *last))

    for table in COMPARED:
        assert rows(spark, settings[1], table) == rows(spark, settings[0], table), table
    found = {row["outcome"] for row in rows(spark, settings[0], LEDGER)}
    assert found >= {"ACKNOWLEDGED", "DEAD_LETTERED"}
    assert Warehouse(settings[0]).last_version(POLICIES)
    assert topic_policies.is_stale(Warehouse(with_policies(settings[0], *last))) is False
