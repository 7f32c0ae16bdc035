"""Columns that the contracts of tables about replays share: the dead letter, the record that failed, the plan."""

from expectations.contract import Column
from expectations.incidents import CLUSTER
from expectations.rules import SPOKEN, at_least, not_null

PLAN_ID = Column(
    "plan_id",
    "string",
    "Id of the plan.",
    (not_null(), SPOKEN),
)
LETTER = (
    Column("dlq_topic", "string", "Dead-letter topic.", (not_null(),)),
    Column("dlq_topic_id", "string", "Its topic id, where the source knows it."),
    Column("dlq_partition", "int", "Partition of the dead-letter topic.", (not_null(), at_least(0))),
    Column("dlq_offset", "bigint", "Offset in the dead-letter topic.", (not_null(), at_least(0))),
)
SOURCE = (
    Column("original_topic", "string", "Topic of the record that failed."),
    Column("original_partition", "int", "Its partition."),
    Column("original_offset", "bigint", "Its offset."),
)
FIRST = (
    Column(
        "first_place",
        "string",
        "TOPIC:PARTITION:OFFSET where the record was written first, before replays and retries; null: not known.",
        later=True,
    ),
    Column("first_timestamp", "timestamp", "Its timestamp there, where it is known.", later=True),
)
GROUP = Column("consumer_group", "string", "Group that could not consume the record.")
ATTEMPT = Column("attempt", "int", "Number of the replay of the source record, from 1.", (at_least(1),))
TARGET = (
    Column("target_topic", "string", "Topic that the record was replayed to.", (not_null(),)),
    Column("target_topic_id", "string", "Its topic id."),
    Column("target_partition", "int", "Partition of the record there.", (not_null(), at_least(0))),
    Column("target_offset", "bigint", "Offset of the record there.", (not_null(), at_least(0))),
)

TABLES = (
    "gold.replay_plans",
    "gold.replays",
    "gold.replayed_records",
    "gold.replay_outcomes",
    "gold.replay_discards",
)
"""Tables that only `afterlog replay` writes; the first plan, run or discard creates each."""

__all__ = ["ATTEMPT", "CLUSTER", "FIRST", "GROUP", "LETTER", "PLAN_ID", "SOURCE", "TABLES", "TARGET"]
