"""Contract of silver.topology_statuses: what each describe said of each group."""

from expectations.contract import Column, Contract
from expectations.exchanges import (
    CONTENT_HASH,
    DEFECTS,
    EVIDENCE,
    GRAIN,
    STATUS,
    group_id,
    item,
    logged,
    origin,
    outcome,
)
from expectations.kafka_errors import DESCRIBE
from expectations.rules import not_null

CONTRACT = Contract(
    table="silver.topology_statuses",
    description="One row per group in the response to a STREAMS_GROUP_DESCRIBE request.",
    columns=(
        *origin("describe"),
        item("group"),
        logged("described_at", "When the broker had answered the describe."),
        group_id(),
        Column("description_requested", "boolean", "True where the request asked for the description."),
        *outcome(DESCRIBE),
        Column("group_state", "string", "State of the group, such as Stable or Empty."),
        Column("group_epoch", "int", "Epoch of the group."),
        Column("topology_epoch", "int", "Epoch of the group's topology; null where the group was not described."),
        Column("member_count", "int", "Members of the group."),
        STATUS,
        Column("status_name", "string", "Name of the status; null where it has none."),
        Column(
            "description",
            "string",
            "Topology description, in KIP-1331's wire schema as JSON; else null.",
            content="text",
        ),
        Column(
            "topology_hash",
            "string",
            "SHA-256 of the description, as in silver.topology_pushes; null where there is none that can be read.",
            (not_null("A description can be read.").where("description IS NOT NULL").tolerated(),),
        ),
        Column("node_count", "int", "Nodes of the description, those of global stores included."),
        DEFECTS,
        CONTENT_HASH,
        *EVIDENCE,
    ),
    grain=(*GRAIN, "group_id", "described_at"),
    content="_content_hash",
    item="_item",
    ranges_per=("cluster",),
)
