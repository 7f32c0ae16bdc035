"""Contract of gold.topology_edges: the edges of every known topology, including those to and from topics."""

from expectations.contract import Column, Contract
from expectations.rules import is_true, not_null, one_of
from expectations.streams_groups import TOPOLOGY

CONTRACT = Contract(
    table="gold.topology_edges",
    description="One row per known topology and edge: node to node, sink to its topic, topic to the reading source.",
    columns=(
        *TOPOLOGY,
        Column("from", "string", "Node, or topic, that the edge leaves.", (not_null("An edge leaves something."),)),
        Column("to", "string", "Node, or topic, that the edge leads to.", (not_null("An edge leads somewhere."),)),
        Column("kind", "string", "internal (node to node) or topic.", (one_of("internal", "topic"),)),
        Column(
            "direction",
            "string",
            "Of an edge of kind topic: written (sink to topic) or read (topic to source); else null.",
            (one_of("written", "read"),),
        ),
        Column(
            "topic",
            "string",
            "The topic: where the same one is written by one group and read by another, data flows between them.",
            (is_true("of_topic_edges", "(topic IS NOT NULL) = (kind = 'topic')", "Edges of kind topic have one."),),
        ),
        Column(
            "topic_role",
            "string",
            "repartition, changelog, or internal (of a foreign-key join) where Kafka Streams made the topic for this"
            " application, else external.",
            (one_of("repartition", "changelog", "internal", "external"),),
        ),
        Column("subtopology_id", "string", "Sub-topology of the node; null for a global store's."),
        Column("is_current", "boolean", "True where it is the topology of the group's latest revision."),
    ),
    grain=("cluster", "group_id", "topology_hash", "from", "to", "kind", "direction", "subtopology_id"),
)
