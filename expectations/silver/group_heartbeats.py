"""Contract of silver.group_heartbeats: heartbeats that tell something about a group's topology or members."""

from expectations.contract import Column, Contract
from expectations.exchanges import CONTENT_HASH, EVIDENCE, GRAIN, READABLE, THROTTLE, group_id, logged, origin, outcome
from expectations.kafka_errors import HEARTBEAT
from expectations.rules import not_null

CONTRACT = Contract(
    table="silver.group_heartbeats",
    description="One row per STREAMS_GROUP_HEARTBEAT that joins, leaves, fails, names a topology or is asked for one, "
    "and per run of a member's steady ones, of which the last is kept.",
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
        Column(
            "statuses",
            "array<string>",
            "Kafka's names of the statuses in the response, such as STALE_TOPOLOGY, in order; the number of one that "
            "has no name; null where the response says nothing of them.",
        ),
        Column("status_details", "array<string>", "What the broker said of the statuses."),
        Column(
            "steady_since",
            "timestamp",
            "Of a steady heartbeat, which tells nothing but that the member lives: the first of the run that this one, "
            "its last, stands for. Those of a run have the same statuses, are of one batch and no further apart than "
            "the setting streams_requests.silent_after_seconds. Else null.",
        ),
        Column("total_ms", "double", "Time between the broker's receipt of it and its answer, in milliseconds."),
        THROTTLE,
        CONTENT_HASH,
        *EVIDENCE,
    ),
    grain=(*GRAIN, "heartbeat_at"),
    content="_content_hash",
    ranges_per=("cluster",),
)
