"""Contract of gold.topology_revisions: the history of each group's accepted description."""

from expectations.contract import Column, Contract
from expectations.exchanges import DEFECTS
from expectations.rules import at_least, is_true, not_null
from expectations.streams_groups import TOPOLOGY

CONTRACT = Contract(
    table="gold.topology_revisions",
    description="One row per group and change of its accepted topology description, numbered from 1 in order of time.",
    columns=(
        *TOPOLOGY,
        Column(
            "revision",
            "int",
            "1, 2, ... each time that the topology changes; deletions do not reset it.",
            (at_least(1),),
        ),
        Column("topology_epoch", "int", "Epoch under which it was first accepted.", (at_least(0),)),
        Column("topology_epochs", "array<int>", "All epochs under which it was accepted, in order."),
        Column("accepted_at", "timestamp", "When it was first accepted.", (not_null("A push has a time."),)),
        Column("last_accepted_at", "timestamp", "When it was last accepted before another one replaced it."),
        Column(
            "replaced_at",
            "timestamp",
            "When another topology replaced it; null for the latest.",
            (is_true("after_accepted", "replaced_at >= last_accepted_at", "What replaces comes later."),),
        ),
        Column("member_id", "string", "Member whose push was the first."),
        Column("push_count", "bigint", "Accepted pushes of it.", (at_least(1),)),
        Column("node_count", "int", "Nodes of the description."),
        DEFECTS,
        Column("description", "string", "Description as first accepted, KIP-1331's wire schema as JSON."),
    ),
    grain=("cluster", "group_id", "revision"),
)
