"""Contract of gold.topology_changes: what changed from one revision of a group's topology to the next."""

from expectations.contract import Column, Contract
from expectations.rules import at_least, is_true
from expectations.streams_groups import GROUP

CONTRACT = Contract(
    table="gold.topology_changes",
    description="One row per group and revision after the first: the difference to the revision before.",
    columns=(
        *GROUP,
        Column("revision", "int", "Revision that the change led to.", (at_least(2),)),
        Column(
            "previous_revision",
            "int",
            "Revision before it.",
            (is_true("the_one_before", "previous_revision = revision - 1", "Changes are between neighbours."),),
        ),
        Column("changed_at", "timestamp", "When the revision was first accepted or shown."),
        Column("nodes_added", "array<string>", "Names of nodes that are new, in order."),
        Column("nodes_removed", "array<string>", "Names of nodes that are gone."),
        Column("nodes_changed", "array<string>", "Names of nodes with another type, topic, store or sub-topology."),
        Column("edges_added", "array<struct<from: string, to: string>>", "Edges between nodes that are new."),
        Column("edges_removed", "array<struct<from: string, to: string>>", "Edges between nodes that are gone."),
        Column("stores_added", "array<string>", "State stores that are new."),
        Column("stores_removed", "array<string>", "State stores that are gone."),
        Column("topics_added", "array<string>", "Source and sink topics that are new."),
        Column("topics_removed", "array<string>", "Source and sink topics that are gone."),
    ),
    grain=("cluster", "group_id", "revision"),
)
