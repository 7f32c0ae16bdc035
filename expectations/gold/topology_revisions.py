"""Contract of gold.topology_revisions: the history of each group's description, accepted or shown by a describe."""

from expectations.contract import Column, Contract
from expectations.exchanges import DEFECTS
from expectations.rules import at_least, is_true, not_null, one_of
from expectations.streams_groups import TOPOLOGY

CONTRACT = Contract(
    table="gold.topology_revisions",
    description="One row per group and change of the description that brokers accept or show, numbered from 1 by time.",
    columns=(
        *TOPOLOGY,
        Column(
            "revision",
            "int",
            "1, 2, ... each time that the topology changes; deletions do not reset it.",
            (at_least(1),),
        ),
        Column(
            "source",
            "string",
            "pushed where a push of it was accepted; observed where describes alone showed it.",
            (not_null("A description comes from somewhere."), one_of("pushed", "observed")),
        ),
        Column("topology_epoch", "int", "Epoch under which it was first accepted or shown."),
        Column("topology_epochs", "array<int>", "All epochs under which it was accepted or shown, in order."),
        Column(
            "accepted_at",
            "timestamp",
            "When it was first accepted, or shown by a describe, if that was earlier.",
            (not_null("What is logged has a time."),),
        ),
        Column("last_accepted_at", "timestamp", "When it was last accepted or shown before another one replaced it."),
        Column(
            "replaced_at",
            "timestamp",
            "When another topology replaced it; null for the latest.",
            (is_true("after_accepted", "replaced_at >= last_accepted_at", "What replaces comes later."),),
        ),
        Column("member_id", "string", "Member whose push was the first; null where describes alone showed it."),
        Column("push_count", "bigint", "Accepted pushes of it.", (at_least(0),)),
        Column("observed_count", "bigint", "Describes that showed it.", (at_least(0),)),
        Column("node_count", "int", "Nodes of the description."),
        DEFECTS,
        Column(
            "description",
            "string",
            "Description as first accepted or shown, KIP-1331's wire schema as JSON.",
            content="text",
        ),
    ),
    grain=("cluster", "group_id", "revision"),
)
