"""Contract of silver.group_heartbeats: heartbeats that tell something of a group's topology or members."""

from expectations.contract import Column, Contract
from expectations.exchanges import CONTENT_HASH, EVIDENCE, GRAIN, READABLE, group_id, logged, origin, outcome
from expectations.kafka_errors import HEARTBEAT
from expectations.rules import not_null

CONTRACT = Contract(
    table="silver.group_heartbeats",
    description="One row per STREAMS_GROUP_HEARTBEAT that joins, leaves, fails, names a topology or is asked for one.",
    columns=(
        *origin("heartbeat"),
        logged("heartbeat_at", "When the broker had answered the heartbeat."),
        group_id(),
        Column(
            "member_id", "string", "Member of the group.", (not_null("A heartbeat names its member.").where(READABLE),)
        ),
        Column(
            "member_epoch",
            "int",
            "Epoch that the member is at: 0 joins, -1 leaves, -2 leaves for a while (a static member).",
            (not_null("A heartbeat names the member's epoch.").where(READABLE),),
        ),
        *outcome(HEARTBEAT),
        Column(
            "topology_epoch", "int", "Epoch of the topology that the heartbeat carries; null where it carries none."
        ),
        Column(
            "description_required",
            "boolean",
            "True where the broker asked the member to push its topology description.",
        ),
        CONTENT_HASH,
        *EVIDENCE,
    ),
    grain=(*GRAIN, "heartbeat_at"),
    content="_content_hash",
    ranges_per=("cluster",),
)
