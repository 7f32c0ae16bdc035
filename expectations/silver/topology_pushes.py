"""Contract of silver.topology_pushes: every push of a topology description, accepted or refused."""

from expectations.contract import Column, Contract
from expectations.exchanges import (
    CONTENT_HASH,
    DEFECTS,
    EVIDENCE,
    GRAIN,
    READABLE,
    THROTTLE,
    group_id,
    logged,
    origin,
    outcome,
)
from expectations.kafka_errors import PUSH
from expectations.rules import at_least, is_true, not_null

ACCEPTED = "error_code = 0"

CONTRACT = Contract(
    table="silver.topology_pushes",
    description="One row per STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE request (KIP-1331), with the broker's answer.",
    columns=(
        *origin("push"),
        logged("pushed_at", "When the broker had answered the push."),
        group_id(ACCEPTED),
        Column(
            "member_id",
            "string",
            "Member that pushed.",
            (
                not_null("The member is named.").where(READABLE),
                is_true("named", "member_id <> ''", "Brokers accept no push of a nameless member.")
                .where(ACCEPTED)
                .failing("came from a nameless member"),
            ),
        ),
        Column(
            "topology_epoch",
            "int",
            "Epoch of the topology that the description is of.",
            (
                not_null("A push names the epoch.").where(READABLE),
                at_least(0, "Brokers accept no push of a negative epoch.").where(ACCEPTED),
            ),
        ),
        *outcome(PUSH),
        Column("total_ms", "double", "Time between the broker's receipt of the push and its answer, in milliseconds."),
        Column(
            "description",
            "string",
            "Topology description, in KIP-1331's wire schema as JSON.",
            (not_null("An accepted push carries a description.").where(ACCEPTED),),
            content="text",
        ),
        Column(
            "topology_hash",
            "string",
            "SHA-256 of the description with sub-topologies, nodes and lists in order: equal where topologies are.",
            (not_null("An accepted description can be read.").where(ACCEPTED),),
        ),
        Column("node_count", "int", "Nodes of the description, those of global stores included."),
        DEFECTS,
        THROTTLE,
        CONTENT_HASH,
        *EVIDENCE,
    ),
    grain=(*GRAIN, "pushed_at"),
    content="_content_hash",
    ranges_per=("cluster",),
)
