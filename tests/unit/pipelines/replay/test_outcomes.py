"""What became of replayed records, as dead letters and what is known of the target's topics tell."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from expectations.contract import contract_of
from pipelines.replay import outcomes, store
from pipelines.replay.accepted import REPLAYED
from pipelines.replay.candidates import Candidates
from pipelines.replay.choice import Choice
from pipelines.settings import Settings
from pipelines.warehouse import append
from tests.testing.deliveries import store as put
from tests.testing.replays import letters_in

AT = datetime(2026, 11, 21, tzinfo=UTC)
OLD_ID, NEW_ID = "1yZyCpwHTlKiUsmJv1k7xQ", "2yZyCpwHTlKiUsmJv1k7xQ"


def test_a_dead_letter_of_another_topic_of_the_name_is_no_death(settings: Settings) -> None:
    """Each letter names the place of one replayed record; the target was created anew before the last one."""
    hours = {0: -48, 1: 0.1, 2: 9, 3: -0.1}
    died = [AT + timedelta(hours=hours[number]) for number in range(4)]
    warehouse = letters_in(
        settings,
        4,
        header_profile=lambda _: "kip-1191",
        routed_at=lambda number: died[number],
        _ingested_at=lambda _: AT + timedelta(hours=10),
        original_topic=lambda _: "orders",
        original_partition=lambda _: 0,
        original_offset=lambda number: number,
    )

    def replayed(number: int, topic_id: str | None = OLD_ID, **more: Any) -> dict[str, Any]:
        letter = {"dlq_topic": "dlq.first", "dlq_topic_id": None, "dlq_partition": 0, "dlq_offset": number}
        source = {"original_topic": "orders", "original_partition": 0, "original_offset": 90 + number}
        target = {"target_topic": "orders", "target_topic_id": topic_id, "target_partition": 0, "target_offset": number}
        known = {"cluster": "default", "plan_id": "AAAA-AAAA", "consumer_group": "billing", "attempt": 1}
        return {**known, **letter, **source, **target, "replayed_at": AT, **more}

    def found() -> list[str]:
        outcomes.refresh(warehouse, asks=False)
        rows = store.outcomes(warehouse, "AAAA-AAAA")
        return [row["outcome"] for row in sorted(rows, key=lambda row: int(row["dlq_offset"]))]

    append.append(warehouse, contract_of(REPLAYED), [replayed(number) for number in range(4)])
    assert found() == ["UNKNOWN", "DIED_AGAIN", "DIED_AGAIN", "DIED_AGAIN"]

    batch = {"cluster": "default", "segment": "orders-0/0.log", "version": 1, "topic": "orders", "topic_id": NEW_ID}
    put(settings, "silver.log_copies", {"cluster": "default", "topic": "orders", "topic_id": NEW_ID, "partition": 0})
    put(settings, "silver.log_batches", {**batch, "max_timestamp": AT + timedelta(hours=5)})
    assert found() == ["UNKNOWN", "DIED_AGAIN", "UNKNOWN", "DIED_AGAIN"]
    (died_at,) = {row["died_at"] for row in store.outcomes(warehouse) if row["dlq_offset"] == 1}
    assert died_at == died[1]

    chosen = Candidates(warehouse).chosen(Choice(where="true"), 10)
    assert {candidate.row["original_offset"]: candidate.attempt for candidate in chosen} == {0: 1, 1: 2, 2: 1, 3: 2}
