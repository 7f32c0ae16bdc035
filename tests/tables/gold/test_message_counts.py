"""gold.message_counts: messages and their dead letters, counted by slice, hour, topic and group."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from pipelines.columns.slices import name
from pipelines.settings import Settings
from tests.testing.builders import rows, run
from tests.testing.deliveries import at, store

TABLE = "gold.message_counts"
HOUR = 3600


def message(offset: int, outcome: str, *letters: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A row of gold.message_ledger that was acknowledged in the first hour, unless its outcome says that it was not."""
    place = {"cluster": "default", "slice": name("orders", 0, offset), "topic": "orders", "partition": 0}
    acknowledged = outcome not in ("FAILED", "UNKNOWN")
    known = {"acknowledged": acknowledged, "acknowledgement_count": 1, "acknowledged_at": at(60), "hop_count": 0}
    return {**place, "offset": offset, "outcome": outcome, **known, "dead_letters": [*letters], **more}


def letter(hours: int, disposition: str | None, times: int = 1) -> dict[str, Any]:
    return {"routed_at": at(HOUR * hours), "consumer_group": "workers", "disposition": disposition, "times": times}


def test_messages_count_in_the_hour_of_their_acknowledgement_and_letters_in_their_own(
    spark: SparkSession, settings: Settings
) -> None:
    unacknowledged = {"acknowledged": False, "acknowledgement_count": 0, "acknowledged_at": None}
    store(
        settings,
        "gold.message_ledger",
        message(0, "ACKNOWLEDGED"),
        message(1, "LOST", acknowledged_at=None, produced_at=at(59)),
        message(2, "ABORTED", transaction_state="ABORTED"),
        message(3, "FAILED"),
        message(4, "DEAD_LETTERED", letter(1, "CLIENT_REJECTED"), letter(1, "CLIENT_REJECTED", times=2)),
        message(5, "DEAD_LETTERED", letter(1, None), **unacknowledged),
        message(6, "DEAD_LETTERED", letter(2, "MAX_DELIVERY_ATTEMPTS_REACHED"), **unacknowledged, hop_count=1),
        message(1000, "ABSENT"),
    )

    assert run(spark, settings, TABLE, feed="delivery")[TABLE].status == "passed"

    assert {
        (row["slice"][:16].lstrip("0"), row["hour"].hour, row["consumer_group"]): {
            name.removesuffix("_count"): value for name, value in row.items() if name.endswith("_count") and value
        }
        for row in rows(spark, settings, TABLE)
    } == {
        ("", 2, None): {"acknowledged": 4, "failed": 1, "aborted": 1, "lost": 1},
        ("", 3, "workers"): {
            **{"dead_lettered": 3, "client_rejected": 2, "no_disposition": 1, "dead_lettered_again": 1},
            "unacknowledged": 1,
        },
        ("", 4, "workers"): {"dead_lettered": 1, "max_delivery_attempts_reached": 1},
        ("1", 2, None): {"acknowledged": 1, "absent": 1},
    }
