"""Contract of gold.blast_radius: what the records of an incident's source topic reach, and who writes the topic."""

from expectations.contract import Column, Contract
from expectations.incidents import CLUSTER
from expectations.rules import at_least, not_null, one_of

CONTRACT = Contract(
    table="gold.blast_radius",
    description="One row per incident for its source topic, and one per sub-topology that is reached through a topic.",
    columns=(
        CLUSTER,
        Column("incident_id", "string", "Incident in gold.dlq_incidents.", (not_null(),)),
        Column("place", "int", "0 for the source topic itself, then 1, 2 ... nearest first.", (at_least(0),)),
        Column(
            "direction",
            "string",
            "origin for the source topic itself; downstream where its records go on; upstream where they come from.",
            (not_null(), one_of("origin", "downstream", "upstream")),
        ),
        Column("hop", "int", "0 for the source topic itself; 1 for those that read or write it.", (at_least(0),)),
        Column("topic", "string", "Topic through which the sub-topology is reached; null where it is not known."),
        Column("group_id", "string", "Group, which is the application, of the sub-topology."),
        Column("subtopology_id", "string", "Sub-topology; null for a global store."),
        Column(
            "revision",
            "int",
            "Revision that was valid at the incident's first record; the group's first if it came later.",
        ),
        Column(
            "is_later",
            "boolean",
            "True if only topologies that were accepted after it reach it: it does not count.",
        ),
        Column("stores", "array<string>", "State stores that are reached in the sub-topology."),
        Column("topics", "array<string>", "Topics that it writes (downstream), or reads (upstream)."),
        Column("unknown_edges", "int", "Sinks that choose a topic for each record; upstream, sources by a pattern."),
        Column("is_lower_bound", "boolean", "True if there may be more than these rows.", (not_null(),)),
        Column("reasons", "array<string>", "Why there may be more; only in the row of the source topic itself."),
    ),
    grain=("cluster", "incident_id", "place"),
)
