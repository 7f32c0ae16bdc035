"""Cases -> what a replay would take; gold.replay_plans and the tables beside it -> the newest replays."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import islice

from pipelines.site.content import Case, Replay, Replayable, Row
from pipelines.site.tables import Tables

MOST_REPLAYS_LISTED = 5


def replayable_of(cases: Sequence[Case]) -> tuple[Replayable, ...]:
    """Return the dead letters of open incidents by owner and topic, the most first."""
    by_key: dict[tuple[str | None, str | None, str | None], list[Case]] = defaultdict(list)
    for case in cases:
        if case.is_open and (case.with_payload or case.without_payload):
            by_key[case.group, case.owner, case.topic].append(case)
    summed = [
        Replayable(
            *key,
            sum(case.with_payload for case in matching),
            sum(case.without_payload for case in matching),
            tuple(case.incident_id for case in matching),
        )
        for key, matching in by_key.items()
    ]
    return tuple(
        sorted(summed, key=lambda replayable: (-replayable.records, replayable.topic or "", replayable.owner or ""))
    )


def _chosen(choice: str) -> str:
    """Return what chose a plan's records, without a condition that a person typed: it may quote a record."""
    return {"where": "a condition", "record": "named records"}.get(choice.partition(" ")[0], choice)


def replays_of(tables: Tables) -> tuple[Replay, ...]:
    """Return the newest plans that have something to replay, the newest first."""
    replayed = Counter(row["plan_id"] for row in tables["gold.replayed_records"])
    outcomes = Counter((row["plan_id"], row["outcome"]) for row in tables["gold.replay_outcomes"])
    plans = sorted(tables["gold.replay_plans"], key=lambda row: (row["created_at"], row["plan_id"]), reverse=True)

    def replay_of(row: Row) -> Replay:
        name = row["plan_id"]
        done, delivered, died = replayed[name], outcomes[name, "DELIVERED"], outcomes[name, "DIED_AGAIN"]
        at, choice, target, eligible = (row[column] for column in ("created_at", "choice", "target", "eligible_count"))
        return Replay(name, at, _chosen(choice), target, eligible, done, delivered, died, done - delivered - died)

    replays = (replay_of(row) for row in plans)
    return tuple(islice((replay for replay in replays if replay.eligible or replay.replayed), MOST_REPLAYS_LISTED))
