"""Contract of silver.topology_nodes: every node of every topology that brokers accepted or showed."""

from expectations.contract import Column, Contract
from expectations.rules import at_least, not_null, one_of
from expectations.streams_groups import TOPOLOGY

CONTRACT = Contract(
    table="silver.topology_nodes",
    description="One row per group, topology accepted or shown by a describe, sub-topology (or global store) and node.",
    columns=(
        *TOPOLOGY,
        Column("part", "string", "subtopology or global_store.", (one_of("subtopology", "global_store"),)),
        Column("part_place", "int", "Place of the sub-topology or global store in the description, from 0."),
        Column("subtopology_id", "string", "Sub-topology; null for a node of a global store."),
        Column("node", "string", "Name of the node.", (not_null("A node has a name."),)),
        Column(
            "occurrence",
            "int",
            "1; of nodes that a malformed description names alike, 2, 3 ... in the order of the description.",
            (at_least(1),),
        ),
        Column("node_type", "int", "1 source, 2 processor, 3 sink; brokers accept no other."),
        Column("node_type_name", "string", "SOURCE, PROCESSOR, SINK; null where unknown."),
        Column("source_topics", "array<string>", "Topics that a source reads; empty where a pattern chooses them."),
        Column("sink_topic", "string", "Topic that a sink writes; null where it is chosen for each record."),
        Column("stores", "array<string>", "State stores that a processor uses."),
        Column("predecessors", "array<string>", "Nodes of the same part whose successor it is, in order."),
        Column("successors", "array<string>", "Nodes that it forwards to."),
    ),
    grain=("cluster", "group_id", "topology_hash", "part", "part_place", "subtopology_id", "node", "occurrence"),
)
