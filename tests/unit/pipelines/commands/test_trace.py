"""The story of a message, over real Delta tables that are written without Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipelines.columns import slices
from pipelines.commands import trace
from pipelines.commands.coordinate import Coordinate
from pipelines.commands.message_events import (
    ACKNOWLEDGEMENTS,
    DEAD_LETTERS,
    HELD_ACKNOWLEDGEMENTS,
    LOG_RANGES,
    MOST_HOPS,
    POLICIES,
    PRODUCERS,
    RECORDS,
    TRANSACTIONS,
    WRITE_FAILURES,
)
from pipelines.errors import UsageError
from pipelines.settings import Settings, load
from pipelines.warehouse.tables import Warehouse
from tests.testing.deliveries import TRACE, TRACEPARENT, at, store


def message(topic: str = "orders", partition: int = 0, offset: int | None = 7, **more: Any) -> dict[str, Any]:
    """A row of the ledger."""
    return {
        "cluster": "default",
        "slice": slices.name(topic, partition or 0, offset or 0),
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "outcome": "ACKNOWLEDGED",
        "acknowledged": True,
        "acknowledgement_count": 1,
        "acknowledged_at": at(1),
        "trace_id": TRACE,
        "root_topic": topic,
        "root_partition": partition,
        "root_offset": offset,
        "hop_count": 0,
        **more,
    }


def acknowledgement(topic: str = "orders", partition: int = 0, offset: int = 7, **more: Any) -> dict[str, Any]:
    told = {"cluster": "default", "topic": topic, "partition": partition, "offset": offset, "_bronze_id": "a" * 64}
    return {**told, "outcome": "ACKNOWLEDGED", "client_id": "checkout-1", "acknowledged_at": at(1), **more}


def dead_letter(
    topic: str, partition: int, offset: int, dlq: str, dlq_offset: int, seconds: float, **more: Any
) -> dict[str, Any]:
    return {
        "cluster": "default",
        "dlq_topic": dlq,
        "dlq_partition": 0,
        "dlq_offset": dlq_offset,
        "original_topic": topic,
        "original_partition": partition,
        "original_offset": offset,
        "consumer_group": "orders-workers",
        "disposition": "CLIENT_REJECTED",
        "delivery_count": 1,
        "error_message": "Offset rejected by client.",
        "routed_at": at(seconds),
        "is_control_marker": False,
        "is_accepted": True,
        "is_held": False,
        "is_counted": True,
        "slice": slices.name(dlq, 0, dlq_offset),
        "source_slice": slices.name(topic, partition, offset),
        **more,
    }


@pytest.fixture
def warehouse(settings: Settings) -> Settings:
    """Every table, each with a row of another cluster at the same place."""
    elsewhere = {"cluster": "second"}
    store(settings, trace.LEDGER, message(**elsewhere))
    store(settings, ACKNOWLEDGEMENTS, acknowledgement(**elsewhere))
    store(settings, DEAD_LETTERS, dead_letter("orders", 0, 7, "dlq.orders", 0, 9, **elsewhere))
    store(settings, TRANSACTIONS, transaction(**elsewhere))
    store(settings, LOG_RANGES, log_range(**elsewhere))
    store(settings, WRITE_FAILURES, write_failure(**elsewhere))
    store(settings, POLICIES, policy("compact", **elsewhere))
    return settings


def transaction(**more: Any) -> dict[str, Any]:
    where = {"cluster": "default", "topic": "orders", "partition": 0, "producer_id": 3, "producer_epoch": 0}
    span = {"first_offset": 5, "last_offset": 8, "ranges": [{"first_offset": 5, "last_offset": 8}]}
    return {**where, **span, "state": "COMMITTED", "marker_offset": 9, "ended_at": at(2), **more}


def log_range(**more: Any) -> dict[str, Any]:
    where = {"cluster": "default", "segment": "orders-0/00000000000000000000.log", "topic": "orders", "partition": 0}
    span = {"first_offset": 0, "last_offset": 9, "slice": slices.name("orders", 0, 0)}
    return {**where, **span, "has_batch": True, "is_present": True, "is_compacted": False, **more}


def policy(said: str | None, **more: Any) -> dict[str, Any]:
    known = {} if said is None else {"cleanup_policy": said, "source": "cluster", "is_compacted": "compact" in said}
    return {"cluster": "default", "topic": "orders", **known, **more}


def write_failure(**more: Any) -> dict[str, Any]:
    where = {"cluster": "default", "original_topic": "orders", "original_partition": 0}
    span = {"first_offset": 6, "last_offset": 8, "consumer_group": "g", "dlq_topic": "dlq.g", "reason": "too large"}
    return {**where, **span, "failed_at": at(5), **more}


def told(settings: Settings, wanted: str) -> list[dict[str, Any]]:
    said = trace.answer(Warehouse(settings), wanted, "json")
    assert said.exit_code == 0
    return [json.loads(line) for line in said.result.splitlines()]


def whats(story: dict[str, Any]) -> list[str]:
    return [event["what"] for event in story["events"]]


def test_a_place_can_be_written_as_kafka_prints_it() -> None:
    assert Coordinate.of("orders-eu-0@52") == Coordinate.of("orders-eu:0:52") == ("orders-eu", 0, 52)
    assert Coordinate.of("orders@52") is None


def test_a_message_is_told_in_time_order(warehouse: Settings) -> None:
    producer = {"producer_id": 3, "producer_epoch": 0}
    store(warehouse, trace.LEDGER, message(outcome="DEAD_LETTERED", **producer))
    store(warehouse, DEAD_LETTERS, dead_letter("dlq.orders", 0, 5, "dlq.second", 1, 8))
    store(warehouse, DEAD_LETTERS, dead_letter("orders", 0, 7, "dlq.orders", 5, 4))
    store(warehouse, WRITE_FAILURES, write_failure())
    store(warehouse, TRANSACTIONS, transaction(), transaction(producer_id=4))
    store(warehouse, LOG_RANGES, log_range())
    store(warehouse, ACKNOWLEDGEMENTS, acknowledgement())

    said = trace.answer(Warehouse(warehouse), "orders:0:7")

    assert said.result.splitlines() == [
        "orders:0:7",
        "  DEAD_LETTERED: what consumed it could not process it.",
        f"  trace {TRACE}",
        "  2026-11-21T02:00:01.000Z  acknowledged           to checkout-1",
        "  2026-11-21T02:00:02.000Z  transaction committed  of producer 3, epoch 0, marker at offset 9",
        "  2026-11-21T02:00:04.000Z  dead-lettered          to dlq.orders:0:5 by orders-workers "
        "(CLIENT_REJECTED, delivery 1): Offset rejected by client.",
        "  2026-11-21T02:00:05.000Z  dead-lettering failed  by g to dlq.g, "
        "and archived without a dead letter: too large",
        "  2026-11-21T02:00:08.000Z  dead-lettered on       to dlq.second:0:1 from dlq.orders:0:5 by orders-workers "
        "(CLIENT_REJECTED, delivery 1): Offset rejected by client.",
        "  at an unknown time        in the log             segment orders-0/00000000000000000000.log",
    ]
    (story,) = told(warehouse, "orders:0:7")
    assert [event["at"] for event in story["events"]][:2] == ["2026-11-21T02:00:01.000Z", "2026-11-21T02:00:02.000Z"]
    assert (story["topic"], story["partition"], story["offset"]) == ("orders", 0, 7)
    assert story["events"][1]["marker_offset"] == 9


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param({LOG_RANGES: log_range(has_batch=False, is_present=False)}, ["absent from the log"], id="lost"),
        pytest.param({LOG_RANGES: log_range(is_present=None)}, ["perhaps in the log"], id="thinned"),
        pytest.param({LOG_RANGES: log_range(is_present=False)}, ["absent from the log"], id="emptied"),
        pytest.param({TRANSACTIONS: transaction(state="ABORTED")}, ["transaction aborted"], id="aborted"),
        pytest.param(
            {TRANSACTIONS: transaction(state="OPEN", marker_offset=None, ended_at=None, last_written_at=at(3))},
            ["transaction open"],
            id="open",
        ),
        pytest.param(
            {TRANSACTIONS: transaction(ranges=[{"first_offset": 5, "last_offset": 6}])},
            [],
            id="another producer's offset between those of a transaction",
        ),
        pytest.param(
            {DEAD_LETTERS: dead_letter("orders", 0, 7, "d", 1, 3, write_state="ABORTED", is_counted=False)},
            ["dead-lettering rolled back"],
            id="a dead letter that was rolled back",
        ),
        pytest.param(
            {DEAD_LETTERS: dead_letter("orders", 0, 7, "d", 1, 3, is_control_marker=True, is_counted=False)},
            ["marker dead-lettered"],
            id="a transaction's marker",
        ),
        pytest.param(
            {DEAD_LETTERS: dead_letter("orders", 0, 7, "d", 1, 3, is_accepted=False, is_counted=False)},
            [],
            id="a dead letter that its contract refused",
        ),
        pytest.param(
            {DEAD_LETTERS: dead_letter("orders", 0, 7, "d", 1, 3, is_accepted=False, is_held=True, is_counted=False)},
            ["held"],
            id="a dead letter that is held",
        ),
        pytest.param({WRITE_FAILURES: write_failure(last_offset=6)}, [], id="a failed write of others"),
        pytest.param(
            {ACKNOWLEDGEMENTS: acknowledgement(acknowledged_at=None, timestamp=at(1))},
            ["acknowledged"],
            id="an acknowledgement without its own time",
        ),
    ],
)
def test_what_is_told_of_a_message(warehouse: Settings, rows: dict[str, dict[str, Any]], expected: list[str]) -> None:
    store(warehouse, trace.LEDGER, message())
    for table, row in rows.items():
        store(warehouse, table, row)

    (story,) = told(warehouse, "orders:0:7")

    assert whats(story) == expected
    assert all(event["at"] for event in story["events"] if "log" not in event["what"])


@pytest.mark.parametrize(
    ("said", "outcome", "sentence"),
    [
        pytest.param(None, "ABSENT", "", id="unknown"),
        pytest.param("delete", "LOST", "; cleanup.policy of the topic is 'delete', as the cluster says", id="delete"),
        pytest.param("", "LOST", "; cleanup.policy of the topic is '', as the cluster says", id="neither"),
        pytest.param(
            "compact", "ACKNOWLEDGED", "; cleanup.policy of the topic is 'compact', as the cluster says", id="compact"
        ),
    ],
)
def test_it_is_told_what_decides_of_an_absent_message(
    said: str | None, outcome: str, sentence: str, warehouse: Settings
) -> None:
    store(warehouse, trace.LEDGER, message(outcome=outcome, in_log=False))
    store(warehouse, LOG_RANGES, log_range(has_batch=False, is_present=False))
    store(warehouse, POLICIES, policy(said))

    lines = trace.answer(Warehouse(warehouse), "orders:0:7").result.splitlines()
    (story,) = told(warehouse, "orders:0:7")

    assert lines[-1].endswith(f"segment orders-0/00000000000000000000.log{sentence}")
    assert (story["events"][-1]["cleanup_policy"], story["events"][-1]["is_compacted"]) == (said, False)
    in_doubt = [line for line in lines if "[[segments.cleanup_policy]]" in line and "DescribeConfigs" in line]
    assert len(in_doubt) == (outcome == "ABSENT")
    assert (story["remark"] is not None) == (outcome == "ABSENT")


def test_acks_0_is_said_only_where_the_producers_settings_say_so(warehouse: Settings) -> None:
    unanswered = {"offset": -1, "outcome": "UNKNOWN"}
    clients = ("silent", "of 0", "of 1", "of 0 before")
    for number, client in enumerate(clients):
        item = {"client_id": client, "trace_id": client, "_bronze_id": f"{number}" * 64}
        store(warehouse, ACKNOWLEDGEMENTS, acknowledgement(**unanswered, **item))
        of_ledger = {"offset": None, "acknowledgement_id": f"{number}" * 64, "acknowledged": False, "slice": "-:x:"}
        store(warehouse, trace.LEDGER, message(outcome="UNKNOWN", trace_id=client, **of_ledger))
    assert [whats(*told(warehouse, client)) for client in clients] == [["success without an offset"]] * 4

    stated = {"cluster": "default", "topic": "orders"}
    for client, acks, seconds in (
        ("of 0", "0", 1),
        ("of 1", "1", 1),
        ("of 0 before", "0", 1),
        ("of 0 before", "all", 2),
    ):
        store(warehouse, PRODUCERS, {**stated, "client_id": client, "acks": acks, "stated_at": at(seconds)})
    store(warehouse, PRODUCERS, {**stated, "topic": "other", "client_id": "silent", "acks": "0"})

    said = [whats(*told(warehouse, client)) for client in clients]
    assert said == [["success without an offset"], ["sent with acks=0"], *[["success without an offset"]] * 2]
    assert "UNKNOWN: nothing tells whether it was written." in trace.answer(Warehouse(warehouse), "of 0").result


def test_an_error_that_leaves_it_open_is_no_refusal(warehouse: Settings) -> None:
    late = acknowledgement(offset=-1, outcome="UNKNOWN", error="TimeoutException: expired", _bronze_id="b" * 64)
    store(warehouse, ACKNOWLEDGEMENTS, late)
    of_ledger = {"offset": None, "acknowledgement_id": "b" * 64, "acknowledged": False, "slice": "-:x:"}
    store(warehouse, trace.LEDGER, message(outcome="UNKNOWN", **of_ledger))

    assert whats(*told(warehouse, TRACE)) == ["error"]


def test_a_suspected_marker_is_told_as_a_dead_letter_in_doubt(warehouse: Settings) -> None:
    store(warehouse, trace.LEDGER, message(outcome="DEAD_LETTERED"))
    letter = dead_letter("orders", 0, 7, "d", 1, 3, control_marker_suspected=True)
    store(warehouse, DEAD_LETTERS, letter)

    said = trace.answer(Warehouse(warehouse), "orders:0:7").result
    (story,) = told(warehouse, "orders:0:7")

    assert whats(story) == ["dead-lettered"]
    assert story["events"][0]["control_marker_suspected"] is True
    assert said.endswith("[perhaps a transaction's marker: no segment of its log landed]")


def test_a_message_without_a_row_in_the_ledger_has_a_story_too(warehouse: Settings) -> None:
    store(warehouse, WRITE_FAILURES, write_failure())

    (story,) = told(warehouse, "orders:0:7")

    assert (story["outcome"], whats(story)) == (None, ["dead-lettering failed"])


def test_a_dead_letter_is_told_with_what_it_is_of(warehouse: Settings) -> None:
    root = {"root_topic": "orders", "root_partition": 0, "root_offset": 7, "hop_count": 1}
    store(warehouse, trace.LEDGER, message("dlq.orders", 0, 5, trace_id=None, outcome="DEAD_LETTERED", **root))
    store(warehouse, DEAD_LETTERS, dead_letter("orders", 0, 7, "dlq.orders", 5, 4))
    store(warehouse, DEAD_LETTERS, dead_letter("dlq.orders", 0, 5, "dlq.second", 1, 8))

    said = trace.answer(Warehouse(warehouse), "dlq.orders:0:5").result

    assert "  it is a dead letter itself; orders:0:7 is behind it\n" in said
    assert "written        as the dead letter of orders:0:7 by orders-workers\n" in said
    assert "dead-lettered  to dlq.second:0:1 by orders-workers" in said


@pytest.mark.parametrize(
    ("unnamed", "what"),
    [
        ({"original_offset": None}, "a record of orders"),
        ({"original_topic": None, "original_partition": None, "original_offset": None}, "a record"),
    ],
    ids=["topic alone", "nothing"],
)
def test_a_dead_letter_may_not_name_the_place_of_its_record(
    unnamed: dict[str, Any], what: str, warehouse: Settings
) -> None:
    letter = dead_letter("orders", 0, 7, "dlq.orders", 5, 4, source_slice=None) | unnamed
    store(warehouse, DEAD_LETTERS, letter)
    said = trace.answer(Warehouse(warehouse), "dlq.orders:0:5").result
    assert said.endswith(f"as the dead letter of {what} by orders-workers")


def test_a_loop_ends(warehouse: Settings) -> None:
    store(warehouse, trace.LEDGER, message("loop", 0, 0))
    store(warehouse, DEAD_LETTERS, *(dead_letter("loop", 0, n, "loop", n + 1, n) for n in range(30)))

    (story,) = told(warehouse, "loop:0:0")

    assert 2 <= len(story["events"]) <= MOST_HOPS + 1


@pytest.mark.parametrize("wanted", [TRACE, TRACEPARENT, TRACE.upper()], ids=["its id", "the header", "in capitals"])
def test_a_trace_tells_each_of_its_messages(warehouse: Settings, wanted: str) -> None:
    unwritten = {"outcome": "FAILED", "acknowledged": False, "acknowledged_at": at(3), "acknowledgement_id": "b" * 64}
    store(warehouse, trace.LEDGER, message(offset=None, partition=None, slice="-:x:", **unwritten))
    store(warehouse, trace.LEDGER, message(offset=8, acknowledged_at=at(2)), message(), message(offset=9, trace_id="x"))
    store(warehouse, ACKNOWLEDGEMENTS, acknowledgement(), acknowledgement(offset=8))
    refused = acknowledgement(partition=-1, offset=-1, _bronze_id="b" * 64, outcome="FAILED", error="Timeout: no")
    store(warehouse, ACKNOWLEDGEMENTS, refused, {**refused, "_bronze_id": "c" * 64})

    stories = told(warehouse, wanted)

    assert [(story["partition"], story["offset"]) for story in stories] == [(0, 7), (0, 8), (None, None)]
    assert [whats(story) for story in stories] == [["acknowledged"], ["acknowledged"], ["refused"]]
    text = trace.answer(Warehouse(warehouse), wanted).result
    assert "orders, offset unknown, acknowledgement bbbb" in text
    assert "refused  to checkout-1: Timeout: no" in text


def test_a_trace_tells_of_a_message_that_was_acknowledged_before_with_another_trace(warehouse: Settings) -> None:
    store(warehouse, trace.LEDGER, message(acknowledgement_count=2, trace_id="first"), message(offset=8))
    again = acknowledgement(trace_id=TRACE, acknowledged_at=at(3), _bronze_id="b" * 64)
    store(warehouse, ACKNOWLEDGEMENTS, acknowledgement(trace_id="first"), again)
    store(warehouse, ACKNOWLEDGEMENTS, acknowledgement(offset=8, trace_id=TRACE))

    stories = told(warehouse, TRACE)

    assert [(story["offset"], whats(story)) for story in stories] == [(7, ["acknowledged"] * 2), (8, ["acknowledged"])]


def test_a_trace_tells_of_messages_that_are_held(warehouse: Settings) -> None:
    store(warehouse, trace.LEDGER, message())
    store(warehouse, ACKNOWLEDGEMENTS, acknowledgement())
    waiting = {"trace_id": TRACE, "acknowledged_at": at(5), "scope": "paid"}
    nowhere = acknowledgement("paid", -7, 3, _bronze_id="d" * 64, **waiting)
    again = [acknowledgement("paid", 2, 3, _bronze_id=letter * 64, **waiting) for letter in "bc"]
    no_topic = {**nowhere, "topic": None, "scope": "file:a.jsonl"}
    known = acknowledgement(**{**waiting, "scope": "orders"})
    store(warehouse, HELD_ACKNOWLEDGEMENTS, nowhere, *again, no_topic, known, {**nowhere, "cluster": "other"})

    stories = told(warehouse, TRACE)

    assert [(story["topic"], story["partition"], story["offset"]) for story in stories] == [
        ("orders", 0, 7),
        ("paid", None, None),
        ("paid", 2, 3),
    ]
    assert [whats(story) for story in stories] == [["acknowledged", "held"], ["held"], ["held", "held"]]
    assert stories[1]["acknowledgement_id"] == "d" * 64
    assert (
        "an acknowledgement is held, as its topic broke the contract"
        in trace.answer(Warehouse(warehouse), TRACE).result
    )


def test_a_long_trace_is_cut(warehouse: Settings) -> None:
    store(warehouse, trace.LEDGER, *(message(offset=number) for number in range(trace.MOST_MESSAGES + 1)))

    said = trace.answer(Warehouse(warehouse), TRACE, "json")

    assert len(said.result.splitlines()) == trace.MOST_MESSAGES
    assert said.remarks == ("The first 20 of 21 messages of the trace: ask for one by TOPIC:PARTITION:OFFSET.",)


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param("orders:0:8", id="no such offset"),
        pytest.param("orders:2147483648:1", id="no partition"),
        pytest.param("orders:0:9223372036854775808", id="no offset"),
        pytest.param("x' OR '1' = '1", id="no part of a statement"),
        pytest.param("\udcff", id="what UTF-8 cannot write"),
        pytest.param("\x1b[31m\u202e", id="controls"),
    ],
)
def test_where_nothing_is_known(warehouse: Settings, wanted: str) -> None:
    store(warehouse, trace.LEDGER, message())

    said = trace.answer(Warehouse(warehouse), wanted)

    assert said.exit_code == 1
    assert said.result.startswith("Nothing is known of ")
    assert said.result.isprintable()
    assert json.loads(trace.answer(Warehouse(warehouse), wanted, "json").result)["wanted"] == wanted


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        pytest.param("orders:x:1", "'x' is not a partition", id="partition"),
        pytest.param("orders:0:x", "'x' is not an offset", id="offset"),
        pytest.param("orders:-1:5", "'-1' is not a partition", id="negative"),
        pytest.param("orders:0: 5", "' 5' is not an offset", id="space"),
        pytest.param("orders:٣:5", "'٣' is not a partition", id="digits of another script"),
        pytest.param("orders:0:", "it names no offset", id="no offset"),
        pytest.param("orders:0", "it names no offset", id="no second colon"),
        pytest.param(":0:1", "it names no topic", id="no topic"),
        pytest.param("a:b:x\x1b[1m:1", "'x\\u001b[1m' is not a partition", id="hostile"),
    ],
)
def test_what_is_meant_for_a_place_and_names_none_is_a_mistake(warehouse: Settings, wanted: str, why: str) -> None:
    with pytest.raises(UsageError) as mistake:
        trace.answer(Warehouse(warehouse), wanted)
    assert why in str(mistake.value)
    assert "write it like" in str(mistake.value)
    assert str(mistake.value).isprintable()


def test_a_trace_whose_id_has_colons_is_found(warehouse: Settings) -> None:
    store(warehouse, trace.LEDGER, message(trace_id="7d:1f:0:1"))
    assert told(warehouse, "7d:1f:0:1")[0]["offset"] == 7


def test_a_mistake_is_told_before_a_table_that_is_not_there(settings: Settings) -> None:
    with pytest.raises(UsageError, match="'x' is not a partition"):
        trace.answer(Warehouse(settings), "orders:x:1")


def test_it_is_told_which_topic_may_be_meant(warehouse: Settings) -> None:
    store(warehouse, trace.LEDGER, message(topic="orders\x1b"))
    assert trace.answer(Warehouse(warehouse), "order:0:99").result.endswith("Did you mean 'orders\\u001b'?")
    store(warehouse, DEAD_LETTERS, dead_letter("a", 0, 1, "dlq.payments", 3, 1.0))
    assert trace.answer(Warehouse(warehouse), "dlq.payment:0:99").result.endswith("Did you mean 'dlq.payments'?")
    assert "Did you mean" not in trace.answer(Warehouse(warehouse), "dlq.payments:0:99").result
    assert "Did you mean" not in trace.answer(Warehouse(warehouse), "weather:0:99").result
    assert "is written dlq.payments:PARTITION:OFFSET" in trace.answer(Warehouse(warehouse), "dlq.payments").result


def test_hostile_names_are_shown(warehouse: Settings) -> None:
    topic, group = "orders\x1b[31m\n:0:7", "g\u202e\n-->"
    store(warehouse, trace.LEDGER, message(topic, outcome="DEAD_LETTERED"))
    store(
        warehouse,
        DEAD_LETTERS,
        dead_letter(topic, 0, 7, "dlq\n<b>", 5, 4, consumer_group=group, error_message="\t"),
    )

    said = trace.answer(Warehouse(warehouse), f"{topic}:0:7").result

    assert all(line.isprintable() for line in said.split("\n"))
    assert r"orders\u001b[31m\n:0:7:0:7" in said
    assert r"to dlq\n<b>:0:5 by g\u202e\n-->" in said


def test_a_warehouse_without_a_ledger(settings: Settings) -> None:
    with pytest.raises(UsageError, match=r"no table gold\.message_ledger"):
        trace.answer(Warehouse(settings), "orders:0:7")


def test_another_cluster_is_asked(warehouse: Settings) -> None:
    second = load(warehouse=warehouse.warehouse, landing=warehouse.landing, cluster="second")

    (story,) = told(second, "orders:0:7")

    assert len(story["events"]) == 5


@pytest.mark.parametrize(
    ("mask", "others"),
    [
        pytest.param({"error": True, "do": "drop"}, {}, id="an error"),
        pytest.param({"error": True, "topic": "ord*", "do": "drop"}, {}, id="an error of some topics"),
        pytest.param({"header": "reason", "do": "hash"}, {"header_profile": "own"}, id="a header, without the key"),
    ],
)
def test_masks_hide_errors(
    warehouse: Settings, monkeypatch: pytest.MonkeyPatch, mask: dict[str, Any], others: dict[str, Any]
) -> None:
    monkeypatch.delenv("DLQ_HASH_KEY", raising=False)
    texts = {"error_message": "refused ada@example.org"}
    store(warehouse, trace.LEDGER, message(outcome="DEAD_LETTERED"))
    store(warehouse, DEAD_LETTERS, dead_letter("orders", 0, 7, "dlq.orders", 5, 4, **texts))
    store(warehouse, DEAD_LETTERS, dead_letter("payments", 0, 7, "dlq.payments", 5, 4, **texts))
    for topic in ("orders", "payments"):
        place = {"cluster": "default", "dlq_topic": f"dlq.{topic}", "dlq_partition": 0, "dlq_offset": 5}
        store(warehouse, RECORDS, {**place, "original_topic": topic, **texts, **others})
    mapped = [{"name": "reason", "field": "error_message"}, {"name": "from", "field": "original_topic"}]
    own = {"profile": [{"name": "own", "headers": [mapped[0], {**mapped[1], "mandatory": True}]}]}
    settings = load(
        warehouse=warehouse.warehouse,
        landing=warehouse.landing,
        dlq=own,
        privacy=[mask],
        privacy_key={"hash_key_env": "DLQ_HASH_KEY"},
    )

    for wanted in ("orders:0:7", "dlq.orders:0:5"):
        assert "ada@" not in trace.answer(Warehouse(settings), wanted).result
        (story,) = told(settings, wanted)
        assert {event["error_message"] for event in story["events"]} == {"<dropped>"}
    other = "ada@" in trace.answer(Warehouse(settings), "payments:0:7").result
    assert other == ("topic" in mask), "masks of other topics hide nothing"
