"""Which replayed record a dead letter is about, against a model of topics of one name that follow each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipelines.replay.died_again import CLOCKS, LONGEST_RUN, ReplayedRecords
from pipelines.replay.model import PLAN, RECORD
from pipelines.settings import Settings
from pipelines.warehouse.tables import Warehouse
from tests.testing.deliveries import store

START = datetime(2026, 11, 21, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
IDS = [f"{number}yZyCpwHTlKiUsmJv1k7xQ" for number in range(4)]


def replayed(minutes: float, topic_id: str | None = IDS[0], plan_id: str = "AAAA-AAAA", **more: Any) -> dict[str, Any]:
    letter = {"dlq_topic": "dlq.orders", "dlq_topic_id": None, "dlq_partition": 0, "dlq_offset": 0}
    target = {"target_topic": "orders", "target_topic_id": topic_id, "target_partition": 0, "target_offset": 5}
    return {"plan_id": plan_id, **letter, **target, "replayed_at": START + minutes * MINUTE, **more}


def letter(minutes: float | None, profile: str = "kip-1191", **more: Any) -> dict[str, Any]:
    at = None if minutes is None else START + minutes * MINUTE
    place = {"original_topic": "orders", "original_partition": 0, "original_offset": 5}
    times = {"routed_at": at, "routed_at_source": "kafka", "dlq_timestamp_type": 0, "_ingested_at": at or START}
    return {**place, "header_profile": profile, **times, "user_headers": [], **more}


def test_a_dead_letter_from_before_the_replay_is_not_about_it() -> None:
    known = ReplayedRecords([replayed(60)], {})
    assert known.about(letter(61)) is not None
    assert known.about(letter(59)) is not None  # clocks differ
    assert known.about(letter(40)) is None
    assert known.about(letter(61) | {"original_offset": 6}) is None
    # Connect and Kafka Streams give a dead letter the time of the record, which an extractor can take from anywhere.
    late = {"_ingested_at": START + timedelta(days=3)}
    assert known.about(letter(-9_000, "kafka-streams", **late)) is not None
    assert known.about(letter(-9_000, "kafka-streams", **late, routed_at_source="header")) is None
    assert known.about(letter(-9_000, "kafka-streams", **late, dlq_timestamp_type=1)) is None
    assert known.about(letter(None, "kafka-streams", **late)) is not None
    landed_before = {"_ingested_at": START + 59 * MINUTE - LONGEST_RUN}
    assert known.about(letter(70, "kafka-streams", **landed_before)) is None


def test_a_dead_letter_from_after_the_topic_was_created_anew_is_not_about_it() -> None:
    known = ReplayedRecords([replayed(60)], {("orders", IDS[0]): START + 100 * MINUTE})
    assert [known.about(letter(at)) is not None for at in (61, 99, 109, 110, 500)] == [True, True, True, False, False]


def test_of_several_records_at_a_place_the_one_of_that_time_counts() -> None:
    first, second = replayed(60), replayed(200, IDS[1], "BBBB-BBBB")
    known = ReplayedRecords([second, first], {})
    assert [known.about(letter(at)) for at in (70, 180, 220, 900)] == [first, first, second, second]
    assert known.about(letter(200)) is None  # of either, as far as clocks tell
    assert known.about(letter(300, "kafka-streams")) is None
    headers = [{"key": PLAN, "value": b"AAAA-AAAA"}, {"key": RECORD, "value": b"dlq.orders:0:0"}]
    assert known.about(letter(300, "kafka-connect", user_headers=headers)) == first
    headers[0] = {"key": PLAN, "value": b"CCCC-CCCC"}
    assert known.about(letter(300, "kafka-connect", user_headers=headers)) is None


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[dict[str, Any]], dict[tuple[str, str], datetime], list[Any]]:
    """Topics that follow each other, a record of each at one place, replayed or not, and dead letters of these.

    Return the replayed records, when the next topic was seen, and each dead letter with the plan that it is about and
    whether its time is far from those of a change.
    """
    skew = st.floats(-4, 4)
    begin, changes, records, ends, written = 0.0, [], [], {}, []
    count = draw(st.integers(1, 4))
    for number in range(count):
        at = begin + draw(st.floats(0, 100))
        end = at + draw(st.floats(30, 1000)) if number < count - 1 else at + 2000
        plan = f"{number}AAA-AAAA" if draw(st.booleans()) else None
        if plan is not None:
            records.append(replayed(at + draw(skew), IDS[number], plan))
        if number < count - 1:
            ends["orders", IDS[number]] = START + (end + draw(skew)) * MINUTE
        written.append((at, end, plan))
        changes += [at, end]
        begin = end
    letters = []
    for _ in range(draw(st.integers(1, 6))):
        at, end, plan = draw(st.sampled_from(written))
        died = draw(st.floats(at, end))
        far = all(abs(died - change) > 2 * CLOCKS / MINUTE for change in changes)
        letters.append((letter(died + draw(skew)), plan, far))
    return records, ends, letters


@given(histories())
def test_a_dead_letter_is_about_the_record_of_a_model_or_unknown(history: Any) -> None:
    records, ends, letters = history
    known = ReplayedRecords(records, ends)
    for item, plan, is_far in letters:
        found = known.about(item)
        if is_far:
            assert (found or {}).get("plan_id") == plan
        elif len(records) == 1 and plan is not None and not ends:  # one topic: no death is hidden
            assert found is records[0]


def test_what_tells_that_a_topic_was_created_anew(settings: Settings) -> None:
    warehouse = Warehouse(settings)

    def end(plans: Any = (), records: Any = ()) -> float | None:
        """Return the minute from which a dead letter is not about the replay at minute 60."""
        known = ReplayedRecords.known(warehouse, [replayed(60), *records], plans)
        found = known._ends.get(("orders", IDS[0]))
        return None if found is None else (found - START) / MINUTE

    def plan(minutes: float, topic_id: str, topic: str = "orders") -> dict[str, Any]:
        return {"created_at": START + minutes * MINUTE, "targets": [{"topic": topic, "topic_id": topic_id, "ends": []}]}

    assert end() is None
    assert end([plan(50, IDS[0]), plan(40, IDS[1]), plan(70, IDS[2], "others")]) is None
    assert end([plan(90, IDS[1]), plan(95, IDS[2])]) == 90
    assert end([plan(90, IDS[1])], [replayed(80, IDS[1], target_offset=9)]) == 80
    # The last time at which the topic itself was seen counts.
    assert end([plan(90, IDS[1])], [replayed(99, IDS[0], target_offset=9)]) is None

    copy = {"cluster": "default", "topic": "orders", "partition": 0}
    batch = {**copy, "segment": "orders-0/0.log", "version": 1, "position": 0, "base_offset": 0, "last_offset": 9}
    store(settings, "silver.log_copies", {**copy, "segment": "orders-0/0.log", "topic_id": IDS[0]})
    assert end() is None
    store(settings, "silver.log_copies", {**copy, "segment": "orders-0/9.log", "topic_id": IDS[3]})
    assert end() is None
    store(settings, "silver.log_batches", {**batch, "topic_id": IDS[3], "max_timestamp": START})
    assert end() is None  # an earlier topic's segment
    for minutes in (130, 120):
        store(settings, "silver.log_batches", {**batch, "topic_id": IDS[3], "max_timestamp": START + minutes * MINUTE})
    assert end() == 120
    assert end([plan(90, IDS[1])]) == 90
