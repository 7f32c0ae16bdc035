"""Columns that the contracts of tables about streams groups share: cluster, group, topology."""

from expectations.contract import Column
from expectations.rules import not_null

GROUP = (
    Column("cluster", "string", "Kafka cluster, a setting.", (not_null("Every row belongs to a cluster."),)),
    Column("group_id", "string", "Streams group.", (not_null("Every row belongs to a group."),)),
)
TOPOLOGY = (
    *GROUP,
    Column("topology_hash", "string", "Topology, as in silver.topology_pushes.", (not_null("A topology has a hash."),)),
)
